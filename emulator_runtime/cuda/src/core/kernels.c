/* What a program's own kernels read, write and calculate.
 *
 * A kernel is machine code that nobody reads here. But its mangled name, its launch and its arguments say much: PyTorch's elementwise
 * kernels, for example, have the number of their tensors and the type of the elements in the name, and a fixed number of elements
 * a thread. The families below are those that matter for training; of others it is assumed that each thread moves a few values.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* What a launch's size goes by. */
typedef enum {
    BY_THREAD,
    BY_TEMPLATE,        /* by threads, each with as many elements as the template's second number says */
    BY_BLOCK,
    DEPTHWISE_GRADIENT  /* a block for each filter; the arguments say over how many positions it sums */
} size_rule;

typedef struct {
    const char *part;   /* of the name */
    size_rule rule;
    double elements;    /* of a thread or block */
    double tensors;     /* read or written, where the name doesn't say */
    double slowness;    /* how much longer it takes than memory traffic does */
} family;

/* The first that fits counts. Torch's vectorized_elementwise_kernel has eight elements a thread; multi_tensor_apply_kernel gives a
 * block 65,536 elements of a list of tensors, of which many are smaller. The factors of slowness are fitted to published step
 * times, see docs/cuda.md. */
static const family FAMILIES[] = {
    {"vectorized_elementwise_kernel", BY_THREAD, 8, 2, 1},
    {"unrolled_elementwise_kernel", BY_THREAD, 8, 2, 1},
    {"elementwise_kernelILi128ELi", BY_TEMPLATE, 4, 2, 1},
    {"multi_tensor_apply_kernel", BY_BLOCK, 40000, 2, 1},
    {"conv_depthwise2d_grad_weight_kernel", DEPTHWISE_GRADIENT, 1, 2, 4.4},
    {"conv_depthwise2d", BY_THREAD, 1, 2, 4.4},
    {"max_pool_backward_nchw", BY_THREAD, 3.2, 3, 1},
    {"max_pool_forward_nchw", BY_THREAD, 1, 7, 1},
    {"CatArrayBatchedCopy", BY_THREAD, 4, 2, 1},
    {"reduce_kernel", BY_THREAD, 4, 1, 1},
    {"", BY_THREAD, 1, 3, 1},
};

/* The number behind `mark` in a name; 0: there is none. */
static double number_after(const char *name, const char *mark) {
    const char *found = strstr(name, mark);
    return found == NULL ? 0 : strtod(found + strlen(mark), NULL);
}

/* Bytes of an element: by the types of half precision that the name mentions, else those of a float. */
static double element_bytes(const char *name) {
    bool half = strstr(name, "4Half") != NULL || strstr(name, "8BFloat16") != NULL || strstr(name, "__nv_bfloat16") != NULL;
    return half ? 2 : 4;
}

/* Tensors that a kernel reads or writes: by std::array<char*, 3> or TensorListMetadata<3> in the name; three if it takes two. */
static double tensors_of(const char *name, const family *its) {
    double pointers = number_after(name, "5arrayIPcLm");
    if (pointers == 0)
        pointers = number_after(name, "TensorListMetadataILi");
    if (pointers > 0)
        return pointers;
    bool binary = its->rule == BY_TEMPLATE && (strstr(name, "BinaryFunctor") != NULL || strstr(name, "Functor_add") != NULL);
    return binary ? 3 : its->tensors;
}

kernel_traffic kernel_traffic_of(const char *name) {
    const family *its = FAMILIES;
    while (strstr(name, its->part) == NULL)
        its++;
    double elements = its->elements;
    if (its->rule == BY_TEMPLATE && number_after(name, its->part) > 0)
        elements = number_after(name, its->part);
    return (kernel_traffic){.by_block = its->rule == BY_BLOCK, .by_arguments = its->rule == DEPTHWISE_GRADIENT,
                            .bytes = elements * element_bytes(name) * tensors_of(name, its) * its->slowness};
}

static double product(const unsigned sizes[3]) {
    return (double)sizes[0] * sizes[1] * sizes[2];
}

/* The arguments of conv_depthwise2d_grad_weight_kernel: 3 tensors, batch, channels in, of the kernel, multiplier, width and height
 * in, width and height out, ... */
static double depthwise_elements(void *const *arguments) {
    double elements = 1;
    for (int i = 0; i < 4; i++)
        elements *= *(const int *)arguments[(const int[]){3, 4, 9, 10}[i]];
    return elements;
}

double kernel_bytes(const kernel_traffic *traffic, const unsigned grid[3], const unsigned block[3], void *const *arguments) {
    double units = product(grid);
    if (traffic->by_arguments && arguments != NULL)
        units = depthwise_elements(arguments);
    else if (!traffic->by_block)
        units *= product(block);
    return units * traffic->bytes;
}
