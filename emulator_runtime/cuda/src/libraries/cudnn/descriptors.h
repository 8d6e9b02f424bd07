/* The descriptors of cuDNN's interface with a function for each layer. */
#ifndef EMUGPU_CUDNN_DESCRIPTORS_H
#define EMUGPU_CUDNN_DESCRIPTORS_H

#include "library.h"

enum { CUDNN_DIM_MAX = 8 };

/* Tensors: batch, channels, then space. Filters: output channels, input channels of a group, then space. */
typedef struct {
    int type;
    int count; /* of dimensions; 0: not set yet */
    int sizes[CUDNN_DIM_MAX];
    int strides[CUDNN_DIM_MAX]; /* of tensors */
    int format;                 /* of filters */
} cudnn_tensor;

typedef struct {
    int spatial; /* 0: not set yet */
    int padding[CUDNN_DIM_MAX], stride[CUDNN_DIM_MAX], dilation[CUDNN_DIM_MAX];
    int mode;
    int compute_type;
    int groups;
    int math_type;
} cudnn_convolution;

typedef struct {
    int mode;
    double coefficient;
} cudnn_activation;

typedef struct {
    int mode;
    int window[2], padding[2], stride[2];
} cudnn_pooling;

typedef struct {
    float probability;
    void *states;
    size_t state_bytes;
} cudnn_dropout;

typedef struct {
    int compute_type;
    int max_label_length; /* 0: unknown */
} cudnn_ctc_loss;

typedef struct {
    int type;
    int count;
    int sizes[CUDNN_DIM_MAX];
} cudnn_spatial_transformer;

/* Each answers NULL if the descriptor isn't live, or was never set. */
const cudnn_tensor *cudnn_find_tensor(const void *descriptor);
const cudnn_tensor *cudnn_find_filter(const void *descriptor);
const cudnn_convolution *cudnn_find_convolution(const void *descriptor);

double cudnn_tensor_elements(const cudnn_tensor *tensor);
double cudnn_tensor_bytes(const cudnn_tensor *tensor);

/* Bytes of the states of the device's random generators. */
size_t cudnn_dropout_state_bytes(void);

#endif
