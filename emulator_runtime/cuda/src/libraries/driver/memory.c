/* The driver's allocations. */
#include "driver.h"

static int allocate(CUdeviceptr *address, size_t bytes, emu_memory_kind kind) {
    void *made = NULL;
    TRY(in_context());
    if (address == NULL || bytes == 0) {
        return EMU_INVALID_VALUE;
    }
    TRY(emu_capture_permits());
    TRY(emu_memory_allocate(emu_current_device(), kind, bytes, &made));
    *address = (CUdeviceptr)(uintptr_t)made;
    return EMU_OK;
}

EMU_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    return allocate(address, bytes, EMU_MEMORY_DEVICE);
}

EMU_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
    if (flags != 1 && flags != 2) { /* attached to all streams, or to the host */
        return EMU_INVALID_VALUE;
    }
    return allocate(address, bytes, EMU_MEMORY_MANAGED);
}

EMU_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element_bytes) {
    size_t bytes = 0;
    bool whole = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
    if (pitch == NULL || !whole || width == 0 || height == 0) {
        return EMU_INVALID_VALUE;
    }
    size_t row = emu_memory_pitch(width);
    if (row == 0 || __builtin_mul_overflow(row, height, &bytes)) {
        return EMU_OUT_OF_MEMORY;
    }
    TRY(allocate(address, bytes, EMU_MEMORY_DEVICE));
    *pitch = row;
    return EMU_OK;
}

EMU_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
    TRY(in_context());
    TRY(emu_capture_permits());
    return emu_memory_release(pointer(address));
}

EMU_EXPORT CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
    const unsigned known = 0x7; /* portable, mapped, write-combined */
    TRY(in_context());
    if (address == NULL || bytes == 0 || flags & ~known) {
        return EMU_INVALID_VALUE;
    }
    TRY(emu_capture_permits());
    return emu_memory_allocate_host(bytes, address);
}

EMU_EXPORT CUresult cuMemAllocHost_v2(void **address, size_t bytes) {
    return cuMemHostAlloc(address, bytes, 0);
}

EMU_EXPORT CUresult cuMemFreeHost(void *address) {
    TRY(in_context());
    if (address == NULL) {
        return EMU_INVALID_VALUE;
    }
    TRY(emu_capture_permits());
    return emu_memory_release_host(address);
}

EMU_EXPORT CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags) {
    TRY(in_context());
    TRY(emu_capture_permits());
    return emu_memory_pin(address, bytes, flags);
}

EMU_EXPORT CUresult cuMemHostUnregister(void *address) {
    TRY(in_context());
    return emu_memory_unpin(address);
}

/* The device uses the host's address. */
EMU_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device_address, void *address, unsigned flags) {
    emu_memory_info info;
    TRY(in_context());
    if (device_address == NULL || flags != 0) {
        return EMU_INVALID_VALUE;
    }
    if (!emu_memory_find(address, &info) || (info.kind != EMU_MEMORY_HOST && info.kind != EMU_MEMORY_MANAGED)) {
        return EMU_INVALID_VALUE;
    }
    *device_address = (CUdeviceptr)(uintptr_t)address;
    return EMU_OK;
}

EMU_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    TRY(in_context());
    if (free_bytes == NULL || total_bytes == NULL) {
        return EMU_INVALID_VALUE;
    }
    return emu_memory_usage(emu_current_device(), free_bytes, total_bytes);
}

EMU_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    emu_memory_info info;
    TRY(in_context());
    if (!emu_memory_find(pointer(address), &info)) {
        return EMU_NOT_FOUND;
    }
    if (base != NULL) {
        *base = (CUdeviceptr)(uintptr_t)info.base;
    }
    if (bytes != NULL) {
        *bytes = info.bytes;
    }
    return EMU_OK;
}

/* The name before CUDA 3.2, which programs that use dlsym ask for; on 64 bits both are the same. */
EMU_EXPORT CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    return cuMemGetAddressRange_v2(base, bytes, address);
}
