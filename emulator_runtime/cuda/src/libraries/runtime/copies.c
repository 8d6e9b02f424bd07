/* The runtime's copies and settings of memory, variables of the program included. */
#include "runtime.h"

/* ---- copies ---- */

static int copy(void *to, const void *from, size_t bytes, int kind, cudaStream_t stream, bool blocking) {
    TRY(emu_use_context());
    if (blocking) {
        TRY(emu_capture_permits());
    }
    return finish(emu_memory_copy(stream, to, from, bytes, kind, blocking));
}

EMU_EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    return copy(to, from, bytes, kind, NULL, kind != COPY_DEVICE_TO_DEVICE);
}

EMU_EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, cudaStream_t stream) {
    return copy(to, from, bytes, kind, stream, false);
}

static int check_peers(int to_device, int from_device) {
    TRY(emu_use_context());
    TRY(known_device(to_device));
    return finish(known_device(from_device));
}

EMU_EXPORT cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes) {
    TRY(check_peers(to_device, from_device));
    return copy(to, from, bytes, COPY_DEVICE_TO_DEVICE, NULL, false);
}

EMU_EXPORT cudaError_t cudaMemcpyPeerAsync(
    void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream) {
    TRY(check_peers(to_device, from_device));
    return copy(to, from, bytes, COPY_DEVICE_TO_DEVICE, stream, false);
}

static int copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows, int kind,
    cudaStream_t stream, bool blocking) {
    TRY(emu_use_context());
    if (blocking) {
        TRY(emu_capture_permits());
    }
    return finish(emu_memory_copy_rows(stream, to, to_pitch, from, from_pitch, width, rows, kind, blocking));
}

EMU_EXPORT cudaError_t cudaMemcpy2D(
    void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows, int kind) {
    return copy_rows(to, to_pitch, from, from_pitch, width, rows, kind, NULL, true);
}

EMU_EXPORT cudaError_t cudaMemcpy2DAsync(
    void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows, int kind, cudaStream_t stream) {
    return copy_rows(to, to_pitch, from, from_pitch, width, rows, kind, stream, false);
}

/* The address of `bytes` from `offset` on within a variable of the program. */
static int within_symbol(const void *symbol, size_t bytes, size_t offset, char **address) {
    void *base = NULL;
    size_t size = 0;
    TRY(emu_use_context());
    TRY(emu_registry_variable(symbol, &base, &size));
    if (offset > size || bytes > size - offset) {
        return finish(EMU_INVALID_VALUE);
    }
    *address = (char *)base + offset;
    return EMU_OK;
}

static int copy_to_symbol(
    const void *symbol, const void *from, size_t bytes, size_t offset, int kind, cudaStream_t stream, bool blocking) {
    char *address = NULL;
    if (kind != COPY_HOST_TO_DEVICE && kind != COPY_DEVICE_TO_DEVICE && kind != COPY_DEFAULT) {
        return finish(RESULT_INVALID_COPY_DIRECTION);
    }
    TRY(within_symbol(symbol, bytes, offset, &address));
    return copy(address, from, bytes, kind, stream, blocking);
}

static int copy_from_symbol(
    void *to, const void *symbol, size_t bytes, size_t offset, int kind, cudaStream_t stream, bool blocking) {
    char *address = NULL;
    if (kind != COPY_DEVICE_TO_HOST && kind != COPY_DEVICE_TO_DEVICE && kind != COPY_DEFAULT) {
        return finish(RESULT_INVALID_COPY_DIRECTION);
    }
    TRY(within_symbol(symbol, bytes, offset, &address));
    return copy(to, address, bytes, kind, stream, blocking);
}

EMU_EXPORT cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, int kind) {
    return copy_to_symbol(symbol, from, bytes, offset, kind, NULL, true);
}

EMU_EXPORT cudaError_t cudaMemcpyToSymbolAsync(
    const void *symbol, const void *from, size_t bytes, size_t offset, int kind, cudaStream_t stream) {
    return copy_to_symbol(symbol, from, bytes, offset, kind, stream, false);
}

EMU_EXPORT cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, int kind) {
    return copy_from_symbol(to, symbol, bytes, offset, kind, NULL, true);
}

EMU_EXPORT cudaError_t cudaMemcpyFromSymbolAsync(
    void *to, const void *symbol, size_t bytes, size_t offset, int kind, cudaStream_t stream) {
    return copy_from_symbol(to, symbol, bytes, offset, kind, stream, false);
}

EMU_EXPORT cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
    char *found = NULL;
    if (address == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    TRY(within_symbol(symbol, 0, 0, &found));
    *address = found;
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaGetSymbolSize(size_t *bytes, const void *symbol) {
    void *address = NULL;
    TRY(emu_use_context());
    if (bytes == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    return finish(emu_registry_variable(symbol, &address, bytes));
}

/* ---- settings ---- */

static int set(void *address, int value, size_t bytes, cudaStream_t stream, bool blocking) {
    TRY(emu_use_context());
    if (blocking) {
        TRY(emu_capture_permits());
    }
    return finish(emu_memory_set(stream, address, (unsigned)value & 0xff, 1, bytes, blocking));
}

EMU_EXPORT cudaError_t cudaMemset(void *address, int value, size_t bytes) {
    return set(address, value, bytes, NULL, true);
}

EMU_EXPORT cudaError_t cudaMemsetAsync(void *address, int value, size_t bytes, cudaStream_t stream) {
    return set(address, value, bytes, stream, false);
}

static int set_rows(void *address, size_t pitch, int value, size_t width, size_t rows, cudaStream_t stream, bool blocking) {
    TRY(emu_use_context());
    if (blocking) {
        TRY(emu_capture_permits());
    }
    return finish(emu_memory_set_rows(stream, address, pitch, (unsigned)value & 0xff, 1, width, rows, blocking));
}

EMU_EXPORT cudaError_t cudaMemset2D(void *address, size_t pitch, int value, size_t width, size_t rows) {
    return set_rows(address, pitch, value, width, rows, NULL, true);
}

EMU_EXPORT cudaError_t cudaMemset2DAsync(
    void *address, size_t pitch, int value, size_t width, size_t rows, cudaStream_t stream) {
    return set_rows(address, pitch, value, width, rows, stream, false);
}
