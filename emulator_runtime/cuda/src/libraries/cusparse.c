/* libcusparse: handles, descriptions of sparse and dense matrices, and the products of a sparse matrix with dense ones.
 *
 * Nothing is computed. Products whose result is sparse aren't emulated: how many elements they have depends on values. */
#include "mathematics/objects.h"
#include "core.h"

#include <string.h>

typedef enum {
    CUSPARSE_SUCCESS = 0,
    CUSPARSE_NOT_INITIALIZED = 1,
    CUSPARSE_ALLOC_FAILED = 2,
    CUSPARSE_INVALID_VALUE = 3,
    CUSPARSE_EXECUTION_FAILED = 6,
    CUSPARSE_NOT_SUPPORTED = 10,
} cusparse_status;

enum { HANDLE = 1, SPARSE_MATRIX, DENSE_MATRIX, DENSE_VECTOR }; /* kinds of objects */
enum { NOT_TRANSPOSED = 0, OPERATIONS = 3 };

typedef struct {
    void *stream;
    int pointer_mode;
} sparse_handle;

/* Of a vector, `columns` is 1. `elements`: those that a sparse one stores, of each matrix of a batch. */
typedef struct {
    int64_t rows, columns, elements;
    int type;
    int batch;
    double index_bytes;
} matrix;

EMU_EXPORT const char *cusparseGetErrorString(int status) {
    static const char *const texts[] = {
        "success",
        "initialization error",
        "out of memory",
        "invalid value",
        "architecture mismatch",
        "mapping error",
        "kernel launch failure",
        "internal error",
        "matrix type not supported",
        "zero pivot",
        "not supported",
        "insufficient resources",
    };
    bool known = status >= 0 && (size_t)status < sizeof texts / sizeof texts[0];
    return known ? texts[status] : "unknown error";
}

/* ---- handles ---- */

EMU_EXPORT cusparse_status cusparseCreate(void **handle) {
    if (handle == NULL)
        return CUSPARSE_INVALID_VALUE;
    if (emu_start() != EMU_OK)
        return CUSPARSE_NOT_INITIALIZED;
    *handle = object_create(HANDLE, sizeof(sparse_handle));
    return *handle == NULL ? CUSPARSE_ALLOC_FAILED : CUSPARSE_SUCCESS;
}

EMU_EXPORT cusparse_status cusparseDestroy(void *handle) {
    return object_destroy(HANDLE, handle) ? CUSPARSE_SUCCESS : CUSPARSE_NOT_INITIALIZED;
}

EMU_EXPORT cusparse_status cusparseSetStream(void *handle, void *stream) {
    sparse_handle *changed = object_find(HANDLE, handle);
    if (changed == NULL)
        return CUSPARSE_NOT_INITIALIZED;
    changed->stream = stream;
    return CUSPARSE_SUCCESS;
}

EMU_EXPORT cusparse_status cusparseSetPointerMode(void *handle, int mode) {
    sparse_handle *changed = object_find(HANDLE, handle);
    if (changed == NULL)
        return CUSPARSE_NOT_INITIALIZED;
    if (mode < 0 || mode > 1)
        return CUSPARSE_INVALID_VALUE;
    changed->pointer_mode = mode;
    return CUSPARSE_SUCCESS;
}

/* ---- matrices ---- */

/* Bytes of an element, by cudaDataType; 0: a type that matrices don't have. */
static double element_bytes(int type) {
    switch (type) {
    case 2: /* half */
    case 14: /* bfloat16 */
        return 2;
    case 0: /* float */
    case 6: /* complex half */
    case 15: /* complex bfloat16 */
        return 4;
    case 1: /* double */
    case 4: /* complex float */
        return 8;
    case 5: /* complex double */
        return 16;
    case 3: /* int8 */
        return 1;
    default:
        return 0;
    }
}

static bool is_complex(int type) {
    return (type >= 4 && type <= 6) || type == 15;
}

/* cusparseIndexType_t: 16, 32 or 64 bits. */
static double index_bytes(int type) {
    return type >= 1 && type <= 3 ? 1 << type : 0;
}

static cusparse_status describe(int kind, void **description, matrix described) {
    if (description == NULL || described.rows < 0 || described.columns < 0 || described.elements < 0)
        return CUSPARSE_INVALID_VALUE;
    if (element_bytes(described.type) == 0)
        return CUSPARSE_NOT_SUPPORTED;
    matrix *created = object_create(kind, sizeof *created);
    if (created == NULL)
        return CUSPARSE_ALLOC_FAILED;
    *created = described;
    created->batch = 1;
    *description = created;
    return CUSPARSE_SUCCESS;
}

static cusparse_status forget(int kind, const void *description) {
    return object_destroy(kind, (void *)description) ? CUSPARSE_SUCCESS : CUSPARSE_INVALID_VALUE;
}

EMU_EXPORT cusparse_status cusparseCreateCsr(
    void **description, int64_t rows, int64_t columns, int64_t elements, void *row_offsets, void *column_indices, void *values,
    int offset_type, int index_type, int base, int type) {
    (void)row_offsets, (void)column_indices, (void)values, (void)base;
    if (index_bytes(offset_type) == 0 || index_bytes(index_type) == 0)
        return CUSPARSE_INVALID_VALUE;
    return describe(SPARSE_MATRIX, description, (matrix){rows, columns, elements, type, 1, index_bytes(index_type)});
}

EMU_EXPORT cusparse_status cusparseCreateCoo(
    void **description, int64_t rows, int64_t columns, int64_t elements, void *row_indices, void *column_indices, void *values,
    int index_type, int base, int type) {
    (void)row_indices, (void)column_indices, (void)values, (void)base;
    if (index_bytes(index_type) == 0)
        return CUSPARSE_INVALID_VALUE;
    return describe(SPARSE_MATRIX, description, (matrix){rows, columns, elements, type, 1, 2 * index_bytes(index_type)});
}

EMU_EXPORT cusparse_status cusparseDestroySpMat(const void *description) {
    return forget(SPARSE_MATRIX, description);
}

EMU_EXPORT cusparse_status cusparseCsrSetStridedBatch(void *description, int batch, int64_t offsets_stride, int64_t values_stride) {
    (void)offsets_stride, (void)values_stride;
    matrix *changed = object_find(SPARSE_MATRIX, description);
    if (changed == NULL || batch < 1)
        return CUSPARSE_INVALID_VALUE;
    changed->batch = batch;
    return CUSPARSE_SUCCESS;
}

EMU_EXPORT cusparse_status cusparseCsrSetPointers(void *description, void *row_offsets, void *column_indices, void *values) {
    (void)row_offsets, (void)column_indices, (void)values;
    return object_find(SPARSE_MATRIX, description) == NULL ? CUSPARSE_INVALID_VALUE : CUSPARSE_SUCCESS;
}

EMU_EXPORT cusparse_status cusparseSpMatGetSize(const void *description, int64_t *rows, int64_t *columns, int64_t *elements) {
    const matrix *asked = object_find(SPARSE_MATRIX, description);
    if (asked == NULL || rows == NULL || columns == NULL || elements == NULL)
        return CUSPARSE_INVALID_VALUE;
    *rows = asked->rows;
    *columns = asked->columns;
    *elements = asked->elements;
    return CUSPARSE_SUCCESS;
}

EMU_EXPORT cusparse_status cusparseCreateDnMat(
    void **description, int64_t rows, int64_t columns, int64_t leading, void *values, int type, int order) {
    (void)leading, (void)values, (void)order;
    return describe(DENSE_MATRIX, description, (matrix){rows, columns, 0, type, 1, 0});
}

EMU_EXPORT cusparse_status cusparseDestroyDnMat(const void *description) {
    return forget(DENSE_MATRIX, description);
}

EMU_EXPORT cusparse_status cusparseDnMatSetStridedBatch(void *description, int batch, int64_t stride) {
    (void)stride;
    matrix *changed = object_find(DENSE_MATRIX, description);
    if (changed == NULL || batch < 1)
        return CUSPARSE_INVALID_VALUE;
    changed->batch = batch;
    return CUSPARSE_SUCCESS;
}

EMU_EXPORT cusparse_status cusparseCreateDnVec(void **description, int64_t elements, void *values, int type) {
    (void)values;
    return describe(DENSE_VECTOR, description, (matrix){elements, 1, 0, type, 1, 0});
}

EMU_EXPORT cusparse_status cusparseDestroyDnVec(const void *description) {
    return forget(DENSE_VECTOR, description);
}

/* ---- products ---- */

/* C = A B, A sparse; `operation` is what is done to A. */
typedef struct {
    const char *name;
    const matrix *a, *b, *c;
    int operation;
} product;

static bool is_valid(const product *product) {
    if (product->a == NULL || product->b == NULL || product->c == NULL)
        return false;
    if (product->operation < 0 || product->operation >= OPERATIONS)
        return false;
    int64_t rows = product->operation == NOT_TRANSPOSED ? product->a->rows : product->a->columns;
    return product->c->rows == rows;
}

static cusparse_status multiply(const void *handle, const product *product) {
    const sparse_handle *found = object_find(HANDLE, handle);
    if (found == NULL)
        return CUSPARSE_NOT_INITIALIZED;
    if (!is_valid(product))
        return CUSPARSE_INVALID_VALUE;
    emu_stream *stream = emu_stream_of(found->stream);
    if (stream == NULL)
        return CUSPARSE_EXECUTION_FAILED;
    const matrix *a = product->a;
    double batch = product->c->batch, bytes = element_bytes(a->type);
    double columns = (double)product->c->columns;
    /* Each stored element of A meets a row of B; rows come from the cache only if B is small, so each meeting is a read. */
    emu_work work = {
        .kind = EMU_MEMORY_BOUND,
        .name = product->name,
        .precision = a->type == 1 || a->type == 5 ? EMU_FP64 : EMU_FP32,
        .flops = (is_complex(a->type) ? 8 : 2) * (double)a->elements * columns * batch,
        .bytes = batch * ((double)a->elements * (bytes + a->index_bytes + columns * bytes) + 2 * (double)product->c->rows * columns * bytes),
    };
    return emu_launch(stream, &work) == EMU_OK ? CUSPARSE_SUCCESS : CUSPARSE_EXECUTION_FAILED;
}

static cusparse_status no_area(const void *handle, const product *product, size_t *bytes) {
    if (object_find(HANDLE, handle) == NULL)
        return CUSPARSE_NOT_INITIALIZED;
    if (!is_valid(product) || bytes == NULL)
        return CUSPARSE_INVALID_VALUE;
    *bytes = 0;
    return CUSPARSE_SUCCESS;
}

static product matrix_product(int operation, const void *a, const void *b, const void *c) {
    return (product){
        "spmm", object_find(SPARSE_MATRIX, a), object_find(DENSE_MATRIX, b), object_find(DENSE_MATRIX, c), operation};
}

static product vector_product(int operation, const void *a, const void *x, const void *y) {
    return (product){
        "spmv", object_find(SPARSE_MATRIX, a), object_find(DENSE_VECTOR, x), object_find(DENSE_VECTOR, y), operation};
}

EMU_EXPORT cusparse_status cusparseSpMM_bufferSize(
    void *handle, int a_operation, int b_operation, const void *alpha, const void *a, const void *b, const void *beta, void *c,
    int type, int algorithm, size_t *bytes) {
    (void)b_operation, (void)alpha, (void)beta, (void)type, (void)algorithm;
    product asked = matrix_product(a_operation, a, b, c);
    return no_area(handle, &asked, bytes);
}

EMU_EXPORT cusparse_status cusparseSpMM(
    void *handle, int a_operation, int b_operation, const void *alpha, const void *a, const void *b, const void *beta, void *c,
    int type, int algorithm, void *area) {
    (void)b_operation, (void)alpha, (void)beta, (void)type, (void)algorithm, (void)area;
    product asked = matrix_product(a_operation, a, b, c);
    return multiply(handle, &asked);
}

EMU_EXPORT cusparse_status cusparseSpMV_bufferSize(
    void *handle, int operation, const void *alpha, const void *a, const void *x, const void *beta, void *y, int type,
    int algorithm, size_t *bytes) {
    (void)alpha, (void)beta, (void)type, (void)algorithm;
    product asked = vector_product(operation, a, x, y);
    return no_area(handle, &asked, bytes);
}

EMU_EXPORT cusparse_status cusparseSpMV(
    void *handle, int operation, const void *alpha, const void *a, const void *x, const void *beta, void *y, int type,
    int algorithm, void *area) {
    (void)alpha, (void)beta, (void)type, (void)algorithm, (void)area;
    product asked = vector_product(operation, a, x, y);
    return multiply(handle, &asked);
}
