/* What the files of the emulated CUDA driver share: the types of its interface, as far as they are used. */
#ifndef EMUGPU_DRIVER_H
#define EMUGPU_DRIVER_H

#include "../cuda/cuda_state.h"

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef emu_context *CUcontext;
typedef emu_module *CUmodule;
typedef emu_module *CUlibrary;
typedef emu_kernel *CUfunction;
typedef emu_kernel *CUkernel;
typedef void *CUstream;
typedef emu_event *CUevent;
typedef emu_graph *CUgraph;
typedef emu_graph *CUgraphExec;
typedef emu_node *CUgraphNode;
typedef emu_user_object *CUuserObject;
typedef emu_memory_pool *CUmemoryPool;
typedef unsigned long long CUmemGenericAllocationHandle;

typedef struct {
    unsigned char bytes[16];
} CUuuid;

typedef struct {
    int type; /* LOCATION_* */
    int id;
} CUmemLocation;

enum { LOCATION_DEVICE = 1 };

typedef struct {
    int type; /* 1: pinned */
    int requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    unsigned char allocFlags[8];
} CUmemAllocationProp;

typedef struct {
    CUmemLocation location;
    int flags; /* 0: none, 1: read, 3: read and write */
} CUmemAccessDesc;

typedef struct {
    int allocType;
    int handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned char reserved[56];
} CUmemPoolProps;

typedef struct {
    size_t srcXInBytes, srcY;
    int srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    void *srcArray;
    size_t srcPitch;
    size_t dstXInBytes, dstY;
    int dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    void *dstArray;
    size_t dstPitch;
    size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct {
    int id;
    char padding[4];
    union {
        char bytes[64];
        int cooperative;
    } value;
} CUlaunchAttribute;

enum { LAUNCH_ATTRIBUTE_COOPERATIVE = 2 };

typedef struct {
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

typedef struct {
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
    int sharedMemPerBlock;
    int totalConstantMemory;
    int SIMDWidth;
    int memPitch;
    int regsPerBlock;
    int clockRate;
    int textureAlign;
} CUdevprop;

/* Return from the calling function unless `result` is EMU_OK. */
#define TRY(result)                \
    do {                           \
        int tried = (result);      \
        if (tried != EMU_OK) {     \
            return tried;          \
        }                          \
    } while (0)

/* Not initialized before cuInit. */
static inline int ready(void) {
    return emu_initialized() ? EMU_OK : EMU_NOT_INITIALIZED;
}

/* Most functions need a context that is current. */
static inline int in_context(void) {
    TRY(ready());
    return emu_context_current() != NULL ? EMU_OK : EMU_INVALID_CONTEXT;
}

static inline int check_device(CUdevice device) {
    TRY(ready());
    return emu_device(device) != NULL ? EMU_OK : EMU_INVALID_DEVICE;
}

/* The runtime has names for some errors that are simply invalid values or handles here. */
static inline int driver_result(int result) {
    switch (result) {
    case RESULT_INVALID_CONFIGURATION:
    case RESULT_INVALID_PITCH:
    case RESULT_INVALID_SYMBOL:
    case RESULT_INVALID_COPY_DIRECTION:
        return EMU_INVALID_VALUE;
    case RESULT_INVALID_DEVICE_FUNCTION:
        return EMU_INVALID_HANDLE;
    default:
        return result;
    }
}

static inline void *pointer(CUdeviceptr address) {
    return (void *)(uintptr_t)address;
}

#endif
