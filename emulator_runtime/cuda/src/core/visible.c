/* Which of the machine's devices a program has, and in which order: the variable CUDA_VISIBLE_DEVICES (CUDA C programming guide,
 * "CUDA Environment Variables").
 *
 * The list ends before its first invalid entry, and a device that is named twice leaves none. Where the guide says nothing, this is
 * what PyTorch's torch/cuda/__init__.py says of the driver: the first entry decides whether the list has numbers or UUIDs, a number
 * may be followed by other text, and the beginning of a UUID must fit one device only.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { KIND = 4 }; /* the length of "GPU-" and "MIG-" */

static const char *after_blanks(const char *text) {
    return text + strspn(text, " ");
}

static bool is_uuid(const char *entry) {
    return strncmp(entry, "GPU-", KIND) == 0 || strncmp(entry, "MIG-", KIND) == 0;
}

/* The device whose UUID begins so; -1: none, or several. */
static int with_uuid(const char *begin, size_t length, const emu_device_info *machine, int count) {
    int found = -1;
    for (int i = 0; i < count; i++) {
        if (strncmp(machine[i].uuid, begin, length) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = i;
    }
    return found;
}

static int with_number(const char *entry, int count) {
    char *rest;
    long number = strtol(entry, &rest, 10);
    return rest != entry && number >= 0 && number < count ? (int)number : -1;
}

int visible_devices(const char *list, const emu_device_info *machine, int count, int *chosen) {
    int places = 0;
    bool used[EMU_MAX_DEVICES] = {false};
    const char *first = after_blanks(list);
    for (const char *entry = first, *comma; entry != NULL; entry = comma == NULL ? NULL : after_blanks(comma + 1)) {
        comma = strchr(entry, ',');
        if (is_uuid(first) && strncmp(entry, first, KIND) != 0)
            break;
        int device = is_uuid(first) ? with_uuid(entry, strcspn(entry, ", "), machine, count) : with_number(entry, count);
        if (device < 0)
            break;
        if (used[device])
            return 0;
        used[device] = true;
        chosen[places++] = device;
    }
    return places;
}
