/* The compute time of shared devices, asked from the sharing manager in chunks. */
#include "internal.h"

bool grant_needed(const emu_stream *stream, const item *work) {
    return settings.devices[stream->device].shared && work->engine == &devices[stream->device].compute;
}

void grant_ask(emu_stream *stream) {
    (void)stream;
}

void grant_flush(void) {
}

bool grant_answered(item *work) {
    return work->ended;
}
