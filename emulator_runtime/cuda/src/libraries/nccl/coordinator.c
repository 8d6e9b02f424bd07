/* Brings together the ranks of a communicator, and then the ranks that take part in each operation.
 *
 * An operation starts when its last rank has arrived. Collectives are matched by their number, the n-th send of a rank to another
 * one with the n-th receive. Small payloads are combined here. What a rank that has gone had begun still counts; an operation
 * that needs it in future fails for the others with ncclRemoteError.
 */
#include "coordinator.h"

#include "core.h"
#include "interface.h"
#include "values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One rank's part in an operation. */
typedef struct arrival {
    struct arrival *next;
    int rank;
    arrival_frame frame;
    void *payload; /* NULL: the data don't move */
    size_t payload_bytes;
} arrival;

typedef struct collective {
    struct collective *next;
    arrival_frame first; /* what all others must agree with */
    int arrived, answered;
    int status;
    int64_t start_ns;
    arrival *of_rank[]; /* NULL: not arrived, or answered after a failure */
} collective;

typedef struct {
    arrival *first, **last;
} arrival_queue;

typedef struct {
    connection *link; /* NULL: not here yet, or gone */
    member member;
    bool greeted, ready, gone;
} peer;

typedef struct coordinator {
    struct coordinator *next;
    group_key key;
    int ranks; /* 0: nobody has come yet */
    int ready, present;
    bool welcomed, over;
    int64_t last_message_ns;
    peer *peers;
    collective *collectives;
    arrival_queue *sends, *receives; /* ranks * ranks: from sender * ranks + receiver */
} coordinator;

static coordinator *coordinators;

/* ---- beginning and end ---- */

static bool same_key(const group_key *one, const group_key *other) {
    unsigned char difference = 0; /* takes equally long wherever they differ */
    for (size_t i = 0; i < sizeof *one; i++)
        difference |= ((const unsigned char *)one)[i] ^ ((const unsigned char *)other)[i];
    return difference == 0;
}

/* A communicator that isn't complete yet. */
static coordinator *find(const group_key *key) {
    coordinator *found = NULL;
    for (coordinator *each = coordinators; each != NULL; each = each->next)
        if (!each->welcomed && !each->over && same_key(&each->key, key))
            found = each;
    return found;
}

bool coordinator_expect(const group_key *key) {
    if (find(key) != NULL)
        return true;
    coordinator *created = calloc(1, sizeof *created);
    if (created == NULL)
        return false;
    created->key = *key;
    created->next = coordinators;
    coordinators = created;
    return true;
}

static void free_arrival(arrival *one) {
    if (one != NULL)
        free(one->payload);
    free(one);
}

static void free_queue(arrival_queue *queue) {
    while (queue->first != NULL) {
        arrival *one = queue->first;
        queue->first = one->next;
        free_arrival(one);
    }
}

static void free_collective(coordinator *group, collective *operation) {
    for (int rank = 0; rank < group->ranks; rank++)
        free_arrival(operation->of_rank[rank]);
    free(operation);
}

static void free_coordinator(coordinator *group) {
    coordinator **place = &coordinators;
    while (*place != group)
        place = &(*place)->next;
    *place = group->next;
    while (group->collectives != NULL) {
        collective *operation = group->collectives;
        group->collectives = operation->next;
        free_collective(group, operation);
    }
    for (int i = 0; group->sends != NULL && i < group->ranks * group->ranks; i++) {
        free_queue(&group->sends[i]);
        free_queue(&group->receives[i]);
    }
    free(group->sends);
    free(group->receives);
    free(group->peers);
    free(group);
}

bool coordinators_needed(int64_t *last_message_ns) {
    bool needed = false;
    for (coordinator *group = coordinators; group != NULL; group = group->next)
        if (group->welcomed && group->present > 0) {
            needed = true;
            if (group->last_message_ns > *last_message_ns)
                *last_message_ns = group->last_message_ns;
        }
    return needed;
}

/* ---- operations ---- */

static void answer(coordinator *group, const arrival *to, int status, int64_t start_ns, const void *payload, size_t bytes) {
    result_frame result = {.launch = to->frame.launch, .part = to->frame.part, .status = status, .start_ns = start_ns};
    connection *link = group->peers[to->rank].link;
    if (link != NULL)
        connection_send(link, RESULT, &result, sizeof result, payload, bytes);
}

static size_t call_bytes(const arrival_frame *frame) {
    return (size_t)frame->count * (frame->kind == CONTROL ? 1 : datatype_bytes(frame->datatype));
}

/* The `slice`-th part of what each rank gave, one after the other. */
static void concatenate(const coordinator *group, const collective *operation, size_t bytes, int slice, unsigned char *into) {
    for (int rank = 0; rank < group->ranks; rank++)
        memcpy(into + (size_t)rank * bytes, (unsigned char *)operation->of_rank[rank]->payload + (size_t)slice * bytes, bytes);
}

static void reduce(const coordinator *group, const collective *operation, size_t offset, unsigned char *into) {
    const void *inputs[MAX_RANKS];
    for (int rank = 0; rank < group->ranks; rank++)
        inputs[rank] = (unsigned char *)operation->of_rank[rank]->payload + offset;
    reduce_values(operation->first.datatype, operation->first.operator, inputs, group->ranks, operation->first.count, into);
}

/* What one rank gets. */
static void combine(const coordinator *group, const collective *operation, int rank, unsigned char *into) {
    const arrival_frame *frame = &operation->first;
    size_t bytes = call_bytes(frame);
    const unsigned char *of_root = operation->of_rank[frame->other]->payload;
    switch (frame->kind) {
    case ALL_REDUCE:
    case REDUCE:
        reduce(group, operation, 0, into);
        break;
    case REDUCE_SCATTER:
        reduce(group, operation, (size_t)rank * bytes, into);
        break;
    case BROADCAST:
        memcpy(into, of_root, bytes);
        break;
    case SCATTER:
        memcpy(into, of_root + (size_t)rank * bytes, bytes);
        break;
    case ALL_TO_ALL:
        concatenate(group, operation, bytes, rank, into);
        break;
    default:
        concatenate(group, operation, bytes, 0, into);
    }
}

static void complete(coordinator *group, collective *operation) {
    const arrival_frame *frame = &operation->first;
    size_t bytes = call_bytes(frame);
    bool same = frame->kind == ALL_REDUCE || frame->kind == ALL_GATHER || frame->kind == CONTROL; /* for all ranks */
    unsigned char *payload = NULL;
    for (int rank = 0; rank < group->ranks; rank++) {
        size_t result = 0;
        if (payload_moves(frame->kind, group->ranks, frame->datatype, bytes))
            result = result_bytes(frame->kind, group->ranks, rank, frame->other, bytes);
        if (result > 0 && !(same && payload != NULL)) {
            free(payload);
            payload = malloc(result);
            if (payload != NULL)
                combine(group, operation, rank, payload);
        }
        bool failed = result > 0 && payload == NULL;
        answer(group, operation->of_rank[rank], failed ? ncclSystemError : ncclSuccess, operation->start_ns, payload,
               failed ? 0 : result);
    }
    free(payload);
}

static void remove_collective(coordinator *group, collective *operation) {
    collective **place = &group->collectives;
    while (*place != operation)
        place = &(*place)->next;
    *place = operation->next;
    free_collective(group, operation);
}

/* Answer those who have arrived; who comes later gets the same answer at once. */
static void fail(coordinator *group, collective *operation, int status) {
    operation->status = status;
    for (int rank = 0; rank < group->ranks; rank++) {
        arrival *one = operation->of_rank[rank];
        if (one == NULL)
            continue;
        answer(group, one, status, operation->start_ns, NULL, 0);
        free_arrival(one);
        operation->of_rank[rank] = NULL;
        operation->answered++;
    }
}

static bool needs_absent(const coordinator *group, const collective *operation) {
    for (int rank = 0; rank < group->ranks; rank++)
        if (group->peers[rank].gone && operation->of_rank[rank] == NULL)
            return true;
    return false;
}

static bool same_operation(const arrival_frame *one, const arrival_frame *other) {
    return one->kind == other->kind && one->other == other->other && one->datatype == other->datatype
        && one->operator == other->operator && one->count == other->count;
}

static collective *collective_of(coordinator *group, const arrival_frame *frame) {
    collective **place = &group->collectives;
    bool control = frame->kind == CONTROL;
    for (; *place != NULL; place = &(*place)->next)
        if ((*place)->first.sequence == frame->sequence && ((*place)->first.kind == CONTROL) == control)
            return *place;
    collective *created = calloc(1, sizeof *created + (size_t)group->ranks * sizeof created->of_rank[0]);
    if (created != NULL) {
        created->first = *frame;
        created->start_ns = INT64_MIN;
        *place = created;
    }
    return created;
}

static bool arrive_at_collective(coordinator *group, arrival *one) {
    collective *operation = collective_of(group, &one->frame);
    if (operation == NULL || operation->of_rank[one->rank] != NULL)
        return false;
    operation->of_rank[one->rank] = one;
    operation->arrived++;
    if (one->frame.arrival_ns > operation->start_ns)
        operation->start_ns = one->frame.arrival_ns;
    if (operation->status == ncclSuccess && !same_operation(&operation->first, &one->frame))
        emu_log(1, "NCCL: rank %d calls another collective than the other ranks, or with other arguments", one->rank);
    if (operation->status != ncclSuccess)
        fail(group, operation, operation->status);
    else if (!same_operation(&operation->first, &one->frame))
        fail(group, operation, ncclInvalidUsage);
    else if (needs_absent(group, operation))
        fail(group, operation, ncclRemoteError);
    else if (operation->arrived == group->ranks)
        complete(group, operation);
    if (operation->arrived == group->ranks)
        remove_collective(group, operation);
    return true;
}

static void match(coordinator *group, arrival *send, arrival *receive) {
    int64_t start_ns = send->frame.arrival_ns > receive->frame.arrival_ns ? send->frame.arrival_ns : receive->frame.arrival_ns;
    int status = call_bytes(&send->frame) == call_bytes(&receive->frame) ? ncclSuccess : ncclInvalidUsage;
    if (status != ncclSuccess)
        emu_log(1, "NCCL: rank %d sends %zu bytes to rank %d, which expects %zu", send->rank, call_bytes(&send->frame),
                receive->rank, call_bytes(&receive->frame));
    answer(group, send, status, start_ns, NULL, 0);
    answer(group, receive, status, start_ns, send->payload, status == ncclSuccess ? send->payload_bytes : 0);
    free_arrival(send);
    free_arrival(receive);
}

static void enqueue(arrival_queue *queue, arrival *one) {
    if (queue->first == NULL)
        queue->last = &queue->first;
    *queue->last = one;
    queue->last = &one->next;
}

static arrival *dequeue(arrival_queue *queue) {
    arrival *one = queue->first;
    queue->first = one->next;
    one->next = NULL;
    return one;
}

static bool arrive_at_transfer(coordinator *group, arrival *one) {
    size_t ranks = (size_t)group->ranks;
    if (group->sends == NULL) {
        group->sends = calloc(ranks * ranks, sizeof *group->sends);
        group->receives = calloc(ranks * ranks, sizeof *group->receives);
    }
    if (group->sends == NULL || group->receives == NULL)
        return false;
    bool sends = one->frame.kind == SEND;
    size_t pair = sends ? (size_t)one->rank * ranks + (size_t)one->frame.other : (size_t)one->frame.other * ranks + (size_t)one->rank;
    arrival_queue *own = sends ? &group->sends[pair] : &group->receives[pair];
    arrival_queue *opposite = sends ? &group->receives[pair] : &group->sends[pair];
    if (opposite->first != NULL) {
        arrival *other = dequeue(opposite);
        match(group, sends ? one : other, sends ? other : one);
    } else if (group->peers[one->frame.other].gone) {
        answer(group, one, ncclRemoteError, one->frame.arrival_ns, NULL, 0);
        free_arrival(one);
    } else {
        enqueue(own, one);
    }
    return true;
}

static bool arrival_valid(const coordinator *group, int rank, const arrival_frame *frame, size_t payload_bytes) {
    if (frame->kind < ALL_REDUCE || frame->kind > CONTROL || frame->other < 0 || frame->other >= group->ranks)
        return false;
    size_t element = frame->kind == CONTROL ? 1 : datatype_bytes(frame->datatype);
    if (element == 0 || frame->operator < ncclSum || frame->operator > ncclAvg || frame->count > SIZE_MAX / element / MAX_RANKS)
        return false;
    size_t bytes = call_bytes(frame), expected = 0;
    if (frame->kind == CONTROL && bytes > MAX_FRAME_BYTES / MAX_RANKS)
        return false;
    if (payload_moves(frame->kind, group->ranks, frame->datatype, bytes))
        expected = contribution_bytes(frame->kind, group->ranks, rank, frame->other, bytes);
    return payload_bytes == expected;
}

static bool arrived(coordinator *group, int rank, const void *body, size_t bytes) {
    arrival_frame frame;
    if (bytes < sizeof frame)
        return false;
    memcpy(&frame, body, sizeof frame);
    if (!arrival_valid(group, rank, &frame, bytes - sizeof frame))
        return false;
    arrival *one = calloc(1, sizeof *one);
    if (one == NULL)
        return false;
    one->rank = rank;
    one->frame = frame;
    one->payload_bytes = bytes - sizeof frame;
    one->payload = malloc(one->payload_bytes + 1);
    if (one->payload != NULL)
        memcpy(one->payload, (const unsigned char *)body + sizeof frame, one->payload_bytes);
    bool transfer = frame.kind == SEND || frame.kind == RECEIVE;
    bool taken = one->payload != NULL && (transfer ? arrive_at_transfer(group, one) : arrive_at_collective(group, one));
    if (!taken)
        free_arrival(one);
    return taken;
}

/* ---- ranks ---- */

static void reject(connection *link, int status, const char *reason) {
    rejected_frame frame = {.status = status};
    snprintf(frame.reason, sizeof frame.reason, "%s", reason);
    connection_send(link, REJECTED, &frame, sizeof frame, NULL, 0);
}

/* The communicator doesn't come about. Its ranks learn why. */
static void give_up(coordinator *group, int status, const char *reason) {
    group->over = true;
    for (int rank = 0; rank < group->ranks; rank++)
        if (group->peers[rank].link != NULL)
            reject(group->peers[rank].link, status, reason);
}

static bool devices_differ(const coordinator *group, char *reason, size_t room) {
    for (int one = 0; one < group->ranks; one++)
        for (int other = 0; other < one; other++) {
            const member *a = &group->peers[one].member, *b = &group->peers[other].member;
            if (a->host != b->host || memcmp(a->device, b->device, sizeof a->device) != 0)
                continue;
            snprintf(reason, room, "Duplicate GPU detected : rank %d and rank %d both on the same CUDA device", other, one);
            return false;
        }
    return true;
}

static void welcome(coordinator *group) {
    char reason[REASON_BYTES];
    if (!devices_differ(group, reason, sizeof reason)) {
        give_up(group, ncclInvalidUsage, reason);
        return;
    }
    size_t bytes = (size_t)group->ranks * sizeof(member);
    member *members = malloc(bytes);
    if (members == NULL) {
        give_up(group, ncclSystemError, "out of memory");
        return;
    }
    for (int rank = 0; rank < group->ranks; rank++)
        members[rank] = group->peers[rank].member;
    group->welcomed = true;
    for (int rank = 0; rank < group->ranks; rank++)
        connection_send(group->peers[rank].link, WELCOME, members, bytes, NULL, 0);
    free(members);
}

static void leave(coordinator *group, int rank) {
    group->peers[rank].link = NULL;
    group->peers[rank].gone = true;
    group->present--;
    if (group->present == 0) {
        free_coordinator(group);
        return;
    }
    if (!group->welcomed) {
        char reason[REASON_BYTES];
        snprintf(reason, sizeof reason, "rank %d has gone before the communicator was complete", rank);
        if (!group->over)
            give_up(group, ncclRemoteError, reason);
        return;
    }
    for (collective *operation = group->collectives; operation != NULL; operation = operation->next)
        if (operation->status == ncclSuccess && operation->of_rank[rank] == NULL)
            fail(group, operation, ncclRemoteError);
    for (int other = 0; group->sends != NULL && other < group->ranks; other++) {
        arrival_queue *queues[] = {&group->sends[other * group->ranks + rank], &group->receives[rank * group->ranks + other]};
        for (int i = 0; i < 2; i++)
            while (queues[i]->first != NULL) {
                arrival *one = dequeue(queues[i]);
                answer(group, one, ncclRemoteError, one->frame.arrival_ns, NULL, 0);
                free_arrival(one);
            }
    }
}

static bool peer_received(connection *link, frame_type type, const void *body, size_t bytes) {
    coordinator *group = link->owner;
    group->last_message_ns = host_clock_ns();
    if (type == PING && bytes == sizeof(ping_frame)) {
        ping_frame ping;
        memcpy(&ping, body, sizeof ping);
        ping.coordinator_ns = emu_now_ns();
        connection_send(link, PONG, &ping, sizeof ping, NULL, 0);
        return true;
    }
    if (type == READY && bytes == 0 && !group->peers[link->rank].ready && !group->over) {
        group->peers[link->rank].ready = true;
        if (++group->ready == group->ranks)
            welcome(group);
        return true;
    }
    if (type == ARRIVAL && group->welcomed)
        return arrived(group, link->rank, body, bytes);
    if (type == GOODBYE) {
        int rank = link->rank;
        connection_close(link);
        leave(group, rank);
        return true;
    }
    return group->over; /* messages on their way to a communicator that didn't come about */
}

static void peer_closed(connection *link) {
    leave(link->owner, link->rank);
}

static const connection_role rank_role = {peer_received, peer_closed};

bool coordinator_greeted(connection *link, const greeting_frame *greeting) {
    coordinator *group = find(&greeting->key);
    if (group == NULL) {
        reject(link, UNKNOWN_ID, "the process of the unique id has no communicator of this id");
        return false;
    }
    int ranks = greeting->ranks, rank = greeting->rank;
    if (ranks < 1 || ranks > MAX_RANKS || rank < 0 || rank >= ranks)
        return false;
    if (group->ranks == 0) {
        group->peers = calloc((size_t)ranks, sizeof *group->peers);
        if (group->peers == NULL)
            return false;
        group->ranks = ranks;
    }
    if (ranks != group->ranks || group->peers[rank].greeted) {
        reject(link, ncclInvalidUsage, ranks != group->ranks ? "ranks disagree about their number" : "two processes have the same rank");
        return false;
    }
    group->peers[rank] = (peer){.link = link, .member = greeting->member, .greeted = true};
    group->present++;
    link->role = &rank_role;
    link->owner = group;
    link->rank = rank;
    link->deadline_ns = 0;
    connection_send(link, ACCEPTED, "", 0, NULL, 0);
    return true;
}
