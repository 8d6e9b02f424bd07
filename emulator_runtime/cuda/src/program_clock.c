/* Shows a program emulated time in all its clocks: a library that is loaded before the C library (LD_PRELOAD) with `emugpu run --warp`.
 *
 * In warp, the core doesn't wait for a device but lets emulated time jump, by emugpu_clock_jumped_ns. What the program asks the
 * C library for, here, is the host's time plus that: clock_gettime, gettimeofday, time. A thread that sleeps does so until emulated
 * time has reached the end, which another thread's jump may bring nearer. Waits up to a moment (pthread_cond_timedwait, sem_timedwait
 * and their like) get that moment in the host's time, so that they last as long as the program meant, or longer in emulated time.
 *
 * Not covered: waits for a duration in the kernel (poll, select, epoll_wait: they last as long as without warp), timers (timerfd,
 * setitimer), system calls without the C library, and the clocks of other processes, each of which has a time of its own.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { NS_PER_S = 1000000000, LONGEST_NAP_NS = 5000000 };

EXPORT _Atomic int64_t emugpu_clock_jumped_ns;

/* ---- the C library's functions ---- */

/* The versions of the functions on condition variables that programs are linked to: x86-64, others. */
static const char *const VERSIONS[] = {"GLIBC_2.3.2", "GLIBC_2.17"};

static void *next(const char *name) {
    void *found = NULL;
    for (size_t i = 0; i < sizeof VERSIONS / sizeof VERSIONS[0] && found == NULL; i++)
        found = dlvsym(RTLD_NEXT, name, VERSIONS[i]);
    return found != NULL ? found : dlsym(RTLD_NEXT, name);
}

/* Declares `real_NAME`, a pointer to the C library's function, looked up when it is first needed. */
#define REAL(answer, name, parameters) \
    static answer(*found_##name) parameters; \
    static answer(*real_##name(void)) parameters { \
        if (found_##name == NULL) { \
            void *function = next(#name); \
            memcpy(&found_##name, &function, sizeof function); \
        } \
        return found_##name; \
    }

REAL(int, clock_gettime, (clockid_t, struct timespec *))
REAL(int, clock_nanosleep, (clockid_t, int, const struct timespec *, struct timespec *))
REAL(int, pthread_cond_timedwait, (pthread_cond_t *, pthread_mutex_t *, const struct timespec *))
REAL(int, pthread_cond_clockwait, (pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *))
REAL(int, pthread_mutex_timedlock, (pthread_mutex_t *, const struct timespec *))
REAL(int, pthread_mutex_clocklock, (pthread_mutex_t *, clockid_t, const struct timespec *))
REAL(int, sem_timedwait, (sem_t *, const struct timespec *))
REAL(int, sem_clockwait, (sem_t *, clockid_t, const struct timespec *))

/* ---- time ---- */

/* Clocks of processor time, and those of devices, are left alone. */
static bool emulated(clockid_t clock) {
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
    case CLOCK_TAI:
        return true;
    default:
        return false;
    }
}

static int64_t jumped_ns(void) {
    return atomic_load_explicit(&emugpu_clock_jumped_ns, memory_order_relaxed);
}

static struct timespec shifted(struct timespec time, int64_t by_ns) {
    time.tv_sec += by_ns / NS_PER_S;
    time.tv_nsec += by_ns % NS_PER_S;
    if (time.tv_nsec >= NS_PER_S) {
        time.tv_nsec -= NS_PER_S;
        time.tv_sec++;
    } else if (time.tv_nsec < 0) {
        time.tv_nsec += NS_PER_S;
        time.tv_sec--;
    }
    return time;
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now) {
    int status = real_clock_gettime()(clock, now);
    if (status == 0 && emulated(clock))
        *now = shifted(*now, jumped_ns());
    return status;
}

EXPORT int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    *now = (struct timeval){precise.tv_sec, precise.tv_nsec / 1000};
    if (zone != NULL)
        memset(zone, 0, sizeof(struct timezone));
    return 0;
}

EXPORT time_t time(time_t *seconds) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds != NULL)
        *seconds = now.tv_sec;
    return now.tv_sec;
}

EXPORT int timespec_get(struct timespec *now, int base) {
    if (base != TIME_UTC)
        return 0;
    clock_gettime(CLOCK_REALTIME, now);
    return base;
}

/* ---- sleeping ---- */

static bool valid(const struct timespec *time) {
    return time->tv_sec >= 0 && time->tv_nsec >= 0 && time->tv_nsec < NS_PER_S;
}

static int64_t ns_until(clockid_t clock, const struct timespec *end) {
    struct timespec now;
    clock_gettime(clock, &now);
    int64_t seconds = (int64_t)end->tv_sec - now.tv_sec;
    if (seconds > INT64_MAX / NS_PER_S - 1)
        return INT64_MAX;
    return seconds * NS_PER_S + (end->tv_nsec - now.tv_nsec);
}

/* In short sleeps, since another thread may let time jump meanwhile. Answers 0 or an error number. */
static int sleep_until(clockid_t clock, const struct timespec *end) {
    for (;;) {
        int64_t left_ns = ns_until(clock, end);
        if (left_ns <= 0)
            return 0;
        int64_t nap_ns = left_ns < LONGEST_NAP_NS ? left_ns : LONGEST_NAP_NS;
        struct timespec nap = {nap_ns / NS_PER_S, nap_ns % NS_PER_S};
        int status = real_clock_nanosleep()(clock == CLOCK_REALTIME ? CLOCK_MONOTONIC : clock, 0, &nap, NULL);
        if (status != 0)
            return status;
    }
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted, struct timespec *left) {
    if (!emulated(clock) || !valid(wanted))
        return real_clock_nanosleep()(clock, flags, wanted, left);
    struct timespec end = *wanted;
    if (!(flags & TIMER_ABSTIME)) {
        clock_gettime(clock, &end);
        end = shifted(end, wanted->tv_nsec);
        if (__builtin_add_overflow(end.tv_sec, wanted->tv_sec, &end.tv_sec))
            end.tv_sec = INT64_MAX;
    }
    int status = sleep_until(clock, &end);
    if (status == EINTR && !(flags & TIMER_ABSTIME) && left != NULL) {
        int64_t left_ns = ns_until(clock, &end);
        left_ns = left_ns > 0 ? left_ns : 0;
        *left = (struct timespec){left_ns / NS_PER_S, left_ns % NS_PER_S};
    }
    return status;
}

EXPORT int nanosleep(const struct timespec *wanted, struct timespec *left) {
    int status = clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);
    if (status == 0)
        return 0;
    errno = status;
    return -1;
}

EXPORT int usleep(useconds_t microseconds) {
    struct timespec wanted = {microseconds / 1000000, (long)(microseconds % 1000000) * 1000};
    return nanosleep(&wanted, NULL);
}

EXPORT unsigned sleep(unsigned seconds) {
    struct timespec wanted = {seconds, 0}, left = {0, 0};
    return nanosleep(&wanted, &left) == 0 ? 0 : (unsigned)(left.tv_sec + (left.tv_nsec > 0));
}

/* ---- waits up to a moment ---- */

EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, const struct timespec *restrict end) {
    struct timespec of_host = shifted(*end, -jumped_ns());
    return real_pthread_cond_timedwait()(condition, mutex, &of_host);
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, clockid_t clock,
                                  const struct timespec *restrict end) {
    struct timespec of_host = shifted(*end, -jumped_ns());
    return real_pthread_cond_clockwait()(condition, mutex, clock, &of_host);
}

EXPORT int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict end) {
    struct timespec of_host = shifted(*end, -jumped_ns());
    return real_pthread_mutex_timedlock()(mutex, &of_host);
}

EXPORT int pthread_mutex_clocklock(pthread_mutex_t *restrict mutex, clockid_t clock, const struct timespec *restrict end) {
    struct timespec of_host = shifted(*end, -jumped_ns());
    return real_pthread_mutex_clocklock()(mutex, clock, &of_host);
}

EXPORT int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict end) {
    struct timespec of_host = shifted(*end, -jumped_ns());
    return real_sem_timedwait()(semaphore, &of_host);
}

EXPORT int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict end) {
    struct timespec of_host = shifted(*end, -jumped_ns());
    return real_sem_clockwait()(semaphore, clock, &of_host);
}
