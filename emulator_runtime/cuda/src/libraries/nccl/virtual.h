/* Ranks of a job that is recorded without its other ranks (`emugpu trace --world-size`).
 *
 * A process takes part in communicators whose other members aren't there: it joins at once, and each of its operations completes at
 * once. Where a member's data would arrive, its own data stand for it.
 */
#ifndef EMUGPU_NCCL_VIRTUAL_H
#define EMUGPU_NCCL_VIRTUAL_H

#include "communicator.h"

#define UNKNOWN_RANK UINT64_MAX

/* Whether the other ranks aren't there. The lock needn't be held. */
bool ranks_are_virtual(void);
/* The key that all members of this unique id's group compute alike; false: the group has no name. The lock is held. */
bool virtual_key(const group_key *of_id, group_key *key);
/* Write to `ranks` the job's ranks that are members of a communicator, or UNKNOWN_RANK. The lock is held. */
void virtual_members(const communicator *comm, const communicator *parent, uint64_t *ranks);
/* The operation of a group whose data stand for those of its `part`-th one: itself, mostly. */
const operation *virtual_source(const communicator *comm, const operation *operations, int count, int part);
/* What the operation gives to this rank, whose contribution is `own`: memory of malloc, and its size. NULL: nothing, or no memory
 * left (`failed`). */
void *virtual_result(const communicator *comm, const operation *call, const void *own, size_t *bytes, bool *failed);

#endif
