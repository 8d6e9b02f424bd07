/* NCCL's functions (libnccl.so.2).
 *
 * They check their arguments, and either do what they say at once or, between ncclGroupStart and ncclGroupEnd, put it on the thread's
 * list. At the end of a group, what is for the same communicator and stream becomes one piece of work, so that its sends and
 * receives wait for each other together.
 */
#include "communicator.h"
#include "membership.h"
#include "values.h"

#include <stdlib.h>
#include <string.h>

/* An operation of a group that hasn't ended. */
typedef struct queued {
    struct queued *next;
    communicator *comm;
    emu_stream *stream;
    operation call;
} queued;

static _Thread_local struct {
    int depth;
    ncclResult_t failure; /* the first one within the group */
    queued *operations, **last_operation;
    membership *memberships, **last_membership;
} group;

/* ---- the library ---- */

EMU_EXPORT ncclResult_t ncclGetVersion(int *version) {
    if (version == NULL)
        return ncclInvalidArgument;
    *version = NCCL_VERSION;
    return ncclSuccess;
}

EMU_EXPORT const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const texts[] = {
        [ncclSuccess] = "no error",
        [ncclUnhandledCudaError] = "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        [ncclSystemError] = "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        [ncclInternalError] = "internal error - please report this issue to the NCCL developers",
        [ncclInvalidArgument] = "invalid argument (run with NCCL_DEBUG=WARN for details)",
        [ncclInvalidUsage] = "invalid usage (run with NCCL_DEBUG=WARN for details)",
        [ncclRemoteError] = "remote process exited or there was a network error",
        [ncclInProgress] = "NCCL operation in progress",
        [ncclTimeout] = "NCCL operation timed out",
    };
    return (int)result < 0 || (int)result > ncclTimeout ? "unknown result code" : texts[result];
}

EMU_EXPORT const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return last_complaint();
}

EMU_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    return id == NULL ? complain(ncclInvalidArgument, "no place for the unique id") : unique_id_new(id);
}

/* ---- groups ---- */

/* What a call within a group answers at once also fails the group. */
static ncclResult_t of_group(ncclResult_t status) {
    if (group.depth > 0 && status != ncclSuccess && group.failure == ncclSuccess)
        group.failure = status;
    return status;
}

EMU_EXPORT ncclResult_t ncclGroupStart(void) {
    if (group.depth++ == 0) {
        group.failure = ncclSuccess;
        group.last_operation = &group.operations;
        group.last_membership = &group.memberships;
    }
    return ncclSuccess;
}

static void release(communicator *comm) {
    pthread_mutex_lock(&nccl_lock);
    communicator_release(comm);
    pthread_mutex_unlock(&nccl_lock);
}

static void discard_operations(queued *first) {
    while (first != NULL) {
        queued *one = first;
        first = one->next;
        release(one->comm);
        free(one);
    }
}

/* Take the operations for the communicator and stream of the first one off the list, into an array; the rest keeps its order. */
static operation *take_together(queued **list, communicator **comm, emu_stream **stream, int *count) {
    *comm = (*list)->comm;
    *stream = (*list)->stream;
    *count = 0;
    for (const queued *one = *list; one != NULL; one = one->next)
        *count += one->comm == *comm && one->stream == *stream;
    operation *calls = malloc((size_t)*count * sizeof *calls);
    if (calls == NULL)
        return NULL;
    *count = 0;
    for (queued **place = list; *place != NULL;) {
        queued *one = *place;
        if (one->comm != *comm || one->stream != *stream) {
            place = &one->next;
            continue;
        }
        calls[(*count)++] = one->call;
        *place = one->next;
        if (*count > 1)
            release(one->comm); /* the first one's reference is given to the caller */
        free(one);
    }
    return calls;
}

static ncclResult_t launch_operations(queued *list) {
    ncclResult_t result = ncclSuccess;
    while (list != NULL) {
        communicator *comm;
        emu_stream *stream;
        int count;
        operation *calls = take_together(&list, &comm, &stream, &count);
        if (calls == NULL) {
            discard_operations(list);
            return complain(ncclSystemError, "out of memory");
        }
        ncclResult_t status = communicator_launch(comm, stream, calls, count);
        if (result == ncclSuccess)
            result = status;
        release(comm);
        free(calls);
    }
    return result;
}

EMU_EXPORT ncclResult_t ncclGroupEnd(void) {
    if (group.depth == 0)
        return complain(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--group.depth > 0)
        return ncclSuccess;
    queued *operations = group.operations;
    membership *memberships = group.memberships;
    group.operations = NULL;
    group.memberships = NULL;
    if (group.failure != ncclSuccess) {
        discard_operations(operations);
        memberships_discard(memberships);
        return group.failure;
    }
    ncclResult_t made = memberships_make(memberships);
    ncclResult_t launched = launch_operations(operations);
    return made != ncclSuccess ? made : launched;
}

EMU_EXPORT ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info) {
    if (info != NULL && info->magic != NCCL_SIMULATION_MAGIC)
        return complain(ncclInvalidArgument, "the simulation's structure isn't initialized");
    if (group.depth == 0)
        return complain(ncclInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart");
    if (--group.depth > 0)
        return ncclSuccess;
    int64_t time_ns = 0;
    while (group.operations != NULL) {
        communicator *comm;
        emu_stream *stream;
        int count;
        operation *calls = take_together(&group.operations, &comm, &stream, &count);
        if (calls == NULL)
            break;
        time_ns += communicator_time_ns(comm, calls, count);
        release(comm);
        free(calls);
    }
    discard_operations(group.operations);
    memberships_discard(group.memberships);
    group.operations = NULL;
    group.memberships = NULL;
    if (info != NULL)
        info->estimated_time = (float)((double)time_ns / 1e3);
    return group.failure;
}

/* ---- communicators ---- */

/* Make it now, or when the group ends. */
static ncclResult_t request(membership *wanted) {
    if (group.depth == 0)
        return memberships_make(wanted);
    *group.last_membership = wanted;
    group.last_membership = &wanted->next;
    return wanted->created != NULL && !wanted->created->blocking ? ncclInProgress : ncclSuccess;
}

static bool config_valid(const ncclConfig_t *config) {
    if (config == NULL)
        return true;
    bool valid = config->magic == (unsigned)NCCL_CONFIG_MAGIC && config->size >= offsetof(ncclConfig_t, blocking) + sizeof config->blocking;
    return valid && (config->blocking == NCCL_UNDEFINED || config->blocking == 0 || config->blocking == 1);
}

/* A communicator that doesn't exist yet, and the way to it; `parent` may be NULL. The handle is valid from now on. */
static membership *membership_new(membership_source source, communicator *parent, bool member, int device,
                                  const ncclConfig_t *config, ncclComm_t *output) {
    membership *wanted = calloc(1, sizeof *wanted);
    if (wanted == NULL)
        return NULL;
    wanted->source = source;
    wanted->output = output;
    pthread_mutex_lock(&nccl_lock);
    if (member)
        wanted->created = communicator_new(device, config, parent);
    bool failed = member && wanted->created == NULL;
    if (!failed && member)
        communicator_share(wanted->created);
    if (!failed && parent != NULL) {
        wanted->parent = communicator_share(parent);
        wanted->generation = parent->children++;
    }
    pthread_mutex_unlock(&nccl_lock);
    if (failed) {
        free(wanted);
        return NULL;
    }
    *output = wanted->created;
    return wanted;
}

static ncclResult_t init_rank(ncclComm_t *output, int ranks, const ncclUniqueId *given, int rank, int device, const ncclConfig_t *config) {
    unique_id id;
    if (output == NULL || ranks < 1 || ranks > MAX_RANKS || rank < 0 || rank >= ranks)
        return complain(ncclInvalidArgument, "rank %d of %d ranks", rank, ranks);
    if (!config_valid(config))
        return complain(ncclInvalidArgument, "ncclConfig_t isn't initialized (NCCL_CONFIG_INITIALIZER)");
    if (!unique_id_read(given, &id))
        return complain(ncclInvalidArgument, "the unique id isn't one of ncclGetUniqueId");
    if (emu_device(device) == NULL)
        return complain(ncclUnhandledCudaError, "there is no CUDA device %d", device);
    membership *wanted = membership_new(FROM_ID, NULL, true, device, config, output);
    if (wanted == NULL)
        return complain(ncclSystemError, "out of memory");
    wanted->created->ranks = ranks;
    wanted->created->rank = rank;
    wanted->id = id;
    return request(wanted);
}

static bool start(void) {
    return emu_start() == EMU_OK;
}

EMU_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
    if (!start())
        return of_group(complain(ncclUnhandledCudaError, "there is no CUDA device"));
    return of_group(init_rank(comm, ranks, &id, rank, emu_current_device(), config));
}

EMU_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
    return ncclCommInitRankConfig(comm, ranks, id, rank, NULL);
}

/* Several ids make NCCL's own start faster; one is enough for what is exchanged here. */
EMU_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int ranks, int rank, int id_count, ncclUniqueId *ids, ncclConfig_t *config) {
    if (ids == NULL || id_count < 1 || id_count > ranks)
        return of_group(complain(ncclInvalidArgument, "%d unique ids for %d ranks", id_count, ranks));
    return ncclCommInitRankConfig(comm, ranks, ids[0], rank, config);
}

EMU_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *comms, int count, const int *devices) {
    ncclUniqueId id;
    if (comms == NULL || count < 1)
        return complain(ncclInvalidArgument, "%d communicators", count);
    if (!start() || count > emu_device_count())
        return complain(count > 0 ? ncclInvalidArgument : ncclUnhandledCudaError, "there are fewer than %d CUDA devices", count);
    for (int one = 0; devices != NULL && one < count; one++)
        for (int other = 0; other < one; other++)
            if (devices[one] == devices[other])
                return complain(ncclInvalidUsage, "Duplicate GPU detected : device %d", devices[one]);
    ncclResult_t status = unique_id_new(&id);
    if (status != ncclSuccess)
        return status;
    ncclGroupStart();
    for (int rank = 0; rank < count; rank++)
        of_group(init_rank(&comms[rank], count, &id, rank, devices == NULL ? rank : devices[rank], NULL));
    return ncclGroupEnd();
}

/* The communicator behind a handle, with a reference; NULL, and why: none, or it isn't ready. */
static communicator *usable(ncclComm_t handle, ncclResult_t *status) {
    pthread_mutex_lock(&nccl_lock);
    communicator *comm = communicator_of(handle);
    if (comm == NULL)
        *status = ncclInvalidArgument;
    else if (comm->state != ncclSuccess)
        *status = comm->state == ncclInProgress ? ncclInvalidArgument : (ncclResult_t)comm->state;
    else
        *status = comm->aborted ? ncclInvalidUsage : (ncclResult_t)comm->async_error;
    communicator *found = *status == ncclSuccess ? communicator_share(comm) : NULL;
    pthread_mutex_unlock(&nccl_lock);
    if (comm == NULL)
        complain(*status, "there is no such communicator");
    else if (found == NULL)
        complain(*status, "the communicator isn't ready, or an operation on it has failed");
    return found;
}

/* As usable(), for the functions that work on a communicator with errors as well. */
static communicator *existing(ncclComm_t handle) {
    pthread_mutex_lock(&nccl_lock);
    communicator *comm = communicator_of(handle);
    if (comm != NULL)
        communicator_share(comm);
    pthread_mutex_unlock(&nccl_lock);
    if (comm == NULL)
        complain(ncclInvalidArgument, "there is no such communicator");
    return comm;
}

static ncclResult_t split(communicator *parent, int color, int key, ncclComm_t *output, const ncclConfig_t *config) {
    if (output == NULL || !config_valid(config) || color < NCCL_SPLIT_NO_COLOR)
        return complain(ncclInvalidArgument, "ncclCommSplit with color %d", color);
    membership *wanted = membership_new(FROM_SPLIT, parent, color != NCCL_SPLIT_NO_COLOR, parent->device, config, output);
    if (wanted == NULL)
        return complain(ncclSystemError, "out of memory");
    wanted->color = color;
    wanted->key = key;
    return request(wanted);
}

EMU_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *output, ncclConfig_t *config) {
    ncclResult_t status;
    communicator *parent = usable(comm, &status);
    if (parent == NULL)
        return of_group(status);
    status = split(parent, color, key, output, config);
    release(parent);
    return of_group(status);
}

static ncclResult_t shrink(communicator *parent, const int *list, int count, ncclComm_t *output, const ncclConfig_t *config) {
    if (output == NULL || !config_valid(config) || list == NULL || count < 1 || count >= parent->ranks)
        return complain(ncclInvalidArgument, "ncclCommShrink without %d of %d ranks", count, parent->ranks);
    bool *excluded = calloc((size_t)parent->ranks, sizeof *excluded);
    if (excluded == NULL)
        return complain(ncclSystemError, "out of memory");
    bool valid = true;
    for (int i = 0; i < count; i++) {
        valid = valid && list[i] >= 0 && list[i] < parent->ranks && list[i] != parent->rank;
        if (valid)
            excluded[list[i]] = true;
    }
    membership *wanted = valid ? membership_new(FROM_SHRINK, parent, true, parent->device, config, output) : NULL;
    if (wanted == NULL) {
        free(excluded);
        return valid ? complain(ncclSystemError, "out of memory") : complain(ncclInvalidArgument, "ncclCommShrink of this rank, or of one that isn't there");
    }
    wanted->excluded = excluded;
    return request(wanted);
}

EMU_EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int *list, int count, ncclComm_t *output, ncclConfig_t *config, int flags) {
    communicator *parent = existing(comm);
    if (parent == NULL)
        return of_group(ncclInvalidArgument);
    if (flags & NCCL_SHRINK_ABORT) {
        pthread_mutex_lock(&nccl_lock);
        communicator_revoke(parent);
        pthread_mutex_unlock(&nccl_lock);
        emu_wake();
    }
    ncclResult_t status = parent->members == NULL ? complain(ncclInvalidArgument, "the communicator isn't ready")
                                                  : shrink(parent, list, count, output, config);
    release(parent);
    return of_group(status);
}

EMU_EXPORT ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id) {
    ncclResult_t status;
    communicator *parent = usable(comm, &status);
    if (parent == NULL)
        return status;
    release(parent);
    return ncclGetUniqueId(id);
}

static ncclResult_t grow(communicator *parent, int ranks, const ncclUniqueId *id, ncclComm_t *output, const ncclConfig_t *config) {
    unique_id read;
    memset(&read, 0, sizeof read);
    if (output == NULL || !config_valid(config) || ranks <= parent->ranks || ranks > MAX_RANKS || (id != NULL && !unique_id_read(id, &read)))
        return complain(ncclInvalidArgument, "ncclCommGrow from %d to %d ranks", parent->ranks, ranks);
    membership *wanted = membership_new(FROM_GROWTH, parent, true, parent->device, config, output);
    if (wanted == NULL)
        return complain(ncclSystemError, "out of memory");
    wanted->created->ranks = ranks;
    wanted->created->rank = parent->rank;
    wanted->has_id = id != NULL;
    wanted->id = read;
    return request(wanted);
}

EMU_EXPORT ncclResult_t ncclCommGrow(ncclComm_t comm, int ranks, const ncclUniqueId *id, int rank, ncclComm_t *output, ncclConfig_t *config) {
    if (comm == NULL && id == NULL)
        return of_group(complain(ncclInvalidArgument, "ncclCommGrow of a new rank without a unique id"));
    if (comm == NULL)
        return ncclCommInitRankConfig(output, ranks, *id, rank, config);
    ncclResult_t status;
    communicator *parent = usable(comm, &status);
    if (parent == NULL)
        return of_group(status);
    status = grow(parent, ranks, id, output, config);
    release(parent);
    return of_group(status);
}

EMU_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t handle) {
    communicator *comm = existing(handle);
    if (comm == NULL)
        return ncclInvalidArgument;
    release(comm);
    return ncclSuccess;
}

static ncclResult_t end(ncclComm_t handle, void (*how)(communicator *)) {
    if (handle == NULL)
        return ncclSuccess;
    pthread_mutex_lock(&nccl_lock);
    communicator *comm = communicator_of(handle);
    if (comm != NULL)
        how(comm);
    pthread_mutex_unlock(&nccl_lock);
    if (comm == NULL)
        return complain(ncclInvalidArgument, "there is no such communicator");
    emu_wake();
    return ncclSuccess;
}

EMU_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    return end(comm, communicator_destroy);
}

EMU_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
    return end(comm, communicator_abort);
}

EMU_EXPORT ncclResult_t ncclCommRevoke(ncclComm_t handle, int flags) {
    if (flags != 0)
        return complain(ncclInvalidArgument, "ncclCommRevoke with flags %d", flags);
    pthread_mutex_lock(&nccl_lock);
    communicator *comm = communicator_of(handle);
    if (comm != NULL)
        communicator_revoke(comm);
    pthread_mutex_unlock(&nccl_lock);
    if (comm == NULL)
        return complain(ncclInvalidArgument, "there is no such communicator");
    emu_wake();
    return ncclSuccess;
}

EMU_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *error) {
    pthread_mutex_lock(&nccl_lock);
    const communicator *comm = communicator_of(handle);
    if (comm != NULL && error != NULL)
        *error = (ncclResult_t)(comm->state == ncclInProgress ? ncclInProgress : comm->async_error);
    pthread_mutex_unlock(&nccl_lock);
    return comm == NULL || error == NULL ? complain(ncclInvalidArgument, "there is no such communicator") : ncclSuccess;
}

typedef enum { FACT_COUNT, FACT_RANK, FACT_DEVICE } communicator_fact;

static ncclResult_t fact(ncclComm_t handle, communicator_fact which, int *value) {
    pthread_mutex_lock(&nccl_lock);
    const communicator *comm = communicator_of(handle);
    if (comm != NULL && value != NULL)
        *value = which == FACT_COUNT ? comm->ranks : which == FACT_RANK ? comm->rank : comm->device;
    pthread_mutex_unlock(&nccl_lock);
    return comm == NULL || value == NULL ? complain(ncclInvalidArgument, "there is no such communicator") : ncclSuccess;
}

EMU_EXPORT ncclResult_t ncclCommCount(ncclComm_t comm, int *count) {
    return fact(comm, FACT_COUNT, count);
}

EMU_EXPORT ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank) {
    return fact(comm, FACT_RANK, rank);
}

EMU_EXPORT ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *device) {
    return fact(comm, FACT_DEVICE, device);
}

/* ---- memory ---- */

EMU_EXPORT ncclResult_t ncclMemAlloc(void **address, size_t bytes) {
    if (address == NULL || bytes == 0)
        return complain(ncclInvalidArgument, "ncclMemAlloc of %zu bytes", bytes);
    if (!start())
        return complain(ncclUnhandledCudaError, "there is no CUDA device");
    emu_status status = emu_memory_allocate(emu_current_device(), EMU_MEMORY_DEVICE, bytes, address);
    return status == EMU_OK ? ncclSuccess : complain(ncclUnhandledCudaError, "CUDA error %d", status);
}

EMU_EXPORT ncclResult_t ncclMemFree(void *address) {
    emu_status status = emu_memory_free(EMU_MEMORY_DEVICE, address);
    return status == EMU_OK ? ncclSuccess : complain(ncclUnhandledCudaError, "CUDA error %d", status);
}

/* Registration makes transfers faster on a real device, and has no other effect that programs see. A handle is what was registered. */
struct nccl_window {
    struct nccl_window *next;
    void *buffer;
};

static struct nccl_window *windows;

static ncclResult_t register_buffer(ncclComm_t handle, void *buffer, size_t bytes, struct nccl_window **registered) {
    ncclResult_t status;
    if (buffer == NULL || bytes == 0 || registered == NULL)
        return complain(ncclInvalidArgument, "no buffer to register");
    communicator *comm = usable(handle, &status);
    if (comm == NULL)
        return status;
    struct nccl_window *created = malloc(sizeof *created);
    pthread_mutex_lock(&nccl_lock);
    if (created != NULL) {
        *created = (struct nccl_window){windows, buffer};
        windows = created;
    }
    communicator_release(comm);
    pthread_mutex_unlock(&nccl_lock);
    *registered = created;
    return created != NULL ? ncclSuccess : complain(ncclSystemError, "out of memory");
}

/* The place that points to a registered buffer's record; NULL: there is none. The lock is held. */
static struct nccl_window **registration(const struct nccl_window *wanted) {
    struct nccl_window **place = &windows;
    while (*place != NULL && *place != wanted)
        place = &(*place)->next;
    return *place == NULL ? NULL : place;
}

static ncclResult_t deregister_buffer(ncclComm_t handle, struct nccl_window *registered) {
    pthread_mutex_lock(&nccl_lock);
    struct nccl_window **place = communicator_of(handle) == NULL ? NULL : registration(registered);
    if (place != NULL) {
        *place = registered->next;
        free(registered);
    }
    pthread_mutex_unlock(&nccl_lock);
    return place != NULL ? ncclSuccess : complain(ncclInvalidArgument, "that isn't registered");
}

EMU_EXPORT ncclResult_t ncclCommRegister(ncclComm_t comm, void *buffer, size_t bytes, void **handle) {
    return register_buffer(comm, buffer, bytes, (struct nccl_window **)handle);
}

EMU_EXPORT ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle) {
    return deregister_buffer(comm, handle);
}

EMU_EXPORT ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window, int flags) {
    (void)flags;
    return register_buffer(comm, buffer, bytes, window);
}

EMU_EXPORT ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
    return deregister_buffer(comm, window);
}

EMU_EXPORT ncclResult_t ncclWinGetUserPtr(ncclComm_t handle, ncclWindow_t window, void **address) {
    pthread_mutex_lock(&nccl_lock);
    bool valid = address != NULL && communicator_of(handle) != NULL && registration(window) != NULL;
    if (valid)
        *address = window->buffer;
    pthread_mutex_unlock(&nccl_lock);
    return valid ? ncclSuccess : complain(ncclInvalidArgument, "there is no such window");
}

/* A communicator has no memory of its own here that could be given back, which is what these would do. */
static ncclResult_t nothing_to_do(ncclComm_t handle) {
    communicator *comm = existing(handle);
    if (comm == NULL)
        return ncclInvalidArgument;
    release(comm);
    return ncclSuccess;
}

EMU_EXPORT ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
    return flags == 1 ? nothing_to_do(comm) : complain(ncclInvalidArgument, "ncclCommSuspend with flags %d", flags);
}

EMU_EXPORT ncclResult_t ncclCommResume(ncclComm_t comm) {
    return nothing_to_do(comm);
}

EMU_EXPORT ncclResult_t ncclCommMemStats(ncclComm_t comm, int which, uint64_t *value) {
    if (which < 0 || which > 3 || value == NULL)
        return complain(ncclInvalidArgument, "ncclCommMemStats of %d", which);
    *value = 0;
    return nothing_to_do(comm);
}

/* ---- operators ---- */

static ncclResult_t add_operator(communicator *comm, const scaled_sum *scale, ncclRedOp_t *handle) {
    int place = 0;
    while (place < comm->operator_count && comm->operators[place].used)
        place++;
    if (place == comm->operator_count) {
        scaled_sum *grown = realloc(comm->operators, ((size_t)place + 1) * sizeof *grown);
        if (grown == NULL)
            return ncclSystemError;
        comm->operators = grown;
        comm->operator_count++;
    }
    comm->operators[place] = *scale;
    *handle = (ncclRedOp_t)(ncclNumOps + place);
    return ncclSuccess;
}

EMU_EXPORT ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *handle, void *scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t of) {
    ncclResult_t status;
    size_t bytes = datatype_bytes(datatype);
    if (handle == NULL || scalar == NULL || bytes == 0 || (residence != ncclScalarDevice && residence != ncclScalarHostImmediate))
        return complain(ncclInvalidArgument, "ncclRedOpCreatePreMulSum of type %d", datatype);
    communicator *comm = usable(of, &status);
    if (comm == NULL)
        return status;
    scaled_sum scale = {.used = true, .datatype = datatype};
    if (residence == ncclScalarDevice)
        scale.address = scalar;
    else
        memcpy(scale.value, scalar, bytes);
    pthread_mutex_lock(&nccl_lock);
    status = add_operator(comm, &scale, handle);
    communicator_release(comm);
    pthread_mutex_unlock(&nccl_lock);
    return status;
}

EMU_EXPORT ncclResult_t ncclRedOpDestroy(ncclRedOp_t handle, ncclComm_t of) {
    communicator *comm = existing(of);
    if (comm == NULL)
        return ncclInvalidArgument;
    int64_t place = (int64_t)handle - ncclNumOps;
    pthread_mutex_lock(&nccl_lock);
    bool valid = place >= 0 && place < comm->operator_count && comm->operators[place].used;
    if (valid)
        comm->operators[place].used = false;
    communicator_release(comm);
    pthread_mutex_unlock(&nccl_lock);
    return valid ? ncclSuccess : complain(ncclInvalidArgument, "there is no operator %d", (int)handle);
}

/* ---- operations ---- */

static ncclResult_t check_operator(communicator *comm, operation *call) {
    if (call->operator >= ncclSum && call->operator < ncclNumOps)
        return ncclSuccess;
    int64_t place = (int64_t)call->operator - ncclNumOps;
    pthread_mutex_lock(&nccl_lock);
    bool valid = place >= 0 && place < comm->operator_count && comm->operators[place].used
        && comm->operators[place].datatype == call->datatype;
    if (valid) {
        call->scaled = true;
        call->scale = comm->operators[place];
    }
    pthread_mutex_unlock(&nccl_lock);
    return valid ? ncclSuccess : complain(ncclInvalidArgument, "there is no operator %d of this type", call->operator);
}

static ncclResult_t check_call(communicator *comm, operation *call) {
    size_t element = datatype_bytes(call->datatype);
    if (element == 0)
        return complain(ncclInvalidArgument, "there is no data type %d", call->datatype);
    if (call->other < 0 || call->other >= comm->ranks)
        return complain(ncclInvalidArgument, "there is no rank %d", call->other);
    if (call->count > SIZE_MAX / element / MAX_RANKS)
        return complain(ncclInvalidArgument, "%zu elements", call->count);
    size_t bytes = call->count * element;
    if (contribution_bytes(call->kind, comm->ranks, comm->rank, call->other, bytes) > 0 && call->send == NULL)
        return complain(ncclInvalidArgument, "no send buffer");
    if (result_bytes(call->kind, comm->ranks, comm->rank, call->other, bytes) > 0 && call->receive == NULL)
        return complain(ncclInvalidArgument, "no receive buffer");
    return check_operator(comm, call);
}

/* The null stream is the one of the communicator's device, whatever the current device is. */
static emu_stream *stream_of(const communicator *comm, void *handle) {
    bool is_default = handle == NULL || handle == (void *)1;
    emu_stream *stream = is_default ? emu_stream_default(comm->device) : emu_stream_of(handle);
    return stream != NULL && emu_stream_device(stream) == comm->device ? stream : NULL;
}

static ncclResult_t enqueue(communicator *comm, emu_stream *stream, const operation *call) {
    queued *one = calloc(1, sizeof *one);
    if (one == NULL)
        return complain(ncclSystemError, "out of memory");
    pthread_mutex_lock(&nccl_lock);
    one->comm = communicator_share(comm);
    pthread_mutex_unlock(&nccl_lock);
    one->stream = stream;
    one->call = *call;
    *group.last_operation = one;
    group.last_operation = &one->next;
    return ncclSuccess;
}

static ncclResult_t issue(ncclComm_t handle, void *stream_handle, operation call) {
    ncclResult_t status;
    communicator *comm = usable(handle, &status);
    if (comm == NULL)
        return of_group(status);
    emu_stream *stream = stream_of(comm, stream_handle);
    status = check_call(comm, &call);
    if (status == ncclSuccess && stream == NULL)
        status = complain(ncclInvalidArgument, "the stream isn't one of the communicator's device");
    if (status == ncclSuccess && call.count > 0)
        status = group.depth > 0 ? enqueue(comm, stream, &call) : communicator_launch(comm, stream, &call, 1);
    release(comm);
    return of_group(status);
}

EMU_EXPORT ncclResult_t ncclAllReduce(
    const void *send, void *receive, size_t count, ncclDataType_t datatype, ncclRedOp_t operator, ncclComm_t comm, void *stream) {
    operation call = {.kind = ALL_REDUCE, .datatype = datatype, .operator = operator, .count = count, .send = send, .receive = receive};
    return issue(comm, stream, call);
}

EMU_EXPORT ncclResult_t ncclReduce(
    const void *send, void *receive, size_t count, ncclDataType_t datatype, ncclRedOp_t operator, int root, ncclComm_t comm, void *stream) {
    operation call = {
        .kind = REDUCE, .other = root, .datatype = datatype, .operator = operator, .count = count, .send = send, .receive = receive};
    return issue(comm, stream, call);
}

EMU_EXPORT ncclResult_t ncclBroadcast(
    const void *send, void *receive, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, void *stream) {
    operation call = {.kind = BROADCAST, .other = root, .datatype = datatype, .count = count, .send = send, .receive = receive};
    return issue(comm, stream, call);
}

EMU_EXPORT ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, void *stream) {
    return ncclBroadcast(buffer, buffer, count, datatype, root, comm, stream);
}

EMU_EXPORT ncclResult_t ncclReduceScatter(
    const void *send, void *receive, size_t count, ncclDataType_t datatype, ncclRedOp_t operator, ncclComm_t comm, void *stream) {
    operation call = {.kind = REDUCE_SCATTER, .datatype = datatype, .operator = operator, .count = count, .send = send, .receive = receive};
    return issue(comm, stream, call);
}

EMU_EXPORT ncclResult_t ncclAllGather(
    const void *send, void *receive, size_t count, ncclDataType_t datatype, ncclComm_t comm, void *stream) {
    operation call = {.kind = ALL_GATHER, .datatype = datatype, .count = count, .send = send, .receive = receive};
    return issue(comm, stream, call);
}

EMU_EXPORT ncclResult_t ncclAlltoAll(
    const void *send, void *receive, size_t count, ncclDataType_t datatype, ncclComm_t comm, void *stream) {
    operation call = {.kind = ALL_TO_ALL, .datatype = datatype, .count = count, .send = send, .receive = receive};
    return issue(comm, stream, call);
}

EMU_EXPORT ncclResult_t ncclGather(
    const void *send, void *receive, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, void *stream) {
    operation call = {.kind = GATHER, .other = root, .datatype = datatype, .count = count, .send = send, .receive = receive};
    return issue(comm, stream, call);
}

EMU_EXPORT ncclResult_t ncclScatter(
    const void *send, void *receive, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, void *stream) {
    operation call = {.kind = SCATTER, .other = root, .datatype = datatype, .count = count, .send = send, .receive = receive};
    return issue(comm, stream, call);
}

EMU_EXPORT ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, void *stream) {
    operation call = {.kind = SEND, .other = peer, .datatype = datatype, .count = count, .send = send};
    return issue(comm, stream, call);
}

EMU_EXPORT ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, void *stream) {
    operation call = {.kind = RECEIVE, .other = peer, .datatype = datatype, .count = count, .receive = receive};
    return issue(comm, stream, call);
}
