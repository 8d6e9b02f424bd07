/* libcusolver, dense: Cholesky, LU, LDL^T and QR factorisations, their solutions, eigenvalues and singular values.
 *
 * Nothing is computed: a function checks its arguments, describes the work to the core, and sets the error number on the device
 * to 0, as for a problem that could be solved. The operation counts are the leading terms that LAPACK's documentation gives
 * (LAPACK Working Note 41; Golub and Van Loan, "Matrix Computations"). Real solvers of small problems wait for memory more
 * than they compute, so that times are lower bounds. */
#include "mathematics/objects.h"
#include "core.h"

#include <limits.h>

typedef enum {
    CUSOLVER_SUCCESS = 0,
    CUSOLVER_NOT_INITIALIZED = 1,
    CUSOLVER_ALLOC_FAILED = 2,
    CUSOLVER_INVALID_VALUE = 3,
    CUSOLVER_EXECUTION_FAILED = 6,
    CUSOLVER_NOT_SUPPORTED = 9,
} cusolver_status;

enum { HANDLE = 1, PARAMETERS, GESVDJ_SETTINGS, SYEVJ_SETTINGS }; /* kinds of objects */
enum { BLOCK = 64 }; /* columns that a factorisation treats at a time: its work area has as many */
enum { LEFT = 0, OPERATIONS = 3 };

typedef struct {
    void *stream;
} solver;

typedef struct {
    double bytes; /* of an element */
    bool is_complex;
    bool is_double;
} element;

static const element ELEMENT_S = {4, false, false}, ELEMENT_D = {8, false, true};
static const element ELEMENT_C = {8, true, false}, ELEMENT_Z = {16, true, true};

/* The numbers of cudaDataType that matrices can have. */
static bool read_type(int type, element *result) {
    static const struct {
        int type;
        const element *element;
    } known[] = {{0, &ELEMENT_S}, {1, &ELEMENT_D}, {4, &ELEMENT_C}, {5, &ELEMENT_Z}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].type == type) {
            *result = *known[i].element;
            return true;
        }
    }
    return false;
}

/* ---- objects ---- */

static cusolver_status create(int kind, size_t bytes, void **object) {
    if (object == NULL)
        return CUSOLVER_INVALID_VALUE;
    *object = object_create(kind, bytes);
    return *object == NULL ? CUSOLVER_ALLOC_FAILED : CUSOLVER_SUCCESS;
}

static cusolver_status destroy(int kind, void *object, cusolver_status unknown) {
    return object_destroy(kind, object) ? CUSOLVER_SUCCESS : unknown;
}

EMU_EXPORT cusolver_status cusolverDnCreate(void **handle) {
    if (emu_start() != EMU_OK)
        return CUSOLVER_NOT_INITIALIZED;
    return create(HANDLE, sizeof(solver), handle);
}

EMU_EXPORT cusolver_status cusolverDnDestroy(void *handle) {
    return destroy(HANDLE, handle, CUSOLVER_NOT_INITIALIZED);
}

EMU_EXPORT cusolver_status cusolverDnSetStream(void *handle, void *stream) {
    solver *found = object_find(HANDLE, handle);
    if (found == NULL)
        return CUSOLVER_NOT_INITIALIZED;
    found->stream = stream;
    return CUSOLVER_SUCCESS;
}

EMU_EXPORT cusolver_status cusolverDnCreateParams(void **parameters) {
    return create(PARAMETERS, 1, parameters);
}

EMU_EXPORT cusolver_status cusolverDnDestroyParams(void *parameters) {
    return destroy(PARAMETERS, parameters, CUSOLVER_INVALID_VALUE);
}

EMU_EXPORT cusolver_status cusolverDnCreateGesvdjInfo(void **settings) {
    return create(GESVDJ_SETTINGS, 1, settings);
}

EMU_EXPORT cusolver_status cusolverDnDestroyGesvdjInfo(void *settings) {
    return destroy(GESVDJ_SETTINGS, settings, CUSOLVER_INVALID_VALUE);
}

EMU_EXPORT cusolver_status cusolverDnCreateSyevjInfo(void **settings) {
    return create(SYEVJ_SETTINGS, 1, settings);
}

EMU_EXPORT cusolver_status cusolverDnDestroySyevjInfo(void *settings) {
    return destroy(SYEVJ_SETTINGS, settings, CUSOLVER_INVALID_VALUE);
}

/* How exact a result is, and in which order, has no effect on what is emulated. */
static cusolver_status accept(const void *settings) {
    return object_find(GESVDJ_SETTINGS, settings) == NULL ? CUSOLVER_INVALID_VALUE : CUSOLVER_SUCCESS;
}

EMU_EXPORT cusolver_status cusolverDnXgesvdjSetTolerance(void *settings, double tolerance) {
    (void)tolerance;
    return accept(settings);
}

EMU_EXPORT cusolver_status cusolverDnXgesvdjSetMaxSweeps(void *settings, int sweeps) {
    (void)sweeps;
    return accept(settings);
}

EMU_EXPORT cusolver_status cusolverDnXgesvdjSetSortEig(void *settings, int sorted) {
    (void)sorted;
    return accept(settings);
}

/* ---- problems ---- */

/* `batch` equal problems: their operations as real numbers, the elements that each reads and writes, their error numbers. */
typedef struct {
    const char *name;
    element element;
    double operations;
    double elements;
    int batch;
    int *infos;
} problem;

static cusolver_status solve(const void *handle, const problem *problem) {
    const solver *found = object_find(HANDLE, handle);
    if (found == NULL)
        return CUSOLVER_NOT_INITIALIZED;
    emu_stream *stream = emu_stream_of(found->stream);
    if (stream == NULL)
        return CUSOLVER_EXECUTION_FAILED;
    emu_work work = {
        .kind = EMU_GEMM,
        .name = problem->name,
        .precision = problem->element.is_double ? EMU_FP64 : EMU_FP32,
        .flops = problem->operations * (problem->element.is_complex ? 4 : 1) * problem->batch,
        .bytes = problem->elements * problem->element.bytes * problem->batch,
    };
    emu_memory_info memory;
    if (problem->infos != NULL && !emu_memory_find(problem->infos, &memory))
        return CUSOLVER_INVALID_VALUE;
    if (problem->batch > 0 && emu_launch(stream, &work) != EMU_OK)
        return CUSOLVER_EXECUTION_FAILED;
    if (problem->infos == NULL || problem->batch == 0)
        return CUSOLVER_SUCCESS;
    emu_status status = emu_set(stream, problem->infos, 0, sizeof *problem->infos, (size_t)problem->batch);
    return status == EMU_OK ? CUSOLVER_SUCCESS : CUSOLVER_EXECUTION_FAILED;
}

/* The size of a work area, in elements. */
static cusolver_status answer_size(const void *handle, bool valid, double elements, int *answer) {
    if (object_find(HANDLE, handle) == NULL)
        return CUSOLVER_NOT_INITIALIZED;
    if (!valid || answer == NULL || elements > INT_MAX)
        return CUSOLVER_INVALID_VALUE;
    *answer = elements < 1 ? 1 : (int)elements;
    return CUSOLVER_SUCCESS;
}

/* The same in bytes, on the device and on the host, for the functions with typed arguments. */
static cusolver_status answer_bytes(
    const void *handle, bool valid, double elements, const element *element, size_t *device_bytes, size_t *host_bytes) {
    if (object_find(HANDLE, handle) == NULL)
        return CUSOLVER_NOT_INITIALIZED;
    if (!valid || device_bytes == NULL || host_bytes == NULL || elements >= 0x1p56)
        return CUSOLVER_INVALID_VALUE;
    *device_bytes = (size_t)((elements < 1 ? 1 : elements) * element->bytes);
    *host_bytes = 0;
    return CUSOLVER_SUCCESS;
}

static bool is_leading(int64_t leading, int64_t rows) {
    return leading >= (rows > 1 ? rows : 1);
}

static bool is_square(int64_t order, int64_t leading) {
    return order >= 0 && is_leading(leading, order);
}

static bool is_matrix(int64_t rows, int64_t columns, int64_t leading) {
    return rows >= 0 && columns >= 0 && is_leading(leading, rows);
}

static double smaller(double one, double other) {
    return one < other ? one : other;
}

/* Operations and elements of each kind of problem. */

static problem cholesky(element type, double n, int *infos, int batch) {
    return (problem){"potrf", type, n * n * n / 3, 2 * n * n, batch, infos};
}

static problem solution(const char *name, element type, double n, double vectors, int *infos, int batch) {
    return (problem){name, type, 2 * n * n * vectors, n * n + 2 * n * vectors, batch, infos};
}

static problem lu(element type, double m, double n, int *infos) {
    double least = smaller(m, n);
    return (problem){"getrf", type, 2 * m * n * least - (m + n) * least * least + 2 * least * least * least / 3, 2 * m * n, 1, infos};
}

static problem ldl(element type, double n, int *infos) {
    return (problem){"sytrf", type, n * n * n / 3, 2 * n * n, 1, infos};
}

static problem qr(element type, double m, double n, int *infos) {
    double least = smaller(m, n);
    return (problem){"geqrf", type, 2 * least * (m * n - least * (m + n) / 2 + least * least / 3), 2 * m * n, 1, infos};
}

/* The first `n` columns of Q from `k` reflectors. */
static problem orthogonal(element type, double m, double n, double k, int *infos) {
    return (problem){"orgqr", type, 4 * m * n * k - 2 * (m + n) * k * k + 4 * k * k * k / 3, 2 * m * n, 1, infos};
}

/* Q times a matrix of m x n, Q of `k` reflectors. */
static problem orthogonal_product(element type, int side, double m, double n, double k, int *infos) {
    double order = side == LEFT ? m : n;
    return (problem){"ormqr", type, 2 * m * n / (order > 0 ? order : 1) * k * (2 * order - k), order * k + 2 * m * n, 1, infos};
}

static problem eigenvalues(const char *name, element type, double n, bool with_vectors, int *infos, int batch) {
    return (problem){name, type, (with_vectors ? 9 : 4.0 / 3) * n * n * n, 2 * n * n, batch, infos};
}

static problem singular_values(const char *name, element type, double m, double n, bool with_vectors, int *infos, int batch) {
    double least = smaller(m, n), most = m + n - least;
    double operations = (with_vectors ? 14 : 4) * most * least * least + (with_vectors ? 8 : 0) * least * least * least;
    return (problem){name, type, operations, 3 * m * n, batch, infos};
}

static double eigenvalue_area(double n) {
    return 3 * n * n + BLOCK * n;
}

static double singular_value_area(double m, double n) {
    double least = smaller(m, n);
    return 3 * least * least + BLOCK * (m + n);
}

/* ---- the functions for each of the four element types ---- */

/* In these the arguments that nothing is made of have no names, only types: matrices, pivots, scalar factors, work areas. */
#define UNUSED __attribute__((unused))

#define CHOLESKY(T) \
    EMU_EXPORT cusolver_status cusolverDn##T##potrf_bufferSize( \
        void *handle, UNUSED int fill, int n, UNUSED void *a, int lda, int *size) { \
        return answer_size(handle, is_square(n, lda), (double)BLOCK * n, size); \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##potrf( \
        void *handle, UNUSED int fill, int n, UNUSED void *a, int lda, UNUSED void *area, UNUSED int size, int *info) { \
        problem asked = cholesky(ELEMENT_##T, n, info, 1); \
        return is_square(n, lda) ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##potrfBatched( \
        void *handle, UNUSED int fill, int n, UNUSED void *a, int lda, int *infos, int batch) { \
        problem asked = cholesky(ELEMENT_##T, n, infos, batch); \
        return is_square(n, lda) && batch >= 0 ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##potrs( \
        void *handle, UNUSED int fill, int n, int vectors, UNUSED void *a, int lda, UNUSED void *b, int ldb, int *info) { \
        problem asked = solution("potrs", ELEMENT_##T, n, vectors, info, 1); \
        return is_square(n, lda) && is_matrix(n, vectors, ldb) ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
    } \
    /* One error number, for the arguments. */ \
    EMU_EXPORT cusolver_status cusolverDn##T##potrsBatched( \
        void *handle, UNUSED int fill, int n, int vectors, UNUSED void *a, int lda, UNUSED void *b, int ldb, int *info, int batch) { \
        problem asked = solution("potrs", ELEMENT_##T, n, vectors, NULL, batch); \
        bool valid = is_square(n, lda) && is_matrix(n, vectors, ldb) && batch >= 0; \
        problem answered = solution("potrs", ELEMENT_##T, 0, 0, info, 1); \
        cusolver_status status = valid ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
        return status == CUSOLVER_SUCCESS ? solve(handle, &answered) : status; \
    }

#define LU(T) \
    EMU_EXPORT cusolver_status cusolverDn##T##getrf_bufferSize( \
        void *handle, int m, int n, UNUSED void *a, int lda, int *size) { \
        return answer_size(handle, is_matrix(m, n, lda), (double)BLOCK * n, size); \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##getrf( \
        void *handle, int m, int n, UNUSED void *a, int lda, UNUSED void *area, UNUSED int *pivots, int *info) { \
        problem asked = lu(ELEMENT_##T, m, n, info); \
        return is_matrix(m, n, lda) ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##getrs( \
        void *handle, int operation, int n, int vectors, UNUSED void *a, int lda, UNUSED int *pivots, UNUSED void *b, int ldb, \
        int *info) { \
        problem asked = solution("getrs", ELEMENT_##T, n, vectors, info, 1); \
        bool valid = operation >= 0 && operation < OPERATIONS && is_square(n, lda) && is_matrix(n, vectors, ldb); \
        return valid ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
    }

#define LDL(T) \
    EMU_EXPORT cusolver_status cusolverDn##T##sytrf_bufferSize(void *handle, int n, UNUSED void *a, int lda, int *size) { \
        return answer_size(handle, is_square(n, lda), (double)BLOCK * n, size); \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##sytrf( \
        void *handle, UNUSED int fill, int n, UNUSED void *a, int lda, UNUSED int *pivots, UNUSED void *area, UNUSED int size, \
        int *info) { \
        problem asked = ldl(ELEMENT_##T, n, info); \
        return is_square(n, lda) ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
    }

/* `or` of real matrices is `un` of complex ones. */
#define QR(T, or) \
    EMU_EXPORT cusolver_status cusolverDn##T##geqrf_bufferSize( \
        void *handle, int m, int n, UNUSED void *a, int lda, int *size) { \
        return answer_size(handle, is_matrix(m, n, lda), (double)BLOCK * n, size); \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##geqrf( \
        void *handle, int m, int n, UNUSED void *a, int lda, UNUSED void *tau, UNUSED void *area, UNUSED int size, int *info) { \
        problem asked = qr(ELEMENT_##T, m, n, info); \
        return is_matrix(m, n, lda) ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##or##gqr_bufferSize( \
        void *handle, int m, int n, int k, UNUSED void *a, int lda, UNUSED void *tau, int *size) { \
        return answer_size(handle, is_matrix(m, n, lda) && k >= 0 && k <= n, (double)BLOCK * n, size); \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##or##gqr( \
        void *handle, int m, int n, int k, UNUSED void *a, int lda, UNUSED void *tau, UNUSED void *area, UNUSED int size, \
        int *info) { \
        problem asked = orthogonal(ELEMENT_##T, m, n, k, info); \
        return is_matrix(m, n, lda) && k >= 0 && k <= n ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##or##mqr_bufferSize( \
        void *handle, int side, UNUSED int operation, int m, int n, int k, UNUSED void *a, int lda, UNUSED void *tau, \
        UNUSED void *c, int ldc, int *size) { \
        bool valid = is_matrix(m, n, ldc) && is_matrix(side == LEFT ? m : n, k, lda); \
        return answer_size(handle, valid, (double)BLOCK * (side == LEFT ? n : m), size); \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##or##mqr( \
        void *handle, int side, UNUSED int operation, int m, int n, int k, UNUSED void *a, int lda, UNUSED void *tau, \
        UNUSED void *c, int ldc, UNUSED void *area, UNUSED int size, int *info) { \
        problem asked = orthogonal_product(ELEMENT_##T, side, m, n, k, info); \
        bool valid = is_matrix(m, n, ldc) && is_matrix(side == LEFT ? m : n, k, lda); \
        return valid ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
    }

/* `sy` of real matrices is `he` of complex ones. */
#define EIGENVALUES(T, sy) \
    EMU_EXPORT cusolver_status cusolverDn##T##sy##evd_bufferSize( \
        void *handle, UNUSED int vectors, UNUSED int fill, int n, UNUSED void *a, int lda, UNUSED void *w, int *size) { \
        return answer_size(handle, is_square(n, lda), eigenvalue_area(n), size); \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##sy##evd( \
        void *handle, int vectors, UNUSED int fill, int n, UNUSED void *a, int lda, UNUSED void *w, UNUSED void *area, \
        UNUSED int size, int *info) { \
        problem asked = eigenvalues("syevd", ELEMENT_##T, n, vectors != 0, info, 1); \
        return is_square(n, lda) ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##sy##evj_bufferSize( \
        void *handle, UNUSED int vectors, UNUSED int fill, int n, UNUSED void *a, int lda, UNUSED void *w, int *size, \
        void *settings) { \
        bool valid = is_square(n, lda) && object_find(SYEVJ_SETTINGS, settings) != NULL; \
        return answer_size(handle, valid, eigenvalue_area(n), size); \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##sy##evj( \
        void *handle, int vectors, UNUSED int fill, int n, UNUSED void *a, int lda, UNUSED void *w, UNUSED void *area, \
        UNUSED int size, int *info, void *settings) { \
        problem asked = eigenvalues("syevj", ELEMENT_##T, n, vectors != 0, info, 1); \
        bool valid = is_square(n, lda) && object_find(SYEVJ_SETTINGS, settings) != NULL; \
        return valid ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##sy##evjBatched_bufferSize( \
        void *handle, UNUSED int vectors, UNUSED int fill, int n, UNUSED void *a, int lda, UNUSED void *w, int *size, \
        void *settings, int batch) { \
        bool valid = is_square(n, lda) && object_find(SYEVJ_SETTINGS, settings) != NULL && batch >= 0; \
        return answer_size(handle, valid, eigenvalue_area(n), size); \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##sy##evjBatched( \
        void *handle, int vectors, UNUSED int fill, int n, UNUSED void *a, int lda, UNUSED void *w, UNUSED void *area, \
        UNUSED int size, int *infos, void *settings, int batch) { \
        problem asked = eigenvalues("syevj", ELEMENT_##T, n, vectors != 0, infos, batch); \
        bool valid = is_square(n, lda) && object_find(SYEVJ_SETTINGS, settings) != NULL && batch >= 0; \
        return valid ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
    }

#define SINGULAR_VALUES(T) \
    EMU_EXPORT cusolver_status cusolverDn##T##gesvd_bufferSize(void *handle, int m, int n, int *size) { \
        return answer_size(handle, m >= 0 && n >= 0, singular_value_area(m, n), size); \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##gesvd( \
        void *handle, signed char u_job, signed char v_job, int m, int n, UNUSED void *a, int lda, UNUSED void *s, \
        UNUSED void *u, UNUSED int ldu, UNUSED void *v, UNUSED int ldv, UNUSED void *area, UNUSED int size, \
        UNUSED void *real_area, int *info) { \
        problem asked = singular_values("gesvd", ELEMENT_##T, m, n, u_job != 'N' || v_job != 'N', info, 1); \
        return is_matrix(m, n, lda) ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##gesvdj_bufferSize( \
        void *handle, UNUSED int vectors, UNUSED int economic, int m, int n, UNUSED void *a, int lda, UNUSED void *s, \
        UNUSED void *u, UNUSED int ldu, UNUSED void *v, UNUSED int ldv, int *size, void *settings) { \
        bool valid = is_matrix(m, n, lda) && object_find(GESVDJ_SETTINGS, settings) != NULL; \
        return answer_size(handle, valid, singular_value_area(m, n), size); \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##gesvdj( \
        void *handle, int vectors, UNUSED int economic, int m, int n, UNUSED void *a, int lda, UNUSED void *s, UNUSED void *u, \
        UNUSED int ldu, UNUSED void *v, UNUSED int ldv, UNUSED void *area, UNUSED int size, int *info, void *settings) { \
        problem asked = singular_values("gesvdj", ELEMENT_##T, m, n, vectors != 0, info, 1); \
        bool valid = is_matrix(m, n, lda) && object_find(GESVDJ_SETTINGS, settings) != NULL; \
        return valid ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##gesvdjBatched_bufferSize( \
        void *handle, UNUSED int vectors, int m, int n, UNUSED void *a, int lda, UNUSED void *s, UNUSED void *u, \
        UNUSED int ldu, UNUSED void *v, UNUSED int ldv, int *size, void *settings, int batch) { \
        bool valid = is_matrix(m, n, lda) && object_find(GESVDJ_SETTINGS, settings) != NULL && batch >= 0; \
        return answer_size(handle, valid, singular_value_area(m, n), size); \
    } \
    EMU_EXPORT cusolver_status cusolverDn##T##gesvdjBatched( \
        void *handle, int vectors, int m, int n, UNUSED void *a, int lda, UNUSED void *s, UNUSED void *u, UNUSED int ldu, \
        UNUSED void *v, UNUSED int ldv, UNUSED void *area, UNUSED int size, int *infos, void *settings, int batch) { \
        problem asked = singular_values("gesvdj", ELEMENT_##T, m, n, vectors != 0, infos, batch); \
        bool valid = is_matrix(m, n, lda) && object_find(GESVDJ_SETTINGS, settings) != NULL && batch >= 0; \
        return valid ? solve(handle, &asked) : CUSOLVER_INVALID_VALUE; \
    }

CHOLESKY(S) CHOLESKY(D) CHOLESKY(C) CHOLESKY(Z)
LU(S) LU(D) LU(C) LU(Z)
LDL(S) LDL(D) LDL(C) LDL(Z)
QR(S, or) QR(D, or) QR(C, un) QR(Z, un)
EIGENVALUES(S, sy) EIGENVALUES(D, sy) EIGENVALUES(C, he) EIGENVALUES(Z, he)
SINGULAR_VALUES(S) SINGULAR_VALUES(D) SINGULAR_VALUES(C) SINGULAR_VALUES(Z)

/* ---- the functions whose arguments have types ---- */

EMU_EXPORT cusolver_status cusolverDnXpotrf_bufferSize(
    void *handle, UNUSED void *parameters, UNUSED int fill, int64_t n, int type, UNUSED const void *a, int64_t lda,
    UNUSED int compute_type, size_t *device_bytes, size_t *host_bytes) {
    element read = ELEMENT_S;
    bool valid = read_type(type, &read) && is_square(n, lda);
    return answer_bytes(handle, valid, (double)BLOCK * (double)n, &read, device_bytes, host_bytes);
}

EMU_EXPORT cusolver_status cusolverDnXpotrf(
    void *handle, UNUSED void *parameters, UNUSED int fill, int64_t n, int type, UNUSED void *a, int64_t lda,
    UNUSED int compute_type, UNUSED void *area, UNUSED size_t bytes, UNUSED void *host_area, UNUSED size_t host_bytes,
    int *info) {
    element read;
    if (!read_type(type, &read) || !is_square(n, lda))
        return CUSOLVER_INVALID_VALUE;
    problem asked = cholesky(read, (double)n, info, 1);
    return solve(handle, &asked);
}

EMU_EXPORT cusolver_status cusolverDnXpotrs(
    void *handle, UNUSED void *parameters, UNUSED int fill, int64_t n, int64_t vectors, int type, UNUSED const void *a,
    int64_t lda, UNUSED int b_type, UNUSED void *b, int64_t ldb, int *info) {
    element read;
    if (!read_type(type, &read) || !is_square(n, lda) || !is_matrix(n, vectors, ldb))
        return CUSOLVER_INVALID_VALUE;
    problem asked = solution("potrs", read, (double)n, (double)vectors, info, 1);
    return solve(handle, &asked);
}

EMU_EXPORT cusolver_status cusolverDnXgeqrf_bufferSize(
    void *handle, UNUSED void *parameters, int64_t m, int64_t n, int type, UNUSED const void *a, int64_t lda,
    UNUSED int tau_type, UNUSED const void *tau, UNUSED int compute_type, size_t *device_bytes, size_t *host_bytes) {
    element read = ELEMENT_S;
    bool valid = read_type(type, &read) && is_matrix(m, n, lda);
    return answer_bytes(handle, valid, (double)BLOCK * (double)n, &read, device_bytes, host_bytes);
}

EMU_EXPORT cusolver_status cusolverDnXgeqrf(
    void *handle, UNUSED void *parameters, int64_t m, int64_t n, int type, UNUSED void *a, int64_t lda, UNUSED int tau_type,
    UNUSED void *tau, UNUSED int compute_type, UNUSED void *area, UNUSED size_t bytes, UNUSED void *host_area,
    UNUSED size_t host_bytes, int *info) {
    element read;
    if (!read_type(type, &read) || !is_matrix(m, n, lda))
        return CUSOLVER_INVALID_VALUE;
    problem asked = qr(read, (double)m, (double)n, info);
    return solve(handle, &asked);
}

EMU_EXPORT cusolver_status cusolverDnXsyevd_bufferSize(
    void *handle, UNUSED void *parameters, UNUSED int vectors, UNUSED int fill, int64_t n, int type, UNUSED const void *a,
    int64_t lda, UNUSED int w_type, UNUSED const void *w, UNUSED int compute_type, size_t *device_bytes, size_t *host_bytes) {
    element read = ELEMENT_S;
    bool valid = read_type(type, &read) && is_square(n, lda);
    return answer_bytes(handle, valid, eigenvalue_area((double)n), &read, device_bytes, host_bytes);
}

EMU_EXPORT cusolver_status cusolverDnXsyevd(
    void *handle, UNUSED void *parameters, int vectors, UNUSED int fill, int64_t n, int type, UNUSED void *a, int64_t lda,
    UNUSED int w_type, UNUSED void *w, UNUSED int compute_type, UNUSED void *area, UNUSED size_t bytes, UNUSED void *host_area,
    UNUSED size_t host_bytes, int *info) {
    element read;
    if (!read_type(type, &read) || !is_square(n, lda))
        return CUSOLVER_INVALID_VALUE;
    problem asked = eigenvalues("syevd", read, (double)n, vectors != 0, info, 1);
    return solve(handle, &asked);
}

EMU_EXPORT cusolver_status cusolverDnXsyevBatched_bufferSize(
    void *handle, UNUSED void *parameters, UNUSED int vectors, UNUSED int fill, int64_t n, int type, UNUSED const void *a,
    int64_t lda, UNUSED int w_type, UNUSED const void *w, UNUSED int compute_type, size_t *device_bytes, size_t *host_bytes,
    int64_t batch) {
    element read = ELEMENT_S;
    bool valid = read_type(type, &read) && is_square(n, lda) && batch >= 0;
    return answer_bytes(handle, valid, eigenvalue_area((double)n), &read, device_bytes, host_bytes);
}

EMU_EXPORT cusolver_status cusolverDnXsyevBatched(
    void *handle, UNUSED void *parameters, int vectors, UNUSED int fill, int64_t n, int type, UNUSED void *a, int64_t lda,
    UNUSED int w_type, UNUSED void *w, UNUSED int compute_type, UNUSED void *area, UNUSED size_t bytes, UNUSED void *host_area,
    UNUSED size_t host_bytes, int *infos, int64_t batch) {
    element read;
    if (!read_type(type, &read) || !is_square(n, lda) || batch < 0 || batch > INT_MAX)
        return CUSOLVER_INVALID_VALUE;
    problem asked = eigenvalues("syev", read, (double)n, vectors != 0, infos, (int)batch);
    return solve(handle, &asked);
}

static problem general_eigenvalues(element type, double n, bool with_vectors, int *info) {
    return (problem){"geev", type, (with_vectors ? 25 : 10) * n * n * n, 2 * n * n, 1, info};
}

EMU_EXPORT cusolver_status cusolverDnXgeev_bufferSize(
    void *handle, UNUSED void *parameters, UNUSED int left, UNUSED int right, int64_t n, int type, UNUSED const void *a,
    int64_t lda, UNUSED int w_type, UNUSED const void *w, UNUSED int left_type, UNUSED const void *left_vectors,
    UNUSED int64_t ld_left, UNUSED int right_type, UNUSED const void *right_vectors, UNUSED int64_t ld_right,
    UNUSED int compute_type, size_t *device_bytes, size_t *host_bytes) {
    element read = ELEMENT_S;
    bool valid = read_type(type, &read) && is_square(n, lda);
    return answer_bytes(handle, valid, eigenvalue_area((double)n), &read, device_bytes, host_bytes);
}

EMU_EXPORT cusolver_status cusolverDnXgeev(
    void *handle, UNUSED void *parameters, int left, int right, int64_t n, int type, UNUSED void *a, int64_t lda,
    UNUSED int w_type, UNUSED void *w, UNUSED int left_type, UNUSED void *left_vectors, UNUSED int64_t ld_left,
    UNUSED int right_type, UNUSED void *right_vectors, UNUSED int64_t ld_right, UNUSED int compute_type, UNUSED void *area,
    UNUSED size_t bytes, UNUSED void *host_area, UNUSED size_t host_bytes, int *info) {
    element read;
    if (!read_type(type, &read) || !is_square(n, lda))
        return CUSOLVER_INVALID_VALUE;
    problem asked = general_eigenvalues(read, (double)n, left != 0 || right != 0, info);
    return solve(handle, &asked);
}
