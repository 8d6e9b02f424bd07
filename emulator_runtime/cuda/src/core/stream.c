/* Streams and events: in which order work is done, and when each piece of it ends.
 *
 * Usually the end of work is known when it is issued: it begins when the work before it in the stream has ended and its engine is
 * free. Then the stream is nothing but the time of its end. Work whose end isn't known yet (it waits for another process, for the
 * sharing manager, or for a function of the host), and what follows it, is a list, which streams_resolve shortens.
 */
#include "clock.h"
#include "grant.h"
#include "internal.h"
#include "manager.h"
#include "statistics.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LEGACY_HANDLE = 1, PER_THREAD_HANDLE = 2, RECHECK_NS = 1000000 };

/* Recursive: a deferred work's functions are called under it, and may ask for memory. */
pthread_mutex_t core_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
pthread_cond_t core_progress = PTHREAD_COND_INITIALIZER;
emu_pool stream_pool = {.object_bytes = sizeof(emu_stream)};
emu_pool event_pool = {.object_bytes = sizeof(emu_event)};
static emu_pool moment_pool = {.object_bytes = sizeof(moment)};
static uint64_t streams_created;
static int pending_items; /* of all streams */

/* ---- moments ---- */

moment *moment_new(void) {
    moment *created = pool_take(&moment_pool);
    if (created != NULL)
        created->references = 1;
    return created;
}

void moment_release(moment *shared) {
    if (shared != NULL && --shared->references == 0)
        pool_give(&moment_pool, shared);
}

static moment *moment_share(moment *shared) {
    shared->references++;
    return shared;
}

/* ---- when work ends ---- */

static int64_t later(int64_t one_ns, int64_t other_ns) {
    return one_ns > other_ns ? one_ns : other_ns;
}

static void ended_at(emu_stream *stream, int64_t end_ns) {
    stream->end_ns = later(stream->end_ns, end_ns);
    device_state *device = &devices[stream->device];
    device->last_end_ns = later(device->last_end_ns, end_ns);
}

/* Memory that the program freed before the work that uses it took place is gone, or somebody else's. */
static bool still_there(const void *address, size_t bytes, bool known, memory_use use) {
    int device;
    if (!known)
        return memory_mapped(address, bytes, use);
    return memory_place_of(address, &device) != PLACE_PAGEABLE && memory_contains(address, bytes);
}

static bool memory_gone(const item *work) {
    size_t rows = work->copy.rows, width = work->copy.width;
    if (!still_there(work->copy.to, (rows - 1) * work->copy.to_pitch + width, work->copy.to_known, TO_WRITE))
        return true;
    return work->copy.from != NULL
        && !still_there(work->copy.from, (rows - 1) * work->copy.from_pitch + width, work->copy.from_known, TO_READ);
}

static void move_data(const item *work) {
    if (memory_gone(work))
        return;
    for (size_t row = 0; row < work->copy.rows; row++) {
        char *to = (char *)work->copy.to + row * work->copy.to_pitch;
        if (work->copy.from == NULL)
            memory_fill(to, work->copy.value, work->copy.element, work->copy.width / work->copy.element);
        else
            memory_move(to, (const char *)work->copy.from + row * work->copy.from_pitch, work->copy.width);
    }
}

/* The work's end, if it can be known now that all before it in the stream is known; false: not yet. */
static bool settle(emu_stream *stream, item *work) {
    int64_t ready_ns = later(stream->end_ns, work->issued_ns);
    int64_t start_ns = ready_ns;
    int64_t end_ns = ready_ns;
    switch (work->kind) {
    case ITEM_COPY:
    case ITEM_WORK:
        if (grant_needed(stream, work)) {
            if (!grant_answered(work))
                return false;
            start_ns = work->start_ns;
            end_ns = work->end_ns;
        } else if (work->engine != NULL) {
            end_ns = engine_take(work->engine, ready_ns, work->duration_ns, &start_ns);
        } else {
            end_ns = ready_ns + work->duration_ns;
        }
        if (work->kind == ITEM_COPY)
            move_data(work);
        else
            values_worked(&work->work, work->arguments, stream->device);
        if (work->engine == &devices[stream->device].compute) {
            emu_statistics_busy(stream->device, end_ns, work->duration_ns);
            if (!manager_shares(stream->device))
                manager_worked(stream->device, start_ns, end_ns, work->duration_ns);
        }
        if (trace_wanted())
            trace_work(stream, work, start_ns, end_ns);
        break;
    case ITEM_MARK:
        work->moment->known = true;
        work->moment->end_ns = ready_ns;
        return true;
    case ITEM_WAIT:
        if (!work->moment->known)
            return false;
        end_ns = work->moment->end_ns;
        break;
    case ITEM_DEFERRED:
        if (!work->plan->work.poll(work->state, ready_ns, &end_ns))
            return false;
        if (trace_wanted())
            trace_work(stream, work, ready_ns, end_ns);
        break;
    case ITEM_HOST:
        work->start_ns = ready_ns;
        if (!work->started)
            work->started = attendant_run(work);
        if (!work->ended)
            return false;
        end_ns = work->end_ns;
        break;
    }
    ended_at(stream, end_ns);
    return true;
}

static void clear(item *work) {
    grant_release(work);
    moment_release(work->moment);
    arguments_release(work->arguments);
    if (work->kind != ITEM_DEFERRED)
        return;
    if (work->plan->work.done != NULL)
        work->plan->work.done(work->state);
    plan_release(work->plan);
}

static void remember_end(emu_stream *stream) {
    stream->recent_end_ns[stream->issued++ % QUEUE_DEPTH] = stream->end_ns;
}

/* Settle what can be settled of a stream's list, from its beginning. */
static bool resolve(emu_stream *stream) {
    bool changed = false;
    while (stream->first != NULL && settle(stream, stream->first)) {
        item *work = stream->first;
        stream->first = work->next;
        if (stream->last_asked == work)
            stream->last_asked = NULL;
        stream->pending--;
        pending_items--;
        remember_end(stream);
        clear(work);
        free(work);
        changed = true;
    }
    if (stream->first == NULL) {
        stream->last = NULL;
        if (stream->closing)
            pool_give(&stream_pool, stream);
    } else {
        grant_ask(stream);
    }
    return changed;
}

void streams_resolve(void) {
    bool changed = false;
    for (bool again = pending_items > 0; again;) {
        again = false;
        for (emu_stream *stream = pool_next(&stream_pool, NULL), *next; stream != NULL; stream = next) {
            next = pool_next(&stream_pool, stream);
            if (stream->first != NULL)
                again |= resolve(stream);
        }
        changed |= again;
    }
    if (changed)
        pthread_cond_broadcast(&core_progress);
}

bool streams_pending(void) {
    return pending_items > 0;
}

/* Wait for what may let pending work go on. Work that has joined a chunk meanwhile is awaited, too, however little it is. */
static void wait_for_progress(void) {
    struct timespec until;
    grant_flush();
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += RECHECK_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    if (record_on)
        record_waiting(true);
    pthread_cond_clockwait(&core_progress, &core_lock, CLOCK_MONOTONIC, &until);
    if (record_on)
        record_waiting(false);
}

static void wait_until(int64_t deadline_ns) {
    if (record_on)
        record_waiting(true);
    pthread_mutex_unlock(&core_lock);
    clock_wait_until(deadline_ns);
    pthread_mutex_lock(&core_lock);
    if (record_on)
        record_waiting(false);
}

/* Wait for `awaited`, of which the caller holds a reference. */
static void wait_for_moment(const moment *awaited) {
    grant_flush();
    streams_resolve();
    while (!awaited->known) {
        wait_for_progress();
        streams_resolve();
    }
    wait_until(awaited->end_ns);
}

/* ---- issuing ---- */

/* A GPU's queue holds so many launches; the host waits for a place in it. Answers the time after that. */
static int64_t wait_for_room(emu_stream *stream) {
    int64_t oldest_ns = stream->recent_end_ns[stream->issued % QUEUE_DEPTH];
    int64_t now_ns = emu_now_ns();
    if (oldest_ns <= now_ns && stream->pending < QUEUE_DEPTH)
        return now_ns;
    if (oldest_ns > now_ns)
        wait_until(oldest_ns);
    if (stream->pending >= QUEUE_DEPTH)
        grant_flush();
    while (stream->pending >= QUEUE_DEPTH) {
        streams_resolve();
        if (stream->pending >= QUEUE_DEPTH)
            wait_for_progress();
    }
    return emu_now_ns();
}

/* Takes over what `work` refers to, also if it fails. */
static emu_status append(emu_stream *stream, item *work) {
    item *kept = malloc(sizeof *kept);
    if (kept == NULL) {
        clear(work);
        return EMU_OUT_OF_MEMORY;
    }
    *kept = *work;
    kept->next = NULL;
    if (stream->last == NULL)
        stream->first = kept;
    else
        stream->last->next = kept;
    stream->last = kept;
    stream->pending++;
    pending_items++;
    attendant_start();
    grant_ask(stream);
    return EMU_OK;
}

/* What is issued to `stream` next waits for all that `other` has now. */
static emu_status follow(emu_stream *stream, emu_stream *other) {
    if (record_on && !stream->closing)
        record_follow(stream, other);
    if (other->first == NULL) {
        if (stream->first == NULL) {
            stream->end_ns = later(stream->end_ns, other->end_ns);
            return EMU_OK;
        }
    }
    moment *tail = moment_new();
    if (tail == NULL)
        return EMU_OUT_OF_MEMORY;
    item mark = {.kind = ITEM_MARK, .moment = tail};
    if (other->first == NULL) {
        settle(other, &mark);
    } else {
        moment_share(tail);
        if (append(other, &mark) != EMU_OK) {
            moment_release(tail);
            return EMU_OUT_OF_MEMORY;
        }
    }
    item wait = {.kind = ITEM_WAIT, .moment = tail};
    return append(stream, &wait);
}

/* The default stream and the blocking ones wait for each other (CUDA programming guide, "Default Stream"). */
static emu_status follow_default(emu_stream *stream) {
    device_state *device = &devices[stream->device];
    if (device->blocking_streams == 0 || stream->flags & EMU_STREAM_NON_BLOCKING)
        return EMU_OK;
    if (!stream->is_default)
        return follow(stream, device->default_stream);
    emu_status status = EMU_OK;
    for (emu_stream *other = pool_next(&stream_pool, NULL); other != NULL; other = pool_next(&stream_pool, other)) {
        bool blocking = other != stream && other->device == stream->device && !(other->flags & EMU_STREAM_NON_BLOCKING);
        if (blocking && status == EMU_OK)
            status = follow(stream, other);
    }
    return status;
}

/* When the measured machine's host would have made this launch: it may be slower than the one that runs the program. */
static int64_t dispatched(int device, int64_t dispatch_ns, int64_t now_ns) {
    if (dispatch_ns == 0)
        return now_ns;
    int64_t at_ns = later(now_ns, devices[device].dispatched_ns);
    devices[device].dispatched_ns = at_ns + dispatch_ns;
    return at_ns;
}

emu_status stream_issue(emu_stream *stream, item *work) {
    uint64_t id = stream->id;
    emu_status status = device_usable(stream->device);
    if (status != EMU_OK)
        return status;
    if (stream->capture != NULL)
        return capture_work(stream, work);
    int64_t now_ns = wait_for_room(stream);
    if (!stream_live(stream) || stream->id != id)
        return EMU_INVALID_HANDLE; /* another thread destroyed it meanwhile */
    if (record_on)
        work->duration_ns = work->dispatch_ns = 0;
    if (work->engine == &devices[stream->device].compute)
        anchor_work(stream->device, work);
    work->issued_ns = dispatched(stream->device, work->dispatch_ns, now_ns);
    status = follow_default(stream);
    if (status != EMU_OK)
        return status;
    if (record_on)
        record_work(stream, work);
    if (work->kind == ITEM_DEFERRED) {
        work->state = work->plan->work.begin(work->plan->work.plan);
        if (work->state == NULL)
            return EMU_OUT_OF_MEMORY;
        plan_share(work->plan);
    }
    arguments_share(work->arguments);
    if (stream->first != NULL)
        streams_resolve();
    /* A host function stays in the list: its thread needs an address that lasts. So does what a manager grants. */
    bool listed = work->kind == ITEM_HOST || grant_needed(stream, work);
    if (stream->first == NULL && !listed && settle(stream, work)) {
        remember_end(stream);
        clear(work);
        return EMU_OK;
    }
    status = append(stream, work);
    if (status == EMU_OK && listed)
        streams_resolve();
    return status;
}

/* ---- streams ---- */

bool stream_live(const emu_stream *stream) {
    return pool_has(&stream_pool, stream) && !stream->closing;
}

static emu_stream *new_stream(int device, unsigned flags, int priority) {
    emu_stream *stream = pool_take(&stream_pool);
    if (stream == NULL)
        return NULL;
    stream->device = device;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = ++streams_created;
    return stream;
}

emu_status emu_stream_create(int device, unsigned flags, int priority, emu_stream **stream) {
    emu_stream *first = emu_stream_default(device); /* so that the default stream exists before any other */
    if (first == NULL)
        return EMU_INVALID_DEVICE;
    pthread_mutex_lock(&core_lock);
    emu_status status = device_usable(device);
    if (status == EMU_OK) {
        *stream = new_stream(device, flags, priority);
        if (*stream == NULL)
            status = EMU_OUT_OF_MEMORY;
        else if (!(flags & EMU_STREAM_NON_BLOCKING))
            devices[device].blocking_streams++;
    }
    pthread_mutex_unlock(&core_lock);
    return status;
}

emu_status emu_stream_destroy(emu_stream *stream) {
    pthread_mutex_lock(&core_lock);
    emu_status status = EMU_INVALID_HANDLE;
    if (stream_live(stream) && !stream->is_default) {
        status = EMU_OK;
        if (stream->capture != NULL)
            capture_lose(stream);
        if (!(stream->flags & EMU_STREAM_NON_BLOCKING))
            devices[stream->device].blocking_streams--;
        stream->closing = true;
        if (stream->first == NULL)
            pool_give(&stream_pool, stream);
    }
    pthread_mutex_unlock(&core_lock);
    return status;
}

emu_stream *emu_stream_default(int device) {
    if (emu_device(device) == NULL)
        return NULL;
    emu_stream *made = atomic_load_explicit(&devices[device].default_stream, memory_order_acquire);
    if (made != NULL)
        return made;
    pthread_mutex_lock(&core_lock);
    made = devices[device].default_stream;
    if (made == NULL) {
        made = new_stream(device, 0, 0);
        if (made != NULL)
            made->is_default = true;
        devices[device].default_stream = made;
    }
    pthread_mutex_unlock(&core_lock);
    return made;
}

emu_stream *stream_of_kept(kept_stream *kept, int device, unsigned flags) {
    if (!stream_live(kept->stream) || kept->stream->id != kept->id) {
        kept->stream = NULL;
        if (emu_stream_create(device, flags, 0, &kept->stream) == EMU_OK)
            kept->id = kept->stream->id;
    }
    return kept->stream;
}

/* A thread's own default stream: one for each thread and device. */
static emu_stream *stream_of_thread(int device) {
    static _Thread_local kept_stream own[EMU_MAX_DEVICES];
    return stream_of_kept(&own[device], device, 0);
}

emu_stream *emu_stream_of(void *handle) {
    if (emu_start() != EMU_OK)
        return NULL;
    if (handle == NULL || (uintptr_t)handle == LEGACY_HANDLE)
        return emu_stream_default(emu_current_device());
    if ((uintptr_t)handle == PER_THREAD_HANDLE)
        return stream_of_thread(emu_current_device());
    return stream_live(handle) ? handle : NULL;
}

void streams_destroy(int device) {
    pthread_mutex_lock(&core_lock);
    for (emu_stream *stream = pool_next(&stream_pool, NULL), *next; stream != NULL; stream = next) {
        next = pool_next(&stream_pool, stream);
        if (stream->device == device && !stream->is_default)
            emu_stream_destroy(stream);
    }
    for (emu_event *event = pool_next(&event_pool, NULL), *next; event != NULL; event = next) {
        next = pool_next(&event_pool, event);
        if (event->device == device)
            emu_event_destroy(event);
    }
    pthread_mutex_unlock(&core_lock);
}

int emu_stream_device(const emu_stream *stream) {
    return stream->device;
}

unsigned emu_stream_flags(const emu_stream *stream) {
    return stream->flags;
}

int emu_stream_priority(const emu_stream *stream) {
    return stream->priority;
}

uint64_t emu_stream_id(const emu_stream *stream) {
    return stream->id;
}

/* A stream that is captured can't be waited for; trying ends the capture. */
static emu_status waitable(emu_stream *stream) {
    if (!stream_live(stream))
        return EMU_INVALID_HANDLE;
    if (stream->capture != NULL) {
        stream->capture->broken = true;
        return EMU_CAPTURE_UNSUPPORTED;
    }
    return device_usable(stream->device);
}

emu_status emu_stream_query(emu_stream *stream) {
    pthread_mutex_lock(&core_lock);
    emu_status status = waitable(stream);
    if (status == EMU_OK) {
        if (stream->first != NULL) {
            grant_flush();
            streams_resolve();
        }
        if (stream->first != NULL || stream->end_ns > emu_now_ns())
            status = EMU_NOT_READY;
    }
    pthread_mutex_unlock(&core_lock);
    return status;
}

/* The program has waited for a stream. */
static void note_wait(const emu_stream *stream) {
    if (stream_live(stream) && stream->end_ns >= devices[stream->device].last_end_ns)
        anchor_waited(stream->device);
}

emu_status stream_wait_for_end(emu_stream *stream) {
    int device = stream->device; /* while this waits, another thread may destroy the stream */
    if (record_on && !stream->closing)
        record_stream_wait(stream);
    if (stream->first == NULL) {
        wait_until(stream->end_ns);
        note_wait(stream);
        return device_usable(device);
    }
    moment *tail = moment_new();
    if (tail == NULL)
        return EMU_OUT_OF_MEMORY;
    item mark = {.kind = ITEM_MARK, .moment = moment_share(tail)};
    emu_status status = append(stream, &mark);
    if (status == EMU_OK)
        wait_for_moment(tail);
    moment_release(tail);
    note_wait(stream);
    return status == EMU_OK ? device_usable(device) : status;
}

emu_status emu_stream_synchronize(emu_stream *stream) {
    pthread_mutex_lock(&core_lock);
    emu_status status = waitable(stream);
    if (status == EMU_OK)
        status = stream_wait_for_end(stream);
    pthread_mutex_unlock(&core_lock);
    return status;
}

/* Wait for the work of the device's streams whose end isn't known, as it is now; other threads may issue more. */
static emu_status wait_for_pending(int device) {
    emu_stream *all = new_stream(device, EMU_STREAM_NON_BLOCKING, 0); /* it waits for each of them */
    if (all == NULL)
        return EMU_OUT_OF_MEMORY;
    emu_status status = EMU_OK;
    all->closing = true; /* no handle of a program means it; it is given back when its list is empty */
    for (emu_stream *stream = pool_next(&stream_pool, NULL); stream != NULL; stream = pool_next(&stream_pool, stream)) {
        if (stream != all && stream->device == device && stream->first != NULL && status == EMU_OK)
            status = follow(all, stream);
    }
    if (all->first == NULL)
        pool_give(&stream_pool, all);
    else if (status == EMU_OK)
        status = stream_wait_for_end(all);
    return status;
}

emu_status emu_device_synchronize(int device) {
    if (emu_device(device) == NULL)
        return EMU_INVALID_DEVICE;
    pthread_mutex_lock(&core_lock);
    emu_status status = device_usable(device);
    grant_flush();
    streams_resolve();
    int64_t end_ns = devices[device].last_end_ns; /* also of streams that were destroyed */
    if (record_on && status == EMU_OK)
        record_device_wait(device);
    if (status == EMU_OK && pending_items > 0)
        status = wait_for_pending(device);
    if (status == EMU_OK)
        wait_until(end_ns);
    anchor_waited(device);
    pthread_mutex_unlock(&core_lock);
    return status;
}

/* ---- events ---- */

emu_status emu_event_create(int device, unsigned flags, emu_event **event) {
    if (emu_device(device) == NULL)
        return EMU_INVALID_DEVICE;
    pthread_mutex_lock(&core_lock);
    emu_event *created = pool_take(&event_pool);
    if (created != NULL) {
        created->device = device;
        created->flags = flags;
        *event = created;
    }
    pthread_mutex_unlock(&core_lock);
    return created == NULL ? EMU_OUT_OF_MEMORY : EMU_OK;
}

emu_status emu_event_destroy(emu_event *event) {
    pthread_mutex_lock(&core_lock);
    bool live = pool_has(&event_pool, event);
    if (live) {
        moment_release(event->moment);
        pool_give(&event_pool, event);
    }
    pthread_mutex_unlock(&core_lock);
    return live ? EMU_OK : EMU_INVALID_HANDLE;
}

/* A moment that only the event refers to; those that waited for its last one keep theirs. */
static moment *fresh_moment(emu_event *event) {
    if (event->moment != NULL && event->moment->references == 1) {
        event->moment->known = false;
    } else {
        moment_release(event->moment);
        event->moment = moment_new();
    }
    return event->moment;
}

emu_status emu_event_record(emu_event *event, emu_stream *stream) {
    pthread_mutex_lock(&core_lock);
    emu_status status = EMU_OK;
    if (!pool_has(&event_pool, event) || !stream_live(stream))
        status = EMU_INVALID_HANDLE;
    else if (stream->capture != NULL)
        status = capture_record(stream, event);
    else if (event->device != stream->device)
        status = EMU_INVALID_HANDLE;
    else if (fresh_moment(event) == NULL)
        status = EMU_OUT_OF_MEMORY;
    else {
        event->capture = NULL;
        if (record_on)
            record_mark(stream, event->moment);
        item mark = {.kind = ITEM_MARK, .moment = event->moment, .issued_ns = emu_now_ns()};
        if (stream->first != NULL) {
            moment_share(event->moment);
            status = append(stream, &mark);
        } else {
            settle(stream, &mark);
        }
    }
    pthread_mutex_unlock(&core_lock);
    return status;
}

emu_status emu_stream_wait(emu_stream *stream, emu_event *event) {
    pthread_mutex_lock(&core_lock);
    emu_status status = EMU_OK;
    if (!pool_has(&event_pool, event) || !stream_live(stream)) {
        status = EMU_INVALID_HANDLE;
    } else if (event->capture != NULL && capture_contains(event)) {
        status = capture_wait(stream, event);
    } else if (event->moment != NULL) { /* otherwise it was never recorded, and nothing is waited for */
        if (record_on && stream->capture == NULL)
            record_await(stream, event->moment);
        if (stream->capture != NULL)
            status = EMU_CAPTURE_ISOLATION;
        else if (event->moment->known && stream->first == NULL)
            stream->end_ns = later(stream->end_ns, event->moment->end_ns);
        else {
            item wait = {.kind = ITEM_WAIT, .moment = moment_share(event->moment)};
            status = append(stream, &wait);
        }
    }
    pthread_mutex_unlock(&core_lock);
    return status;
}

/* EMU_OK: it can be asked; whether it was recorded is for the caller. */
static emu_status askable(const emu_event *event) {
    if (!pool_has(&event_pool, event))
        return EMU_INVALID_HANDLE;
    if (event->capture != NULL && capture_contains(event))
        return EMU_CAPTURE_UNSUPPORTED;
    return EMU_OK;
}

static bool passed(const emu_event *event) {
    return event->moment == NULL || (event->moment->known && event->moment->end_ns <= emu_now_ns());
}

emu_status emu_event_query(emu_event *event) {
    pthread_mutex_lock(&core_lock);
    emu_status status = askable(event);
    if (status == EMU_OK && event->moment != NULL && !event->moment->known) {
        grant_flush();
        streams_resolve();
    }
    if (status == EMU_OK && (!passed(event) || (record_on && event->moment != NULL && !record_query(event->moment))))
        status = EMU_NOT_READY;
    pthread_mutex_unlock(&core_lock);
    return status;
}

emu_status emu_event_synchronize(emu_event *event) {
    pthread_mutex_lock(&core_lock);
    emu_status status = askable(event);
    if (status == EMU_OK && event->moment != NULL) {
        moment *awaited = moment_share(event->moment);
        if (record_on)
            record_moment_wait(awaited);
        wait_for_moment(awaited);
        moment_release(awaited);
    }
    pthread_mutex_unlock(&core_lock);
    return status;
}

emu_status emu_event_elapsed(const emu_event *start, const emu_event *end, float *milliseconds) {
    pthread_mutex_lock(&core_lock);
    emu_status status = askable(start);
    if (status == EMU_OK)
        status = askable(end);
    if (status == EMU_OK && ((start->flags | end->flags) & EMU_EVENT_NO_TIMING || !start->moment || !end->moment))
        status = EMU_INVALID_HANDLE;
    if (status == EMU_OK && !(passed(start) && passed(end)))
        status = EMU_NOT_READY;
    if (status == EMU_OK)
        *milliseconds = (float)((double)(end->moment->end_ns - start->moment->end_ns) / 1e6);
    pthread_mutex_unlock(&core_lock);
    return status;
}
