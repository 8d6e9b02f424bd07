/* Pages of shared memory about the devices. */
#include "statistics.h"

void emu_statistics_start(void) {
}

void emu_statistics_memory(int device, size_t bytes) {
    (void)device;
    (void)bytes;
}

void emu_statistics_busy(int device, int64_t end_ns, int64_t duration_ns) {
    (void)device;
    (void)end_ns;
    (void)duration_ns;
}

size_t emu_statistics_memory_of_others(int device) {
    (void)device;
    return 0;
}
