/* How long collectives take on the links between devices. */
#ifndef EMUGPU_NCCL_LINK_MODEL_H
#define EMUGPU_NCCL_LINK_MODEL_H

#include <stdbool.h>
#include <stdint.h>

/* What ranks do together. The numbers are those of the messages between processes. */
typedef enum {
    ALL_REDUCE = 1,
    REDUCE,
    BROADCAST,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    SEND,
    RECEIVE,
    CONTROL, /* what ranks tell each other to make a communicator; takes no emulated time */
} operation_kind;

/* The links among the ranks of a communicator, the slowest of each kind. Rates are bytes per second in one direction. */
typedef struct {
    int ranks, nodes;
    bool nvlink;               /* within nodes; else through the hosts */
    double node_bytes_per_s;   /* within a node */
    double network_bytes_per_s; /* of a node */
} link_topology;

/* Nanoseconds of one operation. `bytes`: of the whole buffer, by which nccl-tests measures; for ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL,
 * GATHER and SCATTER that is the number of ranks times the bytes of the call. `across_nodes`: for SEND and RECEIVE, that the two
 * ranks are on different nodes. */
int64_t link_time_ns(const link_topology *links, operation_kind kind, double bytes, bool across_nodes);

#endif
