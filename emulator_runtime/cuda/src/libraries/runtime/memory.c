/* The runtime's allocations and memory pools. */
#include "runtime.h"

/* ---- allocation ---- */

static int allocate(void **address, size_t bytes, emu_memory_kind kind) {
    TRY(emu_use_context());
    if (address == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    TRY(emu_capture_permits());
    if (bytes == 0) {
        *address = NULL;
        return EMU_OK;
    }
    if (kind == EMU_MEMORY_HOST) {
        return finish(emu_memory_allocate_host(bytes, address));
    }
    return finish(emu_memory_allocate(emu_current_device(), kind, bytes, address));
}

EMU_EXPORT cudaError_t cudaMalloc(void **address, size_t bytes) {
    return allocate(address, bytes, EMU_MEMORY_DEVICE);
}

EMU_EXPORT cudaError_t cudaMallocManaged(void **address, size_t bytes, unsigned flags) {
    if (bytes == 0 || (flags != 1 && flags != 2)) { /* attached to all streams, or to the host */
        return finish(EMU_INVALID_VALUE);
    }
    return allocate(address, bytes, EMU_MEMORY_MANAGED);
}

EMU_EXPORT cudaError_t cudaMallocPitch(void **address, size_t *pitch, size_t width, size_t height) {
    size_t bytes = 0;
    if (pitch == NULL || address == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    size_t row = emu_memory_pitch(width);
    if (__builtin_mul_overflow(row, height, &bytes) || (row == 0 && width > 0)) {
        return finish(EMU_OUT_OF_MEMORY);
    }
    TRY(allocate(address, bytes, EMU_MEMORY_DEVICE));
    *pitch = row;
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaMalloc3D(cudaPitchedPtr *pitched, cudaExtent extent) {
    size_t rows = 0;
    if (pitched == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows)) {
        return finish(EMU_OUT_OF_MEMORY);
    }
    TRY(cudaMallocPitch(&pitched->ptr, &pitched->pitch, extent.width, rows));
    pitched->xsize = extent.width;
    pitched->ysize = extent.height;
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaFree(void *address) {
    TRY(emu_use_context());
    if (address == NULL) {
        return EMU_OK;
    }
    TRY(emu_capture_permits());
    return finish(emu_memory_release(address));
}

EMU_EXPORT cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned flags) {
    const unsigned known = 0x7; /* portable, mapped, write-combined */
    if (flags & ~known) {
        return finish(EMU_INVALID_VALUE);
    }
    return allocate(address, bytes, EMU_MEMORY_HOST);
}

EMU_EXPORT cudaError_t cudaMallocHost(void **address, size_t bytes) {
    return allocate(address, bytes, EMU_MEMORY_HOST);
}

EMU_EXPORT cudaError_t cudaFreeHost(void *address) {
    TRY(emu_use_context());
    if (address == NULL) {
        return EMU_OK;
    }
    TRY(emu_capture_permits());
    return finish(emu_memory_release_host(address));
}

EMU_EXPORT cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned flags) {
    TRY(emu_use_context());
    TRY(emu_capture_permits());
    return finish(emu_memory_pin(address, bytes, flags));
}

EMU_EXPORT cudaError_t cudaHostUnregister(void *address) {
    TRY(emu_use_context());
    return finish(emu_memory_unpin(address));
}

/* The device uses the host's address. */
EMU_EXPORT cudaError_t cudaHostGetDevicePointer(void **device_address, void *address, unsigned flags) {
    emu_memory_info info;
    TRY(emu_use_context());
    if (device_address == NULL || flags != 0) {
        return finish(EMU_INVALID_VALUE);
    }
    if (!emu_memory_find(address, &info) || (info.kind != EMU_MEMORY_HOST && info.kind != EMU_MEMORY_MANAGED)) {
        return finish(EMU_INVALID_VALUE);
    }
    *device_address = address;
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    TRY(emu_use_context());
    if (free_bytes == NULL || total_bytes == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    return finish(emu_memory_usage(emu_current_device(), free_bytes, total_bytes));
}

/* An address that CUDA doesn't know is no error, but of the type "unregistered". */
EMU_EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *address) {
    emu_memory_info info;
    TRY(emu_use_context());
    if (attributes == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    *attributes = (cudaPointerAttributes){.device = -2, .hostPointer = (void *)address};
    if (!emu_memory_find(address, &info) || info.kind == EMU_MEMORY_RESERVED) {
        return EMU_OK;
    }
    attributes->type = (int)info.kind;
    attributes->device = info.device;
    attributes->devicePointer = (void *)address;
    if (info.kind == EMU_MEMORY_DEVICE) {
        attributes->hostPointer = NULL;
    }
    return EMU_OK;
}

/* ---- pools ---- */

EMU_EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    TRY(known_device(device));
    return finish(emu_pool_default(device, pool));
}

EMU_EXPORT cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
    TRY(known_device(device));
    return finish(emu_pool_of_device(device, pool));
}

EMU_EXPORT cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    TRY(known_device(device));
    return finish(emu_pool_set_of_device(device, pool));
}

EMU_EXPORT cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *properties) {
    TRY(emu_use_context());
    if (properties == NULL || properties->allocType != 1) {
        return finish(EMU_INVALID_VALUE);
    }
    if (properties->handleTypes != 0 || properties->location.type != LOCATION_DEVICE) {
        return finish(EMU_NOT_SUPPORTED);
    }
    return finish(emu_pool_new(properties->location.id, pool));
}

EMU_EXPORT cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    return finish(emu_pool_delete(pool));
}

EMU_EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, int attribute, void *value) {
    return finish(emu_pool_get(pool, attribute, value));
}

EMU_EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, int attribute, void *value) {
    return finish(emu_pool_set(pool, attribute, value));
}

EMU_EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes_to_keep) {
    return finish(emu_pool_trim(pool, bytes_to_keep));
}

EMU_EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc *accesses, size_t count) {
    if (accesses == NULL && count > 0) {
        return finish(EMU_INVALID_VALUE);
    }
    for (size_t i = 0; i < count; i++) {
        bool possible = false;
        if (accesses[i].location.type != LOCATION_DEVICE) {
            return finish(EMU_INVALID_VALUE);
        }
        TRY(emu_pool_access(pool, accesses[i].location.id, &possible));
        if (!possible) {
            return finish(EMU_INVALID_DEVICE);
        }
    }
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaMemPoolGetAccess(int *flags, cudaMemPool_t pool, const cudaMemLocation *location) {
    enum { READ_WRITE = 3 };
    bool possible = false;
    if (flags == NULL || location == NULL || location->type != LOCATION_DEVICE) {
        return finish(EMU_INVALID_VALUE);
    }
    TRY(emu_pool_access(pool, location->id, &possible));
    *flags = possible ? READ_WRITE : 0;
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaMallocAsync(void **address, size_t bytes, cudaStream_t stream) {
    TRY(emu_use_context());
    return finish(emu_pool_allocate(NULL, stream, bytes, address));
}

EMU_EXPORT cudaError_t cudaMallocFromPoolAsync(void **address, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
    TRY(emu_use_context());
    if (pool == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    return finish(emu_pool_allocate(pool, stream, bytes, address));
}

EMU_EXPORT cudaError_t cudaFreeAsync(void *address, cudaStream_t stream) {
    TRY(emu_use_context());
    return finish(emu_pool_free(address, stream));
}

/* Memory that graphs allocate: none, see emu_pool_allocate. */
EMU_EXPORT cudaError_t cudaDeviceGetGraphMemAttribute(int device, int attribute, void *value) {
    TRY(known_device(device));
    if (value == NULL || attribute < 0 || attribute > 3) {
        return finish(EMU_INVALID_VALUE);
    }
    *(uint64_t *)value = 0;
    return EMU_OK;
}

/* Only the two highest values can be set, to 0. */
EMU_EXPORT cudaError_t cudaDeviceSetGraphMemAttribute(int device, int attribute, void *value) {
    TRY(known_device(device));
    if (value == NULL || (attribute != 1 && attribute != 3) || *(uint64_t *)value != 0) {
        return finish(EMU_INVALID_VALUE);
    }
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaDeviceGraphMemTrim(int device) {
    return finish(known_device(device));
}

/* ---- managed memory ---- */

static int managed_range(const void *address, size_t bytes) {
    emu_memory_info info;
    TRY(emu_use_context());
    bool managed = emu_memory_find(address, &info) && info.kind == EMU_MEMORY_MANAGED;
    return finish(managed && bytes > 0 && emu_memory_reachable(address, bytes) ? EMU_OK : EMU_INVALID_VALUE);
}

/* Where managed memory is has no effect; an advice is checked alone. */
static int advise(const void *address, size_t bytes, int advice) {
    if (advice < 1 || advice > 6) {
        return finish(EMU_INVALID_VALUE);
    }
    return managed_range(address, bytes);
}

#if CUDA_MAJOR >= 13

EMU_EXPORT cudaError_t cudaMemAdvise(const void *address, size_t bytes, int advice, cudaMemLocation location) {
    (void)location;
    return advise(address, bytes, advice);
}

#else

EMU_EXPORT cudaError_t cudaMemAdvise(const void *address, size_t bytes, int advice, int device) {
    (void)device;
    return advise(address, bytes, advice);
}

#endif

/* ---- arrays ---- */

typedef struct {
    int x, y, z, w; /* bits of each component */
    int kind;
} cudaChannelFormatDesc;

/* Arrays aren't emulated; their format is a plain value. */
EMU_EXPORT cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, int kind) {
    return (cudaChannelFormatDesc){x, y, z, w, kind};
}
