/* libcudnn: versions, errors and handles. The other files: descriptors.c, convolution.c, layers.c and rnn.c for the interface with a
 * function for each layer; backend.c, rules.c and execution.c for the one with graphs of operations.
 *
 * Nothing is computed: a function checks its arguments as the interface documents, and describes the work to the core.
 */
#include "library.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "mathematics/objects.h"

/* The library of CUDA 13.2's days. A program compiled with an older minor release of version 9 accepts it. */
enum { VERSION_MAJOR = 9, VERSION_MINOR = 26, VERSION_PATCH = 0 };

enum { MESSAGE_ROOM = 256 };
static _Thread_local char last_message[MESSAGE_ROOM];

cudnn_status cudnn_fail(cudnn_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_message, sizeof last_message, format, arguments);
    va_end(arguments);
    emu_log(2, "cuDNN: %s (status %d)", last_message, (int)status);
    return status;
}

EMU_EXPORT void cudnnGetLastErrorString(char *message, size_t room) {
    if (!message || room == 0)
        return;
    snprintf(message, room, "%s", last_message);
    last_message[0] = '\0';
}

EMU_EXPORT size_t cudnnGetVersion(void) {
    return VERSION_MAJOR * 10000 + VERSION_MINOR * 100 + VERSION_PATCH;
}

/* The newest architecture that it knows: 12.1. */
EMU_EXPORT size_t cudnnGetMaxDeviceVersion(void) {
    return 1210;
}

EMU_EXPORT size_t cudnnGetCudartVersion(void) {
    emu_start();
    return (size_t)emu_driver_version();
}

EMU_EXPORT cudnn_status cudnnGetProperty(int property, int *value) {
    static const int PARTS[] = {VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH};
    if (!value || property < 0 || property > 2)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "property %d", property);
    *value = PARTS[property];
    return CUDNN_STATUS_SUCCESS;
}

EMU_EXPORT const char *cudnnGetErrorString(int status) {
    switch (status) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
        return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_BAD_PARAM_NULL_POINTER:
        return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED:
        return "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED";
    case CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND:
        return "CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND";
    case CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT:
        return "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT";
    case CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH:
        return "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH";
    case CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE:
        return "CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE";
    case CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE:
        return "CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
        return "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED";
    case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
        return "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED";
    case CUDNN_STATUS_EXECUTION_FAILED:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
        return "CUDNN_UNKNOWN_STATUS";
    }
}

/* ---- types ---- */

static const double ELEMENT_BYTES[CUDNN_DATA_TYPES] = {
    [CUDNN_DATA_FLOAT] = 4,
    [CUDNN_DATA_DOUBLE] = 8,
    [CUDNN_DATA_HALF] = 2,
    [CUDNN_DATA_INT8] = 1,
    [CUDNN_DATA_INT32] = 4,
    [CUDNN_DATA_INT8X4] = 1,
    [CUDNN_DATA_UINT8] = 1,
    [CUDNN_DATA_UINT8X4] = 1,
    [CUDNN_DATA_INT8X32] = 1,
    [CUDNN_DATA_BFLOAT16] = 2,
    [CUDNN_DATA_INT64] = 8,
    [CUDNN_DATA_BOOLEAN] = 0.125,
    [CUDNN_DATA_FP8_E4M3] = 1,
    [CUDNN_DATA_FP8_E5M2] = 1,
    [CUDNN_DATA_FAST_FLOAT_FOR_FP8] = 4,
    [CUDNN_DATA_FP8_E8M0] = 1,
    [CUDNN_DATA_FP4_E2M1] = 0.5,
    [CUDNN_DATA_INT4] = 0.5,
    [CUDNN_DATA_UINT4] = 0.5,
    [CUDNN_DATA_UINT32] = 4,
    [CUDNN_DATA_COMPLEX_FP32] = 8,
    [CUDNN_DATA_COMPLEX_FP64] = 16,
    [CUDNN_DATA_BYTE_BOOLEAN] = 1,
    [CUDNN_DATA_FP8_E5M3] = 1,
};

double cudnn_element_bytes(int type) {
    return type >= 0 && type < CUDNN_DATA_TYPES ? ELEMENT_BYTES[type] : 0;
}

static int capability(void) {
    const emu_device_info *device = emu_device(emu_current_device());
    return device ? device->capability_major * 10 + device->capability_minor : 0;
}

bool cudnn_device_has_tensor_cores(int type) {
    switch (type) {
    case CUDNN_DATA_HALF:
        return capability() >= 70;
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_INT8X4:
    case CUDNN_DATA_UINT8X4:
    case CUDNN_DATA_INT8X32:
        return capability() >= 72;
    case CUDNN_DATA_FLOAT: /* as TF32 */
    case CUDNN_DATA_BFLOAT16:
        return capability() >= 80;
    case CUDNN_DATA_FP8_E4M3:
    case CUDNN_DATA_FP8_E5M2:
    case CUDNN_DATA_FP4_E2M1:
        return capability() >= 89;
    default:
        return false;
    }
}

bool cudnn_device_supports(int type) {
    switch (type) {
    case CUDNN_DATA_BFLOAT16:
    case CUDNN_DATA_FP8_E4M3:
    case CUDNN_DATA_FP8_E5M2:
    case CUDNN_DATA_FP4_E2M1:
        return cudnn_device_has_tensor_cores(type);
    default:
        return cudnn_element_bytes(type) > 0;
    }
}

emu_precision cudnn_precision(int type, bool tensor_cores) {
    bool accelerated = tensor_cores && cudnn_device_has_tensor_cores(type);
    switch (type) {
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_COMPLEX_FP64:
        return EMU_FP64;
    case CUDNN_DATA_FLOAT:
        return accelerated ? EMU_TF32 : EMU_FP32;
    case CUDNN_DATA_HALF:
        return accelerated ? EMU_FP16 : EMU_FP32;
    case CUDNN_DATA_BFLOAT16:
        return accelerated ? EMU_BF16 : EMU_FP32;
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_INT8X4:
    case CUDNN_DATA_UINT8X4:
    case CUDNN_DATA_INT8X32:
        return EMU_INT8;
    case CUDNN_DATA_FP8_E4M3:
    case CUDNN_DATA_FP8_E5M2:
    case CUDNN_DATA_FP4_E2M1:
        return EMU_FP8;
    default:
        return EMU_FP32;
    }
}

bool cudnn_math_allows_tensor_cores(int math_type) {
    switch (math_type) {
    case CUDNN_TENSOR_OP_MATH:
    case CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION:
        return true;
    case CUDNN_DEFAULT_MATH:
        return capability() >= 80; /* on older devices a program has to ask for them */
    default:
        return false;
    }
}

/* ---- handles and work ---- */

cudnn_handle *cudnn_find(const void *handle) {
    return object_find(CUDNN_HANDLE, handle);
}

cudnn_status cudnn_create_object(int kind, size_t bytes, void **object) {
    if (!object)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for the new object");
    *object = object_create(kind, bytes);
    if (!*object)
        return cudnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "out of memory");
    return CUDNN_STATUS_SUCCESS;
}

/* NULL is allowed, as for free(). */
cudnn_status cudnn_destroy_object(int kind, void *object) {
    if (object && !object_destroy(kind, object))
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "not a live object of this kind");
    return CUDNN_STATUS_SUCCESS;
}

EMU_EXPORT cudnn_status cudnnCreate(void **handle) {
    if (!handle)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for the handle");
    if (emu_start() != EMU_OK || emu_device_count() < 1)
        return cudnn_fail(CUDNN_STATUS_NOT_INITIALIZED, "there is no device");
    return cudnn_create_object(CUDNN_HANDLE, sizeof(cudnn_handle), handle);
}

EMU_EXPORT cudnn_status cudnnDestroy(void *handle) {
    return object_destroy(CUDNN_HANDLE, handle) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_INITIALIZED;
}

EMU_EXPORT cudnn_status cudnnSetStream(void *handle, void *stream) {
    cudnn_handle *found = cudnn_find(handle);
    if (!found)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "not a live handle");
    found->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

EMU_EXPORT cudnn_status cudnnGetStream(void *handle, void **stream) {
    const cudnn_handle *found = cudnn_find(handle);
    if (!found || !stream)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "not a live handle, or no place for the stream");
    *stream = found->stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnn_status cudnn_launch(
    const cudnn_handle *handle, emu_work_kind kind, const char *name, emu_precision precision, work_amount amount) {
    emu_stream *stream = emu_stream_of(handle->stream);
    emu_work work = {.kind = kind, .name = name, .precision = precision, .flops = amount.flops, .bytes = amount.bytes,
                     .columns = amount.columns, .depth = amount.depth};
    if (!stream)
        return cudnn_fail(CUDNN_STATUS_EXECUTION_FAILED, "the handle's stream doesn't exist");
    emu_status status = emu_launch(stream, &work);
    if (status != EMU_OK)
        return cudnn_fail(CUDNN_STATUS_EXECUTION_FAILED, "%s: CUDA error %d", name, (int)status);
    return CUDNN_STATUS_SUCCESS;
}

cudnn_status cudnn_launch_memory_bound(const cudnn_handle *handle, const char *name, double bytes) {
    work_amount amount = {.flops = 0, .bytes = bytes};
    return cudnn_launch(handle, EMU_MEMORY_BOUND, name, EMU_FP32, amount);
}
