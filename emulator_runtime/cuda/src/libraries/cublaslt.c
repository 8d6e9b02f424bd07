/* libcublasLt: matrix products described by descriptors.
 *
 * Descriptors, layouts and preferences are stores of attributes: each attribute has a size, which the program must name rightly,
 * and a value that is kept. What matters for the work (shapes, transposes, batch, types, epilogue) is read from them when a
 * product is issued.
 */
#include <string.h>

#include "mathematics/cublas_types.h"
#include "mathematics/objects.h"
#include "mathematics/work_formulas.h"

/* ---- attributes ---- */

enum { MAX_ATTRIBUTES = 48 };

/* A descriptor of any kind; the value of attribute i is at values[i]. */
typedef struct {
    uint64_t values[MAX_ATTRIBUTES];
} attributes;

/* Kinds of object. */
enum { LT_HANDLE = 1, LT_LAYOUT, LT_MATMUL, LT_PREFERENCE, LT_TRANSFORM };

enum { LAYOUT_TYPE, LAYOUT_ORDER, LAYOUT_ROWS, LAYOUT_COLUMNS, LAYOUT_LEADING, LAYOUT_BATCH, LAYOUT_STRIDE };
enum { ORDER_COLUMN = 0, ORDER_ROW = 1 };

enum {
    MATMUL_COMPUTE_TYPE = 0,
    MATMUL_SCALE_TYPE = 1,
    MATMUL_POINTER_MODE = 2,
    MATMUL_TRANSPOSE_A = 3,
    MATMUL_TRANSPOSE_B = 4,
    MATMUL_TRANSPOSE_C = 5,
    MATMUL_FILL_MODE = 6,
    MATMUL_EPILOGUE = 7,
    MATMUL_EPILOGUE_AUX_TYPE = 22,
    MATMUL_BIAS_TYPE = 26,
};

/* Size in bytes of each attribute; 0: there is no such attribute. */
static const unsigned char LAYOUT_SIZES[MAX_ATTRIBUTES] = {4, 4, 8, 8, 8, 4, 8, 8, 4};

static const unsigned char MATMUL_SIZES[MAX_ATTRIBUTES] = {
    4, 4, 4, 4, 4, 4, 4, 4, 8, 0, /*  0: types, modes, transposes, fill mode, epilogue, bias */
    8, 8, 8, 8, 8, 4, 0, 8, 8, 8, /* 10: bias stride, aux, alpha stride, SM target, scales of A, B, C */
    8, 8, 4, 8, 8, 1, 4, 4, 4, 8, /* 20: scale of D, amax, aux type and scales, fast accumulation, bias type, atomic sync */
    8, 4, 4, 4, 4, 4, 8, 4, 8, 8, /* 30: scale modes, output scale, emulation, alpha stride */
    8,                            /* 40: beta stride */
};

static const unsigned char PREFERENCE_SIZES[MAX_ATTRIBUTES] = {4, 8, 0, 4, 0, 4, 4, 4, 4, 4, 0, 0, 8};

static const unsigned char TRANSFORM_SIZES[MAX_ATTRIBUTES] = {4, 4, 4, 4};

static const unsigned char *sizes_of(int kind) {
    switch (kind) {
    case LT_LAYOUT:
        return LAYOUT_SIZES;
    case LT_MATMUL:
        return MATMUL_SIZES;
    case LT_PREFERENCE:
        return PREFERENCE_SIZES;
    default:
        return TRANSFORM_SIZES;
    }
}

static size_t size_of(int kind, int attribute) {
    return attribute >= 0 && attribute < MAX_ATTRIBUTES ? sizes_of(kind)[attribute] : 0;
}

static cublas_status set_attribute(int kind, void *object, int attribute, const void *value, size_t bytes) {
    attributes *found = object_find(kind, object);
    size_t size = size_of(kind, attribute);
    if (!found || !value || size == 0 || bytes != size)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&found->values[attribute], value, size);
    return CUBLAS_STATUS_SUCCESS;
}

/* With `bytes` 0 only the size is told. */
static cublas_status get_attribute(int kind, const void *object, int attribute, void *value, size_t bytes, size_t *written) {
    const attributes *found = object_find(kind, object);
    size_t size = size_of(kind, attribute);
    if (!found || size == 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes == 0 && !written)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes != 0 && (!value || bytes != size))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes != 0)
        memcpy(value, &found->values[attribute], size);
    if (written)
        *written = size;
    return CUBLAS_STATUS_SUCCESS;
}

static int32_t read_int(const attributes *object, int attribute) {
    int32_t value;
    memcpy(&value, &object->values[attribute], sizeof value);
    return value;
}

static void write_int(attributes *object, int attribute, int32_t value) {
    memcpy(&object->values[attribute], &value, sizeof value);
}

static cublas_status create(int kind, void **object) {
    if (!object)
        return CUBLAS_STATUS_INVALID_VALUE;
    *object = object_create(kind, sizeof(attributes));
    return *object ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

static cublas_status destroy(int kind, void *object) {
    return object_destroy(kind, object) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- library and handle ---- */

EMU_EXPORT size_t cublasLtGetVersion(void) {
    return CUBLAS_VERSION;
}

EMU_EXPORT size_t cublasLtGetCudartVersion(void) {
    return (size_t)emu_driver_version() / 1000 == CUDA_MAJOR ? (size_t)emu_driver_version() : CUDA_MAJOR * 1000;
}

EMU_EXPORT cublas_status cublasLtGetProperty(int property, int *value) {
    return cublas_version_property(property, value);
}

EMU_EXPORT const char *cublasLtGetStatusName(int status) {
    return cublas_status_name(status);
}

EMU_EXPORT const char *cublasLtGetStatusString(int status) {
    return cublas_status_name(status);
}

EMU_EXPORT cublas_status cublasLtCreate(void **handle) {
    if (emu_start() != EMU_OK)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    return create(LT_HANDLE, handle);
}

EMU_EXPORT cublas_status cublasLtDestroy(void *handle) {
    return object_destroy(LT_HANDLE, handle) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

/* A cuBLAS handle serves as a cuBLASLt handle too, and it belongs to another library: any handle but NULL will do, for none is
 * followed. */
static bool is_handle(const void *handle) {
    return handle != NULL;
}

/* ---- descriptors ---- */

EMU_EXPORT cublas_status cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    if (cublas_element_bytes(type) == 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    cublas_status status = create(LT_LAYOUT, layout);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    attributes *created = *layout;
    write_int(created, LAYOUT_TYPE, type);
    write_int(created, LAYOUT_BATCH, 1);
    created->values[LAYOUT_ROWS] = rows;
    created->values[LAYOUT_COLUMNS] = columns;
    created->values[LAYOUT_LEADING] = (uint64_t)leading;
    return CUBLAS_STATUS_SUCCESS;
}

EMU_EXPORT cublas_status cublasLtMatrixLayoutDestroy(void *layout) {
    return destroy(LT_LAYOUT, layout);
}

EMU_EXPORT cublas_status cublasLtMatrixLayoutSetAttribute(void *layout, int attribute, const void *value, size_t bytes) {
    return set_attribute(LT_LAYOUT, layout, attribute, value, bytes);
}

EMU_EXPORT cublas_status cublasLtMatrixLayoutGetAttribute(
    const void *layout, int attribute, void *value, size_t bytes, size_t *written) {
    return get_attribute(LT_LAYOUT, layout, attribute, value, bytes, written);
}

EMU_EXPORT cublas_status cublasLtMatmulDescCreate(void **matmul, int compute_type, int scale_type) {
    if (cublas_element_bytes(scale_type) == 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    cublas_status status = create(LT_MATMUL, matmul);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    attributes *created = *matmul;
    write_int(created, MATMUL_COMPUTE_TYPE, compute_type);
    write_int(created, MATMUL_SCALE_TYPE, scale_type);
    write_int(created, MATMUL_EPILOGUE, 1);
    write_int(created, MATMUL_EPILOGUE_AUX_TYPE, -1);
    write_int(created, MATMUL_BIAS_TYPE, -1);
    write_int(created, MATMUL_FILL_MODE, 2);
    return CUBLAS_STATUS_SUCCESS;
}

EMU_EXPORT cublas_status cublasLtMatmulDescDestroy(void *matmul) {
    return destroy(LT_MATMUL, matmul);
}

EMU_EXPORT cublas_status cublasLtMatmulDescSetAttribute(void *matmul, int attribute, const void *value, size_t bytes) {
    return set_attribute(LT_MATMUL, matmul, attribute, value, bytes);
}

EMU_EXPORT cublas_status cublasLtMatmulDescGetAttribute(
    const void *matmul, int attribute, void *value, size_t bytes, size_t *written) {
    return get_attribute(LT_MATMUL, matmul, attribute, value, bytes, written);
}

EMU_EXPORT cublas_status cublasLtMatmulPreferenceCreate(void **preference) {
    return create(LT_PREFERENCE, preference);
}

EMU_EXPORT cublas_status cublasLtMatmulPreferenceDestroy(void *preference) {
    return destroy(LT_PREFERENCE, preference);
}

EMU_EXPORT cublas_status cublasLtMatmulPreferenceSetAttribute(
    void *preference, int attribute, const void *value, size_t bytes) {
    return set_attribute(LT_PREFERENCE, preference, attribute, value, bytes);
}

EMU_EXPORT cublas_status cublasLtMatmulPreferenceGetAttribute(
    const void *preference, int attribute, void *value, size_t bytes, size_t *written) {
    return get_attribute(LT_PREFERENCE, preference, attribute, value, bytes, written);
}

/* ---- what a product is ---- */

typedef struct {
    int type;
    int order;
    uint64_t rows, columns;
    int32_t batch;
} matrix;

static matrix matrix_of(const attributes *layout, bool transposed) {
    uint64_t rows = layout->values[LAYOUT_ROWS];
    uint64_t columns = layout->values[LAYOUT_COLUMNS];
    matrix result = {
        .type = read_int(layout, LAYOUT_TYPE),
        .order = read_int(layout, LAYOUT_ORDER),
        .rows = transposed ? columns : rows,
        .columns = transposed ? rows : columns,
        .batch = read_int(layout, LAYOUT_BATCH),
    };
    return result;
}

/* A leading dimension shorter than what it steps over would make columns overlap. */
static bool layout_is_valid(const attributes *layout) {
    int order = read_int(layout, LAYOUT_ORDER);
    int64_t leading = (int64_t)layout->values[LAYOUT_LEADING];
    uint64_t length = layout->values[order == ORDER_ROW ? LAYOUT_COLUMNS : LAYOUT_ROWS];
    if (order != ORDER_ROW && order != ORDER_COLUMN)
        return true; /* tiled orders count tiles */
    return leading >= 0 && (uint64_t)leading >= length && read_int(layout, LAYOUT_BATCH) >= 0;
}

static bool device_has(emu_precision precision) {
    const emu_device_info *device = emu_device(emu_current_device());
    if (!device)
        return false;
    return precision != EMU_FP8 || device->capability_major * 10 + device->capability_minor >= 89;
}

/* FP8 tensor cores before Blackwell want A transposed and B not; all sizes are multiples of 16 elements. */
static bool fp8_shape_is_supported(const attributes *matmul, const gemm_shape *shape) {
    const emu_device_info *device = emu_device(emu_current_device());
    bool transposed = read_int(matmul, MATMUL_TRANSPOSE_A) != CUBLAS_OP_N && read_int(matmul, MATMUL_TRANSPOSE_B) == CUBLAS_OP_N;
    bool aligned = (int64_t)shape->m % 16 == 0 && (int64_t)shape->k % 16 == 0;
    return aligned && device && (transposed || device->capability_major >= 10);
}

typedef struct {
    gemm_shape shape;
    emu_precision precision;
} product;

/* Read the product from its descriptors. INVALID_VALUE: they contradict each other; NOT_SUPPORTED: no algorithm does this. */
static cublas_status describe(
    const attributes *matmul, const attributes *a, const attributes *b, const attributes *d, product *product) {
    if (!matmul || !a || !b || !d || !layout_is_valid(a) || !layout_is_valid(b) || !layout_is_valid(d))
        return CUBLAS_STATUS_INVALID_VALUE;
    int transpose_a = read_int(matmul, MATMUL_TRANSPOSE_A);
    int transpose_b = read_int(matmul, MATMUL_TRANSPOSE_B);
    matrix left = matrix_of(a, transpose_a != CUBLAS_OP_N);
    matrix right = matrix_of(b, transpose_b != CUBLAS_OP_N);
    matrix result = matrix_of(d, false);
    if (left.rows != result.rows || right.columns != result.columns || left.columns != right.rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((left.batch != 1 && left.batch != result.batch) || (right.batch != 1 && right.batch != result.batch))
        return CUBLAS_STATUS_INVALID_VALUE;
    int compute_type = read_int(matmul, MATMUL_COMPUTE_TYPE);
    if (!cublas_precision(left.type, right.type, compute_type, CUBLAS_DEFAULT_MATH, &product->precision))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    double d_bytes = cublas_element_bytes(result.type);
    product->shape = (gemm_shape){
        .m = (double)result.rows,
        .n = (double)result.columns,
        .k = (double)left.columns,
        .batch = result.batch,
        .a_bytes = cublas_element_bytes(left.type),
        .b_bytes = cublas_element_bytes(right.type),
        .d_bytes = d_bytes,
        .is_complex = cublas_type_is_complex(left.type),
    };
    if (!device_has(product->precision))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (product->precision == EMU_FP8 && !fp8_shape_is_supported(matmul, &product->shape))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- algorithms ---- */

/* cublasLtMatmulAlgo_t: 64 bytes that the program may copy. Here: a mark, and the configuration as it was set. */
typedef struct {
    uint32_t mark;
    uint32_t configuration[15]; /* by number of the attribute */
} algorithm;

enum { ALGORITHM_MARK = 0x656d7561 };

/* cublasLtMatmulHeuristicResult_t. */
typedef struct {
    algorithm algorithm;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
} heuristic_result;

_Static_assert(sizeof(algorithm) == 64, "as in the interface");
_Static_assert(sizeof(heuristic_result) == 96, "as in the interface");

/* ID, tile, split, reduction scheme, swizzle, custom option, stages: 4 bytes each; inner and cluster shape: 2. */
static const unsigned char CONFIGURATION_SIZES[] = {4, 4, 4, 4, 4, 4, 4, 2, 2};

static size_t configuration_size(int attribute) {
    bool known = attribute >= 0 && attribute < (int)sizeof CONFIGURATION_SIZES;
    return known ? CONFIGURATION_SIZES[attribute] : 0;
}

static heuristic_result the_result(void) {
    heuristic_result result = {.state = CUBLAS_STATUS_SUCCESS, .waves = 1};
    result.algorithm.mark = ALGORITHM_MARK;
    return result;
}

EMU_EXPORT cublas_status cublasLtMatmulAlgoGetHeuristic(void *handle, void *matmul, void *a, void *b, void *c, void *d,
    void *preference, int requested, heuristic_result *results, int *returned) {
    product product;
    if (!is_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!returned || !results || requested <= 0 || !object_find(LT_PREFERENCE, preference))
        return CUBLAS_STATUS_INVALID_VALUE;
    *returned = 0;
    if (c && !object_find(LT_LAYOUT, c))
        return CUBLAS_STATUS_INVALID_VALUE;
    cublas_status status = describe(object_find(LT_MATMUL, matmul), object_find(LT_LAYOUT, a), object_find(LT_LAYOUT, b),
        object_find(LT_LAYOUT, d), &product);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    results[0] = the_result();
    *returned = 1;
    return CUBLAS_STATUS_SUCCESS;
}

EMU_EXPORT cublas_status cublasLtMatmulAlgoGetIds(void *handle, int compute_type, int scale_type, int a_type, int b_type,
    int c_type, int d_type, int requested, int *identifiers, int *returned) {
    emu_precision precision;
    (void)scale_type, (void)c_type, (void)d_type;
    if (!is_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (requested <= 0 || !identifiers)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!cublas_precision(a_type, b_type, compute_type, CUBLAS_DEFAULT_MATH, &precision))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    identifiers[0] = 0;
    if (returned)
        *returned = 1;
    return CUBLAS_STATUS_SUCCESS;
}

EMU_EXPORT cublas_status cublasLtMatmulAlgoInit(void *handle, int compute_type, int scale_type, int a_type, int b_type,
    int c_type, int d_type, int identifier, algorithm *result) {
    emu_precision precision;
    (void)scale_type, (void)c_type, (void)d_type;
    if (!is_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!result || identifier < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!cublas_precision(a_type, b_type, compute_type, CUBLAS_DEFAULT_MATH, &precision))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *result = the_result().algorithm;
    result->configuration[0] = (uint32_t)identifier;
    return CUBLAS_STATUS_SUCCESS;
}

EMU_EXPORT cublas_status cublasLtMatmulAlgoCheck(
    void *handle, void *matmul, void *a, void *b, void *c, void *d, const algorithm *chosen, heuristic_result *result) {
    product product;
    (void)c;
    if (!is_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!chosen || !result || chosen->mark != ALGORITHM_MARK)
        return CUBLAS_STATUS_INVALID_VALUE;
    cublas_status status = describe(object_find(LT_MATMUL, matmul), object_find(LT_LAYOUT, a), object_find(LT_LAYOUT, b),
        object_find(LT_LAYOUT, d), &product);
    *result = the_result();
    result->algorithm = *chosen;
    result->state = status;
    return status;
}

EMU_EXPORT cublas_status cublasLtMatmulAlgoConfigSetAttribute(
    algorithm *chosen, int attribute, const void *value, size_t bytes) {
    size_t size = configuration_size(attribute);
    if (!chosen || !value || size == 0 || bytes != size)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&chosen->configuration[attribute], value, size);
    return CUBLAS_STATUS_SUCCESS;
}

EMU_EXPORT cublas_status cublasLtMatmulAlgoConfigGetAttribute(
    const algorithm *chosen, int attribute, void *value, size_t bytes, size_t *written) {
    size_t size = configuration_size(attribute);
    if (!chosen || size == 0 || (bytes == 0 && !written) || (bytes != 0 && (!value || bytes != size)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes != 0)
        memcpy(value, &chosen->configuration[attribute], size);
    if (written)
        *written = size;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ---- */

/* Whether C is read: not if beta, in host memory, is zero, as the descriptor's pointer mode says. */
static bool reads_c(const attributes *matmul, const void *beta) {
    if (!beta)
        return false;
    if (read_int(matmul, MATMUL_POINTER_MODE) != CUBLAS_POINTER_MODE_HOST)
        return true;
    return !cublas_host_scalar_is_zero(beta, read_int(matmul, MATMUL_SCALE_TYPE));
}

static cublas_status launch(const attributes *matmul, const product *product, void *stream_handle) {
    emu_stream *stream = emu_stream_of(stream_handle);
    bool plain = read_int(matmul, MATMUL_EPILOGUE) <= 1;
    work_amount amount = gemm_amount(&product->shape);
    emu_work work = {
        .kind = EMU_GEMM,
        .name = plain ? "matmul" : "matmul_epilogue",
        .precision = product->precision,
        .flops = amount.flops,
        .columns = amount.columns,
        .depth = amount.depth,
        .bytes = amount.bytes,
    };
    if (!stream)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    return cublas_status_of(emu_launch(stream, &work));
}

EMU_EXPORT cublas_status cublasLtMatmul(void *handle, void *matmul, const void *alpha, const void *a, void *a_layout,
    const void *b, void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
    const algorithm *chosen, void *workspace, size_t workspace_bytes, void *stream) {
    product product;
    const attributes *descriptor = object_find(LT_MATMUL, matmul);
    (void)a, (void)b, (void)d, (void)workspace, (void)workspace_bytes;
    if (!is_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || (c_layout && !object_find(LT_LAYOUT, c_layout)) || (chosen && chosen->mark != ALGORITHM_MARK))
        return CUBLAS_STATUS_INVALID_VALUE;
    cublas_status status = describe(descriptor, object_find(LT_LAYOUT, a_layout), object_find(LT_LAYOUT, b_layout),
        object_find(LT_LAYOUT, d_layout), &product);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (c && reads_c(descriptor, beta))
        product.shape.c_bytes = product.shape.d_bytes;
    if (product.shape.m == 0 || product.shape.n == 0 || product.shape.batch == 0)
        return CUBLAS_STATUS_SUCCESS;
    return launch(descriptor, &product, stream);
}

/* ---- transformations of layouts ---- */

EMU_EXPORT cublas_status cublasLtMatrixTransformDescCreate(void **transform, int scale_type) {
    if (cublas_element_bytes(scale_type) == 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    cublas_status status = create(LT_TRANSFORM, transform);
    if (status == CUBLAS_STATUS_SUCCESS)
        write_int(*transform, 0, scale_type);
    return status;
}

EMU_EXPORT cublas_status cublasLtMatrixTransformDescDestroy(void *transform) {
    return destroy(LT_TRANSFORM, transform);
}

EMU_EXPORT cublas_status cublasLtMatrixTransformDescSetAttribute(
    void *transform, int attribute, const void *value, size_t bytes) {
    return set_attribute(LT_TRANSFORM, transform, attribute, value, bytes);
}

static double layout_bytes(const attributes *layout) {
    if (!layout)
        return 0;
    matrix content = matrix_of(layout, false);
    return (double)content.rows * (double)content.columns * content.batch * cublas_element_bytes(content.type);
}

EMU_EXPORT cublas_status cublasLtMatrixTransform(void *handle, void *transform, const void *alpha, const void *a,
    void *a_layout, const void *beta, const void *b, void *b_layout, void *c, void *c_layout, void *stream_handle) {
    const attributes *from = object_find(LT_LAYOUT, a_layout);
    const attributes *to = object_find(LT_LAYOUT, c_layout);
    (void)a, (void)beta, (void)c;
    if (!is_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!object_find(LT_TRANSFORM, transform) || !alpha || !from || !to)
        return CUBLAS_STATUS_INVALID_VALUE;
    double added = b ? layout_bytes(object_find(LT_LAYOUT, b_layout)) : 0;
    emu_work work = {
        .kind = EMU_MEMORY_BOUND, .name = "matrix_transform", .bytes = layout_bytes(from) + added + layout_bytes(to)};
    emu_stream *stream = emu_stream_of(stream_handle);
    if (!stream)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    return cublas_status_of(emu_launch(stream, &work));
}
