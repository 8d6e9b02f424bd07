/* What programs register with the runtime, and launches. */
#include "runtime.h"

#include <dlfcn.h>

/* ---- registration: called by code that the CUDA compiler adds to a program ---- */

/* Answers the handle that the other functions get: the address of what begins with the owner. */
EMU_EXPORT void **__cudaRegisterFatBinary(void *binary) {
    (void)binary;
    return (void **)emu_registry_open();
}

EMU_EXPORT void __cudaRegisterFatBinaryEnd(void **handle) {
    (void)handle;
}

EMU_EXPORT void __cudaUnregisterFatBinary(void **handle) {
    emu_registry_close((emu_registry_owner *)(void *)handle);
}

/* Whether the binary's variables are there; they always are. */
EMU_EXPORT char __cudaInitModule(void **handle) {
    (void)handle;
    return 1;
}

EMU_EXPORT void __cudaRegisterFunction(void **handle, const char *symbol, char *device_symbol, const char *name, int thread_limit,
    void *thread, void *block, dim3 *block_size, dim3 *grid_size, int *warp_size) {
    (void)device_symbol;
    (void)thread_limit;
    (void)thread;
    (void)block;
    (void)block_size;
    (void)grid_size;
    (void)warp_size;
    emu_registry_add_kernel((emu_registry_owner *)(void *)handle, symbol, name);
}

EMU_EXPORT void __cudaRegisterVar(
    void **handle, char *symbol, char *device_symbol, const char *name, int external, size_t bytes, int constant, int global) {
    (void)device_symbol;
    (void)external;
    (void)constant;
    (void)global;
    emu_registry_add_variable((emu_registry_owner *)(void *)handle, symbol, name, bytes);
}

/* ---- kernels ---- */

static int find_kernel(const void *symbol, emu_kernel **kernel) {
    int status = emu_use_context();
    if (status != EMU_OK) {
        return status;
    }
    *kernel = emu_registry_kernel(symbol);
    return *kernel != NULL ? EMU_OK : RESULT_INVALID_DEVICE_FUNCTION;
}

static int handle_of(emu_kernel **handle, const void *symbol) {
    if (handle == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    emu_kernel *kernel;
    TRY(find_kernel(symbol, &kernel));
    *handle = kernel;
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function, const void *symbol) {
    return handle_of(function, symbol);
}

EMU_EXPORT cudaError_t cudaGetKernel(cudaKernel_t *kernel, const void *symbol) {
    return handle_of(kernel, symbol);
}

EMU_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *symbol) {
    return handle_of(kernel, symbol);
}

EMU_EXPORT cudaError_t cudaFuncGetName(const char **name, const void *symbol) {
    emu_kernel *kernel;
    if (name == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    TRY(find_kernel(symbol, &kernel));
    *name = emu_kernel_name(kernel);
    return EMU_OK;
}

static int trait(const emu_kernel *kernel, int attribute) {
    int value = 0;
    emu_kernel_attribute(kernel, attribute, emu_current_device(), &value);
    return value;
}

EMU_EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *symbol) {
    emu_kernel *kernel;
    if (attributes == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    TRY(find_kernel(symbol, &kernel));
    *attributes = (cudaFuncAttributes){
        .sharedSizeBytes = (size_t)trait(kernel, TRAIT_STATIC_SHARED),
        .constSizeBytes = (size_t)trait(kernel, TRAIT_CONSTANT),
        .localSizeBytes = (size_t)trait(kernel, TRAIT_LOCAL),
        .maxThreadsPerBlock = trait(kernel, TRAIT_MAXIMUM_THREADS),
        .numRegs = trait(kernel, TRAIT_REGISTERS),
        .ptxVersion = trait(kernel, TRAIT_PTX_VERSION),
        .binaryVersion = trait(kernel, TRAIT_BINARY_VERSION),
        .cacheModeCA = trait(kernel, TRAIT_CACHE_MODE),
        .maxDynamicSharedSizeBytes = trait(kernel, TRAIT_DYNAMIC_SHARED),
        .preferredShmemCarveout = trait(kernel, TRAIT_CARVEOUT),
        .clusterDimMustBeSet = trait(kernel, TRAIT_CLUSTER_MUST_BE_SET),
        .requiredClusterWidth = trait(kernel, TRAIT_CLUSTER_WIDTH),
        .requiredClusterHeight = trait(kernel, TRAIT_CLUSTER_HEIGHT),
        .requiredClusterDepth = trait(kernel, TRAIT_CLUSTER_DEPTH),
        .clusterSchedulingPolicyPreference = trait(kernel, TRAIT_CLUSTER_POLICY),
        .nonPortableClusterSizeAllowed = trait(kernel, TRAIT_NON_PORTABLE_CLUSTER),
    };
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaFuncSetAttribute(const void *symbol, int attribute, int value) {
    emu_kernel *kernel;
    TRY(find_kernel(symbol, &kernel));
    return finish(emu_kernel_set_attribute(kernel, attribute, emu_current_device(), value));
}

EMU_EXPORT cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, int attribute, int value, int device) {
    TRY(emu_use_context());
    return finish(emu_kernel_set_attribute(kernel, attribute, device, value));
}

/* Caches and banks aren't emulated. */
EMU_EXPORT cudaError_t cudaFuncSetCacheConfig(const void *symbol, int config) {
    emu_kernel *kernel;
    TRY(find_kernel(symbol, &kernel));
    return finish(config >= 0 && config <= 3 ? EMU_OK : EMU_INVALID_VALUE);
}

EMU_EXPORT cudaError_t cudaFuncSetSharedMemConfig(const void *symbol, int config) {
    emu_kernel *kernel;
    TRY(find_kernel(symbol, &kernel));
    return finish(config >= 0 && config <= 2 ? EMU_OK : EMU_INVALID_VALUE);
}

/* ---- occupancy ---- */

EMU_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *symbol, int block_threads, size_t shared_bytes, unsigned flags) {
    emu_kernel *kernel;
    TRY(find_kernel(symbol, &kernel));
    if (flags > 1) {
        return finish(EMU_INVALID_VALUE);
    }
    return finish(emu_occupancy(kernel, emu_current_device(), block_threads, shared_bytes, blocks));
}

EMU_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    int *blocks, const void *symbol, int block_threads, size_t shared_bytes) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, symbol, block_threads, shared_bytes, 0);
}

EMU_EXPORT cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *symbol, int blocks, int block_threads) {
    emu_kernel *kernel;
    TRY(find_kernel(symbol, &kernel));
    return finish(emu_occupancy_shared(kernel, emu_current_device(), blocks, block_threads, bytes));
}

/* ---- launches ---- */

/* What <<<grid, block, shared, stream>>> hands to the function that launches, in a stack for nested calls. */
enum { CONFIGURATION_DEPTH = 16 };

static _Thread_local struct {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
} configurations[CONFIGURATION_DEPTH];
static _Thread_local int configuration_count;

EMU_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
    if (configuration_count == CONFIGURATION_DEPTH) {
        return EMU_OUT_OF_MEMORY;
    }
    configurations[configuration_count].grid = grid;
    configurations[configuration_count].block = block;
    configurations[configuration_count].shared_bytes = shared_bytes;
    configurations[configuration_count].stream = stream;
    configuration_count++;
    return 0;
}

EMU_EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream) {
    enum { MISSING_CONFIGURATION = 52 };
    if (configuration_count == 0) {
        return finish(MISSING_CONFIGURATION);
    }
    configuration_count--;
    *grid = configurations[configuration_count].grid;
    *block = configurations[configuration_count].block;
    *shared_bytes = configurations[configuration_count].shared_bytes;
    *(cudaStream_t *)stream = configurations[configuration_count].stream;
    return EMU_OK;
}

static int launch(
    const void *symbol, dim3 grid, dim3 block, void *const *arguments, size_t shared_bytes, cudaStream_t stream, bool cooperative) {
    emu_kernel *kernel;
    TRY(find_kernel(symbol, &kernel));
    emu_launch_shape shape = {
        .grid = {grid.x, grid.y, grid.z},
        .block = {block.x, block.y, block.z},
        .dynamic_shared_bytes = shared_bytes,
        .stream = stream,
        .cooperative = cooperative,
        .arguments = arguments,
    };
    return finish(emu_kernel_launch(kernel, &shape));
}

EMU_EXPORT cudaError_t cudaLaunchKernel(
    const void *symbol, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, cudaStream_t stream) {
    return launch(symbol, grid, block, arguments, shared_bytes, stream, false);
}

/* With the handle that __cudaGetKernel gave. */
EMU_EXPORT cudaError_t __cudaLaunchKernel(
    cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, cudaStream_t stream) {
    TRY(emu_use_context());
    emu_launch_shape shape = {
        .grid = {grid.x, grid.y, grid.z},
        .block = {block.x, block.y, block.z},
        .dynamic_shared_bytes = shared_bytes,
        .stream = stream,
        .arguments = arguments,
    };
    return finish(emu_kernel_launch(kernel, &shape));
}

EMU_EXPORT cudaError_t cudaLaunchCooperativeKernel(
    const void *symbol, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, cudaStream_t stream) {
    return launch(symbol, grid, block, arguments, shared_bytes, stream, true);
}

/* Of the attributes only the cooperative launch has an effect; clusters and the like don't change the estimated time. */
EMU_EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *symbol, void **arguments) {
    bool cooperative = false;
    if (config == NULL || (config->attrs == NULL && config->numAttrs > 0)) {
        return finish(EMU_INVALID_VALUE);
    }
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const cudaLaunchAttribute *attribute = &config->attrs[i];
        cooperative |= attribute->id == LAUNCH_ATTRIBUTE_COOPERATIVE && attribute->value.cooperative != 0;
    }
    return launch(symbol, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes, config->stream, cooperative);
}

/* ---- libraries ---- */

static int check_options(const void *compiler_options, unsigned compiler_count, const void *options, unsigned count) {
    bool missing = (compiler_options == NULL && compiler_count > 0) || (options == NULL && count > 0);
    return missing ? EMU_INVALID_VALUE : EMU_OK;
}

EMU_EXPORT cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *image, int *compiler_options, void **compiler_values,
    unsigned compiler_count, int *options, void **values, unsigned count) {
    (void)compiler_values;
    (void)values;
    TRY(emu_use_context());
    TRY(check_options(compiler_options, compiler_count, options, count));
    return finish(emu_module_load(image, library));
}

EMU_EXPORT cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t *library, const char *path, int *compiler_options,
    void **compiler_values, unsigned compiler_count, int *options, void **values, unsigned count) {
    (void)compiler_values;
    (void)values;
    TRY(emu_use_context());
    TRY(check_options(compiler_options, compiler_count, options, count));
    return finish(emu_module_load_file(path, library));
}

EMU_EXPORT cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
    return finish(emu_module_unload(library));
}

EMU_EXPORT cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name) {
    return finish(emu_module_kernel(library, name, kernel));
}

EMU_EXPORT cudaError_t cudaLibraryGetKernelCount(unsigned *count, cudaLibrary_t library) {
    return finish(emu_module_kernel_count(library, count));
}

EMU_EXPORT cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t *kernels, unsigned count, cudaLibrary_t library) {
    return finish(emu_module_kernels(library, kernels, count));
}

EMU_EXPORT cudaError_t cudaLibraryGetGlobal(void **address, size_t *bytes, cudaLibrary_t library, const char *name) {
    TRY(emu_use_context());
    return finish(emu_module_variable(library, name, address, bytes));
}

/* ---- functions of the driver ---- */

typedef int (*get_address)(const char *name, void **function, int version, uint64_t flags, int *state);

/* The driver is opened when it is asked for, as the runtime does. */
static get_address driver_look_up(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver != NULL ? (get_address)(uintptr_t)dlsym(driver, "cuGetProcAddress_v2") : NULL;
}

EMU_EXPORT cudaError_t cudaGetDriverEntryPointByVersion(
    const char *name, void **function, unsigned version, unsigned long long flags, int *state) {
    int found = 1;
    if (name == NULL || function == NULL || *name == 0) {
        return finish(EMU_INVALID_VALUE);
    }
    TRY(emu_initialized() ? EMU_OK : emu_initialize());
    get_address look_up = driver_look_up();
    *function = NULL;
    if (look_up == NULL) {
        return finish(EMU_NOT_FOUND);
    }
    int result = look_up(name, function, (int)version, flags, &found);
    if (state != NULL) {
        *state = found;
    }
    bool answered = result == EMU_OK || (result == EMU_NOT_FOUND && state != NULL);
    return answered ? EMU_OK : finish(result);
}

EMU_EXPORT cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *state) {
    int version = 0;
    cudaRuntimeGetVersion(&version);
    return cudaGetDriverEntryPointByVersion(name, function, (unsigned)version, flags, state);
}
