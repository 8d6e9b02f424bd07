/* The driver's devices and contexts. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

EMU_EXPORT CUresult cuInit(unsigned flags) {
    return flags == 0 ? emu_initialize() : EMU_INVALID_VALUE;
}

EMU_EXPORT CUresult cuDriverGetVersion(int *version) {
    if (version == NULL) {
        return EMU_INVALID_VALUE;
    }
    *version = emu_driver_version();
    return EMU_OK;
}

/* ---- errors ---- */

EMU_EXPORT CUresult cuGetErrorName(CUresult error, const char **name) {
    if (name == NULL) {
        return EMU_INVALID_VALUE;
    }
    *name = emu_error_driver_name(error);
    return *name != NULL ? EMU_OK : EMU_INVALID_VALUE;
}

EMU_EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
    if (text == NULL) {
        return EMU_INVALID_VALUE;
    }
    *text = emu_error_driver_name(error) != NULL ? emu_error_text(error) : NULL;
    return *text != NULL ? EMU_OK : EMU_INVALID_VALUE;
}

/* ---- devices ---- */

EMU_EXPORT CUresult cuDeviceGetCount(int *count) {
    TRY(ready());
    if (count == NULL) {
        return EMU_INVALID_VALUE;
    }
    *count = emu_device_count();
    return EMU_OK;
}

EMU_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    TRY(ready());
    if (device == NULL) {
        return EMU_INVALID_VALUE;
    }
    TRY(check_device(ordinal));
    *device = ordinal;
    return EMU_OK;
}

EMU_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    TRY(ready());
    if (name == NULL || length <= 0) {
        return EMU_INVALID_VALUE;
    }
    TRY(check_device(device));
    snprintf(name, (size_t)length, "%s", emu_device(device)->name);
    return EMU_OK;
}

EMU_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    TRY(ready());
    if (uuid == NULL) {
        return EMU_INVALID_VALUE;
    }
    TRY(check_device(device));
    memcpy(uuid->bytes, emu_device(device)->uuid_bytes, sizeof uuid->bytes);
    return EMU_OK;
}

EMU_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    return cuDeviceGetUuid(uuid, device);
}

EMU_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    TRY(ready());
    if (bytes == NULL) {
        return EMU_INVALID_VALUE;
    }
    TRY(check_device(device));
    *bytes = emu_device(device)->memory_bytes;
    return EMU_OK;
}

EMU_EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    TRY(ready());
    return emu_device_attribute(value, attribute, device);
}

EMU_EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    TRY(ready());
    if (major == NULL || minor == NULL) {
        return EMU_INVALID_VALUE;
    }
    TRY(check_device(device));
    *major = emu_device(device)->capability_major;
    *minor = emu_device(device)->capability_minor;
    return EMU_OK;
}

static int attribute(int number, CUdevice device) {
    int value = 0;
    emu_device_attribute(&value, number, device);
    return value;
}

EMU_EXPORT CUresult cuDeviceGetProperties(CUdevprop *properties, CUdevice device) {
    TRY(ready());
    if (properties == NULL) {
        return EMU_INVALID_VALUE;
    }
    TRY(check_device(device));
    *properties = (CUdevprop){
        .maxThreadsPerBlock = attribute(1, device),
        .maxThreadsDim = {attribute(2, device), attribute(3, device), attribute(4, device)},
        .maxGridSize = {attribute(5, device), attribute(6, device), attribute(7, device)},
        .sharedMemPerBlock = attribute(8, device),
        .totalConstantMemory = attribute(9, device),
        .SIMDWidth = attribute(10, device),
        .memPitch = attribute(11, device),
        .regsPerBlock = attribute(12, device),
        .clockRate = attribute(13, device),
        .textureAlign = attribute(14, device),
    };
    return EMU_OK;
}

EMU_EXPORT CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    TRY(ready());
    return emu_pci_bus_id(text, length, device);
}

EMU_EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
    TRY(ready());
    return emu_device_by_pci_bus_id(device, text);
}

EMU_EXPORT CUresult cuDeviceGetExecAffinitySupport(int *supported, int type, CUdevice device) {
    TRY(ready());
    if (supported == NULL || type != 0) {
        return EMU_INVALID_VALUE;
    }
    TRY(check_device(device));
    *supported = 0;
    return EMU_OK;
}

/* ---- primary contexts ---- */

EMU_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    TRY(ready());
    if (context == NULL) {
        return EMU_INVALID_VALUE;
    }
    TRY(emu_primary_retain(device));
    *context = emu_context_primary(device);
    return EMU_OK;
}

EMU_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    TRY(ready());
    return emu_primary_release(device);
}

EMU_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    TRY(ready());
    return emu_primary_reset(device);
}

EMU_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    TRY(ready());
    return emu_primary_state(device, flags, active);
}

EMU_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    TRY(ready());
    return emu_primary_set_flags(device, flags);
}

/* ---- contexts ---- */

EMU_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    TRY(ready());
    return emu_context_create(device, flags, context);
}

/* Affinities to a part of the multiprocessors aren't emulated. */
EMU_EXPORT CUresult cuCtxCreate_v3(CUcontext *context, void *affinities, int count, unsigned flags, CUdevice device) {
    if (affinities != NULL && count > 0) {
        return EMU_NOT_SUPPORTED;
    }
    return cuCtxCreate_v2(context, flags, device);
}

EMU_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, CUdevice device) {
    if (parameters != NULL) {
        return EMU_NOT_SUPPORTED;
    }
    return cuCtxCreate_v2(context, flags, device);
}

EMU_EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
    TRY(ready());
    return emu_context_destroy(context);
}

EMU_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
    TRY(ready());
    return emu_context_push(context);
}

EMU_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    TRY(ready());
    return emu_context_pop(context);
}

/* Programs that look functions up with dlsym use the old names as well. */
EMU_EXPORT CUresult cuCtxPushCurrent(CUcontext context) {
    return cuCtxPushCurrent_v2(context);
}

EMU_EXPORT CUresult cuCtxPopCurrent(CUcontext *context) {
    return cuCtxPopCurrent_v2(context);
}

EMU_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    TRY(ready());
    if (context != NULL && !emu_context_valid(context)) {
        return EMU_INVALID_CONTEXT;
    }
    emu_context_set_current(context);
    return EMU_OK;
}

EMU_EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    TRY(ready());
    if (context == NULL) {
        return EMU_INVALID_VALUE;
    }
    *context = emu_context_current();
    return EMU_OK;
}

EMU_EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
    TRY(in_context());
    if (device == NULL) {
        return EMU_INVALID_VALUE;
    }
    *device = emu_current_device();
    return EMU_OK;
}

EMU_EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
    TRY(ready());
    if (device == NULL) {
        return EMU_INVALID_VALUE;
    }
    if (!emu_context_valid(context)) {
        return EMU_INVALID_CONTEXT;
    }
    *device = emu_context_device(context);
    return EMU_OK;
}

EMU_EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
    TRY(ready());
    CUcontext meant = context != NULL ? context : emu_context_current();
    if (id == NULL) {
        return EMU_INVALID_VALUE;
    }
    if (!emu_context_valid(meant)) {
        return EMU_INVALID_CONTEXT;
    }
    *id = emu_context_id(meant);
    return EMU_OK;
}

EMU_EXPORT CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
    TRY(ready());
    CUcontext meant = context != NULL ? context : emu_context_current();
    if (version == NULL) {
        return EMU_INVALID_VALUE;
    }
    if (!emu_context_valid(meant)) {
        return EMU_INVALID_CONTEXT;
    }
    *version = 3020; /* of the interface to contexts, since CUDA 3.2 */
    return EMU_OK;
}

EMU_EXPORT CUresult cuCtxGetFlags(unsigned *flags) {
    int active = 0;
    TRY(in_context());
    return emu_primary_state(emu_current_device(), flags, &active);
}

EMU_EXPORT CUresult cuCtxSetFlags(unsigned flags) {
    TRY(in_context());
    return emu_primary_set_flags(emu_current_device(), flags);
}

EMU_EXPORT CUresult cuCtxSynchronize(void) {
    TRY(in_context());
    TRY(emu_capture_permits());
    return emu_device_synchronize(emu_current_device());
}

EMU_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context) {
    TRY(ready());
    if (!emu_context_valid(context)) {
        return EMU_INVALID_CONTEXT;
    }
    TRY(emu_capture_permits());
    return emu_device_synchronize(emu_context_device(context));
}

EMU_EXPORT CUresult cuCtxGetLimit(size_t *value, int limit) {
    TRY(in_context());
    return emu_limit_get(emu_current_device(), limit, value);
}

EMU_EXPORT CUresult cuCtxSetLimit(int limit, size_t value) {
    TRY(in_context());
    return emu_limit_set(emu_current_device(), limit, value);
}

EMU_EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    TRY(in_context());
    if (least != NULL) {
        *least = STREAM_PRIORITY_LEAST;
    }
    if (greatest != NULL) {
        *greatest = STREAM_PRIORITY_GREATEST;
    }
    return EMU_OK;
}

/* Caches aren't emulated: 0 means that the driver chooses, and a wish has no effect. */
EMU_EXPORT CUresult cuCtxGetCacheConfig(int *config) {
    TRY(in_context());
    if (config == NULL) {
        return EMU_INVALID_VALUE;
    }
    *config = 0;
    return EMU_OK;
}

EMU_EXPORT CUresult cuCtxSetCacheConfig(int config) {
    TRY(in_context());
    return config >= 0 && config <= 3 ? EMU_OK : EMU_INVALID_VALUE;
}

EMU_EXPORT CUresult cuCtxResetPersistingL2Cache(void) {
    return in_context();
}

/* ---- peers ---- */

EMU_EXPORT CUresult cuDeviceCanAccessPeer(int *possible, CUdevice device, CUdevice peer) {
    TRY(ready());
    if (possible == NULL) {
        return EMU_INVALID_VALUE;
    }
    TRY(check_device(device));
    TRY(check_device(peer));
    *possible = emu_peer_possible(device, peer);
    return EMU_OK;
}

EMU_EXPORT CUresult cuDeviceGetP2PAttribute(int *value, int number, CUdevice source, CUdevice destination) {
    TRY(ready());
    return emu_peer_attribute(value, number, source, destination);
}

static int peer_device(CUcontext peer) {
    return emu_context_valid(peer) ? emu_context_device(peer) : -1;
}

EMU_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    TRY(in_context());
    if (flags != 0) {
        return EMU_INVALID_VALUE;
    }
    int device = peer_device(peer);
    return device < 0 ? EMU_INVALID_CONTEXT : emu_peer_enable(emu_current_device(), device);
}

EMU_EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    TRY(in_context());
    int device = peer_device(peer);
    return device < 0 ? EMU_INVALID_CONTEXT : emu_peer_disable(emu_current_device(), device);
}

/* ---- profiler ---- */

/* Which part of a program a profiler shall look at; there is none. */
EMU_EXPORT CUresult cuProfilerStart(void) {
    return in_context();
}

EMU_EXPORT CUresult cuProfilerStop(void) {
    return in_context();
}

/* ---- log ---- */

/* The driver's own messages about errors: there are none, so a callback is never called. */
EMU_EXPORT CUresult cuLogsRegisterCallback(void (*callback)(void *), void *data, void **handle) {
    (void)data;
    TRY(ready());
    if (callback == NULL || handle == NULL) {
        return EMU_INVALID_VALUE;
    }
    void *made = malloc(1);
    if (made == NULL || !emu_handle_add(made, HANDLE_LOG_CALLBACK)) {
        free(made);
        return EMU_OUT_OF_MEMORY;
    }
    *handle = made;
    return EMU_OK;
}

EMU_EXPORT CUresult cuLogsUnregisterCallback(void *handle) {
    TRY(ready());
    if (!emu_handle_remove(handle, HANDLE_LOG_CALLBACK)) {
        return EMU_INVALID_VALUE;
    }
    free(handle);
    return EMU_OK;
}
