/* What the processes that emulate a device use of it, without a sharing manager: a page of shared memory for each device. */
#ifndef EMUGPU_STATISTICS_H
#define EMUGPU_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

/* Open the pages of the process's devices. */
void emu_statistics_start(void);
/* This process's memory on the device, its context included. */
void emu_statistics_memory(int device, size_t bytes);
/* The device works for this process for `duration_ns` up to `end_ns`. */
void emu_statistics_busy(int device, int64_t end_ns, int64_t duration_ns);
/* Memory of the other processes that emulate the same device. */
size_t emu_statistics_memory_of_others(int device);

#endif
