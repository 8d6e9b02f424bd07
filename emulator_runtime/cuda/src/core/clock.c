/* Emulated time: the host's monotonic clock, a clock shared by the node's processes, or one that jumps over waits. */
#include "clock.h"

#include "core.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { NS_PER_S = 1000000000 };

/* The file's layout is described in emulator_runtime/timing/shared_clock.py. */
typedef struct {
    char magic[8];
    int64_t version;
    int64_t mode;
    _Atomic uint64_t sequence;
    _Atomic int64_t wall_ns;
    _Atomic int64_t emulated_ns;
    _Atomic int64_t rate_bits;
    _Atomic int64_t check;
} shared_clock;

typedef struct {
    int64_t wall_ns, emulated_ns;
    double rate;
} anchors;

static const shared_clock *shared;
static bool warps;
/* How far emulated time is ahead of the host's. In a program whose own clocks show emulated time, that library's (program_clock.c). */
static _Atomic int64_t own_jumped_ns;
static _Atomic int64_t *jumped_ns = &own_jumped_ns;
static int (*host_clock)(clockid_t, struct timespec *) = clock_gettime;

int64_t host_ns(void) {
    struct timespec now;
    host_clock(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* Jump together with the program's clocks, if they are emulated: its clock_gettime isn't the host's then. */
static void find_program_clock(void) {
    _Atomic int64_t *of_program = dlsym(RTLD_DEFAULT, "emugpu_clock_jumped_ns");
    void *system = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *function = system == NULL ? NULL : dlsym(system, "clock_gettime");
    if (of_program == NULL || function == NULL)
        return;
    jumped_ns = of_program;
    memcpy(&host_clock, &function, sizeof host_clock);
}

bool clock_open(const char *file, bool warp) {
    warps = warp;
    if (warp)
        find_program_clock();
    if (file[0] == '\0')
        return true;
    int descriptor = open(file, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    void *memory = mmap(NULL, sizeof *shared, PROT_READ, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (memory == MAP_FAILED)
        return false;
    shared = memory;
    return memcmp(shared->magic, "EMUCLOCK", 8) == 0 && shared->version == 1;
}

bool clock_warps(void) {
    return warps;
}

/* The anchors, and a host time at which they were valid. A writer that is interrupted in the middle is waited for. */
static anchors sample(int64_t *at_ns) {
    for (;;) {
        uint64_t before = atomic_load_explicit(&shared->sequence, memory_order_acquire);
        anchors found;
        int64_t bits = atomic_load_explicit(&shared->rate_bits, memory_order_relaxed);
        found.wall_ns = atomic_load_explicit(&shared->wall_ns, memory_order_relaxed);
        found.emulated_ns = atomic_load_explicit(&shared->emulated_ns, memory_order_relaxed);
        int64_t check = atomic_load_explicit(&shared->check, memory_order_relaxed);
        memcpy(&found.rate, &bits, sizeof bits);
        *at_ns = host_ns();
        atomic_thread_fence(memory_order_acquire);
        uint64_t after = atomic_load_explicit(&shared->sequence, memory_order_relaxed);
        if (before == after && before % 2 == 0 && check == (found.wall_ns ^ found.emulated_ns ^ bits))
            return found;
        struct timespec pause = {0, 20000};
        nanosleep(&pause, NULL);
    }
}

int64_t emu_now_ns(void) {
    if (shared != NULL) {
        int64_t at_ns;
        anchors found = sample(&at_ns);
        return found.emulated_ns + (int64_t)floor((double)(at_ns - found.wall_ns) * found.rate);
    }
    return host_ns() + (warps ? atomic_load_explicit(jumped_ns, memory_order_relaxed) : 0);
}

/* The host waits for `until_ns` of the monotonic clock; signals don't shorten it. */
static void sleep_until(int64_t until_ns) {
    static _Thread_local bool precise;
    if (!precise) {
        prctl(PR_SET_TIMERSLACK, 1000UL); /* the default lets each wait be 50 us late */
        precise = true;
    }
    struct timespec until = {until_ns / NS_PER_S, until_ns % NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

static void jump_to(int64_t deadline_ns) {
    int64_t jumped = atomic_load(jumped_ns);
    for (;;) {
        int64_t missing = deadline_ns - host_ns() - jumped;
        if (missing <= 0 || atomic_compare_exchange_weak(jumped_ns, &jumped, jumped + missing))
            return;
    }
}

void clock_wait_until(int64_t deadline_ns) {
    if (shared == NULL) {
        if (warps)
            jump_to(deadline_ns);
        else
            sleep_until(deadline_ns);
        return;
    }
    for (;;) { /* the clock's rate may change, or it may jump, while this process sleeps: look at least every 20 ms */
        int64_t at_ns;
        anchors found = sample(&at_ns);
        int64_t now_ns = found.emulated_ns + (int64_t)floor((double)(at_ns - found.wall_ns) * found.rate);
        if (now_ns >= deadline_ns)
            return;
        double left_ns = found.rate > 0 ? (double)(deadline_ns - now_ns) / found.rate : 1e18;
        sleep_until(at_ns + (left_ns < 20e6 ? (int64_t)ceil(left_ns) : 20000000));
    }
}
