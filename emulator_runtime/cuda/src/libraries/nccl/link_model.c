/* How long collectives take: alpha-beta costs of NCCL's algorithms on the slowest link.
 *
 * The cost of an algorithm is (steps * latency + bytes on the slowest link / its rate) with the usual counts of steps and bytes:
 * a ring takes 2(n-1) steps and moves 2(n-1)/n of the buffer for an all-reduce, (n-1) and (n-1)/n for all-gather and reduce-scatter
 * (Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005). The factors of bytes are those
 * by which nccl-tests turns the time of a collective into "bus bandwidth" (its PERFORMANCE.md), which makes the model easy to check:
 * a large all-reduce has the bus bandwidth `efficiency * rate`. Latencies are the constants by which NCCL itself chooses among
 * its algorithms and protocols (its src/graph/tuning.cc), and as NCCL, the model takes the fastest.
 */
#include "link_model.h"

#include <math.h>

enum { RING, TREE, ALGORITHMS };
enum { LOW_LATENCY, LOW_LATENCY_128, SIMPLE, PROTOCOLS };
enum { NVLINK, HOST_LINK, NETWORK, LINKS };

/* Microseconds before the first step. */
static const double BASE_US[ALGORITHMS][PROTOCOLS] = {
    [RING] = {6.6, 14.0, 8.4},
    [TREE] = {6.8, 14.0, 8.4},
};

/* Microseconds of one step. */
static const double STEP_US[LINKS][ALGORITHMS][PROTOCOLS] = {
    [NVLINK] = {[RING] = {0.6, 1.9, 3.4}, [TREE] = {0.6, 1.25, 4.0}},
    [HOST_LINK] = {[RING] = {1.0, 2.5, 5.7}, [TREE] = {1.0, 1.9, 4.0}},
    [NETWORK] = {[RING] = {2.7, 4.0, 14.0}, [TREE] = {5.0, 8.5, 14.0}},
};

/* The part of a protocol's bytes that is data: LL sends a flag of 4 bytes with each 4, LL128 one of 8 with each 120. */
static const double DATA_PART[PROTOCOLS] = {0.5, 120.0 / 128.0, 1.0};

/* The part of a link's nominal rate that nccl-tests reaches with large messages (230 of an A100's 300 GB/s, 25 of 31.5 GB/s of PCIe
 * 4.0 x16, 11.5 of 12.5 GB/s of 100 Gbit/s). */
static const double EFFICIENCY[LINKS] = {0.78, 0.80, 0.92};

static double bytes_factor(operation_kind kind, int ranks) {
    double part = (ranks - 1.0) / ranks;
    switch (kind) {
    case ALL_REDUCE:
        return 2 * part;
    case ALL_GATHER:
    case REDUCE_SCATTER:
    case ALL_TO_ALL:
    case GATHER:
    case SCATTER:
        return part;
    default:
        return 1;
    }
}

/* Steps of a ring, within nodes and between them. */
static void ring_steps(operation_kind kind, const link_topology *links, int *inside, int *between) {
    int rounds = kind == ALL_REDUCE ? 2 : 1;
    *between = links->nodes > 1 ? rounds * (links->nodes - 1) : 0;
    *inside = rounds * (links->ranks - 1) - *between;
}

/* Steps of NCCL's double binary trees, up and down: chains within nodes, trees between them. */
static void tree_steps(const link_topology *links, int *inside, int *between) {
    int per_node = (links->ranks + links->nodes - 1) / links->nodes;
    *inside = 2 * (per_node - 1);
    *between = 2 * (int)ceil(log2(links->nodes));
}

static double algorithm_s(const link_topology *links, operation_kind kind, int algorithm, int protocol, double bytes) {
    int node_link = links->nvlink ? NVLINK : HOST_LINK;
    int inside, between;
    double factor = bytes_factor(kind, links->ranks);
    if (algorithm == RING) {
        ring_steps(kind, links, &inside, &between);
    } else {
        tree_steps(links, &inside, &between);
        factor = 2; /* each rank sends all up and down its trees */
    }
    double latency_us = BASE_US[algorithm][protocol] + inside * STEP_US[node_link][algorithm][protocol]
        + between * STEP_US[NETWORK][algorithm][protocol];
    double rate = links->node_bytes_per_s * EFFICIENCY[node_link];
    double network = links->network_bytes_per_s * EFFICIENCY[NETWORK];
    if (links->nodes > 1 && network < rate)
        rate = network;
    return latency_us / 1e6 + bytes * factor / (rate * DATA_PART[protocol]);
}

static double collective_s(const link_topology *links, operation_kind kind, double bytes) {
    double fastest = INFINITY;
    for (int algorithm = RING; algorithm <= (kind == ALL_REDUCE ? TREE : RING); algorithm++)
        for (int protocol = LOW_LATENCY; protocol <= SIMPLE; protocol++)
            if (protocol != LOW_LATENCY_128 || links->nvlink) /* NCCL uses LL128 on NVLink only */
                fastest = fmin(fastest, algorithm_s(links, kind, algorithm, protocol, bytes));
    return fastest;
}

/* One message over one link. */
static double transfer_s(const link_topology *links, double bytes, bool across_nodes) {
    int link = across_nodes ? NETWORK : links->nvlink ? NVLINK : HOST_LINK;
    double rate = across_nodes ? links->network_bytes_per_s : links->node_bytes_per_s;
    return (BASE_US[RING][SIMPLE] + STEP_US[link][RING][SIMPLE]) / 1e6 + bytes / (rate * EFFICIENCY[link]);
}

int64_t link_time_ns(const link_topology *links, operation_kind kind, double bytes, bool across_nodes) {
    double seconds;
    if (links->ranks < 2 || kind == CONTROL)
        return 0;
    if (kind == SEND || kind == RECEIVE)
        seconds = transfer_s(links, bytes, across_nodes);
    else
        seconds = collective_s(links, kind, bytes);
    return seconds < 1e9 ? llround(seconds * 1e9) : (int64_t)1e18;
}
