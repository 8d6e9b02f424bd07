/* Connections between processes, served by one thread. */
#ifndef EMUGPU_NCCL_NETWORK_H
#define EMUGPU_NCCL_NETWORK_H

#include "protocol.h"

#include <pthread.h>
#include <stdbool.h>

/* Guards everything of this library. Never held while a function of the core is called that takes the core's lock: the core calls
 * this library under its own. */
extern pthread_mutex_t nccl_lock;
/* Signalled whenever a communicator's state has changed. Waits use CLOCK_MONOTONIC. */
extern pthread_cond_t nccl_news;

typedef struct connection connection;

/* What the two ends do. Called on the network's thread, the lock is held. */
typedef struct {
    /* A frame has come, its body is `bytes` long. False: it is wrong, close the connection. */
    bool (*received)(connection *link, frame_type type, const void *body, size_t bytes);
    void (*closed)(connection *link);
} connection_role;

struct connection {
    connection *next;
    int descriptor; /* -1: closed */
    const connection_role *role;
    void *owner;
    int rank;
    int64_t deadline_ns; /* of the host, for a connection that hasn't proved anything yet; 0: none */
    unsigned char *input, *output;
    size_t input_bytes, input_room, output_bytes, output_room;
};

/* Start the thread, and a listening socket of this process. `own`: where others reach it. The lock is held. */
bool network_start(net_address *own);
/* Whether the thread runs in this process (not in a child of a fork). */
bool network_running(void);
/* Listen at an address in addition. The lock is held. */
bool network_listen(const net_address *address);
/* The lock is held in the following. NULL: no memory. */
connection *connection_add(int descriptor, const connection_role *role, void *owner);
/* Put a frame on its way; `payload` may be NULL. A connection that fails is closed by the network's thread. */
void connection_send(connection *link, frame_type type, const void *body, size_t bytes, const void *payload, size_t payload_bytes);
/* Close it, without a call of `closed`. What was sent before still arrives, unless the other end doesn't read. */
void connection_close(connection *link);
/* A blocking socket that is connected to `address`; -1 and errno. The lock isn't held. */
int network_connect(const net_address *address);

/* "host:port", "[IPv6]:port". */
bool parse_address(const char *text, net_address *address);
/* The number of this node, by NCCL's rule: host name and boot id, or NCCL_HOSTID. */
uint64_t host_number(void);
int64_t host_clock_ns(void);

#endif
