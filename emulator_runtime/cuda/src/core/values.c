/* The values that a program reads back: those that the host or other processes wrote, and for what kernels computed a guess.
 *
 * Kernels write nothing (memory.c). But programs let the host's way depend on small values: sizes of objects that ranks exchange,
 * flags, counts. So the last small writes are remembered, kernels that add a few integers of them do it, and other small reads
 * of what kernels wrote are answered by the last kernel's name. All of this happens in the order of the stream: what a kernel reads
 * may come from a collective that still waits for another rank when the kernel is launched. docs/cuda.md says what a program reads.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { REMEMBERED_WRITES = 64, KERNELS_AFTER_EXCHANGE = 64, MOST_REDUCED_BYTES = 4096, MOST_INTEGERS = 64, CONCATENATED = 128,
       MOST_CONCATENATED_BYTES = 64 << 10, MOST_PARAMETERS = 3 };

/* The last small places that the host wrote, to tell their values from what kernels would have written since. */
static struct {
    uintptr_t address;
    size_t bytes;
    int device;
    uint64_t until; /* so many launches of the device */
    bool exchanged; /* came from other processes */
} writes[REMEMBERED_WRITES];
static unsigned write_count;

/* What ranks tell each other (sizes, flags, pickled objects) is often compared by some kernels before it is read, and not changed. */
void values_written(const void *address, size_t bytes, int device, bool exchanged) {
    unsigned i = write_count++ % REMEMBERED_WRITES;
    writes[i].address = (uintptr_t)address;
    writes[i].bytes = bytes;
    writes[i].device = device;
    writes[i].until = devices[device].launches + (exchanged ? KERNELS_AFTER_EXCHANGE : 0);
    writes[i].exchanged = exchanged;
}

/* A kernel has written there: what the host or others wrote counts no more. */
static void forget(const void *address, size_t bytes, int device) {
    uintptr_t at = (uintptr_t)address;
    for (unsigned i = 0; i < REMEMBERED_WRITES && i < write_count; i++)
        if (writes[i].device == device && writes[i].address < at + bytes && at < writes[i].address + writes[i].bytes)
            writes[i].bytes = 0;
}

/* How many bytes from this address on one remembered write has, of which no kernel since is likely to have changed any. 0: none has
 * the byte there. */
static size_t remembered_from(uintptr_t at, int device, bool *exchanged) {
    for (unsigned i = 0; i < REMEMBERED_WRITES && i < write_count; i++) {
        bool inside = at >= writes[i].address && at - writes[i].address < writes[i].bytes;
        if (inside && writes[i].device == device && writes[i].until >= devices[device].launches) {
            *exchanged = writes[i].exchanged;
            return writes[i].bytes - (at - writes[i].address);
        }
    }
    return 0;
}

/* Whether the host or other processes wrote this place, in one piece or in several, and no kernel has run since that is likely to
 * have changed it. `exchanged`: all of it came from other processes. */
bool values_known(const void *address, size_t bytes, int device, bool *exchanged) {
    uintptr_t at = (uintptr_t)address, end = at + bytes;
    *exchanged = true;
    while (at < end) {
        bool part_exchanged;
        size_t length = remembered_from(at, device, &part_exchanged);
        if (length == 0)
            return false;
        *exchanged &= part_exchanged;
        at += length;
    }
    return true;
}

/* The place that another process wrote last. False: there is none any more. */
static bool last_exchanged(int device, const char **address, size_t *bytes) {
    for (unsigned back = 1; back <= REMEMBERED_WRITES && back <= write_count; back++) {
        unsigned i = (write_count - back) % REMEMBERED_WRITES;
        *address = (const char *)writes[i].address;
        *bytes = writes[i].bytes;
        if (writes[i].exchanged && writes[i].device == device && writes[i].until >= devices[device].launches)
            return memory_contains(*address, *bytes);
    }
    return false;
}

/* A sum, maximum or minimum of integers, by the name of torch's kernel, is that of the integers that came last from other processes:
 * the sizes of the objects that they will send. False: it isn't one of these. */
static bool reduced_integer(const char *work, const void *from, int device, int64_t *value) {
    bool sum = strstr(work, "ReduceOpIl") != NULL && strstr(work, "sum_functorIl") != NULL;
    bool most = strstr(work, "ReduceOpIl") != NULL && strstr(work, "MaxNanFunctorIl") != NULL;
    bool smallest = strstr(work, "ReduceOpIl") != NULL && strstr(work, "MinNanFunctorIl") != NULL;
    const char *address;
    size_t bytes;
    if ((!sum && !most && !smallest) || !last_exchanged(device, &address, &bytes))
        return false;
    if ((const char *)from >= address && (const char *)from < address + bytes)
        return false; /* one of those integers is read */
    if (bytes % sizeof *value != 0 || bytes > MOST_REDUCED_BYTES)
        return false;
    memcpy(value, address, sizeof *value);
    for (size_t at = sizeof *value; at < bytes; at += sizeof *value) {
        int64_t one;
        memcpy(&one, address + at, sizeof one);
        if (sum)
            *value += one;
        else if (most ? one > *value : one < *value)
            *value = one;
    }
    return true;
}

static bool any_of(const char *text, const char *const *words) {
    for (; *words != NULL; words++) {
        if (strstr(text, *words) != NULL)
            return true;
    }
    return false;
}

/* The value of a small read of what a kernel wrote, by the name of the last kernel: "and" reductions are true (isfinite(x).all()),
 * counts and flags are zero, a reduction of integers is that of those that came from other processes, and a float is the configured
 * scalar. */
bool values_computed(void *to, const void *from, size_t bytes, int device) {
    static const char *const counting[] = {"cub", "nonzero", "unique", "count", "Reduce<int", NULL};
    const char *work = devices[device].last_work == NULL ? "" : devices[device].last_work;
    float value = (float)settings.scalar;
    int64_t reduced;
    bool exchanged;
    if (bytes == sizeof reduced && reduced_integer(work, from, device, &reduced)) {
        memcpy(to, &reduced, sizeof reduced); /* also where the result has the place of what was read before */
        return true;
    }
    if (values_known(from, bytes, device, &exchanged))
        return false;
    memset(to, 0, bytes);
    if (bytes == 1 && strstr(work, "and_kernel") != NULL)
        *(unsigned char *)to = 1;
    else if (bytes == sizeof value && !any_of(work, counting))
        memcpy(to, &value, sizeof value);
    return true;
}

/* ---- kernels that are executed ---- */

/* Ranks exchange objects: their sizes are put together, sent, compared, and added up to where each one begins. Torch's kernels for
 * this are executed, if all that they read is known. Each answers whether it was; the parameters are torch's (ATen/native/cuda/CUDALoops.cuh,
 * CompareKernels.cu, Shape.cu). */

static bool known_on(int device, const void *address, size_t bytes, bool *exchanged) {
    int its;
    bool one;
    if (memory_place_of(address, &its) != PLACE_DEVICE || its != device || !memory_contains(address, bytes))
        return false;
    if (!values_known(address, bytes, device, &one))
        return false;
    *exchanged &= one;
    return true;
}

static bool writable_on(int device, const void *address, size_t bytes) {
    int its;
    return memory_place_of(address, &its) == PLACE_DEVICE && its == device && memory_contains(address, bytes);
}

/* (int count, functor, int64_t *tensors[], ...), the result first: tensor + factor * number, where the functor is {number, factor};
 * or tensor + factor * tensor, where it is {factor}. */
static bool add_integers(const char *kernel, void *const *arguments, const unsigned grid[3], int device) {
    (void)grid;
    bool of_tensors = strstr(kernel, "CUDAFunctor_addIlE") != NULL;
    int count = *(const int *)arguments[0];
    const int64_t *functor = arguments[1];
    int64_t *const *tensors = arguments[2];
    size_t bytes = (size_t)count * sizeof(int64_t);
    bool exchanged = true;
    if (count <= 0 || count > MOST_INTEGERS || !writable_on(device, tensors[0], bytes))
        return false;
    if (!known_on(device, tensors[1], bytes, &exchanged) || (of_tensors && !known_on(device, tensors[2], bytes, &exchanged)))
        return false;
    for (int i = 0; i < count; i++)
        tensors[0][i] = tensors[1][i] + (of_tensors ? functor[0] * tensors[2][i] : functor[1] * functor[0]);
    memory_written(tensors[0], bytes, exchanged);
    return true;
}

/* (int count, operator, tensors[], ...): a truth value for each pair of integers. */
static bool compare_integers(const char *kernel, void *const *arguments, const unsigned grid[3], int device) {
    (void)kernel, (void)grid;
    enum { NOT_LESS, GREATER, NOT_GREATER, LESS };
    int count = *(const int *)arguments[0], operator = *(const int *)arguments[1];
    void *const *tensors = arguments[2];
    bool *results = tensors[0];
    const int64_t *ones = tensors[1], *others = tensors[2];
    size_t bytes = (size_t)count * sizeof *ones;
    bool exchanged = true;
    if (count <= 0 || count > MOST_INTEGERS || !writable_on(device, results, (size_t)count))
        return false;
    if (!known_on(device, ones, bytes, &exchanged) || !known_on(device, others, bytes, &exchanged))
        return false;
    for (int i = 0; i < count; i++) {
        bool less = ones[i] < others[i], greater = ones[i] > others[i];
        results[i] = operator == NOT_LESS ? !less : operator == GREATER ? greater : operator == NOT_GREATER ? !greater : less;
    }
    memory_written(results, (size_t)count, exchanged);
    return true;
}

/* The inputs of CatArrayBatchedCopy in one dimension, of which each has a row of blocks: where each goes, and its length. */
typedef struct {
    const char *tensors[CONCATENATED];
    unsigned offsets[CONCATENATED], sizes[CONCATENATED], elements[CONCATENATED];
} concatenation;

/* (char *result, concatenation, ...) */
static bool concatenate(const char *kernel, void *const *arguments, const unsigned grid[3], int device) {
    const char *type = strstr(kernel, "OpaqueTypeILj");
    size_t size = type == NULL ? 0 : strtoul(type + strlen("OpaqueTypeILj"), NULL, 10);
    char *result = *(char *const *)arguments[0];
    const concatenation *inputs = arguments[1];
    bool exchanged = true;
    if (size == 0 || grid[1] > CONCATENATED)
        return false;
    for (unsigned i = 0; i < grid[1]; i++) {
        size_t bytes = inputs->elements[i] * size;
        if (bytes > MOST_CONCATENATED_BYTES || !writable_on(device, result + inputs->offsets[i] * size, bytes))
            return false;
        if (!known_on(device, inputs->tensors[i], bytes, &exchanged))
            return false;
    }
    for (unsigned i = 0; i < grid[1]; i++) {
        memcpy(result + inputs->offsets[i] * size, inputs->tensors[i], inputs->elements[i] * size);
        memory_written(result + inputs->offsets[i] * size, inputs->elements[i] * size, exchanged);
    }
    return true;
}

/* cub's reduction to one value, (input, result, ...): counts what isn't zero. Its result isn't executed, but its place, which may have
 * been that of an exchanged value, has no known value any more. */
static bool reduce_to_unknown(const char *kernel, void *const *arguments, const unsigned grid[3], int device) {
    (void)kernel, (void)grid;
    forget(*(void *const *)arguments[1], sizeof(int64_t), device);
    return false;
}

struct executed_kernel {
    const char *parts[2];               /* of the name; the second may be NULL */
    size_t parameters[MOST_PARAMETERS]; /* the bytes of the first ones; 0: it isn't read */
    bool (*execute)(const char *kernel, void *const *arguments, const unsigned grid[3], int device);
};

static const executed_kernel EXECUTED[] = {
    {{"CUDAFunctorOnSelf_addIlEESt5arrayIPcLm2E"}, {sizeof(int), 2 * sizeof(int64_t), 2 * sizeof(void *)}, add_integers},
    {{"CUDAFunctor_addIlEESt5arrayIPcLm3E"}, {sizeof(int), sizeof(int64_t), 3 * sizeof(void *)}, add_integers},
    {{"CompareFunctorIlEESt5arrayIPcLm3E"}, {sizeof(int), sizeof(int), 3 * sizeof(void *)}, compare_integers},
    {{"CatArrayBatchedCopy", "EEjLi1ELi128ELi1E"}, {sizeof(char *), sizeof(concatenation)}, concatenate},
    {{"DeviceReduceSingleTileKernel"}, {0, sizeof(void *)}, reduce_to_unknown},
};

const executed_kernel *values_kernel(const char *name) {
    for (size_t i = 0; i < sizeof EXECUTED / sizeof EXECUTED[0]; i++) {
        const char *const *parts = EXECUTED[i].parts;
        if (strstr(name, parts[0]) != NULL && (parts[1] == NULL || strstr(name, parts[1]) != NULL))
            return &EXECUTED[i];
    }
    return NULL;
}

struct kernel_arguments {
    int references;
    const executed_kernel *kernel;
    void *parameters[MOST_PARAMETERS];
    int64_t values[]; /* of the parameters, each from a new element on */
};

static size_t elements_of(size_t bytes) {
    return (bytes + sizeof(int64_t) - 1) / sizeof(int64_t);
}

kernel_arguments *arguments_new(const executed_kernel *kernel, void *const *arguments) {
    size_t elements = 0;
    for (int i = 0; i < MOST_PARAMETERS; i++)
        elements += elements_of(kernel->parameters[i]);
    kernel_arguments *made = malloc(sizeof *made + elements * sizeof made->values[0]);
    if (made == NULL)
        return NULL;
    *made = (kernel_arguments){.references = 1, .kernel = kernel};
    int64_t *next = made->values;
    for (int i = 0; i < MOST_PARAMETERS; i++) {
        if (kernel->parameters[i] > 0)
            made->parameters[i] = memcpy(next, arguments[i], kernel->parameters[i]);
        next += elements_of(kernel->parameters[i]);
    }
    return made;
}

kernel_arguments *arguments_share(kernel_arguments *shared) {
    if (shared != NULL)
        shared->references++;
    return shared;
}

void arguments_release(kernel_arguments *shared) {
    if (shared != NULL && --shared->references == 0)
        free(shared);
}

void values_worked(const emu_work *work, const kernel_arguments *arguments, int device) {
    devices[device].last_work = work->name;
    if (arguments != NULL && arguments->kernel->execute(work->name, arguments->parameters, work->grid, device))
        return; /* what else is known stays so */
    devices[device].launches++;
}
