/* How much arithmetic and memory traffic a library call means: the operations and bytes that the estimators go by.
 *
 * Pure functions, shared by cuBLAS, cuBLASLt and cuDNN, so that a matrix product costs the same whoever asks for it. Every tensor
 * counts as read or written once: what a fused kernel with a perfect cache would move. A multiply-add counts as two operations,
 * a complex one as eight.
 */
#ifndef EMUGPU_WORK_FORMULAS_H
#define EMUGPU_WORK_FORMULAS_H

#include <stdbool.h>
#include <stdint.h>

enum { FORMULA_MAX_SPATIAL = 6 };

typedef struct {
    double flops;
    double bytes;
    double columns, depth; /* of each matrix product, to see how well it fills a GPU's tiles; 0: there is none */
} work_amount;

/* D (m x n) = A (m x k) B (k x n) + C, `batch` times. */
typedef struct {
    double m, n, k, batch;
    double a_bytes, b_bytes, c_bytes, d_bytes; /* of one element; c_bytes 0: C isn't read */
    bool is_complex;
} gemm_shape;

work_amount gemm_amount(const gemm_shape *shape);

/* Dense linear algebra; `element_bytes` of one element, `batch` equal problems. */
work_amount triangular_amount(double order, double vectors, double batch, double element_bytes, bool is_complex);
work_amount symmetric_product_amount(double order, double vectors, double element_bytes, bool is_complex);
work_amount rank_update_amount(double order, double depth, int products, double element_bytes, bool is_complex);
work_amount lu_amount(double order, double batch, double element_bytes, bool is_complex);
work_amount qr_amount(double rows, double columns, double batch, double element_bytes, bool is_complex);
work_amount least_squares_amount(double rows, double columns, double vectors, double batch, double element_bytes, bool is_complex);

/* A convolution of `spatial` dimensions. Forward, backward data and backward filter cost the same: each pairs every output element
 * with every filter element that it is made of. */
typedef struct {
    int spatial;
    double batch, channels_in, channels_out, groups;
    double input[FORMULA_MAX_SPATIAL], filter[FORMULA_MAX_SPATIAL], output[FORMULA_MAX_SPATIAL];
    double input_bytes, filter_bytes, output_bytes; /* of one element */
} convolution_shape;

work_amount convolution_amount(const convolution_shape *shape);

/* Output size along one dimension; 0 or less if the filter doesn't fit. */
int64_t convolution_output_size(
    int64_t input, int64_t filter, int64_t padding_before, int64_t padding_after, int64_t stride, int64_t dilation);

/* softmax(Q K^T) V for `batch` x `heads`. */
typedef struct {
    double batch, heads, key_heads, queries, keys, key_size, value_size;
    double element_bytes;
    bool causal; /* a query sees the keys before it: half of the products */
} attention_shape;

work_amount attention_forward_amount(const attention_shape *shape);
work_amount attention_backward_amount(const attention_shape *shape);

/* A recurrent network. `output` is the size that a layer hands on: the projection's if there is one, else the hidden size. */
typedef struct {
    double gates; /* 1, LSTM 4, GRU 3 */
    double layers, directions;
    double batch, steps;
    double input, hidden, projection; /* projection 0: none */
    double element_bytes;
} rnn_shape;

double rnn_parameters(const rnn_shape *shape); /* of the matrices, without the biases */
work_amount rnn_forward_amount(const rnn_shape *shape);
work_amount rnn_backward_data_amount(const rnn_shape *shape);
work_amount rnn_backward_weights_amount(const rnn_shape *shape);

#endif
