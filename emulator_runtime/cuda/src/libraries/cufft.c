/* libcufft: plans, and the time that their execution takes. Nothing is transformed.
 *
 * Covers the part of the interface that frameworks use: plans of any rank with complex and real data (cufftXtMakePlanMany), with
 * a work area of the plan's own or of the program's. */
#include "core.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

typedef enum {
    CUFFT_SUCCESS = 0,
    CUFFT_INVALID_PLAN = 1,
    CUFFT_ALLOC_FAILED = 2,
    CUFFT_INVALID_TYPE = 3,
    CUFFT_INVALID_VALUE = 4,
    CUFFT_EXEC_FAILED = 6,
    CUFFT_INVALID_SIZE = 8,
} cufft_status;

enum { FORWARD = -1, INVERSE = 1 };
enum { MOST_PLANS = 1 << 16, MOST_DIMENSIONS = 3 };

typedef struct {
    emu_precision precision;
    size_t bytes; /* of a real number */
    bool is_complex;
} number_type;

typedef struct {
    bool made;
    bool owns_work_area;
    void *stream;
    void *work_area; /* the plan's own */
    emu_work work;   /* one execution */
} plan;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static plan *plans[MOST_PLANS]; /* a handle is an index, plus one */
static int next_plan;

/* The numbers of cudaDataType that transforms can have. */
static bool read_type(int type, number_type *result) {
    switch (type) {
    case 0:
    case 4:
        *result = (number_type){EMU_FP32, 4, type == 4};
        return true;
    case 1:
    case 5:
        *result = (number_type){EMU_FP64, 8, type == 5};
        return true;
    case 2:
    case 6:
        *result = (number_type){EMU_FP16, 2, type == 6};
        return true;
    case 14:
    case 15:
        *result = (number_type){EMU_BF16, 2, type == 15};
        return true;
    default:
        return false;
    }
}

/* With the lock held. NULL: no such plan. */
static plan *find(int handle) {
    return handle >= 1 && handle <= MOST_PLANS ? plans[handle - 1] : NULL;
}

EMU_EXPORT cufft_status cufftCreate(int *handle) {
    if (handle == NULL)
        return CUFFT_INVALID_VALUE;
    plan *created = calloc(1, sizeof *created);
    if (created == NULL)
        return CUFFT_ALLOC_FAILED;
    created->owns_work_area = true;
    pthread_mutex_lock(&lock);
    int tried = 0;
    while (tried < MOST_PLANS && plans[next_plan] != NULL) {
        next_plan = (next_plan + 1) % MOST_PLANS;
        tried++;
    }
    bool room = plans[next_plan] == NULL;
    if (room) {
        plans[next_plan] = created;
        *handle = next_plan + 1;
        next_plan = (next_plan + 1) % MOST_PLANS;
    }
    pthread_mutex_unlock(&lock);
    if (!room)
        free(created);
    return room ? CUFFT_SUCCESS : CUFFT_ALLOC_FAILED;
}

EMU_EXPORT cufft_status cufftDestroy(int handle) {
    pthread_mutex_lock(&lock);
    plan *destroyed = find(handle);
    if (destroyed != NULL)
        plans[handle - 1] = NULL;
    pthread_mutex_unlock(&lock);
    if (destroyed == NULL)
        return CUFFT_INVALID_PLAN;
    emu_memory_free(EMU_MEMORY_DEVICE, destroyed->work_area);
    free(destroyed);
    return CUFFT_SUCCESS;
}

EMU_EXPORT cufft_status cufftSetAutoAllocation(int handle, int automatic) {
    pthread_mutex_lock(&lock);
    plan *changed = find(handle);
    if (changed != NULL)
        changed->owns_work_area = automatic != 0;
    pthread_mutex_unlock(&lock);
    return changed == NULL ? CUFFT_INVALID_PLAN : CUFFT_SUCCESS;
}

EMU_EXPORT cufft_status cufftSetStream(int handle, void *stream) {
    pthread_mutex_lock(&lock);
    plan *changed = find(handle);
    if (changed != NULL)
        changed->stream = stream;
    pthread_mutex_unlock(&lock);
    return changed == NULL ? CUFFT_INVALID_PLAN : CUFFT_SUCCESS;
}

/* The area only has to be there. */
EMU_EXPORT cufft_status cufftSetWorkArea(int handle, void *area) {
    (void)area;
    pthread_mutex_lock(&lock);
    bool known = find(handle) != NULL;
    pthread_mutex_unlock(&lock);
    return known ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN;
}

/* What a transform of `elements` points in `rank` dimensions does, `batch` times.
 *
 * 5 N log2 N operations (2.5 if one side is real) is the count by which FFTs are compared (Frigo and Johnson, "The Design and
 * Implementation of FFTW3", 2005). Each dimension is a pass over the data: that is what takes the time on a GPU. */
static emu_work work_of(int rank, double elements, double batch, number_type input, number_type output) {
    double factor = input.is_complex && output.is_complex ? 5 : 2.5;
    double numbers = (input.is_complex ? 2 : 1) + (output.is_complex ? 2 : 1);
    return (emu_work){
        .kind = EMU_MEMORY_BOUND,
        .name = "fft",
        .precision = input.precision == EMU_FP64 ? EMU_FP64 : EMU_FP32, /* no tensor cores */
        .flops = factor * elements * log2(elements > 1 ? elements : 2) * batch,
        .bytes = rank * elements * batch * numbers * (double)input.bytes,
    };
}

/* A line of a power of two that fits a multiprocessor is transformed there; other transforms keep a copy of the data. */
static double work_area_bytes(int rank, double elements, double batch, number_type type) {
    const double longest_line = 8192;
    bool in_place = rank == 1 && elements <= longest_line && exp2(floor(log2(elements))) == elements;
    return in_place ? 0 : elements * batch * 2 * (double)type.bytes;
}

static cufft_status make(plan *made, emu_work work, size_t area_bytes) {
    if (made->made)
        return CUFFT_INVALID_PLAN;
    if (made->owns_work_area && area_bytes > 0) {
        if (emu_memory_allocate(emu_current_device(), EMU_MEMORY_DEVICE, area_bytes, &made->work_area) != EMU_OK)
            return CUFFT_ALLOC_FAILED;
    }
    made->work = work;
    made->made = true;
    return CUFFT_SUCCESS;
}

/* The layouts (inembed, istride, idist, ...) don't matter where nothing is read. */
EMU_EXPORT cufft_status cufftXtMakePlanMany(
    int handle, int rank, long long *sizes, long long *input_layout, long long input_stride, long long input_distance,
    int input_type, long long *output_layout, long long output_stride, long long output_distance, int output_type,
    long long batch, size_t *work_bytes, int execution_type) {
    (void)input_layout, (void)input_stride, (void)input_distance;
    (void)output_layout, (void)output_stride, (void)output_distance;
    number_type input, output, execution;
    if (rank < 1 || rank > MOST_DIMENSIONS || sizes == NULL || work_bytes == NULL)
        return CUFFT_INVALID_VALUE;
    if (!read_type(input_type, &input) || !read_type(output_type, &output) || !read_type(execution_type, &execution))
        return CUFFT_INVALID_TYPE;
    if (input.precision != output.precision || input.precision != execution.precision)
        return CUFFT_INVALID_TYPE;
    if (!execution.is_complex || (!input.is_complex && !output.is_complex))
        return CUFFT_INVALID_TYPE;
    double elements = 1;
    for (int i = 0; i < rank; i++) {
        if (sizes[i] < 1)
            return CUFFT_INVALID_SIZE;
        elements *= (double)sizes[i];
    }
    if (batch < 1)
        return CUFFT_INVALID_SIZE;
    double area_bytes = work_area_bytes(rank, elements, (double)batch, input);
    if (area_bytes >= 0x1p60)
        return CUFFT_ALLOC_FAILED;
    pthread_mutex_lock(&lock);
    plan *made = find(handle);
    cufft_status status = CUFFT_INVALID_PLAN;
    if (made != NULL)
        status = make(made, work_of(rank, elements, (double)batch, input, output), (size_t)area_bytes);
    pthread_mutex_unlock(&lock);
    if (status == CUFFT_SUCCESS)
        *work_bytes = (size_t)area_bytes;
    return status;
}

EMU_EXPORT cufft_status cufftXtExec(int handle, void *input, void *output, int direction) {
    if (input == NULL || output == NULL || (direction != FORWARD && direction != INVERSE))
        return CUFFT_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    const plan *executed = find(handle);
    bool known = executed != NULL && executed->made;
    emu_work work = known ? executed->work : (emu_work){0};
    void *handle_of_stream = known ? executed->stream : NULL;
    pthread_mutex_unlock(&lock);
    if (!known)
        return CUFFT_INVALID_PLAN;
    emu_stream *stream = emu_stream_of(handle_of_stream);
    if (stream == NULL || emu_launch(stream, &work) != EMU_OK)
        return CUFFT_EXEC_FAILED;
    return CUFFT_SUCCESS;
}
