/* Pages of shared memory about the devices.
 *
 * Processes that emulate the same device (of the same user, on the same host) see what the others use of it through a file, named
 * by user and device, in /dev/shm or XDG_RUNTIME_DIR (EMUGPU_CUDA_STATISTICS names another directory). Each process that has
 * memory on the device takes a slot, and is the only one to write into it. A slot whose process has ended is free again. Nothing
 * here can fail in a way that a program would notice: without a page, a process sees only itself.
 */
#include "statistics.h"

#include "internal.h"
#include "telemetry.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SLOTS = 128, BUCKETS = 128 };
#define BUCKET_NS INT64_C(62500000)
#define WINDOW_BUCKETS 16 /* one second */
#define PAGE_MAGIC UINT64_C(0x3130545354534d45)

/* Work in one interval of emulated time, `number` times BUCKET_NS after its origin. */
typedef struct {
    _Atomic int64_t number;
    _Atomic int64_t busy_ns;
} bucket;

typedef struct {
    _Atomic uint64_t holder; /* see identity_of; 0: free */
    _Atomic uint64_t memory_bytes;
    bucket buckets[BUCKETS]; /* `number` modulo BUCKETS is the place */
} slot;

typedef struct {
    _Atomic uint64_t magic;
    slot slots[SLOTS];
} page;

/* What this process has of a device's page, by the machine's number of the device; the core's lock guards it. */
static struct {
    char uuid[sizeof settings.devices[0].uuid]; /* whose page it is: the device's may become another's when the process attaches */
    page *page;                                 /* NULL: none */
    slot *own;                                  /* NULL: none yet */
} uses[EMU_MAX_DEVICES];

/* ---- pages and slots ---- */

static const char *directory(void) {
    const char *chosen = getenv("EMUGPU_CUDA_STATISTICS");
    if (chosen != NULL && *chosen != '\0')
        return chosen;
    if (access("/dev/shm", W_OK) == 0)
        return "/dev/shm";
    return getenv("XDG_RUNTIME_DIR");
}

/* A file of this user's that is as large as a page. It is asked for by statx, since fstat is newer than glibc 2.31. */
static int open_page(const char *path) {
    struct statx facts;
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor < 0)
        return -1;
    if (statx(descriptor, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &facts) == 0 && S_ISREG(facts.stx_mode) && facts.stx_uid == geteuid()
        && (facts.stx_size == sizeof(page) || (facts.stx_size == 0 && ftruncate(descriptor, sizeof(page)) == 0)))
        return descriptor;
    close(descriptor);
    return -1;
}

static bool page_path(const char *uuid, char *path, size_t room) {
    const char *where = directory();
    if (where == NULL || uuid[0] == '\0')
        return false;
    return snprintf(path, room, "%s/emugpu-%u-%s", where, (unsigned)geteuid(), uuid) < (int)room;
}

static page *map_page(const char *uuid) {
    char path[512];
    if (!page_path(uuid, path, sizeof path))
        return NULL;
    int descriptor = open_page(path);
    if (descriptor < 0) {
        emu_log(2, "%s can't be used: other processes on this device aren't seen", path);
        return NULL;
    }
    page *mapped = mmap(NULL, sizeof *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (mapped == MAP_FAILED)
        return NULL;
    uint64_t fresh = 0;
    if (atomic_compare_exchange_strong(&mapped->magic, &fresh, PAGE_MAGIC) || fresh == PAGE_MAGIC)
        return mapped;
    munmap(mapped, sizeof *mapped);
    return NULL;
}

/* When a process started, in the kernel's ticks; 0: there is no such process, or it isn't known. */
static uint64_t start_of(int32_t pid) {
    char path[32], line[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[length] = '\0';
    const char *at = strrchr(line, ')'); /* the name before it may contain anything */
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at == NULL ? 0 : strtoull(at + 1, NULL, 10);
}

enum { PID_BITS = 22 }; /* as many as Linux has */

/* A process's number and, above it, its start: another process with the same number isn't taken for it. 0: there is no such process. */
static uint64_t identity_of(int32_t pid) {
    uint64_t started = start_of(pid);
    return started == 0 ? 0 : started << PID_BITS | (uint64_t)pid;
}

static int32_t pid_of(uint64_t holder) {
    return (int32_t)(holder & ((1u << PID_BITS) - 1));
}

/* Whether the holder of a slot lives. */
static bool lives(uint64_t holder) {
    return holder != 0 && (kill(pid_of(holder), 0) == 0 || errno != ESRCH) && identity_of(pid_of(holder)) == holder;
}

static slot *take_slot(page *from) {
    uint64_t self = identity_of((int32_t)getpid());
    for (int i = 0; i < SLOTS && self != 0; i++) {
        slot *candidate = &from->slots[i];
        uint64_t holder = atomic_load(&candidate->holder);
        if (lives(holder) || !atomic_compare_exchange_strong(&candidate->holder, &holder, self))
            continue;
        atomic_store(&candidate->memory_bytes, 0);
        for (int place = 0; place < BUCKETS; place++)
            atomic_store(&candidate->buckets[place].busy_ns, 0);
        return candidate;
    }
    return NULL;
}

/* The page of a device, mapped when it is first wanted, and again if the device has got another UUID; NULL: there is none. */
static page *page_of(int device) {
    const char *uuid = emu_machine_device(device)->uuid;
    if (strcmp(uses[device].uuid, uuid) != 0 && uses[device].own == NULL) {
        if (uses[device].page != NULL)
            munmap(uses[device].page, sizeof(page));
        uses[device].page = map_page(uuid);
        strcpy(uses[device].uuid, uuid);
    }
    return uses[device].page;
}

/* A child of a fork isn't its parent; it gets a slot when it uses the device. */
static void forget_slots(void) {
    for (int device = 0; device < EMU_MAX_DEVICES; device++)
        uses[device].own = NULL;
}

void emu_statistics_start(void) {
    pthread_atfork(NULL, NULL, forget_slots);
}

static bool page_unused(const page *of) {
    for (int i = 0; i < SLOTS; i++)
        if (atomic_load(&of->slots[i].holder) != 0)
            return false;
    return true;
}

/* The last process removes the file. One that opens it at this very moment isn't seen by later ones; memory is then limited for each
 * of them alone. */
__attribute__((destructor)) static void give_slots_back(void) {
    char path[512];
    for (int device = 0; device < EMU_MAX_DEVICES; device++) {
        if (uses[device].own == NULL)
            continue;
        atomic_store(&uses[device].own->holder, 0);
        if (page_unused(uses[device].page) && page_path(uses[device].uuid, path, sizeof path))
            unlink(path);
    }
}

/* ---- writing ---- */

void emu_statistics_memory(int device, size_t bytes) {
    int place = machine_index_of(device);
    if (uses[place].own == NULL && bytes > 0 && page_of(place) != NULL)
        uses[place].own = take_slot(uses[place].page);
    if (uses[place].own != NULL)
        atomic_store_explicit(&uses[place].own->memory_bytes, bytes, memory_order_relaxed);
}

static void add_to_bucket(slot *of, int64_t number, int64_t busy_ns) {
    bucket *at = &of->buckets[(uint64_t)number % BUCKETS];
    int64_t before_ns = 0;
    if (atomic_load_explicit(&at->number, memory_order_relaxed) == number)
        before_ns = atomic_load_explicit(&at->busy_ns, memory_order_relaxed);
    atomic_store_explicit(&at->busy_ns, before_ns + busy_ns, memory_order_relaxed);
    atomic_store_explicit(&at->number, number, memory_order_relaxed);
}

/* Usually within one interval: two additions. Of very long work, what fits into the slot is kept. */
void emu_statistics_busy(int device, int64_t end_ns, int64_t duration_ns) {
    slot *of = uses[machine_index_of(device)].own;
    if (of == NULL || duration_ns <= 0)
        return;
    int64_t start_ns = end_ns - duration_ns;
    int64_t first = start_ns / BUCKET_NS, last = (end_ns - 1) / BUCKET_NS;
    if (last - first >= BUCKETS)
        last = first + BUCKETS - 1;
    for (int64_t number = first; number <= last; number++) {
        int64_t from_ns = number * BUCKET_NS > start_ns ? number * BUCKET_NS : start_ns;
        int64_t until_ns = (number + 1) * BUCKET_NS < end_ns ? (number + 1) * BUCKET_NS : end_ns;
        add_to_bucket(of, number, until_ns - from_ns);
    }
}

/* ---- reading ---- */

size_t emu_statistics_memory_of_others(int device) {
    size_t bytes = 0;
    int place = machine_index_of(device);
    const page *shared = page_of(place);
    for (int i = 0; shared != NULL && i < SLOTS; i++) {
        const slot *other = &shared->slots[i];
        if (other != uses[place].own && lives(atomic_load(&other->holder)))
            bytes += atomic_load(&other->memory_bytes);
    }
    return bytes;
}

static int64_t busy_in_window(const slot *of, int64_t now_ns) {
    int64_t busy_ns = 0;
    for (int64_t number = now_ns / BUCKET_NS - WINDOW_BUCKETS; number < now_ns / BUCKET_NS; number++) {
        const bucket *at = &of->buckets[(uint64_t)number % BUCKETS];
        if (number >= 0 && atomic_load(&at->number) == number)
            busy_ns += atomic_load(&at->busy_ns);
    }
    return busy_ns;
}

static void read_page(int device, emu_device_use *use) {
    int64_t busy_ns = 0, now_ns = emu_now_ns();
    const page *shared = page_of(device);
    for (int i = 0; shared != NULL && i < SLOTS; i++) {
        const slot *each = &shared->slots[i];
        uint64_t holder = atomic_load(&each->holder);
        if (!lives(holder))
            continue;
        emu_process_use *process = &use->processes[use->process_count++];
        process->pid = pid_of(holder);
        process->memory_bytes = atomic_load(&each->memory_bytes);
        use->memory_bytes += process->memory_bytes;
        busy_ns += busy_in_window(each, now_ns);
    }
    double part = (double)busy_ns / (double)(WINDOW_BUCKETS * BUCKET_NS);
    use->utilisation = part > 1 ? 1 : part;
}

bool emu_device_use_read(int machine_index, emu_device_use *use) {
    const emu_device_info *info = emu_machine_device(machine_index);
    memset(use, 0, sizeof *use);
    if (info == NULL)
        return false;
    if (!telemetry_read(info->uuid, use)) {
        memset(use, 0, sizeof *use);
        pthread_mutex_lock(&core_lock);
        read_page(machine_index, use);
        pthread_mutex_unlock(&core_lock);
    }
    if (use->memory_bytes > info->memory_bytes)
        use->memory_bytes = info->memory_bytes;
    return true;
}
