/* Emulated time of the process. */
#ifndef EMUGPU_CLOCK_H
#define EMUGPU_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* `file`: a clock shared by the processes of the node (emulator_runtime/timing/shared_clock.py); empty: the host's monotonic clock.
 * `warp`: waits take no time; emulated time jumps to their end instead. Answers false if the file isn't a clock. */
bool clock_open(const char *file, bool warp);
bool clock_warps(void);
int64_t host_ns(void);
/* Wait until emulated time is `deadline_ns`. The core's lock must not be held. */
void clock_wait_until(int64_t deadline_ns);

#endif
