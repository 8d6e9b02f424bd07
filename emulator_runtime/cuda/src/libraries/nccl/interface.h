/* The types and numbers of NCCL's public interface that are used here, declared from its documentation (NCCL 2.30). */
#ifndef EMUGPU_NCCL_INTERFACE_H
#define EMUGPU_NCCL_INTERFACE_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

enum { NCCL_VERSION = 23007 }; /* 2.30.7 */

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclTimeout = 8,
} ncclResult_t;

typedef enum {
    ncclInt8 = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12,
} ncclDataType_t;

/* Numbers from ncclNumOps on are operators that a program created (ncclRedOpCreatePreMulSum). */
typedef enum { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4, ncclNumOps = 5, ncclMaxRedOp = INT_MAX } ncclRedOp_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

typedef struct {
    char internal[128];
} ncclUniqueId;

/* What a program sets of a communicator; newer releases append fields, so `size` says which are there. */
enum { NCCL_CONFIG_MAGIC = (int)0xcafebeef, NCCL_UNDEFINED = INT_MIN };
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking;
} ncclConfig_t;

enum { NCCL_SIMULATION_MAGIC = 0x74685283 };
typedef struct {
    size_t size;
    unsigned magic, version;
    float estimated_time; /* microseconds */
} ncclSimInfo_t;

enum { NCCL_SPLIT_NO_COLOR = -1, NCCL_SHRINK_ABORT = 1 };

typedef struct communicator *ncclComm_t;
typedef struct nccl_window *ncclWindow_t;

#endif
