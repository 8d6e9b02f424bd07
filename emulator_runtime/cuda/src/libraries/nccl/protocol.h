/* The messages between the ranks of a communicator and its coordinator.
 *
 * The coordinator is a part of the process that made the unique id (of the first rank, for communicators made from others). Each rank
 * has one TCP connection to it. A frame is a `frame_header`, a structure by its type, and for arrivals and results the payload.
 * All ranks run the same build on machines of the same byte order, which the greeting's magic number makes sure of.
 *
 *   rank                                     coordinator
 *    | GREETING (key, rank, number of ranks)   |
 *    |---------------------------------------->|  a wrong key: the connection is closed without an answer
 *    |<----------------------------- ACCEPTED -|
 *    | PING, several                           |  to compare the clocks
 *    |<-------------------------------- PONGs -|
 *    | READY                                   |
 *    |---------------------------------------->|  when all ranks are ready:
 *    |<-------- WELCOME (all ranks' members) --|
 *    | ARRIVAL (operation, time, payload)      |
 *    |---------------------------------------->|  when all that take part have arrived:
 *    |<------ RESULT (the last one's time, payload)
 *    | GOODBYE                                 |
 */
#ifndef EMUGPU_NCCL_PROTOCOL_H
#define EMUGPU_NCCL_PROTOCOL_H

#include "link_model.h"

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

#define PROTOCOL_MAGIC UINT64_C(0x45474e43434c3031)
enum {
    MAX_RANKS = 4096,
    MAX_FRAME_BYTES = 64 << 20,
    KEY_BYTES = 32,
    REASON_BYTES = 200,
};

/* What proves that a process belongs to a communicator: a random secret, and for communicators made from others the way to them. */
typedef struct {
    unsigned char secret[KEY_BYTES - 8];
    uint64_t path;
} group_key;

/* An address of a process. IPv4 addresses are in the last four bytes. */
typedef struct {
    uint16_t family, port; /* AF_INET or AF_INET6; host byte order; 0: none */
    uint32_t scope;        /* of a link-local IPv6 address */
    unsigned char bytes[16];
} net_address;

/* The content of an ncclUniqueId. */
typedef struct {
    uint64_t magic;
    group_key key;
    net_address address;
} unique_id;

/* What all ranks know of each rank. */
typedef struct {
    uint64_t host;             /* the same for ranks on one node */
    unsigned char device[16];  /* UUID */
    double peer_bytes_per_s;   /* device to device; 0: through the host */
    double host_bytes_per_s;
    double network_bytes_per_s;
    net_address address;       /* where its process listens */
} member;

typedef enum { GREETING = 1, ACCEPTED, REJECTED, PING, PONG, READY, WELCOME, ARRIVAL, RESULT, GOODBYE } frame_type;

typedef struct {
    uint32_t bytes; /* after the header */
    uint32_t type;
} frame_header;

typedef struct {
    uint64_t magic;
    group_key key;
    int32_t ranks, rank;
    member member;
} greeting_frame;

#define UNKNOWN_ID ncclRemoteError /* the status for a greeting whose key no communicator of the process has (yet) */
typedef struct {
    int32_t status; /* ncclResult_t */
    char reason[REASON_BYTES];
} rejected_frame;

typedef struct {
    int64_t sent_ns;        /* in the rank's clock */
    int64_t coordinator_ns; /* PONG only */
} ping_frame;

typedef struct {
    uint64_t launch;     /* of the rank; repeated in the result */
    uint32_t part;       /* of a launch that has several operations */
    uint32_t kind;       /* operation_kind */
    uint64_t sequence;   /* of collectives; the one of this number on all ranks is the same */
    int32_t other;       /* the root, or the peer */
    int32_t datatype;
    int32_t operator;
    uint32_t reserved;
    uint64_t count;      /* elements, as in the call */
    int64_t arrival_ns;  /* in the coordinator's clock */
} arrival_frame;

typedef struct {
    uint64_t launch;
    uint32_t part;
    int32_t status;      /* ncclResult_t */
    int64_t start_ns;    /* in the coordinator's clock: the last arrival */
} result_frame;

/* Bytes that a rank gives to, and gets from, an operation whose call has `bytes` (count times the size of an element). */
size_t contribution_bytes(operation_kind kind, int ranks, int rank, int root, size_t bytes);
size_t result_bytes(operation_kind kind, int ranks, int rank, int root, size_t bytes);
/* Whether the data of an operation really move: see protocol.c. All ranks decide alike. */
int payload_moves(operation_kind kind, int ranks, int datatype, size_t bytes);

#endif
