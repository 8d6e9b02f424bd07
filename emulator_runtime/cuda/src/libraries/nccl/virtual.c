#include "virtual.h"

#include "membership.h"
#include "values.h"

#include <stdlib.h>
#include <string.h>

/* A group of ranks to which the program's framework gave a name. */
typedef struct named_group {
    struct named_group *next;
    group_key of_id, key;
    int count;
    int ranks[];
} named_group;

static named_group *groups; /* the newest first */

bool ranks_are_virtual(void) {
    return emu_virtual_ranks() > 0;
}

/* ---- names ---- */

/* The same in each process. */
static group_key key_of_name(const char *name) {
    uint64_t words[sizeof(group_key) / 8];
    for (size_t word = 0; word < sizeof words / sizeof words[0]; word++) {
        words[word] = word + 1;
        for (const char *at = name; *at != '\0'; at++) {
            words[word] = (words[word] ^ (unsigned char)*at) * UINT64_C(0x9e3779b97f4a7c15);
            words[word] ^= words[word] >> 29;
        }
    }
    group_key key;
    memcpy(&key, words, sizeof key);
    return key;
}

static const named_group *group_of(const group_key *of_id) {
    for (const named_group *group = groups; group != NULL; group = group->next)
        if (memcmp(&group->of_id, of_id, sizeof *of_id) == 0)
            return group;
    return NULL;
}

bool virtual_key(const group_key *of_id, group_key *key) {
    const named_group *group = group_of(of_id);
    if (group != NULL)
        *key = group->key;
    return group != NULL;
}

/* Name the group for which `id` is, and its members by their ranks in the job. An id of zeros becomes one: that of a group
 * whose first rank isn't there to make it. For the framework's helper (emulator_runtime/virtual_ranks), which knows the groups. */
EMU_EXPORT ncclResult_t emugpuNameGroup(ncclUniqueId *id, const char *name, const int *ranks, int count) {
    static const ncclUniqueId none;
    if (id == NULL || name == NULL || ranks == NULL || count < 1 || count > MAX_RANKS || !ranks_are_virtual())
        return complain(ncclInvalidArgument, "a group of %d virtual ranks", count);
    unique_id content;
    if (memcmp(id, &none, sizeof none) == 0) {
        unique_id_of_key(id, key_of_name(name));
    }
    if (!unique_id_read(id, &content))
        return complain(ncclInvalidArgument, "the unique id isn't one of ncclGetUniqueId");
    named_group *group = malloc(sizeof *group + (size_t)count * sizeof group->ranks[0]);
    if (group == NULL)
        return complain(ncclSystemError, "out of memory");
    group->of_id = content.key;
    group->key = key_of_name(name);
    group->count = count;
    memcpy(group->ranks, ranks, (size_t)count * sizeof ranks[0]);
    pthread_mutex_lock(&nccl_lock);
    group->next = groups;
    groups = group;
    pthread_mutex_unlock(&nccl_lock);
    return ncclSuccess;
}

/* A communicator that has as many ranks as the job has all of them, in their order; one that is made from another one and has as
 * many ranks has the same. */
void virtual_members(const communicator *comm, const communicator *parent, uint64_t *ranks) {
    const named_group *group = group_of(&comm->key_of_id);
    for (int rank = 0; rank < comm->ranks; rank++) {
        if (group != NULL && group->count == comm->ranks)
            ranks[rank] = (uint64_t)group->ranks[rank];
        else if (parent != NULL && parent->ranks == comm->ranks)
            ranks[rank] = parent->members[rank].host;
        else
            ranks[rank] = comm->ranks == emu_virtual_ranks() ? (uint64_t)rank : UNKNOWN_RANK;
    }
}

/* ---- data ---- */

/* `count` elements reduced as if each rank had given these. */
static void reduce_own(const communicator *comm, const operation *call, const void *own, void *into) {
    const void *inputs[MAX_RANKS];
    for (int rank = 0; rank < comm->ranks; rank++)
        inputs[rank] = own;
    reduce_values(call->datatype, call->scaled ? ncclSum : call->operator, inputs, comm->ranks, call->count, into);
}

/* A group with a broadcast from each rank is how PyTorch gathers into a list of tensors: what this rank broadcasts stands for what
 * the others do, if that is as much. */
const operation *virtual_source(const communicator *comm, const operation *operations, int count, int part) {
    const operation *call = &operations[part];
    for (int i = 0; call->kind == BROADCAST && call->other != comm->rank && i < count; i++) {
        const operation *other = &operations[i];
        if (other->kind == BROADCAST && other->other == comm->rank && other->count == call->count && other->datatype == call->datatype)
            return other;
    }
    return call;
}

void *virtual_result(const communicator *comm, const operation *call, const void *own, size_t *bytes, bool *failed) {
    size_t given = call->count * (call->kind == CONTROL ? 1 : datatype_bytes(call->datatype)), part = given;
    *bytes = 0;
    *failed = false;
    if (!payload_moves(call->kind, comm->ranks, call->datatype, given)
        || contribution_bytes(call->kind, comm->ranks, comm->rank, call->other, given) == 0)
        return NULL; /* what a root or sender that isn't there would give: the buffer keeps its values */
    size_t wanted = result_bytes(call->kind, comm->ranks, comm->rank, call->other, given);
    unsigned char *result = wanted > 0 ? malloc(wanted) : NULL;
    *failed = wanted > 0 && result == NULL;
    if (result == NULL)
        return NULL;
    *bytes = wanted;
    switch (call->kind) {
    case ALL_REDUCE:
    case REDUCE:
        reduce_own(comm, call, own, result);
        break;
    case REDUCE_SCATTER:
        reduce_own(comm, call, (const unsigned char *)own + (size_t)comm->rank * part, result);
        break;
    case SCATTER:
        memcpy(result, (const unsigned char *)own + (size_t)comm->rank * part, wanted);
        break;
    case ALL_TO_ALL: /* each rank gives this one what this one gives it */
    case BROADCAST:
        memcpy(result, own, wanted);
        break;
    default:
        for (int rank = 0; rank < comm->ranks; rank++)
            memcpy(result + (size_t)rank * part, own, part);
    }
    return result;
}
