#include "step.h"

/* A step by estimates may be so much shorter or longer than the measured one. The roofline's largest error for a published step is a
 * factor of 2.1; a forward pass alone takes a third of a step. */
static const double SHORTEST = 0.4, LONGEST = 2.5;
static const double LEAST_FACTOR = 0.02, LARGEST_FACTOR = 50;

/* lengths[p]: how many of the last works, read backwards, equal those that are p works earlier (the Z function of the reversed
 * sequence: Gusfield, Algorithms on Strings, Trees, and Sequences, 1.4). Takes time proportional to `count`. */
static void compare_with_earlier(const emu_step_work *works, size_t count, size_t *lengths) {
    const emu_step_work *last = works + count - 1;
    size_t left = 0, right = 0; /* the match that reaches farthest back */
    for (size_t p = 1; p < count; p++) {
        size_t length = 0;
        if (p < right) {
            length = lengths[p - left];
            if (length > right - p)
                length = right - p;
        }
        while (p + length < count && last[-(ptrdiff_t)length].key == last[-(ptrdiff_t)(p + length)].key)
            length++;
        lengths[p] = length;
        if (p + length > right) {
            left = p;
            right = p + length;
        }
    }
}

/* Whether what repeats with the period `p` repeats with a shorter one, too: layers, not steps. */
static bool repeats_within(const size_t *lengths, size_t p) {
    for (size_t part = 1; part <= p / 2; part++) {
        if (p % part == 0 && lengths[part] >= 2 * p - part)
            return true;
    }
    return false;
}

size_t emu_step_find(const emu_step_work *works, size_t count, int64_t step_ns, size_t *lengths) {
    if (count < 2)
        return 0;
    compare_with_earlier(works, count, lengths);
    for (size_t p = 1; 2 * p <= count; p++) {
        if (lengths[p] < p || repeats_within(lengths, p))
            continue;
        double estimate_ns = emu_step_ns(works + count - p, p, 1);
        if (estimate_ns >= SHORTEST * (double)step_ns && estimate_ns <= LONGEST * (double)step_ns)
            return p;
    }
    return 0;
}

double emu_step_ns(const emu_step_work *works, size_t count, double factor) {
    double launched_ns = 0, end_ns = 0, first_end_ns = 0; /* the host's and the device's time */
    for (int round = 0; round < 2; round++) { /* the first one fills the pipeline */
        first_end_ns = end_ns;
        for (size_t i = 0; i < count; i++) {
            if (works[i].waited && launched_ns < end_ns)
                launched_ns = end_ns;
            double start_ns = launched_ns > end_ns ? launched_ns : end_ns;
            end_ns = start_ns + (double)works[i].duration_ns * (works[i].measured ? 1 : factor);
            launched_ns += (double)works[i].dispatch_ns * factor;
        }
    }
    return end_ns - first_end_ns;
}

double emu_step_factor(const emu_step_work *works, size_t count, int64_t step_ns) {
    double low = LEAST_FACTOR, high = LARGEST_FACTOR;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (emu_step_ns(works, count, middle) < (double)step_ns)
            low = middle;
        else
            high = middle;
    }
    return high;
}
