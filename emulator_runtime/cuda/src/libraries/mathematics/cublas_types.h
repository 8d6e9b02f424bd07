/* The part of cuBLAS's interface that the emulated cuBLAS and cuBLASLt use: status codes, enumerations, element types. */
#ifndef EMUGPU_CUBLAS_TYPES_H
#define EMUGPU_CUBLAS_TYPES_H

#include <stdbool.h>

#include "core.h"

#ifndef CUDA_MAJOR
#define CUDA_MAJOR 13
#endif

typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8,
    CUBLAS_STATUS_MAPPING_ERROR = 11,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
    CUBLAS_STATUS_LICENSE_ERROR = 16,
} cublas_status;

enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 };
enum { CUBLAS_SIDE_LEFT = 0, CUBLAS_SIDE_RIGHT = 1 };
enum { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 };

/* cublasMath_t: a mode, with a flag that has no effect on time. */
enum {
    CUBLAS_DEFAULT_MATH = 0,
    CUBLAS_TENSOR_OP_MATH = 1,
    CUBLAS_PEDANTIC_MATH = 2,
    CUBLAS_TF32_TENSOR_OP_MATH = 3,
    CUBLAS_FP32_EMULATED_BF16X9_MATH = 4,
    CUBLAS_FP64_EMULATED_FIXEDPOINT_MATH = 8,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16,
};

/* cublasComputeType_t. */
enum {
    CUBLAS_COMPUTE_16F = 64,
    CUBLAS_COMPUTE_16F_PEDANTIC = 65,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_64F = 70,
    CUBLAS_COMPUTE_64F_PEDANTIC = 71,
    CUBLAS_COMPUTE_32I = 72,
    CUBLAS_COMPUTE_32I_PEDANTIC = 73,
    CUBLAS_COMPUTE_32F_FAST_16F = 74,
    CUBLAS_COMPUTE_32F_FAST_16BF = 75,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
    CUBLAS_COMPUTE_32F_EMULATED_16BFX9 = 78,
    CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT = 79,
};

/* cudaDataType_t. */
enum {
    CUDA_R_32F = 0,
    CUDA_R_64F = 1,
    CUDA_R_16F = 2,
    CUDA_R_8I = 3,
    CUDA_C_32F = 4,
    CUDA_C_64F = 5,
    CUDA_C_16F = 6,
    CUDA_C_8I = 7,
    CUDA_R_8U = 8,
    CUDA_R_32I = 10,
    CUDA_R_16BF = 14,
    CUDA_C_16BF = 15,
    CUDA_R_8F_E4M3 = 28,
    CUDA_R_8F_E5M2 = 29,
    CUDA_R_8F_UE8M0 = 30,
    CUDA_R_4F_E2M1 = 33,
    CUDA_TYPES = 34,
};

/* The library's version: that of the CUDA release which the SONAME belongs to. */
enum {
    CUBLAS_VERSION_MAJOR = CUDA_MAJOR,
    CUBLAS_VERSION_MINOR = CUDA_MAJOR >= 13 ? 4 : 8,
    CUBLAS_VERSION_PATCH = CUDA_MAJOR >= 13 ? 1 : 4,
    CUBLAS_VERSION = CUBLAS_VERSION_MAJOR * 10000 + CUBLAS_VERSION_MINOR * 100 + CUBLAS_VERSION_PATCH,
};

/* Size of an element in bytes (a half for 4-bit types); 0: no such type. */
double cublas_element_bytes(int type);
bool cublas_type_is_complex(int type);
bool cublas_type_is_fp8(int type); /* 8 bits or less */

/* Precision of the multiplications; false: no product of these types is computed this way. `math_mode` is a cuBLAS handle's. */
bool cublas_precision(int a_type, int b_type, int compute_type, int math_mode, emu_precision *precision);

/* A core's answer as cuBLAS says it. */
cublas_status cublas_status_of(emu_status status);

const char *cublas_status_name(int status);

/* Whether the scalar at `value`, in host memory, of element type `type`, is zero: the matrix that it scales isn't read. */
bool cublas_host_scalar_is_zero(const void *value, int type);

/* cublasGetProperty and cublasLtGetProperty. */
cublas_status cublas_version_property(int property, int *value);

#endif
