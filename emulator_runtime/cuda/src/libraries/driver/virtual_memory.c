/* Virtual memory management: addresses, memory, and which memory is where. PyTorch's expandable segments use it. */
#include "driver.h"

enum { PINNED = 1, HANDLE_POSIX_FILE = 1 };

EMU_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags) {
    void *made = NULL;
    (void)wish; /* a hint */
    TRY(ready());
    if (address == NULL || flags != 0) {
        return EMU_INVALID_VALUE;
    }
    TRY(emu_address_reserve(bytes, alignment, &made));
    *address = (CUdeviceptr)(uintptr_t)made;
    return EMU_OK;
}

EMU_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    TRY(ready());
    return emu_address_free(pointer(address), bytes);
}

/* Memory that could be handed to another process can be made, since programs ask for it by default; handing it over isn't
 * supported. */
static int check_properties(const CUmemAllocationProp *properties) {
    if (properties == NULL || properties->type != PINNED) {
        return EMU_INVALID_VALUE;
    }
    if (properties->location.type != LOCATION_DEVICE || properties->requestedHandleTypes & ~HANDLE_POSIX_FILE) {
        return EMU_NOT_SUPPORTED;
    }
    return emu_device(properties->location.id) != NULL ? EMU_OK : EMU_INVALID_DEVICE;
}

EMU_EXPORT CUresult cuMemCreate(
    CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags) {
    emu_physical *made = NULL;
    TRY(ready());
    if (handle == NULL || flags != 0) {
        return EMU_INVALID_VALUE;
    }
    TRY(check_properties(properties));
    TRY(emu_physical_create(properties->location.id, bytes, &made));
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)made;
    return EMU_OK;
}

EMU_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    TRY(ready());
    return emu_physical_release(pointer(handle));
}

EMU_EXPORT CUresult cuMemMap(
    CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
    TRY(ready());
    if (flags != 0) {
        return EMU_INVALID_VALUE;
    }
    return emu_physical_map(pointer(address), bytes, offset, pointer(handle));
}

EMU_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    TRY(ready());
    return emu_physical_unmap(pointer(address), bytes);
}

EMU_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    emu_physical *retained = NULL;
    TRY(ready());
    if (handle == NULL) {
        return EMU_INVALID_VALUE;
    }
    TRY(emu_physical_retain(address, &retained));
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)retained;
    return EMU_OK;
}

EMU_EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *accesses, size_t count) {
    TRY(ready());
    if (accesses == NULL || count == 0 || bytes == 0 || !emu_memory_reachable(pointer(address), bytes)) {
        return EMU_INVALID_VALUE;
    }
    emu_memory_info info;
    emu_memory_find(pointer(address), &info);
    for (size_t i = 0; i < count; i++) {
        int device = accesses[i].location.id;
        if (accesses[i].location.type != LOCATION_DEVICE) {
            return EMU_NOT_SUPPORTED;
        }
        if (device != info.device && !emu_peer_possible(info.device, device)) {
            return EMU_INVALID_DEVICE;
        }
    }
    return EMU_OK;
}

EMU_EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address) {
    emu_memory_info info;
    TRY(ready());
    if (flags == NULL || location == NULL || location->type != LOCATION_DEVICE || !emu_memory_find(pointer(address), &info)) {
        return EMU_INVALID_VALUE;
    }
    TRY(check_device(location->id));
    bool own = location->id == info.device && info.kind != EMU_MEMORY_RESERVED;
    *flags = own ? 3 : 0;
    return EMU_OK;
}

EMU_EXPORT CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties, int option) {
    TRY(ready());
    if (granularity == NULL || option < 0 || option > 1) {
        return EMU_INVALID_VALUE;
    }
    TRY(check_properties(properties));
    *granularity = EMU_GRANULARITY;
    return EMU_OK;
}
