/* What the files of the emulated CUDA runtime share: the types of its interface, as far as they are used, and the last error.
 *
 * CUDA_MAJOR is the release, 12 or 13, for which the library is compiled: some structures and functions differ.
 */
#ifndef EMUGPU_RUNTIME_H
#define EMUGPU_RUNTIME_H

#include "../cuda/cuda_state.h"

typedef int cudaError_t;
typedef void *cudaStream_t;
typedef emu_event *cudaEvent_t;
typedef emu_graph *cudaGraph_t;
typedef emu_graph *cudaGraphExec_t;
typedef emu_node *cudaGraphNode_t;
typedef emu_user_object *cudaUserObject_t;
typedef emu_memory_pool *cudaMemPool_t;
typedef emu_kernel *cudaFunction_t;
typedef emu_kernel *cudaKernel_t;
typedef emu_module *cudaLibrary_t;

typedef struct {
    unsigned x, y, z;
} dim3;

typedef struct {
    size_t width, height, depth;
} cudaExtent;

typedef struct {
    void *ptr;
    size_t pitch, xsize, ysize;
} cudaPitchedPtr;

typedef struct {
    int type; /* LOCATION_* */
    int id;
} cudaMemLocation;

enum { LOCATION_DEVICE = 1, LOCATION_HOST = 2 };

typedef struct {
    cudaMemLocation location;
    int flags;
} cudaMemAccessDesc;

typedef struct {
    int allocType; /* 1: pinned */
    int handleTypes;
    cudaMemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned char reserved[56];
} cudaMemPoolProps;

typedef struct {
    int type; /* 0: not known to CUDA; else as emu_memory_kind */
    int device;
    void *devicePointer;
    void *hostPointer;
#if CUDA_MAJOR >= 13
    long reserved[8];
#endif
} cudaPointerAttributes;

typedef struct {
    size_t sharedSizeBytes;
    size_t constSizeBytes;
    size_t localSizeBytes;
    int maxThreadsPerBlock;
    int numRegs;
    int ptxVersion;
    int binaryVersion;
    int cacheModeCA;
    int maxDynamicSharedSizeBytes;
    int preferredShmemCarveout;
    int clusterDimMustBeSet;
    int requiredClusterWidth, requiredClusterHeight, requiredClusterDepth;
    int clusterSchedulingPolicyPreference;
    int nonPortableClusterSizeAllowed;
    int reserved[16];
} cudaFuncAttributes;

typedef struct {
    int id;
    char padding[4];
    union {
        char bytes[64];
        int cooperative;
    } value;
} cudaLaunchAttribute;

enum { LAUNCH_ATTRIBUTE_COOPERATIVE = 2 };

typedef struct {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
} cudaLaunchConfig_t;

/* CUDA 12 has members for some attributes that CUDA 13 answers by cudaDeviceGetAttribute alone. */
typedef struct {
    char name[256];
    unsigned char uuid[16];
    char luid[8];
    unsigned luidDeviceNodeMask;
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    int regsPerBlock;
    int warpSize;
    size_t memPitch;
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
#if CUDA_MAJOR < 13
    int clockRate;
#endif
    size_t totalConstMem;
    int major, minor;
    size_t textureAlignment;
    size_t texturePitchAlignment;
#if CUDA_MAJOR < 13
    int deviceOverlap;
#endif
    int multiProcessorCount;
#if CUDA_MAJOR < 13
    int kernelExecTimeoutEnabled;
#endif
    int integrated;
    int canMapHostMemory;
#if CUDA_MAJOR < 13
    int computeMode;
#endif
    int maxTexture1D;
    int maxTexture1DMipmap;
#if CUDA_MAJOR < 13
    int maxTexture1DLinear;
#endif
    int maxTexture2D[2];
    int maxTexture2DMipmap[2];
    int maxTexture2DLinear[3];
    int maxTexture2DGather[2];
    int maxTexture3D[3];
    int maxTexture3DAlt[3];
    int maxTextureCubemap;
    int maxTexture1DLayered[2];
    int maxTexture2DLayered[3];
    int maxTextureCubemapLayered[2];
    int maxSurface1D;
    int maxSurface2D[2];
    int maxSurface3D[3];
    int maxSurface1DLayered[2];
    int maxSurface2DLayered[3];
    int maxSurfaceCubemap;
    int maxSurfaceCubemapLayered[2];
    size_t surfaceAlignment;
    int concurrentKernels;
    int ECCEnabled;
    int pciBusID, pciDeviceID, pciDomainID;
    int tccDriver;
    int asyncEngineCount;
    int unifiedAddressing;
#if CUDA_MAJOR < 13
    int memoryClockRate;
#endif
    int memoryBusWidth;
    int l2CacheSize;
    int persistingL2CacheMaxSize;
    int maxThreadsPerMultiProcessor;
    int streamPrioritiesSupported;
    int globalL1CacheSupported;
    int localL1CacheSupported;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor;
    int managedMemory;
    int isMultiGpuBoard;
    int multiGpuBoardGroupID;
    int hostNativeAtomicSupported;
#if CUDA_MAJOR < 13
    int singleToDoublePrecisionPerfRatio;
#endif
    int pageableMemoryAccess;
    int concurrentManagedAccess;
    int computePreemptionSupported;
    int canUseHostPointerForRegisteredMem;
    int cooperativeLaunch;
#if CUDA_MAJOR < 13
    int cooperativeMultiDeviceLaunch;
#endif
    size_t sharedMemPerBlockOptin;
    int pageableMemoryAccessUsesHostPageTables;
    int directManagedMemAccessFromHost;
    int maxBlocksPerMultiProcessor;
    int accessPolicyMaxWindowSize;
    size_t reservedSharedMemPerBlock;
    int hostRegisterSupported; /* from here on since CUDA 12 */
    int sparseCudaArraySupported;
    int hostRegisterReadOnlySupported;
    int timelineSemaphoreInteropSupported;
    int memoryPoolsSupported;
    int gpuDirectRDMASupported;
    unsigned gpuDirectRDMAFlushWritesOptions;
    int gpuDirectRDMAWritesOrdering;
    unsigned memoryPoolSupportedHandleTypes;
    int deferredMappingCudaArraySupported;
    int ipcEventSupported;
    int clusterLaunch;
    int unifiedFunctionPointers;
#if CUDA_MAJOR >= 13
    int deviceNumaConfig;
    int deviceNumaId;
    int mpsEnabled;
    int hostNumaId;
    unsigned gpuPciDeviceID;
    unsigned gpuPciSubsystemID;
    int hostNumaMultinodeIpcSupported;
    int reserved[56];
#else
    int reserved[63];
#endif
} cudaDeviceProp;

/* Return from the calling function, after keeping it as the last error, unless `result` is EMU_OK. */
#define TRY(result)                           \
    do {                                      \
        int tried = (result);                 \
        if (tried != EMU_OK) {                \
            return finish(tried);             \
        }                                     \
    } while (0)

/* ---- device.c ---- */

/* Keeps the thread's last error, and answers it. Each function of the runtime ends so. */
cudaError_t finish(int result);
/* Starts the core if need be; EMU_INVALID_DEVICE if there is no such device. */
int known_device(int device);

EMU_EXPORT cudaError_t cudaRuntimeGetVersion(int *version);

#endif
