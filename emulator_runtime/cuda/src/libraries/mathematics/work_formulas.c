/* The formulas of work_formulas.h. Textbook counts; the sources are LAPACK's working note 41 for the factorisations and, for
 * attention's backward pass, the five products that are done when the scores are computed again. */
#include "work_formulas.h"

/* A complex multiply-add is four real ones. */
static double operations(double multiply_adds, bool is_complex) {
    return (is_complex ? 8.0 : 2.0) * multiply_adds;
}

work_amount gemm_amount(const gemm_shape *shape) {
    double a = shape->m * shape->k * shape->a_bytes;
    double b = shape->k * shape->n * shape->b_bytes;
    double c = shape->m * shape->n * shape->c_bytes;
    double d = shape->m * shape->n * shape->d_bytes;
    work_amount amount = {0};
    amount.flops = operations(shape->m * shape->n * shape->k * shape->batch, shape->is_complex);
    amount.bytes = (a + b + c + d) * shape->batch;
    amount.columns = shape->n < shape->m ? shape->n : shape->m; /* the narrow side */
    amount.depth = shape->k;
    return amount;
}

/* Solving with, or multiplying by, a triangle of `order` for `vectors` right-hand sides. */
work_amount triangular_amount(double order, double vectors, double batch, double element_bytes, bool is_complex) {
    work_amount amount = {0};
    amount.flops = operations(order * order / 2 * vectors * batch, is_complex);
    amount.bytes = (order * order / 2 + 2 * order * vectors) * batch * element_bytes;
    return amount;
}

work_amount symmetric_product_amount(double order, double vectors, double element_bytes, bool is_complex) {
    work_amount amount = {0};
    amount.flops = operations(order * order * vectors, is_complex);
    amount.bytes = (order * order / 2 + 3 * order * vectors) * element_bytes;
    return amount;
}

/* One triangle of an order x order matrix gets `products` products of depth `depth` (SYRK 1, SYR2K 2). */
work_amount rank_update_amount(double order, double depth, int products, double element_bytes, bool is_complex) {
    double triangle = order * (order + 1) / 2;
    work_amount amount = {0};
    amount.flops = operations(products * triangle * depth, is_complex);
    amount.bytes = (products * order * depth + 2 * triangle) * element_bytes;
    return amount;
}

work_amount lu_amount(double order, double batch, double element_bytes, bool is_complex) {
    work_amount amount = {0};
    amount.flops = operations(order * order * order / 3 * batch, is_complex);
    amount.bytes = 2 * order * order * batch * element_bytes;
    return amount;
}

static double qr_multiply_adds(double rows, double columns) {
    double small = rows < columns ? rows : columns;
    double large = rows < columns ? columns : rows;
    return small * small * (large - small / 3);
}

work_amount qr_amount(double rows, double columns, double batch, double element_bytes, bool is_complex) {
    work_amount amount = {0};
    amount.flops = operations(qr_multiply_adds(rows, columns) * batch, is_complex);
    amount.bytes = 2 * rows * columns * batch * element_bytes;
    return amount;
}

/* QR, then Q^T and the triangle applied to each right-hand side. */
work_amount least_squares_amount(double rows, double columns, double vectors, double batch, double element_bytes, bool is_complex) {
    double each_vector = 2 * rows * columns - columns * columns / 2;
    double multiply_adds = qr_multiply_adds(rows, columns) + each_vector * vectors;
    work_amount amount = {0};
    amount.flops = operations(multiply_adds * batch, is_complex);
    amount.bytes = 2 * (rows * columns + rows * vectors) * batch * element_bytes;
    return amount;
}

static double product(const double *sizes, int count) {
    double result = 1;
    for (int i = 0; i < count; i++)
        result *= sizes[i];
    return result;
}

work_amount convolution_amount(const convolution_shape *shape) {
    double channels_each = shape->channels_in / shape->groups;
    double filter = shape->channels_out * channels_each * product(shape->filter, shape->spatial);
    double input = shape->batch * shape->channels_in * product(shape->input, shape->spatial);
    double positions = shape->batch * product(shape->output, shape->spatial);
    work_amount amount = {0};
    amount.flops = operations(positions * filter, false);
    amount.bytes = input * shape->input_bytes + filter * shape->filter_bytes
        + positions * shape->channels_out * shape->output_bytes;
    amount.columns = shape->channels_out / shape->groups;
    amount.depth = channels_each * product(shape->filter, shape->spatial);
    return amount;
}

int64_t convolution_output_size(
    int64_t input, int64_t filter, int64_t padding_before, int64_t padding_after, int64_t stride, int64_t dilation) {
    const int64_t most = INT32_MAX;
    if (input > most || filter > most || padding_before > most || padding_after > most || stride <= 0)
        return 0;
    if (input < 0 || filter < 1 || padding_before < 0 || padding_after < 0 || dilation < 1 || dilation > most)
        return 0;
    int64_t extent = (filter - 1) * dilation + 1; /* what the filter spans: 3 with dilation 2 spans 5 */
    int64_t places = input + padding_before + padding_after - extent;
    return places < 0 ? 0 : places / stride + 1;
}

/* Multiply-adds of one product of queries with keys, per element of the vectors. */
static double attention_pairs(const attention_shape *shape) {
    double pairs = shape->batch * shape->heads * shape->queries * shape->keys;
    return shape->causal ? pairs / 2 : pairs;
}

/* Q, K, V and O once each. */
static double attention_tensors(const attention_shape *shape) {
    double of_queries = shape->heads * shape->queries * (shape->key_size + shape->value_size);
    double of_keys = shape->key_heads * shape->keys * (shape->key_size + shape->value_size);
    return shape->batch * (of_queries + of_keys) * shape->element_bytes;
}

work_amount attention_forward_amount(const attention_shape *shape) {
    work_amount amount = {0};
    amount.flops = operations(attention_pairs(shape) * (shape->key_size + shape->value_size), false);
    amount.bytes = attention_tensors(shape);
    return amount;
}

/* Q K^T again, dS K and dS^T Q over the key size; dO V^T and P^T dO over the value size. */
work_amount attention_backward_amount(const attention_shape *shape) {
    work_amount amount = {0};
    amount.flops = operations(attention_pairs(shape) * (3 * shape->key_size + 2 * shape->value_size), false);
    amount.bytes = 2 * attention_tensors(shape);
    return amount;
}

static double rnn_output(const rnn_shape *shape) {
    return shape->projection > 0 ? shape->projection : shape->hidden;
}

/* Matrix elements of one direction of a layer that gets vectors of `input` elements. */
static double rnn_layer_parameters(const rnn_shape *shape, double input) {
    return shape->gates * shape->hidden * (input + rnn_output(shape)) + shape->projection * shape->hidden;
}

double rnn_parameters(const rnn_shape *shape) {
    if (shape->layers < 1)
        return 0;
    double first = rnn_layer_parameters(shape, shape->input);
    double later = rnn_layer_parameters(shape, shape->directions * rnn_output(shape));
    return shape->directions * (first + (shape->layers - 1) * later);
}

/* Each parameter meets each element of each step; `passes` over the parameters and the sequences of all layers. */
static work_amount rnn_amount(const rnn_shape *shape, double passes) {
    double parameters = rnn_parameters(shape);
    double tokens = shape->batch * shape->steps;
    double vectors = shape->input + shape->layers * shape->directions * rnn_output(shape);
    work_amount amount = {0};
    amount.flops = operations(parameters * tokens, false);
    amount.bytes = passes * (parameters + tokens * vectors) * shape->element_bytes;
    return amount;
}

work_amount rnn_forward_amount(const rnn_shape *shape) {
    return rnn_amount(shape, 1);
}

/* Besides the weights: the values of the forward pass and their gradients. */
work_amount rnn_backward_data_amount(const rnn_shape *shape) {
    return rnn_amount(shape, 2);
}

work_amount rnn_backward_weights_amount(const rnn_shape *shape) {
    return rnn_amount(shape, 1);
}
