/* Streams with the checks that programs rely on, and callbacks. */
#include "cuda_state.h"

#include <stdlib.h>

int emu_stream_new(unsigned flags, int priority, void **stream) {
    emu_stream *made = NULL;
    if (stream == NULL || flags & ~(unsigned)EMU_STREAM_NON_BLOCKING) {
        return EMU_INVALID_VALUE;
    }
    if (priority > STREAM_PRIORITY_LEAST) { /* a priority outside the range becomes the nearest one */
        priority = STREAM_PRIORITY_LEAST;
    }
    if (priority < STREAM_PRIORITY_GREATEST) {
        priority = STREAM_PRIORITY_GREATEST;
    }
    int status = emu_stream_create(emu_current_device(), flags, priority, &made);
    if (status == EMU_OK) {
        *stream = made;
    }
    return status;
}

int emu_stream_delete(void *stream) {
    emu_stream *target = emu_stream_of(stream);
    if (target == NULL || target != stream) { /* the default streams can't be destroyed */
        return EMU_INVALID_HANDLE;
    }
    emu_graph *captured = NULL;
    emu_capture_of(target, NULL, &captured);
    emu_capture_forget(target);
    int status = emu_stream_destroy(target);
    if (captured != NULL && !emu_graph_valid(captured)) {
        emu_graph_forget(captured);
    }
    return status;
}

typedef struct {
    void (*function)(void *stream, int result, void *data);
    void *stream;
    void *data;
} stream_callback;

static void run_callback(void *argument) {
    stream_callback call = *(stream_callback *)argument;
    free(argument);
    call.function(call.stream, EMU_OK, call.data);
}

int emu_stream_callback(void *stream, void (*callback)(void *stream, int result, void *data), void *data, unsigned flags) {
    emu_stream *target = emu_stream_of(stream);
    if (callback == NULL || flags != 0) {
        return EMU_INVALID_VALUE;
    }
    if (target == NULL) {
        return EMU_INVALID_HANDLE;
    }
    if (emu_capture_of(target, NULL, NULL) != EMU_CAPTURE_NONE) { /* unlike a host function it can't be part of a graph */
        return EMU_CAPTURE_UNSUPPORTED;
    }
    stream_callback *call = malloc(sizeof *call);
    if (call == NULL) {
        return EMU_OUT_OF_MEMORY;
    }
    *call = (stream_callback){.function = callback, .stream = stream, .data = data};
    int status = emu_launch_host(target, run_callback, call);
    if (status != EMU_OK) {
        free(call);
    }
    return status;
}
