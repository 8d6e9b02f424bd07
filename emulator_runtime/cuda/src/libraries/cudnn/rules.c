/* libcudnn: which attributes each type of backend descriptor has, which it needs, and whether they fit together. */
#include "backend.h"

enum { MOST_REQUIRED = 7, NONE = -1 };

/* Attributes first to last belong to descriptors of a type; the others are what must be set before it can be finalized. */
typedef struct {
    int first, last;
    int required[MOST_REQUIRED + 1]; /* up to a NONE */
} rule;

static const rule RULES[BACKEND_TYPES] = {
    [BACKEND_POINTWISE] = {0, 99, {ATTRIBUTE_POINTWISE_MODE, NONE}},
    [BACKEND_CONVOLUTION] = {100, 199, {100, 101, 102, 103, 104, 105, 106, NONE}},
    [BACKEND_ENGINE_HEURISTICS] = {200, 299, {ATTRIBUTE_HEURISTICS_MODE, ATTRIBUTE_HEURISTICS_GRAPH, NONE}},
    [BACKEND_ENGINE_CONFIGURATION] = {300, 399, {ATTRIBUTE_CONFIGURATION_ENGINE, NONE}},
    [BACKEND_EXECUTION_PLAN] = {400, 499, {ATTRIBUTE_PLAN_CONFIGURATION, NONE}},
    [BACKEND_INTERMEDIATE_INFO] = {500, 599, {NONE}},
    [BACKEND_KNOB_CHOICE] = {600, 699, {600, 601, NONE}},
    [BACKEND_CONVOLUTION_FORWARD] = {700, 705, {702, 703, 704, 705, NONE}},
    [BACKEND_CONVOLUTION_BACKWARD_DATA] = {706, 711, {708, 709, 710, 711, NONE}},
    [BACKEND_CONVOLUTION_BACKWARD_FILTER] = {712, 717, {714, 715, 716, 717, NONE}},
    [BACKEND_OPERATION_POINTWISE] = {750, 769, {ATTRIBUTE_OPERATION_POINTWISE_DESCRIPTOR, NONE}},
    [BACKEND_OPERATION_STATISTICS] = {770, 779, {772, NONE}},
    [BACKEND_BATCHNORM_FINALIZE] = {780, 799, {NONE}},
    [BACKEND_OPERATION_GRAPH] = {800, 899, {ATTRIBUTE_GRAPH_OPERATIONS, NONE}},
    [BACKEND_TENSOR] = {900, 999, {901, 902, 903, 906, NONE}},
    [BACKEND_VARIANT_PACK] = {1000, 1099, {NONE}},
    [BACKEND_LAYOUT_INFO] = {1100, 1199, {NONE}},
    [BACKEND_KNOB_INFO] = {1200, 1299, {NONE}},
    [BACKEND_ENGINE] = {1300, 1399, {ATTRIBUTE_ENGINE_GRAPH, ATTRIBUTE_ENGINE_INDEX, NONE}},
    [BACKEND_MATMUL] = {1500, 1519, {1500, NONE}},
    [BACKEND_OPERATION_MATMUL] = {1520, 1599, {1520, 1521, 1522, 1523, NONE}},
    [BACKEND_REDUCTION] = {1600, 1609, {1600, NONE}},
    [BACKEND_OPERATION_REDUCTION] = {1610, 1699, {1610, 1611, NONE}},
    [BACKEND_BATCHNORM_BACKWARD_WEIGHTS] = {1620, 1639, {1624, 1625, NONE}},
    [BACKEND_RESAMPLE] = {1700, 1709, {1700, NONE}},
    [BACKEND_RESAMPLE_FORWARD] = {1710, 1719, {1710, 1711, 1716, NONE}},
    [BACKEND_RESAMPLE_BACKWARD] = {1720, 1739, {1720, 1721, 1725, NONE}},
    [BACKEND_CONCATENATE] = {1800, 1899, {1800, 1801, 1803, NONE}},
    [BACKEND_SIGNAL] = {1900, 1949, {1900, 1901, NONE}},
    [BACKEND_PAGED_CACHE_LOAD] = {1950, 1999, {1950, 1951, NONE}},
    [BACKEND_NORM_FORWARD] = {2000, 2099, {2000, 2002, 2013, NONE}},
    [BACKEND_NORM_BACKWARD] = {2100, 2199, {2100, 2101, 2104, 2109, NONE}},
    [BACKEND_RESHAPE] = {2200, 2249, {2200, 2201, NONE}},
    [BACKEND_EXPAND_BAND_MATRIX] = {2250, 2269, {2250, 2251, NONE}},
    [BACKEND_CONTRACT_BAND_MATRIX] = {2270, 2299, {NONE}},
    [BACKEND_RANDOM] = {2300, 2309, {2300, NONE}},
    [BACKEND_OPERATION_RANDOM] = {2310, 2399, {2310, 2312, NONE}},
    [BACKEND_KERNEL_CACHE] = {2400, 2499, {NONE}},
    [BACKEND_BLOCK_SCALE_QUANTIZE] = {2500, 2599, {2500, 2501, NONE}},
    [BACKEND_BLOCK_SCALE_DEQUANTIZE] = {2600, 2699, {2600, 2602, NONE}},
    [BACKEND_DEVICE_PROPERTIES] = {2700, 2799, {NONE}},
    [BACKEND_ATTENTION_FORWARD] = {2800, 2850, {2800, 2801, 2802, 2803, NONE}},
    [BACKEND_ATTENTION_BACKWARD] = {2851, 2899, {2851, 2852, 2853, 2854, 2862, NONE}},
    [BACKEND_GROUPED_MATMUL] = {2900, 2949, {2902, 2903, 2905, NONE}},
    [BACKEND_GROUPED_MATMUL_BACKWARD] = {2950, 2999, {2952, 2953, 2955, NONE}},
    [BACKEND_DIAGONAL_BAND_MASK] = {3000, 3099, {3000, 3006, NONE}},
    [BACKEND_SOFTMAX] = {3100, 3199, {3100, 3101, NONE}},
    [BACKEND_TRANSPOSE] = {3200, 3299, {3200, 3201, NONE}},
    [BACKEND_SLICE] = {3300, 3399, {3300, 3301, NONE}},
    [BACKEND_ROPE_FORWARD] = {3400, 3409, {3400, 3401, NONE}},
    [BACKEND_ROPE_BACKWARD] = {3410, 3419, {3410, 3411, NONE}},
};

bool backend_may_have(int type, int name) {
    return type >= 0 && type < BACKEND_TYPES && name >= RULES[type].first && name <= RULES[type].last;
}

static cudnn_status missing(const backend *descriptor, int name) {
    return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "a descriptor of type %d needs attribute %d", descriptor->type, name);
}

static cudnn_status mismatch(const char *what) {
    return cudnn_fail(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "%s", what);
}

static cudnn_status check_tensor(const backend *descriptor) {
    const backend_attribute *sizes = backend_find_attribute(descriptor, ATTRIBUTE_TENSOR_SIZES);
    const backend_attribute *strides = backend_find_attribute(descriptor, ATTRIBUTE_TENSOR_STRIDES);
    if (sizes->type != TYPE_INT64 || strides->type != TYPE_INT64 || sizes->count != strides->count)
        return mismatch("a tensor has as many strides as sizes");
    backend_tensor tensor;
    if (sizes->count > 8)
        return cudnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "tensors of %lld dimensions", (long long)sizes->count);
    if (!backend_read_tensor(descriptor, &tensor) || cudnn_element_bytes(tensor.type) == 0)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "there is no data type %d", tensor.type);
    for (int i = 0; i < tensor.count; i++) {
        if (tensor.sizes[i] <= 0)
            return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "a tensor's sizes are positive");
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Attributes of a convolution by direction: descriptor, input, filter, output. */
static const int CONVOLUTION_PARTS[3][4] = {
    {ATTRIBUTE_FORWARD_CONVOLUTION, ATTRIBUTE_FORWARD_X, ATTRIBUTE_FORWARD_W, ATTRIBUTE_FORWARD_Y},
    {ATTRIBUTE_BACKWARD_FILTER_CONVOLUTION, ATTRIBUTE_BACKWARD_FILTER_X, ATTRIBUTE_BACKWARD_FILTER_DW,
        ATTRIBUTE_BACKWARD_FILTER_DY},
    {ATTRIBUTE_BACKWARD_DATA_CONVOLUTION, ATTRIBUTE_BACKWARD_DATA_DX, ATTRIBUTE_BACKWARD_DATA_W, ATTRIBUTE_BACKWARD_DATA_DY},
};

static bool output_fits(const backend *convolution, int dimension, double input, double filter, double output) {
    int64_t before = backend_number(convolution, ATTRIBUTE_CONVOLUTION_PRE_PADDINGS, dimension, 0);
    int64_t after = backend_number(convolution, ATTRIBUTE_CONVOLUTION_POST_PADDINGS, dimension, 0);
    int64_t stride = backend_number(convolution, ATTRIBUTE_CONVOLUTION_STRIDES, dimension, 1);
    int64_t dilation = backend_number(convolution, ATTRIBUTE_CONVOLUTION_DILATIONS, dimension, 1);
    return (double)convolution_output_size((int64_t)input, (int64_t)filter, before, after, stride, dilation) == output;
}

static cudnn_status check_convolution(const backend *operation) {
    const int *parts = CONVOLUTION_PARTS[operation->type - BACKEND_CONVOLUTION_FORWARD];
    const backend *convolution = backend_descriptor_at(operation, parts[0], 0);
    backend_tensor x, w, y;
    if (!convolution || convolution->type != BACKEND_CONVOLUTION
        || !backend_read_tensor(backend_descriptor_at(operation, parts[1], 0), &x)
        || !backend_read_tensor(backend_descriptor_at(operation, parts[2], 0), &w)
        || !backend_read_tensor(backend_descriptor_at(operation, parts[3], 0), &y))
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a convolution has a descriptor and three tensors");
    int spatial = (int)backend_number(convolution, ATTRIBUTE_CONVOLUTION_SPATIAL_DIMS, 0, 0);
    if (x.count != spatial + 2 || w.count != spatial + 2 || y.count != spatial + 2)
        return mismatch("tensors and convolution differ in their number of dimensions");
    if (x.sizes[0] != y.sizes[0] || y.sizes[1] != w.sizes[0])
        return mismatch("batch sizes or output channels differ");
    if ((int64_t)x.sizes[1] % (int64_t)w.sizes[1] != 0)
        return mismatch("the input's channels aren't a multiple of the filter's");
    for (int i = 0; i < spatial; i++) {
        if (!output_fits(convolution, i, x.sizes[2 + i], w.sizes[2 + i], y.sizes[2 + i]))
            return mismatch("the convolution's output has another size");
    }
    return CUDNN_STATUS_SUCCESS;
}

/* The last two dimensions of A, B and C are m x k, k x n and m x n. */
static cudnn_status check_matmul(const backend *operation) {
    backend_tensor a, b, c;
    if (!backend_read_tensor(backend_descriptor_at(operation, ATTRIBUTE_MATMUL_A, 0), &a)
        || !backend_read_tensor(backend_descriptor_at(operation, ATTRIBUTE_MATMUL_B, 0), &b)
        || !backend_read_tensor(backend_descriptor_at(operation, ATTRIBUTE_MATMUL_C, 0), &c))
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a matrix product has three tensors");
    if (a.count < 2 || b.count < 2 || c.count < 2)
        return mismatch("matrices have two dimensions");
    bool fits = a.sizes[a.count - 1] == b.sizes[b.count - 2] && a.sizes[a.count - 2] == c.sizes[c.count - 2]
        && b.sizes[b.count - 1] == c.sizes[c.count - 1];
    return fits ? CUDNN_STATUS_SUCCESS : mismatch("the matrices of a product don't fit");
}

static cudnn_status check_graph(const backend *graph) {
    const backend_attribute *operations = backend_find_attribute(graph, ATTRIBUTE_GRAPH_OPERATIONS);
    if (operations->type != TYPE_DESCRIPTOR)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "operations are descriptors");
    return CUDNN_STATUS_SUCCESS;
}

static cudnn_status check_engine(const backend *engine) {
    const backend *graph = backend_descriptor_at(engine, ATTRIBUTE_ENGINE_GRAPH, 0);
    int64_t index = backend_number(engine, ATTRIBUTE_ENGINE_INDEX, 0, -1);
    if (!graph || graph->type != BACKEND_OPERATION_GRAPH)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "an engine runs an operation graph");
    if (index < 0 || index >= backend_engine_count(graph))
        return cudnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "there is no engine %lld for this graph", (long long)index);
    return CUDNN_STATUS_SUCCESS;
}

static cudnn_status check_pack(const backend *pack) {
    const backend_attribute *identifiers = backend_find_attribute(pack, ATTRIBUTE_PACK_UNIQUE_IDS);
    const backend_attribute *pointers = backend_find_attribute(pack, ATTRIBUTE_PACK_POINTERS);
    if ((identifiers ? identifiers->count : 0) != (pointers ? pointers->count : 0))
        return mismatch("a variant pack has a pointer for each identifier");
    return CUDNN_STATUS_SUCCESS;
}

static cudnn_status check_type(const backend *descriptor) {
    switch (descriptor->type) {
    case BACKEND_TENSOR:
        return check_tensor(descriptor);
    case BACKEND_CONVOLUTION_FORWARD:
    case BACKEND_CONVOLUTION_BACKWARD_FILTER:
    case BACKEND_CONVOLUTION_BACKWARD_DATA:
        return check_convolution(descriptor);
    case BACKEND_OPERATION_MATMUL:
        return check_matmul(descriptor);
    case BACKEND_OPERATION_GRAPH:
        return check_graph(descriptor);
    case BACKEND_ENGINE:
        return check_engine(descriptor);
    case BACKEND_VARIANT_PACK:
        return check_pack(descriptor);
    default:
        return CUDNN_STATUS_SUCCESS;
    }
}

cudnn_status backend_check(const backend *descriptor) {
    const int *required = RULES[descriptor->type].required;
    for (int i = 0; required[i] != NONE; i++) {
        if (!backend_find_attribute(descriptor, required[i]))
            return missing(descriptor, required[i]);
    }
    return check_type(descriptor);
}
