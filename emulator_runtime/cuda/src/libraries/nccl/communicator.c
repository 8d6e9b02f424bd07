/* A rank's side of a communicator.
 *
 * Work on a stream is announced to the coordinator as soon as the end of the work before it is known, usually long before the
 * device would be there, and its own end is known when the coordinator has answered. Nobody waits for the answer but a call that
 * waits for the stream.
 *
 * Clocks: ranks on different hosts have different ones. While it joins, a rank sends the coordinator its time eight times; the
 * shortest round trip shows the difference between the two clocks, wrong by half of that trip at most (about 20 us on one
 * machine, 100 us in a data center's network). A difference within that limit means one common clock, and is taken as 0, so that
 * ranks on one node agree exactly. A difference that changes later (NTP slews a clock by up to 0.5 ms per second; clocks with other
 * scales) isn't followed.
 */
#include "communicator.h"

#include "coordinator.h"
#include "values.h"
#include "virtual.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PINGS = 8, LOOK_MS = 100, DEFAULT_NETWORK_GBPS = 100, NS_PER_S = 1000000000 };
#define IMPATIENT_NS (10 * (int64_t)NS_PER_S) /* how long a process is tried again that doesn't listen, or is busy with strangers */
#define PATIENT_NS (60 * (int64_t)NS_PER_S)

/* What a stream keeps, once for all launches of a graph. */
typedef struct {
    communicator *comm;
    int64_t duration_ns;
    int count;
    operation operations[];
} plan;

/* One time that a plan runs. */
struct launch {
    launch *next;
    plan *plan;
    uint64_t number;
    uint64_t first_collective;
    int64_t issued_ns;
    bool sent;
    int outstanding; /* results that are missing */
    int status;
    int64_t start_ns; /* in this process's clock */
    struct {
        void *payload;
        size_t bytes;
        bool answered;
    } results[];
};

static communicator *communicators;
static _Thread_local char complaint[256];

ncclResult_t complain(ncclResult_t status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaint, sizeof complaint, format, arguments);
    va_end(arguments);
    emu_log(2, "NCCL: %s", complaint);
    return status;
}

const char *last_complaint(void) {
    return complaint;
}

/* ---- life ---- */

communicator *communicator_new(int device, const ncclConfig_t *config, const communicator *parent) {
    communicator *comm = calloc(1, sizeof *comm);
    if (comm == NULL)
        return NULL;
    comm->references = 1;
    comm->device = device;
    comm->state = ncclInProgress;
    comm->blocking = parent == NULL || parent->blocking;
    if (config != NULL && config->blocking != NCCL_UNDEFINED)
        comm->blocking = config->blocking != 0;
    comm->next = communicators;
    communicators = comm;
    return comm;
}

communicator *communicator_of(ncclComm_t handle) {
    for (communicator *comm = communicators; comm != NULL; comm = comm->next)
        if (comm == handle)
            return comm;
    return NULL;
}

communicator *communicator_share(communicator *comm) {
    comm->references++;
    return comm;
}

void communicator_release(communicator *comm) {
    if (--comm->references > 0)
        return;
    free(comm->members);
    free(comm->operators);
    free(comm);
}

static void say_goodbye(communicator *comm) {
    if (comm->link == NULL)
        return;
    connection_send(comm->link, GOODBYE, "", 0, NULL, 0);
    connection_close(comm->link);
    comm->link = NULL;
}

static void remove_handle(communicator *comm) {
    communicator **place = &communicators;
    while (*place != NULL && *place != comm)
        place = &(*place)->next;
    if (*place != NULL)
        *place = comm->next;
}

void communicator_destroy(communicator *comm) {
    remove_handle(comm);
    comm->destroyed = true;
    if (comm->active == 0)
        say_goodbye(comm);
    communicator_release(comm);
}

/* No answers come any more. */
static void end_announced(communicator *comm, int status) {
    for (launch *one = comm->announced; one != NULL; one = one->next) {
        one->status = status;
        one->outstanding = 0;
    }
    comm->announced = NULL;
    pthread_cond_broadcast(&nccl_news);
}

void communicator_revoke(communicator *comm) {
    comm->aborted = true;
    end_announced(comm, ncclInternalError);
    if (comm->link != NULL)
        connection_close(comm->link);
    comm->link = NULL;
}

void communicator_abort(communicator *comm) {
    remove_handle(comm);
    comm->destroyed = true;
    communicator_revoke(comm);
    communicator_release(comm);
}

/* ---- answers ---- */

static launch *announced_launch(communicator *comm, uint64_t number) {
    launch *one = comm->announced;
    while (one != NULL && one->number != number)
        one = one->next;
    return one;
}

static void remove_announced(communicator *comm, const launch *one) {
    launch **place = &comm->announced;
    while (*place != NULL && *place != one)
        place = &(*place)->next;
    if (*place != NULL)
        *place = one->next;
}

static size_t call_bytes(const operation *call) {
    return call->count * (call->kind == CONTROL ? 1 : datatype_bytes(call->datatype));
}

static size_t expected_bytes(const communicator *comm, const operation *call) {
    if (!payload_moves(call->kind, comm->ranks, call->datatype, call_bytes(call)))
        return 0;
    return result_bytes(call->kind, comm->ranks, comm->rank, call->other, call_bytes(call));
}

static bool result_received(communicator *comm, const void *body, size_t bytes) {
    result_frame result;
    if (bytes < sizeof result)
        return false;
    memcpy(&result, body, sizeof result);
    bytes -= sizeof result;
    launch *one = announced_launch(comm, result.launch);
    if (one == NULL)
        return true; /* it was given up */
    if (result.part >= (uint32_t)one->plan->count || one->results[result.part].answered)
        return false;
    if (result.status == ncclSuccess && bytes != expected_bytes(comm, &one->plan->operations[result.part]))
        return false;
    void *payload = malloc(bytes + 1);
    if (payload == NULL)
        return false;
    memcpy(payload, (const unsigned char *)body + sizeof result, bytes);
    one->results[result.part].payload = payload;
    one->results[result.part].bytes = bytes;
    one->results[result.part].answered = true;
    if (result.status != ncclSuccess)
        one->status = result.status;
    int64_t start_ns = result.start_ns - comm->clock_offset_ns;
    if (start_ns > one->start_ns)
        one->start_ns = start_ns;
    if (--one->outstanding == 0)
        remove_announced(comm, one);
    return true;
}

static bool answer_received(connection *link, frame_type type, const void *body, size_t bytes) {
    return type == RESULT && result_received(link->owner, body, bytes);
}

static void coordinator_lost(connection *link) {
    communicator *comm = link->owner;
    comm->link = NULL;
    end_announced(comm, ncclRemoteError);
}

static const connection_role member_role = {answer_received, coordinator_lost};

/* ---- joining ---- */

static double network_bytes_per_s(void) {
    const char *text = getenv("EMUGPU_CUDA_NETWORK_GBPS");
    double rate = text == NULL ? 0 : strtod(text, NULL);
    if (!(rate > 0) || isinf(rate))
        rate = DEFAULT_NETWORK_GBPS;
    return rate * 1e9 / 8;
}

static member own_member(int device, const net_address *address) {
    const emu_device_info *info = emu_device(device);
    member own;
    memset(&own, 0, sizeof own);
    own.host = host_number();
    memcpy(own.device, info->uuid_bytes, sizeof own.device);
    own.peer_bytes_per_s = info->peer_link_bytes_per_s;
    own.host_bytes_per_s = info->host_link_bytes_per_s;
    own.network_bytes_per_s = network_bytes_per_s();
    own.address = *address;
    return own;
}

static link_topology topology_of(const member *members, int ranks) {
    link_topology links = {.ranks = ranks};
    double peer = INFINITY, host = INFINITY, network = INFINITY;
    for (int rank = 0; rank < ranks; rank++) {
        bool first = true;
        for (int before = 0; before < rank; before++)
            first = first && members[before].host != members[rank].host;
        links.nodes += first;
        peer = fmin(peer, members[rank].peer_bytes_per_s);
        host = fmin(host, members[rank].host_bytes_per_s);
        network = fmin(network, members[rank].network_bytes_per_s);
    }
    links.nvlink = peer > 0;
    links.node_bytes_per_s = links.nvlink ? peer : host > 0 ? host : 1e9;
    links.network_bytes_per_s = network > 0 ? network : 1e9;
    return links;
}

/* Wait until the socket can be read; false: the communicator was aborted. */
static bool wait_readable(communicator *comm, int descriptor) {
    for (;;) {
        struct pollfd wanted = {.fd = descriptor, .events = POLLIN};
        if (poll(&wanted, 1, LOOK_MS) > 0)
            return true;
        pthread_mutex_lock(&nccl_lock);
        bool aborted = comm->aborted;
        pthread_mutex_unlock(&nccl_lock);
        if (aborted)
            return false;
    }
}

static bool read_bytes(communicator *comm, int descriptor, void *into, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        if (!wait_readable(comm, descriptor))
            return false;
        ssize_t got = recv(descriptor, (char *)into + done, bytes - done, 0);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static bool send_frame(int descriptor, frame_type type, const void *body, size_t bytes) {
    unsigned char frame[sizeof(frame_header) + sizeof(greeting_frame)];
    frame_header header = {.bytes = (uint32_t)bytes, .type = type};
    memcpy(frame, &header, sizeof header);
    memcpy(frame + sizeof header, body, bytes);
    return send(descriptor, frame, sizeof header + bytes, MSG_NOSIGNAL) == (ssize_t)(sizeof header + bytes);
}

/* Read a frame of this type and size. ncclSystemError: the connection was closed; another status: the coordinator's reason. */
static ncclResult_t expect_frame(communicator *comm, int descriptor, frame_type type, void *body, size_t bytes) {
    frame_header header;
    rejected_frame rejected;
    if (!read_bytes(comm, descriptor, &header, sizeof header))
        return ncclSystemError;
    if (header.type == REJECTED && header.bytes == sizeof rejected) {
        if (!read_bytes(comm, descriptor, &rejected, sizeof rejected))
            return ncclSystemError;
        rejected.reason[sizeof rejected.reason - 1] = '\0';
        if (rejected.status != UNKNOWN_ID)
            emu_log(1, "NCCL: rank %d can't join: %s", comm->rank, rejected.reason);
        return complain((ncclResult_t)rejected.status, "%s", rejected.reason);
    }
    if (header.type != type || header.bytes != bytes)
        return complain(ncclInternalError, "the coordinator's answer isn't what was agreed");
    return read_bytes(comm, descriptor, body, bytes) ? ncclSuccess : ncclSystemError;
}

static ncclResult_t compare_clocks(communicator *comm, int descriptor) {
    int64_t shortest_ns = INT64_MAX;
    for (int i = 0; i < PINGS; i++) {
        ping_frame ping = {.sent_ns = emu_now_ns()}, pong;
        if (!send_frame(descriptor, PING, &ping, sizeof ping))
            return ncclSystemError;
        ncclResult_t status = expect_frame(comm, descriptor, PONG, &pong, sizeof pong);
        if (status != ncclSuccess)
            return status;
        int64_t trip_ns = emu_now_ns() - ping.sent_ns;
        if (trip_ns >= shortest_ns)
            continue;
        shortest_ns = trip_ns;
        int64_t offset_ns = pong.coordinator_ns - ping.sent_ns - trip_ns / 2;
        comm->clock_offset_ns = llabs(offset_ns) <= trip_ns / 2 + 1 ? 0 : offset_ns;
    }
    return ncclSuccess;
}

/* ncclTimeout: to be tried again. Strangers crowded this rank out; or, if `patient`, the id isn't known there yet. */
static ncclResult_t introduce(communicator *comm, int descriptor, bool patient, const member *own, member *members) {
    greeting_frame greeting = {.magic = PROTOCOL_MAGIC, .key = comm->key, .ranks = comm->ranks, .rank = comm->rank, .member = *own};
    if (!send_frame(descriptor, GREETING, &greeting, sizeof greeting))
        return ncclSystemError;
    ncclResult_t status = expect_frame(comm, descriptor, ACCEPTED, NULL, 0);
    if (status == ncclSystemError || (patient && status == UNKNOWN_ID))
        return ncclTimeout;
    if (status == ncclSuccess)
        status = compare_clocks(comm, descriptor);
    if (status == ncclSuccess && !send_frame(descriptor, READY, "", 0))
        status = ncclSystemError;
    if (status == ncclSuccess)
        status = expect_frame(comm, descriptor, WELCOME, members, (size_t)comm->ranks * sizeof *members);
    return status == ncclSystemError ? complain(ncclRemoteError, "the coordinator's process has gone") : status;
}

static void pause_a_moment(void) {
    struct timespec pause = {0, 10000000};
    nanosleep(&pause, NULL);
}

static bool is_aborted(communicator *comm) {
    pthread_mutex_lock(&nccl_lock);
    bool aborted = comm->aborted;
    pthread_mutex_unlock(&nccl_lock);
    return aborted;
}

/* A socket over which the coordinator has welcomed this rank. */
static ncclResult_t meet(communicator *comm, const net_address *coordinator, bool patient, const member *own, member *members,
                         int *descriptor) {
    int64_t begin_ns = host_clock_ns(), patience_ns = patient ? PATIENT_NS : IMPATIENT_NS;
    for (;; pause_a_moment()) {
        int64_t waited_ns = host_clock_ns() - begin_ns;
        if (is_aborted(comm))
            return complain(ncclInvalidUsage, "the communicator was aborted");
        *descriptor = network_connect(coordinator);
        if (*descriptor < 0 && errno == ECONNREFUSED && waited_ns < patience_ns)
            continue;
        if (*descriptor < 0)
            return complain(ncclSystemError, "can't connect to the process of the unique id: %s", strerror(errno));
        ncclResult_t status = introduce(comm, *descriptor, patient, own, members);
        if (status == ncclSuccess)
            return ncclSuccess;
        close(*descriptor);
        if (status != ncclTimeout)
            return status;
        if (waited_ns >= patience_ns)
            return complain(ncclRemoteError, "the process of the unique id doesn't accept this rank");
    }
}

ncclResult_t communicator_join(communicator *comm, const net_address *coordinator, bool patient) {
    net_address address;
    int descriptor = -1;
    pthread_mutex_lock(&nccl_lock);
    bool started = network_start(&address);
    pthread_mutex_unlock(&nccl_lock);
    if (!started)
        return complain(ncclSystemError, "no network interface can be used (NCCL_SOCKET_IFNAME)");
    member *members = calloc((size_t)comm->ranks, sizeof *members);
    if (members == NULL)
        return complain(ncclSystemError, "out of memory");
    member own = own_member(comm->device, &address);
    emu_record_waiting(true);
    ncclResult_t status = meet(comm, coordinator, patient, &own, members, &descriptor);
    emu_record_waiting(false);
    pthread_mutex_lock(&nccl_lock);
    if (status == ncclSuccess) {
        comm->members = members;
        comm->links = topology_of(members, comm->ranks);
        comm->link = connection_add(descriptor, &member_role, comm);
        if (comm->link == NULL) {
            close(descriptor);
            status = ncclSystemError;
        } else if (comm->destroyed) {
            say_goodbye(comm);
        }
    } else {
        free(members);
    }
    comm->state = status;
    pthread_mutex_unlock(&nccl_lock);
    return status;
}

ncclResult_t communicator_join_virtual(communicator *comm, const communicator *parent) {
    static const net_address nowhere;
    member *members = calloc((size_t)comm->ranks, sizeof *members);
    uint64_t *ranks = calloc((size_t)comm->ranks, sizeof *ranks);
    ncclResult_t status = members != NULL && ranks != NULL ? ncclSuccess : complain(ncclSystemError, "out of memory");
    pthread_mutex_lock(&nccl_lock);
    if (status == ncclSuccess) {
        virtual_members(comm, parent, ranks);
        virtual_key(&comm->key_of_id, &comm->key);
        members[0] = own_member(comm->device, &nowhere);
        memset(members[0].device, 0, sizeof members[0].device);
        for (int rank = comm->ranks - 1; rank >= 0; rank--) {
            members[rank] = members[0];
            members[rank].host = ranks[rank];
        }
        comm->members = members;
        comm->links = topology_of(members, comm->ranks);
    } else {
        free(members);
    }
    comm->state = status;
    pthread_mutex_unlock(&nccl_lock);
    free(ranks);
    return status;
}

/* ---- operations ---- */

/* A scalar of the device counts as 1 if it can't be read. */
static void scale(const operation *call, size_t count, void *values) {
    if (call->scale.address == NULL)
        scale_values(call->datatype, call->scale.value, count, values);
    else if (emu_memory_reachable(call->scale.address, datatype_bytes(call->datatype)))
        scale_values(call->datatype, call->scale.address, count, values);
}

/* What this rank gives: zeros if its buffer can't be read. NULL: no memory left. */
static void *contribution(const communicator *comm, const operation *call, size_t *bytes) {
    *bytes = 0;
    if (payload_moves(call->kind, comm->ranks, call->datatype, call_bytes(call)))
        *bytes = contribution_bytes(call->kind, comm->ranks, comm->rank, call->other, call_bytes(call));
    void *payload = calloc(1, *bytes + 1);
    if (payload == NULL || *bytes == 0)
        return payload;
    if (call->kind == CONTROL || emu_memory_reachable(call->send, *bytes))
        memcpy(payload, call->send, *bytes);
    if (call->scaled)
        scale(call, *bytes / datatype_bytes(call->datatype), payload);
    return payload;
}

static bool is_collective(operation_kind kind) {
    return kind != SEND && kind != RECEIVE;
}

/* Nobody else is there: the answers are known. */
static void answer_alone(communicator *comm, launch *one) {
    for (int part = 0; part < one->plan->count; part++) {
        const operation *call = virtual_source(comm, one->plan->operations, one->plan->count, part);
        size_t bytes;
        bool failed;
        void *own = contribution(comm, call, &bytes);
        one->results[part].payload = own == NULL ? NULL : virtual_result(comm, call, own, &one->results[part].bytes, &failed);
        if (own == NULL || failed)
            one->status = ncclSystemError;
        free(own);
    }
    one->outstanding = 0;
}

static void announce(communicator *comm, launch *one, int64_t arrival_ns) {
    uint64_t sequence = one->first_collective;
    one->sent = true;
    one->start_ns = arrival_ns;
    if (ranks_are_virtual()) {
        answer_alone(comm, one);
        return;
    }
    one->next = comm->announced;
    comm->announced = one;
    for (int part = 0; part < one->plan->count && comm->link != NULL; part++) {
        const operation *call = &one->plan->operations[part];
        size_t bytes;
        void *payload = contribution(comm, call, &bytes);
        if (payload == NULL) {
            end_announced(comm, ncclSystemError);
            return;
        }
        arrival_frame frame = {
            .launch = one->number,
            .part = (uint32_t)part,
            .kind = call->kind,
            .sequence = is_collective(call->kind) ? sequence++ : 0,
            .other = call->other,
            .datatype = call->datatype,
            .operator = call->scaled ? ncclSum : call->operator,
            .count = call->count,
            .arrival_ns = arrival_ns + comm->clock_offset_ns,
        };
        connection_send(comm->link, ARRIVAL, &frame, sizeof frame, payload, bytes);
        free(payload);
    }
    if (comm->link == NULL)
        end_announced(comm, ncclRemoteError);
}

/* The buffer gets its data when the operation's end is known, which is before anything behind it in the stream is done. */
static void deliver(launch *one) {
    for (int part = 0; part < one->plan->count; part++) {
        void *buffer = one->plan->operations[part].receive;
        size_t bytes = one->results[part].bytes;
        if (bytes == 0 || !emu_memory_reachable(buffer, bytes))
            continue;
        memcpy(buffer, one->results[part].payload, bytes);
        emu_memory_written(buffer, bytes);
    }
}

static launch *launch_new(plan *of) {
    launch *one = calloc(1, sizeof *one + (size_t)of->count * sizeof one->results[0]);
    if (one == NULL)
        return NULL;
    one->plan = of;
    one->number = of->comm->launches++;
    one->outstanding = of->count;
    return one;
}

static void launch_free(launch *one) {
    for (int part = 0; part < one->plan->count; part++)
        free(one->results[part].payload);
    free(one);
}

/* ---- records ---- */

/* A hash of the key, which is secret. */
static void record_key(const group_key *key, unsigned char digest[16]) {
    uint64_t words[sizeof *key / 8], sums[2] = {1, 2};
    memcpy(words, key, sizeof words);
    for (size_t i = 0; i < sizeof words / 8; i++)
        for (int one = 0; one < 2; one++) {
            sums[one] = (sums[one] ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
            sums[one] ^= sums[one] >> 29;
        }
    memcpy(digest, sums, sizeof sums);
}

static unsigned record_number(communicator *comm) {
    emu_record_member *members = comm->recorded ? NULL : calloc((size_t)comm->ranks, sizeof *members);
    if (members == NULL)
        return comm->recorded;
    for (int rank = 0; rank < comm->ranks; rank++) {
        members[rank].host = comm->members[rank].host;
        memcpy(members[rank].device, comm->members[rank].device, sizeof members[rank].device);
    }
    unsigned char digest[16];
    record_key(&comm->key, digest);
    comm->recorded = emu_record_communicator(digest, comm->rank, comm->ranks, members);
    free(members);
    return comm->recorded;
}

/* Sends and receives of a group. */
static void record_transfers(communicator *comm, const operation *operations, int count) {
    emu_record_peer *peers = calloc((size_t)count, sizeof *peers);
    uint64_t most[2] = {0};
    int messages = 0;
    for (int i = 0; peers != NULL && i < count; i++) {
        const operation *call = &operations[i];
        if (is_collective(call->kind))
            continue;
        emu_record_peer *peer = &peers[messages++];
        peer->rank = call->other;
        *(call->kind == SEND ? &peer->sent_bytes : &peer->received_bytes) = call_bytes(call);
        most[call->kind == SEND] += call_bytes(call);
    }
    if (messages > 0)
        emu_record_collective(record_number(comm), comm->transfers++, SEND, most[0] > most[1] ? most[0] : most[1], peers, messages);
    free(peers);
}

/* Those of a group run as one kernel for each kind, and have the number of the first. */
static void record_launch(communicator *comm, const plan *of, uint64_t first_collective) {
    for (int kind = ALL_REDUCE; kind < SEND; kind++) {
        uint64_t number = first_collective, first = 0, bytes = 0;
        for (int i = 0; i < of->count; i++) {
            const operation *call = &of->operations[i];
            bool once = kind == ALL_REDUCE || kind == REDUCE || kind == BROADCAST;
            if ((int)call->kind == kind) {
                first = bytes == 0 ? number : first;
                bytes += call_bytes(call) * (uint64_t)(once ? 1 : comm->ranks);
            }
            number += is_collective(call->kind);
        }
        if (bytes > 0)
            emu_record_collective(record_number(comm), first, kind, bytes, NULL, 0);
    }
    record_transfers(comm, of->operations, of->count);
}

static void *launch_begin(void *given) {
    plan *of = given;
    communicator *comm = of->comm;
    pthread_mutex_lock(&nccl_lock);
    launch *one = launch_new(of);
    if (one != NULL) {
        one->issued_ns = emu_now_ns();
        one->first_collective = comm->collectives;
        for (int part = 0; part < of->count; part++)
            comm->collectives += is_collective(of->operations[part].kind);
        comm->active++;
    }
    pthread_mutex_unlock(&nccl_lock);
    if (one != NULL && emu_recording())
        record_launch(comm, of, one->first_collective);
    return one;
}

static bool launch_poll(void *state, int64_t ready_ns, int64_t *end_ns) {
    launch *one = state;
    communicator *comm = one->plan->comm;
    int64_t arrival_ns = ready_ns > one->issued_ns ? ready_ns : one->issued_ns;
    pthread_mutex_lock(&nccl_lock);
    if (!one->sent)
        announce(comm, one, arrival_ns);
    bool over = one->outstanding == 0;
    if (over && one->status != ncclSuccess && comm->async_error == ncclSuccess && !comm->aborted) {
        comm->async_error = one->status;
        emu_log(1, "NCCL: rank %d: %s", comm->rank,
                one->status == ncclRemoteError ? "a rank that a collective needs has gone" : "a collective has failed");
    }
    pthread_mutex_unlock(&nccl_lock);
    if (!over)
        return false;
    if (one->status == ncclSuccess) {
        deliver(one);
        *end_ns = (one->start_ns > arrival_ns ? one->start_ns : arrival_ns) + one->plan->duration_ns;
    } else {
        int64_t now_ns = emu_now_ns();
        *end_ns = now_ns > arrival_ns ? now_ns : arrival_ns;
    }
    return true;
}

static void launch_done(void *state) {
    launch *one = state;
    communicator *comm = one->plan->comm;
    pthread_mutex_lock(&nccl_lock);
    remove_announced(comm, one);
    launch_free(one);
    if (--comm->active == 0 && comm->destroyed)
        say_goodbye(comm);
    pthread_mutex_unlock(&nccl_lock);
}

static void plan_drop(void *given) {
    plan *of = given;
    pthread_mutex_lock(&nccl_lock);
    communicator_release(of->comm);
    pthread_mutex_unlock(&nccl_lock);
    free(of);
}

int64_t communicator_time_ns(const communicator *comm, const operation *operations, int count) {
    double whole[CONTROL + 1] = {0};
    double sent[2] = {0}, received[2] = {0}; /* within the node, across nodes */
    bool transfers[2] = {false, false};
    int64_t time_ns = 0;
    for (int i = 0; i < count; i++) {
        const operation *call = &operations[i];
        bool across = comm->members[call->other].host != comm->members[comm->rank].host;
        double bytes = (double)call_bytes(call);
        if (is_collective(call->kind)) {
            bool once = call->kind == ALL_REDUCE || call->kind == REDUCE || call->kind == BROADCAST;
            whole[call->kind] += bytes * (once ? 1 : comm->ranks);
        } else {
            transfers[across] = true;
            *(call->kind == SEND ? &sent[across] : &received[across]) += bytes;
        }
    }
    for (int kind = ALL_REDUCE; kind < SEND; kind++)
        if (whole[kind] > 0) /* those of a group run as one kernel */
            time_ns += link_time_ns(&comm->links, (operation_kind)kind, whole[kind], false);
    for (int across = 0; across < 2; across++)
        if (transfers[across]) {
            int64_t transfer_ns = link_time_ns(&comm->links, SEND, fmax(sent[across], received[across]), across);
            time_ns = transfer_ns > time_ns ? transfer_ns : time_ns;
        }
    return time_ns;
}

static plan *plan_new(communicator *comm, const operation *operations, int count) {
    plan *created = malloc(sizeof *created + (size_t)count * sizeof operations[0]);
    if (created == NULL)
        return NULL;
    created->comm = comm;
    created->count = count;
    bool takes_time = count > 0 && comm->members != NULL && !emu_recording();
    created->duration_ns = takes_time ? communicator_time_ns(comm, operations, count) : 0;
    if (count > 0)
        memcpy(created->operations, operations, (size_t)count * sizeof operations[0]);
    return created;
}

/* With one rank, what is given is what comes out. */
static ncclResult_t copy_own(emu_stream *stream, const operation *call) {
    if (call->receive == call->send || call->count == 0)
        return ncclSuccess;
    if (!emu_memory_reachable(call->send, call_bytes(call)) || !emu_memory_reachable(call->receive, call_bytes(call)))
        return complain(ncclInvalidArgument, "a buffer isn't memory of a device");
    emu_status status = emu_copy(stream, call->receive, call->send, call_bytes(call), false);
    return status == EMU_OK ? ncclSuccess : complain(ncclUnhandledCudaError, "CUDA error %d", status);
}

ncclResult_t communicator_launch(communicator *comm, emu_stream *stream, const operation *operations, int count) {
    if (comm->ranks == 1 && count == 1 && is_collective(operations->kind) && !operations->scaled)
        return copy_own(stream, operations);
    plan *created = plan_new(comm, operations, count);
    if (created == NULL)
        return complain(ncclSystemError, "out of memory");
    pthread_mutex_lock(&nccl_lock);
    communicator_share(comm);
    pthread_mutex_unlock(&nccl_lock);
    emu_deferred work = {launch_begin, launch_poll, launch_done, plan_drop, created, "nccl"};
    emu_status status = emu_launch_deferred(stream, &work);
    if (status != EMU_OK)
        return complain(ncclUnhandledCudaError, "CUDA error %d", status);
    return ncclSuccess;
}

ncclResult_t communicator_exchange(communicator *comm, const void *own, size_t bytes, void *all) {
    operation call = {.kind = CONTROL, .count = bytes, .send = own, .datatype = ncclUint8};
    plan *created = plan_new(comm, &call, 1);
    if (created == NULL)
        return complain(ncclSystemError, "out of memory");
    emu_record_waiting(true);
    pthread_mutex_lock(&nccl_lock);
    launch *one = launch_new(created);
    ncclResult_t status = ncclSystemError;
    if (one != NULL) {
        one->first_collective = comm->exchanges++;
        announce(comm, one, 0);
        while (one->outstanding > 0)
            pthread_cond_wait(&nccl_news, &nccl_lock);
        status = one->status;
        if (status == ncclSuccess)
            memcpy(all, one->results[0].payload, one->results[0].bytes);
        launch_free(one);
    }
    pthread_mutex_unlock(&nccl_lock);
    emu_record_waiting(false);
    free(created);
    return status == ncclSuccess ? status : complain(status, "the other ranks of the communicator can't be reached");
}

/* ---- the end of the process ---- */

/* Ranks of other processes may still send to each other through coordinators of this one: it stays while they do, for a short time
 * after the last message. */
static void linger(void) {
    const int64_t idle_ns = 2 * (int64_t)NS_PER_S, longest_ns = 10 * (int64_t)NS_PER_S;
    int64_t begin_ns = host_clock_ns();
    int64_t last_ns = begin_ns;
    while (coordinators_needed(&last_ns)) {
        int64_t now_ns = host_clock_ns();
        if (now_ns > last_ns + idle_ns || now_ns > begin_ns + longest_ns)
            return;
        int64_t until_ns = now_ns + LOOK_MS * 1000000;
        struct timespec until = {until_ns / NS_PER_S, until_ns % NS_PER_S};
        pthread_cond_timedwait(&nccl_news, &nccl_lock, &until);
    }
}

__attribute__((destructor)) static void leave_all(void) {
    pthread_mutex_lock(&nccl_lock);
    if (network_running()) {
        for (communicator *comm = communicators; comm != NULL; comm = comm->next)
            say_goodbye(comm);
        linger();
    }
    pthread_mutex_unlock(&nccl_lock);
}
