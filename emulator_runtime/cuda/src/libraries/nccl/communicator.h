/* A rank's side of a communicator: how it joins, and how it takes part in operations. */
#ifndef EMUGPU_NCCL_COMMUNICATOR_H
#define EMUGPU_NCCL_COMMUNICATOR_H

#include "core.h"
#include "interface.h"
#include "network.h"

/* An operator that multiplies what each rank gives by a number of its own before the sum (ncclRedOpCreatePreMulSum). */
typedef struct {
    bool used;
    int datatype;
    const void *address;      /* on the device: read when the operation runs; NULL: `value` counts */
    unsigned char value[8];
} scaled_sum;

typedef struct launch launch;

typedef struct communicator {
    struct communicator *next;
    int references;          /* of the handle, of work, of threads that join */
    bool destroyed, aborted;
    int ranks, rank, device;
    bool blocking;
    int state;               /* ncclInProgress until it has joined, then ncclSuccess or why it hasn't */
    int async_error;
    group_key key;
    group_key key_of_id;     /* of the unique id; zeros if it was made from another communicator */
    uint64_t children;       /* communicators that were made from this one */
    member *members;
    link_topology links;
    int64_t clock_offset_ns; /* the coordinator's clock minus this process's */
    connection *link;        /* to the coordinator; NULL: not yet, or no more */
    uint64_t collectives, exchanges, launches; /* numbers of the next ones */
    launch *announced;       /* the coordinator knows them, and hasn't answered all of them */
    int active;              /* launches that aren't done */
    unsigned recorded;       /* its number in the records; 0: none yet */
    uint64_t transfers;      /* of the records, the next one with messages between two ranks */
    scaled_sum *operators;
    int operator_count;
} communicator;

/* One call of the program. */
typedef struct {
    operation_kind kind;
    int other; /* root or peer; 0 where there is none */
    int datatype, operator;
    size_t count;
    const void *send;
    void *receive;
    bool scaled;
    scaled_sum scale;
} operation;

/* The lock (nccl_lock) is held where nothing else is said. */

/* A communicator of `device`, not joined, with a handle's reference; it appears among the handles. NULL: no memory. */
communicator *communicator_new(int device, const ncclConfig_t *config, const communicator *parent);
/* NULL: there is no such communicator. */
communicator *communicator_of(ncclComm_t handle);
communicator *communicator_share(communicator *comm);
void communicator_release(communicator *comm);
/* The handle isn't valid any more. The connection ends when the work has. */
void communicator_destroy(communicator *comm);
/* All work of it ends now; it can't be used any more. */
void communicator_abort(communicator *comm);
/* All work of it ends now; the handle stays valid, to make a smaller communicator from it. */
void communicator_revoke(communicator *comm);

/* Join as `comm->rank` of `comm->ranks`, under `comm->key`; waits for all ranks. The lock isn't held. `patient`: the coordinator
 * may not know of the communicator yet. */
ncclResult_t communicator_join(communicator *comm, const net_address *coordinator, bool patient);
/* Join without the other ranks; `parent`: from which it is made, or NULL. The lock isn't held. */
ncclResult_t communicator_join_virtual(communicator *comm, const communicator *parent);
/* Each rank gives `bytes` and gets those of all. Waits. The lock isn't held. */
ncclResult_t communicator_exchange(communicator *comm, const void *own, size_t bytes, void *all);

/* Put operations of one communicator on a stream, as one piece of work. The lock isn't held. */
ncclResult_t communicator_launch(communicator *comm, emu_stream *stream, const operation *operations, int count);
/* What they take when all ranks are there. */
int64_t communicator_time_ns(const communicator *comm, const operation *operations, int count);

/* Keep a message for ncclGetLastError of this thread, and answer `status`. */
ncclResult_t complain(ncclResult_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *last_complaint(void);

#endif
