/* The schedule of a device's compute units or of a copy engine. */
#include "engine.h"

#include <string.h>

/* The first interval that ends after `ready_ns`; usually it is the last one, or there is none. */
static int first_after(const emu_engine *engine, int64_t ready_ns) {
    int i = engine->count;
    while (i > 0 && engine->taken[i - 1].end_ns > ready_ns)
        i--;
    return i;
}

/* Forget the older half. Answers how many that was. */
static int forget(emu_engine *engine) {
    int gone = engine->count / 2;
    engine->count -= gone;
    memmove(&engine->taken[0], &engine->taken[gone], sizeof engine->taken[0] * (size_t)engine->count);
    return gone;
}

/* Put one interval in the place of those from `first` up to `last`, which is not included. */
static void replace(emu_engine *engine, int first, int last, int64_t start_ns, int64_t end_ns) {
    if (first == last && engine->count == ENGINE_INTERVALS) {
        int gone = forget(engine);
        first = first > gone ? first - gone : 0;
        last = first;
    }
    int tail = engine->count - last;
    if (tail > 0)
        memmove(&engine->taken[first + 1], &engine->taken[last], sizeof engine->taken[0] * (size_t)tail);
    engine->taken[first].start_ns = start_ns;
    engine->taken[first].end_ns = end_ns;
    engine->count = first + 1 + tail;
}

int64_t engine_take(emu_engine *engine, int64_t ready_ns, int64_t duration_ns, int64_t *start_ns) {
    int first = first_after(engine, ready_ns);
    int64_t at = ready_ns;
    int64_t left = duration_ns;
    *start_ns = -1;
    int i = first;
    for (; i < engine->count; i++) {
        int64_t gap = engine->taken[i].start_ns - at;
        if (gap > 0) {
            if (*start_ns < 0)
                *start_ns = at;
            if (gap >= left)
                break;
            left -= gap;
        }
        at = engine->taken[i].end_ns;
    }
    if (*start_ns < 0)
        *start_ns = at;
    int64_t end_ns = at + left;
    if (duration_ns == 0)
        return end_ns;
    /* From the first gap that was used up to the end, all is taken now; with what touches it, that is one interval. */
    int64_t from_ns = *start_ns;
    while (first < i && engine->taken[first].end_ns < from_ns)
        first++;
    if (first < i && engine->taken[first].start_ns < from_ns)
        from_ns = engine->taken[first].start_ns;
    if (first > 0 && engine->taken[first - 1].end_ns == from_ns) {
        first--;
        from_ns = engine->taken[first].start_ns;
    }
    int64_t until_ns = end_ns;
    if (i < engine->count && engine->taken[i].start_ns == end_ns)
        until_ns = engine->taken[i++].end_ns;
    replace(engine, first, i, from_ns, until_ns);
    return end_ns;
}
