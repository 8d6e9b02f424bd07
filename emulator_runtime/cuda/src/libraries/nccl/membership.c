/* Making communicators.
 *
 * A unique id holds the address of the process that made it, which coordinates the communicator, and its key. A communicator that
 * is made from another one is coordinated by the process of its first rank, whose address all ranks know; its key is the
 * parent's secret and a number of the way to it, which all compute alike.
 */
#include "membership.h"

#include "coordinator.h"
#include "virtual.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ID_MAGIC UINT64_C(0x31304449554d4545)

_Static_assert(sizeof(unique_id) <= sizeof(ncclUniqueId), "the content fits into an NCCL unique id");

static bool listens_at_comm_id; /* NCCL_COMM_ID's port is this process's already */

/* ---- unique ids ---- */

static bool random_bytes(void *into, size_t bytes) {
    int descriptor = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    ssize_t got = read(descriptor, into, bytes);
    close(descriptor);
    return got == (ssize_t)bytes;
}

static uint64_t mix(uint64_t number, uint64_t more) {
    number = (number ^ more) * UINT64_C(0x9e3779b97f4a7c15);
    return number ^ number >> 29;
}

/* The id that NCCL_COMM_ID stands for: no secret, as all ranks know only the address. */
static bool comm_id(unique_id *id) {
    const char *text = getenv("NCCL_COMM_ID");
    if (text == NULL || *text == '\0' || !parse_address(text, &id->address))
        return false;
    for (size_t i = 0; text[i] != '\0'; i++)
        id->key.path = mix(id->key.path, (unsigned char)text[i]);
    return true;
}

static bool uses_comm_id(const unique_id *id) {
    unique_id wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.magic = ID_MAGIC;
    return comm_id(&wanted) && memcmp(&wanted, id, sizeof wanted) == 0;
}

void unique_id_of_key(ncclUniqueId *output, group_key key) {
    unique_id id;
    memset(&id, 0, sizeof id);
    memset(output, 0, sizeof *output);
    id.magic = ID_MAGIC;
    id.address.port = 1; /* an id that can be used has one */
    id.key = key;
    memcpy(output, &id, sizeof id);
}

ncclResult_t unique_id_new(ncclUniqueId *output) {
    unique_id id;
    memset(&id, 0, sizeof id);
    memset(output, 0, sizeof *output);
    id.magic = ID_MAGIC;
    if (!comm_id(&id)) {
        if (!random_bytes(&id.key, sizeof id.key))
            return complain(ncclSystemError, "/dev/urandom can't be read");
        if (ranks_are_virtual()) {
            unique_id_of_key(output, id.key);
            return ncclSuccess;
        }
        pthread_mutex_lock(&nccl_lock);
        bool ready = network_start(&id.address) && coordinator_expect(&id.key);
        pthread_mutex_unlock(&nccl_lock);
        if (!ready)
            return complain(ncclSystemError, "no network interface can be used (NCCL_SOCKET_IFNAME)");
    }
    memcpy(output, &id, sizeof id);
    return ncclSuccess;
}

bool unique_id_read(const ncclUniqueId *from, unique_id *id) {
    memcpy(id, from, sizeof *id);
    return id->magic == ID_MAGIC && id->address.port != 0;
}

/* ---- joining ---- */

/* With NCCL_COMM_ID, rank 0 listens at its address, and the others come before or after that. */
static ncclResult_t join_by_id(membership *wanted) {
    bool patient = uses_comm_id(&wanted->id);
    wanted->created->key = wanted->created->key_of_id = wanted->id.key;
    if (ranks_are_virtual())
        return communicator_join_virtual(wanted->created, wanted->parent);
    if (patient && wanted->created->rank == 0) {
        net_address own;
        pthread_mutex_lock(&nccl_lock);
        bool ready = network_start(&own);
        if (ready && !listens_at_comm_id)
            ready = listens_at_comm_id = network_listen(&wanted->id.address);
        ready = ready && coordinator_expect(&wanted->id.key);
        pthread_mutex_unlock(&nccl_lock);
        if (!ready)
            return complain(ncclSystemError, "can't listen at the address in NCCL_COMM_ID");
    }
    return communicator_join(wanted->created, &wanted->id.address, patient);
}

/* Join the communicator of some of the parent's ranks; `leader` is the first of them. */
static ncclResult_t join_derived(membership *wanted, uint64_t path, int leader) {
    const communicator *parent = wanted->parent;
    communicator *created = wanted->created;
    created->key = parent->key;
    created->key.path = mix(parent->key.path, path);
    if (ranks_are_virtual())
        return communicator_join_virtual(created, parent);
    if (created->rank == 0) {
        net_address own;
        pthread_mutex_lock(&nccl_lock);
        bool ready = network_start(&own) && coordinator_expect(&created->key);
        pthread_mutex_unlock(&nccl_lock);
        if (!ready)
            return complain(ncclSystemError, "out of memory");
    }
    return communicator_join(created, &parent->members[leader].address, true);
}

typedef struct {
    int32_t color, key;
} split_choice;

/* Within the new communicator, ranks are ordered by key, and those of the same key as in the parent. */
static bool comes_before(const split_choice *choices, int one, int other) {
    return choices[one].key < choices[other].key || (choices[one].key == choices[other].key && one < other);
}

static ncclResult_t join_split(membership *wanted) {
    communicator *parent = wanted->parent;
    split_choice own = {wanted->color, wanted->key};
    split_choice *choices = calloc((size_t)parent->ranks, sizeof *choices);
    if (choices == NULL)
        return complain(ncclSystemError, "out of memory");
    ncclResult_t status = communicator_exchange(parent, &own, sizeof own, choices);
    if (status == ncclSuccess && wanted->created != NULL) {
        int leader = parent->rank, ranks = 0, rank = 0;
        for (int other = 0; other < parent->ranks; other++) {
            if (choices[other].color != own.color)
                continue;
            ranks++;
            rank += other != parent->rank && comes_before(choices, other, parent->rank);
            if (comes_before(choices, other, leader))
                leader = other;
        }
        wanted->created->ranks = ranks;
        wanted->created->rank = rank;
        status = join_derived(wanted, mix(wanted->generation, (uint64_t)own.color + 1), leader);
    }
    free(choices);
    return status;
}

/* Only the ranks that stay call this, and the parent may be broken: nothing is exchanged over it. */
static ncclResult_t join_shrunk(membership *wanted) {
    const communicator *parent = wanted->parent;
    uint64_t path = mix(wanted->generation, UINT64_MAX);
    int leader = -1;
    for (int rank = 0; rank < parent->ranks; rank++) {
        if (wanted->excluded[rank]) {
            path = mix(path, (uint64_t)rank);
            continue;
        }
        if (leader < 0)
            leader = rank;
        wanted->created->rank += rank < parent->rank;
        wanted->created->ranks++;
    }
    return join_derived(wanted, path, leader);
}

typedef struct {
    uint64_t present;
    unique_id id;
} offered_id;

/* One of the parent's ranks has the unique id that the new ranks have, and tells the others. */
static ncclResult_t join_grown(membership *wanted) {
    communicator *parent = wanted->parent;
    if (parent == NULL)
        return join_by_id(wanted);
    offered_id own = {.present = wanted->has_id, .id = wanted->id};
    offered_id *offered = calloc((size_t)parent->ranks, sizeof *offered);
    if (offered == NULL)
        return complain(ncclSystemError, "out of memory");
    ncclResult_t status = communicator_exchange(parent, &own, sizeof own, offered);
    bool found = false;
    for (int rank = 0; rank < parent->ranks && !found; rank++) {
        found = offered[rank].present;
        wanted->id = offered[rank].id;
    }
    free(offered);
    if (status != ncclSuccess)
        return status;
    if (!found)
        return complain(ncclInvalidArgument, "no rank has a unique id for the larger communicator");
    return join_by_id(wanted);
}

static void *make(void *given) {
    static ncclResult_t (*const join[])(membership *) = {
        [FROM_ID] = join_by_id, [FROM_SPLIT] = join_split, [FROM_SHRINK] = join_shrunk, [FROM_GROWTH] = join_grown};
    membership *wanted = given;
    communicator *created = wanted->created;
    wanted->status = join[wanted->source](wanted);
    pthread_mutex_lock(&nccl_lock);
    if (created != NULL && wanted->status != ncclSuccess) {
        created->state = wanted->status;
        created->async_error = wanted->status;
    }
    pthread_mutex_unlock(&nccl_lock);
    return NULL;
}

static void discard(membership *one) {
    pthread_mutex_lock(&nccl_lock);
    if (one->created != NULL)
        communicator_release(one->created);
    if (one->parent != NULL)
        communicator_release(one->parent);
    pthread_mutex_unlock(&nccl_lock);
    free(one->excluded);
    free(one);
}

/* A communicator that blocks and couldn't be made isn't there. */
static void finish(membership *one) {
    if (one->created != NULL && one->status != ncclSuccess) {
        pthread_mutex_lock(&nccl_lock);
        if (communicator_of(one->created) != NULL)
            communicator_destroy(one->created);
        pthread_mutex_unlock(&nccl_lock);
        *one->output = NULL;
    }
    discard(one);
}

static void *make_and_discard(void *given) {
    make(given);
    discard(given);
    return NULL;
}

static bool in_background(const membership *one) {
    const communicator *asked = one->created != NULL ? one->created : one->parent;
    return !asked->blocking;
}

void memberships_discard(membership *first) {
    while (first != NULL) {
        membership *one = first;
        first = one->next;
        one->status = ncclInvalidUsage;
        finish(one);
    }
}

typedef struct {
    pthread_t thread;
    membership *one;
    bool started;
} worker;

static ncclResult_t make_together(membership *first, int count) {
    ncclResult_t result = ncclSuccess;
    worker *workers = calloc((size_t)count, sizeof *workers);
    if (workers == NULL) {
        memberships_discard(first);
        return complain(ncclSystemError, "out of memory");
    }
    for (int i = 0; i < count; i++) {
        workers[i].one = first;
        first = first->next;
        bool background = in_background(workers[i].one);
        void *(*function)(void *) = background ? make_and_discard : make;
        workers[i].started = pthread_create(&workers[i].thread, NULL, function, workers[i].one) == 0;
        if (!workers[i].started) {
            workers[i].one->status = ncclSystemError;
        } else if (background) {
            pthread_detach(workers[i].thread);
            workers[i].one = NULL;
            result = ncclInProgress;
        }
    }
    for (int i = 0; i < count; i++) {
        if (workers[i].one == NULL)
            continue;
        if (workers[i].started)
            pthread_join(workers[i].thread, NULL);
        if (workers[i].one->status != ncclSuccess && (result == ncclSuccess || result == ncclInProgress))
            result = workers[i].one->status;
        finish(workers[i].one);
    }
    free(workers);
    return result;
}

ncclResult_t memberships_make(membership *first) {
    int count = 0;
    for (const membership *one = first; one != NULL; one = one->next)
        count++;
    if (count != 1 || in_background(first))
        return count == 0 ? ncclSuccess : make_together(first, count);
    make(first);
    ncclResult_t status = first->status;
    finish(first);
    return status;
}
