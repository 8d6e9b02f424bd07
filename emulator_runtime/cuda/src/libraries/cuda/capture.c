/* Which calls a thread may make while streams are captured: cudaThreadExchangeStreamCaptureMode describes the rule. */
#include "cuda_state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct active_capture {
    struct active_capture *next;
    emu_stream *stream;
    pthread_t thread;
    capture_mode mode;
} active_capture;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static active_capture *captures;
static atomic_int capture_count; /* spares calls the lock while nothing is captured */
static __thread capture_mode thread_mode = CAPTURE_GLOBAL;

static bool valid_mode(int mode) {
    return mode >= CAPTURE_GLOBAL && mode <= CAPTURE_RELAXED;
}

int emu_capture_exchange_mode(int *mode) {
    if (mode == NULL || !valid_mode(*mode)) {
        return EMU_INVALID_VALUE;
    }
    capture_mode before = thread_mode;
    thread_mode = (capture_mode)*mode;
    *mode = before;
    return EMU_OK;
}

int emu_capture_start(void *stream, emu_graph *graph, int mode) {
    emu_stream *captured = emu_stream_of(stream);
    if (!valid_mode(mode)) {
        return EMU_INVALID_VALUE;
    }
    if (captured == NULL) {
        return EMU_INVALID_HANDLE;
    }
    if (captured == emu_stream_default(emu_stream_device(captured))) {
        return EMU_CAPTURE_UNSUPPORTED;
    }
    active_capture *entry = malloc(sizeof *entry);
    if (entry == NULL) {
        return EMU_OUT_OF_MEMORY;
    }
    emu_status status = emu_capture_begin(captured, graph);
    if (status != EMU_OK) {
        free(entry);
        return status;
    }
    entry->stream = captured;
    entry->thread = pthread_self();
    entry->mode = (capture_mode)mode;
    pthread_mutex_lock(&lock);
    entry->next = captures;
    captures = entry;
    atomic_fetch_add(&capture_count, 1);
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}

static active_capture **find(const emu_stream *stream) {
    active_capture **place = &captures;
    while (*place != NULL && (*place)->stream != stream) {
        place = &(*place)->next;
    }
    return place;
}

static void remove_entry(active_capture **place) {
    active_capture *entry = *place;
    *place = entry->next;
    free(entry);
    atomic_fetch_sub(&capture_count, 1);
}

/* The capture of `stream` is forgotten, unless it belongs to another thread. */
static int take_out(const emu_stream *stream) {
    pthread_mutex_lock(&lock);
    active_capture **place = find(stream);
    active_capture *entry = *place;
    bool foreign = entry != NULL && entry->mode != CAPTURE_RELAXED && !pthread_equal(entry->thread, pthread_self());
    if (entry != NULL && !foreign) {
        remove_entry(place);
    }
    pthread_mutex_unlock(&lock);
    return foreign ? RESULT_CAPTURE_WRONG_THREAD : EMU_OK;
}

int emu_capture_stop(void *stream, emu_graph **graph) {
    emu_stream *captured = emu_stream_of(stream);
    if (graph == NULL) {
        return EMU_INVALID_VALUE;
    }
    *graph = NULL;
    if (captured == NULL) {
        return EMU_INVALID_HANDLE;
    }
    int status = take_out(captured);
    if (status != EMU_OK) {
        return status;
    }
    emu_graph *captured_graph = NULL;
    emu_capture_of(captured, NULL, &captured_graph);
    status = emu_capture_end(captured, graph);
    if (status != EMU_OK && captured_graph != NULL && !emu_graph_valid(captured_graph)) {
        emu_graph_forget(captured_graph);
    }
    return status;
}

void emu_capture_forget(void *stream) {
    pthread_mutex_lock(&lock);
    active_capture **place = find(stream);
    if (*place != NULL) {
        remove_entry(place);
    }
    pthread_mutex_unlock(&lock);
}

void emu_capture_forget_ended(void) {
    pthread_mutex_lock(&lock);
    for (active_capture **place = &captures; *place != NULL;) {
        if (emu_capture_of((*place)->stream, NULL, NULL) == EMU_CAPTURE_NONE) {
            remove_entry(place);
        } else {
            place = &(*place)->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

int emu_capture_permits(void) {
    if (atomic_load_explicit(&capture_count, memory_order_relaxed) == 0 || thread_mode == CAPTURE_RELAXED) {
        return EMU_OK;
    }
    emu_stream *forbidding = NULL;
    pthread_mutex_lock(&lock);
    for (active_capture *entry = captures; entry != NULL; entry = entry->next) {
        bool own = pthread_equal(entry->thread, pthread_self()) && entry->mode != CAPTURE_RELAXED;
        bool global = entry->mode == CAPTURE_GLOBAL && thread_mode == CAPTURE_GLOBAL;
        if (own || global) {
            forbidding = entry->stream;
        }
    }
    pthread_mutex_unlock(&lock);
    if (forbidding == NULL) {
        return EMU_OK;
    }
    emu_capture_break(forbidding);
    return EMU_CAPTURE_UNSUPPORTED;
}
