/* Memory pools: cudaMallocAsync and its kin.
 *
 * Memory is taken from the device when it is asked for, and given back when the stream gets to where it is freed: a pool keeps no
 * memory in reserve, so its reserved bytes are its used bytes.
 */
#include "cuda_state.h"

#include "pointer_map.h"

#include <pthread.h>
#include <stdlib.h>

struct emu_memory_pool {
    int device;
    bool is_default;
    bool deleted;              /* by the program, while allocations were left */
    int reuse[3];
    uint64_t release_threshold;
    uint64_t used_bytes, used_high_bytes;
};

typedef struct {
    emu_memory_pool *pool;
    size_t bytes;
} pool_allocation;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pointer_map allocations; /* from addresses to pool_allocation */
static emu_memory_pool *defaults[EMU_MAX_DEVICES];
static emu_memory_pool *current[EMU_MAX_DEVICES]; /* NULL: the default */

static emu_memory_pool *make_pool(int device) {
    emu_memory_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        return NULL;
    }
    pool->device = device;
    for (int i = 0; i < 3; i++) {
        pool->reuse[i] = 1;
    }
    if (!emu_handle_add(pool, HANDLE_POOL)) {
        free(pool);
        return NULL;
    }
    return pool;
}

int emu_pool_new(int device, emu_memory_pool **pool) {
    if (pool == NULL) {
        return EMU_INVALID_VALUE;
    }
    if (emu_device(device) == NULL) {
        return EMU_INVALID_DEVICE;
    }
    emu_memory_pool *made = make_pool(device);
    if (made == NULL) {
        return EMU_OUT_OF_MEMORY;
    }
    *pool = made;
    return EMU_OK;
}

int emu_pool_default(int device, emu_memory_pool **pool) {
    if (pool == NULL) {
        return EMU_INVALID_VALUE;
    }
    if (emu_device(device) == NULL) {
        return EMU_INVALID_DEVICE;
    }
    pthread_mutex_lock(&lock);
    if (defaults[device] == NULL) {
        defaults[device] = make_pool(device);
        if (defaults[device] != NULL) {
            defaults[device]->is_default = true;
        }
    }
    emu_memory_pool *found = defaults[device];
    pthread_mutex_unlock(&lock);
    if (found == NULL) {
        return EMU_OUT_OF_MEMORY;
    }
    *pool = found;
    return EMU_OK;
}

int emu_pool_of_device(int device, emu_memory_pool **pool) {
    int status = emu_pool_default(device, pool);
    pthread_mutex_lock(&lock);
    if (status == EMU_OK && current[device] != NULL) {
        *pool = current[device];
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int emu_pool_set_of_device(int device, emu_memory_pool *pool) {
    if (emu_device(device) == NULL) {
        return EMU_INVALID_DEVICE;
    }
    if (!emu_handle_is(pool, HANDLE_POOL) || pool->device != device) {
        return EMU_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    current[device] = pool;
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}

int emu_pool_delete(emu_memory_pool *pool) {
    if (!emu_handle_is(pool, HANDLE_POOL) || pool->is_default || !emu_handle_remove(pool, HANDLE_POOL)) {
        return EMU_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    if (current[pool->device] == pool) {
        current[pool->device] = NULL;
    }
    pool->deleted = true;
    bool empty = pool->used_bytes == 0;
    pthread_mutex_unlock(&lock);
    if (empty) {
        free(pool);
    }
    return EMU_OK;
}

int emu_pool_get(emu_memory_pool *pool, int attribute, void *value) {
    if (value == NULL || !emu_handle_is(pool, HANDLE_POOL)) {
        return EMU_INVALID_VALUE;
    }
    int status = EMU_OK;
    pthread_mutex_lock(&lock);
    switch (attribute) {
    case POOL_REUSE_FOLLOW_EVENTS:
    case POOL_REUSE_OPPORTUNISTIC:
    case POOL_REUSE_INTERNAL:
        *(int *)value = pool->reuse[attribute - POOL_REUSE_FOLLOW_EVENTS];
        break;
    case POOL_RELEASE_THRESHOLD:
        *(uint64_t *)value = pool->release_threshold;
        break;
    case POOL_RESERVED_CURRENT:
    case POOL_USED_CURRENT:
        *(uint64_t *)value = pool->used_bytes;
        break;
    case POOL_RESERVED_HIGH:
    case POOL_USED_HIGH:
        *(uint64_t *)value = pool->used_high_bytes;
        break;
    default:
        status = EMU_INVALID_VALUE;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int emu_pool_set(emu_memory_pool *pool, int attribute, const void *value) {
    if (value == NULL || !emu_handle_is(pool, HANDLE_POOL)) {
        return EMU_INVALID_VALUE;
    }
    int status = EMU_OK;
    pthread_mutex_lock(&lock);
    switch (attribute) {
    case POOL_REUSE_FOLLOW_EVENTS:
    case POOL_REUSE_OPPORTUNISTIC:
    case POOL_REUSE_INTERNAL:
        pool->reuse[attribute - POOL_REUSE_FOLLOW_EVENTS] = *(const int *)value != 0;
        break;
    case POOL_RELEASE_THRESHOLD:
        pool->release_threshold = *(const uint64_t *)value;
        break;
    case POOL_RESERVED_HIGH:
    case POOL_USED_HIGH: /* can only be set back, by 0 */
        status = *(const uint64_t *)value == 0 ? EMU_OK : EMU_INVALID_VALUE;
        pool->used_high_bytes = status == EMU_OK ? pool->used_bytes : pool->used_high_bytes;
        break;
    default:
        status = EMU_INVALID_VALUE;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int emu_pool_trim(emu_memory_pool *pool, size_t bytes_to_keep) {
    (void)bytes_to_keep; /* nothing is kept in reserve */
    return emu_handle_is(pool, HANDLE_POOL) ? EMU_OK : EMU_INVALID_VALUE;
}

int emu_pool_access(emu_memory_pool *pool, int device, bool *possible) {
    if (!emu_handle_is(pool, HANDLE_POOL)) {
        return EMU_INVALID_VALUE;
    }
    if (emu_device(device) == NULL) {
        return EMU_INVALID_DEVICE;
    }
    *possible = pool->device == device || emu_peer_possible(pool->device, device);
    return EMU_OK;
}

static bool remember(emu_memory_pool *pool, void *address, size_t bytes) {
    pool_allocation *allocation = malloc(sizeof *allocation);
    if (allocation == NULL) {
        return false;
    }
    *allocation = (pool_allocation){.pool = pool, .bytes = bytes};
    pthread_mutex_lock(&lock);
    bool added = pointer_map_set(&allocations, address, allocation);
    if (added) {
        pool->used_bytes += bytes;
        pool->used_high_bytes = pool->used_bytes > pool->used_high_bytes ? pool->used_bytes : pool->used_high_bytes;
    }
    pthread_mutex_unlock(&lock);
    if (!added) {
        free(allocation);
    }
    return added;
}

int emu_pool_allocate(emu_memory_pool *pool, void *stream, size_t bytes, void **address) {
    emu_stream *target = emu_stream_of(stream);
    if (address == NULL) {
        return EMU_INVALID_VALUE;
    }
    if (target == NULL) {
        return EMU_INVALID_HANDLE;
    }
    if (pool == NULL) {
        int status = emu_pool_of_device(emu_stream_device(target), &pool);
        if (status != EMU_OK) {
            return status;
        }
    } else if (!emu_handle_is(pool, HANDLE_POOL)) {
        return EMU_INVALID_VALUE;
    }
    if (emu_capture_of(target, NULL, NULL) != EMU_CAPTURE_NONE) {
        emu_unsupported("CUDA", "memory allocation nodes in a graph");
        return EMU_NOT_SUPPORTED;
    }
    if (bytes == 0) {
        *address = NULL;
        return EMU_OK;
    }
    void *made = NULL;
    int status = emu_memory_allocate(pool->device, EMU_MEMORY_DEVICE, bytes, &made);
    if (status == EMU_OUT_OF_MEMORY && emu_stream_synchronize(target) == EMU_OK) { /* what the stream has freed may be there now */
        status = emu_memory_allocate(pool->device, EMU_MEMORY_DEVICE, bytes, &made);
    }
    if (status != EMU_OK) {
        return status;
    }
    if (!remember(pool, made, bytes)) {
        emu_memory_free(EMU_MEMORY_DEVICE, made);
        return EMU_OUT_OF_MEMORY;
    }
    *address = made;
    return EMU_OK;
}

emu_memory_pool *emu_pool_forget(void *address) {
    pthread_mutex_lock(&lock);
    pool_allocation *allocation = pointer_map_remove(&allocations, address);
    emu_memory_pool *pool = allocation ? allocation->pool : NULL;
    if (pool != NULL) {
        pool->used_bytes -= allocation->bytes;
    }
    bool last = pool != NULL && pool->deleted && pool->used_bytes == 0;
    pthread_mutex_unlock(&lock);
    free(allocation);
    if (last) {
        free(pool);
    }
    return pool;
}

/* ---- freeing in the order of a stream: work of no duration ---- */

static void *begin_free(void *address) {
    return address;
}

static bool poll_free(void *address, int64_t ready_ns, int64_t *end_ns) {
    (void)address;
    *end_ns = ready_ns;
    return true;
}

static void finish_free(void *address) {
    emu_memory_free(EMU_MEMORY_DEVICE, address);
}

int emu_pool_free(void *address, void *stream) {
    emu_memory_info info;
    emu_stream *target = emu_stream_of(stream);
    if (target == NULL) {
        return EMU_INVALID_HANDLE;
    }
    if (address == NULL) {
        return EMU_OK;
    }
    if (!emu_memory_find(address, &info) || info.base != address || info.kind != EMU_MEMORY_DEVICE) {
        return EMU_INVALID_VALUE;
    }
    if (emu_capture_of(target, NULL, NULL) != EMU_CAPTURE_NONE) {
        emu_unsupported("CUDA", "memory free nodes in a graph");
        return EMU_NOT_SUPPORTED;
    }
    emu_pool_forget(address);
    emu_deferred work = {.begin = begin_free, .poll = poll_free, .done = finish_free, .plan = address, .name = "free"};
    return emu_launch_deferred(target, &work);
}
