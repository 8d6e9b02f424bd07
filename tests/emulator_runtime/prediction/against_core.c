/* Hands the core's own arithmetic to a test: estimates, engines, the link model and the kernel table, without a process's settings. */
#include "../../../emulator_runtime/cuda/src/libraries/nccl/link_model.h"
#include "internal.h"

#include <stdio.h>
#include <string.h>

emu_settings settings;

void emu_log(int level, const char *format, ...) {
    (void)level;
    (void)format;
}

void set_device(const double *flops, double memory, double host, double peer, const emu_roofline *roofline) {
    emu_device_info *device = &settings.devices[0];
    memcpy(device->flops_per_s, flops, sizeof device->flops_per_s);
    device->memory_bytes_per_s = memory;
    device->host_link_bytes_per_s = host;
    device->peer_link_bytes_per_s = peer;
    device->roofline = *roofline;
    settings.devices[1] = *device;
}

bool set_table(const char *path) {
    snprintf(settings.kernel_table, sizeof settings.kernel_table, "%s", path);
    return kernel_table_read();
}

/* -1: the table doesn't have the kernel. */
int64_t table_ns(const char *name, const unsigned grid[3], const unsigned block[3], double fixed_ns) {
    const measured_kernel *found = kernel_table_find(name);
    return found == NULL ? -1 : kernel_table_ns(found, grid, block, fixed_ns);
}

int64_t link_ns(const link_topology *links, int kind, double bytes, bool across) {
    return link_time_ns(links, (operation_kind)kind, bytes, across);
}
