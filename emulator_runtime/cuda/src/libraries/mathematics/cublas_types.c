/* What cuBLAS and cuBLASLt know alike: sizes of element types, the precision of a product, names of status codes. */
#include "cublas_types.h"

#include <string.h>

static const double ELEMENT_BYTES[CUDA_TYPES] = {
    [CUDA_R_32F] = 4,
    [CUDA_R_64F] = 8,
    [CUDA_R_16F] = 2,
    [CUDA_R_8I] = 1,
    [CUDA_C_32F] = 8,
    [CUDA_C_64F] = 16,
    [CUDA_C_16F] = 4,
    [CUDA_C_8I] = 2,
    [CUDA_R_8U] = 1,
    [CUDA_R_32I] = 4,
    [CUDA_R_16BF] = 2,
    [CUDA_C_16BF] = 4,
    [CUDA_R_8F_E4M3] = 1,
    [CUDA_R_8F_E5M2] = 1,
    [CUDA_R_8F_UE8M0] = 1,
    [CUDA_R_4F_E2M1] = 0.5,
};

double cublas_element_bytes(int type) {
    return type >= 0 && type < CUDA_TYPES ? ELEMENT_BYTES[type] : 0;
}

bool cublas_type_is_complex(int type) {
    return type == CUDA_C_32F || type == CUDA_C_64F || type == CUDA_C_16F || type == CUDA_C_16BF || type == CUDA_C_8I;
}

bool cublas_type_is_fp8(int type) {
    return type >= CUDA_R_8F_E4M3 && type < CUDA_TYPES && ELEMENT_BYTES[type] > 0;
}

/* 32-bit inputs: tensor cores may be allowed by the compute type, or for plain 32F by the handle's math mode. */
static emu_precision precision_of_fp32(int compute_type, int math_mode) {
    switch (compute_type) {
    case CUBLAS_COMPUTE_32F_FAST_16F:
        return EMU_FP16;
    case CUBLAS_COMPUTE_32F_FAST_16BF:
        return EMU_BF16;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
        return EMU_TF32;
    case CUBLAS_COMPUTE_32F:
        break;
    default:
        return EMU_FP32;
    }
    switch (math_mode & ~CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) {
    case CUBLAS_TF32_TENSOR_OP_MATH:
        return EMU_TF32;
    case CUBLAS_TENSOR_OP_MATH:
        return EMU_FP16;
    default:
        return EMU_FP32;
    }
}

static bool computes_in_32f(int compute_type) {
    switch (compute_type) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_EMULATED_16BFX9:
        return true;
    default:
        return false;
    }
}

static bool computes_in_64f(int compute_type) {
    return compute_type == CUBLAS_COMPUTE_64F || compute_type == CUBLAS_COMPUTE_64F_PEDANTIC
        || compute_type == CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT;
}

bool cublas_precision(int a_type, int b_type, int compute_type, int math_mode, emu_precision *precision) {
    bool in_16f = compute_type == CUBLAS_COMPUTE_16F || compute_type == CUBLAS_COMPUTE_16F_PEDANTIC;
    bool in_32i = compute_type == CUBLAS_COMPUTE_32I || compute_type == CUBLAS_COMPUTE_32I_PEDANTIC;
    bool in_32f = computes_in_32f(compute_type);
    if (cublas_type_is_fp8(a_type) && cublas_type_is_fp8(b_type)) {
        *precision = EMU_FP8;
        return in_32f;
    }
    if (a_type != b_type)
        return false;
    switch (a_type) {
    case CUDA_R_64F:
    case CUDA_C_64F:
        *precision = EMU_FP64;
        return computes_in_64f(compute_type);
    case CUDA_R_32F:
    case CUDA_C_32F:
        *precision = precision_of_fp32(compute_type, math_mode);
        return in_32f;
    case CUDA_R_16F:
    case CUDA_C_16F:
        *precision = EMU_FP16;
        return in_16f || in_32f;
    case CUDA_R_16BF:
    case CUDA_C_16BF:
        *precision = EMU_BF16;
        return in_32f;
    case CUDA_R_8I:
    case CUDA_C_8I:
        *precision = EMU_INT8;
        return in_32i || in_32f;
    default:
        return false;
    }
}

cublas_status cublas_status_of(emu_status status) {
    switch (status) {
    case EMU_OK:
        return CUBLAS_STATUS_SUCCESS;
    case EMU_INVALID_VALUE:
        return CUBLAS_STATUS_INVALID_VALUE;
    case EMU_OUT_OF_MEMORY:
        return CUBLAS_STATUS_ALLOC_FAILED;
    case EMU_NOT_INITIALIZED:
    case EMU_NO_DEVICE:
        return CUBLAS_STATUS_NOT_INITIALIZED;
    case EMU_NOT_SUPPORTED:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    default:
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
}

const char *cublas_status_name(int status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
        return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
        return "CUBLAS_STATUS_LICENSE_ERROR";
    default:
        return "CUBLAS_STATUS_UNKNOWN";
    }
}

bool cublas_host_scalar_is_zero(const void *value, int type) {
    static const char ZERO[16];
    size_t bytes = (size_t)cublas_element_bytes(type);
    return bytes > 0 && bytes <= sizeof ZERO && memcmp(value, ZERO, bytes) == 0;
}

cublas_status cublas_version_property(int property, int *value) {
    static const int PARTS[] = {CUBLAS_VERSION_MAJOR, CUBLAS_VERSION_MINOR, CUBLAS_VERSION_PATCH};
    if (!value || property < 0 || property > 2)
        return CUBLAS_STATUS_INVALID_VALUE;
    *value = PARTS[property];
    return CUBLAS_STATUS_SUCCESS;
}
