/* What the driver knows of an address. */
#include "driver.h"

#include <string.h>

enum {
    POINTER_CONTEXT = 1,
    POINTER_MEMORY_TYPE = 2,
    POINTER_DEVICE_ADDRESS = 3,
    POINTER_HOST_ADDRESS = 4,
    POINTER_SYNC_MEMOPS = 6,
    POINTER_BUFFER_ID = 7,
    POINTER_IS_MANAGED = 8,
    POINTER_DEVICE_ORDINAL = 9,
    POINTER_IPC_CAPABLE = 10,
    POINTER_RANGE_START = 11,
    POINTER_RANGE_BYTES = 12,
    POINTER_MAPPED = 13,
    POINTER_HANDLE_TYPES = 14,
    POINTER_RDMA_CAPABLE = 15,
    POINTER_ACCESS_FLAGS = 16,
};

static int host_address(void **data, void *address, const emu_memory_info *info) {
    if (info->kind == EMU_MEMORY_DEVICE || info->kind == EMU_MEMORY_RESERVED) {
        return EMU_INVALID_VALUE;
    }
    *data = address;
    return EMU_OK;
}

/* The first four memory types are the host's and the device's; managed memory is the device's. */
static int memory_type(unsigned *data, const emu_memory_info *info) {
    if (info->kind == EMU_MEMORY_RESERVED) {
        return EMU_INVALID_VALUE;
    }
    *data = info->kind == EMU_MEMORY_HOST ? 1 : 2;
    return EMU_OK;
}

static int pointer_attribute(void *data, int attribute, void *address, const emu_memory_info *info) {
    switch (attribute) {
    case POINTER_CONTEXT:
        *(CUcontext *)data = emu_context_primary(info->device);
        return EMU_OK;
    case POINTER_MEMORY_TYPE:
        return memory_type(data, info);
    case POINTER_DEVICE_ADDRESS:
        *(void **)data = address;
        return EMU_OK;
    case POINTER_HOST_ADDRESS:
        return host_address(data, address, info);
    case POINTER_BUFFER_ID:
        *(unsigned long long *)data = info->id;
        return EMU_OK;
    case POINTER_IS_MANAGED:
        *(int *)data = info->kind == EMU_MEMORY_MANAGED;
        return EMU_OK;
    case POINTER_DEVICE_ORDINAL:
        *(int *)data = info->device;
        return EMU_OK;
    case POINTER_RANGE_START:
        *(void **)data = info->base;
        return EMU_OK;
    case POINTER_RANGE_BYTES:
        *(size_t *)data = info->bytes;
        return EMU_OK;
    case POINTER_MAPPED:
        *(int *)data = info->kind != EMU_MEMORY_RESERVED;
        return EMU_OK;
    case POINTER_HANDLE_TYPES:
        *(unsigned long long *)data = 0;
        return EMU_OK;
    case POINTER_SYNC_MEMOPS:
    case POINTER_IPC_CAPABLE:
    case POINTER_RDMA_CAPABLE:
        *(int *)data = 0;
        return EMU_OK;
    case POINTER_ACCESS_FLAGS:
        *(int *)data = info->kind == EMU_MEMORY_RESERVED ? 0 : 3;
        return EMU_OK;
    default:
        return EMU_INVALID_VALUE;
    }
}

EMU_EXPORT CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address) {
    emu_memory_info info;
    TRY(in_context());
    if (data == NULL || !emu_memory_find(pointer(address), &info)) {
        return EMU_INVALID_VALUE;
    }
    return pointer_attribute(data, attribute, pointer(address), &info);
}

/* Of an address that CUDA doesn't know. */
static int default_attribute(void *data, int attribute) {
    switch (attribute) {
    case POINTER_DEVICE_ORDINAL:
        *(int *)data = -2;
        return EMU_OK;
    case POINTER_CONTEXT:
    case POINTER_DEVICE_ADDRESS:
    case POINTER_HOST_ADDRESS:
    case POINTER_BUFFER_ID:
    case POINTER_RANGE_START:
    case POINTER_RANGE_BYTES:
    case POINTER_HANDLE_TYPES:
        memset(data, 0, 8);
        return EMU_OK;
    case POINTER_MEMORY_TYPE:
    case POINTER_SYNC_MEMOPS:
    case POINTER_IS_MANAGED:
    case POINTER_IPC_CAPABLE:
    case POINTER_MAPPED:
    case POINTER_RDMA_CAPABLE:
    case POINTER_ACCESS_FLAGS:
        memset(data, 0, 4);
        return EMU_OK;
    default:
        return EMU_INVALID_VALUE;
    }
}

/* Unlike cuPointerGetAttribute, it succeeds for any address. */
EMU_EXPORT CUresult cuPointerGetAttributes(unsigned count, const int *attributes, void **data, CUdeviceptr address) {
    emu_memory_info info;
    TRY(in_context());
    if (count == 0 || attributes == NULL || data == NULL) {
        return EMU_INVALID_VALUE;
    }
    bool known = emu_memory_find(pointer(address), &info);
    for (unsigned i = 0; i < count; i++) {
        if (data[i] == NULL) {
            return EMU_INVALID_VALUE;
        }
        int status = known ? pointer_attribute(data[i], attributes[i], pointer(address), &info) : EMU_INVALID_VALUE;
        if (status != EMU_OK) {
            TRY(default_attribute(data[i], attributes[i]));
        }
    }
    return EMU_OK;
}

/* Copies with pageable memory always wait, which is what POINTER_SYNC_MEMOPS asks for. */
EMU_EXPORT CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address) {
    emu_memory_info info;
    TRY(in_context());
    if (value == NULL || attribute != POINTER_SYNC_MEMOPS || !emu_memory_find(pointer(address), &info)) {
        return EMU_INVALID_VALUE;
    }
    return EMU_OK;
}
