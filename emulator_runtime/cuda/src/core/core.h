/* The core of emugpu's CUDA libraries: devices, memory, streams and time of one process.
 *
 * libemugpu_core.so implements this file. The emulated libraries (libcuda, libcudart, cuBLAS, cuDNN, NCCL, NVML, ...; see
 * ../libraries) translate NVIDIA's interfaces to it, and contain no memory of their own, and no time but that of NCCL's links
 * (nccl/link_model.c).
 *
 * A call that gives work to a stream returns at once. The core knows when the work will end, in emulated nanoseconds, as soon as
 * the work is issued, or later if it depends on others: on the sharing manager (shared devices) or on other processes
 * (collectives). A call that waits sleeps until that moment. Nothing is computed: kernels leave memory as it is.
 *
 * All functions may be called from any thread. Pointers to objects are validated: an object that was destroyed, or never
 * existed, is answered by EMU_INVALID_HANDLE.
 */
#ifndef EMUGPU_CORE_H
#define EMUGPU_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EMU_EXPORT __attribute__((visibility("default")))

/* What went wrong, with the numbers of the CUDA driver (CUresult), which the runtime (cudaError_t) uses as well. */
typedef enum {
    EMU_OK = 0,
    EMU_INVALID_VALUE = 1,
    EMU_OUT_OF_MEMORY = 2,
    EMU_NOT_INITIALIZED = 3,
    EMU_NO_DEVICE = 100,
    EMU_INVALID_DEVICE = 101,
    EMU_INVALID_IMAGE = 200,
    EMU_INVALID_CONTEXT = 201,
    EMU_INVALID_HANDLE = 400,
    EMU_NOT_FOUND = 500,
    EMU_NOT_READY = 600,
    EMU_HOST_MEMORY_ALREADY_REGISTERED = 712,
    EMU_HOST_MEMORY_NOT_REGISTERED = 713,
    EMU_LAUNCH_FAILED = 719, /* a device that is lost: every later call on it fails */
    EMU_NOT_SUPPORTED = 801,
    EMU_CAPTURE_UNSUPPORTED = 900, /* a call that waits, on a stream that is being captured */
    EMU_CAPTURE_INVALIDATED = 901,
    EMU_CAPTURE_UNMATCHED = 903,
    EMU_CAPTURE_UNJOINED = 904,
    EMU_CAPTURE_ISOLATION = 905,
    EMU_UNKNOWN = 999,
} emu_status;

/* ---- devices (device.c) ---- */

enum { EMU_MAX_DEVICES = 64 };

typedef enum { EMU_FP64, EMU_FP32, EMU_TF32, EMU_FP16, EMU_BF16, EMU_FP8, EMU_INT8, EMU_PRECISIONS } emu_precision;

/* How well work uses a device's peak rates: the roofline estimator's constants, fitted for each GPU type to published step times
 * (emulator_runtime/profiles/gpus.json; docs/cuda.md has the formula). */
typedef struct {
    double convolution_part;  /* of the peak rate of operations; above 1 where algorithms need fewer of them (Winograd) */
    double product_part;      /* of matrix products and attention */
    double memory_part;       /* of the peak memory rate */
    double normalisation;     /* memory traffic of normalisation layers and the like, as a multiple of one pass */
    double half_columns, half_depth; /* a matrix product of this width or depth has half the rate of a large one */
    double kernel_ns;         /* fixed time of a kernel on the device */
    double dispatch_ns;       /* the host that was measured with the device needs so long between two launches */
    double half_product_part; /* product_part of the formats of 16 bits; 0: the same */
} emu_roofline;

/* A device of the container, as its settings describe it. Rates are peaks of the data sheet. */
typedef struct {
    int index;              /* as the program counts, which CUDA_VISIBLE_DEVICES decides */
    int machine_index;      /* as nvidia-smi, the sharing manager, traces and records count */
    char name[128];         /* as nvidia-smi shows it: "NVIDIA A100-SXM4-40GB" */
    char uuid[48];          /* "GPU-8-4-4-4-12" */
    unsigned char uuid_bytes[16];
    char gpu_type[128];     /* emugpu's name of the type: "NVIDIA_A100-SXM4-40GB" */
    size_t memory_bytes;
    size_t context_bytes;   /* what a process's CUDA context takes of it */
    int capability_major, capability_minor;
    int multiprocessors;
    int clock_khz, memory_clock_khz, memory_bus_bits;
    int pci_bus;            /* the address is 0000:BUS:00.0 */
    size_t l2_bytes;
    size_t shared_memory_per_multiprocessor; /* bytes */
    size_t shared_memory_per_block_optin;    /* bytes */
    double flops_per_s[EMU_PRECISIONS];      /* dense; 0: the precision isn't accelerated, FP32's rate is used */
    double memory_bytes_per_s;
    double host_link_bytes_per_s; /* one direction */
    double peer_link_bytes_per_s; /* one direction; 0: through the host */
    emu_roofline roofline;
} emu_device_info;

/* Read the settings and prepare the devices, of which the program has those that CUDA_VISIBLE_DEVICES names; the first call does it,
 * later ones return its result. EMU_NO_DEVICE: the program has none. */
EMU_EXPORT emu_status emu_start(void);
EMU_EXPORT int emu_device_count(void);
/* NULL if there is no such device. Constant for the life of the process. */
EMU_EXPORT const emu_device_info *emu_device(int index);
EMU_EXPORT int emu_driver_version(void); /* 13020 is 13.2 */
/* The same for all devices of the machine, by `machine_index`: what NVML shows. CUDA_VISIBLE_DEVICES isn't read yet. */
EMU_EXPORT emu_status emu_machine_start(void);
EMU_EXPORT int emu_machine_device_count(void);
EMU_EXPORT const emu_device_info *emu_machine_device(int machine_index);

/* A context; each device has a primary one. The libraries treat pointers to it as CUcontext. */
typedef struct emu_context emu_context;
EMU_EXPORT emu_context *emu_context_primary(int device); /* NULL: no such device */
EMU_EXPORT emu_status emu_context_create(int device, unsigned flags, emu_context **context);
EMU_EXPORT emu_status emu_context_destroy(emu_context *context);
EMU_EXPORT bool emu_context_valid(const emu_context *context);
EMU_EXPORT int emu_context_device(const emu_context *context);
EMU_EXPORT uint64_t emu_context_id(const emu_context *context);
/* Whether this process has used the device, so that it has a context there, which takes memory. */
EMU_EXPORT bool emu_context_in_use(int device);
/* The calling thread's context; NULL at first. emu_context_push and _pop keep a stack, as the driver does. */
EMU_EXPORT emu_context *emu_context_current(void);
EMU_EXPORT void emu_context_set_current(emu_context *context);
EMU_EXPORT emu_status emu_context_push(emu_context *context);
EMU_EXPORT emu_status emu_context_pop(emu_context **context);
/* The device of the calling thread's context; 0 without one. */
EMU_EXPORT int emu_current_device(void);

/* ---- memory (memory.c) ---- */

typedef enum {
    EMU_MEMORY_HOST = 1,    /* pinned */
    EMU_MEMORY_DEVICE = 2,
    EMU_MEMORY_MANAGED = 3,
    EMU_MEMORY_RESERVED = 4 /* address space without memory, see emu_address_reserve */
} emu_memory_kind;

typedef struct {
    void *base;
    size_t bytes;
    int device;
    emu_memory_kind kind;
    uint64_t id;     /* different for each allocation of the process */
    unsigned flags;  /* as given to emu_memory_register */
} emu_memory_info;

/* `bytes` of a device, or of the host for EMU_MEMORY_HOST; rounded up to 512. The address space costs nothing until it is written.
 * EMU_OUT_OF_MEMORY if the device has less left for this process. */
EMU_EXPORT emu_status emu_memory_allocate(int device, emu_memory_kind kind, size_t bytes, void **address);
/* `address` must be the base of an allocation of this kind; NULL is allowed. */
EMU_EXPORT emu_status emu_memory_free(emu_memory_kind kind, void *address);
/* Memory of the program that it declares as pinned (cudaHostRegister), and its end. */
EMU_EXPORT emu_status emu_memory_register(void *address, size_t bytes, unsigned flags);
EMU_EXPORT emu_status emu_memory_unregister(void *address);
/* The allocation that contains `address`; false if none does. */
EMU_EXPORT bool emu_memory_find(const void *address, emu_memory_info *info);
/* Whether all of it is memory that a device may reach: of a device, or pinned. Allocations side by side are one range. */
EMU_EXPORT bool emu_memory_reachable(const void *address, size_t bytes);
EMU_EXPORT emu_status emu_memory_usage(int device, size_t *free_bytes, size_t *total_bytes);
EMU_EXPORT size_t emu_memory_peak(int device); /* the most that this process had, context included */

/* Virtual memory management: addresses, memory, and which memory is at which addresses. Multiples of EMU_GRANULARITY. */
enum { EMU_GRANULARITY = 2 << 20 };
typedef struct emu_physical emu_physical;
EMU_EXPORT emu_status emu_address_reserve(size_t bytes, size_t alignment, void **address);
EMU_EXPORT emu_status emu_address_free(void *address, size_t bytes);
EMU_EXPORT emu_status emu_physical_create(int device, size_t bytes, emu_physical **memory);
EMU_EXPORT emu_status emu_physical_release(emu_physical *memory); /* given back when it is mapped nowhere */
EMU_EXPORT emu_status emu_physical_retain(void *address, emu_physical **memory);
EMU_EXPORT emu_status emu_physical_map(void *address, size_t bytes, size_t offset, emu_physical *memory);
EMU_EXPORT emu_status emu_physical_unmap(void *address, size_t bytes);

/* ---- streams, events (stream.c) ---- */

typedef struct emu_stream emu_stream;
typedef struct emu_event emu_event;

enum { EMU_STREAM_NON_BLOCKING = 1 };
enum { EMU_EVENT_NO_TIMING = 2 };

EMU_EXPORT emu_status emu_stream_create(int device, unsigned flags, int priority, emu_stream **stream);
EMU_EXPORT emu_status emu_stream_destroy(emu_stream *stream);
/* The stream that a CUDA handle means: NULL and (void *)1 are the current device's default stream, (void *)2 the thread's own.
 * NULL: there is no such stream. */
EMU_EXPORT emu_stream *emu_stream_of(void *handle);
EMU_EXPORT emu_stream *emu_stream_default(int device);
EMU_EXPORT int emu_stream_device(const emu_stream *stream);
EMU_EXPORT unsigned emu_stream_flags(const emu_stream *stream);
EMU_EXPORT int emu_stream_priority(const emu_stream *stream);
EMU_EXPORT uint64_t emu_stream_id(const emu_stream *stream);
/* EMU_OK if all work of the stream has ended, else EMU_NOT_READY. */
EMU_EXPORT emu_status emu_stream_query(emu_stream *stream);
EMU_EXPORT emu_status emu_stream_synchronize(emu_stream *stream);
EMU_EXPORT emu_status emu_stream_wait(emu_stream *stream, emu_event *event);
EMU_EXPORT emu_status emu_device_synchronize(int device);
/* Wait for the device, then destroy its streams and events and free its memory. */
EMU_EXPORT emu_status emu_device_reset(int device);

EMU_EXPORT emu_status emu_event_create(int device, unsigned flags, emu_event **event);
EMU_EXPORT emu_status emu_event_destroy(emu_event *event);
EMU_EXPORT emu_status emu_event_record(emu_event *event, emu_stream *stream);
EMU_EXPORT emu_status emu_event_query(emu_event *event);
EMU_EXPORT emu_status emu_event_synchronize(emu_event *event);
EMU_EXPORT emu_status emu_event_elapsed(const emu_event *start, const emu_event *end, float *milliseconds);

/* ---- work (work.c) ---- */

typedef enum {
    EMU_KERNEL,      /* a kernel of the program; the estimator goes by its name and grid */
    EMU_GEMM,        /* matrix products */
    EMU_CONVOLUTION,
    EMU_ATTENTION,
    EMU_MEMORY_BOUND /* normalisation, pooling, memset and the like: time goes by bytes */
} emu_work_kind;

/* What a device is to do, as far as the estimators want to know. Zero where it isn't known. */
typedef struct {
    emu_work_kind kind;
    const char *name;         /* "gemm", or a kernel's mangled name; copied where it is kept */
    emu_precision precision;  /* of the multiplications */
    double flops;             /* a multiply-add counts as two */
    double bytes;             /* read and written */
    double columns, depth;    /* of each matrix product: its narrow side, and how many products each element sums */
    unsigned grid[3], block[3];
} emu_work;

EMU_EXPORT emu_status emu_launch(emu_stream *stream, const emu_work *work);

/* A kernel that the program brings along. There is one for each mangled name. */
typedef struct emu_kernel emu_kernel;
EMU_EXPORT emu_kernel *emu_kernel_named(const char *name); /* NULL: no memory left */
EMU_EXPORT bool emu_kernel_valid(const emu_kernel *kernel);
EMU_EXPORT const char *emu_kernel_name(const emu_kernel *kernel);
/* `arguments`: as cudaLaunchKernel has them, one pointer to each parameter; NULL: not known. */
EMU_EXPORT emu_status emu_launch_kernel(
    emu_stream *stream, emu_kernel *kernel, const unsigned grid[3], const unsigned block[3], void *const *arguments);

/* Copies and settings of memory. Data that the host wrote moves; `blocking`: return when it has arrived, as cudaMemcpy does; a
 * copy from or to pageable memory is always blocking. Either address may be the host's. */
EMU_EXPORT emu_status emu_copy(emu_stream *stream, void *to, const void *from, size_t bytes, bool blocking);
/* `rows` rows of `width` bytes; the pitches are the distances of their beginnings. */
EMU_EXPORT emu_status emu_copy_rows(
    emu_stream *stream, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows, bool blocking);
/* `rows` rows of `count` elements of `size` bytes (1, 2 or 4), each set to `value`; `pitch`: bytes from row to row. One kernel. */
EMU_EXPORT emu_status emu_set_rows(
    emu_stream *stream, void *address, size_t pitch, unsigned value, size_t size, size_t count, size_t rows);
EMU_EXPORT emu_status emu_set(emu_stream *stream, void *address, unsigned value, size_t size, size_t count);
/* Memory at `address` has been written with data that counts, by a library that ran on the host (NCCL's small payloads). */
EMU_EXPORT void emu_memory_written(void *address, size_t bytes);

/* `function(argument)` runs on a thread of the core when the stream gets there; the stream goes on when it returns. */
EMU_EXPORT emu_status emu_launch_host(emu_stream *stream, void (*function)(void *), void *argument);

/* Work whose end depends on other processes. `begin` is called each time that the work is given to a stream (at once, or at every
 * launch of the graph that it was captured into) and answers a state of its own for this time; NULL: out of memory. Then, when the
 * work before it in the stream has a known end `ready_ns`, the core calls `poll`, again and again, until it answers true and the
 * work's end; a communication thread that has news calls emu_wake so that this happens soon. At last `done` is called, also for
 * work that is given up. `drop` is called when the plan is needed no longer.
 *
 * The core's lock is held in all of them: they must not block, nor give work to streams or wait for them; they may ask for memory
 * and time. The first poll comes before emu_launch_deferred returns if the end of the work before it is known. */
typedef struct {
    void *(*begin)(void *plan);
    bool (*poll)(void *state, int64_t ready_ns, int64_t *end_ns);
    void (*done)(void *state);
    void (*drop)(void *plan); /* may be NULL */
    void *plan;
    const char *name;
} emu_deferred;
EMU_EXPORT emu_status emu_launch_deferred(emu_stream *stream, const emu_deferred *work);
EMU_EXPORT void emu_wake(void);

/* ---- graphs (graph.c) ---- */

typedef struct emu_graph emu_graph;
typedef enum { EMU_CAPTURE_NONE = 0, EMU_CAPTURE_ACTIVE = 1, EMU_CAPTURE_BROKEN = 2 } emu_capture_state;

EMU_EXPORT emu_status emu_graph_create(emu_graph **graph);
EMU_EXPORT emu_status emu_graph_clone(const emu_graph *graph, emu_graph **copy); /* also: instantiate */
EMU_EXPORT emu_status emu_graph_destroy(emu_graph *graph);
EMU_EXPORT bool emu_graph_valid(const emu_graph *graph);
EMU_EXPORT size_t emu_graph_nodes(const emu_graph *graph);
EMU_EXPORT emu_status emu_graph_launch(const emu_graph *graph, emu_stream *stream);
/* A graph in the order of its capture. A lane is the part of it that one stream did; work follows the work before it in its lane and,
 * after a wait, what was before the record of that moment. */
typedef enum { EMU_STEP_KERNEL, EMU_STEP_COPY, EMU_STEP_SET, EMU_STEP_HOST, EMU_STEP_RECORD, EMU_STEP_WAIT } emu_step_kind;
typedef struct {
    emu_step_kind kind;
    int lane;
    int moment; /* of EMU_STEP_RECORD and EMU_STEP_WAIT */
} emu_graph_step;
/* Up to `room` steps from number `first` on; answers how many. */
EMU_EXPORT size_t emu_graph_steps(const emu_graph *graph, size_t first, emu_graph_step *steps, size_t room);
/* The lane of a stream that is captured; -1: it isn't. */
EMU_EXPORT int emu_capture_lane(const emu_stream *stream);

/* What is given to `stream` from now on is added to `graph` (NULL: a new one) instead of being done, with what other streams do
 * after they waited for one of its events. */
EMU_EXPORT emu_status emu_capture_begin(emu_stream *stream, emu_graph *graph);
EMU_EXPORT emu_status emu_capture_end(emu_stream *stream, emu_graph **graph);
/* A call that a capture can't contain was made: emu_capture_end will answer EMU_CAPTURE_INVALIDATED. */
EMU_EXPORT void emu_capture_break(emu_stream *stream);
EMU_EXPORT emu_capture_state emu_capture_of(const emu_stream *stream, uint64_t *id, emu_graph **graph);

/* ---- records for predictions (record.c) ---- */

/* Whether the program is recorded; then its work takes no time. */
EMU_EXPORT bool emu_recording(void);
/* How many ranks the job has, if it is recorded without its other ranks; 0: they are there. */
EMU_EXPORT int emu_virtual_ranks(void);
/* The thread begins to wait for other processes, or has done so: that is no time of the host. */
EMU_EXPORT void emu_record_waiting(bool begins);
typedef struct {
    uint64_t host;            /* of virtual ranks: the rank in the job */
    unsigned char device[16]; /* UUID */
} emu_record_member;
/* `key`: the same for all ranks of the communicator, and for no other. Answers the communicator's number in the records, from 1. */
EMU_EXPORT unsigned emu_record_communicator(const unsigned char key[16], int rank, int ranks, const emu_record_member *members);
/* One message with another rank. */
typedef struct {
    int32_t rank;
    uint32_t unused;
    uint64_t sent_bytes, received_bytes;
} emu_record_peer;
/* A collective, or the messages of a group, on the stream that is given the deferred work: to be called by its `begin`. */
EMU_EXPORT void emu_record_collective(
    unsigned communicator, uint64_t number, int operation, uint64_t bytes, const emu_record_peer *peers, int count);

/* ---- time and reports (clock.c, log.c) ---- */

EMU_EXPORT int64_t emu_now_ns(void); /* emulated */
/* Say once, by name, that a program called something that isn't emulated: on standard error, and in the statistics. */
EMU_EXPORT void emu_unsupported(const char *library, const char *function);
/* A line on standard error if EMUGPU_CUDA_LOG asks for `level` (1: what a user should know, 2: each object, 3: each call). */
EMU_EXPORT void emu_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
