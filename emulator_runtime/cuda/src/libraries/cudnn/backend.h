/* The descriptors of cuDNN's interface with graphs of operations.
 *
 * A descriptor has a type and attributes: arrays of numbers, or of other descriptors, which it holds on to. It is filled,
 * finalized, and constant from then on. backend.c keeps the attributes, rules.c says which of them a type has and needs, and
 * execution.c what the graph of operations means for the device.
 */
#ifndef EMUGPU_CUDNN_BACKEND_H
#define EMUGPU_CUDNN_BACKEND_H

#include "library.h"

/* cudnnBackendDescriptorType_t. */
enum {
    BACKEND_POINTWISE = 0,
    BACKEND_CONVOLUTION = 1,
    BACKEND_ENGINE = 2,
    BACKEND_ENGINE_CONFIGURATION = 3,
    BACKEND_ENGINE_HEURISTICS = 4,
    BACKEND_EXECUTION_PLAN = 5,
    BACKEND_INTERMEDIATE_INFO = 6,
    BACKEND_KNOB_CHOICE = 7,
    BACKEND_KNOB_INFO = 8,
    BACKEND_LAYOUT_INFO = 9,
    BACKEND_CONVOLUTION_FORWARD = 10,
    BACKEND_CONVOLUTION_BACKWARD_FILTER = 11,
    BACKEND_CONVOLUTION_BACKWARD_DATA = 12,
    BACKEND_OPERATION_POINTWISE = 13,
    BACKEND_OPERATION_STATISTICS = 14,
    BACKEND_OPERATION_GRAPH = 15,
    BACKEND_VARIANT_PACK = 16,
    BACKEND_TENSOR = 17,
    BACKEND_MATMUL = 18,
    BACKEND_OPERATION_MATMUL = 19,
    BACKEND_BATCHNORM_FINALIZE = 20,
    BACKEND_REDUCTION = 21,
    BACKEND_OPERATION_REDUCTION = 22,
    BACKEND_BATCHNORM_BACKWARD_WEIGHTS = 23,
    BACKEND_RESAMPLE = 24,
    BACKEND_RESAMPLE_FORWARD = 25,
    BACKEND_RESAMPLE_BACKWARD = 26,
    BACKEND_CONCATENATE = 27,
    BACKEND_SIGNAL = 28,
    BACKEND_NORM_FORWARD = 29,
    BACKEND_NORM_BACKWARD = 30,
    BACKEND_RESHAPE = 31,
    BACKEND_RANDOM = 32,
    BACKEND_OPERATION_RANDOM = 33,
    BACKEND_KERNEL_CACHE = 34,
    BACKEND_PAGED_CACHE_LOAD = 35,
    BACKEND_BLOCK_SCALE_QUANTIZE = 36,
    BACKEND_BLOCK_SCALE_DEQUANTIZE = 37,
    BACKEND_DEVICE_PROPERTIES = 38,
    BACKEND_EXPAND_BAND_MATRIX = 39,
    BACKEND_CONTRACT_BAND_MATRIX = 40,
    BACKEND_ATTENTION_FORWARD = 41,
    BACKEND_GROUPED_MATMUL = 42,
    BACKEND_ATTENTION_BACKWARD = 43,
    BACKEND_DIAGONAL_BAND_MASK = 44,
    BACKEND_SOFTMAX = 45,
    BACKEND_TRANSPOSE = 46,
    BACKEND_SLICE = 47,
    BACKEND_GROUPED_MATMUL_BACKWARD = 48,
    BACKEND_ROPE_FORWARD = 49,
    BACKEND_ROPE_BACKWARD = 50,
    BACKEND_TYPES = 51,
};

/* cudnnBackendAttributeName_t, as far as values are read here. */
enum {
    ATTRIBUTE_POINTWISE_MODE = 0,
    ATTRIBUTE_CONVOLUTION_DILATIONS = 102,
    ATTRIBUTE_CONVOLUTION_STRIDES = 103,
    ATTRIBUTE_CONVOLUTION_POST_PADDINGS = 104,
    ATTRIBUTE_CONVOLUTION_PRE_PADDINGS = 105,
    ATTRIBUTE_CONVOLUTION_SPATIAL_DIMS = 106,
    ATTRIBUTE_HEURISTICS_MODE = 200,
    ATTRIBUTE_HEURISTICS_GRAPH = 201,
    ATTRIBUTE_HEURISTICS_RESULTS = 202,
    ATTRIBUTE_CONFIGURATION_ENGINE = 300,
    ATTRIBUTE_CONFIGURATION_WORKSPACE = 303,
    ATTRIBUTE_CONFIGURATION_SHARED_MEMORY = 304,
    ATTRIBUTE_PLAN_CONFIGURATION = 401,
    ATTRIBUTE_PLAN_WORKSPACE = 402,
    ATTRIBUTE_PLAN_JSON = 405,
    ATTRIBUTE_FORWARD_CONVOLUTION = 702,
    ATTRIBUTE_FORWARD_W = 703,
    ATTRIBUTE_FORWARD_X = 704,
    ATTRIBUTE_FORWARD_Y = 705,
    ATTRIBUTE_BACKWARD_DATA_CONVOLUTION = 708,
    ATTRIBUTE_BACKWARD_DATA_W = 709,
    ATTRIBUTE_BACKWARD_DATA_DX = 710,
    ATTRIBUTE_BACKWARD_DATA_DY = 711,
    ATTRIBUTE_BACKWARD_FILTER_CONVOLUTION = 714,
    ATTRIBUTE_BACKWARD_FILTER_DW = 715,
    ATTRIBUTE_BACKWARD_FILTER_X = 716,
    ATTRIBUTE_BACKWARD_FILTER_DY = 717,
    ATTRIBUTE_OPERATION_POINTWISE_DESCRIPTOR = 750,
    ATTRIBUTE_GRAPH_OPERATIONS = 801,
    ATTRIBUTE_GRAPH_ENGINE_COUNT = 802,
    ATTRIBUTE_TENSOR_TYPE = 901,
    ATTRIBUTE_TENSOR_SIZES = 902,
    ATTRIBUTE_TENSOR_STRIDES = 903,
    ATTRIBUTE_TENSOR_UNIQUE_ID = 906,
    ATTRIBUTE_TENSOR_IS_VIRTUAL = 907,
    ATTRIBUTE_TENSOR_IS_BY_VALUE = 908,
    ATTRIBUTE_PACK_UNIQUE_IDS = 1000,
    ATTRIBUTE_PACK_POINTERS = 1001,
    ATTRIBUTE_ENGINE_GRAPH = 1300,
    ATTRIBUTE_ENGINE_INDEX = 1301,
    ATTRIBUTE_ENGINE_NUMERICAL_NOTE = 1303,
    ATTRIBUTE_MATMUL_A = 1520,
    ATTRIBUTE_MATMUL_B = 1521,
    ATTRIBUTE_MATMUL_C = 1522,
    ATTRIBUTE_KERNEL_CACHE_JSON = 2402,
    ATTRIBUTE_DEVICE_JSON = 2702,
    ATTRIBUTE_ATTENTION_FORWARD_Q = 2800,
    ATTRIBUTE_ATTENTION_FORWARD_K = 2801,
    ATTRIBUTE_ATTENTION_FORWARD_V = 2802,
    ATTRIBUTE_ATTENTION_FORWARD_SUBGRAPH = 2811,
    ATTRIBUTE_ATTENTION_BACKWARD_Q = 2851,
    ATTRIBUTE_ATTENTION_BACKWARD_K = 2852,
    ATTRIBUTE_ATTENTION_BACKWARD_V = 2853,
    ATTRIBUTE_ATTENTION_BACKWARD_SUBGRAPH = 2867,
    ATTRIBUTE_GROUPED_MATMUL_TOKEN = 2902,
    ATTRIBUTE_GROUPED_MATMUL_OUTPUT = 2905,
    ATTRIBUTE_GROUPED_MATMUL_BACKWARD_TOKEN = 2952,
    ATTRIBUTE_GROUPED_MATMUL_BACKWARD_DOUTPUT = 2955,
};

/* cudnnBackendAttributeType_t, as far as it matters. */
enum { TYPE_INT64 = 3, TYPE_NUMERICAL_NOTE = 11, TYPE_DESCRIPTOR = 15, TYPE_INT32 = 23 };

/* cudnnBackendHeurMode_t, as far as it matters. */
enum { HEURISTICS_FALLBACK = 2 };

typedef struct {
    int name, type;
    int64_t count;
    void *values;
} backend_attribute;

typedef struct execution execution; /* what a plan will launch; execution.c */

typedef struct {
    int type;
    bool is_finalized;
    int references; /* the program's handle, and each attribute that names it */
    int attribute_count;
    backend_attribute *attributes;
    execution *execution; /* of a finalized plan */
} backend;

/* ---- backend.c ---- */

/* NULL: no attribute of this name, or none of at least one element. */
const backend_attribute *backend_find_attribute(const backend *descriptor, int name);
/* Element `index` of an array of descriptors; NULL: there is none. */
backend *backend_descriptor_at(const backend *descriptor, int name, int64_t index);
/* A number that was set as int64, int32, an enumeration or a boolean; `otherwise` if it wasn't. */
int64_t backend_number(const backend *descriptor, int name, int64_t index, int64_t otherwise);
/* Make an attribute; the elements are copied, descriptors are held. */
cudnn_status backend_set(backend *descriptor, int name, int type, int64_t count, const void *values);
/* A descriptor that no handle names, with one reference. */
backend *backend_create(int type);
void backend_release(backend *descriptor);

/* ---- rules.c ---- */

/* Whether a descriptor of this type has such an attribute. */
bool backend_may_have(int type, int name);
/* What is missing, or doesn't fit, before the descriptor can be finalized. */
cudnn_status backend_check(const backend *descriptor);

/* ---- execution.c ---- */

/* How many engines can run the graph: the first with tensor cores, if they serve; 0: it isn't supported. */
int backend_engine_count(const backend *graph);
bool backend_engine_uses_tensor_cores(const backend *engine);
/* Read the plan's graph; NULL with CUDNN_STATUS_SUCCESS never. */
cudnn_status execution_create(const backend *plan, execution **result);
void execution_destroy(execution *execution);

/* A tensor of a graph. */
typedef struct {
    int type;
    int count; /* dimensions */
    double sizes[8];
    double bytes; /* in memory: broadcast dimensions count once */
    int64_t unique_id;
    bool is_virtual;  /* only inside the graph */
    bool is_by_value; /* a number that the host gives */
} backend_tensor;

/* false: `descriptor` is no tensor. */
bool backend_read_tensor(const backend *descriptor, backend_tensor *tensor);

#endif
