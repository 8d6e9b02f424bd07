/* libcublas: factorisations of many small matrices. */
#include "handles.h"

typedef struct {
    const cublas_handle *handle;
    int type;
    double element_bytes;
    bool is_complex;
} problem;

static problem problem_of(void *handle, int type) {
    problem result = {cublas_find(handle), type, cublas_element_bytes(type), cublas_type_is_complex(type)};
    return result;
}

static cublas_status launch(const problem *problem, const char *name, work_amount amount) {
    if (amount.flops == 0)
        return CUBLAS_STATUS_SUCCESS;
    return cublas_launch(problem->handle, EMU_GEMM, name, cublas_typed_precision(problem->handle, problem->type), amount);
}

/* The host's `info`: 0, or the negative number of the argument that is wrong. */
static cublas_status reject(int *info, int argument) {
    *info = -argument;
    return CUBLAS_STATUS_INVALID_VALUE;
}

static cublas_status getrf(void *handle, int type, int n, int lda, int *device_infos, int batch) {
    problem lu = problem_of(handle, type);
    if (!lu.handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (n < 0 || batch < 0 || lda < cublas_at_least_one(n))
        return CUBLAS_STATUS_INVALID_VALUE;
    cublas_status status = launch(&lu, "getrf_batched", lu_amount(n, batch, lu.element_bytes, lu.is_complex));
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    return cublas_set_device_infos(lu.handle, device_infos, batch);
}

static cublas_status getrs(void *handle, int type, int transpose, int n, int vectors, int lda, int ldb, int *info, int batch) {
    problem solve = problem_of(handle, type);
    if (!solve.handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!info)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!cublas_is_operation(transpose))
        return reject(info, 1);
    if (n < 0)
        return reject(info, 2);
    if (vectors < 0)
        return reject(info, 3);
    if (lda < cublas_at_least_one(n))
        return reject(info, 5);
    if (ldb < cublas_at_least_one(n))
        return reject(info, 8);
    if (batch < 0)
        return reject(info, 10);
    *info = 0;
    work_amount amount = triangular_amount(n, vectors, 2.0 * batch, solve.element_bytes, solve.is_complex);
    return launch(&solve, "getrs_batched", amount);
}

static cublas_status geqrf(void *handle, int type, int m, int n, int lda, int *info, int batch) {
    problem qr = problem_of(handle, type);
    if (!qr.handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!info)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (m < 0)
        return reject(info, 1);
    if (n < 0)
        return reject(info, 2);
    if (lda < cublas_at_least_one(m))
        return reject(info, 4);
    if (batch < 0)
        return reject(info, 7);
    *info = 0;
    return launch(&qr, "geqrf_batched", qr_amount(m, n, batch, qr.element_bytes, qr.is_complex));
}

static cublas_status gels(void *handle, int type, int transpose, int m, int n, int vectors, int lda, int ldc, int *info,
    int *device_infos, int batch) {
    problem squares = problem_of(handle, type);
    if (!squares.handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!info)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (transpose != CUBLAS_OP_N)
        return CUBLAS_STATUS_NOT_SUPPORTED; /* as the interface says */
    if (m < 0)
        return reject(info, 2);
    if (n < 0)
        return reject(info, 3);
    if (vectors < 0)
        return reject(info, 4);
    if (lda < cublas_at_least_one(m))
        return reject(info, 6);
    if (ldc < cublas_at_least_one(m))
        return reject(info, 8);
    if (batch < 0)
        return reject(info, 11);
    if (m < n)
        return CUBLAS_STATUS_NOT_SUPPORTED; /* likewise: only overdetermined systems */
    *info = 0;
    work_amount amount = least_squares_amount(m, n, vectors, batch, squares.element_bytes, squares.is_complex);
    cublas_status status = launch(&squares, "gels_batched", amount);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    return cublas_set_device_infos(squares.handle, device_infos, batch);
}

#define DEFINE_BATCHED(letter, type)                                                                                         \
    EMU_EXPORT cublas_status cublas##letter##getrfBatched(                                                                   \
        void *handle, int n, void *const *a, int lda, int *pivots, int *device_infos, int batch) {                           \
        (void)a, (void)pivots;                                                                                               \
        return getrf(handle, type, n, lda, device_infos, batch);                                                             \
    }                                                                                                                        \
    EMU_EXPORT cublas_status cublas##letter##getrsBatched(void *handle, int transpose, int n, int vectors,                   \
        const void *const *a, int lda, const int *pivots, void *const *b, int ldb, int *info, int batch) {                   \
        (void)a, (void)b, (void)pivots;                                                                                      \
        return getrs(handle, type, transpose, n, vectors, lda, ldb, info, batch);                                            \
    }                                                                                                                        \
    EMU_EXPORT cublas_status cublas##letter##geqrfBatched(                                                                   \
        void *handle, int m, int n, void *const *a, int lda, void *const *tau, int *info, int batch) {                       \
        (void)a, (void)tau;                                                                                                  \
        return geqrf(handle, type, m, n, lda, info, batch);                                                                  \
    }                                                                                                                        \
    EMU_EXPORT cublas_status cublas##letter##gelsBatched(void *handle, int transpose, int m, int n, int vectors,             \
        void *const *a, int lda, void *const *c, int ldc, int *info, int *device_infos, int batch) {                         \
        (void)a, (void)c;                                                                                                    \
        return gels(handle, type, transpose, m, n, vectors, lda, ldc, info, device_infos, batch);                            \
    }

CUBLAS_TYPES(DEFINE_BATCHED)
