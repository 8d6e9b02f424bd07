/* The part of a communicator that knows all its ranks: it brings together who takes part in an operation. */
#ifndef EMUGPU_NCCL_COORDINATOR_H
#define EMUGPU_NCCL_COORDINATOR_H

#include "network.h"

/* Expect ranks that greet with this key. Repeating it has no effect. The lock is held. False: no memory. */
bool coordinator_expect(const group_key *key);
/* A stranger has greeted. False: no communicator has its key, or it is wrong otherwise. */
bool coordinator_greeted(connection *link, const greeting_frame *greeting);
/* Whether ranks of other processes still need this one, and when one of them last sent something (host time). */
bool coordinators_needed(int64_t *last_message_ns);

#endif
