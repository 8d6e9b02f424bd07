/* How long a device takes for a piece of work: a constant, or a roofline of the device's data sheet.
 *
 * The roofline adds what arithmetic and memory traffic take, since kernels overlap them only in part (the sum fits published step
 * times as well as the larger of the two does, and never falls when work is added):
 *
 *     operations * (1 + half_columns / columns) * (1 + half_depth / depth) / (peak rate * part)
 *         + bytes / (peak memory rate * part) + kernel_ns
 *
 * A narrow or shallow matrix product leaves parts of the GPU's tiles empty; the two factors say so.
 */
#include "internal.h"

static const double COPY_S = 5e-6, HOST_BYTES_PER_S = 20e9;
static const double LONGEST_S = 1e6; /* 11 days: a thousand such works fit into 64 bits of nanoseconds */

static double operations_per_s(const emu_device_info *device, const emu_work *work) {
    double peak = device->flops_per_s[work->precision];
    if (peak <= 0)
        peak = device->flops_per_s[EMU_FP32];
    const emu_roofline *constants = &device->roofline;
    bool half = work->precision == EMU_FP16 || work->precision == EMU_BF16;
    double product_part = half && constants->half_product_part > 0 ? constants->half_product_part : constants->product_part;
    return peak * (work->kind == EMU_CONVOLUTION ? constants->convolution_part : product_part);
}

static double roofline_s(const emu_device_info *device, const emu_work *work) {
    const emu_roofline *constants = &device->roofline;
    double operations = work->flops;
    if (work->columns > 0 && work->depth > 0)
        operations *= (1 + constants->half_columns / work->columns) * (1 + constants->half_depth / work->depth);
    double bytes = work->kind == EMU_MEMORY_BOUND ? work->bytes * constants->normalisation : work->bytes;
    double seconds = constants->kernel_ns / 1e9;
    if (operations > 0)
        seconds += operations / operations_per_s(device, work);
    if (bytes > 0)
        seconds += bytes / (device->memory_bytes_per_s * constants->memory_part);
    return seconds;
}

int64_t cost_in_ns(double seconds) {
    if (!(seconds > 0)) /* also if it isn't a number */
        return 0;
    return (int64_t)((seconds < LONGEST_S ? seconds : LONGEST_S) * 1e9);
}

int64_t cost_of_work(int device, const emu_work *work) {
    if (settings.estimator == ESTIMATE_CONSTANT)
        return settings.constant_ns;
    return cost_in_ns(roofline_s(&settings.devices[device], work));
}

int64_t cost_of_copy(int to_device, int from_device, size_t bytes) {
    double rate = HOST_BYTES_PER_S;
    if (to_device >= 0 && to_device == from_device) /* each byte is read and written */
        rate = settings.devices[to_device].memory_bytes_per_s * settings.devices[to_device].roofline.memory_part / 2;
    else if (to_device >= 0 && from_device >= 0 && settings.devices[from_device].peer_link_bytes_per_s > 0)
        rate = settings.devices[from_device].peer_link_bytes_per_s;
    else if (to_device >= 0 || from_device >= 0)
        rate = settings.devices[to_device >= 0 ? to_device : from_device].host_link_bytes_per_s;
    double moving_s = rate > 0 ? (double)bytes / rate : 0;
    return cost_in_ns(COPY_S + moving_s);
}
