/* libcublas: vectors (BLAS level 1) and products of a matrix with a vector (level 2). Their time goes by the bytes. */
#include "handles.h"

/* ---- level 1 ---- */

/* `passes` vectors of n elements are read or written; `multiply_adds` for each element. */
static work_amount vector_amount(int type, double n, double passes, double multiply_adds) {
    work_amount amount = {0};
    amount.flops = (cublas_type_is_complex(type) ? 8.0 : 2.0) * n * multiply_adds;
    amount.bytes = n * passes * cublas_element_bytes(type);
    return amount;
}

static cublas_status launch_memory_bound(void *handle, int type, const char *name, work_amount amount) {
    const cublas_handle *found = cublas_find(handle);
    if (!found)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (amount.bytes <= 0)
        return CUBLAS_STATUS_SUCCESS; /* BLAS: nothing is done for a size of zero or less */
    return cublas_launch(found, EMU_MEMORY_BOUND, name, cublas_typed_precision(found, type), amount);
}

/* A number that the host gets: zero, for nothing was computed. The stream is waited for, as the interface says. */
static cublas_status reduce_to_scalar(
    void *handle, int type, int result_type, const char *name, int n, double vectors, void *result) {
    static const char ZERO[16];
    const cublas_handle *found = cublas_find(handle);
    if (!found)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!result)
        return CUBLAS_STATUS_INVALID_VALUE;
    cublas_status status = launch_memory_bound(handle, type, name, vector_amount(type, n, vectors, 1));
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    return cublas_return_scalar(found, result, ZERO, (size_t)cublas_element_bytes(result_type));
}

/* Counts from 1; 0 says that there are no elements. */
static cublas_status index_of_extreme(void *handle, int type, int n, int *result) {
    const cublas_handle *found = cublas_find(handle);
    int index = n > 0 ? 1 : 0;
    if (!found)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!result)
        return CUBLAS_STATUS_INVALID_VALUE;
    cublas_status status = launch_memory_bound(handle, type, "iamax", vector_amount(type, n, 1, 1));
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    return cublas_return_scalar(found, result, &index, sizeof index);
}

#define DEFINE_ONE_VECTOR(name, type, kernel)                                                                                \
    EMU_EXPORT cublas_status name(void *handle, int n, const void *alpha, void *x, int x_distance) {                         \
        (void)x, (void)x_distance;                                                                                           \
        if (!cublas_find(handle))                                                                                            \
            return CUBLAS_STATUS_NOT_INITIALIZED;                                                                            \
        if (!alpha)                                                                                                          \
            return CUBLAS_STATUS_INVALID_VALUE;                                                                              \
        return launch_memory_bound(handle, type, kernel, vector_amount(type, n, 2, 0.5));                                    \
    }

#define DEFINE_ROTATION(name, type)                                                                                          \
    EMU_EXPORT cublas_status name(                                                                                           \
        void *handle, int n, void *x, int x_distance, void *y, int y_distance, const void *cosine, const void *sine) {       \
        (void)x, (void)y, (void)x_distance, (void)y_distance;                                                                \
        if (!cublas_find(handle))                                                                                            \
            return CUBLAS_STATUS_NOT_INITIALIZED;                                                                            \
        if (!cosine || !sine)                                                                                                \
            return CUBLAS_STATUS_INVALID_VALUE;                                                                              \
        return launch_memory_bound(handle, type, "rot", vector_amount(type, n, 4, 3));                                       \
    }

#define DEFINE_DOT(name, type)                                                                                               \
    EMU_EXPORT cublas_status name(                                                                                           \
        void *handle, int n, const void *x, int x_distance, const void *y, int y_distance, void *result) {                   \
        (void)x, (void)y, (void)x_distance, (void)y_distance;                                                                \
        return reduce_to_scalar(handle, type, type, "dot", n, 2, result);                                                    \
    }

#define DEFINE_REDUCTION(name, type, result_type, kernel)                                                                    \
    EMU_EXPORT cublas_status name(void *handle, int n, const void *x, int x_distance, void *result) {                        \
        (void)x, (void)x_distance;                                                                                           \
        return reduce_to_scalar(handle, type, result_type, kernel, n, 1, result);                                            \
    }

#define DEFINE_INDEX(name, type)                                                                                             \
    EMU_EXPORT cublas_status name(void *handle, int n, const void *x, int x_distance, int *result) {                         \
        (void)x, (void)x_distance;                                                                                           \
        return index_of_extreme(handle, type, n, result);                                                                    \
    }

#define DEFINE_LEVEL_1(letter, type)                                                                                         \
    EMU_EXPORT cublas_status cublas##letter##axpy_v2(                                                                        \
        void *handle, int n, const void *alpha, const void *x, int x_distance, void *y, int y_distance) {                    \
        (void)x, (void)y, (void)x_distance, (void)y_distance;                                                                \
        if (!cublas_find(handle))                                                                                            \
            return CUBLAS_STATUS_NOT_INITIALIZED;                                                                            \
        if (!alpha)                                                                                                          \
            return CUBLAS_STATUS_INVALID_VALUE;                                                                              \
        return launch_memory_bound(handle, type, "axpy", vector_amount(type, n, 3, 1));                                      \
    }                                                                                                                        \
    EMU_EXPORT cublas_status cublas##letter##copy_v2(                                                                        \
        void *handle, int n, const void *x, int x_distance, void *y, int y_distance) {                                       \
        (void)x, (void)y, (void)x_distance, (void)y_distance;                                                                \
        return launch_memory_bound(handle, type, "copy", vector_amount(type, n, 2, 0));                                      \
    }                                                                                                                        \
    EMU_EXPORT cublas_status cublas##letter##swap_v2(                                                                        \
        void *handle, int n, void *x, int x_distance, void *y, int y_distance) {                                             \
        (void)x, (void)y, (void)x_distance, (void)y_distance;                                                                \
        return launch_memory_bound(handle, type, "swap", vector_amount(type, n, 4, 0));                                      \
    }                                                                                                                        \
    DEFINE_ONE_VECTOR(cublas##letter##scal_v2, type, "scal")                                                                 \
    DEFINE_ROTATION(cublas##letter##rot_v2, type)

#define DEFINE_MODIFIED_ROTATION(letter, type)                                                                               \
    EMU_EXPORT cublas_status cublas##letter##rotm_v2(                                                                        \
        void *handle, int n, void *x, int x_distance, void *y, int y_distance, const void *parameters) {                     \
        (void)x, (void)y, (void)x_distance, (void)y_distance;                                                                \
        if (!cublas_find(handle))                                                                                            \
            return CUBLAS_STATUS_NOT_INITIALIZED;                                                                            \
        if (!parameters)                                                                                                     \
            return CUBLAS_STATUS_INVALID_VALUE;                                                                              \
        return launch_memory_bound(handle, type, "rotm", vector_amount(type, n, 4, 2));                                      \
    }

CUBLAS_TYPES(DEFINE_LEVEL_1)
CUBLAS_REAL_TYPES(DEFINE_MODIFIED_ROTATION)

/* Complex vectors with a real factor, or real rotations. */
DEFINE_ONE_VECTOR(cublasCsscal_v2, CUDA_C_32F, "scal")
DEFINE_ONE_VECTOR(cublasZdscal_v2, CUDA_C_64F, "scal")
DEFINE_ROTATION(cublasCsrot_v2, CUDA_C_32F)
DEFINE_ROTATION(cublasZdrot_v2, CUDA_C_64F)

DEFINE_DOT(cublasSdot_v2, CUDA_R_32F)
DEFINE_DOT(cublasDdot_v2, CUDA_R_64F)
DEFINE_DOT(cublasCdotu_v2, CUDA_C_32F)
DEFINE_DOT(cublasCdotc_v2, CUDA_C_32F)
DEFINE_DOT(cublasZdotu_v2, CUDA_C_64F)
DEFINE_DOT(cublasZdotc_v2, CUDA_C_64F)

DEFINE_REDUCTION(cublasSnrm2_v2, CUDA_R_32F, CUDA_R_32F, "nrm2")
DEFINE_REDUCTION(cublasDnrm2_v2, CUDA_R_64F, CUDA_R_64F, "nrm2")
DEFINE_REDUCTION(cublasScnrm2_v2, CUDA_C_32F, CUDA_R_32F, "nrm2")
DEFINE_REDUCTION(cublasDznrm2_v2, CUDA_C_64F, CUDA_R_64F, "nrm2")
DEFINE_REDUCTION(cublasSasum_v2, CUDA_R_32F, CUDA_R_32F, "asum")
DEFINE_REDUCTION(cublasDasum_v2, CUDA_R_64F, CUDA_R_64F, "asum")
DEFINE_REDUCTION(cublasScasum_v2, CUDA_C_32F, CUDA_R_32F, "asum")
DEFINE_REDUCTION(cublasDzasum_v2, CUDA_C_64F, CUDA_R_64F, "asum")

DEFINE_INDEX(cublasIsamax_v2, CUDA_R_32F)
DEFINE_INDEX(cublasIdamax_v2, CUDA_R_64F)
DEFINE_INDEX(cublasIcamax_v2, CUDA_C_32F)
DEFINE_INDEX(cublasIzamax_v2, CUDA_C_64F)
DEFINE_INDEX(cublasIsamin_v2, CUDA_R_32F)
DEFINE_INDEX(cublasIdamin_v2, CUDA_R_64F)
DEFINE_INDEX(cublasIcamin_v2, CUDA_C_32F)
DEFINE_INDEX(cublasIzamin_v2, CUDA_C_64F)

EMU_EXPORT cublas_status cublasDotEx(void *handle, int n, const void *x, int x_type, int x_distance, const void *y, int y_type,
    int y_distance, void *result, int result_type, int execution_type) {
    (void)x, (void)y, (void)x_distance, (void)y_distance, (void)execution_type;
    if (!cublas_find(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (x_type != y_type || cublas_element_bytes(x_type) < 2 || cublas_element_bytes(result_type) < 2)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return reduce_to_scalar(handle, x_type, result_type, "dot", n, 2, result);
}

/* ---- level 2 ---- */

/* A matrix of which `elements` count, used for `multiply_adds` each, with vectors of `vector_elements` in all. */
static cublas_status matrix_vector(
    void *handle, int type, bool valid, const char *name, double elements, double multiply_adds, double vector_elements) {
    if (!cublas_find(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!valid)
        return CUBLAS_STATUS_INVALID_VALUE;
    work_amount amount = {0};
    amount.flops = (cublas_type_is_complex(type) ? 8.0 : 2.0) * elements * multiply_adds;
    amount.bytes = elements > 0 ? (elements + vector_elements) * cublas_element_bytes(type) : 0;
    return launch_memory_bound(handle, type, name, amount);
}

static double triangle(double order) {
    return order * (order + 1) / 2;
}

static bool square_is_valid(int fill, int n, int lda) {
    return cublas_is_choice(fill) && n >= 0 && lda >= cublas_at_least_one(n);
}

#define DEFINE_GENERAL_UPDATE(name, type)                                                                                    \
    EMU_EXPORT cublas_status name(void *handle, int m, int n, const void *alpha, const void *x, int x_distance,              \
        const void *y, int y_distance, void *a, int lda) {                                                                   \
        (void)x, (void)y, (void)a;                                                                                           \
        bool valid = m >= 0 && n >= 0 && alpha && x_distance && y_distance && lda >= cublas_at_least_one(m);                 \
        return matrix_vector(handle, type, valid, "ger", 2.0 * m * n, 0.5, (double)m + n);                                   \
    }

#define DEFINE_SYMMETRIC_TIMES_VECTOR(name, type)                                                                            \
    EMU_EXPORT cublas_status name(void *handle, int fill, int n, const void *alpha, const void *a, int lda, const void *x,   \
        int x_distance, const void *beta, void *y, int y_distance) {                                                         \
        (void)a, (void)x, (void)y;                                                                                           \
        bool valid = square_is_valid(fill, n, lda) && alpha && beta && x_distance && y_distance;                             \
        return matrix_vector(handle, type, valid, "symv", triangle(n), 2, 3.0 * n);                                          \
    }

#define DEFINE_SYMMETRIC_UPDATE(name, type)                                                                                  \
    EMU_EXPORT cublas_status name(                                                                                           \
        void *handle, int fill, int n, const void *alpha, const void *x, int x_distance, void *a, int lda) {                 \
        (void)a, (void)x;                                                                                                    \
        bool valid = square_is_valid(fill, n, lda) && alpha && x_distance;                                                   \
        return matrix_vector(handle, type, valid, "syr", 2 * triangle(n), 0.5, n);                                           \
    }

#define DEFINE_SYMMETRIC_2_UPDATE(name, type)                                                                                \
    EMU_EXPORT cublas_status name(void *handle, int fill, int n, const void *alpha, const void *x, int x_distance,           \
        const void *y, int y_distance, void *a, int lda) {                                                                   \
        (void)a, (void)x, (void)y;                                                                                           \
        bool valid = square_is_valid(fill, n, lda) && alpha && x_distance && y_distance;                                     \
        return matrix_vector(handle, type, valid, "syr2", 2 * triangle(n), 1, 2.0 * n);                                      \
    }

#define DEFINE_TRIANGULAR_VECTOR(name, type, kernel)                                                                         \
    EMU_EXPORT cublas_status name(                                                                                           \
        void *handle, int fill, int transpose, int diagonal, int n, const void *a, int lda, void *x, int x_distance) {       \
        (void)a, (void)x;                                                                                                    \
        bool valid = square_is_valid(fill, n, lda) && cublas_is_operation(transpose) && cublas_is_choice(diagonal)           \
            && x_distance;                                                                                                   \
        return matrix_vector(handle, type, valid, kernel, triangle(n), 1, 2.0 * n);                                          \
    }

#define DEFINE_LEVEL_2(letter, type)                                                                                         \
    EMU_EXPORT cublas_status cublas##letter##gemv_v2(void *handle, int transpose, int m, int n, const void *alpha,           \
        const void *a, int lda, const void *x, int x_distance, const void *beta, void *y, int y_distance) {                  \
        (void)a, (void)x, (void)y;                                                                                           \
        bool valid = cublas_is_operation(transpose) && m >= 0 && n >= 0 && alpha && beta && x_distance && y_distance         \
            && lda >= cublas_at_least_one(m);                                                                                \
        return matrix_vector(handle, type, valid, "gemv", (double)m * n, 1, (double)m + n);                                  \
    }                                                                                                                        \
    DEFINE_SYMMETRIC_TIMES_VECTOR(cublas##letter##symv_v2, type)                                                             \
    DEFINE_SYMMETRIC_UPDATE(cublas##letter##syr_v2, type)                                                                    \
    DEFINE_SYMMETRIC_2_UPDATE(cublas##letter##syr2_v2, type)                                                                 \
    DEFINE_TRIANGULAR_VECTOR(cublas##letter##trmv_v2, type, "trmv")                                                          \
    DEFINE_TRIANGULAR_VECTOR(cublas##letter##trsv_v2, type, "trsv")

#define DEFINE_REAL_LEVEL_2(letter, type) DEFINE_GENERAL_UPDATE(cublas##letter##ger_v2, type)

#define DEFINE_COMPLEX_LEVEL_2(letter, type)                                                                                 \
    DEFINE_GENERAL_UPDATE(cublas##letter##geru_v2, type)                                                                     \
    DEFINE_GENERAL_UPDATE(cublas##letter##gerc_v2, type)                                                                     \
    DEFINE_SYMMETRIC_TIMES_VECTOR(cublas##letter##hemv_v2, type)                                                             \
    DEFINE_SYMMETRIC_UPDATE(cublas##letter##her_v2, type)                                                                    \
    DEFINE_SYMMETRIC_2_UPDATE(cublas##letter##her2_v2, type)

CUBLAS_TYPES(DEFINE_LEVEL_2)
CUBLAS_REAL_TYPES(DEFINE_REAL_LEVEL_2)
CUBLAS_COMPLEX_TYPES(DEFINE_COMPLEX_LEVEL_2)
