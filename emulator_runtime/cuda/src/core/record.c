/* Records what the program asks of its devices, so that its time on other devices can be predicted (emulator_runtime/prediction).
 *
 * While a program is recorded its work takes no time, so that nobody waits for a device. The file is little-endian and begins with
 *
 *     char magic[8] "EMUTRACE", uint32 version, uint32 process number, int32 rank (-1: the environment names none), uint32 devices
 *
 * Then come records. Each begins with 16 bytes, and goes on by its tag:
 *
 *     uint8 tag, uint8 device, uint16 thread (0 is the first), uint32 stream, int64 nanoseconds of the host since the first record
 *
 *      1 NAME            uint32 bytes, uint32 0; the text follows. Names are numbered in their order, from 0
 *      2 WORK            see work_body; works are numbered in their order, from 0
 *      3 LAUNCH          uint32 work, uint32 whether the host launched it (1), or a graph of the device (0)
 *      4 COPY            int32 to, int32 from (device; -1: host), uint64 bytes
 *      5 MARK            uint32 moment, uint32 0
 *      6 AWAIT           uint32 moment, uint32 0
 *      7 HOST_WAITS      uint32 moment, uint32 0
 *      8 HOST_FUNCTION   uint32 number, uint32 0
 *      9 FUNCTION_ENDED  uint32 number, uint32 0, int64 nanoseconds that it took
 *     10 MEMORY          uint64 bytes of the device that the process has from here on
 *     11 COMMUNICATOR    uint32 number, int32 rank, uint32 ranks, uint32 0, char key[16]; then of each rank uint64 host, char uuid[16]
 *                        (virtual ranks: in place of the host the rank in the job, UINT64_MAX if it isn't known, and zeros)
 *     12 COLLECTIVE      uint32 communicator, uint32 operation (nccl/link_model.h), uint64 number, uint64 bytes, uint32 peers, uint32 0;
 *                        then of each peer int32 rank, uint32 0, uint64 bytes sent, uint64 bytes received
 *     13 DEVICE          char uuid[16], uint64 bytes of memory, uint64 bytes of a context, uint32 bytes, uint32 0; then its GPU type.
 *                        Its time is that of the process's beginning, which is negative (0: not known)
 *     14 END             nothing: the process ended by itself
 *
 * A tag of 0, or the end of the file, is the end of the records. The file is mapped, and a tag is written when its record is complete, so a
 * process that is killed leaves all that it had recorded. prediction/reading.py reads this.
 *
 * Time is that of the host without the time during which a thread waited here: the device would have ended its work at another time.
 * It stands still for all threads then, so that their order stays; what another thread computed meanwhile takes no time. Nor is it
 * time of the host when a thread was ready to run but had no core: ranks that share few cores have nearly the times that they would
 * have with a core each.
 */
#include "clock.h"
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file's byte order");

enum { VERSION = 1, WINDOW_BYTES = 1 << 20, FIRST_ROOM = 1024, SHORTEST_PAUSE_NS = 100000, UNANSWERED_QUERIES = 64 };
enum { NAME = 1, WORK, LAUNCH, COPY, MARK, AWAIT, HOST_WAITS, HOST_FUNCTION, FUNCTION_ENDED, MEMORY, COMMUNICATOR, COLLECTIVE, DEVICE, END };

typedef struct {
    char magic[8];
    uint32_t version, process;
    int32_t rank;
    uint32_t devices;
} file_header;

typedef struct {
    uint8_t tag, device;
    uint16_t thread;
    uint32_t stream;
    int64_t at_ns;
} head;

/* emu_work with the number of its name. */
typedef struct {
    uint32_t name, kind, precision, unused;
    double flops, bytes, columns, depth;
    uint32_t grid[3], block[3];
} work_body;

typedef struct { uint32_t first, second; } pair_body;
typedef struct { int32_t to, from; uint64_t bytes; } copy_body;
typedef struct { uint32_t number, unused; int64_t took_ns; } ended_body;
typedef struct { uint32_t number; int32_t rank; uint32_t ranks, unused; unsigned char key[16]; } communicator_body;
typedef struct { uint32_t communicator, operation; uint64_t number, bytes; uint32_t peers, unused; } collective_body;
typedef struct { unsigned char uuid[16]; uint64_t memory_bytes, context_bytes; uint32_t bytes, unused; } device_body;

/* Things that are written once and named by number afterwards. */
typedef struct {
    size_t bytes;    /* of an entry, a multiple of 8 */
    char *entries;
    uint32_t count, room;
    uint32_t *slots; /* twice as many as `room`: a hash table of numbers plus 1 */
} numbering;

bool record_on;
static int file = -1;
static unsigned char *window; /* the part of the file that is mapped */
static size_t window_at, filled;
static numbering names = {.bytes = sizeof(const char *)}, works = {.bytes = sizeof(work_body)};
static uint32_t moments, functions, communicators;
static unsigned threads;
static const emu_stream *issuing; /* whose deferred work begins */
static int64_t began_ns, waited_ns, wait_began_ns;
static int waiting;               /* threads */
static int64_t last_at_ns;        /* of the last record */

/* ---- the file ---- */

static void give_up(const char *what) {
    emu_log(1, "the records end here: %s: %s", what, strerror(errno));
    record_on = false;
}

/* Map the file from the page of `position` on. */
static bool map_window(size_t position) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), at = position / page * page;
    int failure = posix_fallocate(file, (off_t)at, WINDOW_BYTES); /* a full disk is an error here, and a signal later */
    void *mapped = failure ? MAP_FAILED : mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)at);
    if (mapped == MAP_FAILED) {
        errno = failure ? failure : errno;
        give_up(settings.record);
        return false;
    }
    if (window != NULL)
        munmap(window, WINDOW_BYTES);
    window = mapped;
    window_at = at;
    filled = position - at;
    return true;
}

static void append_bytes(const void *bytes, size_t count) {
    if (count > 0)
        memcpy(window + filled, bytes, count);
    filled += count;
}

static void put(head first, const void *body, size_t body_bytes, const void *rest, size_t rest_bytes) {
    if (filled + sizeof first + body_bytes + rest_bytes > WINDOW_BYTES && !map_window(window_at + filled))
        return;
    unsigned char *tag = window + filled;
    append_bytes(&(head){0, first.device, first.thread, first.stream, first.at_ns}, sizeof first);
    append_bytes(body, body_bytes);
    append_bytes(rest, rest_bytes);
    __atomic_store_n(tag, first.tag, __ATOMIC_RELEASE);
}

/* The job's rank, as launchers tell it to their processes. */
static int32_t rank_of_process(void) {
    static const char *const variables[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *text = getenv(variables[i]);
        char *end;
        long rank = text == NULL ? -1 : strtol(text, &end, 10);
        if (rank >= 0 && rank <= INT32_MAX && *text != '\0' && *end == '\0')
            return (int32_t)rank;
    }
    return -1;
}

/* The text of a small file of the process's; empty if it can't be read. */
static void read_text(const char *path, char *text, size_t room) {
    int opened = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = opened < 0 ? -1 : read(opened, text, room - 1);
    text[length < 0 ? 0 : length] = '\0';
    if (opened >= 0)
        close(opened);
}

/* How long ago the process began, without the time for which its first thread was ready and had no core (proc_pid_stat(5),
 * proc_pid_schedstat(5)); 0 if the system doesn't say. */
static int64_t age_ns(void) {
    char stat[1024], delays[80];
    read_text("/proc/self/stat", stat, sizeof stat);
    read_text("/proc/self/schedstat", delays, sizeof delays);
    const char *at = strrchr(stat, ')'); /* the program's name may have blanks */
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    struct timespec now;
    long ticks = sysconf(_SC_CLK_TCK);
    if (at == NULL || ticks <= 0 || clock_gettime(CLOCK_BOOTTIME, &now) != 0)
        return 0;
    int64_t began = (int64_t)(strtod(at, NULL) / (double)ticks * 1e9), age = now.tv_sec * INT64_C(1000000000) + now.tv_nsec - began;
    const char *delay = strchr(delays, ' ');
    age -= delay == NULL ? 0 : strtoll(delay, NULL, 10);
    return age > 0 ? age : 0;
}

static void describe_device(const emu_device_info *device, int64_t process_began_ns) {
    device_body body = {.memory_bytes = device->memory_bytes, .context_bytes = device->context_bytes,
                        .bytes = (uint32_t)strlen(device->gpu_type)};
    memcpy(body.uuid, device->uuid_bytes, sizeof body.uuid);
    put((head){.tag = DEVICE, .device = (uint8_t)device->machine_index, .at_ns = process_began_ns}, &body, sizeof body, device->gpu_type, body.bytes);
}

/* When the process first uses a device: many processes of a program only count them. */
static bool ready(void) {
    if (window != NULL || !record_on)
        return record_on;
    char path[sizeof settings.record + 16];
    settings_file_name(settings.record, path, sizeof path);
    file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) {
        give_up(path);
        return false;
    }
    if (!map_window(0))
        return false;
    file_header header = {"EMUTRACE", VERSION, (uint32_t)getpid(), rank_of_process(), (uint32_t)emu_machine_device_count()};
    began_ns = wait_began_ns = host_ns();
    waited_ns = last_at_ns = 0;
    append_bytes(&header, sizeof header);
    int64_t process_began_ns = -age_ns();
    for (int i = 0; i < emu_machine_device_count(); i++)
        describe_device(emu_machine_device(i), process_began_ns);
    return record_on;
}

/* ---- heads ---- */

static int64_t host_time_ns(void) {
    return (waiting > 0 ? wait_began_ns : host_ns()) - began_ns - waited_ns;
}

/* For how long the calling thread has been ready to run without a core, since it was asked last (proc_pid_schedstat(5)); 0 if the
 * system doesn't say. */
static int64_t fresh_delay_ns(void) {
    static _Thread_local int schedstat = -2; /* not open yet; -1: there is none */
    static _Thread_local int64_t known_ns;
    bool first = schedstat == -2;
    if (first)
        schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    char text[80];
    ssize_t length = schedstat < 0 ? -1 : pread(schedstat, text, sizeof text - 1, 0);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    char *delay = strchr(text, ' ');
    int64_t delay_ns = delay == NULL ? 0 : strtoll(delay, NULL, 10), fresh_ns = delay_ns - known_ns;
    known_ns = delay_ns;
    return first ? 0 : fresh_ns;
}

/* Who is without a core makes a pause between two records, so that shorter ones needn't be looked into. */
static int64_t at_ns(bool first_of_thread) {
    int64_t now_ns = host_time_ns();
    if (first_of_thread || (waiting == 0 && now_ns - last_at_ns > SHORTEST_PAUSE_NS)) {
        int64_t delay_ns = fresh_delay_ns();
        if (delay_ns > now_ns - last_at_ns)
            delay_ns = now_ns - last_at_ns;
        if (waiting == 0) {
            waited_ns += delay_ns;
            now_ns -= delay_ns;
        }
    }
    last_at_ns = now_ns;
    return now_ns;
}

static head begin(int tag, int device, uint64_t stream) {
    static _Thread_local unsigned thread; /* plus 1 */
    bool first = thread == 0;
    if (first)
        thread = ++threads;
    return (head){.tag = (uint8_t)tag, .device = (uint8_t)device, .thread = (uint16_t)(thread - 1), .stream = (uint32_t)stream,
                  .at_ns = at_ns(first)};
}

static void put_pair(int tag, const emu_stream *stream, uint32_t first, uint32_t second) {
    pair_body body = {first, second};
    put(begin(tag, stream == NULL ? 0 : machine_index_of(stream->device), stream == NULL ? 0 : stream->id), &body, sizeof body, NULL, 0);
}

/* ---- numbers ---- */

static uint32_t *slot_of(const numbering *known, const void *entry) {
    const uint64_t *words = entry;
    uint64_t hash = 0;
    for (size_t i = 0; i < known->bytes / 8; i++)
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15) ^ hash >> 29;
    size_t last = 2 * (size_t)known->room - 1;
    for (size_t place = (hash ^ hash >> 32) & last;; place = (place + 1) & last) {
        uint32_t *slot = &known->slots[place];
        if (*slot == 0 || memcmp(known->entries + (*slot - 1) * known->bytes, entry, known->bytes) == 0)
            return slot;
    }
}

static bool grow(numbering *known) {
    uint32_t room = known->room ? 2 * known->room : FIRST_ROOM;
    char *entries = realloc(known->entries, room * known->bytes);
    if (entries == NULL)
        return false;
    known->entries = entries;
    uint32_t *slots = calloc(2 * (size_t)room, sizeof *slots);
    if (slots == NULL)
        return false;
    free(known->slots);
    known->slots = slots;
    known->room = room;
    for (uint32_t i = 0; i < known->count; i++)
        *slot_of(known, known->entries + i * known->bytes) = i + 1;
    return true;
}

/* The number of `entry`; `added`: it is new. */
static bool number_of(numbering *known, const void *entry, uint32_t *number, bool *added) {
    if (known->count == known->room && !grow(known)) {
        give_up("its table of kernels");
        return false;
    }
    uint32_t *slot = slot_of(known, entry);
    *added = *slot == 0;
    if (*added) {
        memcpy(known->entries + known->count * known->bytes, entry, known->bytes);
        *slot = ++known->count;
    }
    *number = *slot - 1;
    return true;
}

static bool name_number(const char *name, uint32_t *number) {
    bool added;
    if (!number_of(&names, &name, number, &added)) /* a name is stored once, so that its address tells it apart */
        return false;
    size_t length = strlen(name);
    pair_body body = {(uint32_t)(length < WINDOW_BYTES / 4 ? length : WINDOW_BYTES / 4), 0};
    if (added)
        put(begin(NAME, 0, 0), &body, sizeof body, name, body.first);
    return true;
}

static bool work_number(const emu_work *work, uint32_t *number) {
    work_body body = {.kind = work->kind, .precision = work->precision, .flops = work->flops, .bytes = work->bytes,
                      .columns = work->columns, .depth = work->depth};
    memcpy(body.grid, work->grid, sizeof body.grid);
    memcpy(body.block, work->block, sizeof body.block);
    bool added;
    if (!name_number(work->name, &body.name) || !number_of(&works, &body, number, &added))
        return false;
    if (added)
        put(begin(WORK, 0, 0), &body, sizeof body, NULL, 0);
    return true;
}

/* ---- moments ---- */

static uint32_t mark(emu_stream *stream) {
    stream->end_moment = ++moments;
    stream->end_marked = true;
    put_pair(MARK, stream, stream->end_moment, 0);
    return stream->end_moment;
}

/* The moment at which what the stream has been given has ended; 0: it was given nothing. */
static uint32_t end_of(emu_stream *stream) {
    return stream->used && !stream->end_marked ? mark(stream) : stream->end_moment;
}

static void used(emu_stream *stream) {
    stream->used = true;
    stream->end_marked = false;
}

void record_mark(emu_stream *stream, moment *marked) {
    if (!ready())
        return;
    marked->number = mark(stream);
    marked->stream = stream->id;
    marked->queries = 0;
}

void record_await(emu_stream *stream, const moment *awaited) {
    if (awaited->number == 0 || !ready())
        return;
    put_pair(AWAIT, stream, awaited->number, 0);
    used(stream);
}

void record_follow(emu_stream *stream, emu_stream *other) {
    if (!ready())
        return;
    uint32_t *known = stream->is_default ? &other->default_awaited : &stream->awaited_default;
    uint32_t end = end_of(other);
    if (end == *known)
        return;
    *known = end;
    put_pair(AWAIT, stream, end, 0);
    used(stream);
}

/* The stream of a moment; NULL: it was destroyed. */
static emu_stream *stream_of(const moment *marked) {
    emu_stream *stream = pool_next(&stream_pool, NULL);
    while (stream != NULL && stream->id != marked->stream)
        stream = pool_next(&stream_pool, stream);
    return stream;
}

void record_moment_wait(const moment *awaited) {
    if (awaited->number == 0 || !ready())
        return;
    put_pair(HOST_WAITS, NULL, awaited->number, 0);
    emu_stream *stream = stream_of(awaited);
    if (stream != NULL && awaited->number > stream->host_waited)
        stream->host_waited = awaited->number;
}

void record_stream_wait(emu_stream *stream) {
    uint32_t end = ready() ? end_of(stream) : 0;
    if (end == 0)
        return;
    put_pair(HOST_WAITS, stream, end, 0);
    stream->host_waited = end;
}

/* Recorded work takes no time, so that every moment has passed when the program asks. A program that gets a yes doesn't wait: PyTorch's Work.wait()
 * then leaves out the stream's wait for a collective or message, and the records would lack an order that a GPU keeps. There, what
 * was just issued hasn't ended. So the answer is no until the host has waited for it, or has asked as often as a loop does. */
bool record_query(moment *asked) {
    if (asked->number == 0 || !ready() || asked->queries >= UNANSWERED_QUERIES)
        return true;
    const emu_stream *stream = stream_of(asked);
    if (stream == NULL || stream->host_waited >= asked->number)
        return true;
    asked->queries++;
    return false;
}

void record_device_wait(int device) {
    for (emu_stream *stream = pool_next(&stream_pool, NULL); stream != NULL; stream = pool_next(&stream_pool, stream)) {
        if (stream->device == device && !stream->closing)
            record_stream_wait(stream);
    }
}

void record_waiting(bool begins) {
    if (begins && waiting++ == 0)
        wait_began_ns = host_ns();
    else if (!begins && --waiting == 0)
        waited_ns += host_ns() - wait_began_ns;
    if (!begins)
        fresh_delay_ns(); /* a delay while it waited is in that time */
}

/* ---- work ---- */

static void put_copy(const emu_stream *stream, const item *work) {
    copy_body body = {machine_index_of(work->copy.to_device), machine_index_of(work->copy.from_device), work->copy.width * work->copy.rows};
    put(begin(COPY, machine_index_of(stream->device), stream->id), &body, sizeof body, NULL, 0);
}

static void put_launch(const emu_stream *stream, const emu_work *work, bool by_host) {
    uint32_t number;
    if (work_number(work, &number))
        put_pair(LAUNCH, stream, number, by_host);
}

void record_work(emu_stream *stream, item *work) {
    if (!ready())
        return;
    if (work->kind == ITEM_MARK) {
        record_mark(stream, work->moment);
        return;
    }
    if (work->kind == ITEM_WAIT) {
        record_await(stream, work->moment);
        return;
    }
    used(stream);
    if (work->kind == ITEM_WORK) {
        put_launch(stream, &work->work, work->by_host);
    } else if (work->kind == ITEM_HOST) {
        work->recorded = ++functions;
        put_pair(HOST_FUNCTION, stream, work->recorded, 0);
    } else if (work->kind == ITEM_DEFERRED) {
        issuing = stream;
    } else if (work->copy.from != NULL) {
        put_copy(stream, work);
    } else {
        emu_work fill = {.kind = EMU_MEMORY_BOUND, .name = work->name, .precision = EMU_FP32,
                         .bytes = (double)(work->copy.width * work->copy.rows)};
        put_launch(stream, &fill, false);
    }
}

void record_function_ended(const item *work, int64_t took_ns) {
    ended_body body = {.number = work->recorded, .took_ns = took_ns};
    if (work->recorded != 0 && ready())
        put(begin(FUNCTION_ENDED, 0, 0), &body, sizeof body, NULL, 0);
}

void record_memory(int device, size_t used_bytes) {
    uint64_t bytes = used_bytes;
    if (ready())
        put(begin(MEMORY, machine_index_of(device), 0), &bytes, sizeof bytes, NULL, 0);
}

/* ---- what NCCL tells ---- */

bool emu_recording(void) {
    return record_on;
}

int emu_virtual_ranks(void) {
    return emu_start() == EMU_OK ? settings.virtual_ranks : 0;
}

void emu_record_waiting(bool begins) {
    pthread_mutex_lock(&core_lock);
    record_waiting(begins);
    pthread_mutex_unlock(&core_lock);
}

unsigned emu_record_communicator(const unsigned char key[16], int rank, int ranks, const emu_record_member *members) {
    pthread_mutex_lock(&core_lock);
    communicator_body body = {.number = ++communicators, .rank = rank, .ranks = (uint32_t)ranks};
    memcpy(body.key, key, sizeof body.key);
    if (ready())
        put(begin(COMMUNICATOR, 0, 0), &body, sizeof body, members, (size_t)ranks * sizeof *members);
    pthread_mutex_unlock(&core_lock);
    return body.number;
}

void emu_record_collective(unsigned communicator, uint64_t number, int operation, uint64_t bytes, const emu_record_peer *peers, int count) {
    pthread_mutex_lock(&core_lock);
    collective_body body = {communicator, (uint32_t)operation, number, bytes, (uint32_t)count, 0};
    if (issuing != NULL && ready())
        put(begin(COLLECTIVE, machine_index_of(issuing->device), issuing->id), &body, sizeof body, peers, (size_t)count * sizeof *peers);
    pthread_mutex_unlock(&core_lock);
}

/* ---- the process ---- */

static void record_close(void) {
    pthread_mutex_lock(&core_lock);
    if (record_on && window != NULL) {
        put(begin(END, 0, 0), NULL, 0, NULL, 0);
        record_on = false;
        if (ftruncate(file, (off_t)(window_at + filled)) != 0)
            emu_log(2, "%s keeps its unused end", settings.record);
    }
    pthread_mutex_unlock(&core_lock);
}

void record_open(void) {
    record_on = settings.record[0] != '\0';
    if (record_on)
        atexit(record_close);
}

void record_forget(void) {
    record_on = record_on && window == NULL; /* a child of a process that used devices can't use them */
}
