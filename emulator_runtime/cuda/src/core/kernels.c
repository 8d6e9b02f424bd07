/* What a program's own kernels read, write and calculate.
 *
 * A kernel is machine code that nobody reads here. But its mangled name, its launch and its arguments say much: PyTorch's elementwise
 * kernels, for example, have the number of their tensors and the type of the elements in the name, and a fixed number of elements
 * a thread. The families below are those that matter for training; of others it is assumed that each thread moves a few values.
 */
#include "internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* How many elements a launch has. */
typedef enum {
    BY_THREAD,          /* so many each */
    BY_VECTORS,         /* as torch's vectorized_elementwise_kernel: eight a thread */
    BY_TEMPLATE,        /* so many as the second number of the template says: elementwise_kernel<128, 4, ...> */
    BY_CHUNK,           /* a block has a chunk of 65,536 elements of a list of tensors, most of them not full */
    DEPTHWISE_GRADIENT  /* a block for each filter; the arguments say over how many positions it sums */
} count_rule;

struct kernel_family {
    const char *part;   /* of the name */
    count_rule rule;
    double elements;    /* BY_THREAD */
    double tensors;     /* read or written, where the name doesn't say */
    double slowness;    /* how much longer than memory traffic it takes: how well such a kernel is known to use memory */
};

/* The first that fits counts. The factors are fitted to published step times, see docs/cuda.md. */
static const kernel_family FAMILIES[] = {
    {"vectorized_elementwise_kernel", BY_VECTORS, 8, 2, 1},
    {"unrolled_elementwise_kernel", BY_VECTORS, 8, 2, 1},
    {"elementwise_kernel", BY_TEMPLATE, 4, 2, 1},
    {"multi_tensor_apply_kernel", BY_CHUNK, 0, 2, 1},
    {"conv_depthwise2d_grad_weight_kernel", DEPTHWISE_GRADIENT, 0, 2, 4},
    {"conv_depthwise2d", BY_THREAD, 1, 2, 4},
    {"max_pool_backward_nchw", BY_THREAD, 16, 3, 1},
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
    if (strstr(name, "4Half") != NULL || strstr(name, "8BFloat16") != NULL || strstr(name, "13__nv_bfloat16") != NULL)
        return 2;
    return 4;
}

/* Tensors that a kernel reads or writes: std::array<char*, 3> or TensorListMetadata<3> in the name; three if it adds or the like. */
static double tensors_of(const char *name, const kernel_family *family) {
    double pointers = number_after(name, "5arrayIPcLm");
    if (pointers == 0)
        pointers = number_after(name, "TensorListMetadataILi");
    if (pointers == 0 && family->rule == BY_TEMPLATE && strstr(name, "BinaryFunctor") == NULL && strstr(name, "Functor_add") == NULL)
        return family->tensors;
    return pointers > 0 ? pointers : family->rule == BY_TEMPLATE ? 3 : family->tensors;
}

const kernel_family *kernel_family_of(const char *name, double *bytes_per_element) {
    const kernel_family *family = FAMILIES;
    while (strstr(name, family->part) == NULL)
        family++;
    *bytes_per_element = element_bytes(name) * tensors_of(name, family) * family->slowness;
    return family;
}

static double threads_of(const emu_work *work) {
    double count = 1;
    for (int i = 0; i < 3; i++)
        count *= (double)work->grid[i] * work->block[i];
    return count;
}

/* The arguments of conv_depthwise2d_grad_weight_kernel: 3 tensors, batch, channels in, of the kernel, multiplier, width and height
 * in, width and height out, ... */
static double depthwise_elements(const emu_work *work, void *const *arguments) {
    if (arguments == NULL)
        return threads_of(work);
    int batch = *(const int *)arguments[3], channels = *(const int *)arguments[4];
    int width = *(const int *)arguments[9], height = *(const int *)arguments[10];
    return (double)batch * channels * width * height;
}

void kernel_describe(const kernel_family *family, double bytes_per_element, void *const *arguments, emu_work *work) {
    double elements = threads_of(work) * family->elements;
    if (family->rule == BY_TEMPLATE) {
        double given = number_after(work->name, "elementwise_kernelILi128ELi");
        elements = threads_of(work) * (given > 0 ? given : family->elements);
    } else if (family->rule == BY_CHUNK) {
        elements = (double)work->grid[0] * 65536 * 0.6;
    } else if (family->rule == DEPTHWISE_GRADIENT) {
        elements = depthwise_elements(work, arguments);
    }
    work->bytes = elements * bytes_per_element;
}
