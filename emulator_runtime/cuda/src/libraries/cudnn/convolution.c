/* libcudnn: convolutions of the interface with a function for each layer. */
#include "descriptors.h"

#include <string.h>

typedef enum { FORWARD, BACKWARD_DATA, BACKWARD_FILTER } direction;

static const char *const NAMES[] = {"convolution_forward", "convolution_backward_data", "convolution_backward_filter"};

/* The descriptors of a call: x and y have the roles of input and output, or of their gradients. */
typedef struct {
    const cudnn_tensor *x, *w, *y;
    const cudnn_convolution *convolution;
} convolution_call;

static convolution_call call_of(const void *x, const void *w, const void *y, const void *convolution) {
    convolution_call call = {
        cudnn_find_tensor(x), cudnn_find_filter(w), cudnn_find_tensor(y), cudnn_find_convolution(convolution)};
    return call;
}

static bool output_fits(const convolution_call *call, int dimension) {
    const cudnn_convolution *convolution = call->convolution;
    int padding = convolution->padding[dimension];
    int64_t size = convolution_output_size(call->x->sizes[2 + dimension], call->w->sizes[2 + dimension], padding, padding,
        convolution->stride[dimension], convolution->dilation[dimension]);
    return size == call->y->sizes[2 + dimension];
}

static cudnn_status check(const convolution_call *call) {
    const cudnn_tensor *x = call->x, *w = call->w, *y = call->y;
    if (!x || !w || !y || !call->convolution)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "a descriptor isn't live, or was never set");
    int count = call->convolution->spatial + 2;
    if (x->count != count || w->count != count || y->count != count)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "tensors, filter and convolution differ in their number of dimensions");
    if (x->sizes[0] != y->sizes[0] || y->sizes[1] != w->sizes[0])
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "batch sizes or output channels differ");
    if (x->sizes[1] != w->sizes[1] * call->convolution->groups || w->sizes[0] % call->convolution->groups != 0)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "the groups' channels don't add up");
    for (int i = 0; i < call->convolution->spatial; i++) {
        if (!output_fits(call, i))
            return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "output size %d of spatial dimension %d", y->sizes[2 + i], i);
    }
    if (!cudnn_device_supports(x->type))
        return cudnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "the device doesn't know data type %d", x->type);
    return CUDNN_STATUS_SUCCESS;
}

static convolution_shape shape_of(const convolution_call *call) {
    convolution_shape shape = {
        .spatial = call->convolution->spatial,
        .batch = call->x->sizes[0],
        .channels_in = call->x->sizes[1],
        .channels_out = call->w->sizes[0],
        .groups = call->convolution->groups,
        .input_bytes = cudnn_element_bytes(call->x->type),
        .filter_bytes = cudnn_element_bytes(call->w->type),
        .output_bytes = cudnn_element_bytes(call->y->type),
    };
    for (int i = 0; i < shape.spatial; i++) {
        shape.input[i] = call->x->sizes[2 + i];
        shape.filter[i] = call->w->sizes[2 + i];
        shape.output[i] = call->y->sizes[2 + i];
    }
    return shape;
}

static cudnn_status launch(const void *handle, direction direction, const convolution_call *call, double more_bytes) {
    const cudnn_handle *found = cudnn_find(handle);
    if (!found)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "not a live handle");
    cudnn_status status = check(call);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    convolution_shape shape = shape_of(call);
    work_amount amount = convolution_amount(&shape);
    amount.bytes += more_bytes;
    bool tensor_cores = cudnn_math_allows_tensor_cores(call->convolution->math_type);
    return cudnn_launch(found, EMU_CONVOLUTION, NAMES[direction], cudnn_precision(call->x->type, tensor_cores), amount);
}

/* ---- algorithms: there is one for each direction, which needs no workspace ---- */

enum { IMPLICIT_GEMM = 1 }; /* forward "implicit precomputed GEMM", backward "algorithm 1": the deterministic ones */

/* cudnnConvolution...AlgoPerf_t: alike for the three directions. */
typedef struct {
    int algorithm;
    int status;
    float milliseconds; /* -1: not measured */
    size_t workspace_bytes;
    int determinism;
    int math_type;
    int reserved[3];
} algorithm_result;

_Static_assert(sizeof(algorithm_result) == 48, "as in the interface");

static cudnn_status the_algorithm(
    const void *handle, const convolution_call *call, int requested, int *returned, algorithm_result *results) {
    if (!cudnn_find(handle) || requested <= 0 || !returned || !results)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "no handle, or no room for a result");
    *returned = 0;
    cudnn_status status = check(call);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    results[0] = (algorithm_result){
        .algorithm = IMPLICIT_GEMM, .milliseconds = -1, .determinism = 1, .math_type = call->convolution->math_type};
    *returned = 1;
    return CUDNN_STATUS_SUCCESS;
}

static cudnn_status no_workspace(const void *handle, const convolution_call *call, size_t *bytes) {
    if (!cudnn_find(handle) || !bytes)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "no handle, or no place for the size");
    cudnn_status status = check(call);
    if (status == CUDNN_STATUS_SUCCESS)
        *bytes = 0;
    return status;
}

EMU_EXPORT cudnn_status cudnnGetConvolutionForwardAlgorithm_v7(void *handle, const void *x, const void *w,
    const void *convolution, const void *y, int requested, int *returned, algorithm_result *results) {
    convolution_call call = call_of(x, w, y, convolution);
    return the_algorithm(handle, &call, requested, returned, results);
}

EMU_EXPORT cudnn_status cudnnGetConvolutionBackwardDataAlgorithm_v7(void *handle, const void *w, const void *dy,
    const void *convolution, const void *dx, int requested, int *returned, algorithm_result *results) {
    convolution_call call = call_of(dx, w, dy, convolution);
    return the_algorithm(handle, &call, requested, returned, results);
}

EMU_EXPORT cudnn_status cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *handle, const void *x, const void *dy,
    const void *convolution, const void *dw, int requested, int *returned, algorithm_result *results) {
    convolution_call call = call_of(x, dw, dy, convolution);
    return the_algorithm(handle, &call, requested, returned, results);
}

/* The library would try each algorithm on the device; there is nothing to choose between. */
EMU_EXPORT cudnn_status cudnnFindConvolutionForwardAlgorithmEx(void *handle, const void *x, const void *x_data, const void *w,
    const void *w_data, const void *convolution, const void *y, void *y_data, int requested, int *returned,
    algorithm_result *results, void *workspace, size_t workspace_bytes) {
    convolution_call call = call_of(x, w, y, convolution);
    (void)x_data, (void)w_data, (void)y_data, (void)workspace, (void)workspace_bytes;
    return the_algorithm(handle, &call, requested, returned, results);
}

EMU_EXPORT cudnn_status cudnnFindConvolutionBackwardDataAlgorithmEx(void *handle, const void *w, const void *w_data,
    const void *dy, const void *dy_data, const void *convolution, const void *dx, void *dx_data, int requested, int *returned,
    algorithm_result *results, void *workspace, size_t workspace_bytes) {
    convolution_call call = call_of(dx, w, dy, convolution);
    (void)w_data, (void)dy_data, (void)dx_data, (void)workspace, (void)workspace_bytes;
    return the_algorithm(handle, &call, requested, returned, results);
}

EMU_EXPORT cudnn_status cudnnFindConvolutionBackwardFilterAlgorithmEx(void *handle, const void *x, const void *x_data,
    const void *dy, const void *dy_data, const void *convolution, const void *dw, void *dw_data, int requested, int *returned,
    algorithm_result *results, void *workspace, size_t workspace_bytes) {
    convolution_call call = call_of(x, dw, dy, convolution);
    (void)x_data, (void)dy_data, (void)dw_data, (void)workspace, (void)workspace_bytes;
    return the_algorithm(handle, &call, requested, returned, results);
}

EMU_EXPORT cudnn_status cudnnGetConvolutionForwardWorkspaceSize(
    void *handle, const void *x, const void *w, const void *convolution, const void *y, int algorithm, size_t *bytes) {
    convolution_call call = call_of(x, w, y, convolution);
    (void)algorithm;
    return no_workspace(handle, &call, bytes);
}

EMU_EXPORT cudnn_status cudnnGetConvolutionBackwardDataWorkspaceSize(
    void *handle, const void *w, const void *dy, const void *convolution, const void *dx, int algorithm, size_t *bytes) {
    convolution_call call = call_of(dx, w, dy, convolution);
    (void)algorithm;
    return no_workspace(handle, &call, bytes);
}

EMU_EXPORT cudnn_status cudnnGetConvolutionBackwardFilterWorkspaceSize(
    void *handle, const void *x, const void *dy, const void *convolution, const void *dw, int algorithm, size_t *bytes) {
    convolution_call call = call_of(x, dw, dy, convolution);
    (void)algorithm;
    return no_workspace(handle, &call, bytes);
}

/* ---- work ---- */

EMU_EXPORT cudnn_status cudnnConvolutionForward(void *handle, const void *alpha, const void *x, const void *x_data,
    const void *w, const void *w_data, const void *convolution, int algorithm, void *workspace, size_t workspace_bytes,
    const void *beta, const void *y, void *y_data) {
    convolution_call call = call_of(x, w, y, convolution);
    (void)x_data, (void)w_data, (void)y_data, (void)algorithm, (void)workspace, (void)workspace_bytes;
    if (!alpha || !beta)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "alpha and beta");
    return launch(handle, FORWARD, &call, 0);
}

EMU_EXPORT cudnn_status cudnnConvolutionBackwardData(void *handle, const void *alpha, const void *w, const void *w_data,
    const void *dy, const void *dy_data, const void *convolution, int algorithm, void *workspace, size_t workspace_bytes,
    const void *beta, const void *dx, void *dx_data) {
    convolution_call call = call_of(dx, w, dy, convolution);
    (void)w_data, (void)dy_data, (void)dx_data, (void)algorithm, (void)workspace, (void)workspace_bytes;
    if (!alpha || !beta)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "alpha and beta");
    return launch(handle, BACKWARD_DATA, &call, 0);
}

EMU_EXPORT cudnn_status cudnnConvolutionBackwardFilter(void *handle, const void *alpha, const void *x, const void *x_data,
    const void *dy, const void *dy_data, const void *convolution, int algorithm, void *workspace, size_t workspace_bytes,
    const void *beta, const void *dw, void *dw_data) {
    convolution_call call = call_of(x, dw, dy, convolution);
    (void)x_data, (void)dy_data, (void)dw_data, (void)algorithm, (void)workspace, (void)workspace_bytes;
    if (!alpha || !beta)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "alpha and beta");
    return launch(handle, BACKWARD_FILTER, &call, 0);
}

/* y = activation(convolution(x, w) + z + bias). */
EMU_EXPORT cudnn_status cudnnConvolutionBiasActivationForward(void *handle, const void *alpha1, const void *x,
    const void *x_data, const void *w, const void *w_data, const void *convolution, int algorithm, void *workspace,
    size_t workspace_bytes, const void *alpha2, const void *z, const void *z_data, const void *bias, const void *bias_data,
    const void *activation, const void *y, void *y_data) {
    convolution_call call = call_of(x, w, y, convolution);
    (void)x_data, (void)w_data, (void)y_data, (void)algorithm, (void)workspace, (void)workspace_bytes;
    (void)z_data, (void)bias_data, (void)activation;
    if (!alpha1 || !alpha2)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "alpha1 and alpha2");
    double more = cudnn_tensor_bytes(cudnn_find_tensor(z)) + cudnn_tensor_bytes(cudnn_find_tensor(bias));
    return launch(handle, FORWARD, &call, more);
}
