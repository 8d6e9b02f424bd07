/* What a kernel needs of a multiprocessor, how many of its blocks fit there, and its launch. */
#include "cuda_state.h"

#include "pointer_map.h"

#include <pthread.h>
#include <stdlib.h>

enum { KIB = 1024, WARP = 32, DEFAULT_SHARED = 48 * KIB };

/* A kernel of an ordinary library, as long as its code can't be read. */
static const emu_kernel_traits typical = {.registers = 32, .maximum_threads = 1024, .carveout = -1};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pointer_map special; /* from emu_kernel * to emu_kernel_traits, where they differ from the typical ones */

emu_kernel_traits emu_kernel_traits_of(const emu_kernel *kernel) {
    pthread_rwlock_rdlock(&lock);
    const emu_kernel_traits *found = pointer_map_get(&special, kernel);
    emu_kernel_traits traits = found ? *found : typical;
    pthread_rwlock_unlock(&lock);
    return traits;
}

int emu_kernel_set_traits(emu_kernel *kernel, const emu_kernel_traits *traits) {
    pthread_rwlock_wrlock(&lock);
    emu_kernel_traits *kept = pointer_map_get(&special, kernel);
    if (kept == NULL) {
        kept = malloc(sizeof *kept);
        if (kept == NULL || !pointer_map_set(&special, kernel, kept)) {
            free(kept);
            pthread_rwlock_unlock(&lock);
            return EMU_OUT_OF_MEMORY;
        }
    }
    *kept = *traits;
    pthread_rwlock_unlock(&lock);
    return EMU_OK;
}

/* 80 for compute capability 8.0. */
static int code_version(const emu_device_info *device) {
    return device->capability_major * 10 + device->capability_minor;
}

int emu_kernel_attribute(const emu_kernel *kernel, int attribute, int device, int *value) {
    const emu_device_info *info = emu_device(device);
    if (value == NULL) {
        return EMU_INVALID_VALUE;
    }
    if (!emu_kernel_valid(kernel)) {
        return EMU_INVALID_HANDLE;
    }
    if (info == NULL) {
        return EMU_INVALID_DEVICE;
    }
    emu_kernel_traits traits = emu_kernel_traits_of(kernel);
    const int values[] = {
        [TRAIT_MAXIMUM_THREADS] = traits.maximum_threads,
        [TRAIT_STATIC_SHARED] = traits.static_shared_bytes,
        [TRAIT_CONSTANT] = 0,
        [TRAIT_LOCAL] = traits.local_bytes,
        [TRAIT_REGISTERS] = traits.registers,
        [TRAIT_PTX_VERSION] = code_version(info),
        [TRAIT_BINARY_VERSION] = code_version(info),
        [TRAIT_CACHE_MODE] = 0,
        [TRAIT_DYNAMIC_SHARED] =
            traits.dynamic_shared_bytes ? traits.dynamic_shared_bytes : DEFAULT_SHARED - traits.static_shared_bytes,
        [TRAIT_CARVEOUT] = traits.carveout,
        [TRAIT_CLUSTER_MUST_BE_SET] = traits.cluster_must_be_set,
        [TRAIT_CLUSTER_WIDTH] = traits.cluster_width,
        [TRAIT_CLUSTER_HEIGHT] = traits.cluster_height,
        [TRAIT_CLUSTER_DEPTH] = traits.cluster_depth,
        [TRAIT_NON_PORTABLE_CLUSTER] = traits.non_portable_cluster,
        [TRAIT_CLUSTER_POLICY] = traits.cluster_policy,
    };
    if (attribute < 0 || (size_t)attribute >= sizeof values / sizeof values[0]) {
        return EMU_INVALID_VALUE;
    }
    *value = values[attribute];
    return EMU_OK;
}

static int set_trait(emu_kernel_traits *traits, int attribute, int value, int shared_limit) {
    switch (attribute) {
    case TRAIT_DYNAMIC_SHARED:
        traits->dynamic_shared_bytes = value;
        return value >= 0 && value <= shared_limit - traits->static_shared_bytes ? EMU_OK : EMU_INVALID_VALUE;
    case TRAIT_CARVEOUT: /* percent */
        traits->carveout = value;
        return value >= -1 && value <= 100 ? EMU_OK : EMU_INVALID_VALUE;
    case TRAIT_CLUSTER_WIDTH:
        traits->cluster_width = value;
        return value >= 0 ? EMU_OK : EMU_INVALID_VALUE;
    case TRAIT_CLUSTER_HEIGHT:
        traits->cluster_height = value;
        return value >= 0 ? EMU_OK : EMU_INVALID_VALUE;
    case TRAIT_CLUSTER_DEPTH:
        traits->cluster_depth = value;
        return value >= 0 ? EMU_OK : EMU_INVALID_VALUE;
    case TRAIT_NON_PORTABLE_CLUSTER:
        traits->non_portable_cluster = value != 0;
        return EMU_OK;
    case TRAIT_CLUSTER_POLICY: /* default, spread, load balancing */
        traits->cluster_policy = value;
        return value >= 0 && value <= 2 ? EMU_OK : EMU_INVALID_VALUE;
    default:
        return EMU_INVALID_VALUE;
    }
}

int emu_kernel_set_attribute(emu_kernel *kernel, int attribute, int device, int value) {
    int shared_limit = 0;
    if (!emu_kernel_valid(kernel)) {
        return EMU_INVALID_HANDLE;
    }
    int status = emu_device_attribute(&shared_limit, 97, device);
    if (status != EMU_OK) {
        return status;
    }
    emu_kernel_traits traits = emu_kernel_traits_of(kernel);
    status = set_trait(&traits, attribute, value, shared_limit);
    return status == EMU_OK ? emu_kernel_set_traits(kernel, &traits) : status;
}

static long round_up(long value, long unit) {
    return (value + unit - 1) / unit * unit;
}

/* How many blocks the shared memory of a multiprocessor holds. It is given out in units of 128 bytes since compute capability
 * 8.0, of 256 before. */
static long blocks_by_shared(const emu_device_info *device, long bytes) {
    const emu_architecture *architecture = emu_architecture_of(device);
    int available = 0;
    emu_device_attribute(&available, 81, device->index);
    long unit = device->capability_major >= 8 ? 128 : 256;
    long needed = round_up(bytes + architecture->reserved_shared_memory_per_block, unit);
    return needed > 0 ? available / needed : architecture->blocks_per_multiprocessor;
}

/* Registers are given to warps in units of 256; warps go to the four parts of a multiprocessor. */
static long blocks_by_registers(const emu_device_info *device, int registers, long warps) {
    const emu_architecture *architecture = emu_architecture_of(device);
    enum { UNIT = 256, PARTS = 4 };
    long per_warp = round_up((long)registers * WARP, UNIT);
    if (round_up(warps, PARTS) * per_warp > architecture->registers_per_block) {
        return 0;
    }
    long warps_held = architecture->registers_per_multiprocessor / PARTS / per_warp * PARTS;
    return warps_held / warps;
}

static long least(long one, long other) {
    return one < other ? one : other;
}

int emu_occupancy(const emu_kernel *kernel, int device, int block_threads, size_t dynamic_shared_bytes, int *blocks) {
    const emu_device_info *info = emu_device(device);
    if (blocks == NULL || block_threads <= 0) {
        return EMU_INVALID_VALUE;
    }
    if (!emu_kernel_valid(kernel)) {
        return EMU_INVALID_HANDLE;
    }
    if (info == NULL) {
        return EMU_INVALID_DEVICE;
    }
    const emu_architecture *architecture = emu_architecture_of(info);
    emu_kernel_traits traits = emu_kernel_traits_of(kernel);
    int optin = 0;
    emu_device_attribute(&optin, 97, device);
    size_t room = (size_t)(optin - least(optin, traits.static_shared_bytes));
    *blocks = 0;
    if (block_threads > traits.maximum_threads || dynamic_shared_bytes > room) {
        return EMU_OK;
    }
    long warps = round_up(block_threads, WARP) / WARP;
    long result = least(architecture->blocks_per_multiprocessor, architecture->threads_per_multiprocessor / WARP / warps);
    result = least(result, blocks_by_registers(info, traits.registers, warps));
    result = least(result, blocks_by_shared(info, traits.static_shared_bytes + (long)dynamic_shared_bytes));
    *blocks = (int)result;
    return EMU_OK;
}

int emu_occupancy_shared(const emu_kernel *kernel, int device, int blocks, int block_threads, size_t *bytes) {
    int most = 0, available = 0, optin = 0;
    if (bytes == NULL || blocks <= 0) {
        return EMU_INVALID_VALUE;
    }
    int status = emu_occupancy(kernel, device, block_threads, 0, &most);
    if (status != EMU_OK) {
        return status;
    }
    if (blocks > most) {
        return EMU_INVALID_VALUE;
    }
    const emu_device_info *info = emu_device(device);
    emu_device_attribute(&available, 81, device);
    emu_device_attribute(&optin, 97, device);
    long unit = info->capability_major >= 8 ? 128 : 256;
    long share = available / blocks / unit * unit - emu_architecture_of(info)->reserved_shared_memory_per_block;
    share = least(share, optin) - emu_kernel_traits_of(kernel).static_shared_bytes;
    *bytes = share > 0 ? (size_t)share : 0;
    return EMU_OK;
}

static bool possible_shape(const emu_launch_shape *shape) {
    const unsigned *grid = shape->grid, *block = shape->block;
    for (int axis = 0; axis < 3; axis++) {
        if (grid[axis] == 0 || block[axis] == 0) {
            return false;
        }
    }
    if (grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535) {
        return false;
    }
    return block[0] <= 1024 && block[1] <= 1024 && block[2] <= 64 && (uint64_t)block[0] * block[1] * block[2] <= 1024;
}

static int check_shared(const emu_kernel *kernel, int device, size_t dynamic_bytes) {
    int limit = 0;
    if (dynamic_bytes == 0) {
        return EMU_OK;
    }
    int status = emu_kernel_attribute(kernel, TRAIT_DYNAMIC_SHARED, device, &limit);
    if (status != EMU_OK) {
        return status;
    }
    return dynamic_bytes <= (size_t)limit ? EMU_OK : EMU_INVALID_VALUE;
}

/* All blocks of a cooperative launch have to fit on the device at the same time. */
static int check_cooperative(const emu_kernel *kernel, int device, const emu_launch_shape *shape) {
    int blocks = 0;
    const unsigned *grid = shape->grid, *block = shape->block;
    int threads = (int)(block[0] * block[1] * block[2]);
    int status = emu_occupancy(kernel, device, threads, shape->dynamic_shared_bytes, &blocks);
    if (status != EMU_OK) {
        return status;
    }
    uint64_t room = (uint64_t)blocks * (uint64_t)emu_device(device)->multiprocessors;
    uint64_t plane = (uint64_t)grid[0] * grid[1];
    return plane <= room && plane * grid[2] <= room ? EMU_OK : RESULT_COOPERATIVE_LAUNCH_TOO_LARGE;
}

int emu_kernel_launch(emu_kernel *kernel, const emu_launch_shape *shape) {
    emu_stream *stream = emu_stream_of(shape->stream);
    if (stream == NULL) {
        return EMU_INVALID_HANDLE;
    }
    if (!possible_shape(shape)) {
        return RESULT_INVALID_CONFIGURATION;
    }
    int status = check_shared(kernel, emu_stream_device(stream), shape->dynamic_shared_bytes);
    if (status == EMU_OK && shape->cooperative) {
        status = check_cooperative(kernel, emu_stream_device(stream), shape);
    }
    return status == EMU_OK ? (int)emu_launch_kernel(stream, kernel, shape->grid, shape->block, shape->arguments) : status;
}
