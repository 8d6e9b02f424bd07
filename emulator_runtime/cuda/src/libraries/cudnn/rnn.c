/* libcudnn: recurrent networks.
 *
 * The weight space is one array, in this order: the matrices of all pseudo-layers (a layer's forward direction, then its backward
 * one), then their biases. In a pseudo-layer: the gates' input matrices, their recurrent matrices, the projection. For an LSTM of
 * one layer: W_i W_f W_c W_o R_i R_f R_c R_o | bW_i ... bR_o. Programs find their way by cudnnGetRNNWeightParams.
 */
#include <string.h>

#include "mathematics/objects.h"
#include "descriptors.h"

enum { RNN_RELU, RNN_TANH, RNN_LSTM, RNN_GRU, RNN_MODES };
enum { NO_BIAS, INPUT_BIAS, DOUBLE_BIAS, RECURRENT_BIAS, BIAS_MODES };
enum { FORWARD_INFERENCE, FORWARD_TRAINING };
enum { LINEAR_INPUT, SKIP_INPUT };

static const int GATES[RNN_MODES] = {1, 1, 4, 3};

typedef struct {
    bool is_set;
    int mode, bias, directions, input_mode;
    int type, math_type;
    int input, hidden, projection, layers;
} rnn;

typedef struct {
    bool is_set;
    int type;
    int steps, batch, vector;
    double tokens; /* steps of all sequences together */
} rnn_data;

static cudnn_status invalid(const char *what) {
    return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "recurrent network: %s", what);
}

/* ---- descriptors ---- */

EMU_EXPORT cudnn_status cudnnCreateRNNDescriptor(void **descriptor) {
    return cudnn_create_object(CUDNN_RNN, sizeof(rnn), descriptor);
}

EMU_EXPORT cudnn_status cudnnDestroyRNNDescriptor(void *descriptor) {
    return cudnn_destroy_object(CUDNN_RNN, descriptor);
}

EMU_EXPORT cudnn_status cudnnCreateRNNDataDescriptor(void **descriptor) {
    return cudnn_create_object(CUDNN_RNN_DATA, sizeof(rnn_data), descriptor);
}

EMU_EXPORT cudnn_status cudnnDestroyRNNDataDescriptor(void *descriptor) {
    return cudnn_destroy_object(CUDNN_RNN_DATA, descriptor);
}

/* The projected size is the hidden size where nothing is projected; only an LSTM can project. */
static bool sizes_are_valid(int mode, int input, int hidden, int projection, int layers) {
    enum { MOST_LAYERS = 4096 };
    if (input < 1 || hidden < 1 || layers < 1 || layers > MOST_LAYERS || projection < 0 || projection > hidden)
        return false;
    return projection == 0 || projection == hidden || mode == RNN_LSTM;
}

EMU_EXPORT cudnn_status cudnnSetRNNDescriptor_v8(void *descriptor, int algorithm, int mode, int bias, int direction,
    int input_mode, int type, int math_precision, int math_type, int32_t input, int32_t hidden, int32_t projection,
    int32_t layers, const void *dropout, uint32_t flags) {
    enum { ALGORITHMS = 4 };
    rnn *network = object_find(CUDNN_RNN, descriptor);
    (void)math_precision, (void)flags;
    if (!network)
        return invalid("not a live descriptor");
    if (algorithm < 0 || algorithm >= ALGORITHMS || mode < 0 || mode >= RNN_MODES || bias < 0 || bias >= BIAS_MODES)
        return invalid("algorithm, cell or bias mode");
    if (direction < 0 || direction > 1 || input_mode < LINEAR_INPUT || input_mode > SKIP_INPUT)
        return invalid("direction or input mode");
    if (cudnn_element_bytes(type) < 2 || math_type < CUDNN_DEFAULT_MATH || math_type > CUDNN_FMA_MATH)
        return invalid("data or math type");
    if (!sizes_are_valid(mode, input, hidden, projection, layers))
        return invalid("sizes");
    if (dropout && !object_find(CUDNN_DROPOUT, dropout))
        return invalid("the dropout descriptor isn't live");
    *network = (rnn){
        .is_set = true,
        .mode = mode,
        .bias = bias,
        .directions = direction + 1,
        .input_mode = input_mode,
        .type = type,
        .math_type = math_type,
        .input = input,
        .hidden = hidden,
        .projection = projection == hidden ? 0 : projection,
        .layers = layers,
    };
    return CUDNN_STATUS_SUCCESS;
}

EMU_EXPORT cudnn_status cudnnSetRNNDataDescriptor(void *descriptor, int type, int layout, int steps, int batch, int vector,
    const int *lengths, void *padding_fill) {
    enum { LAYOUTS = 3 };
    rnn_data *data = object_find(CUDNN_RNN_DATA, descriptor);
    double tokens = 0;
    (void)padding_fill;
    if (!data || !lengths)
        return invalid("not a live descriptor, or no lengths");
    if (cudnn_element_bytes(type) < 2 || layout < 0 || layout >= LAYOUTS || steps < 1 || batch < 1 || vector < 1)
        return invalid("type, layout or sizes of the data");
    for (int i = 0; i < batch; i++) {
        if (lengths[i] < 0 || lengths[i] > steps)
            return invalid("a sequence is longer than the longest");
        tokens += lengths[i];
    }
    *data = (rnn_data){true, type, steps, batch, vector, tokens};
    return CUDNN_STATUS_SUCCESS;
}

static const rnn *find_network(const void *descriptor) {
    const rnn *found = object_find(CUDNN_RNN, descriptor);
    return found && found->is_set ? found : NULL;
}

static const rnn_data *find_data(const void *descriptor) {
    const rnn_data *found = object_find(CUDNN_RNN_DATA, descriptor);
    return found && found->is_set ? found : NULL;
}

/* ---- weights ---- */

/* A matrix of the weight space, or a bias (one column); no rows: it doesn't exist. */
typedef struct {
    size_t rows, columns;
    size_t offset; /* elements from the space's beginning */
} weights;

static size_t output_size(const rnn *network) {
    return (size_t)(network->projection ? network->projection : network->hidden);
}

/* Size of what a layer gets: the network's input, or both directions' outputs of the layer before. */
static size_t layer_input(const rnn *network, int layer) {
    if (layer > 0)
        return (size_t)network->directions * output_size(network);
    return network->input_mode == SKIP_INPUT ? 0 : (size_t)network->input;
}

/* Matrices with this number: 0 to gates - 1 for the input, as many for the recurrence, then the LSTM's projection (8). */
static int matrix_count(const rnn *network) {
    return 2 * GATES[network->mode] + (network->projection ? 1 : 0);
}

static weights matrix_shape(const rnn *network, int layer, int number) {
    size_t hidden = (size_t)network->hidden;
    int gates = GATES[network->mode];
    if (number < gates)
        return (weights){layer_input(network, layer) ? hidden : 0, layer_input(network, layer), 0};
    if (number < 2 * gates)
        return (weights){hidden, output_size(network), 0};
    return (weights){(size_t)network->projection, hidden, 0};
}

static size_t elements(weights part) {
    return part.rows * part.columns;
}

static size_t layer_matrices(const rnn *network, int layer) {
    size_t total = 0;
    for (int number = 0; number < matrix_count(network); number++)
        total += elements(matrix_shape(network, layer, number));
    return total;
}

/* All matrices of the pseudo-layers before `pseudo_layer`. */
static size_t matrices_before(const rnn *network, int pseudo_layer) {
    size_t total = 0;
    for (int before = 0; before < pseudo_layer; before++)
        total += layer_matrices(network, before / network->directions);
    return total;
}

static weights matrix_at(const rnn *network, int pseudo_layer, int number) {
    int layer = pseudo_layer / network->directions;
    weights matrix = matrix_shape(network, layer, number);
    matrix.offset = matrices_before(network, pseudo_layer);
    for (int before = 0; before < number; before++)
        matrix.offset += elements(matrix_shape(network, layer, before));
    return matrix;
}

static bool has_bias(const rnn *network, int number) {
    int gates = GATES[network->mode];
    if (number >= 2 * gates)
        return false;
    if (network->bias == DOUBLE_BIAS)
        return true;
    return network->bias == (number < gates ? INPUT_BIAS : RECURRENT_BIAS);
}

static int biases_before(const rnn *network, int number) {
    int count = 0;
    for (int before = 0; before < number; before++)
        count += has_bias(network, before);
    return count;
}

static int pseudo_layers(const rnn *network) {
    return network->layers * network->directions;
}

static weights bias_at(const rnn *network, int pseudo_layer, int number) {
    weights bias = {0, 0, 0};
    if (!has_bias(network, number))
        return bias;
    int each_layer = biases_before(network, matrix_count(network));
    int before = pseudo_layer * each_layer + biases_before(network, number);
    bias.rows = (size_t)network->hidden;
    bias.columns = 1;
    bias.offset = matrices_before(network, pseudo_layers(network)) + (size_t)before * bias.rows;
    return bias;
}

static size_t weight_bytes(const rnn *network) {
    size_t biases = (size_t)(pseudo_layers(network) * biases_before(network, matrix_count(network)));
    size_t count = matrices_before(network, pseudo_layers(network)) + biases * (size_t)network->hidden;
    return count * (size_t)cudnn_element_bytes(network->type);
}

EMU_EXPORT cudnn_status cudnnGetRNNWeightSpaceSize(void *handle, const void *descriptor, size_t *bytes) {
    const rnn *network = find_network(descriptor);
    if (!cudnn_find(handle) || !network || !bytes)
        return invalid("handle, descriptor or the place for the size");
    *bytes = weight_bytes(network);
    return CUDNN_STATUS_SUCCESS;
}

/* Write `part` into a tensor descriptor of 1 x rows x columns, and its address. A part that doesn't exist has no dimensions. */
static void answer_part(const rnn *network, weights part, const char *space, cudnn_tensor *tensor, void **address) {
    bool exists = part.rows > 0;
    if (address)
        *address = exists ? (void *)(uintptr_t)(space + part.offset * (size_t)cudnn_element_bytes(network->type)) : NULL;
    if (!tensor)
        return;
    int rows = (int)part.rows, columns = (int)part.columns;
    memset(tensor, 0, sizeof *tensor);
    tensor->type = network->type;
    if (exists)
        *tensor = (cudnn_tensor){network->type, 3, {1, rows, columns}, {rows * columns, columns, 1}, 0};
}

EMU_EXPORT cudnn_status cudnnGetRNNWeightParams(void *handle, const void *descriptor, int32_t pseudo_layer, size_t space_bytes,
    const void *space, int32_t number, void *matrix, void **matrix_address, void *bias, void **bias_address) {
    const rnn *network = find_network(descriptor);
    cudnn_tensor *matrix_tensor = object_find(CUDNN_TENSOR, matrix);
    cudnn_tensor *bias_tensor = object_find(CUDNN_TENSOR, bias);
    if (!cudnn_find(handle) || !network)
        return invalid("handle or descriptor");
    if ((matrix && !matrix_tensor) || (bias && !bias_tensor))
        return invalid("a descriptor for the answer isn't live");
    if (pseudo_layer < 0 || pseudo_layer >= pseudo_layers(network) || number < 0 || number > 2 * GATES[network->mode])
        return invalid("there is no such layer or matrix");
    if (space_bytes < weight_bytes(network))
        return invalid("the weight space is too small");
    bool exists = number < matrix_count(network);
    weights none = {0, 0, 0};
    answer_part(network, exists ? matrix_at(network, pseudo_layer, number) : none, space, matrix_tensor, matrix_address);
    answer_part(network, exists ? bias_at(network, pseudo_layer, number) : none, space, bias_tensor, bias_address);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- work ---- */

static rnn_shape shape_of(const rnn *network, const rnn_data *data) {
    rnn_shape shape = {
        .gates = GATES[network->mode],
        .layers = network->layers,
        .directions = network->directions,
        .batch = 1,
        .steps = data->tokens,
        .input = (double)layer_input(network, 0),
        .hidden = network->hidden,
        .projection = network->projection,
        .element_bytes = cudnn_element_bytes(network->type),
    };
    return shape;
}

/* An estimate: the workspace holds a layer's gates for all steps; training keeps gates, cells and outputs of all layers. */
EMU_EXPORT cudnn_status cudnnGetRNNTempSpaceSizes(
    void *handle, const void *descriptor, int mode, const void *x, size_t *workspace_bytes, size_t *reserve_bytes) {
    const rnn *network = find_network(descriptor);
    const rnn_data *data = find_data(x);
    if (!cudnn_find(handle) || !network || !data || mode < FORWARD_INFERENCE || mode > FORWARD_TRAINING)
        return invalid("handle, descriptors or mode");
    size_t gates = (size_t)GATES[network->mode];
    size_t positions = (size_t)data->steps * (size_t)data->batch;
    size_t layer = positions * (size_t)network->hidden * (size_t)cudnn_element_bytes(network->type);
    if (workspace_bytes)
        *workspace_bytes = layer * gates * (size_t)network->directions;
    if (reserve_bytes)
        *reserve_bytes = mode == FORWARD_TRAINING ? layer * (gates + 2) * (size_t)pseudo_layers(network) : 0;
    return CUDNN_STATUS_SUCCESS;
}

typedef struct {
    const char *name;
    work_amount (*amount)(const rnn_shape *shape);
    bool in_steps; /* each step of a layer needs the one before it */
} pass;

static const pass FORWARD = {"rnn_forward", rnn_forward_amount, true};
static const pass BACKWARD_DATA = {"rnn_backward_data", rnn_backward_data_amount, true};
static const pass BACKWARD_WEIGHTS = {"rnn_backward_weights", rnn_backward_weights_amount, false};

/* A kernel for each step of each layer, as a device spends most of its time between small kernels here; the two directions of a
 * layer run side by side. */
static int kernels_of(const pass *pass, const rnn *network, const rnn_data *data) {
    enum { MOST_KERNELS = 1 << 14 };
    if (!pass->in_steps)
        return 1;
    int64_t kernels = (int64_t)network->layers * data->steps;
    return kernels < MOST_KERNELS ? (int)kernels : MOST_KERNELS;
}

static cudnn_status launch(const void *handle, const void *descriptor, const void *x, size_t space_bytes, const pass *pass) {
    const cudnn_handle *found = cudnn_find(handle);
    const rnn *network = find_network(descriptor);
    const rnn_data *data = find_data(x);
    if (!found || !network || !data)
        return invalid("handle or descriptors");
    if (data->vector != network->input)
        return invalid("the input's vectors have another size than the network's");
    if (space_bytes < weight_bytes(network))
        return invalid("the weight space is too small");
    rnn_shape shape = shape_of(network, data);
    emu_precision precision = cudnn_precision(network->type, cudnn_math_allows_tensor_cores(network->math_type));
    int kernels = kernels_of(pass, network, data);
    work_amount whole = pass->amount(&shape);
    work_amount each = {.flops = whole.flops / kernels, .bytes = whole.bytes / kernels};
    if (pass->in_steps) {
        each.columns = data->tokens / data->steps; /* the sequences that are long enough for a step, on average */
        each.depth = (double)output_size(network);
    }
    cudnn_status status = CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < kernels && status == CUDNN_STATUS_SUCCESS; i++)
        status = cudnn_launch(found, EMU_GEMM, pass->name, precision, each);
    return status;
}

EMU_EXPORT cudnn_status cudnnRNNForward(void *handle, const void *descriptor, int mode, const int32_t *lengths, const void *x,
    const void *x_data, const void *y, void *y_data, const void *h, const void *hx, void *hy, const void *c, const void *cx,
    void *cy, size_t space_bytes, const void *space, size_t workspace_bytes, void *workspace, size_t reserve_bytes,
    void *reserve) {
    (void)lengths, (void)x_data, (void)y_data, (void)h, (void)hx, (void)hy, (void)c, (void)cx, (void)cy, (void)space;
    (void)workspace_bytes, (void)workspace, (void)reserve_bytes, (void)reserve;
    if (mode < FORWARD_INFERENCE || mode > FORWARD_TRAINING || !find_data(y))
        return invalid("mode, or the output's descriptor");
    return launch(handle, descriptor, x, space_bytes, &FORWARD);
}

EMU_EXPORT cudnn_status cudnnRNNBackwardData_v8(void *handle, const void *descriptor, const int32_t *lengths, const void *y,
    const void *y_data, const void *dy, const void *x, void *dx, const void *h, const void *hx, const void *dhy, void *dhx,
    const void *c, const void *cx, const void *dcy, void *dcx, size_t space_bytes, const void *space, size_t workspace_bytes,
    void *workspace, size_t reserve_bytes, void *reserve) {
    (void)lengths, (void)y_data, (void)dy, (void)dx, (void)h, (void)hx, (void)dhy, (void)dhx, (void)c, (void)cx, (void)dcy;
    (void)dcx, (void)space, (void)workspace_bytes, (void)workspace, (void)reserve_bytes, (void)reserve;
    if (!find_data(y))
        return invalid("the output's descriptor");
    return launch(handle, descriptor, x, space_bytes, &BACKWARD_DATA);
}

EMU_EXPORT cudnn_status cudnnRNNBackwardWeights_v8(void *handle, const void *descriptor, int add_gradient,
    const int32_t *lengths, const void *x, const void *x_data, const void *h, const void *hx, const void *y, const void *y_data,
    size_t space_bytes, void *dspace, size_t workspace_bytes, void *workspace, size_t reserve_bytes, void *reserve) {
    enum { ADD, SET };
    (void)lengths, (void)x_data, (void)h, (void)hx, (void)y_data, (void)dspace, (void)workspace_bytes, (void)workspace;
    (void)reserve_bytes, (void)reserve;
    if (add_gradient == SET)
        return cudnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "the weights' gradient can only be added to what is there");
    if (add_gradient != ADD || !find_data(y))
        return invalid("mode, or the output's descriptor");
    return launch(handle, descriptor, x, space_bytes, &BACKWARD_WEIGHTS);
}
