/* What the processes that emulate a device use of it: pages of shared memory, one for each device, and the manager's telemetry. */
#ifndef EMUGPU_STATISTICS_H
#define EMUGPU_STATISTICS_H

#include "core.h"

#include <stddef.h>
#include <stdint.h>

/* Called once, before the others. */
void emu_statistics_start(void);
/* This process's memory on the device, its context included. */
void emu_statistics_memory(int device, size_t bytes);
/* The device works for this process for `duration_ns` up to `end_ns`. */
void emu_statistics_busy(int device, int64_t end_ns, int64_t duration_ns);
/* Memory of the other processes that emulate the same device. */
size_t emu_statistics_memory_of_others(int device);

enum { EMU_PROCESSES_SHOWN = 128 };

typedef struct {
    int64_t pid;  /* 0: not known */
    char name[64]; /* empty: not known */
    size_t memory_bytes;
} emu_process_use;

/* What all processes together use of a device. */
typedef struct {
    size_t memory_bytes;
    double utilisation; /* 0 to 1: the part of the last second in which the device worked */
    int process_count;
    emu_process_use processes[EMU_PROCESSES_SHOWN];
} emu_device_use;

/* As the sharing manager says if there is one that answers, else as the pages say. False: there is no such device. May take some
 * milliseconds; the manager is asked at most five times a second. */
EMU_EXPORT bool emu_device_use_read(int machine_index, emu_device_use *use);

#endif
