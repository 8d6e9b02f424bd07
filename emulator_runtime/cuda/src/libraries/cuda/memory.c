/* Copies and settings of memory with the checks that a driver makes of their addresses. */
#include "cuda_state.h"

#include <stdint.h>
#include <unistd.h>

int emu_memory_allocate_host(size_t bytes, void **address) {
    size_t pages = (size_t)sysconf(_SC_PHYS_PAGES);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes / page >= pages) {
        return EMU_OUT_OF_MEMORY;
    }
    return emu_memory_allocate(emu_current_device(), EMU_MEMORY_HOST, bytes, address);
}

int emu_memory_pin(void *address, size_t bytes, unsigned flags) {
    const unsigned known = 0xf; /* portable, mapped, memory of a device, read-only */
    return flags & ~known ? EMU_INVALID_VALUE : emu_memory_register(address, bytes, flags);
}

int emu_memory_release_host(void *address) {
    emu_memory_info info;
    if (!emu_memory_find(address, &info) || info.kind != EMU_MEMORY_HOST) {
        return EMU_INVALID_VALUE;
    }
    emu_device_synchronize(info.device);
    return emu_memory_free(EMU_MEMORY_HOST, address);
}

int emu_memory_unpin(void *address) {
    emu_memory_info info;
    if (emu_memory_find(address, &info)) {
        emu_device_synchronize(info.device);
    }
    return emu_memory_unregister(address);
}

int emu_memory_release(void *address) {
    emu_memory_info info;
    if (address == NULL) {
        return EMU_OK;
    }
    if (!emu_memory_find(address, &info) || info.base != address) {
        return EMU_INVALID_VALUE;
    }
    if (info.kind != EMU_MEMORY_DEVICE && info.kind != EMU_MEMORY_MANAGED) {
        return EMU_INVALID_VALUE;
    }
    emu_device_synchronize(info.device);
    emu_pool_forget(address);
    return emu_memory_free(info.kind, address);
}

static int check_copy(const void *to, const void *from, size_t bytes, int kind) {
    if (kind < COPY_HOST_TO_HOST || kind > COPY_DEFAULT) {
        return RESULT_INVALID_COPY_DIRECTION;
    }
    bool to_device = kind == COPY_HOST_TO_DEVICE || kind == COPY_DEVICE_TO_DEVICE;
    bool from_device = kind == COPY_DEVICE_TO_HOST || kind == COPY_DEVICE_TO_DEVICE;
    if (to == NULL || from == NULL) {
        return EMU_INVALID_VALUE;
    }
    if (to_device && !emu_memory_reachable(to, bytes)) {
        return EMU_INVALID_VALUE;
    }
    if (from_device && !emu_memory_reachable(from, bytes)) {
        return EMU_INVALID_VALUE;
    }
    return EMU_OK;
}

/* An address that CUDA knows has to have room for all of the copy, whatever kind of copy it is; others are the host's. */
static bool fits(const void *address, size_t bytes) {
    emu_memory_info info;
    return !emu_memory_find(address, &info) || emu_memory_reachable(address, bytes);
}

int emu_memory_copy(void *stream, void *to, const void *from, size_t bytes, int kind, bool blocking) {
    emu_stream *target = emu_stream_of(stream);
    if (target == NULL) {
        return EMU_INVALID_HANDLE;
    }
    if (bytes == 0) {
        return kind < COPY_HOST_TO_HOST || kind > COPY_DEFAULT ? RESULT_INVALID_COPY_DIRECTION : EMU_OK;
    }
    int status = check_copy(to, from, bytes, kind);
    if (status != EMU_OK) {
        return status;
    }
    if (!fits(to, bytes) || !fits(from, bytes)) {
        return EMU_INVALID_VALUE;
    }
    return emu_copy(target, to, from, bytes, blocking);
}

/* From the first byte of the first row to the last of the last; 0: more than there are addresses. */
static size_t span(size_t pitch, size_t width, size_t rows) {
    size_t before_last = 0, all = 0;
    if (__builtin_mul_overflow(pitch, rows - 1, &before_last) || __builtin_add_overflow(before_last, width, &all)) {
        return 0;
    }
    return all;
}

int emu_memory_copy_rows(
    void *stream, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows, int kind, bool blocking) {
    emu_stream *target = emu_stream_of(stream);
    if (target == NULL) {
        return EMU_INVALID_HANDLE;
    }
    if (kind < COPY_HOST_TO_HOST || kind > COPY_DEFAULT) {
        return RESULT_INVALID_COPY_DIRECTION;
    }
    if (width == 0 || rows == 0) {
        return EMU_OK;
    }
    if (rows > 1 && (width > to_pitch || width > from_pitch)) {
        return RESULT_INVALID_PITCH;
    }
    size_t to_span = span(to_pitch, width, rows), from_span = span(from_pitch, width, rows);
    if (to_span == 0 || from_span == 0) {
        return EMU_INVALID_VALUE;
    }
    bool to_device = kind == COPY_HOST_TO_DEVICE || kind == COPY_DEVICE_TO_DEVICE;
    bool from_device = kind == COPY_DEVICE_TO_HOST || kind == COPY_DEVICE_TO_DEVICE;
    if (check_copy(to, from, 1, kind) != EMU_OK || !fits(to, to_span) || !fits(from, from_span)) {
        return EMU_INVALID_VALUE;
    }
    if ((to_device && !emu_memory_reachable(to, to_span)) || (from_device && !emu_memory_reachable(from, from_span))) {
        return EMU_INVALID_VALUE;
    }
    return emu_copy_rows(target, to, to_pitch, from, from_pitch, width, rows, blocking);
}

/* Setting memory doesn't wait for the device, unless it is the host's. */
static int finish_set(emu_stream *stream, const void *address, bool blocking) {
    emu_memory_info info;
    if (blocking && emu_memory_find(address, &info) && info.kind == EMU_MEMORY_HOST) {
        return emu_stream_synchronize(stream);
    }
    return EMU_OK;
}

int emu_memory_set_rows(
    void *stream, void *address, size_t pitch, unsigned value, size_t size, size_t width, size_t rows, bool blocking) {
    emu_stream *target = emu_stream_of(stream);
    size_t row_bytes = 0;
    if (target == NULL) {
        return EMU_INVALID_HANDLE;
    }
    if (width == 0 || rows == 0) {
        return EMU_OK;
    }
    if (__builtin_mul_overflow(width, size, &row_bytes) || (uintptr_t)address % size != 0 || (rows > 1 && pitch % size != 0)) {
        return EMU_INVALID_VALUE;
    }
    if (rows > 1 && row_bytes > pitch) {
        return RESULT_INVALID_PITCH;
    }
    size_t all = span(pitch, row_bytes, rows);
    if (all == 0 || !emu_memory_reachable(address, all)) {
        return EMU_INVALID_VALUE;
    }
    int status = emu_set_rows(target, address, pitch, value, size, width, rows);
    return status == EMU_OK ? finish_set(target, address, blocking) : status;
}

int emu_memory_set(void *stream, void *address, unsigned value, size_t size, size_t count, bool blocking) {
    return emu_memory_set_rows(stream, address, 0, value, size, count, 1, blocking);
}

size_t emu_memory_pitch(size_t bytes) {
    const size_t alignment = 512;
    return bytes > SIZE_MAX - alignment ? 0 : (bytes + alignment - 1) / alignment * alignment;
}
