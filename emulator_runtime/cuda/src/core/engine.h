/* A part of a device that does one thing at a time: its compute units, or a copy engine.
 *
 * Work that was issued earlier goes first. What is issued later fills the gaps that are left, also in pieces, so the engine never
 * rests while there is work that could be done. Example: work of 5 ms ready at 10, then work of 8 ms ready at 6: the second is
 * done from 6 to 10 and from 15 to 19.
 */
#ifndef EMUGPU_ENGINE_H
#define EMUGPU_ENGINE_H

#include <stdint.h>

enum { ENGINE_INTERVALS = 256 };

/* The times in which the engine is taken, in order, apart from each other. Older ones than these are forgotten. */
typedef struct {
    struct {
        int64_t start_ns, end_ns;
    } taken[ENGINE_INTERVALS];
    int count;
} emu_engine;

/* Take `duration_ns` of the engine, not before `ready_ns`; answers the end, and in `start_ns` the beginning. */
int64_t engine_take(emu_engine *engine, int64_t ready_ns, int64_t duration_ns, int64_t *start_ns);

#endif
