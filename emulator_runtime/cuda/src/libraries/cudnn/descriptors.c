/* libcudnn: creating, setting and reading the descriptors of tensors, filters and layers. */
#include "descriptors.h"

#include <string.h>

#include "mathematics/objects.h"

#define DEFINE_LIFE(name, kind, type)                                                                                        \
    EMU_EXPORT cudnn_status cudnnCreate##name##Descriptor(void **descriptor) {                                               \
        return cudnn_create_object(kind, sizeof(type), descriptor);                                                          \
    }                                                                                                                        \
    EMU_EXPORT cudnn_status cudnnDestroy##name##Descriptor(void *descriptor) {                                               \
        return cudnn_destroy_object(kind, descriptor);                                                                       \
    }

DEFINE_LIFE(Tensor, CUDNN_TENSOR, cudnn_tensor)
DEFINE_LIFE(Filter, CUDNN_FILTER, cudnn_tensor)
DEFINE_LIFE(Convolution, CUDNN_CONVOLUTION, cudnn_convolution)
DEFINE_LIFE(Activation, CUDNN_ACTIVATION, cudnn_activation)
DEFINE_LIFE(Pooling, CUDNN_POOLING, cudnn_pooling)
DEFINE_LIFE(Dropout, CUDNN_DROPOUT, cudnn_dropout)
DEFINE_LIFE(CTCLoss, CUDNN_CTC_LOSS, cudnn_ctc_loss)
DEFINE_LIFE(SpatialTransformer, CUDNN_SPATIAL_TRANSFORMER, cudnn_spatial_transformer)

static cudnn_status wrong_descriptor(void) {
    return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "not a live descriptor of this kind");
}

/* ---- tensors and filters ---- */

static const cudnn_tensor *find_set(int kind, const void *descriptor) {
    const cudnn_tensor *found = object_find(kind, descriptor);
    return found && found->count > 0 ? found : NULL;
}

const cudnn_tensor *cudnn_find_tensor(const void *descriptor) {
    return find_set(CUDNN_TENSOR, descriptor);
}

const cudnn_tensor *cudnn_find_filter(const void *descriptor) {
    return find_set(CUDNN_FILTER, descriptor);
}

double cudnn_tensor_elements(const cudnn_tensor *tensor) {
    double elements = 1;
    for (int i = 0; i < tensor->count; i++)
        elements *= tensor->sizes[i];
    return elements;
}

double cudnn_tensor_bytes(const cudnn_tensor *tensor) {
    return tensor ? cudnn_tensor_elements(tensor) * cudnn_element_bytes(tensor->type) : 0;
}

static cudnn_status check_sizes(int type, int count, const int *sizes) {
    if (!sizes)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no sizes");
    if (cudnn_element_bytes(type) == 0)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "there is no data type %d", type);
    if (count < 1 || count > CUDNN_DIM_MAX)
        return cudnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "%d dimensions", count);
    for (int i = 0; i < count; i++) {
        if (sizes[i] <= 0)
            return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "size %d of dimension %d", sizes[i], i);
    }
    return CUDNN_STATUS_SUCCESS;
}

EMU_EXPORT cudnn_status cudnnSetTensorNdDescriptor(
    void *descriptor, int type, int count, const int *sizes, const int *strides) {
    cudnn_tensor *tensor = object_find(CUDNN_TENSOR, descriptor);
    if (!tensor || !strides)
        return wrong_descriptor();
    cudnn_status status = check_sizes(type, count, sizes);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    tensor->type = type;
    tensor->count = count;
    memcpy(tensor->sizes, sizes, (size_t)count * sizeof *sizes);
    memcpy(tensor->strides, strides, (size_t)count * sizeof *strides);
    return CUDNN_STATUS_SUCCESS;
}

EMU_EXPORT cudnn_status cudnnGetTensorNdDescriptor(
    const void *descriptor, int requested, int *type, int *count, int *sizes, int *strides) {
    const cudnn_tensor *tensor = object_find(CUDNN_TENSOR, descriptor);
    if (!tensor)
        return wrong_descriptor();
    if (requested < 0 || requested > CUDNN_DIM_MAX)
        return cudnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "%d dimensions", requested);
    for (int i = 0; i < requested && i < tensor->count; i++) {
        if (sizes)
            sizes[i] = tensor->sizes[i];
        if (strides)
            strides[i] = tensor->strides[i];
    }
    if (type)
        *type = tensor->type;
    if (count)
        *count = tensor->count;
    return CUDNN_STATUS_SUCCESS;
}

EMU_EXPORT cudnn_status cudnnSetFilterNdDescriptor(
    void *descriptor, int type, int format, int count, const int *sizes) {
    cudnn_tensor *filter = object_find(CUDNN_FILTER, descriptor);
    if (!filter)
        return wrong_descriptor();
    cudnn_status status = check_sizes(type, count, sizes);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    filter->type = type;
    filter->format = format;
    filter->count = count;
    memcpy(filter->sizes, sizes, (size_t)count * sizeof *sizes);
    return CUDNN_STATUS_SUCCESS;
}

EMU_EXPORT cudnn_status cudnnGetFilterNdDescriptor(
    const void *descriptor, int requested, int *type, int *format, int *count, int *sizes) {
    const cudnn_tensor *filter = object_find(CUDNN_FILTER, descriptor);
    if (!filter)
        return wrong_descriptor();
    if (requested < 0 || requested > CUDNN_DIM_MAX)
        return cudnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "%d dimensions", requested);
    for (int i = 0; sizes && i < requested && i < filter->count; i++)
        sizes[i] = filter->sizes[i];
    if (type)
        *type = filter->type;
    if (format)
        *format = filter->format;
    if (count)
        *count = filter->count;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- convolutions ---- */

const cudnn_convolution *cudnn_find_convolution(const void *descriptor) {
    const cudnn_convolution *found = object_find(CUDNN_CONVOLUTION, descriptor);
    return found && found->spatial > 0 ? found : NULL;
}

EMU_EXPORT cudnn_status cudnnSetConvolutionNdDescriptor(void *descriptor, int spatial, const int *padding, const int *stride,
    const int *dilation, int mode, int compute_type) {
    cudnn_convolution *convolution = object_find(CUDNN_CONVOLUTION, descriptor);
    if (!convolution || !padding || !stride || !dilation)
        return wrong_descriptor();
    if (spatial < 1 || spatial > CUDNN_DIM_MAX - 2)
        return cudnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "%d spatial dimensions", spatial);
    if (mode < 0 || mode > 1 || cudnn_element_bytes(compute_type) == 0)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "mode %d, compute type %d", mode, compute_type);
    for (int i = 0; i < spatial; i++) {
        if (padding[i] < 0 || stride[i] <= 0 || dilation[i] <= 0)
            return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "padding %d, stride %d, dilation %d", padding[i], stride[i], dilation[i]);
    }
    size_t bytes = (size_t)spatial * sizeof *padding;
    memcpy(convolution->padding, padding, bytes);
    memcpy(convolution->stride, stride, bytes);
    memcpy(convolution->dilation, dilation, bytes);
    convolution->spatial = spatial;
    convolution->mode = mode;
    convolution->compute_type = compute_type;
    if (convolution->groups == 0)
        convolution->groups = 1;
    return CUDNN_STATUS_SUCCESS;
}

EMU_EXPORT cudnn_status cudnnSetConvolutionGroupCount(void *descriptor, int groups) {
    cudnn_convolution *convolution = object_find(CUDNN_CONVOLUTION, descriptor);
    if (!convolution || groups < 1)
        return wrong_descriptor();
    convolution->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

EMU_EXPORT cudnn_status cudnnSetConvolutionMathType(void *descriptor, int math_type) {
    cudnn_convolution *convolution = object_find(CUDNN_CONVOLUTION, descriptor);
    if (!convolution || math_type < CUDNN_DEFAULT_MATH || math_type > CUDNN_FMA_MATH)
        return wrong_descriptor();
    convolution->math_type = math_type;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- other layers ---- */

EMU_EXPORT cudnn_status cudnnSetActivationDescriptor(void *descriptor, int mode, int nan_propagation, double coefficient) {
    enum { MODES = 7 };
    cudnn_activation *activation = object_find(CUDNN_ACTIVATION, descriptor);
    (void)nan_propagation;
    if (!activation || mode < 0 || mode >= MODES)
        return wrong_descriptor();
    activation->mode = mode;
    activation->coefficient = coefficient;
    return CUDNN_STATUS_SUCCESS;
}

EMU_EXPORT cudnn_status cudnnSetPooling2dDescriptor(void *descriptor, int mode, int nan_propagation, int window_height,
    int window_width, int padding_height, int padding_width, int stride_height, int stride_width) {
    enum { MODES = 4 };
    cudnn_pooling *pooling = object_find(CUDNN_POOLING, descriptor);
    (void)nan_propagation;
    if (!pooling || mode < 0 || mode >= MODES)
        return wrong_descriptor();
    if (window_height <= 0 || window_width <= 0 || stride_height <= 0 || stride_width <= 0)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "windows and strides are positive");
    if (padding_height < 0 || padding_width < 0)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "negative padding");
    *pooling = (cudnn_pooling){mode, {window_height, window_width}, {padding_height, padding_width}, {stride_height, stride_width}};
    return CUDNN_STATUS_SUCCESS;
}

/* cuRAND's XORWOW generators, for the threads that a device runs at once. */
size_t cudnn_dropout_state_bytes(void) {
    enum { BYTES_PER_MULTIPROCESSOR = 16 << 10 };
    const emu_device_info *device = emu_device(emu_current_device());
    return device ? (size_t)device->multiprocessors * BYTES_PER_MULTIPROCESSOR : 0;
}

EMU_EXPORT cudnn_status cudnnDropoutGetStatesSize(void *handle, size_t *bytes) {
    if (!cudnn_find(handle) || !bytes)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "not a live handle, or no place for the size");
    *bytes = cudnn_dropout_state_bytes();
    return CUDNN_STATUS_SUCCESS;
}

static cudnn_status set_dropout(
    void *descriptor, const cudnn_handle *handle, float probability, void *states, size_t state_bytes) {
    cudnn_dropout *dropout = object_find(CUDNN_DROPOUT, descriptor);
    if (!dropout || !handle)
        return wrong_descriptor();
    if (!(probability >= 0 && probability <= 1))
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "dropout probability %g", (double)probability);
    if (states && state_bytes < cudnn_dropout_state_bytes())
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "dropout states of %zu bytes", state_bytes);
    *dropout = (cudnn_dropout){probability, states, state_bytes};
    return CUDNN_STATUS_SUCCESS;
}

/* Initializes the generators, if there are states. */
EMU_EXPORT cudnn_status cudnnSetDropoutDescriptor(
    void *descriptor, void *handle, float probability, void *states, size_t state_bytes, unsigned long long seed) {
    const cudnn_handle *found = cudnn_find(handle);
    (void)seed;
    cudnn_status status = set_dropout(descriptor, found, probability, states, state_bytes);
    if (status != CUDNN_STATUS_SUCCESS || !states)
        return status;
    return cudnn_launch_memory_bound(found, "dropout_states", (double)cudnn_dropout_state_bytes());
}

EMU_EXPORT cudnn_status cudnnRestoreDropoutDescriptor(
    void *descriptor, void *handle, float probability, void *states, size_t state_bytes, unsigned long long seed) {
    (void)seed;
    return set_dropout(descriptor, cudnn_find(handle), probability, states, state_bytes);
}

EMU_EXPORT cudnn_status cudnnSetCTCLossDescriptor_v9(
    void *descriptor, int compute_type, int normalization, int gradient_mode, int max_label_length) {
    cudnn_ctc_loss *loss = object_find(CUDNN_CTC_LOSS, descriptor);
    (void)gradient_mode;
    if (!loss || compute_type != CUDNN_DATA_FLOAT || normalization < 0 || normalization > 1 || max_label_length < 0)
        return wrong_descriptor();
    *loss = (cudnn_ctc_loss){compute_type, max_label_length};
    return CUDNN_STATUS_SUCCESS;
}

EMU_EXPORT cudnn_status cudnnSetCTCLossDescriptorEx(void *descriptor, int compute_type, int normalization, int gradient_mode) {
    return cudnnSetCTCLossDescriptor_v9(descriptor, compute_type, normalization, gradient_mode, 0);
}

EMU_EXPORT cudnn_status cudnnSetSpatialTransformerNdDescriptor(
    void *descriptor, int sampler, int type, int count, const int *sizes) {
    cudnn_spatial_transformer *transformer = object_find(CUDNN_SPATIAL_TRANSFORMER, descriptor);
    if (!transformer || sampler != 0)
        return wrong_descriptor();
    cudnn_status status = check_sizes(type, count, sizes);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    transformer->type = type;
    transformer->count = count;
    memcpy(transformer->sizes, sizes, (size_t)count * sizeof *sizes);
    return CUDNN_STATUS_SUCCESS;
}
