/* What a program gives to streams: kernels, library calls, copies, functions of the host. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { KERNEL_BUCKETS = 1 << 16 };

struct emu_kernel {
    emu_kernel *next; /* in its bucket */
    char *name;
    kernel_traffic traffic;
    const executed_kernel *executed; /* NULL: it isn't */
    bool launched;
    const measured_kernel *measured; /* once it has been launched; NULL: the table doesn't have it */
};

static emu_pool kernel_pool = {.object_bytes = sizeof(emu_kernel)};
static emu_kernel *buckets[KERNEL_BUCKETS];

/* ---- kernels ---- */

static unsigned bucket_of(const char *name) {
    unsigned hash = 2166136261u; /* FNV-1a */
    for (const char *at = name; *at != '\0'; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    return hash % KERNEL_BUCKETS;
}

static emu_kernel *new_kernel(const char *name) {
    emu_kernel *kernel = pool_take(&kernel_pool);
    char *copy = strdup(name);
    if (kernel != NULL && copy != NULL) {
        kernel->name = copy;
        kernel->traffic = kernel_traffic_of(copy);
        kernel->executed = values_kernel(copy);
        emu_kernel **bucket = &buckets[bucket_of(name)];
        kernel->next = *bucket;
        *bucket = kernel;
        return kernel;
    }
    if (kernel != NULL)
        pool_give(&kernel_pool, kernel);
    free(copy);
    return NULL;
}

emu_kernel *emu_kernel_named(const char *name) {
    pthread_mutex_lock(&core_lock);
    emu_kernel *kernel = buckets[bucket_of(name)];
    while (kernel != NULL && strcmp(kernel->name, name) != 0)
        kernel = kernel->next;
    if (kernel == NULL)
        kernel = new_kernel(name);
    pthread_mutex_unlock(&core_lock);
    return kernel;
}

bool emu_kernel_valid(const emu_kernel *kernel) {
    return pool_has(&kernel_pool, kernel);
}

const char *emu_kernel_name(const emu_kernel *kernel) {
    return kernel->name;
}

/* ---- work of the compute units ---- */

/* The lock is held. `work->name` lives as long as the process. `arguments`: of a kernel that is executed; else NULL. */
static emu_status launch(emu_stream *stream, const emu_work *work, const measured_kernel *measured, kernel_arguments *arguments) {
    device_state *device = &devices[stream->device];
    const emu_roofline *constants = &settings.devices[stream->device].roofline;
    item issued = {.kind = ITEM_WORK, .name = work->name, .engine = &device->compute, .measured = measured != NULL, .by_host = true,
                   .work = *work, .arguments = arguments};
    if (measured != NULL)
        issued.duration_ns = kernel_table_ns(measured, work->grid, work->block, constants->kernel_ns);
    else
        issued.duration_ns = cost_of_work(stream->device, work);
    if (settings.estimator == ESTIMATE_ROOFLINE)
        issued.dispatch_ns = (int64_t)constants->dispatch_ns;
    return stream_issue(stream, &issued);
}

/* What the kernel table has for a kernel. Looked up when it is first launched: programs register many more than they launch. */
static const measured_kernel *measured_times(emu_kernel *kernel) {
    if (!kernel->launched) {
        kernel->launched = true;
        kernel->measured = kernel_table_find(kernel->name);
    }
    return kernel->measured;
}

emu_status emu_launch(emu_stream *stream, const emu_work *work) {
    emu_kernel *named = emu_kernel_named(work->name == NULL ? "unnamed" : work->name);
    if (named == NULL)
        return EMU_OUT_OF_MEMORY;
    emu_work lasting = *work;
    lasting.name = named->name;
    pthread_mutex_lock(&core_lock);
    emu_status status = stream_live(stream) ? launch(stream, &lasting, NULL, NULL) : EMU_INVALID_HANDLE;
    pthread_mutex_unlock(&core_lock);
    return status;
}

emu_status emu_launch_kernel(emu_stream *stream, emu_kernel *kernel, const unsigned grid[3], const unsigned block[3],
                             void *const *arguments) {
    pthread_mutex_lock(&core_lock);
    emu_status status = EMU_INVALID_HANDLE;
    if (stream_live(stream) && pool_has(&kernel_pool, kernel)) {
        emu_work work = {.kind = EMU_KERNEL, .name = kernel->name, .precision = EMU_FP32,
                         .bytes = kernel_bytes(&kernel->traffic, grid, block, arguments)};
        memcpy(work.grid, grid, sizeof work.grid);
        memcpy(work.block, block, sizeof work.block);
        bool executed = kernel->executed != NULL && arguments != NULL;
        kernel_arguments *kept = executed ? arguments_new(kernel->executed, arguments) : NULL;
        status = executed && kept == NULL ? EMU_OUT_OF_MEMORY : launch(stream, &work, measured_times(kernel), kept);
        arguments_release(kept);
    }
    pthread_mutex_unlock(&core_lock);
    return status;
}

/* ---- copies ---- */

/* Which part of the device moves the data, and how long it takes. */
static void choose_engine(const emu_stream *stream, item *copy, memory_place to, int to_device, memory_place from, int from_device,
                          size_t bytes) {
    device_state *device = &devices[stream->device];
    int target = to == PLACE_DEVICE ? to_device : -1;
    int source = from == PLACE_DEVICE ? from_device : -1;
    copy->copy.to_device = target;
    copy->copy.from_device = source;
    copy->duration_ns = cost_of_copy(target, source, bytes);
    if (target >= 0 && source >= 0) {
        copy->engine = target == source ? &device->compute : &device->copy_out;
        copy->name = target == source ? "Memcpy DtoD" : "Memcpy PtoP";
    } else if (target >= 0) {
        copy->engine = &device->copy_in;
        copy->name = "Memcpy HtoD";
    } else if (source >= 0) {
        copy->engine = &device->copy_out;
        copy->name = "Memcpy DtoH";
    } else {
        copy->name = "Memcpy HtoH";
    }
}

/* A program may read an address from a device, where no kernel has computed one. */
static bool usable(const void *address, size_t bytes, memory_place place, memory_use use) {
    return place == PLACE_PAGEABLE ? memory_mapped(address, bytes, use) : memory_contains(address, bytes);
}

emu_status emu_copy_rows(emu_stream *stream, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                         bool blocking) {
    if (width == 0 || rows == 0)
        return EMU_OK;
    if (to == NULL || from == NULL || (rows > 1 && (to_pitch < width || from_pitch < width)))
        return EMU_INVALID_VALUE;
    pthread_mutex_lock(&core_lock);
    emu_status status = EMU_OK;
    int to_device, from_device;
    memory_place target = memory_place_of(to, &to_device);
    memory_place source = memory_place_of(from, &from_device);
    if (!stream_live(stream))
        status = EMU_INVALID_HANDLE;
    else if (!usable(to, (rows - 1) * to_pitch + width, target, TO_WRITE) ||
             !usable(from, (rows - 1) * from_pitch + width, source, TO_READ))
        status = EMU_INVALID_VALUE;
    if (status == EMU_OK) {
        item copy = {.kind = ITEM_COPY,
                     .copy = {.to = to, .from = from, .to_pitch = to_pitch, .from_pitch = from_pitch, .width = width, .rows = rows}};
        copy.copy.to_known = target != PLACE_PAGEABLE;
        copy.copy.from_known = source != PLACE_PAGEABLE;
        choose_engine(stream, &copy, target, to_device, source, from_device, width * rows);
        status = stream_issue(stream, &copy);
        bool pageable = target == PLACE_PAGEABLE || source == PLACE_PAGEABLE;
        if (status == EMU_OK && (blocking || pageable) && stream->capture == NULL)
            status = stream_wait_for_end(stream);
    }
    pthread_mutex_unlock(&core_lock);
    return status;
}

emu_status emu_copy(emu_stream *stream, void *to, const void *from, size_t bytes, bool blocking) {
    return emu_copy_rows(stream, to, bytes, from, bytes, bytes, 1, blocking);
}

emu_status emu_set_rows(emu_stream *stream, void *address, size_t pitch, unsigned value, size_t size, size_t count, size_t rows) {
    if (size != 1 && size != 2 && size != 4)
        return EMU_INVALID_VALUE;
    if (count == 0 || rows == 0)
        return EMU_OK;
    size_t width, before;
    if (address == NULL || __builtin_mul_overflow(count, size, &width) || __builtin_mul_overflow(rows - 1, pitch, &before))
        return EMU_INVALID_VALUE;
    if ((rows > 1 && pitch < width) || before > SIZE_MAX - width)
        return EMU_INVALID_VALUE;
    if (pitch == width) { /* no gaps */
        width *= rows;
        rows = 1;
    }
    pthread_mutex_lock(&core_lock);
    emu_status status = EMU_INVALID_HANDLE;
    int device;
    if (stream_live(stream)) {
        bool known = memory_place_of(address, &device) != PLACE_PAGEABLE && memory_contains(address, (rows - 1) * pitch + width);
        emu_work work = {.kind = EMU_MEMORY_BOUND, .name = "Memset", .bytes = (double)(width * rows)};
        item fill = {.kind = ITEM_COPY, .name = work.name, .engine = &devices[stream->device].compute,
                     .duration_ns = cost_of_work(stream->device, &work),
                     .copy = {.to = address, .to_pitch = pitch, .width = width, .rows = rows, .element = size, .value = value,
                              .to_known = true}};
        status = known ? stream_issue(stream, &fill) : EMU_INVALID_VALUE;
    }
    pthread_mutex_unlock(&core_lock);
    return status;
}

emu_status emu_set(emu_stream *stream, void *address, unsigned value, size_t size, size_t count) {
    return emu_set_rows(stream, address, 0, value, size, count, 1);
}

/* ---- functions of the host, and work of others ---- */

emu_status emu_launch_host(emu_stream *stream, void (*function)(void *), void *argument) {
    if (function == NULL)
        return EMU_INVALID_VALUE;
    pthread_mutex_lock(&core_lock);
    item issued = {.kind = ITEM_HOST, .name = "host function", .function = function, .argument = argument};
    emu_status status = stream_live(stream) ? stream_issue(stream, &issued) : EMU_INVALID_HANDLE;
    pthread_mutex_unlock(&core_lock);
    return status;
}

emu_status emu_launch_deferred(emu_stream *stream, const emu_deferred *work) {
    deferred_plan *plan = malloc(sizeof *plan);
    if (plan == NULL)
        return EMU_OUT_OF_MEMORY;
    *plan = (deferred_plan){.work = *work, .references = 1};
    pthread_mutex_lock(&core_lock);
    item issued = {.kind = ITEM_DEFERRED, .name = work->name, .plan = plan};
    emu_status status = stream_live(stream) ? stream_issue(stream, &issued) : EMU_INVALID_HANDLE;
    plan_release(plan);
    pthread_mutex_unlock(&core_lock);
    return status;
}

deferred_plan *plan_share(deferred_plan *plan) {
    plan->references++;
    return plan;
}

void plan_release(deferred_plan *plan) {
    if (--plan->references > 0)
        return;
    if (plan->work.drop != NULL)
        plan->work.drop(plan->work.plan);
    free(plan);
}
