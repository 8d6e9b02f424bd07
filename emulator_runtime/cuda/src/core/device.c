/* The process's devices and contexts. */
#include "clock.h"
#include "internal.h"
#include "manager.h"
#include "statistics.h"

#include <stdlib.h>
#include <string.h>

struct emu_context {
    int device;
    unsigned flags;
    uint64_t id;
    bool primary;
};

enum { CONTEXT_STACK = 64 };

device_state devices[EMU_MAX_DEVICES];

static emu_pool context_pool = {.object_bytes = sizeof(emu_context)};
static emu_context *primary[EMU_MAX_DEVICES];
static uint64_t contexts_created;
static _Thread_local emu_context *stack[CONTEXT_STACK]; /* the last is current */
static _Thread_local int depth;

static emu_device_info machine[EMU_MAX_DEVICES]; /* settings.devices are those of them that the program has */
static int machine_count;

static pthread_once_t once = PTHREAD_ONCE_INIT, choice = PTHREAD_ONCE_INIT;
static emu_status started = EMU_NOT_INITIALIZED;
static bool forked;

/* ---- start and fork ---- */

static void before_fork(void) {
    pthread_mutex_lock(&core_lock);
}

static void after_fork_in_parent(void) {
    pthread_mutex_unlock(&core_lock);
}

/* As with a real driver, a process can't go on with the devices that its parent used; it can begin if the parent only counted them. */
static void after_fork_in_child(void) {
    core_lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* it belongs to a thread that the child doesn't have */
    manager_forget();
    attendant_forget();
    trace_forget();
    record_forget();
    for (int i = 0; i < settings.device_count; i++)
        forked |= devices[i].in_use || devices[i].changing;
}

static void start(void) {
    if (!settings_read() || settings.device_count == 0) {
        started = EMU_NO_DEVICE;
        return;
    }
    if (!clock_open(settings.clock, settings.warp)) {
        emu_log(1, "settings: %s is not a clock", settings.clock);
        started = EMU_NOT_INITIALIZED;
        return;
    }
    if (!kernel_table_read()) {
        started = EMU_NOT_INITIALIZED;
        return;
    }
    machine_count = settings.device_count;
    memcpy(machine, settings.devices, sizeof machine);
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    emu_statistics_start();
    trace_open();
    record_open();
    atexit(anchor_report);
    atexit(manager_finish);
    started = EMU_OK;
}

/* As a driver does, when CUDA is used for the first time: a program may set the variable until then, and ask NVML before. */
static void choose(void) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    int chosen[EMU_MAX_DEVICES];
    if (list == NULL)
        return;
    settings.device_count = visible_devices(list, machine, machine_count, chosen);
    for (int i = 0; i < settings.device_count; i++) {
        settings.devices[i] = machine[chosen[i]];
        settings.devices[i].index = i;
    }
    emu_log(2, "CUDA_VISIBLE_DEVICES=%s: %d of %d devices", list, settings.device_count, machine_count);
}

emu_status emu_machine_start(void) {
    pthread_once(&once, start);
    return forked ? EMU_NOT_INITIALIZED : started;
}

emu_status emu_start(void) {
    emu_status status = emu_machine_start();
    if (status != EMU_OK)
        return status;
    pthread_once(&choice, choose);
    return settings.device_count > 0 ? EMU_OK : EMU_NO_DEVICE;
}

/* ---- devices ---- */

int emu_device_count(void) {
    return emu_start() == EMU_OK ? settings.device_count : 0;
}

const emu_device_info *emu_device(int index) {
    emu_start();
    return started == EMU_OK && index >= 0 && index < settings.device_count ? &settings.devices[index] : NULL;
}

int emu_machine_device_count(void) {
    return emu_machine_start() == EMU_OK ? machine_count : 0;
}

const emu_device_info *emu_machine_device(int machine_index) {
    emu_machine_start();
    return started == EMU_OK && machine_index >= 0 && machine_index < machine_count ? &machine[machine_index] : NULL;
}

int machine_index_of(int device) {
    return device < 0 ? device : settings.devices[device].machine_index;
}

void device_rename(int device, const char *uuid) {
    settings_name_device(&settings.devices[device], uuid);
    settings_name_device(&machine[machine_index_of(device)], uuid);
}

int emu_driver_version(void) {
    emu_machine_start();
    return settings.driver_version;
}

void device_begin_change(int device) {
    while (devices[device].changing)
        pthread_cond_wait(&core_progress, &core_lock);
    devices[device].changing = true;
}

void device_end_change(int device) {
    while (devices[device].gave_back) { /* also what other threads freed meanwhile */
        devices[device].gave_back = false;
        manager_reserve(device, devices[device].used_bytes);
    }
    devices[device].changing = false;
    pthread_cond_broadcast(&core_progress);
}

/* The first use of a device makes the process's context there. */
static void enter(int device) {
    size_t context_bytes = settings.devices[device].context_bytes;
    if (!manager_enter(device) || !manager_reserve(device, context_bytes))
        devices[device].lost = true;
    memory_account(device, context_bytes);
    devices[device].in_use = true;
}

bool process_forked(void) {
    return forked;
}

emu_status device_usable(int device) {
    if (forked)
        return EMU_NOT_INITIALIZED;
    if (!devices[device].in_use) { /* entering takes a while with the lock released: other threads wait for it */
        device_begin_change(device);
        if (!devices[device].in_use)
            enter(device);
        device_end_change(device);
    }
    return devices[device].lost ? EMU_LAUNCH_FAILED : EMU_OK;
}

emu_status emu_device_reset(int device) {
    emu_status status = emu_device_synchronize(device);
    if (status != EMU_OK)
        return status;
    streams_destroy(device);
    memory_free_all(device);
    return EMU_OK;
}

/* ---- contexts ---- */

static emu_context *new_context(int device, unsigned flags) {
    emu_context *context = pool_take(&context_pool);
    if (context != NULL)
        *context = (emu_context){.device = device, .flags = flags, .id = ++contexts_created};
    return context;
}

emu_context *emu_context_primary(int device) {
    if (emu_device(device) == NULL)
        return NULL;
    pthread_mutex_lock(&core_lock);
    if (primary[device] == NULL) {
        primary[device] = new_context(device, 0);
        if (primary[device] != NULL)
            primary[device]->primary = true;
    }
    pthread_mutex_unlock(&core_lock);
    return primary[device];
}

emu_status emu_context_create(int device, unsigned flags, emu_context **context) {
    if (emu_device(device) == NULL)
        return EMU_INVALID_DEVICE;
    if (context == NULL)
        return EMU_INVALID_VALUE;
    pthread_mutex_lock(&core_lock);
    *context = new_context(device, flags);
    pthread_mutex_unlock(&core_lock);
    return *context == NULL ? EMU_OUT_OF_MEMORY : emu_context_push(*context);
}

emu_status emu_context_destroy(emu_context *context) {
    pthread_mutex_lock(&core_lock);
    bool ours = pool_has(&context_pool, context) && !context->primary;
    if (ours)
        pool_give(&context_pool, context);
    pthread_mutex_unlock(&core_lock);
    if (ours && depth > 0 && stack[depth - 1] == context)
        depth--;
    return ours ? EMU_OK : EMU_INVALID_CONTEXT;
}

bool emu_context_valid(const emu_context *context) {
    return pool_has(&context_pool, context);
}

int emu_context_device(const emu_context *context) {
    return context->device;
}

uint64_t emu_context_id(const emu_context *context) {
    return context->id;
}

bool emu_context_in_use(int device) {
    return emu_device(device) != NULL && devices[device].in_use;
}

emu_context *emu_context_current(void) {
    return depth > 0 && emu_context_valid(stack[depth - 1]) ? stack[depth - 1] : NULL;
}

void emu_context_set_current(emu_context *context) {
    if (depth > 0)
        depth--;
    if (context != NULL)
        stack[depth++] = context;
}

emu_status emu_context_push(emu_context *context) {
    if (!emu_context_valid(context))
        return EMU_INVALID_CONTEXT;
    if (depth == CONTEXT_STACK)
        return EMU_INVALID_VALUE;
    stack[depth++] = context;
    return EMU_OK;
}

emu_status emu_context_pop(emu_context **context) {
    if (depth == 0)
        return EMU_INVALID_CONTEXT;
    depth--;
    if (context != NULL)
        *context = stack[depth];
    return EMU_OK;
}

int emu_current_device(void) {
    const emu_context *context = emu_context_current();
    return context == NULL ? 0 : context->device;
}
