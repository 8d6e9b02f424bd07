/* NVML's functions (libnvidia-ml.so.1), for monitors and frameworks.
 *
 * What the emulated device has is answered: identity, memory, load, processes, and the clocks by which its time is computed. What
 * it hasn't (temperature, power, fans, error counters) is NVML_ERROR_NOT_SUPPORTED, which real devices without a sensor answer
 * as well. Memory, load and processes are those of all processes on the device, see ../core/statistics.h.
 */
#include "nvml.h"

#include "core.h"
#include "statistics.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int initialized; /* how often */
static const char devices[EMU_MAX_DEVICES]; /* a handle is the address of an element */

/* ---- beginning and end ---- */

EMU_EXPORT nvml_status nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (emu_machine_start() != EMU_OK)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    atomic_fetch_add(&initialized, 1);
    return NVML_SUCCESS;
}

EMU_EXPORT nvml_status nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

EMU_EXPORT nvml_status nvmlInit(void) {
    return nvmlInitWithFlags(0);
}

EMU_EXPORT nvml_status nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    bool was = initialized > 0;
    if (was)
        atomic_fetch_sub(&initialized, 1);
    pthread_mutex_unlock(&lock);
    return was ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

EMU_EXPORT const char *nvmlErrorString(nvml_status status) {
    switch (status) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
        return "Argument version mismatch";
    default:
        return "Unknown Error";
    }
}

/* The device of a handle; `wrong`: what the function returns instead. */
static const emu_device_info *device_of(nvml_device handle, const void *output, nvml_status *wrong) {
    uintptr_t place = (uintptr_t)handle - (uintptr_t)devices;
    *wrong = NVML_SUCCESS;
    if (initialized == 0)
        *wrong = NVML_ERROR_UNINITIALIZED;
    else if (output == NULL || place >= (uintptr_t)emu_machine_device_count())
        *wrong = NVML_ERROR_INVALID_ARGUMENT;
    return *wrong == NVML_SUCCESS ? emu_machine_device((int)place) : NULL;
}

static nvml_status give_text(const char *text, char *output, unsigned room) {
    if (strlen(text) >= room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(output, text);
    return NVML_SUCCESS;
}

/* ---- the system ---- */

/* The driver with which a CUDA release came. Programs compare it as a number. */
static const char *driver_version(void) {
    static const struct {
        int cuda;
        const char *driver;
    } releases[] = {
        {13020, "595.45.04"}, {13010, "590.44.01"}, {13000, "580.65.06"}, {12090, "575.51.03"},
        {12080, "570.86.10"}, {12060, "560.28.03"}, {12040, "550.54.14"},
    };
    size_t count = sizeof releases / sizeof releases[0];
    for (size_t i = 0; i < count; i++)
        if (emu_driver_version() >= releases[i].cuda)
            return releases[i].driver;
    return releases[count - 1].driver;
}

EMU_EXPORT nvml_status nvmlSystemGetDriverVersion(char *version, unsigned room) {
    if (initialized == 0)
        return NVML_ERROR_UNINITIALIZED;
    return version == NULL ? NVML_ERROR_INVALID_ARGUMENT : give_text(driver_version(), version, room);
}

EMU_EXPORT nvml_status nvmlSystemGetNVMLVersion(char *version, unsigned room) {
    char text[80];
    if (version == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(text, sizeof text, "%d.%s", emu_driver_version() / 1000, driver_version());
    return give_text(text, version, room);
}

EMU_EXPORT nvml_status nvmlSystemGetCudaDriverVersion_v2(int *version) {
    if (version == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = emu_driver_version();
    return NVML_SUCCESS;
}

EMU_EXPORT nvml_status nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* A name that the sharing manager knows; its processes may be in other containers. */
static bool name_in_use(unsigned pid, char *name, size_t room) {
    emu_device_use use;
    for (int device = 0; device < emu_machine_device_count(); device++) {
        if (!emu_device_use_read(device, &use))
            continue;
        for (int i = 0; i < use.process_count; i++)
            if (use.processes[i].pid == (int64_t)pid && use.processes[i].name[0] != '\0') {
                snprintf(name, room, "%s", use.processes[i].name);
                return true;
            }
    }
    return false;
}

static bool name_on_host(unsigned pid, char *name, size_t room) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    size_t length = fread(name, 1, room - 1, file); /* the program's name ends with the first zero */
    fclose(file);
    name[length] = '\0';
    return name[0] != '\0';
}

EMU_EXPORT nvml_status nvmlSystemGetProcessName(unsigned pid, char *name, unsigned room) {
    char text[4096];
    if (initialized == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (name == NULL || room == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!name_in_use(pid, text, sizeof text) && !name_on_host(pid, text, sizeof text))
        return NVML_ERROR_NOT_FOUND;
    snprintf(name, room, "%.*s", (int)room - 1, text); /* NVML cuts it */
    return NVML_SUCCESS;
}

/* ---- which devices there are ---- */

EMU_EXPORT nvml_status nvmlDeviceGetCount_v2(unsigned *count) {
    if (initialized == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = (unsigned)emu_machine_device_count();
    return NVML_SUCCESS;
}

EMU_EXPORT nvml_status nvmlDeviceGetCount(unsigned *count) {
    return nvmlDeviceGetCount_v2(count);
}

EMU_EXPORT nvml_status nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device) {
    if (initialized == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (device == NULL || index >= (unsigned)emu_machine_device_count())
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &devices[index];
    return NVML_SUCCESS;
}

EMU_EXPORT nvml_status nvmlDeviceGetHandleByIndex(unsigned index, nvml_device *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EMU_EXPORT nvml_status nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *device) {
    if (initialized == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (uuid == NULL || device == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < emu_machine_device_count(); i++)
        if (strcmp(emu_machine_device(i)->uuid, uuid) == 0) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

/* "00000000:01:00.0", "0000:01:00.0", "01:00.0" */
EMU_EXPORT nvml_status nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvml_device *device) {
    unsigned domain = 0, bus, slot, function = 0;
    if (initialized == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (id == NULL || device == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(id, "%x:%x.%x", &bus, &slot, &function) < 2)
            return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (int i = 0; i < emu_machine_device_count(); i++)
        if (domain == 0 && slot == 0 && bus == (unsigned)emu_machine_device(i)->pci_bus) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

EMU_EXPORT nvml_status nvmlDeviceGetHandleByPciBusId(const char *id, nvml_device *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

/* ---- identity ---- */

EMU_EXPORT nvml_status nvmlDeviceGetName(nvml_device device, char *name, unsigned room) {
    nvml_status wrong;
    const emu_device_info *info = device_of(device, name, &wrong);
    return info == NULL ? wrong : give_text(info->name, name, room);
}

EMU_EXPORT nvml_status nvmlDeviceGetUUID(nvml_device device, char *uuid, unsigned room) {
    nvml_status wrong;
    const emu_device_info *info = device_of(device, uuid, &wrong);
    return info == NULL ? wrong : give_text(info->uuid, uuid, room);
}

EMU_EXPORT nvml_status nvmlDeviceGetIndex(nvml_device device, unsigned *index) {
    nvml_status wrong;
    const emu_device_info *info = device_of(device, index, &wrong);
    if (info != NULL)
        *index = (unsigned)info->machine_index;
    return wrong;
}

EMU_EXPORT nvml_status nvmlDeviceGetMinorNumber(nvml_device device, unsigned *number) {
    return nvmlDeviceGetIndex(device, number);
}

/* The PCI device's number isn't known, its vendor's is. */
EMU_EXPORT nvml_status nvmlDeviceGetPciInfo_v3(nvml_device device, nvml_pci *pci) {
    nvml_status wrong;
    const emu_device_info *info = device_of(device, pci, &wrong);
    if (info == NULL)
        return wrong;
    memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned)info->pci_bus & 0xff;
    pci->device_id = NVML_PCI_VENDOR;
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
    snprintf(pci->bus_id_short, sizeof pci->bus_id_short, "0000:%02X:00.0", pci->bus);
    return NVML_SUCCESS;
}

/* The longer text has the place of four numbers that were always reserved, and is left out. */
EMU_EXPORT nvml_status nvmlDeviceGetPciInfo_v2(nvml_device device, nvml_pci *pci) {
    nvml_pci whole;
    nvml_status status = nvmlDeviceGetPciInfo_v3(device, pci == NULL ? NULL : &whole);
    if (status == NVML_SUCCESS)
        memcpy(pci, &whole, offsetof(nvml_pci, bus_id));
    return status;
}

EMU_EXPORT nvml_status nvmlDeviceGetPciInfo(nvml_device device, nvml_pci *pci) {
    return nvmlDeviceGetPciInfo_v2(device, pci);
}

EMU_EXPORT nvml_status nvmlDeviceGetBrand(nvml_device device, unsigned *brand) {
    static const struct {
        const char *in_name;
        unsigned brand;
    } brands[] = {
        {"GeForce", NVML_BRAND_GEFORCE}, {"TITAN", NVML_BRAND_TITAN}, {"RTX", NVML_BRAND_NVIDIA_RTX}, {"Tesla", NVML_BRAND_TESLA},
    };
    nvml_status wrong;
    const emu_device_info *info = device_of(device, brand, &wrong);
    if (info == NULL)
        return wrong;
    *brand = NVML_BRAND_NVIDIA;
    for (size_t i = sizeof brands / sizeof brands[0]; i-- > 0;)
        if (strstr(info->name, brands[i].in_name) != NULL)
            *brand = brands[i].brand;
    return NVML_SUCCESS;
}

EMU_EXPORT nvml_status nvmlDeviceGetCudaComputeCapability(nvml_device device, int *major, int *minor) {
    nvml_status wrong;
    const emu_device_info *info = device_of(device, minor == NULL ? NULL : major, &wrong);
    if (info == NULL)
        return wrong;
    *major = info->capability_major;
    *minor = info->capability_minor;
    return NVML_SUCCESS;
}

/* NVML numbers architectures from Kepler = 2 on; compute capabilities 7.5 and 8.9 are of the next ones. */
EMU_EXPORT nvml_status nvmlDeviceGetArchitecture(nvml_device device, unsigned *architecture) {
    static const struct {
        int capability; /* from here on */
        unsigned number;
    } known[] = {{100, 10}, {90, 9}, {89, 8}, {80, 7}, {75, 6}, {70, 5}, {60, 4}, {50, 3}, {30, 2}};
    nvml_status wrong;
    const emu_device_info *info = device_of(device, architecture, &wrong);
    if (info == NULL)
        return wrong;
    int capability = 10 * info->capability_major + info->capability_minor;
    *architecture = UINT_MAX;
    for (size_t i = 0; i < sizeof known / sizeof known[0] && *architecture == UINT_MAX; i++)
        if (capability >= known[i].capability)
            *architecture = known[i].number;
    return NVML_SUCCESS;
}

EMU_EXPORT nvml_status nvmlDeviceGetNumGpuCores(nvml_device device, unsigned *cores) {
    nvml_status wrong;
    const emu_device_info *info = device_of(device, cores, &wrong);
    if (info == NULL)
        return wrong;
    int capability = 10 * info->capability_major + info->capability_minor;
    int each = capability == 60 || (capability >= 70 && capability <= 80) ? 64 : 128; /* FP32 lanes of a multiprocessor */
    if (capability < 50)
        each = 192; /* Kepler (CUDA programming guide, "Compute Capability 3.x") */
    *cores = (unsigned)(each * info->multiprocessors);
    return NVML_SUCCESS;
}

EMU_EXPORT nvml_status nvmlDeviceGetMemoryBusWidth(nvml_device device, unsigned *bits) {
    nvml_status wrong;
    const emu_device_info *info = device_of(device, bits, &wrong);
    if (info == NULL)
        return wrong;
    *bits = (unsigned)info->memory_bus_bits;
    return NVML_SUCCESS;
}

/* ---- what it does ---- */

static nvml_status use_of(nvml_device device, const void *output, emu_device_use *use, const emu_device_info **info) {
    nvml_status wrong;
    *info = device_of(device, output, &wrong);
    if (*info == NULL)
        return wrong;
    return emu_device_use_read((*info)->machine_index, use) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

EMU_EXPORT nvml_status nvmlDeviceGetMemoryInfo(nvml_device device, nvml_memory *memory) {
    emu_device_use use;
    const emu_device_info *info;
    nvml_status status = use_of(device, memory, &use, &info);
    if (status == NVML_SUCCESS)
        *memory = (nvml_memory){info->memory_bytes, info->memory_bytes - use.memory_bytes, use.memory_bytes};
    return status;
}

EMU_EXPORT nvml_status nvmlDeviceGetMemoryInfo_v2(nvml_device device, nvml_memory_v2 *memory) {
    emu_device_use use;
    const emu_device_info *info;
    if (memory != NULL && memory->version != NVML_MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvml_status status = use_of(device, memory, &use, &info);
    if (status != NVML_SUCCESS)
        return status;
    memory->total = info->memory_bytes;
    memory->reserved = 0;
    memory->used = use.memory_bytes;
    memory->free = info->memory_bytes - use.memory_bytes;
    return NVML_SUCCESS;
}

/* Emulated kernels read or write memory as long as they run, so memory is busy when the device is. */
EMU_EXPORT nvml_status nvmlDeviceGetUtilizationRates(nvml_device device, nvml_utilization *rates) {
    emu_device_use use;
    const emu_device_info *info;
    nvml_status status = use_of(device, rates, &use, &info);
    if (status != NVML_SUCCESS)
        return status;
    rates->gpu = (uint32_t)(use.utilisation * 100 + 0.5);
    rates->memory = rates->gpu;
    return NVML_SUCCESS;
}

/* How many processes there are, or the status for a caller with room for fewer. */
static nvml_status process_count(nvml_device device, unsigned *count, const void *list, emu_device_use *use) {
    const emu_device_info *info;
    nvml_status status = use_of(device, count, use, &info);
    if (status != NVML_SUCCESS)
        return status;
    unsigned room = *count;
    *count = (unsigned)use->process_count;
    if (room < *count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    return list == NULL && *count > 0 ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

EMU_EXPORT nvml_status nvmlDeviceGetComputeRunningProcesses(nvml_device device, unsigned *count, nvml_process_v1 *list) {
    emu_device_use use;
    nvml_status status = process_count(device, count, list, &use);
    for (int i = 0; status == NVML_SUCCESS && i < use.process_count; i++)
        list[i] = (nvml_process_v1){(uint32_t)use.processes[i].pid, use.processes[i].memory_bytes};
    return status;
}

EMU_EXPORT nvml_status nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned *count, nvml_process *list) {
    emu_device_use use;
    nvml_status status = process_count(device, count, list, &use);
    for (int i = 0; status == NVML_SUCCESS && i < use.process_count; i++)
        list[i] = (nvml_process){
            (uint32_t)use.processes[i].pid, use.processes[i].memory_bytes, (uint32_t)NVML_NO_INSTANCE, (uint32_t)NVML_NO_INSTANCE};
    return status;
}

EMU_EXPORT nvml_status nvmlDeviceGetComputeRunningProcesses_v2(nvml_device device, unsigned *count, nvml_process *list) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, list);
}

/* No process draws, and none uses MPS. */
static nvml_status no_processes(nvml_device device, unsigned *count) {
    nvml_status wrong;
    if (device_of(device, count, &wrong) != NULL)
        *count = 0;
    return wrong;
}

#define NO_PROCESSES(function) \
    EMU_EXPORT nvml_status function(nvml_device device, unsigned *count, void *list) { \
        (void)list; \
        return no_processes(device, count); \
    }
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

/* The emulated device always works at the clocks of its data sheet, which are the highest as well. */
EMU_EXPORT nvml_status nvmlDeviceGetMaxClockInfo(nvml_device device, unsigned type, unsigned *megahertz) {
    nvml_status wrong;
    const emu_device_info *info = device_of(device, megahertz, &wrong);
    if (info == NULL)
        return wrong;
    int kilohertz = type == NVML_CLOCK_MEMORY ? info->memory_clock_khz : type <= NVML_CLOCK_SM ? info->clock_khz : 0;
    if (kilohertz == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *megahertz = (unsigned)kilohertz / 1000;
    return NVML_SUCCESS;
}

EMU_EXPORT nvml_status nvmlDeviceGetClockInfo(nvml_device device, unsigned type, unsigned *megahertz) {
    return nvmlDeviceGetMaxClockInfo(device, type, megahertz);
}

EMU_EXPORT nvml_status nvmlDeviceGetClock(nvml_device device, unsigned type, unsigned which, unsigned *megahertz) {
    return which > 3 ? NVML_ERROR_INVALID_ARGUMENT : nvmlDeviceGetMaxClockInfo(device, type, megahertz);
}

/* ---- modes ---- */

/* Facts that are zero for every emulated device: P0, the default compute mode, no display. */
static nvml_status zero(nvml_device device, unsigned *value) {
    nvml_status wrong;
    if (device_of(device, value, &wrong) != NULL)
        *value = 0;
    return wrong;
}

EMU_EXPORT nvml_status nvmlDeviceGetPerformanceState(nvml_device device, unsigned *state) {
    return zero(device, state);
}

EMU_EXPORT nvml_status nvmlDeviceGetComputeMode(nvml_device device, unsigned *mode) {
    return zero(device, mode);
}

EMU_EXPORT nvml_status nvmlDeviceGetDisplayMode(nvml_device device, unsigned *mode) {
    return zero(device, mode);
}

EMU_EXPORT nvml_status nvmlDeviceGetDisplayActive(nvml_device device, unsigned *active) {
    return zero(device, active);
}

static bool is_instance(const emu_device_info *info) {
    return strncmp(info->uuid, "MIG-", 4) == 0;
}

/* Whole devices aren't cut; a container's MIG instances are devices of their own. */
EMU_EXPORT nvml_status nvmlDeviceGetMigMode(nvml_device device, unsigned *current, unsigned *pending) {
    nvml_status wrong;
    const emu_device_info *info = device_of(device, pending == NULL ? NULL : current, &wrong);
    if (info == NULL)
        return wrong;
    if (info->capability_major < 8 || is_instance(info))
        return NVML_ERROR_NOT_SUPPORTED;
    *current = 0;
    *pending = 0;
    return NVML_SUCCESS;
}

EMU_EXPORT nvml_status nvmlDeviceIsMigDeviceHandle(nvml_device device, unsigned *is_mig) {
    nvml_status wrong;
    const emu_device_info *info = device_of(device, is_mig, &wrong);
    if (info != NULL)
        *is_mig = is_instance(info);
    return wrong;
}

EMU_EXPORT nvml_status nvmlDeviceGetMaxMigDeviceCount(nvml_device device, unsigned *count) {
    return zero(device, count);
}

EMU_EXPORT nvml_status nvmlDeviceGetMigDeviceHandleByIndex(nvml_device device, unsigned index, nvml_device *instance) {
    nvml_status wrong;
    (void)index;
    return device_of(device, instance, &wrong) == NULL ? wrong : NVML_ERROR_NOT_FOUND;
}

EMU_EXPORT nvml_status nvmlDeviceGetP2PStatus(nvml_device one, nvml_device other, unsigned capability, unsigned *status) {
    nvml_status wrong;
    const emu_device_info *first = device_of(one, status, &wrong);
    const emu_device_info *second = first == NULL ? NULL : device_of(other, status, &wrong);
    if (second == NULL)
        return wrong;
    bool nvlink = first->peer_link_bytes_per_s > 0 && second->peer_link_bytes_per_s > 0;
    bool possible = capability == NVML_P2P_NVLINK ? nvlink : capability <= NVML_P2P_WRITE;
    *status = possible ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

/* No emulated device is part of a fabric of several nodes: all fields, the state among them, are zero, "not supported". */
EMU_EXPORT nvml_status nvmlDeviceGetGpuFabricInfoV(nvml_device device, nvml_fabric_v2 *fabric) {
    nvml_status wrong;
    if (device_of(device, fabric, &wrong) == NULL)
        return wrong;
    uint32_t version = fabric->version;
    if (version != NVML_FABRIC_V2 && version != NVML_FABRIC_V3)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memset(fabric, 0, version == NVML_FABRIC_V2 ? sizeof(nvml_fabric_v2) : sizeof(nvml_fabric_v3));
    fabric->version = version;
    return NVML_SUCCESS;
}
