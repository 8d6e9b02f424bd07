/* A thread of the core: it looks after work whose end comes to be known while no thread of the program waits for it. */
#include "clock.h"
#include "internal.h"

#include <time.h>

enum { RECHECK_NS = 1000000, NS_PER_S = 1000000000 };

static bool running;
static bool news;
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER;
static pthread_cond_t host_work = PTHREAD_COND_INITIALIZER;
static bool host_running;

enum { HOST_QUEUE = 4096 };
static item *host_queue[HOST_QUEUE]; /* functions that wait for their time, in the order in which they came */
static unsigned host_first, host_last;

static void *attend(void *unused) {
    (void)unused;
    pthread_mutex_lock(&core_lock);
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += RECHECK_NS;
        until.tv_sec += until.tv_nsec / NS_PER_S;
        until.tv_nsec %= NS_PER_S;
        if (streams_pending() && !news)
            pthread_cond_clockwait(&wanted, &core_lock, CLOCK_MONOTONIC, &until);
        else if (!news)
            pthread_cond_wait(&wanted, &core_lock);
        news = false;
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

/* Functions of the host run one after the other, each when its stream gets there. */
static void *run_host_functions(void *unused) {
    (void)unused;
    pthread_mutex_lock(&core_lock);
    for (;;) {
        while (host_first == host_last)
            pthread_cond_wait(&host_work, &core_lock);
        item *work = host_queue[host_first++ % HOST_QUEUE];
        pthread_mutex_unlock(&core_lock);
        clock_wait_until(work->start_ns);
        work->function(work->argument);
        pthread_mutex_lock(&core_lock);
        work->end_ns = emu_now_ns();
        work->ended = true;
        streams_resolve();
        pthread_cond_broadcast(&core_progress);
    }
    return NULL;
}

bool attendant_run(item *host_function) {
    if (host_last - host_first == HOST_QUEUE)
        return false;
    if (!host_running)
        host_running = thread_start(run_host_functions);
    host_queue[host_last++ % HOST_QUEUE] = host_function;
    pthread_cond_signal(&host_work);
    return host_running;
}
