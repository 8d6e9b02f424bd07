/* The driver's memory pools and what is allocated from them. */
#include "driver.h"

EMU_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    TRY(ready());
    return emu_pool_default(device, pool);
}

EMU_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    TRY(ready());
    return emu_pool_of_device(device, pool);
}

EMU_EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
    TRY(ready());
    return emu_pool_set_of_device(device, pool);
}

EMU_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
    TRY(ready());
    if (properties == NULL || properties->allocType != 1) {
        return EMU_INVALID_VALUE;
    }
    if (properties->handleTypes != 0 || properties->location.type != LOCATION_DEVICE) {
        return EMU_NOT_SUPPORTED;
    }
    return emu_pool_new(properties->location.id, pool);
}

EMU_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    TRY(ready());
    return emu_pool_delete(pool);
}

EMU_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value) {
    TRY(ready());
    return emu_pool_get(pool, attribute, value);
}

EMU_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value) {
    TRY(ready());
    return emu_pool_set(pool, attribute, value);
}

EMU_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes_to_keep) {
    TRY(ready());
    return emu_pool_trim(pool, bytes_to_keep);
}

EMU_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *accesses, size_t count) {
    TRY(ready());
    if (accesses == NULL && count > 0) {
        return EMU_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        bool possible = false;
        if (accesses[i].location.type != LOCATION_DEVICE) {
            return EMU_INVALID_VALUE;
        }
        TRY(emu_pool_access(pool, accesses[i].location.id, &possible));
        if (!possible) {
            return EMU_INVALID_DEVICE;
        }
    }
    return EMU_OK;
}

EMU_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
    void *made = NULL;
    TRY(in_context());
    if (address == NULL || bytes == 0) {
        return EMU_INVALID_VALUE;
    }
    TRY(emu_pool_allocate(NULL, stream, bytes, &made));
    *address = (CUdeviceptr)(uintptr_t)made;
    return EMU_OK;
}

EMU_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
    void *made = NULL;
    TRY(in_context());
    if (address == NULL || bytes == 0 || pool == NULL) {
        return EMU_INVALID_VALUE;
    }
    TRY(emu_pool_allocate(pool, stream, bytes, &made));
    *address = (CUdeviceptr)(uintptr_t)made;
    return EMU_OK;
}

EMU_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    TRY(in_context());
    if (address == 0) {
        return EMU_INVALID_VALUE;
    }
    return emu_pool_free(pointer(address), stream);
}
