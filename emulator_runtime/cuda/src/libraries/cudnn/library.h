/* What the files of the emulated cuDNN share: status codes, types, the handle, and giving work to its stream. */
#ifndef EMUGPU_CUDNN_LIBRARY_H
#define EMUGPU_CUDNN_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mathematics/work_formulas.h"
#include "core.h"

typedef enum {
    CUDNN_STATUS_SUCCESS = 0,
    CUDNN_STATUS_NOT_INITIALIZED = 1001,
    CUDNN_STATUS_BAD_PARAM = 2000,
    CUDNN_STATUS_BAD_PARAM_NULL_POINTER = 2002,
    CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED = 2004,
    CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND = 2005,
    CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT = 2006,
    CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH = 2008,
    CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE = 2010,
    CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE = 2012,
    CUDNN_STATUS_NOT_SUPPORTED = 3000,
    CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 4003,
    CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED = 4004,
    CUDNN_STATUS_EXECUTION_FAILED = 5000,
} cudnn_status;

/* cudnnDataType_t. */
enum {
    CUDNN_DATA_FLOAT = 0,
    CUDNN_DATA_DOUBLE = 1,
    CUDNN_DATA_HALF = 2,
    CUDNN_DATA_INT8 = 3,
    CUDNN_DATA_INT32 = 4,
    CUDNN_DATA_INT8X4 = 5,
    CUDNN_DATA_UINT8 = 6,
    CUDNN_DATA_UINT8X4 = 7,
    CUDNN_DATA_INT8X32 = 8,
    CUDNN_DATA_BFLOAT16 = 9,
    CUDNN_DATA_INT64 = 10,
    CUDNN_DATA_BOOLEAN = 11,
    CUDNN_DATA_FP8_E4M3 = 12,
    CUDNN_DATA_FP8_E5M2 = 13,
    CUDNN_DATA_FAST_FLOAT_FOR_FP8 = 14,
    CUDNN_DATA_FP8_E8M0 = 15,
    CUDNN_DATA_FP4_E2M1 = 16,
    CUDNN_DATA_INT4 = 17,
    CUDNN_DATA_UINT4 = 18,
    CUDNN_DATA_UINT32 = 19,
    CUDNN_DATA_COMPLEX_FP32 = 20,
    CUDNN_DATA_COMPLEX_FP64 = 21,
    CUDNN_DATA_BYTE_BOOLEAN = 22,
    CUDNN_DATA_FP8_E5M3 = 23,
    CUDNN_DATA_TYPES = 24,
};

/* cudnnMathType_t. */
enum { CUDNN_DEFAULT_MATH, CUDNN_TENSOR_OP_MATH, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION, CUDNN_FMA_MATH };

/* Kinds of object. */
enum {
    CUDNN_HANDLE = 1,
    CUDNN_TENSOR,
    CUDNN_FILTER,
    CUDNN_CONVOLUTION,
    CUDNN_ACTIVATION,
    CUDNN_POOLING,
    CUDNN_DROPOUT,
    CUDNN_CTC_LOSS,
    CUDNN_SPATIAL_TRANSFORMER,
    CUDNN_RNN,
    CUDNN_RNN_DATA,
    CUDNN_BACKEND,
};

typedef struct {
    void *stream; /* as the program set it; NULL is the default stream */
} cudnn_handle;

/* NULL: not a live handle. */
cudnn_handle *cudnn_find(const void *handle);

/* Remember `message` for cudnnGetLastErrorString of this thread; answers `status`. */
cudnn_status cudnn_fail(cudnn_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Size of an element in bytes, less than 1 for packed types; 0: no such type. */
double cudnn_element_bytes(int type);

/* Precision of multiplications of this type; `tensor_cores`: they may be used. */
emu_precision cudnn_precision(int type, bool tensor_cores);

/* Whether the current device can multiply elements of this type in tensor cores, or at all. */
bool cudnn_device_has_tensor_cores(int type);
bool cudnn_device_supports(int type);

/* Whether a math type of the interface before version 8 allows tensor cores. */
bool cudnn_math_allows_tensor_cores(int math_type);

cudnn_status cudnn_launch(
    const cudnn_handle *handle, emu_work_kind kind, const char *name, emu_precision precision, work_amount amount);

/* Work whose time goes by the bytes. */
cudnn_status cudnn_launch_memory_bound(const cudnn_handle *handle, const char *name, double bytes);

/* An object of `kind`, zeroed, in *object. */
cudnn_status cudnn_create_object(int kind, size_t bytes, void **object);
cudnn_status cudnn_destroy_object(int kind, void *object);

#endif
