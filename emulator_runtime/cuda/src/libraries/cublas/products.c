/* libcublas: matrix products. The GEMM family in all its forms, and the rest of BLAS level 3. */
#include "handles.h"

/* The arguments that all forms of GEMM have in common. */
typedef struct {
    int transpose_a, transpose_b;
    int m, n, k;
    const void *alpha, *beta;
    int lda, ldb, ldc;
    int a_type, b_type, c_type;
    int scale_type; /* of alpha and beta */
    int batch;
    const char *name;
} gemm_call;

static bool gemm_call_is_valid(const gemm_call *call) {
    if (!cublas_is_operation(call->transpose_a) || !cublas_is_operation(call->transpose_b))
        return false;
    if (call->m < 0 || call->n < 0 || call->k < 0 || call->batch < 0)
        return false;
    int rows_a = call->transpose_a == CUBLAS_OP_N ? call->m : call->k;
    int rows_b = call->transpose_b == CUBLAS_OP_N ? call->k : call->n;
    if (call->lda < cublas_at_least_one(rows_a) || call->ldb < cublas_at_least_one(rows_b))
        return false;
    return call->ldc >= cublas_at_least_one(call->m) && call->alpha && call->beta;
}

static gemm_shape shape_of(const cublas_handle *handle, const gemm_call *call) {
    bool overwrites = handle->pointer_mode == CUBLAS_POINTER_MODE_HOST
        && cublas_host_scalar_is_zero(call->beta, call->scale_type);
    double c_bytes = cublas_element_bytes(call->c_type);
    gemm_shape shape = {
        .m = call->m,
        .n = call->n,
        .k = call->k,
        .batch = call->batch,
        .a_bytes = cublas_element_bytes(call->a_type),
        .b_bytes = cublas_element_bytes(call->b_type),
        .c_bytes = overwrites ? 0 : c_bytes,
        .d_bytes = c_bytes,
        .is_complex = cublas_type_is_complex(call->a_type),
    };
    return shape;
}

static cublas_status launch_gemm(const cublas_handle *handle, const gemm_call *call, emu_precision precision) {
    if (!gemm_call_is_valid(call))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (call->m == 0 || call->n == 0 || call->batch == 0)
        return CUBLAS_STATUS_SUCCESS;
    gemm_shape shape = shape_of(handle, call);
    return cublas_launch(handle, EMU_GEMM, call->name, precision, gemm_amount(&shape));
}

static cublas_status typed_gemm(void *handle, int type, gemm_call call) {
    const cublas_handle *found = cublas_find(handle);
    if (!found)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    call.a_type = call.b_type = call.c_type = call.scale_type = type;
    return launch_gemm(found, &call, cublas_typed_precision(found, type));
}

/* alpha and beta have the type of the accumulation: 2 bytes for 16F, 8 for 64F, else 4; complex ones twice that. */
static int scale_type_of(int compute_type, bool is_complex) {
    switch (compute_type) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
        return CUDA_R_16F;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
    case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT:
        return is_complex ? CUDA_C_64F : CUDA_R_64F;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
        return CUDA_R_32I;
    default:
        return is_complex ? CUDA_C_32F : CUDA_R_32F;
    }
}

/* Whether the device has what the types need: FP8 since 8.9. (BF16 before 8.0 runs without tensor cores.) */
static bool device_has(emu_precision precision) {
    const emu_device_info *device = emu_device(emu_current_device());
    if (!device || precision != EMU_FP8)
        return device != NULL;
    return device->capability_major * 10 + device->capability_minor >= 89;
}

static cublas_status untyped_gemm(void *handle, int compute_type, gemm_call call) {
    emu_precision precision;
    const cublas_handle *found = cublas_find(handle);
    if (!found)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!gemm_call_is_valid(&call))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (cublas_element_bytes(call.c_type) == 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!cublas_precision(call.a_type, call.b_type, compute_type, found->math_mode, &precision) || !device_has(precision))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    call.scale_type = scale_type_of(compute_type, cublas_type_is_complex(call.a_type));
    return launch_gemm(found, &call, precision);
}

#define GEMM_CALL(batch_count, kernel)                                                                                       \
    (gemm_call) {                                                                                                            \
        .transpose_a = transpose_a, .transpose_b = transpose_b, .m = m, .n = n, .k = k, .alpha = alpha, .beta = beta,        \
        .lda = lda, .ldb = ldb, .ldc = ldc, .batch = (batch_count), .name = (kernel)                                         \
    }

#define DEFINE_GEMM(name, type)                                                                                              \
    EMU_EXPORT cublas_status name(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const void *alpha,    \
        const void *a, int lda, const void *b, int ldb, const void *beta, void *c, int ldc) {                                \
        (void)a, (void)b, (void)c;                                                                                           \
        return typed_gemm(handle, type, GEMM_CALL(1, "gemm"));                                                               \
    }

#define DEFINE_GEMM_STRIDED(name, type)                                                                                      \
    EMU_EXPORT cublas_status name(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const void *alpha,    \
        const void *a, int lda, long long stride_a, const void *b, int ldb, long long stride_b, const void *beta, void *c,   \
        int ldc, long long stride_c, int batch) {                                                                            \
        (void)a, (void)b, (void)c, (void)stride_a, (void)stride_b, (void)stride_c;                                           \
        return typed_gemm(handle, type, GEMM_CALL(batch, "gemm_batched"));                                                   \
    }

#define DEFINE_GEMM_BATCHED(name, type)                                                                                      \
    EMU_EXPORT cublas_status name(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const void *alpha,    \
        const void *const *a, int lda, const void *const *b, int ldb, const void *beta, void *const *c, int ldc, int batch) { \
        (void)a, (void)b, (void)c;                                                                                           \
        return typed_gemm(handle, type, GEMM_CALL(batch, "gemm_batched"));                                                   \
    }

#define DEFINE_GEMMS(letter, type)                                                                                           \
    DEFINE_GEMM(cublas##letter##gemm_v2, type)                                                                               \
    DEFINE_GEMM_STRIDED(cublas##letter##gemmStridedBatched, type)                                                            \
    DEFINE_GEMM_BATCHED(cublas##letter##gemmBatched, type)

CUBLAS_TYPES(DEFINE_GEMMS)
DEFINE_GEMM(cublasHgemm, CUDA_R_16F)
DEFINE_GEMM_STRIDED(cublasHgemmStridedBatched, CUDA_R_16F)
DEFINE_GEMM_BATCHED(cublasHgemmBatched, CUDA_R_16F)
DEFINE_GEMM(cublasCgemm3m, CUDA_C_32F)
DEFINE_GEMM(cublasZgemm3m, CUDA_C_64F)
DEFINE_GEMM_STRIDED(cublasCgemm3mStridedBatched, CUDA_C_32F)

EMU_EXPORT cublas_status cublasGemmEx(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const void *alpha,
    const void *a, int a_type, int lda, const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
    int compute_type, int algorithm) {
    (void)a, (void)b, (void)c, (void)algorithm;
    gemm_call call = GEMM_CALL(1, "gemm");
    call.a_type = a_type;
    call.b_type = b_type;
    call.c_type = c_type;
    return untyped_gemm(handle, compute_type, call);
}

EMU_EXPORT cublas_status cublasGemmStridedBatchedEx(void *handle, int transpose_a, int transpose_b, int m, int n, int k,
    const void *alpha, const void *a, int a_type, int lda, long long stride_a, const void *b, int b_type, int ldb,
    long long stride_b, const void *beta, void *c, int c_type, int ldc, long long stride_c, int batch, int compute_type,
    int algorithm) {
    (void)a, (void)b, (void)c, (void)stride_a, (void)stride_b, (void)stride_c, (void)algorithm;
    gemm_call call = GEMM_CALL(batch, "gemm_batched");
    call.a_type = a_type;
    call.b_type = b_type;
    call.c_type = c_type;
    return untyped_gemm(handle, compute_type, call);
}

EMU_EXPORT cublas_status cublasGemmBatchedEx(void *handle, int transpose_a, int transpose_b, int m, int n, int k,
    const void *alpha, const void *const *a, int a_type, int lda, const void *const *b, int b_type, int ldb, const void *beta,
    void *const *c, int c_type, int ldc, int batch, int compute_type, int algorithm) {
    (void)a, (void)b, (void)c, (void)algorithm;
    gemm_call call = GEMM_CALL(batch, "gemm_batched");
    call.a_type = a_type;
    call.b_type = b_type;
    call.c_type = c_type;
    return untyped_gemm(handle, compute_type, call);
}

EMU_EXPORT cublas_status cublasSgemmEx(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const void *alpha,
    const void *a, int a_type, int lda, const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc) {
    (void)a, (void)b, (void)c;
    gemm_call call = GEMM_CALL(1, "gemm");
    call.a_type = a_type;
    call.b_type = b_type;
    call.c_type = c_type;
    return untyped_gemm(handle, CUBLAS_COMPUTE_32F, call);
}

/* ---- the rest of level 3 ---- */

/* `valid` holds what the function checks besides its handle. */
static cublas_status launch_level3(void *handle, int type, bool valid, const char *name, work_amount amount) {
    const cublas_handle *found = cublas_find(handle);
    if (!found)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!valid)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (amount.flops == 0)
        return CUBLAS_STATUS_SUCCESS; /* a size is zero */
    return cublas_launch(found, EMU_GEMM, name, cublas_typed_precision(found, type), amount);
}

/* C (m x n) = A B or B A; A is symmetric or Hermitian. */
static cublas_status symmetric_product(void *handle, int type, int side, int fill, int m, int n, const void *alpha, int lda,
    int ldb, const void *beta, int ldc) {
    int order = side == CUBLAS_SIDE_LEFT ? m : n;
    int vectors = side == CUBLAS_SIDE_LEFT ? n : m;
    bool valid = cublas_is_choice(side) && cublas_is_choice(fill) && m >= 0 && n >= 0 && alpha && beta
        && lda >= cublas_at_least_one(order) && ldb >= cublas_at_least_one(m) && ldc >= cublas_at_least_one(m);
    return launch_level3(handle, type, valid, "symm",
        symmetric_product_amount(order, vectors, cublas_element_bytes(type), cublas_type_is_complex(type)));
}

/* One triangle of C (n x n) from A, and B if there are two products, of depth k. */
static cublas_status rank_update(void *handle, int type, int products, int fill, int transpose, int n, int k,
    const void *alpha, int lda, int ldb, const void *beta, int ldc) {
    int rows = transpose == CUBLAS_OP_N ? n : k;
    bool valid = cublas_is_choice(fill) && cublas_is_operation(transpose) && n >= 0 && k >= 0 && alpha && beta
        && lda >= cublas_at_least_one(rows) && ldb >= cublas_at_least_one(rows) && ldc >= cublas_at_least_one(n);
    return launch_level3(handle, type, valid, products == 1 ? "syrk" : "syr2k",
        rank_update_amount(n, k, products, cublas_element_bytes(type), cublas_type_is_complex(type)));
}

/* B (m x n) multiplied by, or solved with, the triangle A. */
static cublas_status triangular(void *handle, int type, const char *name, int side, int fill, int transpose, int diagonal,
    int m, int n, const void *alpha, int lda, int ldb, int batch) {
    int order = side == CUBLAS_SIDE_LEFT ? m : n;
    int vectors = side == CUBLAS_SIDE_LEFT ? n : m;
    bool valid = cublas_is_choice(side) && cublas_is_choice(fill) && cublas_is_operation(transpose)
        && cublas_is_choice(diagonal) && m >= 0 && n >= 0 && batch >= 0 && alpha && lda >= cublas_at_least_one(order)
        && ldb >= cublas_at_least_one(m);
    return launch_level3(handle, type, valid, name,
        triangular_amount(order, vectors, batch, cublas_element_bytes(type), cublas_type_is_complex(type)));
}

#define DEFINE_SYMMETRIC_PRODUCT(name, type)                                                                                 \
    EMU_EXPORT cublas_status name(void *handle, int side, int fill, int m, int n, const void *alpha, const void *a, int lda, \
        const void *b, int ldb, const void *beta, void *c, int ldc) {                                                        \
        (void)a, (void)b, (void)c;                                                                                           \
        return symmetric_product(handle, type, side, fill, m, n, alpha, lda, ldb, beta, ldc);                                \
    }

#define DEFINE_RANK_UPDATE(name, type)                                                                                       \
    EMU_EXPORT cublas_status name(void *handle, int fill, int transpose, int n, int k, const void *alpha, const void *a,     \
        int lda, const void *beta, void *c, int ldc) {                                                                       \
        (void)a, (void)c;                                                                                                    \
        return rank_update(handle, type, 1, fill, transpose, n, k, alpha, lda, lda, beta, ldc);                              \
    }

#define DEFINE_RANK_2_UPDATE(name, type)                                                                                     \
    EMU_EXPORT cublas_status name(void *handle, int fill, int transpose, int n, int k, const void *alpha, const void *a,     \
        int lda, const void *b, int ldb, const void *beta, void *c, int ldc) {                                               \
        (void)a, (void)b, (void)c;                                                                                           \
        return rank_update(handle, type, 2, fill, transpose, n, k, alpha, lda, ldb, beta, ldc);                              \
    }

#define DEFINE_TRIANGULAR(letter, type)                                                                                      \
    EMU_EXPORT cublas_status cublas##letter##trmm_v2(void *handle, int side, int fill, int transpose, int diagonal, int m,   \
        int n, const void *alpha, const void *a, int lda, const void *b, int ldb, void *c, int ldc) {                        \
        (void)a, (void)b, (void)c;                                                                                           \
        int leading = ldb < ldc ? ldb : ldc;                                                                                 \
        return triangular(handle, type, "trmm", side, fill, transpose, diagonal, m, n, alpha, lda, leading, 1);              \
    }                                                                                                                        \
    EMU_EXPORT cublas_status cublas##letter##trsm_v2(void *handle, int side, int fill, int transpose, int diagonal, int m,   \
        int n, const void *alpha, const void *a, int lda, void *b, int ldb) {                                                \
        (void)a, (void)b;                                                                                                    \
        return triangular(handle, type, "trsm", side, fill, transpose, diagonal, m, n, alpha, lda, ldb, 1);                  \
    }                                                                                                                        \
    EMU_EXPORT cublas_status cublas##letter##trsmBatched(void *handle, int side, int fill, int transpose, int diagonal,      \
        int m, int n, const void *alpha, const void *const *a, int lda, void *const *b, int ldb, int batch) {                \
        (void)a, (void)b;                                                                                                    \
        return triangular(handle, type, "trsm_batched", side, fill, transpose, diagonal, m, n, alpha, lda, ldb, batch);      \
    }

#define DEFINE_LEVEL_3(letter, type)                                                                                         \
    DEFINE_SYMMETRIC_PRODUCT(cublas##letter##symm_v2, type)                                                                  \
    DEFINE_RANK_UPDATE(cublas##letter##syrk_v2, type)                                                                        \
    DEFINE_RANK_2_UPDATE(cublas##letter##syr2k_v2, type)                                                                     \
    DEFINE_TRIANGULAR(letter, type)

#define DEFINE_HERMITIAN_LEVEL_3(letter, type)                                                                               \
    DEFINE_SYMMETRIC_PRODUCT(cublas##letter##hemm_v2, type)                                                                  \
    DEFINE_RANK_UPDATE(cublas##letter##herk_v2, type)                                                                        \
    DEFINE_RANK_2_UPDATE(cublas##letter##her2k_v2, type)

CUBLAS_TYPES(DEFINE_LEVEL_3)
CUBLAS_COMPLEX_TYPES(DEFINE_HERMITIAN_LEVEL_3)
