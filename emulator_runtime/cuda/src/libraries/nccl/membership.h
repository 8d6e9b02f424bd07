/* Making communicators: from a unique id, or from another communicator. */
#ifndef EMUGPU_NCCL_MEMBERSHIP_H
#define EMUGPU_NCCL_MEMBERSHIP_H

#include "communicator.h"

typedef enum { FROM_ID, FROM_SPLIT, FROM_SHRINK, FROM_GROWTH } membership_source;

/* A communicator that is to be made. Within a group they are made together when the group ends. */
typedef struct membership {
    struct membership *next;
    membership_source source;
    communicator *created;  /* NULL: this rank isn't to be in it */
    communicator *parent;
    unique_id id;
    bool has_id;
    int color, key;         /* of a split */
    bool *excluded;         /* of the parent's ranks, of a shrinkage */
    uint64_t generation;    /* of the parent's communicators, this is which */
    ncclComm_t *output;
    ncclResult_t status;
} membership;

ncclResult_t unique_id_new(ncclUniqueId *id);
bool unique_id_read(const ncclUniqueId *from, unique_id *id);
/* The unique id of a communicator that no process coordinates. */
void unique_id_of_key(ncclUniqueId *id, group_key key);

/* Make it, or them: at once each in a thread of its own if there are several. The lock isn't held. Frees the list. Answers the first
 * failure, or ncclInProgress if one of the communicators doesn't block. */
ncclResult_t memberships_make(membership *first);
void memberships_discard(membership *first);

#endif
