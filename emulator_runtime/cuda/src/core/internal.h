/* What the files of the core share: the state of the process, its lock, and the objects behind the handles. */
#ifndef EMUGPU_INTERNAL_H
#define EMUGPU_INTERNAL_H

#include "core.h"
#include "engine.h"
#include "pool.h"

#include <pthread.h>

/* Guards all that follows. Held while data is moved, otherwise for well under a microsecond; never while the process waits. */
extern pthread_mutex_t core_lock;
/* Signalled when the end of some work has become known. */
extern pthread_cond_t core_progress;

/* ---- settings.c ---- */

typedef enum { ESTIMATE_ROOFLINE, ESTIMATE_CONSTANT } estimator_kind;

typedef struct {
    int driver_version;
    estimator_kind estimator;
    int64_t constant_ns;      /* of each piece of work, with the constant estimator */
    double anchor;            /* factor on all estimates but those of the kernel table */
    int64_t step_ns;          /* what a training step takes: the factor follows from it; 0: nothing is known */
    double scalar;            /* the value of a small read of what a kernel wrote */
    char kernel_table[512];   /* file; empty: none */
    char trace[512];          /* file of the Chrome trace; empty: none. %p: the process's number; else the first process has it */
    char record[512];         /* file of the records for predictions; %p as in `trace` */
    char clock[512];          /* file of a shared clock; empty: the host's */
    char manager[108];        /* socket of the sharing manager; empty: none */
    char token[128];
    int virtual_ranks;        /* the job's, if it is recorded without its other ranks; 0: they are there */
    bool warp;
    int log_level;
    int device_count;         /* of the file; of the program once emu_start has returned */
    emu_device_info devices[EMU_MAX_DEVICES];
} emu_settings;

extern emu_settings settings;
/* Read the file that EMUGPU_CUDA_SETTINGS names. Answers false, after a line in the log, if there is none or it is wrong. */
bool settings_read(void);
/* A setting's file name with the process's number in the place of %p. */
void settings_file_name(const char *setting, char *path, size_t room);
/* The device has this UUID. */
void settings_name_device(emu_device_info *device, const char *uuid);

/* ---- visible.c ---- */

/* The machine indexes of the devices that `list`, a value of CUDA_VISIBLE_DEVICES, leaves to the program; answers how many. */
int visible_devices(const char *list, const emu_device_info *machine, int count, int *chosen);

/* ---- device.c ---- */

typedef struct {
    emu_engine compute, copy_in, copy_out;
    uint64_t launches;        /* kernels and library calls that streams have got to */
    const char *last_work;    /* the name of the last of them; the value rule goes by it */
    size_t used_bytes, peak_bytes;
    _Atomic(emu_stream *) default_stream; /* NULL: not made yet */
    int64_t dispatched_ns;    /* when the measured host could have made the next launch */
    int blocking_streams;     /* streams that wait for the default stream, and it for them */
    int64_t last_end_ns;      /* the latest known end of any work */
    bool lost;
    bool changing;            /* a thread changes what the process has of the device, and may wait for the manager */
    bool gave_back;           /* memory was freed since the manager knows */
    bool in_use;              /* a process that only counts the devices takes no memory of them */
} device_state;

extern device_state devices[EMU_MAX_DEVICES];
/* EMU_OK, or why the device can't be used. The process's context on it is made if it isn't there yet; the lock is held. */
emu_status device_usable(int device);
/* Between these, a thread changes the process's part of a device; others that want to wait. The lock is held. */
void device_begin_change(int device);
void device_end_change(int device);
/* The machine's number of a device of the program; -1 (the host) stays -1. */
int machine_index_of(int device);
/* A device of the program turned out to have this UUID. */
void device_rename(int device, const char *uuid);
/* Whether this is a child of a process that used devices. */
bool process_forked(void);

/* ---- stream.c ---- */

/* A moment of a stream: when what was before it has ended. Shared by those that wait for it. */
typedef struct {
    int references;
    bool known;
    int64_t end_ns;
    uint32_t number;  /* in the records; 0: it isn't recorded */
    uint64_t stream;  /* in the records: the id of its stream */
    unsigned queries; /* in the records: how often the program asked whether it has passed */
} moment;

moment *moment_new(void); /* one reference; NULL: out of memory */
void moment_release(moment *shared);

typedef struct capture capture;

/* A deferred work as it was given, kept while a stream or a graph needs it. */
typedef struct {
    emu_deferred work;
    int references;
} deferred_plan;

deferred_plan *plan_share(deferred_plan *plan);
void plan_release(deferred_plan *plan);

/* A kernel that is executed, and its parameters, kept while a stream or a graph needs them; see values.c. */
typedef struct executed_kernel executed_kernel;
typedef struct kernel_arguments kernel_arguments;

/* Work that waits for an end that isn't known, in the order of its stream. */
typedef enum { ITEM_WORK, ITEM_COPY, ITEM_MARK, ITEM_WAIT, ITEM_DEFERRED, ITEM_HOST } item_kind;

typedef struct chunk chunk; /* see grant.c */

typedef struct item {
    struct item *next;
    item_kind kind;
    int64_t issued_ns;
    int64_t dispatch_ns;              /* WORK: what the host of the measured machine needs for a launch */
    const char *name;
    int64_t duration_ns;              /* WORK, COPY */
    bool measured;                    /* WORK: the duration is the kernel table's */
    bool by_host;                     /* WORK: launched by the host, not by a graph */
    emu_engine *engine;               /* WORK, COPY: what does it; NULL: nothing that others could keep busy */
    emu_work work;                    /* WORK, for the trace and the values */
    kernel_arguments *arguments;      /* WORK: NULL unless the kernel is executed */
    struct {                          /* COPY: rows of `width` bytes; if `from` is NULL, their elements are set to `value` */
        void *to;
        const void *from;
        size_t to_pitch, from_pitch, width, rows;
        size_t element;               /* bytes of an element that is set */
        unsigned value;
        bool to_known, from_known;    /* allocated or registered when the work was issued */
        int to_device, from_device;   /* -1: the host */
    } copy;
    moment *moment;                   /* MARK: to be set; WAIT: to be waited for */
    deferred_plan *plan;              /* DEFERRED */
    void *state;
    void (*function)(void *);         /* HOST */
    void *argument;
    chunk *chunk;                     /* WORK, COPY on a shared device: what it has joined, and behind how much other work */
    int64_t chunk_offset_ns;
    uint32_t recorded;                /* HOST: its number in the records; 0: it isn't recorded */
    bool started;                     /* HOST: a thread has it */
    bool ended;                       /* HOST: `end_ns` is known */
    int64_t start_ns, end_ns;
} item;

enum { QUEUE_DEPTH = 1024 }; /* launches that a stream holds before the host waits, as a GPU's queue does */

struct emu_stream {
    int device;
    unsigned flags;
    int priority;
    uint64_t id;
    bool is_default;
    _Atomic bool closing;             /* destroyed by the program; ends with its work */
    int64_t end_ns;                   /* of the work whose end is known */
    item *first, *last;               /* the work whose end isn't known, in order */
    int pending;                      /* its length */
    item *last_asked;                 /* the last of the list that has joined a chunk */
    uint32_t issued;
    int64_t recent_end_ns[QUEUE_DEPTH];
    capture *capture;
    int lane;                         /* of the capture's graph */
    bool used, end_marked;            /* in the records: it was given something, and `end_moment` comes after all of that */
    uint32_t end_moment;
    uint32_t host_waited;             /* in the records: the last of its moments for which the host has waited */
    uint32_t awaited_default;         /* the last moment of the default stream for which it waits, and the one of it for which */
    uint32_t default_awaited;         /* the default stream does */
};

struct emu_event {
    int device;
    unsigned flags;
    moment *moment;
    capture *capture;                 /* recorded while this was going on */
    uint64_t capture_id;
    int capture_moment;
};

extern emu_pool stream_pool, event_pool;

/* Give `work` to the stream, which fills in its times and keeps a copy if it needs one. The lock is held, and released for a while
 * if the stream's queue is full. */
emu_status stream_issue(emu_stream *stream, item *work);
/* Find out the ends of all work for which that is possible by now. The lock is held. */
void streams_resolve(void);
bool streams_pending(void);
/* Wait until the work that the stream has now has ended. The lock is held, and released while waiting. */
emu_status stream_wait_for_end(emu_stream *stream);
bool stream_live(const emu_stream *stream); /* needs no lock */

/* A stream that the core made for itself. A reset of the device destroys it, and its place may be another stream's by then. */
typedef struct {
    emu_stream *stream;
    uint64_t id;
} kept_stream;

/* The stream, made anew if it isn't there (any more); NULL: out of memory. */
emu_stream *stream_of_kept(kept_stream *kept, int device, unsigned flags);

/* Destroy all streams and events of a device that is at rest. */
void streams_destroy(int device);

/* ---- attendant.c: a thread of the core for what happens without a call of the program ---- */

/* A detached thread with a small stack. */
bool thread_start(void *(*body)(void *));
void attendant_forget(void);     /* in a forked child: the threads are the parent's */
void attendant_start(void);      /* once there is something to attend to; the lock is held */
/* Run a host function at its `start_ns`, on a thread of its own; false: too many wait already, or there can be no thread. */
bool attendant_run(item *host_function);

/* ---- graph.c ---- */

typedef struct {
    int lane;
    int moment;                  /* of a mark or a wait: an index; -1: other work */
    item work;
} graph_step;

struct capture {
    emu_graph *graph;
    emu_stream *origin;
    uint64_t id;
    bool broken;
    bool made_graph; /* the program brought none */
};

/* Add to the capture of a stream instead of doing it. */
emu_status capture_work(emu_stream *stream, const item *work);
emu_status capture_record(emu_stream *stream, emu_event *event);
/* `stream` waits for an event of a capture: it becomes part of it. */
emu_status capture_wait(emu_stream *stream, emu_event *event);
/* Whether the capture in which the event was recorded is still going on. */
bool capture_contains(const emu_event *event);
/* A stream that is captured is destroyed. */
void capture_lose(emu_stream *stream);

/* ---- memory.c ---- */

/* Move data that counts, as far as there is any, between any two places. */
void memory_move(void *to, const void *from, size_t bytes);
void memory_fill(void *address, unsigned value, size_t size, size_t count);
/* Device memory has got values that count, without a copy of the program. `exchanged`: they came from other processes. */
void memory_written(void *address, size_t bytes, bool exchanged);
void memory_free_all(int device);
/* What the process has of the device, its context included. */
void memory_account(int device, size_t used_bytes);
/* Whether the range lies in one allocation, or in none. */
bool memory_contains(const void *address, size_t bytes);
/* Whether the process has all of this memory, and may read or write its first and last page. Takes about two microseconds. */
typedef enum { TO_READ, TO_WRITE } memory_use;
bool memory_mapped(const void *address, size_t bytes, memory_use use);
typedef enum { PLACE_PAGEABLE, PLACE_PINNED, PLACE_DEVICE } memory_place;
memory_place memory_place_of(const void *address, int *device);

/* ---- values.c ---- */

/* This device memory was written by the host, or (`exchanged`) by another process. */
void values_written(const void *address, size_t bytes, int device, bool exchanged);
/* Whether it still has what the host or other processes wrote. `exchanged`: all of it came from other processes. */
bool values_known(const void *address, size_t bytes, int device, bool *exchanged);
/* A small read of device memory: `to` gets what a kernel may have computed there. False: what is there counts. */
bool values_computed(void *to, const void *from, size_t bytes, int device);
/* What is executed for kernels of this name; NULL: nothing. */
const executed_kernel *values_kernel(const char *name);
/* A copy of the parameters, from one pointer to each; one reference. NULL: out of memory. */
kernel_arguments *arguments_new(const executed_kernel *kernel, void *const *arguments);
kernel_arguments *arguments_share(kernel_arguments *shared); /* may be NULL, as in arguments_release */
void arguments_release(kernel_arguments *shared);
/* A stream has got to this work. `arguments`: of a kernel that is executed; else NULL. Its name lives as long as the process. */
void values_worked(const emu_work *work, const kernel_arguments *arguments, int device);

/* ---- kernels.c, cost.c ---- */

/* How much memory a kernel reads and writes, as far as its name says: so many bytes for each thread, block, or element. */
typedef struct {
    bool by_block, by_arguments;
    double bytes;
} kernel_traffic;

kernel_traffic kernel_traffic_of(const char *name);
/* Of one launch. `arguments` may be NULL. */
double kernel_bytes(const kernel_traffic *traffic, const unsigned grid[3], const unsigned block[3], void *const *arguments);

/* Nanoseconds that the device takes, before the anchor's factor. */
int64_t cost_of_work(int device, const emu_work *work);
int64_t cost_of_copy(int to_device, int from_device, size_t bytes); /* -1: the host */
int64_t cost_in_ns(double seconds); /* whole nanoseconds, within what a time can be */

/* ---- anchor.c ---- */

/* Multiply the times of work that is given to a device's compute units, if it isn't measured, by the device's factor. */
void anchor_work(int device, item *work);
/* The program has waited until a device had nothing to do. */
void anchor_waited(int device);
/* Say for which devices no factor was found. */
void anchor_report(void);

/* ---- kernel_table.c ---- */

typedef struct measured_kernel measured_kernel;

/* Read the file that the settings name, if they do. Answers false, after a line in the log, if it is wrong. */
bool kernel_table_read(void);
/* The times of a kernel; NULL: the table has none of this name. */
const measured_kernel *kernel_table_find(const char *mangled_name);
/* The time of a launch of it. `fixed_ns`: the part of a time that doesn't depend on the grid. */
int64_t kernel_table_ns(const measured_kernel *kernel, const unsigned grid[3], const unsigned block[3], double fixed_ns);

/* ---- trace.c ---- */

void trace_open(void);
void trace_forget(void); /* in a forked child: the file is the parent's; the child gets its own when it has work */
/* Whether `trace_work` is to be called. Opens the file when it is asked first. */
bool trace_wanted(void);
void trace_work(const emu_stream *stream, const item *work, int64_t start_ns, int64_t end_ns);

/* ---- record.c ---- */

extern bool record_on; /* the program is recorded: its work takes no time */
void record_open(void);
void record_forget(void); /* in a forked child: the file is the parent's */
/* The following are called only if `record_on`, with the lock held. */
void record_work(emu_stream *stream, item *work);
void record_function_ended(const item *work, int64_t took_ns);
void record_mark(emu_stream *stream, moment *marked);
void record_await(emu_stream *stream, const moment *awaited);
/* One of them is the default stream. */
void record_follow(emu_stream *stream, emu_stream *other);
/* The program waits for a moment, a stream, all streams of a device. */
void record_moment_wait(const moment *awaited);
/* The program asks whether a moment has passed, which it has: whether the answer is yes. */
bool record_query(moment *asked);
void record_stream_wait(emu_stream *stream);
void record_device_wait(int device);
/* A thread begins to wait, or has waited: that is no time of the host. */
void record_waiting(bool begins);
void record_memory(int device, size_t used_bytes);

#endif
