/* Anchored estimates: one factor on all estimates of a device, so that the program's training step takes a time that was measured.
 *
 * What the program gives to a device is remembered until two steps in a row are alike; then the factor is known, and it stays. The
 * steps before that take the time of the estimates.
 */
#include "internal.h"
#include "step.h"

#include <stdlib.h>
#include <string.h>

enum { REMEMBERED = 1 << 15, MOST_BETWEEN = 4096 };

/* A device of the process. */
typedef struct {
    emu_step_work *works; /* room for twice REMEMBERED, so that the last ones are side by side */
    size_t count;
    int64_t unexamined_ns; /* device time since the last look for a step */
    size_t unexamined;
    bool waited;
    bool settled;          /* the factor is known, or can't be */
    double factor;
} anchoring;

static anchoring anchors[EMU_MAX_DEVICES];

static uint64_t mixed(uint64_t hash, uint64_t value) {
    return (hash ^ value) * 0x9e3779b97f4a7c15u ^ hash >> 29;
}

/* Names are stored once for each kernel, so that their addresses tell them apart. */
static uint64_t key_of(const item *work) {
    uint64_t key = mixed((uint64_t)(uintptr_t)work->name, (uint64_t)work->duration_ns);
    for (int i = 0; i < 3; i++)
        key = mixed(key, (uint64_t)work->work.grid[i] << 32 | work->work.block[i]);
    return key;
}

static bool remember(anchoring *own, const item *work) {
    if (own->works == NULL)
        own->works = malloc(2 * REMEMBERED * sizeof *own->works);
    if (own->works == NULL)
        return false;
    if (own->count == 2 * REMEMBERED) {
        memcpy(own->works, own->works + REMEMBERED, REMEMBERED * sizeof *own->works);
        own->count = REMEMBERED;
    }
    own->works[own->count++] = (emu_step_work){.key = key_of(work), .duration_ns = work->duration_ns, .dispatch_ns = work->dispatch_ns,
                                               .measured = work->measured, .waited = own->waited};
    own->waited = false;
    own->unexamined++;
    own->unexamined_ns += work->duration_ns > work->dispatch_ns ? work->duration_ns : work->dispatch_ns;
    return true;
}

static void settle(anchoring *own) {
    own->settled = true;
    free(own->works);
    own->works = NULL;
}

static void look_for_a_step(int device, anchoring *own) {
    size_t count = own->count < REMEMBERED ? own->count : REMEMBERED;
    const emu_step_work *first = own->works + own->count - count;
    size_t *lengths = malloc(count * sizeof *lengths);
    own->unexamined = 0;
    own->unexamined_ns = 0;
    if (lengths == NULL)
        return;
    size_t step = emu_step_find(first, count, settings.step_ns, lengths);
    free(lengths);
    if (step == 0)
        return;
    const emu_step_work *works = first + count - step;
    double estimate_ns = emu_step_ns(works, step, 1);
    own->factor = emu_step_factor(works, step, settings.step_ns);
    emu_log(1, "a step on device %d is %zu pieces of work, %.3f ms by estimates; it takes %.3f ms from now on (--anchor %.4f)", device,
            step, estimate_ns / 1e6, emu_step_ns(works, step, own->factor) / 1e6, own->factor);
    settle(own);
}

void anchor_work(int device, item *work) {
    anchoring *own = &anchors[device];
    if (own->factor == 0) {
        own->factor = settings.anchor;
        own->settled = settings.step_ns == 0;
    }
    if (own->settled && own->factor == 1)
        return;
    if (!own->settled && !remember(own, work))
        settle(own);
    if (!work->measured)
        work->duration_ns = cost_in_ns((double)work->duration_ns * own->factor / 1e9);
    work->dispatch_ns = cost_in_ns((double)work->dispatch_ns * own->factor / 1e9);
    if (!own->settled && (own->unexamined_ns > settings.step_ns / 4 || own->unexamined == MOST_BETWEEN))
        look_for_a_step(device, own);
}

void anchor_waited(int device) {
    anchors[device].waited = true;
}

void anchor_report(void) {
    for (int i = 0; i < settings.device_count && settings.step_ns > 0; i++) {
        if (anchors[i].works != NULL)
            emu_log(1, "no step was found on device %d whose time is near %.3f ms: its estimates aren't anchored", i,
                    (double)settings.step_ns / 1e6);
    }
}
