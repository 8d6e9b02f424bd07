/* A trace of what the devices did, in the format that chrome://tracing and Perfetto read ("Trace Event Format", complete events).
 *
 * A process opens its file when it has work to record: many only count the devices. Records are collected, and written by a thread
 * of the core while the process lives. Only whole records are, so that the file of a process that a signal ends lacks its last
 * moments and the closing bracket, which the format allows.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { WRITE_MS = 200, WRITE_BYTES = 1 << 16 };

static enum { NOT_OPEN, OPEN, OVER } state;
static int file = -1;
static FILE *records; /* in memory: what isn't written yet */
static char *text;
static size_t text_bytes;
static bool forked;
static bool at_once; /* in forked children, which often end by _exit, and without the thread */

static bool write_bytes(const char *from, size_t bytes) {
    while (bytes > 0) {
        ssize_t done = write(file, from, bytes);
        if (done < 0 && errno != EINTR)
            return false;
        from += done < 0 ? 0 : done;
        bytes -= done < 0 ? 0 : (size_t)done;
    }
    return true;
}

/* If the disk is full, say, the file keeps what was written before. */
static void write_records(void) {
    off_t before = lseek(file, 0, SEEK_END);
    fflush(records);
    if (!write_bytes(text, text_bytes)) {
        int reason = errno;
        bool whole = before >= 0 && ftruncate(file, before) == 0;
        emu_log(1, "the trace ends%s: %s", whole ? "" : " amid a record", strerror(reason));
        close(file);
        state = OVER;
    }
    rewind(records);
}

static void *attend(void *unused) {
    (void)unused;
    for (;;) {
        poll(NULL, 0, WRITE_MS);
        pthread_mutex_lock(&core_lock);
        if (state == OPEN && ftell(records) > 0)
            write_records();
        pthread_mutex_unlock(&core_lock);
    }
    return NULL;
}

static void close_trace(void) {
    pthread_mutex_lock(&core_lock);
    if (state == OPEN) {
        fputs("{}]\n", records);
        write_records();
    }
    state = OVER; /* not closed: the process ends */
    pthread_mutex_unlock(&core_lock);
}

/* ---- whose file it is ---- */

static bool failed(const char *path) {
    emu_log(1, "can't write the trace %s: %s", path, strerror(errno));
    return false;
}

static bool open_file(const char *path, int flags) {
    file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);
    return file >= 0 || failed(path);
}

/* trace.json is trace.4711.json then. */
static void insert_number(const char *path, char *own, size_t room) {
    const char *name = strrchr(path, '/'), *extension = strrchr(path, '.');
    if (extension == NULL || (name != NULL && extension <= name + 1))
        extension = path + strlen(path);
    snprintf(own, room, "%.*s.%d%s", (int)(extension - path), path, (int)getpid(), extension);
}

static bool begin_own(const char *path) {
    return open_file(path, O_TRUNC) && (write_bytes("[\n", 2) || failed(path));
}

/* The first process that records takes the file, which `emugpu run` has removed: it isn't empty from then on. */
static bool begin_shared(const char *path) {
    char own[sizeof settings.trace + 16];
    if (!open_file(path, 0))
        return false;
    flock(file, LOCK_EX);
    bool mine = lseek(file, 0, SEEK_END) <= 0;
    bool begun = mine && (write_bytes("[\n", 2) || failed(path));
    flock(file, LOCK_UN);
    if (mine)
        return begun;
    close(file);
    insert_number(path, own, sizeof own);
    emu_log(1, "another process has the trace %s; this one's is %s", path, own);
    return begin_own(own);
}

static bool begin_file(void) {
    char path[sizeof settings.trace + 16];
    settings_file_name(settings.trace, path, sizeof path);
    return strstr(settings.trace, "%p") != NULL ? begin_own(path) : begin_shared(path);
}

/* ---- its life ---- */

void trace_open(void) {
    if (settings.trace[0] == '\0')
        state = OVER;
    else
        atexit(close_trace);
}

void trace_forget(void) {
    if (state == OPEN) {
        close(file);
        rewind(records);
        state = NOT_OPEN;
    }
    forked = true;
}

bool trace_wanted(void) {
    if (state != NOT_OPEN)
        return state == OPEN;
    if (records == NULL)
        records = open_memstream(&text, &text_bytes);
    state = records != NULL && begin_file() ? OPEN : OVER;
    if (state == OPEN)
        at_once = forked || !thread_start(attend);
    return state == OPEN;
}

static void write_text(const char *from) {
    for (; *from != '\0'; from++) {
        if (*from == '"' || *from == '\\')
            fputc('\\', records);
        if ((unsigned char)*from >= ' ')
            fputc(*from, records);
    }
}

/* Microseconds. %f would write a comma in some locales. */
static void write_us(int64_t ns) {
    fprintf(records, "%lld.%03lld", (long long)(ns / 1000), (long long)(ns % 1000));
}

void trace_work(const emu_stream *stream, const item *work, int64_t start_ns, int64_t end_ns) {
    fputs("{\"ph\":\"X\",\"name\":\"", records);
    write_text(work->name);
    fprintf(records, "\",\"pid\":%d,\"tid\":%llu,\"ts\":", machine_index_of(stream->device), (unsigned long long)stream->id);
    write_us(start_ns);
    fputs(",\"dur\":", records);
    write_us(end_ns - start_ns);
    fprintf(records, ",\"args\":{\"process\":%d,\"work_ns\":%lld", (int)getpid(), (long long)work->duration_ns);
    if (work->kind == ITEM_COPY)
        fprintf(records, ",\"bytes\":%zu", work->copy.width * work->copy.rows);
    const emu_work *described = &work->work;
    if (described->flops > 0 || described->bytes > 0)
        fprintf(records, ",\"kind\":%d,\"flops\":%.0f,\"bytes\":%.0f,\"precision\":%d", (int)described->kind, described->flops,
                described->bytes, (int)described->precision);
    if (described->columns > 0)
        fprintf(records, ",\"columns\":%.0f,\"depth\":%.0f", described->columns, described->depth);
    if (described->grid[0] > 0)
        fprintf(records, ",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u]", described->grid[0], described->grid[1], described->grid[2],
                described->block[0], described->block[1], described->block[2]);
    fputs("}},\n", records);
    if (at_once || ftell(records) >= WRITE_BYTES)
        write_records();
}
