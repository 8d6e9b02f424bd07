/* Contexts, and what is set for a device: limits and access to the memory of peers. */
#include "cuda_state.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct {
    unsigned retained;     /* by cuDevicePrimaryCtxRetain */
    unsigned flags;
    bool limits_set;
    size_t limits[11];
    bool peers[EMU_MAX_DEVICES];
} device_choices;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device_choices choices[EMU_MAX_DEVICES];
static atomic_bool started;

int emu_initialize(void) {
    emu_status status = emu_start();
    if (status == EMU_OK) {
        atomic_store(&started, true);
    }
    return status;
}

bool emu_initialized(void) {
    return atomic_load_explicit(&started, memory_order_acquire);
}

int emu_use_device(int device) {
    if (!emu_initialized()) {
        int status = emu_initialize();
        if (status != EMU_OK) {
            return status;
        }
    }
    emu_context *context = emu_context_primary(device);
    if (context == NULL) {
        return EMU_INVALID_DEVICE;
    }
    emu_context_set_current(context);
    return EMU_OK;
}

int emu_use_context(void) {
    if (emu_context_current() != NULL) {
        return EMU_OK;
    }
    return emu_use_device(0);
}

int emu_primary_retain(int device) {
    if (emu_device(device) == NULL) {
        return EMU_INVALID_DEVICE;
    }
    pthread_mutex_lock(&lock);
    choices[device].retained++;
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}

int emu_primary_release(int device) {
    if (emu_device(device) == NULL) {
        return EMU_INVALID_DEVICE;
    }
    pthread_mutex_lock(&lock);
    bool was_retained = choices[device].retained > 0;
    choices[device].retained -= was_retained;
    pthread_mutex_unlock(&lock);
    return was_retained ? EMU_OK : EMU_INVALID_CONTEXT;
}

int emu_primary_state(int device, unsigned *flags, int *active) {
    if (flags == NULL || active == NULL) {
        return EMU_INVALID_VALUE;
    }
    if (emu_device(device) == NULL) {
        return EMU_INVALID_DEVICE;
    }
    pthread_mutex_lock(&lock);
    *flags = choices[device].flags;
    *active = choices[device].retained > 0 || emu_context_in_use(device);
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}

int emu_primary_set_flags(int device, unsigned flags) {
    const unsigned known = 0xff; /* how to wait, mapping of host memory, local memory, dumps, synchronous copies */
    if (emu_device(device) == NULL) {
        return EMU_INVALID_DEVICE;
    }
    if (flags & ~known) {
        return EMU_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    choices[device].flags = flags;
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}

enum { LIMIT_STACK = 0, LIMIT_PRINTF = 1, LIMIT_HEAP = 2, LIMIT_SYNC_DEPTH = 3, LIMIT_LAUNCHES = 4, LIMIT_L2_FETCH = 5, LIMIT_PERSISTING_L2 = 6 };

/* As a context has them at first. */
static void set_default_limits(device_choices *choice) {
    choice->limits[LIMIT_STACK] = 1024;
    choice->limits[LIMIT_PRINTF] = 1 << 20;
    choice->limits[LIMIT_HEAP] = 8 << 20;
    choice->limits[LIMIT_SYNC_DEPTH] = 2;
    choice->limits[LIMIT_LAUNCHES] = 2048;
    choice->limits[LIMIT_L2_FETCH] = 64;
    choice->limits_set = true;
}

static int check_limit(int device, int limit) {
    const emu_device_info *info = emu_device(device);
    if (info == NULL) {
        return EMU_INVALID_DEVICE;
    }
    if (limit < LIMIT_STACK || limit > 10) {
        return EMU_INVALID_VALUE;
    }
    /* Kernels of compute capability 9.0 can't wait for kernels that they launched. */
    bool gone = limit == LIMIT_SYNC_DEPTH && info->capability_major >= 9;
    bool too_new = limit == LIMIT_PERSISTING_L2 && info->capability_major < 8;
    return gone || too_new || limit > LIMIT_PERSISTING_L2 ? RESULT_UNSUPPORTED_LIMIT : EMU_OK;
}

int emu_limit_get(int device, int limit, size_t *value) {
    if (value == NULL) {
        return EMU_INVALID_VALUE;
    }
    int status = check_limit(device, limit);
    if (status != EMU_OK) {
        return status;
    }
    pthread_mutex_lock(&lock);
    if (!choices[device].limits_set) {
        set_default_limits(&choices[device]);
    }
    *value = choices[device].limits[limit];
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}

int emu_limit_set(int device, int limit, size_t value) {
    int status = check_limit(device, limit);
    if (status != EMU_OK) {
        return status;
    }
    int largest = 0;
    emu_device_attribute(&largest, 108, device);
    if (limit == LIMIT_PERSISTING_L2 && value > (size_t)largest) {
        value = (size_t)largest;
    }
    if (limit == LIMIT_L2_FETCH && value > 128) {
        return EMU_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    if (!choices[device].limits_set) {
        set_default_limits(&choices[device]);
    }
    choices[device].limits[limit] = value;
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}

bool emu_peer_possible(int device, int peer) {
    const emu_device_info *one = emu_device(device);
    const emu_device_info *other = emu_device(peer);
    return one != NULL && other != NULL && device != peer && one->peer_link_bytes_per_s > 0 && other->peer_link_bytes_per_s > 0;
}

int emu_peer_enable(int device, int peer) {
    if (emu_device(device) == NULL || emu_device(peer) == NULL || device == peer) {
        return EMU_INVALID_DEVICE;
    }
    if (!emu_peer_possible(device, peer)) {
        return RESULT_PEER_ACCESS_UNSUPPORTED;
    }
    pthread_mutex_lock(&lock);
    bool was_enabled = choices[device].peers[peer];
    choices[device].peers[peer] = true;
    pthread_mutex_unlock(&lock);
    return was_enabled ? RESULT_PEER_ACCESS_ALREADY_ENABLED : EMU_OK;
}

int emu_peer_disable(int device, int peer) {
    if (emu_device(device) == NULL || emu_device(peer) == NULL) {
        return EMU_INVALID_DEVICE;
    }
    pthread_mutex_lock(&lock);
    bool was_enabled = choices[device].peers[peer];
    choices[device].peers[peer] = false;
    pthread_mutex_unlock(&lock);
    return was_enabled ? EMU_OK : RESULT_PEER_ACCESS_NOT_ENABLED;
}

int emu_primary_reset(int device) {
    if (emu_device(device) == NULL) {
        return EMU_INVALID_DEVICE;
    }
    emu_registry_reset(device);
    int status = emu_device_reset(device);
    if (status != EMU_OK) {
        return status;
    }
    emu_capture_forget_ended(); /* those of the device's streams */
    pthread_mutex_lock(&lock);
    choices[device].flags = 0;
    choices[device].limits_set = false;
    for (int peer = 0; peer < EMU_MAX_DEVICES; peer++) {
        choices[device].peers[peer] = false;
    }
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}
