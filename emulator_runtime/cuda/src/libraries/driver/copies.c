/* The driver's copies and settings of memory. */
#include "driver.h"

/* ---- copies ---- */

static int copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, int kind, CUstream stream, bool blocking) {
    TRY(in_context());
    if (blocking) {
        TRY(emu_capture_permits());
    }
    return driver_result(emu_memory_copy(stream, pointer(to), pointer(from), bytes, kind, blocking));
}

EMU_EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copy(to, from, bytes, COPY_DEFAULT, NULL, true);
}

EMU_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    return copy(to, (CUdeviceptr)(uintptr_t)from, bytes, COPY_HOST_TO_DEVICE, NULL, true);
}

EMU_EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    return copy((CUdeviceptr)(uintptr_t)to, from, bytes, COPY_DEVICE_TO_HOST, NULL, true);
}

EMU_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copy(to, from, bytes, COPY_DEVICE_TO_DEVICE, NULL, false);
}

EMU_EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy(to, from, bytes, COPY_DEFAULT, stream, false);
}

EMU_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return copy(to, (CUdeviceptr)(uintptr_t)from, bytes, COPY_HOST_TO_DEVICE, stream, false);
}

EMU_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy((CUdeviceptr)(uintptr_t)to, from, bytes, COPY_DEVICE_TO_HOST, stream, false);
}

EMU_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy(to, from, bytes, COPY_DEVICE_TO_DEVICE, stream, false);
}

static int check_contexts(CUcontext to, CUcontext from) {
    return emu_context_valid(to) && emu_context_valid(from) ? EMU_OK : EMU_INVALID_CONTEXT;
}

EMU_EXPORT CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes) {
    TRY(in_context());
    TRY(check_contexts(to_context, from_context));
    return copy(to, from, bytes, COPY_DEVICE_TO_DEVICE, NULL, false);
}

EMU_EXPORT CUresult cuMemcpyPeerAsync(
    CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream) {
    TRY(in_context());
    TRY(check_contexts(to_context, from_context));
    return copy(to, from, bytes, COPY_DEVICE_TO_DEVICE, stream, false);
}

enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_ARRAY = 3, MEMORY_UNIFIED = 4 };

/* The first byte that one side of a copy of rows means; NULL: none. */
static char *side(int type, const void *host, CUdeviceptr device, size_t x, size_t y, size_t pitch) {
    char *base = type == MEMORY_HOST ? (char *)host : pointer(device);
    size_t offset = 0;
    if (base == NULL || __builtin_mul_overflow(y, pitch, &offset) || __builtin_add_overflow(offset, x, &offset)) {
        return NULL;
    }
    return base + offset;
}

static int rows_kind(int to, int from) {
    if (to == MEMORY_UNIFIED || from == MEMORY_UNIFIED) {
        return COPY_DEFAULT;
    }
    if (to == MEMORY_DEVICE) {
        return from == MEMORY_DEVICE ? COPY_DEVICE_TO_DEVICE : COPY_HOST_TO_DEVICE;
    }
    return from == MEMORY_DEVICE ? COPY_DEVICE_TO_HOST : COPY_HOST_TO_HOST;
}

static int copy_rows(const CUDA_MEMCPY2D *shape, CUstream stream, bool blocking) {
    TRY(in_context());
    if (shape == NULL || shape->srcMemoryType < 1 || shape->srcMemoryType > 4 || shape->dstMemoryType < 1 || shape->dstMemoryType > 4) {
        return EMU_INVALID_VALUE;
    }
    if (shape->srcMemoryType == MEMORY_ARRAY || shape->dstMemoryType == MEMORY_ARRAY) {
        return EMU_NOT_SUPPORTED;
    }
    if (blocking) {
        TRY(emu_capture_permits());
    }
    size_t to_pitch = shape->dstPitch ? shape->dstPitch : shape->WidthInBytes;
    size_t from_pitch = shape->srcPitch ? shape->srcPitch : shape->WidthInBytes;
    char *to = side(shape->dstMemoryType, shape->dstHost, shape->dstDevice, shape->dstXInBytes, shape->dstY, to_pitch);
    char *from = side(shape->srcMemoryType, shape->srcHost, shape->srcDevice, shape->srcXInBytes, shape->srcY, from_pitch);
    int kind = rows_kind(shape->dstMemoryType, shape->srcMemoryType);
    return driver_result(
        emu_memory_copy_rows(stream, to, to_pitch, from, from_pitch, shape->WidthInBytes, shape->Height, kind, blocking));
}

EMU_EXPORT CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *shape) {
    return copy_rows(shape, NULL, true);
}

EMU_EXPORT CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *shape) {
    return copy_rows(shape, NULL, true);
}

EMU_EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *shape, CUstream stream) {
    return copy_rows(shape, stream, false);
}

/* ---- settings ---- */

static int set(CUdeviceptr address, unsigned value, size_t size, size_t count, CUstream stream, bool blocking) {
    TRY(in_context());
    if (blocking) {
        TRY(emu_capture_permits());
    }
    return driver_result(emu_memory_set(stream, pointer(address), value, size, count, blocking));
}

static int set_rows(
    CUdeviceptr address, size_t pitch, unsigned value, size_t size, size_t width, size_t rows, CUstream stream, bool blocking) {
    TRY(in_context());
    if (blocking) {
        TRY(emu_capture_permits());
    }
    return driver_result(emu_memory_set_rows(stream, pointer(address), pitch, value, size, width, rows, blocking));
}

EMU_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t count) {
    return set(address, value, 1, count, NULL, true);
}

EMU_EXPORT CUresult cuMemsetD16_v2(CUdeviceptr address, unsigned short value, size_t count) {
    return set(address, value, 2, count, NULL, true);
}

EMU_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t count) {
    return set(address, value, 4, count, NULL, true);
}

EMU_EXPORT CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
    return set(address, value, 1, count, stream, false);
}

EMU_EXPORT CUresult cuMemsetD16Async(CUdeviceptr address, unsigned short value, size_t count, CUstream stream) {
    return set(address, value, 2, count, stream, false);
}

EMU_EXPORT CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
    return set(address, value, 4, count, stream, false);
}

EMU_EXPORT CUresult cuMemsetD2D8_v2(CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t rows) {
    return set_rows(address, pitch, value, 1, width, rows, NULL, true);
}

EMU_EXPORT CUresult cuMemsetD2D16_v2(CUdeviceptr address, size_t pitch, unsigned short value, size_t width, size_t rows) {
    return set_rows(address, pitch, value, 2, width, rows, NULL, true);
}

EMU_EXPORT CUresult cuMemsetD2D32_v2(CUdeviceptr address, size_t pitch, unsigned value, size_t width, size_t rows) {
    return set_rows(address, pitch, value, 4, width, rows, NULL, true);
}

EMU_EXPORT CUresult cuMemsetD2D8Async(CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t rows, CUstream stream) {
    return set_rows(address, pitch, value, 1, width, rows, stream, false);
}

EMU_EXPORT CUresult cuMemsetD2D16Async(
    CUdeviceptr address, size_t pitch, unsigned short value, size_t width, size_t rows, CUstream stream) {
    return set_rows(address, pitch, value, 2, width, rows, stream, false);
}

EMU_EXPORT CUresult cuMemsetD2D32Async(CUdeviceptr address, size_t pitch, unsigned value, size_t width, size_t rows, CUstream stream) {
    return set_rows(address, pitch, value, 4, width, rows, stream, false);
}
