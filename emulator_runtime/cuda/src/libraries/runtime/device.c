/* The runtime's errors and devices. */
#include "runtime.h"

#include <stdio.h>
#include <string.h>

/* ---- the last error ---- */

static _Thread_local cudaError_t last_error;

cudaError_t finish(int result) {
    if (result != EMU_OK) {
        last_error = result;
    }
    return result;
}

EMU_EXPORT cudaError_t cudaPeekAtLastError(void) {
    return last_error;
}

/* A device that is lost stays so: this error can't be cleared. */
EMU_EXPORT cudaError_t cudaGetLastError(void) {
    cudaError_t result = last_error;
    if (result != EMU_LAUNCH_FAILED) {
        last_error = EMU_OK;
    }
    return result;
}

EMU_EXPORT const char *cudaGetErrorName(cudaError_t error) {
    const char *name = emu_error_runtime_name(error);
    return name != NULL ? name : "unrecognized error code";
}

EMU_EXPORT const char *cudaGetErrorString(cudaError_t error) {
    const char *text = emu_error_runtime_name(error) != NULL ? emu_error_text(error) : NULL;
    return text != NULL ? text : "unrecognized error code";
}

/* ---- versions ---- */

EMU_EXPORT cudaError_t cudaDriverGetVersion(int *version) {
    if (version == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    *version = emu_driver_version();
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaRuntimeGetVersion(int *version) {
    if (version == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    *version = CUDA_MAJOR >= 13 ? 13020 : 12080;
    return EMU_OK;
}

/* ---- devices ---- */

int known_device(int device) {
    int status = emu_initialized() ? EMU_OK : emu_initialize();
    if (status == EMU_OK && emu_device(device) == NULL) {
        status = EMU_INVALID_DEVICE;
    }
    return status;
}

static int find_device(int device, const emu_device_info **info) {
    int status = emu_initialized() ? EMU_OK : emu_initialize();
    if (status != EMU_OK) {
        return status;
    }
    *info = emu_device(device);
    return *info != NULL ? EMU_OK : EMU_INVALID_DEVICE;
}

EMU_EXPORT cudaError_t cudaGetDeviceCount(int *count) {
    if (count == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    *count = 0;
    TRY(emu_initialize());
    *count = emu_device_count();
    return finish(*count > 0 ? EMU_OK : EMU_NO_DEVICE);
}

EMU_EXPORT cudaError_t cudaSetDevice(int device) {
    return finish(emu_use_device(device));
}

EMU_EXPORT cudaError_t cudaGetDevice(int *device) {
    const emu_device_info *info;
    if (device == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    TRY(find_device(0, &info));
    *device = emu_current_device();
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    const emu_device_info *info;
    TRY(find_device(device, &info));
    if (flags > 1) {
        return finish(EMU_INVALID_VALUE);
    }
    return finish(flags == 1 ? emu_primary_set_flags(device, device_flags) : EMU_OK);
}

EMU_EXPORT cudaError_t cudaSetValidDevices(int *devices, int count) {
    const emu_device_info *info;
    TRY(find_device(0, &info));
    if (count < 0 || count > emu_device_count() || (count > 0 && devices == NULL)) {
        return finish(EMU_INVALID_VALUE);
    }
    for (int i = 0; i < count; i++) {
        TRY(find_device(devices[i], &info));
    }
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaSetDeviceFlags(unsigned flags) {
    const emu_device_info *info;
    TRY(find_device(0, &info));
    return finish(emu_primary_set_flags(emu_current_device(), flags));
}

EMU_EXPORT cudaError_t cudaGetDeviceFlags(unsigned *flags) {
    const emu_device_info *info;
    int active = 0;
    TRY(find_device(0, &info));
    return finish(emu_primary_state(emu_current_device(), flags, &active));
}

EMU_EXPORT cudaError_t cudaDeviceSynchronize(void) {
    TRY(emu_use_context());
    TRY(emu_capture_permits());
    return finish(emu_device_synchronize(emu_current_device()));
}

EMU_EXPORT cudaError_t cudaDeviceReset(void) {
    TRY(emu_use_context());
    TRY(emu_capture_permits());
    return finish(emu_primary_reset(emu_current_device()));
}

EMU_EXPORT cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device) {
    const emu_device_info *info;
    TRY(find_device(device, &info));
    return finish(emu_device_attribute(value, attribute, device));
}

EMU_EXPORT cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
    const emu_device_info *info;
    TRY(find_device(device, &info));
    return finish(emu_pci_bus_id(text, length, device));
}

EMU_EXPORT cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text) {
    const emu_device_info *info;
    TRY(find_device(0, &info));
    return finish(emu_device_by_pci_bus_id(device, text));
}

/* ---- properties ---- */

static int attribute(int number, int device) {
    int value = 0;
    emu_device_attribute(&value, number, device);
    return value;
}

static void set_texture_limits(cudaDeviceProp *properties, int device) {
    const struct {
        int *member;
        int first, count;
    } limits[] = {
        {&properties->maxTexture1D, 21, 1},
        {properties->maxTexture2D, 22, 2},
        {properties->maxTexture3D, 24, 3},
        {properties->maxTexture2DLayered, 27, 3},
        {properties->maxTexture1DLayered, 42, 2},
        {properties->maxTexture2DGather, 45, 2},
        {properties->maxTexture3DAlt, 47, 3},
        {&properties->maxTextureCubemap, 52, 1},
        {properties->maxTextureCubemapLayered, 53, 2},
        {&properties->maxSurface1D, 55, 1},
        {properties->maxSurface2D, 56, 2},
        {properties->maxSurface3D, 58, 3},
        {properties->maxSurface1DLayered, 61, 2},
        {properties->maxSurface2DLayered, 63, 3},
        {&properties->maxSurfaceCubemap, 66, 1},
        {properties->maxSurfaceCubemapLayered, 67, 2},
        {properties->maxTexture2DLinear, 70, 3},
        {properties->maxTexture2DMipmap, 73, 2},
        {&properties->maxTexture1DMipmap, 77, 1},
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        for (int j = 0; j < limits[i].count; j++) {
            limits[i].member[j] = attribute(limits[i].first + j, device);
        }
    }
}

/* Members that CUDA 13 no longer has. */
static void set_former_members(cudaDeviceProp *properties, int device) {
#if CUDA_MAJOR < 13
    properties->clockRate = attribute(13, device);
    properties->deviceOverlap = attribute(15, device);
    properties->kernelExecTimeoutEnabled = attribute(17, device);
    properties->computeMode = attribute(20, device);
    properties->maxTexture1DLinear = attribute(69, device);
    properties->memoryClockRate = attribute(36, device);
    properties->singleToDoublePrecisionPerfRatio = attribute(87, device);
#else
    properties->deviceNumaId = attribute(131, device);
    properties->hostNumaId = attribute(134, device);
#endif
    properties->cooperativeLaunch = attribute(95, device);
}

static void set_memory_members(cudaDeviceProp *properties, const emu_device_info *info) {
    int device = info->index;
    properties->totalGlobalMem = info->memory_bytes;
    properties->totalConstMem = (size_t)attribute(9, device);
    properties->memPitch = (size_t)attribute(11, device);
    properties->textureAlignment = (size_t)attribute(14, device);
    properties->surfaceAlignment = (size_t)attribute(30, device);
    properties->texturePitchAlignment = (size_t)attribute(51, device);
    properties->canMapHostMemory = attribute(19, device);
    properties->ECCEnabled = attribute(32, device);
    properties->unifiedAddressing = attribute(41, device);
    properties->memoryBusWidth = attribute(37, device);
    properties->l2CacheSize = attribute(38, device);
    properties->persistingL2CacheMaxSize = attribute(108, device);
    properties->accessPolicyMaxWindowSize = attribute(109, device);
    properties->globalL1CacheSupported = attribute(79, device);
    properties->localL1CacheSupported = attribute(80, device);
    properties->managedMemory = attribute(83, device);
    properties->concurrentManagedAccess = attribute(89, device);
    properties->canUseHostPointerForRegisteredMem = attribute(91, device);
    properties->hostRegisterSupported = attribute(99, device);
    properties->hostRegisterReadOnlySupported = attribute(113, device);
    properties->memoryPoolsSupported = attribute(115, device);
}

static void set_multiprocessor_members(cudaDeviceProp *properties, int device) {
    properties->multiProcessorCount = attribute(16, device);
    properties->warpSize = attribute(10, device);
    properties->maxThreadsPerBlock = attribute(1, device);
    for (int axis = 0; axis < 3; axis++) {
        properties->maxThreadsDim[axis] = attribute(2 + axis, device);
        properties->maxGridSize[axis] = attribute(5 + axis, device);
    }
    properties->maxThreadsPerMultiProcessor = attribute(39, device);
    properties->maxBlocksPerMultiProcessor = attribute(106, device);
    properties->regsPerBlock = attribute(12, device);
    properties->regsPerMultiprocessor = attribute(82, device);
    properties->sharedMemPerBlock = (size_t)attribute(8, device);
    properties->sharedMemPerMultiprocessor = (size_t)attribute(81, device);
    properties->sharedMemPerBlockOptin = (size_t)attribute(97, device);
    properties->reservedSharedMemPerBlock = (size_t)attribute(111, device);
    properties->concurrentKernels = attribute(31, device);
    properties->asyncEngineCount = attribute(40, device);
    properties->streamPrioritiesSupported = attribute(78, device);
    properties->computePreemptionSupported = attribute(90, device);
    properties->clusterLaunch = attribute(120, device);
    properties->unifiedFunctionPointers = attribute(129, device);
}

static void fill(cudaDeviceProp *properties, const emu_device_info *info) {
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "%s", info->name);
    memcpy(properties->uuid, info->uuid_bytes, sizeof properties->uuid);
    properties->major = info->capability_major;
    properties->minor = info->capability_minor;
    properties->pciBusID = info->pci_bus;
    properties->multiGpuBoardGroupID = attribute(85, info->index);
    set_memory_members(properties, info);
    set_multiprocessor_members(properties, info->index);
    set_texture_limits(properties, info->index);
    set_former_members(properties, info->index);
}

/* In CUDA 12 the name without a suffix has the structure of CUDA 11, which ends before `hostRegisterSupported`. */
EMU_EXPORT cudaError_t cudaGetDeviceProperties(void *properties, int device) {
    const emu_device_info *info;
    cudaDeviceProp filled;
    TRY(find_device(device, &info));
    if (properties == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    fill(&filled, info);
    size_t bytes = CUDA_MAJOR >= 13 ? sizeof filled : offsetof(cudaDeviceProp, hostRegisterSupported);
    memcpy(properties, &filled, bytes);
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp *properties, int device) {
    const emu_device_info *info;
    TRY(find_device(device, &info));
    if (properties == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    fill(properties, info);
    return EMU_OK;
}

/* The first device that has the wanted compute capability and memory, else device 0. */
EMU_EXPORT cudaError_t cudaChooseDevice(int *device, const cudaDeviceProp *wanted) {
    const emu_device_info *info;
    if (device == NULL || wanted == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    TRY(find_device(0, &info));
    *device = 0;
    for (int index = emu_device_count() - 1; index >= 0; index--) {
        info = emu_device(index);
        int capability = info->capability_major * 10 + info->capability_minor;
        if (capability >= wanted->major * 10 + wanted->minor && info->memory_bytes >= wanted->totalGlobalMem) {
            *device = index;
        }
    }
    return EMU_OK;
}

/* ---- limits, caches, peers ---- */

EMU_EXPORT cudaError_t cudaDeviceGetLimit(size_t *value, int limit) {
    TRY(emu_use_context());
    return finish(emu_limit_get(emu_current_device(), limit, value));
}

EMU_EXPORT cudaError_t cudaDeviceSetLimit(int limit, size_t value) {
    TRY(emu_use_context());
    return finish(emu_limit_set(emu_current_device(), limit, value));
}

/* Caches aren't emulated: 0 means that the driver chooses, and a wish has no effect. */
EMU_EXPORT cudaError_t cudaDeviceGetCacheConfig(int *config) {
    TRY(emu_use_context());
    if (config == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    *config = 0;
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaDeviceSetCacheConfig(int config) {
    TRY(emu_use_context());
    return finish(config >= 0 && config <= 3 ? EMU_OK : EMU_INVALID_VALUE);
}

EMU_EXPORT cudaError_t cudaDeviceGetSharedMemConfig(int *config) {
    enum { FOUR_BYTE_BANKS = 1 };
    TRY(emu_use_context());
    if (config == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    *config = FOUR_BYTE_BANKS;
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaDeviceSetSharedMemConfig(int config) {
    TRY(emu_use_context());
    return finish(config >= 0 && config <= 2 ? EMU_OK : EMU_INVALID_VALUE);
}

EMU_EXPORT cudaError_t cudaCtxResetPersistingL2Cache(void) {
    return finish(emu_use_context());
}

EMU_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    TRY(emu_use_context());
    if (least != NULL) {
        *least = STREAM_PRIORITY_LEAST;
    }
    if (greatest != NULL) {
        *greatest = STREAM_PRIORITY_GREATEST;
    }
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaDeviceCanAccessPeer(int *possible, int device, int peer) {
    const emu_device_info *info;
    TRY(find_device(device, &info));
    TRY(find_device(peer, &info));
    if (possible == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    *possible = emu_peer_possible(device, peer);
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaDeviceGetP2PAttribute(int *value, int number, int source, int destination) {
    const emu_device_info *info;
    TRY(find_device(source, &info));
    return finish(emu_peer_attribute(value, number, source, destination));
}

EMU_EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    TRY(emu_use_context());
    if (flags != 0) {
        return finish(EMU_INVALID_VALUE);
    }
    return finish(emu_peer_enable(emu_current_device(), peer));
}

EMU_EXPORT cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    TRY(emu_use_context());
    return finish(emu_peer_disable(emu_current_device(), peer));
}

/* ---- profiler ---- */

/* Which part of a program a profiler shall look at; there is none. */
EMU_EXPORT cudaError_t cudaProfilerStart(void) {
    return finish(emu_use_context());
}

EMU_EXPORT cudaError_t cudaProfilerStop(void) {
    return finish(emu_use_context());
}
