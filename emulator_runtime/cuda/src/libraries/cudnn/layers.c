/* libcudnn: batch normalization, pooling, CTC loss and spatial transformers. Their time goes by the bytes that they move. */
#include "mathematics/objects.h"
#include "descriptors.h"

static cudnn_status no_handle(void) {
    return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "not a live handle");
}

static cudnn_status no_tensor(void) {
    return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "a tensor's descriptor isn't live, or was never set");
}

/* ---- batch normalization ---- */

enum { BATCHNORM_MODES = 3 };
typedef enum { ONLY_NORMALIZE, THEN_ACTIVATE, THEN_ADD_AND_ACTIVATE } batchnorm_operations;

static bool batchnorm_is_valid(int mode, int operations) {
    return mode >= 0 && mode < BATCHNORM_MODES && operations >= ONLY_NORMALIZE && operations <= THEN_ADD_AND_ACTIVATE;
}

static cudnn_status no_batchnorm(int mode, int operations) {
    return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "batch normalization of mode %d with operations %d", mode, operations);
}

static bool same_shape(const cudnn_tensor *a, const cudnn_tensor *b) {
    bool same = a->count == b->count;
    for (int i = 0; same && i < a->count; i++)
        same = a->sizes[i] == b->sizes[i];
    return same;
}

static cudnn_status batchnorm_workspace(
    const void *handle, int mode, int operations, const void *x, size_t *bytes, size_t wanted) {
    if (!cudnn_find(handle) || !bytes)
        return no_handle();
    if (!batchnorm_is_valid(mode, operations))
        return no_batchnorm(mode, operations);
    if (!cudnn_find_tensor(x))
        return no_tensor();
    *bytes = wanted;
    return CUDNN_STATUS_SUCCESS;
}

EMU_EXPORT cudnn_status cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int operations,
    const void *x, const void *z, const void *y, const void *statistics, const void *activation, size_t *bytes) {
    (void)z, (void)y, (void)statistics, (void)activation;
    return batchnorm_workspace(handle, mode, operations, x, bytes, 0);
}

EMU_EXPORT cudnn_status cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int operations, const void *x,
    const void *y, const void *dy, const void *dz, const void *dx, const void *statistics, const void *activation,
    size_t *bytes) {
    (void)y, (void)dy, (void)dz, (void)dx, (void)statistics, (void)activation;
    return batchnorm_workspace(handle, mode, operations, x, bytes, 0);
}

/* What the forward pass keeps for the backward pass: a bit for each element says where the activation let it through. */
EMU_EXPORT cudnn_status cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    void *handle, int mode, int operations, const void *activation, const void *x, size_t *bytes) {
    const cudnn_tensor *tensor = cudnn_find_tensor(x);
    (void)activation;
    size_t mask = tensor && operations != ONLY_NORMALIZE ? ((size_t)cudnn_tensor_elements(tensor) + 31) / 32 * 4 : 0;
    return batchnorm_workspace(handle, mode, operations, x, bytes, mask);
}

/* Two passes: one over x for the statistics, one that reads x, and z if it is added, and writes y. */
EMU_EXPORT cudnn_status cudnnBatchNormalizationForwardTrainingEx(void *handle, int mode, int operations, const void *alpha,
    const void *beta, const void *x, const void *x_data, const void *z, const void *z_data, const void *y, void *y_data,
    const void *statistics, const void *scale, const void *bias, double factor, void *running_mean, void *running_variance,
    double epsilon, void *saved_mean, void *saved_variance, const void *activation, void *workspace, size_t workspace_bytes,
    void *reserve, size_t reserve_bytes) {
    const cudnn_handle *found = cudnn_find(handle);
    const cudnn_tensor *input = cudnn_find_tensor(x), *output = cudnn_find_tensor(y);
    (void)x_data, (void)z_data, (void)y_data, (void)scale, (void)bias, (void)factor, (void)running_mean;
    (void)running_variance, (void)epsilon, (void)saved_mean, (void)saved_variance, (void)activation, (void)workspace;
    (void)workspace_bytes, (void)reserve, (void)reserve_bytes;
    if (!found)
        return no_handle();
    if (!batchnorm_is_valid(mode, operations) || !alpha || !beta)
        return no_batchnorm(mode, operations);
    if (!input || !output || !cudnn_find_tensor(statistics) || !same_shape(input, output))
        return no_tensor();
    double added = operations == THEN_ADD_AND_ACTIVATE ? cudnn_tensor_bytes(cudnn_find_tensor(z)) : 0;
    double bytes = 2 * cudnn_tensor_bytes(input) + cudnn_tensor_bytes(output) + added;
    return cudnn_launch_memory_bound(found, "batch_norm_forward", bytes);
}

EMU_EXPORT cudnn_status cudnnBatchNormalizationForwardInference(void *handle, int mode, const void *alpha, const void *beta,
    const void *x, const void *x_data, const void *y, void *y_data, const void *statistics, const void *scale, const void *bias,
    const void *mean, const void *variance, double epsilon) {
    const cudnn_handle *found = cudnn_find(handle);
    const cudnn_tensor *input = cudnn_find_tensor(x), *output = cudnn_find_tensor(y);
    (void)x_data, (void)y_data, (void)scale, (void)bias, (void)mean, (void)variance, (void)epsilon;
    if (!found)
        return no_handle();
    if (!batchnorm_is_valid(mode, ONLY_NORMALIZE) || !alpha || !beta)
        return no_batchnorm(mode, ONLY_NORMALIZE);
    if (!input || !output || !cudnn_find_tensor(statistics) || !same_shape(input, output))
        return no_tensor();
    return cudnn_launch_memory_bound(found, "batch_norm_inference", cudnn_tensor_bytes(input) + cudnn_tensor_bytes(output));
}

/* Two passes: one over x and dy for the parameters' gradients, one that reads them again and writes dx, and dz. */
EMU_EXPORT cudnn_status cudnnBatchNormalizationBackwardEx(void *handle, int mode, int operations, const void *alpha_data,
    const void *beta_data, const void *alpha_parameters, const void *beta_parameters, const void *x, const void *x_data,
    const void *y, const void *y_data, const void *dy, const void *dy_data, const void *dz, void *dz_data, const void *dx,
    void *dx_data, const void *statistics, const void *scale, const void *bias, void *dscale, void *dbias, double epsilon,
    const void *saved_mean, const void *saved_variance, const void *activation, void *workspace, size_t workspace_bytes,
    void *reserve, size_t reserve_bytes) {
    const cudnn_handle *found = cudnn_find(handle);
    const cudnn_tensor *input = cudnn_find_tensor(x), *gradient = cudnn_find_tensor(dy), *result = cudnn_find_tensor(dx);
    (void)x_data, (void)y, (void)y_data, (void)dy_data, (void)dz_data, (void)dx_data, (void)scale, (void)bias, (void)dscale;
    (void)dbias, (void)epsilon, (void)saved_mean, (void)saved_variance, (void)activation, (void)workspace;
    (void)workspace_bytes, (void)reserve, (void)reserve_bytes;
    if (!found)
        return no_handle();
    if (!batchnorm_is_valid(mode, operations) || !alpha_data || !beta_data || !alpha_parameters || !beta_parameters)
        return no_batchnorm(mode, operations);
    if (!input || !gradient || !result || !cudnn_find_tensor(statistics) || !same_shape(input, gradient))
        return no_tensor();
    double added = operations == THEN_ADD_AND_ACTIVATE ? cudnn_tensor_bytes(cudnn_find_tensor(dz)) : 0;
    double bytes = 2 * (cudnn_tensor_bytes(input) + cudnn_tensor_bytes(gradient)) + cudnn_tensor_bytes(result) + added;
    return cudnn_launch_memory_bound(found, "batch_norm_backward", bytes);
}

/* ---- pooling ---- */

EMU_EXPORT cudnn_status cudnnPoolingForward(void *handle, const void *pooling, const void *alpha, const void *x,
    const void *x_data, const void *beta, const void *y, void *y_data) {
    const cudnn_handle *found = cudnn_find(handle);
    const cudnn_tensor *input = cudnn_find_tensor(x), *output = cudnn_find_tensor(y);
    (void)x_data, (void)y_data;
    if (!found)
        return no_handle();
    if (!object_find(CUDNN_POOLING, pooling) || !alpha || !beta)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "no pooling descriptor, alpha or beta");
    if (!input || !output || input->count != output->count || input->count < 3)
        return no_tensor();
    if (input->sizes[0] != output->sizes[0] || input->sizes[1] != output->sizes[1])
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "batch sizes or channels differ");
    return cudnn_launch_memory_bound(found, "pooling", cudnn_tensor_bytes(input) + cudnn_tensor_bytes(output));
}

/* ---- CTC loss: probabilities of steps x batch x alphabet ---- */

enum { LONGEST_LABEL = 256 }; /* the interface's limit, where a descriptor names none */

/* Forward and backward probabilities for each label with blanks around its letters. */
static double ctc_table_bytes(const cudnn_tensor *probabilities, const cudnn_ctc_loss *loss) {
    double length = loss->max_label_length > 0 ? loss->max_label_length : LONGEST_LABEL;
    return 2.0 * probabilities->sizes[0] * probabilities->sizes[1] * (2 * length + 1) * sizeof(float);
}

static cudnn_status ctc_workspace(const void *handle, const void *probabilities, const void *loss, size_t *bytes) {
    const cudnn_tensor *tensor = cudnn_find_tensor(probabilities);
    const cudnn_ctc_loss *found = object_find(CUDNN_CTC_LOSS, loss);
    if (!cudnn_find(handle))
        return no_handle();
    if (!tensor || tensor->count < 3 || !found || !bytes)
        return no_tensor();
    *bytes = (size_t)ctc_table_bytes(tensor, found);
    return CUDNN_STATUS_SUCCESS;
}

static cudnn_status ctc_loss(const void *handle, const void *probabilities, const void *gradients, const void *loss) {
    const cudnn_handle *found = cudnn_find(handle);
    const cudnn_tensor *tensor = cudnn_find_tensor(probabilities);
    const cudnn_ctc_loss *described = object_find(CUDNN_CTC_LOSS, loss);
    if (!found)
        return no_handle();
    if (!tensor || tensor->count < 3 || !described)
        return no_tensor();
    double bytes = cudnn_tensor_bytes(tensor) + cudnn_tensor_bytes(cudnn_find_tensor(gradients));
    return cudnn_launch_memory_bound(found, "ctc_loss", bytes + 2 * ctc_table_bytes(tensor, described));
}

EMU_EXPORT cudnn_status cudnnGetCTCLossWorkspaceSize(void *handle, const void *probabilities, const void *gradients,
    const int *labels, const int *label_lengths, const int *input_lengths, int algorithm, const void *loss, size_t *bytes) {
    (void)gradients, (void)algorithm;
    if (!labels || !label_lengths || !input_lengths)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "labels and lengths");
    return ctc_workspace(handle, probabilities, loss, bytes);
}

EMU_EXPORT cudnn_status cudnnGetCTCLossWorkspaceSize_v8(
    void *handle, int algorithm, const void *loss, const void *probabilities, const void *gradients, size_t *bytes) {
    (void)gradients, (void)algorithm;
    return ctc_workspace(handle, probabilities, loss, bytes);
}

EMU_EXPORT cudnn_status cudnnCTCLoss(void *handle, const void *probabilities, const void *data, const int *labels,
    const int *label_lengths, const int *input_lengths, void *costs, const void *gradients, void *gradient_data, int algorithm,
    const void *loss, void *workspace, size_t workspace_bytes) {
    (void)data, (void)costs, (void)gradient_data, (void)algorithm, (void)workspace, (void)workspace_bytes;
    if (!labels || !label_lengths || !input_lengths)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "labels and lengths");
    return ctc_loss(handle, probabilities, gradients, loss);
}

EMU_EXPORT cudnn_status cudnnCTCLoss_v8(void *handle, int algorithm, const void *loss, const void *probabilities,
    const void *data, const int *labels, const int *label_lengths, const int *input_lengths, void *costs, const void *gradients,
    void *gradient_data, size_t workspace_bytes, void *workspace) {
    (void)data, (void)labels, (void)label_lengths, (void)input_lengths, (void)costs, (void)gradient_data, (void)algorithm;
    (void)workspace, (void)workspace_bytes;
    return ctc_loss(handle, probabilities, gradients, loss);
}

/* ---- spatial transformers: a grid of sampling positions (batch x height x width x 2) ---- */

static double grid_bytes(const cudnn_spatial_transformer *transformer) {
    double positions = transformer->sizes[0];
    for (int i = 2; i < transformer->count; i++)
        positions *= transformer->sizes[i];
    return 2 * positions * cudnn_element_bytes(transformer->type);
}

static const cudnn_spatial_transformer *find_transformer(const void *descriptor) {
    const cudnn_spatial_transformer *found = object_find(CUDNN_SPATIAL_TRANSFORMER, descriptor);
    return found && found->count > 2 ? found : NULL;
}

static cudnn_status transform(const void *handle, const void *transformer, const char *name, double more_bytes) {
    const cudnn_handle *found = cudnn_find(handle);
    const cudnn_spatial_transformer *described = find_transformer(transformer);
    if (!found)
        return no_handle();
    if (!described)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "no spatial transformer's descriptor");
    return cudnn_launch_memory_bound(found, name, grid_bytes(described) + more_bytes);
}

EMU_EXPORT cudnn_status cudnnSpatialTfGridGeneratorForward(void *handle, const void *transformer, const void *theta, void *grid) {
    (void)theta, (void)grid;
    return transform(handle, transformer, "grid_generator_forward", 0);
}

EMU_EXPORT cudnn_status cudnnSpatialTfGridGeneratorBackward(
    void *handle, const void *transformer, const void *dgrid, void *dtheta) {
    (void)dgrid, (void)dtheta;
    return transform(handle, transformer, "grid_generator_backward", 0);
}

EMU_EXPORT cudnn_status cudnnSpatialTfSamplerForward(void *handle, const void *transformer, const void *alpha, const void *x,
    const void *x_data, const void *grid, const void *beta, const void *y, void *y_data) {
    const cudnn_tensor *input = cudnn_find_tensor(x), *output = cudnn_find_tensor(y);
    (void)alpha, (void)x_data, (void)grid, (void)beta, (void)y_data;
    if (!input || !output)
        return no_tensor();
    return transform(handle, transformer, "grid_sampler_forward", cudnn_tensor_bytes(input) + cudnn_tensor_bytes(output));
}

EMU_EXPORT cudnn_status cudnnSpatialTfSamplerBackward(void *handle, const void *transformer, const void *alpha, const void *x,
    const void *x_data, const void *beta, const void *dx, void *dx_data, const void *alpha_grid, const void *dy,
    const void *dy_data, const void *grid, const void *beta_grid, void *dgrid) {
    const cudnn_tensor *input = cudnn_find_tensor(x), *result = cudnn_find_tensor(dx), *gradient = cudnn_find_tensor(dy);
    (void)alpha, (void)x_data, (void)beta, (void)dx_data, (void)alpha_grid, (void)dy_data, (void)grid, (void)beta_grid;
    (void)dgrid;
    if (!input || !result || !gradient)
        return no_tensor();
    double bytes = cudnn_tensor_bytes(input) + cudnn_tensor_bytes(result) + cudnn_tensor_bytes(gradient);
    return transform(handle, transformer, "grid_sampler_backward", bytes);
}
