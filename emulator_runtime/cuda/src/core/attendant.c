/* A thread of the core: it looks after work whose end comes to be known while no thread of the program waits for it. */
#include "clock.h"
#include "grant.h"
#include "internal.h"

#include <time.h>

enum { RECHECK_NS = 1000000, LONGEST_WAIT_NS = 5000000, NS_PER_S = 1000000000 };

static bool running;
static bool news;
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER;
static pthread_cond_t host_work = PTHREAD_COND_INITIALIZER;
static bool host_running;

enum { HOST_QUEUE = 4096 };
static item *host_queue[HOST_QUEUE]; /* functions that wait for their time, in any order */
static int host_count;

/* Wait on `condition` for so long, with the core's lock. False: nobody signalled it. */
static bool wait_up_to(pthread_cond_t *condition, int64_t duration_ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += duration_ns;
    until.tv_sec += until.tv_nsec / NS_PER_S;
    until.tv_nsec %= NS_PER_S;
    return pthread_cond_clockwait(condition, &core_lock, CLOCK_MONOTONIC, &until) == 0;
}

static void *attend(void *unused) {
    (void)unused;
    pthread_mutex_lock(&core_lock);
    for (;;) {
        bool quiet = false;
        if (streams_pending() && !news)
            quiet = !wait_up_to(&wanted, RECHECK_NS);
        else if (!news)
            pthread_cond_wait(&wanted, &core_lock);
        news = false;
        if (quiet)
            grant_flush(); /* nothing joins what has been collected; a function of the host, or another rank, may wait for it */
        streams_resolve();
    }
    return NULL;
}

bool thread_start(void *(*body)(void *)) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 1 << 20);
    bool started = pthread_create(&thread, &attributes, body, NULL) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

void attendant_start(void) {
    if (running) {
        pthread_cond_signal(&wanted);
        return;
    }
    running = thread_start(attend);
}

void emu_wake(void) {
    pthread_mutex_lock(&core_lock);
    news = true;
    if (running)
        pthread_cond_signal(&wanted);
    pthread_mutex_unlock(&core_lock);
}

/* The place in the queue of the function whose time comes first. */
static int earliest(void) {
    int found = 0;
    for (int i = 1; i < host_count; i++) {
        if (host_queue[i]->start_ns < host_queue[found]->start_ns)
            found = i;
    }
    return found;
}

/* Functions of the host run one after the other, each when its stream gets there. While the thread waits for the time of one, an
 * earlier one may come; in warp nothing has to be waited for. */
static void *run_host_functions(void *unused) {
    (void)unused;
    pthread_mutex_lock(&core_lock);
    for (;;) {
        while (host_count == 0)
            pthread_cond_wait(&host_work, &core_lock);
        int place = earliest();
        item *work = host_queue[place];
        int64_t left_ns = work->start_ns - emu_now_ns();
        if (left_ns > LONGEST_WAIT_NS && !clock_warps()) {
            wait_up_to(&host_work, LONGEST_WAIT_NS);
            continue;
        }
        host_queue[place] = host_queue[--host_count];
        pthread_mutex_unlock(&core_lock);
        clock_wait_until(work->start_ns);
        int64_t began_ns = host_ns();
        work->function(work->argument);
        int64_t took_ns = host_ns() - began_ns;
        pthread_mutex_lock(&core_lock);
        if (record_on)
            record_function_ended(work, took_ns);
        work->end_ns = emu_now_ns();
        work->ended = true;
        streams_resolve();
        pthread_cond_broadcast(&core_progress);
    }
    return NULL;
}

bool attendant_run(item *host_function) {
    if (!host_running)
        host_running = thread_start(run_host_functions);
    if (!host_running || host_count == HOST_QUEUE)
        return false;
    host_queue[host_count++] = host_function;
    pthread_cond_signal(&host_work);
    return true;
}

void attendant_forget(void) {
    running = host_running = news = false;
    host_count = 0;
}
