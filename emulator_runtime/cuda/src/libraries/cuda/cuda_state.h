/* What the CUDA driver (libcuda) and the CUDA runtime (libcudart) have in common, above the core.
 *
 * libemugpu_cuda.so implements this file. Its state exists once in a process, whichever of the two libraries a program uses, or
 * both: a limit that was set by the driver is seen by the runtime.
 *
 * Results are numbers of the driver (CUresult); the runtime (cudaError_t) uses the same numbers and a few of its own.
 */
#ifndef EMUGPU_CUDA_STATE_H
#define EMUGPU_CUDA_STATE_H

#include "../../core/core.h"

/* Results beyond those of the core. */
enum {
    RESULT_INVALID_CONFIGURATION = 9,    /* the runtime's alone */
    RESULT_INVALID_PITCH = 12,           /* the runtime's alone */
    RESULT_INVALID_SYMBOL = 13,          /* the runtime's alone */
    RESULT_INVALID_COPY_DIRECTION = 21,  /* the runtime's alone */
    RESULT_INVALID_DEVICE_FUNCTION = 98, /* the runtime's alone */
    RESULT_UNSUPPORTED_LIMIT = 215,
    RESULT_PEER_ACCESS_UNSUPPORTED = 217,
    RESULT_FILE_NOT_FOUND = 301,
    RESULT_PEER_ACCESS_ALREADY_ENABLED = 704,
    RESULT_PEER_ACCESS_NOT_ENABLED = 705,
    RESULT_PRIMARY_CONTEXT_ACTIVE = 708,
    RESULT_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    RESULT_CAPTURE_IMPLICIT = 906,
    RESULT_CAPTURE_WRONG_THREAD = 908,
};

/* ---- errors.c ---- */

/* NULL: there is no such error. */
EMU_EXPORT const char *emu_error_driver_name(int result);  /* "CUDA_ERROR_OUT_OF_MEMORY" */
EMU_EXPORT const char *emu_error_runtime_name(int result); /* "cudaErrorMemoryAllocation" */
EMU_EXPORT const char *emu_error_text(int result);         /* "out of memory" */

/* ---- handles.c: which of the objects made here are alive ---- */

typedef enum { HANDLE_NONE, HANDLE_GRAPH_EXEC, HANDLE_USER_OBJECT, HANDLE_MODULE, HANDLE_POOL, HANDLE_LOG_CALLBACK, HANDLE_NODE } handle_kind;

EMU_EXPORT bool emu_handle_add(const void *handle, handle_kind kind); /* false: out of memory */
EMU_EXPORT bool emu_handle_is(const void *handle, handle_kind kind);
/* Whether it was there; of several threads only one is told so. */
EMU_EXPORT bool emu_handle_remove(const void *handle, handle_kind kind);

/* ---- attributes.c ---- */

/* What a compute capability determines. */
typedef struct {
    int major, minor;
    int threads_per_multiprocessor;
    int blocks_per_multiprocessor;
    int registers_per_multiprocessor;
    int registers_per_block;
    int shared_memory_per_multiprocessor;  /* bytes; so the next two */
    int shared_memory_per_block_optin;
    int reserved_shared_memory_per_block;
    int single_to_double_ratio;            /* of the peak rates */
} emu_architecture;

/* The newest entry that isn't newer than the device. */
EMU_EXPORT const emu_architecture *emu_architecture_of(const emu_device_info *device);
/* An attribute by the number that cudaDeviceAttr and CUdevice_attribute share. */
EMU_EXPORT int emu_device_attribute(int *value, int attribute, int device);
EMU_EXPORT int emu_peer_attribute(int *value, int attribute, int source, int destination);
/* "0000:01:00.0" into `text`; invalid value if `length` doesn't suffice. */
EMU_EXPORT int emu_pci_bus_id(char *text, int length, int device);
EMU_EXPORT int emu_device_by_pci_bus_id(int *device, const char *text);

/* ---- contexts.c ---- */

/* Start the core, as cuInit does. */
EMU_EXPORT int emu_initialize(void);
EMU_EXPORT bool emu_initialized(void);
/* Make sure that the calling thread has a context, as each function of the runtime does. */
EMU_EXPORT int emu_use_context(void);
EMU_EXPORT int emu_use_device(int device);
EMU_EXPORT int emu_primary_retain(int device);
EMU_EXPORT int emu_primary_release(int device);
EMU_EXPORT int emu_primary_reset(int device);
EMU_EXPORT int emu_primary_state(int device, unsigned *flags, int *active);
EMU_EXPORT int emu_primary_set_flags(int device, unsigned flags);

EMU_EXPORT int emu_limit_get(int device, int limit, size_t *value);
EMU_EXPORT int emu_limit_set(int device, int limit, size_t value);
EMU_EXPORT bool emu_peer_possible(int device, int peer);
EMU_EXPORT int emu_peer_enable(int device, int peer);
EMU_EXPORT int emu_peer_disable(int device, int peer);

/* ---- capture.c ---- */

typedef enum { CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED } capture_mode;

EMU_EXPORT int emu_capture_start(void *stream, emu_graph *graph, int mode);
EMU_EXPORT int emu_capture_stop(void *stream, emu_graph **graph);
/* The stream is to be destroyed. */
EMU_EXPORT void emu_capture_forget(void *stream);
/* Streams that were captured have been destroyed with their device. */
EMU_EXPORT void emu_capture_forget_ended(void);
EMU_EXPORT int emu_capture_exchange_mode(int *mode);
/* Whether the calling thread may make a call that a capture forbids, such as cudaMalloc; if not, the capture is broken. */
EMU_EXPORT int emu_capture_permits(void);

/* ---- graphs.c ---- */

typedef struct emu_user_object emu_user_object;
typedef struct emu_node emu_node;

EMU_EXPORT int emu_graph_new(emu_graph **graph);
EMU_EXPORT int emu_graph_copy(emu_graph *graph, emu_graph **copy);
EMU_EXPORT int emu_graph_instantiate(emu_graph *graph, unsigned long long flags, emu_graph **executable);
EMU_EXPORT int emu_graph_count(emu_graph *graph, emu_node **nodes, size_t *count);
EMU_EXPORT int emu_graph_run(emu_graph *executable, void *stream);
EMU_EXPORT int emu_graph_delete(emu_graph *graph, bool executable);
/* Let go of the objects of a graph that the core has destroyed. */
EMU_EXPORT void emu_graph_forget(emu_graph *graph);
EMU_EXPORT int emu_graph_flags(emu_graph *executable, unsigned long long *flags);

EMU_EXPORT int emu_user_object_new(emu_user_object **object, void *data, void (*destroy)(void *), unsigned count, unsigned flags);
EMU_EXPORT int emu_user_object_retain(emu_user_object *object, unsigned count);
EMU_EXPORT int emu_user_object_release(emu_user_object *object, unsigned count);
EMU_EXPORT int emu_graph_retain_object(emu_graph *graph, emu_user_object *object, unsigned count, unsigned flags);
EMU_EXPORT int emu_graph_release_object(emu_graph *graph, emu_user_object *object, unsigned count);

/* ---- nodes.c ---- */

EMU_EXPORT int emu_nodes_of_graph(emu_graph *graph, emu_node **nodes, size_t *count);
EMU_EXPORT int emu_node_dependencies(emu_node *node, emu_node **nodes, size_t *count);
EMU_EXPORT int emu_node_kind(emu_node *node, int *kind); /* 0: kernel, 1: copy, 2: memset, 3: host function */
/* The nodes that the next work of a captured stream will depend on; valid until the thread asks again. */
EMU_EXPORT int emu_capture_dependencies(const emu_stream *stream, emu_graph *graph, emu_node ***nodes, size_t *count);
/* The graph is gone. */
EMU_EXPORT void emu_nodes_forget(emu_graph *graph);

/* ---- memory.c ---- */

typedef enum { COPY_HOST_TO_HOST, COPY_HOST_TO_DEVICE, COPY_DEVICE_TO_HOST, COPY_DEVICE_TO_DEVICE, COPY_DEFAULT } copy_kind;

/* Pinned memory; no more than the host has. */
EMU_EXPORT int emu_memory_allocate_host(size_t bytes, void **address);
/* cudaHostRegister, cuMemHostRegister. */
EMU_EXPORT int emu_memory_pin(void *address, size_t bytes, unsigned flags);
/* cudaFree, cuMemFree: memory of a device, managed memory, or of a pool; waits for the device, as a GPU's driver does. */
EMU_EXPORT int emu_memory_release(void *address);
/* Their counterparts for memory of the host wait as well. */
EMU_EXPORT int emu_memory_release_host(void *address);
EMU_EXPORT int emu_memory_unpin(void *address);
EMU_EXPORT int emu_memory_copy(void *stream, void *to, const void *from, size_t bytes, int kind, bool blocking);
/* `width` <= both pitches. */
EMU_EXPORT int emu_memory_copy_rows(
    void *stream, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows, int kind, bool blocking);
EMU_EXPORT int emu_memory_set(void *stream, void *address, unsigned value, size_t size, size_t count, bool blocking);
EMU_EXPORT int emu_memory_set_rows(
    void *stream, void *address, size_t pitch, unsigned value, size_t size, size_t width, size_t rows, bool blocking);
/* `bytes` rounded up so that each row of a two-dimensional array begins at a multiple of the texture alignment. */
EMU_EXPORT size_t emu_memory_pitch(size_t bytes);

/* ---- pools.c ---- */

typedef struct emu_memory_pool emu_memory_pool;

enum {
    POOL_REUSE_FOLLOW_EVENTS = 1,
    POOL_REUSE_OPPORTUNISTIC = 2,
    POOL_REUSE_INTERNAL = 3,
    POOL_RELEASE_THRESHOLD = 4,
    POOL_RESERVED_CURRENT = 5,
    POOL_RESERVED_HIGH = 6,
    POOL_USED_CURRENT = 7,
    POOL_USED_HIGH = 8,
};

EMU_EXPORT int emu_pool_new(int device, emu_memory_pool **pool);
EMU_EXPORT int emu_pool_delete(emu_memory_pool *pool);
EMU_EXPORT int emu_pool_default(int device, emu_memory_pool **pool);
EMU_EXPORT int emu_pool_of_device(int device, emu_memory_pool **pool);
EMU_EXPORT int emu_pool_set_of_device(int device, emu_memory_pool *pool);
EMU_EXPORT int emu_pool_get(emu_memory_pool *pool, int attribute, void *value);
EMU_EXPORT int emu_pool_set(emu_memory_pool *pool, int attribute, const void *value);
EMU_EXPORT int emu_pool_trim(emu_memory_pool *pool, size_t bytes_to_keep);
/* Whether the pool's memory can be used by `device`: by its own, and by peers that can reach it. */
EMU_EXPORT int emu_pool_access(emu_memory_pool *pool, int device, bool *possible);
/* NULL: the pool of the stream's device. */
EMU_EXPORT int emu_pool_allocate(emu_memory_pool *pool, void *stream, size_t bytes, void **address);
EMU_EXPORT int emu_pool_free(void *address, void *stream);
/* The pool that `address` is the base of an allocation of; NULL: none. It is forgotten there. */
EMU_EXPORT emu_memory_pool *emu_pool_forget(void *address);

/* ---- kernels.c ---- */

/* What is known about a kernel. Its code isn't read unless it is in an uncompressed cubin, so these are typical values else. */
typedef struct {
    int registers;                 /* per thread */
    int static_shared_bytes;
    int local_bytes;               /* per thread */
    int maximum_threads;           /* per block */
    int dynamic_shared_bytes;      /* the most that a launch may ask for; 0: 48 KiB */
    int carveout;                  /* -1: the driver's choice */
    int cluster_must_be_set, cluster_width, cluster_height, cluster_depth;
    int cluster_policy, non_portable_cluster;
    void *module;                  /* NULL: it came with the program */
} emu_kernel_traits;

enum {
    TRAIT_MAXIMUM_THREADS = 0,
    TRAIT_STATIC_SHARED = 1,
    TRAIT_CONSTANT = 2,
    TRAIT_LOCAL = 3,
    TRAIT_REGISTERS = 4,
    TRAIT_PTX_VERSION = 5,
    TRAIT_BINARY_VERSION = 6,
    TRAIT_CACHE_MODE = 7,
    TRAIT_DYNAMIC_SHARED = 8,
    TRAIT_CARVEOUT = 9,
    TRAIT_CLUSTER_MUST_BE_SET = 10,
    TRAIT_CLUSTER_WIDTH = 11,
    TRAIT_CLUSTER_HEIGHT = 12,
    TRAIT_CLUSTER_DEPTH = 13,
    TRAIT_NON_PORTABLE_CLUSTER = 14,
    TRAIT_CLUSTER_POLICY = 15,
};

EMU_EXPORT emu_kernel_traits emu_kernel_traits_of(const emu_kernel *kernel);
EMU_EXPORT int emu_kernel_set_traits(emu_kernel *kernel, const emu_kernel_traits *traits);
/* By the numbers of CUfunction_attribute, for the code that would run on `device`. */
EMU_EXPORT int emu_kernel_attribute(const emu_kernel *kernel, int attribute, int device, int *value);
EMU_EXPORT int emu_kernel_set_attribute(emu_kernel *kernel, int attribute, int device, int value);
/* Blocks of the kernel that a multiprocessor holds at once. */
EMU_EXPORT int emu_occupancy(const emu_kernel *kernel, int device, int block_threads, size_t dynamic_shared_bytes, int *blocks);
/* The dynamic shared memory that each of `blocks` blocks on a multiprocessor may have. */
EMU_EXPORT int emu_occupancy_shared(const emu_kernel *kernel, int device, int blocks, int block_threads, size_t *bytes);

typedef struct {
    unsigned grid[3], block[3];
    size_t dynamic_shared_bytes;
    void *stream;
    bool cooperative; /* all blocks at once */
    void *const *arguments; /* a pointer to each parameter; NULL: not known */
} emu_launch_shape;

/* RESULT_INVALID_CONFIGURATION if the shape can't be run by any kernel; the driver calls that an invalid value. */
EMU_EXPORT int emu_kernel_launch(emu_kernel *kernel, const emu_launch_shape *shape);

/* ---- registry.c: what a program registers for its symbols ---- */

/* The kernels and variables of one binary of the program; freed by emu_registry_close, which forgets them. */
typedef struct emu_registry_owner emu_registry_owner;

EMU_EXPORT emu_registry_owner *emu_registry_open(void);
EMU_EXPORT void emu_registry_close(emu_registry_owner *owner);
EMU_EXPORT void emu_registry_add_kernel(emu_registry_owner *owner, const void *symbol, const char *name);
EMU_EXPORT void emu_registry_add_variable(emu_registry_owner *owner, const void *symbol, const char *name, size_t bytes);
/* The kernel of a host function's address, or `symbol` itself if it is a kernel's handle; NULL: neither. */
EMU_EXPORT emu_kernel *emu_registry_kernel(const void *symbol);
/* The device's memory is gone, and with it that of the variables. */
EMU_EXPORT void emu_registry_reset(int device);
/* A variable's memory on the current device, and its size. */
EMU_EXPORT int emu_registry_variable(const void *symbol, void **address, size_t *bytes);

/* ---- modules.c: code that is loaded while the program runs ---- */

typedef struct emu_module emu_module;

/* `image` is a cubin, a fat binary, or PTX as text that ends with a zero. */
EMU_EXPORT int emu_module_load(const void *image, emu_module **module);
EMU_EXPORT int emu_module_load_file(const char *path, emu_module **module);
EMU_EXPORT int emu_module_unload(emu_module *module);
EMU_EXPORT int emu_module_kernel(emu_module *module, const char *name, emu_kernel **kernel);
EMU_EXPORT int emu_module_variable(emu_module *module, const char *name, void **address, size_t *bytes);
/* Not supported if the image is compressed, so that its names aren't known. */
EMU_EXPORT int emu_module_kernel_count(emu_module *module, unsigned *count);
EMU_EXPORT int emu_module_kernels(emu_module *module, emu_kernel **kernels, unsigned count);

/* ---- streams.c ---- */

EMU_EXPORT int emu_stream_new(unsigned flags, int priority, void **stream);
EMU_EXPORT int emu_stream_delete(void *stream);
/* The greatest priority is the smaller number. */
enum { STREAM_PRIORITY_LEAST = 0, STREAM_PRIORITY_GREATEST = -5 };
EMU_EXPORT int emu_stream_callback(void *stream, void (*callback)(void *stream, int result, void *data), void *data, unsigned flags);

#endif
