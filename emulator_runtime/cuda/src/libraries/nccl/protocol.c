/* Which bytes of an operation are exchanged. */
#include "protocol.h"

#include "interface.h"

/* Programs check small tensors that they gather (shapes, flags, losses, hashes), so those must have their values. Gradients and
 * activations are results of kernels, and meaningless anyway. Integers are hardly ever either of these: they are indexes, sizes,
 * or pickled objects (torch.distributed sends those as bytes), so much more of them is exchanged. */
enum { MAX_FLOAT_BYTES = 64 << 10, MAX_INTEGER_BYTES = 4 << 20 };

static size_t times(size_t bytes, int ranks) {
    return bytes * (size_t)ranks;
}

size_t contribution_bytes(operation_kind kind, int ranks, int rank, int root, size_t bytes) {
    switch (kind) {
    case REDUCE_SCATTER:
    case ALL_TO_ALL:
        return times(bytes, ranks);
    case BROADCAST:
        return rank == root ? bytes : 0;
    case SCATTER:
        return rank == root ? times(bytes, ranks) : 0;
    case RECEIVE:
        return 0;
    default:
        return bytes;
    }
}

size_t result_bytes(operation_kind kind, int ranks, int rank, int root, size_t bytes) {
    switch (kind) {
    case ALL_GATHER:
    case ALL_TO_ALL:
    case CONTROL:
        return times(bytes, ranks);
    case GATHER:
        return rank == root ? times(bytes, ranks) : 0;
    case REDUCE:
        return rank == root ? bytes : 0;
    case SEND:
        return 0;
    default:
        return bytes;
    }
}

int payload_moves(operation_kind kind, int ranks, int datatype, size_t bytes) {
    size_t limit = datatype >= ncclFloat16 ? MAX_FLOAT_BYTES : MAX_INTEGER_BYTES;
    switch (kind) {
    case CONTROL:
        return 1;
    case ALL_GATHER:
    case GATHER:
    case SCATTER:
    case REDUCE_SCATTER:
    case ALL_TO_ALL:
        return bytes <= limit / (size_t)ranks;
    default:
        return bytes <= limit;
    }
}
