/* libcublas: handles, their settings, copies between host and device. The mathematics is in products.c (level 3 and the
 * GEMM family), vectors.c (levels 1 and 2) and batched.c (factorisations).
 *
 * Nothing is computed: a function checks its arguments as the interface documents, and describes the work to the core.
 */
#include <string.h>

#include "handles.h"
#include "mathematics/objects.h"

enum { CUBLAS_HANDLE = 1 }; /* kind of object */

cublas_handle *cublas_find(const void *handle) {
    return object_find(CUBLAS_HANDLE, handle);
}

cublas_status cublas_launch(
    const cublas_handle *handle, emu_work_kind kind, const char *name, emu_precision precision, work_amount amount) {
    emu_stream *stream = emu_stream_of(handle->stream);
    emu_work work = {.kind = kind, .name = name, .precision = precision, .flops = amount.flops, .bytes = amount.bytes,
                     .columns = amount.columns, .depth = amount.depth};
    if (!stream)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    return cublas_status_of(emu_launch(stream, &work));
}

emu_precision cublas_typed_precision(const cublas_handle *handle, int type) {
    emu_precision precision = EMU_FP32;
    bool is_double = type == CUDA_R_64F || type == CUDA_C_64F;
    cublas_precision(type, type, is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, handle->math_mode, &precision);
    return precision;
}

cublas_status cublas_return_scalar(const cublas_handle *handle, void *result, const void *value, size_t bytes) {
    if (handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE)
        return CUBLAS_STATUS_SUCCESS;
    emu_stream *stream = emu_stream_of(handle->stream);
    if (!stream)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    cublas_status status = cublas_status_of(emu_stream_synchronize(stream));
    if (status == CUBLAS_STATUS_SUCCESS)
        memcpy(result, value, bytes);
    return status;
}

cublas_status cublas_set_device_infos(const cublas_handle *handle, int *infos, int count) {
    emu_memory_info memory;
    emu_stream *stream = emu_stream_of(handle->stream);
    if (!stream)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (!infos || count <= 0)
        return CUBLAS_STATUS_SUCCESS;
    if (!emu_memory_find(infos, &memory))
        return CUBLAS_STATUS_INVALID_VALUE;
    size_t room = (size_t)((char *)memory.base + memory.bytes - (char *)infos);
    if (room / sizeof *infos < (size_t)count)
        return CUBLAS_STATUS_INVALID_VALUE;
    return cublas_status_of(emu_set(stream, infos, 0, sizeof *infos, (size_t)count));
}

/* ---- handles ---- */

EMU_EXPORT cublas_status cublasCreate_v2(void **handle) {
    if (!handle)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (emu_start() != EMU_OK || emu_device_count() < 1)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = object_create(CUBLAS_HANDLE, sizeof(cublas_handle));
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

EMU_EXPORT cublas_status cublasDestroy_v2(void *handle) {
    return object_destroy(CUBLAS_HANDLE, handle) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

EMU_EXPORT cublas_status cublasGetVersion_v2(void *handle, int *version) {
    (void)handle; /* the interface allows NULL */
    if (!version)
        return CUBLAS_STATUS_INVALID_VALUE;
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

EMU_EXPORT cublas_status cublasGetProperty(int property, int *value) {
    return cublas_version_property(property, value);
}

EMU_EXPORT const char *cublasGetStatusName(int status) {
    return cublas_status_name(status);
}

EMU_EXPORT const char *cublasGetStatusString(int status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return "the function requires an architectural feature absent from the device";
    case CUBLAS_STATUS_MAPPING_ERROR:
        return "an access to GPU memory space failed";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "the GPU program failed to execute";
    case CUBLAS_STATUS_INTERNAL_ERROR:
        return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the functionality is not supported";
    case CUBLAS_STATUS_LICENSE_ERROR:
        return "the license could not be verified";
    default:
        return "unknown cuBLAS status";
    }
}

EMU_EXPORT cublas_status cublasSetStream_v2(void *handle, void *stream) {
    cublas_handle *found = cublas_find(handle);
    if (!found)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    found->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

EMU_EXPORT cublas_status cublasGetStream_v2(void *handle, void **stream) {
    const cublas_handle *found = cublas_find(handle);
    if (!found)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!stream)
        return CUBLAS_STATUS_INVALID_VALUE;
    *stream = found->stream;
    return CUBLAS_STATUS_SUCCESS;
}

/* The program's workspace replaces the library's own; neither changes how long a product takes here. */
EMU_EXPORT cublas_status cublasSetWorkspace_v2(void *handle, void *workspace, size_t bytes) {
    enum { ALIGNMENT = 256 };
    if (!cublas_find(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!workspace && bytes > 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    return (uintptr_t)workspace % ALIGNMENT == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

EMU_EXPORT cublas_status cublasSetPointerMode_v2(void *handle, int mode) {
    cublas_handle *found = cublas_find(handle);
    if (!found)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!cublas_is_choice(mode))
        return CUBLAS_STATUS_INVALID_VALUE;
    found->pointer_mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

static cublas_status get_setting(void *handle, size_t offset, int *value) {
    const cublas_handle *found = cublas_find(handle);
    if (!found)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!value)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, (const char *)found + offset, sizeof *value);
    return CUBLAS_STATUS_SUCCESS;
}

EMU_EXPORT cublas_status cublasGetPointerMode_v2(void *handle, int *mode) {
    return get_setting(handle, offsetof(cublas_handle, pointer_mode), mode);
}

static bool is_math_mode(int mode) {
    switch (mode & ~CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) {
    case CUBLAS_DEFAULT_MATH:
    case CUBLAS_TENSOR_OP_MATH:
    case CUBLAS_PEDANTIC_MATH:
    case CUBLAS_TF32_TENSOR_OP_MATH:
    case CUBLAS_FP32_EMULATED_BF16X9_MATH:
    case CUBLAS_FP64_EMULATED_FIXEDPOINT_MATH:
        return true;
    default:
        return false;
    }
}

EMU_EXPORT cublas_status cublasSetMathMode(void *handle, int mode) {
    cublas_handle *found = cublas_find(handle);
    if (!found)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!is_math_mode(mode))
        return CUBLAS_STATUS_INVALID_VALUE;
    found->math_mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

EMU_EXPORT cublas_status cublasGetMathMode(void *handle, int *mode) {
    return get_setting(handle, offsetof(cublas_handle, math_mode), mode);
}

EMU_EXPORT cublas_status cublasSetAtomicsMode(void *handle, int mode) {
    cublas_handle *found = cublas_find(handle);
    if (!found)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!cublas_is_choice(mode))
        return CUBLAS_STATUS_INVALID_VALUE;
    found->atomics_mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

EMU_EXPORT cublas_status cublasGetAtomicsMode(void *handle, int *mode) {
    return get_setting(handle, offsetof(cublas_handle, atomics_mode), mode);
}

EMU_EXPORT cublas_status cublasSetSmCountTarget(void *handle, int count) {
    cublas_handle *found = cublas_find(handle);
    if (!found)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (count < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    found->sm_count_target = count;
    return CUBLAS_STATUS_SUCCESS;
}

EMU_EXPORT cublas_status cublasGetSmCountTarget(void *handle, int *count) {
    return get_setting(handle, offsetof(cublas_handle, sm_count_target), count);
}

/* ---- copies ---- */

/* Columns of `rows` elements; the leading dimensions count elements. */
static cublas_status copy_matrix(
    int rows, int columns, int element, const void *from, int from_leading, void *to, int to_leading, void *stream_handle) {
    if (rows < 0 || columns < 0 || element <= 0 || from_leading <= 0 || to_leading <= 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (rows > from_leading || rows > to_leading)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (rows == 0 || columns == 0)
        return CUBLAS_STATUS_SUCCESS;
    if (!from || !to)
        return CUBLAS_STATUS_MAPPING_ERROR;
    emu_stream *stream = emu_stream_of(stream_handle);
    if (!stream)
        return CUBLAS_STATUS_MAPPING_ERROR;
    size_t size = (size_t)element;
    emu_status status = emu_copy_rows(stream, to, (size_t)to_leading * size, from, (size_t)from_leading * size,
        (size_t)rows * size, (size_t)columns, false);
    return status == EMU_OK ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

EMU_EXPORT cublas_status cublasSetMatrixAsync(
    int rows, int columns, int element, const void *from, int from_leading, void *to, int to_leading, void *stream) {
    return copy_matrix(rows, columns, element, from, from_leading, to, to_leading, stream);
}

EMU_EXPORT cublas_status cublasGetMatrixAsync(
    int rows, int columns, int element, const void *from, int from_leading, void *to, int to_leading, void *stream) {
    return copy_matrix(rows, columns, element, from, from_leading, to, to_leading, stream);
}

/* A vector with a distance between its elements is a matrix of one row. */
EMU_EXPORT cublas_status cublasSetVectorAsync(
    int count, int element, const void *from, int from_distance, void *to, int to_distance, void *stream) {
    return copy_matrix(1, count, element, from, from_distance, to, to_distance, stream);
}

EMU_EXPORT cublas_status cublasGetVectorAsync(
    int count, int element, const void *from, int from_distance, void *to, int to_distance, void *stream) {
    return copy_matrix(1, count, element, from, from_distance, to, to_distance, stream);
}
