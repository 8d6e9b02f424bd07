/* A handle that a program passes may be anything; only those of this table are followed. */
#include "cuda_state.h"

#include "pointer_map.h"

#include <pthread.h>
#include <stdint.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pointer_map kinds;

static handle_kind kind_of(const void *handle) {
    return (handle_kind)(uintptr_t)pointer_map_get(&kinds, handle);
}

bool emu_handle_add(const void *handle, handle_kind kind) {
    pthread_mutex_lock(&lock);
    bool added = pointer_map_set(&kinds, handle, (void *)(uintptr_t)kind);
    pthread_mutex_unlock(&lock);
    return added;
}

bool emu_handle_is(const void *handle, handle_kind kind) {
    pthread_mutex_lock(&lock);
    bool same = kind_of(handle) == kind;
    pthread_mutex_unlock(&lock);
    return same;
}

bool emu_handle_remove(const void *handle, handle_kind kind) {
    pthread_mutex_lock(&lock);
    bool same = kind_of(handle) == kind;
    if (same) {
        pointer_map_remove(&kinds, handle);
    }
    pthread_mutex_unlock(&lock);
    return same;
}
