/* The driver's modules, libraries and kernels, and their launches. */
#include "driver.h"

/* ---- modules ---- */

EMU_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    TRY(in_context());
    return emu_module_load(image, module);
}

/* Options say how PTX is to be compiled; it isn't. */
EMU_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values) {
    if (count > 0 && (options == NULL || values == NULL)) {
        return EMU_INVALID_VALUE;
    }
    return cuModuleLoadData(module, image);
}

EMU_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    return cuModuleLoadData(module, image);
}

EMU_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path) {
    TRY(in_context());
    return emu_module_load_file(path, module);
}

EMU_EXPORT CUresult cuModuleUnload(CUmodule module) {
    TRY(in_context());
    return emu_module_unload(module);
}

EMU_EXPORT CUresult cuModuleGetLoadingMode(int *mode) {
    enum { EAGER = 1 };
    TRY(ready());
    if (mode == NULL) {
        return EMU_INVALID_VALUE;
    }
    *mode = EAGER;
    return EMU_OK;
}

EMU_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    TRY(in_context());
    return emu_module_kernel(module, name, function);
}

EMU_EXPORT CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule module) {
    TRY(in_context());
    return emu_module_kernel_count(module, count);
}

EMU_EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned count, CUmodule module) {
    TRY(in_context());
    return emu_module_kernels(module, functions, count);
}

EMU_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
    void *found = NULL;
    TRY(in_context());
    if (address == NULL && bytes == NULL) {
        return EMU_INVALID_VALUE;
    }
    TRY(emu_module_variable(module, name, &found, bytes));
    if (address != NULL) {
        *address = (CUdeviceptr)(uintptr_t)found;
    }
    return EMU_OK;
}

/* ---- libraries: modules without a context ---- */

EMU_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *image, int *compiler_options, void **compiler_values,
    unsigned compiler_count, int *options, void **values, unsigned count) {
    TRY(ready());
    if ((compiler_count > 0 && (compiler_options == NULL || compiler_values == NULL)) || (count > 0 && (options == NULL || values == NULL))) {
        return EMU_INVALID_VALUE;
    }
    return emu_module_load(image, library);
}

EMU_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, int *compiler_options, void **compiler_values,
    unsigned compiler_count, int *options, void **values, unsigned count) {
    TRY(ready());
    if ((compiler_count > 0 && (compiler_options == NULL || compiler_values == NULL)) || (count > 0 && (options == NULL || values == NULL))) {
        return EMU_INVALID_VALUE;
    }
    return emu_module_load_file(path, library);
}

EMU_EXPORT CUresult cuLibraryUnload(CUlibrary library) {
    TRY(ready());
    return emu_module_unload(library);
}

EMU_EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    TRY(ready());
    return emu_module_kernel(library, name, kernel);
}

EMU_EXPORT CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library) {
    TRY(ready());
    return emu_module_kernel_count(library, count);
}

EMU_EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned count, CUlibrary library) {
    TRY(ready());
    return emu_module_kernels(library, kernels, count);
}

EMU_EXPORT CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
    TRY(in_context());
    if (module == NULL) {
        return EMU_INVALID_VALUE;
    }
    if (!emu_handle_is(library, HANDLE_MODULE)) {
        return EMU_INVALID_HANDLE;
    }
    *module = library;
    return EMU_OK;
}

EMU_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name) {
    return cuModuleGetGlobal_v2(address, bytes, library, name);
}

/* ---- kernels ---- */

static int check_kernel(CUkernel kernel) {
    TRY(ready());
    return emu_kernel_valid(kernel) ? EMU_OK : EMU_INVALID_HANDLE;
}

EMU_EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    TRY(in_context());
    if (function == NULL) {
        return EMU_INVALID_VALUE;
    }
    TRY(check_kernel(kernel));
    *function = kernel;
    return EMU_OK;
}

EMU_EXPORT CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel) {
    if (library == NULL) {
        return EMU_INVALID_VALUE;
    }
    TRY(check_kernel(kernel));
    CUlibrary module = emu_kernel_traits_of(kernel).module;
    if (module == NULL) {
        return EMU_NOT_FOUND;
    }
    *library = module;
    return EMU_OK;
}

EMU_EXPORT CUresult cuFuncGetModule(CUmodule *module, CUfunction function) {
    return cuKernelGetLibrary(module, function);
}

EMU_EXPORT CUresult cuKernelGetName(const char **name, CUkernel kernel) {
    if (name == NULL) {
        return EMU_INVALID_VALUE;
    }
    TRY(check_kernel(kernel));
    *name = emu_kernel_name(kernel);
    return EMU_OK;
}

EMU_EXPORT CUresult cuFuncGetName(const char **name, CUfunction function) {
    return cuKernelGetName(name, function);
}

EMU_EXPORT CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel kernel, CUdevice device) {
    TRY(ready());
    return emu_kernel_attribute(kernel, attribute, device, value);
}

EMU_EXPORT CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device) {
    TRY(ready());
    return emu_kernel_set_attribute(kernel, attribute, device, value);
}

EMU_EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
    TRY(in_context());
    return emu_kernel_attribute(function, attribute, emu_current_device(), value);
}

EMU_EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    TRY(in_context());
    return emu_kernel_set_attribute(function, attribute, emu_current_device(), value);
}

EMU_EXPORT CUresult cuFuncSetCacheConfig(CUfunction function, int config) {
    TRY(in_context());
    TRY(check_kernel(function));
    return config >= 0 && config <= 3 ? EMU_OK : EMU_INVALID_VALUE;
}

EMU_EXPORT CUresult cuKernelSetCacheConfig(CUkernel kernel, int config, CUdevice device) {
    TRY(check_kernel(kernel));
    TRY(check_device(device));
    return config >= 0 && config <= 3 ? EMU_OK : EMU_INVALID_VALUE;
}

EMU_EXPORT CUresult cuFuncLoad(CUfunction function) {
    return check_kernel(function);
}

EMU_EXPORT CUresult cuFuncIsLoaded(int *state, CUfunction function) {
    enum { LOADED = 1 };
    if (state == NULL) {
        return EMU_INVALID_VALUE;
    }
    TRY(check_kernel(function));
    *state = LOADED;
    return EMU_OK;
}

/* ---- launches ---- */

static int launch(CUfunction function, const emu_launch_shape *shape) {
    TRY(in_context());
    TRY(check_kernel(function));
    return driver_result(emu_kernel_launch(function, shape));
}

EMU_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
    unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters, void **extra) {
    (void)extra;
    emu_launch_shape shape = {
        .grid = {grid_x, grid_y, grid_z},
        .block = {block_x, block_y, block_z},
        .dynamic_shared_bytes = shared_bytes,
        .stream = stream,
        .arguments = parameters,
    };
    return launch(function, &shape);
}

EMU_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters) {
    emu_launch_shape shape = {
        .grid = {grid_x, grid_y, grid_z},
        .block = {block_x, block_y, block_z},
        .dynamic_shared_bytes = shared_bytes,
        .stream = stream,
        .cooperative = true,
        .arguments = parameters,
    };
    return launch(function, &shape);
}

/* Of the attributes only the cooperative launch has an effect; clusters and the like don't change the estimated time. */
EMU_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
    (void)extra;
    if (config == NULL || (config->attrs == NULL && config->numAttrs > 0)) {
        return EMU_INVALID_VALUE;
    }
    emu_launch_shape shape = {
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .dynamic_shared_bytes = config->sharedMemBytes,
        .stream = config->hStream,
        .arguments = parameters,
    };
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        shape.cooperative |= attribute->id == LAUNCH_ATTRIBUTE_COOPERATIVE && attribute->value.cooperative != 0;
    }
    return launch(function, &shape);
}

/* ---- occupancy ---- */

EMU_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, CUfunction function, int block_threads, size_t shared_bytes, unsigned flags) {
    TRY(in_context());
    if (flags > 1) {
        return EMU_INVALID_VALUE;
    }
    return emu_occupancy(function, emu_current_device(), block_threads, shared_bytes, blocks);
}

EMU_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(
    int *blocks, CUfunction function, int block_threads, size_t shared_bytes) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_threads, shared_bytes, 0);
}

EMU_EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks, int block_threads) {
    TRY(in_context());
    return emu_occupancy_shared(function, emu_current_device(), blocks, block_threads, bytes);
}

typedef size_t (*shared_bytes_of)(int block_threads);

/* The block size with the most threads on a multiprocessor; among equals the largest. */
EMU_EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *least_grid, int *best_block, CUfunction function,
    shared_bytes_of shared_for, size_t shared_bytes, int limit, unsigned flags) {
    int maximum = 0, best_threads = 0;
    TRY(in_context());
    if (least_grid == NULL || best_block == NULL || flags > 1 || limit < 0) {
        return EMU_INVALID_VALUE;
    }
    TRY(emu_kernel_attribute(function, TRAIT_MAXIMUM_THREADS, emu_current_device(), &maximum));
    if (limit > 0 && limit < maximum) {
        maximum = limit;
    }
    for (int threads = (maximum + 31) / 32 * 32; threads > 0; threads -= 32) {
        int size = threads < maximum ? threads : maximum;
        int blocks = 0;
        size_t shared = shared_for != NULL ? shared_for(size) : shared_bytes;
        TRY(emu_occupancy(function, emu_current_device(), size, shared, &blocks));
        if (blocks * size > best_threads) {
            best_threads = blocks * size;
            *best_block = size;
            *least_grid = blocks * emu_device(emu_current_device())->multiprocessors;
        }
    }
    return best_threads > 0 ? EMU_OK : EMU_INVALID_VALUE;
}

EMU_EXPORT CUresult cuOccupancyMaxPotentialBlockSize(
    int *least_grid, int *best_block, CUfunction function, shared_bytes_of shared_for, size_t shared_bytes, int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(least_grid, best_block, function, shared_for, shared_bytes, limit, 0);
}
