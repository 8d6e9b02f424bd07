/* libcudnn: what a graph of operations means for the device.
 *
 * A graph is one fused kernel. Its operations are the sum of its convolutions', products' and attentions'; its bytes are those of
 * the tensors that it shares with the outside, each once. Attention comes as one operation, or spelled out: two products (five
 * backward) with a softmax between them; a comparison "query not before key" among the operations makes it causal.
 */
#include <stdlib.h>

#include "backend.h"
#include "mathematics/objects.h"

enum { MOST_TENSORS = 64 };
enum { POINTWISE_NOT_BEFORE = 303 }; /* CUDNN_POINTWISE_CMP_GE */

/* What is gathered while the graph is walked. */
typedef struct {
    int convolutions, products, attentions, grouped_products;
    bool backward;      /* attention, or a convolution, of the backward pass */
    bool backward_data; /* a convolution's, not its filter's */
    bool causal;
    int multiplied_type; /* data type of the first multiplication's first tensor; -1: none */
    double flops;
    double columns, depth; /* of the last matrix product */
    double bytes;
    bool supported;
    int tensors;
    int64_t identifiers[MOST_TENSORS]; /* of tensors that were counted */
} summary;

struct execution {
    emu_work_kind kind;
    const char *name;
    emu_precision precision;
    work_amount amount;
    int pointer_count;
    int64_t pointers[MOST_TENSORS]; /* unique ids of the tensors that must be in the variant pack */
};

bool backend_read_tensor(const backend *descriptor, backend_tensor *tensor) {
    const backend_attribute *sizes = backend_find_attribute(descriptor, ATTRIBUTE_TENSOR_SIZES);
    if (!descriptor || descriptor->type != BACKEND_TENSOR || !sizes)
        return false;
    tensor->type = (int)backend_number(descriptor, ATTRIBUTE_TENSOR_TYPE, 0, -1);
    tensor->unique_id = backend_number(descriptor, ATTRIBUTE_TENSOR_UNIQUE_ID, 0, 0);
    tensor->is_virtual = backend_number(descriptor, ATTRIBUTE_TENSOR_IS_VIRTUAL, 0, 0) != 0;
    tensor->is_by_value = backend_number(descriptor, ATTRIBUTE_TENSOR_IS_BY_VALUE, 0, 0) != 0;
    tensor->count = sizes->count < 8 ? (int)sizes->count : 8;
    tensor->bytes = cudnn_element_bytes(tensor->type);
    for (int i = 0; i < tensor->count; i++) {
        tensor->sizes[i] = (double)backend_number(descriptor, ATTRIBUTE_TENSOR_SIZES, i, 1);
        bool repeated = backend_number(descriptor, ATTRIBUTE_TENSOR_STRIDES, i, 1) == 0;
        tensor->bytes *= repeated ? 1 : tensor->sizes[i];
    }
    return true;
}

static bool read_at(const backend *operation, int name, backend_tensor *tensor) {
    return backend_read_tensor(backend_descriptor_at(operation, name, 0), tensor);
}

static void note_multiplied(summary *summary, const backend_tensor *tensor) {
    if (summary->multiplied_type < 0 && !tensor->is_virtual)
        summary->multiplied_type = tensor->type;
}

static bool was_counted(const summary *summary, int64_t identifier) {
    for (int i = 0; i < summary->tensors; i++) {
        if (summary->identifiers[i] == identifier)
            return true;
    }
    return false;
}

static void count_tensor(summary *summary, const backend_tensor *tensor) {
    if (!cudnn_device_supports(tensor->type))
        summary->supported = false;
    if (tensor->is_virtual || tensor->is_by_value || was_counted(summary, tensor->unique_id))
        return;
    if (summary->tensors == MOST_TENSORS) {
        summary->supported = false;
        return;
    }
    summary->identifiers[summary->tensors++] = tensor->unique_id;
    summary->bytes += tensor->bytes;
}

static void count_tensors(summary *summary, const backend *operation) {
    for (int i = 0; i < operation->attribute_count; i++) {
        const backend_attribute *attribute = &operation->attributes[i];
        backend_tensor tensor;
        for (int64_t j = 0; attribute->type == TYPE_DESCRIPTOR && j < attribute->count; j++) {
            if (backend_read_tensor(((backend *const *)attribute->values)[j], &tensor))
                count_tensor(summary, &tensor);
        }
    }
}

/* Bytes are counted by the tensors that the whole graph reads and writes. */
static void add_amount(summary *summary, work_amount amount) {
    summary->flops += amount.flops;
    summary->columns = amount.columns;
    summary->depth = amount.depth;
}

static void add_convolution(summary *summary, const backend *operation, int x_name, int w_name, int y_name) {
    backend_tensor x, w, y;
    if (!read_at(operation, x_name, &x) || !read_at(operation, w_name, &w) || !read_at(operation, y_name, &y))
        return;
    convolution_shape shape = {
        .spatial = x.count - 2,
        .batch = x.sizes[0],
        .channels_in = x.sizes[1],
        .channels_out = w.sizes[0],
        .groups = x.sizes[1] / w.sizes[1],
    };
    for (int i = 0; i < shape.spatial; i++) {
        shape.filter[i] = w.sizes[2 + i];
        shape.output[i] = y.sizes[2 + i];
    }
    note_multiplied(summary, &x);
    note_multiplied(summary, &y);
    note_multiplied(summary, &w);
    add_amount(summary, convolution_amount(&shape));
    summary->convolutions++;
}

static void add_product(summary *summary, const backend *operation) {
    backend_tensor a, b, c;
    if (!read_at(operation, ATTRIBUTE_MATMUL_A, &a) || !read_at(operation, ATTRIBUTE_MATMUL_B, &b)
        || !read_at(operation, ATTRIBUTE_MATMUL_C, &c))
        return;
    gemm_shape shape = {.m = c.sizes[c.count - 2], .n = c.sizes[c.count - 1], .k = a.sizes[a.count - 1], .batch = 1};
    for (int i = 0; i < c.count - 2; i++)
        shape.batch *= c.sizes[i];
    note_multiplied(summary, &a);
    note_multiplied(summary, &b);
    add_amount(summary, gemm_amount(&shape));
    summary->products++;
}

/* Each token meets one expert's matrix: as many products of a row as the output has. */
static void add_grouped_product(summary *summary, const backend *operation, int token_name, int output_name) {
    backend_tensor token, output;
    if (!read_at(operation, token_name, &token) || !read_at(operation, output_name, &output) || token.count < 1)
        return;
    double elements = 1;
    for (int i = 0; i < output.count; i++)
        elements *= output.sizes[i];
    note_multiplied(summary, &token);
    summary->flops += 2 * elements * token.sizes[token.count - 1];
    summary->grouped_products++;
}

/* Q, K and V are batch x heads x length x size. */
static void add_attention(summary *summary, const backend *operation, int q_name, work_amount (*amount)(const attention_shape *)) {
    backend_tensor q, k, v;
    if (!read_at(operation, q_name, &q) || !read_at(operation, q_name + 1, &k) || !read_at(operation, q_name + 2, &v))
        return;
    if (q.count != 4 || k.count != 4 || v.count != 4) {
        summary->supported = false;
        return;
    }
    attention_shape shape = {
        .batch = q.sizes[0],
        .heads = q.sizes[1],
        .queries = q.sizes[2],
        .keys = k.sizes[2],
        .key_size = q.sizes[3],
        .value_size = v.sizes[3],
    };
    note_multiplied(summary, &q);
    summary->flops += amount(&shape).flops;
    summary->attentions++;
}

static void add_graph(summary *summary, const backend *graph);

static void add_operation(summary *summary, const backend *operation) {
    const backend *pointwise;
    switch (operation->type) {
    case BACKEND_CONVOLUTION_FORWARD:
        add_convolution(summary, operation, ATTRIBUTE_FORWARD_X, ATTRIBUTE_FORWARD_W, ATTRIBUTE_FORWARD_Y);
        break;
    case BACKEND_CONVOLUTION_BACKWARD_DATA:
        add_convolution(
            summary, operation, ATTRIBUTE_BACKWARD_DATA_DX, ATTRIBUTE_BACKWARD_DATA_W, ATTRIBUTE_BACKWARD_DATA_DY);
        summary->backward = summary->backward_data = true;
        break;
    case BACKEND_CONVOLUTION_BACKWARD_FILTER:
        add_convolution(
            summary, operation, ATTRIBUTE_BACKWARD_FILTER_X, ATTRIBUTE_BACKWARD_FILTER_DW, ATTRIBUTE_BACKWARD_FILTER_DY);
        summary->backward = true;
        break;
    case BACKEND_OPERATION_MATMUL:
        add_product(summary, operation);
        break;
    case BACKEND_GROUPED_MATMUL:
        add_grouped_product(summary, operation, ATTRIBUTE_GROUPED_MATMUL_TOKEN, ATTRIBUTE_GROUPED_MATMUL_OUTPUT);
        break;
    case BACKEND_GROUPED_MATMUL_BACKWARD:
        add_grouped_product(
            summary, operation, ATTRIBUTE_GROUPED_MATMUL_BACKWARD_TOKEN, ATTRIBUTE_GROUPED_MATMUL_BACKWARD_DOUTPUT);
        break;
    case BACKEND_ATTENTION_FORWARD:
        add_attention(summary, operation, ATTRIBUTE_ATTENTION_FORWARD_Q, attention_forward_amount);
        add_graph(summary, backend_descriptor_at(operation, ATTRIBUTE_ATTENTION_FORWARD_SUBGRAPH, 0));
        break;
    case BACKEND_ATTENTION_BACKWARD:
        add_attention(summary, operation, ATTRIBUTE_ATTENTION_BACKWARD_Q, attention_backward_amount);
        add_graph(summary, backend_descriptor_at(operation, ATTRIBUTE_ATTENTION_BACKWARD_SUBGRAPH, 0));
        summary->backward = true;
        break;
    case BACKEND_OPERATION_POINTWISE:
        pointwise = backend_descriptor_at(operation, ATTRIBUTE_OPERATION_POINTWISE_DESCRIPTOR, 0);
        if (backend_number(pointwise, ATTRIBUTE_POINTWISE_MODE, 0, 0) == POINTWISE_NOT_BEFORE)
            summary->causal = true;
        break;
    case BACKEND_DIAGONAL_BAND_MASK:
        summary->causal = true;
        break;
    default: /* only moves bytes */
        break;
    }
}

static void add_graph(summary *summary, const backend *graph) {
    const backend_attribute *operations = backend_find_attribute(graph, ATTRIBUTE_GRAPH_OPERATIONS);
    for (int64_t i = 0; operations && i < operations->count; i++) {
        const backend *operation = ((backend *const *)operations->values)[i];
        add_operation(summary, operation);
        count_tensors(summary, operation);
    }
}

static bool is_attention(const summary *summary) {
    return summary->attentions > 0 || summary->products >= 2;
}

static summary summary_of(const backend *graph) {
    summary summary = {.multiplied_type = -1, .supported = true};
    add_graph(&summary, graph);
    if (is_attention(&summary) && summary.causal)
        summary.flops /= 2;
    if (summary.products > 2)
        summary.backward = true; /* attention spelled out has five products backward, two forward */
    return summary;
}

/* ---- engines ---- */

static bool serves_tensor_cores(const summary *summary) {
    return summary->multiplied_type >= 0 && cudnn_device_has_tensor_cores(summary->multiplied_type);
}

/* Attention has engines for half precision and below only, since the Ampere generation. */
static bool attention_is_supported(const summary *summary) {
    const emu_device_info *device = emu_device(emu_current_device());
    bool narrow = summary->multiplied_type >= 0 && cudnn_element_bytes(summary->multiplied_type) <= 2;
    return device && device->capability_major >= 8 && narrow;
}

static int engines_for(const summary *summary) {
    if (!summary->supported)
        return 0;
    if (is_attention(summary))
        return attention_is_supported(summary) ? 1 : 0;
    return serves_tensor_cores(summary) ? 2 : 1;
}

int backend_engine_count(const backend *graph) {
    if (!graph)
        return 0;
    summary summary = summary_of(graph);
    return engines_for(&summary);
}

bool backend_engine_uses_tensor_cores(const backend *engine) {
    const backend *graph = backend_descriptor_at(engine, ATTRIBUTE_ENGINE_GRAPH, 0);
    summary summary = summary_of(graph);
    return serves_tensor_cores(&summary) && backend_number(engine, ATTRIBUTE_ENGINE_INDEX, 0, 0) == 0;
}

/* ---- plans ---- */

static void name_work(const summary *summary, execution *result) {
    if (is_attention(summary)) {
        result->kind = EMU_ATTENTION;
        result->name = summary->backward ? "attention_backward" : "attention_forward";
    } else if (summary->convolutions > 0) {
        result->kind = EMU_CONVOLUTION;
        result->name = !summary->backward ? "convolution_forward"
            : summary->backward_data      ? "convolution_backward_data"
                                          : "convolution_backward_filter";
    } else if (summary->products + summary->grouped_products > 0) {
        result->kind = EMU_GEMM;
        result->name = summary->grouped_products > 0 ? "grouped_matmul" : "matmul";
    } else {
        result->kind = EMU_MEMORY_BOUND;
        result->name = "fused_pointwise";
    }
}

cudnn_status execution_create(const backend *plan, execution **result) {
    const backend *configuration = backend_descriptor_at(plan, ATTRIBUTE_PLAN_CONFIGURATION, 0);
    const backend *engine = backend_descriptor_at(configuration, ATTRIBUTE_CONFIGURATION_ENGINE, 0);
    const backend *graph = backend_descriptor_at(engine, ATTRIBUTE_ENGINE_GRAPH, 0);
    if (!graph)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a plan has a configuration of an engine for a graph");
    summary summary = summary_of(graph);
    if (engines_for(&summary) == 0)
        return cudnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "no engine of this device runs this graph");
    execution *created = calloc(1, sizeof *created);
    if (!created)
        return cudnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "out of memory");
    name_work(&summary, created);
    created->amount = (work_amount){.flops = summary.flops, .bytes = summary.bytes, .columns = summary.columns, .depth = summary.depth};
    created->precision = cudnn_precision(
        summary.multiplied_type < 0 ? CUDNN_DATA_FLOAT : summary.multiplied_type, backend_engine_uses_tensor_cores(engine));
    created->pointer_count = summary.tensors;
    for (int i = 0; i < summary.tensors; i++)
        created->pointers[i] = summary.identifiers[i];
    *result = created;
    return CUDNN_STATUS_SUCCESS;
}

void execution_destroy(execution *execution) {
    free(execution);
}

static bool pack_has(const backend_attribute *identifiers, int64_t wanted) {
    for (int64_t i = 0; identifiers && i < identifiers->count; i++) {
        if (((const int64_t *)identifiers->values)[i] == wanted)
            return true;
    }
    return false;
}

static cudnn_status check_pointers(const execution *execution, const backend *pack) {
    const backend_attribute *identifiers = backend_find_attribute(pack, ATTRIBUTE_PACK_UNIQUE_IDS);
    if (identifiers && identifiers->type != TYPE_INT64)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "unique identifiers are of type int64");
    for (int i = 0; i < execution->pointer_count; i++) {
        if (!pack_has(identifiers, execution->pointers[i]))
            return cudnn_fail(
                CUDNN_STATUS_BAD_PARAM, "the variant pack has no pointer for tensor %lld", (long long)execution->pointers[i]);
    }
    return CUDNN_STATUS_SUCCESS;
}

EMU_EXPORT cudnn_status cudnnBackendExecute(void *handle, void *plan, void *pack) {
    const cudnn_handle *found = cudnn_find(handle);
    const backend *planned = object_find(CUDNN_BACKEND, plan);
    const backend *packed = object_find(CUDNN_BACKEND, pack);
    if (!found || !planned || !packed)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "handle, plan or variant pack isn't live");
    if (planned->type != BACKEND_EXECUTION_PLAN || packed->type != BACKEND_VARIANT_PACK)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not a plan and a variant pack");
    if (!planned->is_finalized || !packed->is_finalized)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "plan or variant pack isn't finalized");
    const execution *execution = planned->execution;
    cudnn_status status = check_pointers(execution, packed);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    return cudnn_launch(found, execution->kind, execution->name, execution->precision, execution->amount);
}
