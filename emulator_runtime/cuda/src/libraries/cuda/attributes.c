/* What a device is like: attributes by number, from its settings and from its compute capability. */
#include "cuda_state.h"

#include <stdio.h>

enum { KIB = 1024 };

/* Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and for the ratio of peak rates,
 * "Arithmetic Instructions". In order. */
static const emu_architecture architectures[] = {
    /* capability, threads, blocks, registers: SM, block; shared memory: SM, block, reserved; FP32 : FP64 */
    {3, 0, 2048, 16, 64 * KIB, 64 * KIB, 48 * KIB, 48 * KIB, 0, 24},
    {3, 5, 2048, 16, 64 * KIB, 64 * KIB, 48 * KIB, 48 * KIB, 0, 3},
    {3, 7, 2048, 16, 128 * KIB, 64 * KIB, 112 * KIB, 48 * KIB, 0, 3},
    {5, 0, 2048, 32, 64 * KIB, 64 * KIB, 64 * KIB, 48 * KIB, 0, 32},
    {5, 2, 2048, 32, 64 * KIB, 64 * KIB, 96 * KIB, 48 * KIB, 0, 32},
    {5, 3, 2048, 32, 64 * KIB, 32 * KIB, 64 * KIB, 48 * KIB, 0, 32},
    {6, 0, 2048, 32, 64 * KIB, 64 * KIB, 64 * KIB, 48 * KIB, 0, 2},
    {6, 1, 2048, 32, 64 * KIB, 64 * KIB, 96 * KIB, 48 * KIB, 0, 32},
    {6, 2, 2048, 32, 64 * KIB, 32 * KIB, 64 * KIB, 48 * KIB, 0, 32},
    {7, 0, 2048, 32, 64 * KIB, 64 * KIB, 96 * KIB, 96 * KIB, 0, 2},
    {7, 5, 1024, 16, 64 * KIB, 64 * KIB, 64 * KIB, 64 * KIB, 0, 32},
    {8, 0, 2048, 32, 64 * KIB, 64 * KIB, 164 * KIB, 163 * KIB, KIB, 2},
    {8, 6, 1536, 16, 64 * KIB, 64 * KIB, 100 * KIB, 99 * KIB, KIB, 64},
    {8, 7, 1536, 16, 64 * KIB, 64 * KIB, 164 * KIB, 163 * KIB, KIB, 64},
    {8, 9, 1536, 24, 64 * KIB, 64 * KIB, 100 * KIB, 99 * KIB, KIB, 64},
    {9, 0, 2048, 32, 64 * KIB, 64 * KIB, 228 * KIB, 227 * KIB, KIB, 2},
    {10, 0, 2048, 32, 64 * KIB, 64 * KIB, 228 * KIB, 227 * KIB, KIB, 2},
    {10, 3, 2048, 32, 64 * KIB, 64 * KIB, 228 * KIB, 227 * KIB, KIB, 64},
    {12, 0, 1536, 24, 64 * KIB, 64 * KIB, 100 * KIB, 99 * KIB, KIB, 64},
};

const emu_architecture *emu_architecture_of(const emu_device_info *device) {
    const emu_architecture *best = &architectures[0];
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++) {
        const emu_architecture *entry = &architectures[i];
        bool newer = entry->major > device->capability_major
                     || (entry->major == device->capability_major && entry->minor > device->capability_minor);
        if (!newer) {
            best = entry;
        }
    }
    return best;
}

/* The limits of textures and surfaces are those of compute capability 6.0 and later; the attributes are answered so that
 * programs can list them, but arrays and textures aren't emulated. */
static bool texture_attribute(int attribute, int *value) {
    static const int limits[][2] = {
        {21, 131072}, {22, 131072}, {23, 65536}, {24, 16384}, {25, 16384}, {26, 16384}, {27, 32768}, {28, 32768}, {29, 2048},
        {42, 32768}, {43, 2048}, {44, 1}, {45, 32768}, {46, 32768}, {47, 8192}, {48, 8192}, {49, 32768}, {52, 32768}, {53, 32768},
        {54, 2046}, {55, 32768}, {56, 131072}, {57, 65536}, {58, 16384}, {59, 16384}, {60, 16384}, {61, 32768}, {62, 2048},
        {63, 32768}, {64, 32768}, {65, 2048}, {66, 32768}, {67, 32768}, {68, 2046}, {69, 268435456}, {70, 131072}, {71, 65000},
        {72, 2097120}, {73, 32768}, {74, 32768}, {77, 32768},
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        if (limits[i][0] == attribute) {
            *value = limits[i][1];
            return true;
        }
    }
    return false;
}

static int shared_per_multiprocessor(const emu_device_info *device, const emu_architecture *architecture) {
    size_t given = device->shared_memory_per_multiprocessor;
    return given ? (int)given : architecture->shared_memory_per_multiprocessor;
}

static int shared_per_block_optin(const emu_device_info *device, const emu_architecture *architecture) {
    size_t given = device->shared_memory_per_block_optin;
    return given ? (int)given : architecture->shared_memory_per_block_optin;
}

/* Of the L2 cache up to three quarters can be set aside for data that is to persist, since compute capability 8.0. */
static int persisting_l2(const emu_device_info *device) {
    return device->capability_major >= 8 ? (int)(device->l2_bytes / 4 * 3) : 0;
}

/* Attributes by number, up to what CUDA 13.2 knows. Those that aren't named here are 0: a feature that isn't there. */
static int attribute_value(const emu_device_info *device, int attribute) {
    const emu_architecture *architecture = emu_architecture_of(device);
    int value = 0;
    if (texture_attribute(attribute, &value)) {
        return value;
    }
    switch (attribute) {
    case 1: /* threads per block */
    case 2: /* block dimension x, y */
    case 3:
        return 1024;
    case 4: /* z */
        return 64;
    case 5: /* grid dimension x, y, z */
        return 0x7fffffff;
    case 6:
    case 7:
        return 65535;
    case 8: /* shared memory per block, without asking for more */
        return 48 * KIB;
    case 9: /* constant memory */
        return 64 * KIB;
    case 10: /* threads per warp */
        return 32;
    case 11: /* pitch of a copy */
        return 0x7fffffff;
    case 12:
        return architecture->registers_per_block;
    case 13:
        return device->clock_khz;
    case 14: /* alignment of textures, surfaces: bytes */
    case 30:
        return 512;
    case 15: /* copies beside kernels */
        return 1;
    case 16:
        return device->multiprocessors;
    case 19: /* the host's memory can be mapped */
        return 1;
    case 31: /* kernels beside each other */
    case 32: /* error correction */
        return 1;
    case 33: /* PCI bus; its device and domain are 0 */
        return device->pci_bus;
    case 36:
        return device->memory_clock_khz;
    case 37:
        return device->memory_bus_bits;
    case 38:
        return (int)device->l2_bytes;
    case 39:
        return architecture->threads_per_multiprocessor;
    case 40: /* copy engines: one for each direction */
        return 2;
    case 41: /* one address space with the host */
        return 1;
    case 51: /* alignment of rows */
        return 32;
    case 75:
        return device->capability_major;
    case 76:
        return device->capability_minor;
    case 78: /* stream priorities; caching in L1 of global and of local memory */
    case 79:
    case 80:
        return 1;
    case 81:
        return shared_per_multiprocessor(device, architecture);
    case 82:
        return architecture->registers_per_multiprocessor;
    case 83: /* managed memory */
        return 1;
    case 85: /* each board has one GPU, and is a group of its own */
        return device->index;
    case 87:
        return architecture->single_to_double_ratio;
    case 89: /* managed memory while kernels run; preemption of kernels */
    case 90:
        return device->capability_major >= 6;
    case 91: /* the host's address of registered memory is valid */
        return 1;
    case 95: /* cooperative launch */
        return device->capability_major >= 6;
    case 97:
        return shared_per_block_optin(device, architecture);
    case 99: /* cudaHostRegister */
    case 102: /* virtual memory management */
        return 1;
    case 106:
        return architecture->blocks_per_multiprocessor;
    case 108:
        return persisting_l2(device);
    case 109: /* access policy window: bytes */
        return device->capability_major >= 8 ? 128 * KIB * KIB : 0;
    case 111:
        return architecture->reserved_shared_memory_per_block;
    case 113: /* cudaHostRegisterReadOnly */
    case 115: /* memory pools */
        return 1;
    case 120: /* clusters of blocks */
    case 127: /* tensor maps */
    case 129: /* unified function pointers */
        return device->capability_major >= 9;
    case 126: /* domains of memory synchronisation */
        return device->capability_major >= 9 ? 4 : 1;
    case 131: /* NUMA node of the device's memory, and of the host nearest to it: none */
    case 134:
        return -1;
    default:
        return 0;
    }
}

enum { ATTRIBUTES_END = 162 }; /* CU_DEVICE_ATTRIBUTE_MAX */

int emu_device_attribute(int *value, int attribute, int device) {
    const emu_device_info *info = emu_device(device);
    if (value == NULL || attribute < 1 || attribute >= ATTRIBUTES_END) {
        return EMU_INVALID_VALUE;
    }
    if (info == NULL) {
        return EMU_INVALID_DEVICE;
    }
    *value = attribute_value(info, attribute);
    return EMU_OK;
}

int emu_peer_attribute(int *value, int attribute, int source, int destination) {
    enum { PERFORMANCE_RANK = 1, ACCESS = 2, NATIVE_ATOMICS = 3, ARRAY_ACCESS = 4, PARTIAL_ATOMICS = 5 };
    if (value == NULL || attribute < PERFORMANCE_RANK || attribute > PARTIAL_ATOMICS) {
        return EMU_INVALID_VALUE;
    }
    if (emu_device(source) == NULL || emu_device(destination) == NULL || source == destination) {
        return EMU_INVALID_DEVICE;
    }
    bool possible = emu_peer_possible(source, destination);
    *value = (attribute == ACCESS || attribute == NATIVE_ATOMICS) && possible;
    return EMU_OK;
}

int emu_pci_bus_id(char *text, int length, int device) {
    char written[32];
    const emu_device_info *info = emu_device(device);
    if (info == NULL) {
        return EMU_INVALID_DEVICE;
    }
    int needed = snprintf(written, sizeof written, "0000:%02x:00.0", (unsigned)info->pci_bus);
    if (text == NULL || length <= needed) {
        return EMU_INVALID_VALUE;
    }
    snprintf(text, (size_t)length, "%s", written);
    return EMU_OK;
}

int emu_device_by_pci_bus_id(int *device, const char *text) {
    unsigned domain = 0, bus = 0, slot = 0;
    if (device == NULL || text == NULL) {
        return EMU_INVALID_VALUE;
    }
    bool complete = sscanf(text, "%x:%x:%x", &domain, &bus, &slot) == 3;
    if (!complete && sscanf(text, "%x:%x", &bus, &slot) != 2) {
        return EMU_INVALID_VALUE;
    }
    for (int index = 0; domain == 0 && slot == 0 && index < emu_device_count(); index++) {
        if (bus == (unsigned)emu_device(index)->pci_bus) {
            *device = index;
            return EMU_OK;
        }
    }
    return EMU_INVALID_DEVICE;
}
