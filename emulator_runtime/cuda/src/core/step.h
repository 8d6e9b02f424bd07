/* Which part of a program's work is a training step, how long it takes by estimates, and the factor that makes it take another time.
 *
 * Pure functions; anchor.c uses them, tests call them. */
#ifndef EMUGPU_STEP_H
#define EMUGPU_STEP_H

#include "core.h"

/* A piece of work as the program gave it to a device. */
typedef struct {
    uint64_t key;        /* equal for equal work */
    int64_t duration_ns; /* of the device */
    int64_t dispatch_ns; /* of the measured machine's host, for the launch */
    bool measured;       /* the factor doesn't apply to the duration */
    bool waited;         /* the program waited for the device before */
} emu_step_work;

/* How many of the last works are a step: the smallest number that the last twice as many repeat, and whose time by estimates is not
 * too far from `step_ns`: a layer, an epoch, or a step without a backward pass is none. 0: there is no such number. `lengths`
 * has room for `count` numbers. */
EMU_EXPORT size_t emu_step_find(const emu_step_work *works, size_t count, int64_t step_ns, size_t *lengths);
/* How long these works take if they are done again and again, estimates multiplied by `factor`. */
EMU_EXPORT double emu_step_ns(const emu_step_work *works, size_t count, double factor);
/* The factor with which they take `step_ns`, within the limits that such a factor has. */
EMU_EXPORT double emu_step_factor(const emu_step_work *works, size_t count, int64_t step_ns);

#endif
