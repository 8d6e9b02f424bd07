/* The compute time of shared devices.
 *
 * Work that is ready joins the device's open chunk. A chunk is asked for when it has 10 ms of work, or the program waits; the next
 * one when this one is answered, which is when the device begins it, or shortly before it ends. An answer is an interval; the chunk's work is done in it at an
 * even rate, in the order in which it joined.
 */
#include "grant.h"

#include "manager.h"

#include <stdlib.h>

enum { WORTH_A_MESSAGE_NS = 10000000, LONGEST_NS = 1000000000 };

struct chunk {
    int references;          /* one of the device while it is open or asked for, one of each item */
    int64_t sequence;
    int64_t ready_ns, work_ns;
    int64_t start_ns, end_ns;
    bool answered;
};

static struct {
    chunk *open;
    chunk *asked;            /* not yet answered; NULL: none */
    int64_t sequences;
    bool flushing;           /* the open chunk is awaited */
} shares[EMU_MAX_DEVICES];

static void release(chunk *shared) {
    if (--shared->references == 0)
        free(shared);
}

bool grant_needed(const emu_stream *stream, const item *work) {
    const device_state *device = &devices[stream->device];
    return work->engine == &device->compute && !device->lost && manager_shares(stream->device);
}

void grant_release(item *work) {
    if (work->chunk != NULL)
        release(work->chunk);
    work->chunk = NULL;
}

bool grant_asked(int device) {
    return device < EMU_MAX_DEVICES && shares[device].asked != NULL;
}

void grant_forget(int device) {
    chunk **own[] = {&shares[device].asked, &shares[device].open};
    for (int i = 0; i < 2; i++) {
        if (*own[i] != NULL)
            release(*own[i]);
        *own[i] = NULL;
    }
}

/* Ask for the open chunk if it is worth it, or awaited, and the one before is answered. */
static void ask(int device) {
    chunk *open = shares[device].open;
    if (open == NULL || shares[device].asked != NULL || (open->work_ns < WORTH_A_MESSAGE_NS && !shares[device].flushing))
        return;
    open->sequence = shares[device].sequences++;
    shares[device].asked = open;
    shares[device].open = NULL;
    shares[device].flushing = false;
    manager_demand(device, open->sequence, open->ready_ns, open->work_ns);
}

/* The chunk that work which is ready at `ready_ns` can join; NULL: none at present. */
static chunk *chunk_for(int device, int64_t ready_ns) {
    chunk *open = shares[device].open;
    if (open != NULL && (open->work_ns >= LONGEST_NS || ready_ns > open->ready_ns + open->work_ns)) {
        shares[device].flushing = true; /* later work mustn't delay what is ready now */
        ask(device);
        open = shares[device].open;
        if (open != NULL)
            return NULL;
    }
    if (open == NULL) {
        open = calloc(1, sizeof *open);
        if (open == NULL)
            return NULL;
        *open = (chunk){.references = 1, .ready_ns = ready_ns};
        shares[device].open = open;
    }
    return open;
}

static bool join(emu_stream *stream, item *work, int64_t ready_ns) {
    chunk *joined = chunk_for(stream->device, ready_ns);
    if (joined == NULL)
        return false;
    work->chunk = joined;
    work->chunk_offset_ns = joined->work_ns;
    joined->work_ns += work->duration_ns > 0 ? work->duration_ns : 1;
    joined->references++;
    return true;
}

void grant_ask(emu_stream *stream) {
    if (!manager_shares(stream->device))
        return;
    item *before = stream->last_asked;
    item *next = before != NULL ? before->next : stream->first;
    for (; next != NULL && grant_needed(stream, next) && (before != NULL || next == stream->first); next = next->next) {
        int64_t ready_ns = next->issued_ns;
        if (before == NULL && stream->end_ns > ready_ns)
            ready_ns = stream->end_ns;
        if (before != NULL && shares[stream->device].open != NULL)
            ready_ns = shares[stream->device].open->ready_ns; /* what is before it has joined a chunk, so it follows */
        if (!join(stream, next, ready_ns))
            break;
        before = stream->last_asked = next;
    }
    ask(stream->device);
}

void grant_flush(void) {
    for (int device = 0; device < settings.device_count; device++) {
        if (shares[device].open == NULL)
            continue;
        shares[device].flushing = true;
        ask(device);
    }
}

bool grant_answered(item *work) {
    const chunk *within = work->chunk;
    if (within == NULL || !within->answered)
        return false;
    double length = (double)(within->end_ns - within->start_ns) / (double)within->work_ns;
    int64_t duration_ns = work->duration_ns > 0 ? work->duration_ns : 1;
    work->start_ns = within->start_ns + (int64_t)((double)work->chunk_offset_ns * length);
    work->end_ns = within->start_ns + (int64_t)((double)(work->chunk_offset_ns + duration_ns) * length);
    grant_release(work);
    return true;
}

void grant_answer(int device, int64_t sequence, int64_t start_ns, int64_t end_ns) {
    chunk *asked = shares[device].asked;
    if (asked == NULL || asked->sequence != sequence)
        return; /* the answer to a repeated question */
    asked->start_ns = start_ns;
    asked->end_ns = end_ns > start_ns ? end_ns : start_ns;
    asked->answered = true;
    shares[device].asked = NULL;
    release(asked);
    ask(device);
}

void grant_repeat(int device) {
    const chunk *asked = shares[device].asked;
    if (asked != NULL)
        manager_demand(device, asked->sequence, asked->ready_ns, asked->work_ns);
}
