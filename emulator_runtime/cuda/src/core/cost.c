/* How long a device takes for a piece of work: a constant, or a roofline of the device's data sheet. */
#include "internal.h"

#include <string.h>

/* Fixed time of a kernel on the device, and the parts of the peak rates that typical kernels reach. */
static const double KERNEL_S = 3e-6, COPY_S = 5e-6, FLOPS_PART = 0.45, BYTES_PART = 0.75;
static double rate(const emu_device_info *device, emu_precision precision) {
    double found = device->flops_per_s[precision];
    return found > 0 ? found : device->flops_per_s[EMU_FP32];
}

static double roofline_s(const emu_device_info *device, const emu_work *work) {
    double memory_s = work->bytes / (device->memory_bytes_per_s * BYTES_PART);
    double compute_s = work->flops / (rate(device, work->precision) * FLOPS_PART);
    return KERNEL_S + (memory_s > compute_s ? memory_s : compute_s);
}

int64_t cost_of_work(int device, const emu_work *work) {
    if (settings.estimator == ESTIMATE_CONSTANT)
        return settings.constant_ns;
    return (int64_t)(roofline_s(&settings.devices[device], work) * settings.anchor * 1e9);
}

int64_t cost_of_copy(int to_device, int from_device, size_t bytes) {
    double rate = 20e9; /* from memory of the host to memory of the host */
    if (to_device >= 0 && to_device == from_device)
        rate = settings.devices[to_device].memory_bytes_per_s * BYTES_PART / 2;
    else if (to_device >= 0 && from_device >= 0 && settings.devices[from_device].peer_link_bytes_per_s > 0)
        rate = settings.devices[from_device].peer_link_bytes_per_s;
    else if (to_device >= 0 || from_device >= 0)
        rate = settings.devices[to_device >= 0 ? to_device : from_device].host_link_bytes_per_s;
    return (int64_t)((COPY_S + (double)bytes / rate) * 1e9);
}
