/* The runtime's streams, events, captures and graphs. */
#include "runtime.h"

#include <string.h>

enum { EDGE_DATA_BYTES = 8 };

/* ---- streams ---- */

EMU_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    TRY(emu_use_context());
    return finish(emu_stream_new(flags, priority, stream));
}

EMU_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

EMU_EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithPriority(stream, 0, 0);
}

EMU_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    TRY(emu_use_context());
    return finish(emu_stream_delete(stream));
}

/* The stream that the handle means. */
static int find_stream(cudaStream_t handle, emu_stream **stream) {
    int status = emu_use_context();
    if (status != EMU_OK) {
        return status;
    }
    *stream = emu_stream_of(handle);
    return *stream != NULL ? EMU_OK : EMU_INVALID_HANDLE;
}

EMU_EXPORT cudaError_t cudaStreamQuery(cudaStream_t handle) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    return finish(emu_stream_query(stream));
}

EMU_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    return finish(emu_stream_synchronize(stream));
}

EMU_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    if (flags > 1) {
        return finish(EMU_INVALID_VALUE);
    }
    return finish(emu_stream_wait(stream, event));
}

EMU_EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    if (priority == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    *priority = emu_stream_priority(stream);
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    if (flags == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    *flags = emu_stream_flags(stream);
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long *id) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    if (id == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    *id = emu_stream_id(stream);
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    if (device == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    *device = emu_stream_device(stream);
    return EMU_OK;
}

EMU_EXPORT cudaError_t cudaStreamAddCallback(
    cudaStream_t stream, void (*callback)(cudaStream_t stream, cudaError_t result, void *data), void *data, unsigned flags) {
    TRY(emu_use_context());
    return finish(emu_stream_callback(stream, callback, data, flags));
}

EMU_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t handle, void (*function)(void *), void *data) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    return finish(emu_launch_host(stream, function, data));
}

/* ---- events ---- */

EMU_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    const unsigned known = 0x7; /* wait by sleeping, no timing, for other processes */
    const unsigned other_processes = 0x4, no_timing = 0x2;
    TRY(emu_use_context());
    if (event == NULL || flags & ~known) {
        return finish(EMU_INVALID_VALUE);
    }
    if (flags & other_processes) {
        return finish(flags & no_timing ? EMU_NOT_SUPPORTED : EMU_INVALID_VALUE);
    }
    return finish(emu_event_create(emu_current_device(), flags, event));
}

EMU_EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, 0);
}

EMU_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
    TRY(emu_use_context());
    return finish(emu_event_destroy(event));
}

EMU_EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned flags) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    if (flags > 1) {
        return finish(EMU_INVALID_VALUE);
    }
    return finish(emu_event_record(event, stream));
}

EMU_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, 0);
}

EMU_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
    TRY(emu_use_context());
    TRY(emu_capture_permits());
    return finish(emu_event_query(event));
}

EMU_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    TRY(emu_use_context());
    TRY(emu_capture_permits());
    return finish(emu_event_synchronize(event));
}

EMU_EXPORT cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    TRY(emu_use_context());
    if (milliseconds == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    return finish(emu_event_elapsed(start, end, milliseconds));
}

EMU_EXPORT cudaError_t cudaEventElapsedTime_v2(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    return cudaEventElapsedTime(milliseconds, start, end);
}

/* ---- capture ---- */

EMU_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode) {
    return finish(emu_capture_exchange_mode(mode));
}

EMU_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode) {
    TRY(emu_use_context());
    return finish(emu_capture_start(stream, NULL, mode));
}

/* Work that is captured follows what is in the graph already, whichever of its nodes are named. */
EMU_EXPORT cudaError_t cudaStreamBeginCaptureToGraph(
    cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *dependencies, const void *edges, size_t count, int mode) {
    (void)edges;
    TRY(emu_use_context());
    if (graph == NULL || (dependencies == NULL && count > 0)) {
        return finish(EMU_INVALID_VALUE);
    }
    return finish(emu_capture_start(stream, graph, mode));
}

EMU_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    TRY(emu_use_context());
    return finish(emu_capture_stop(stream, graph));
}

EMU_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t handle, int *state) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    if (state == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    *state = emu_capture_of(stream, NULL, NULL);
    return EMU_OK;
}

/* `edges`: all of them are plain ones, for which there is no data. */
static int capture_info(cudaStream_t handle, int *state, unsigned long long *id, cudaGraph_t *graph, cudaGraphNode_t **dependencies,
    const void **edges, size_t *count) {
    emu_stream *stream;
    emu_graph *captured = NULL;
    emu_node **nodes = NULL;
    uint64_t found = 0;
    size_t found_count = 0;
    TRY(find_stream(handle, &stream));
    if (state == NULL) {
        return finish(EMU_INVALID_VALUE);
    }
    int now = emu_capture_of(stream, &found, &captured);
    if (now == EMU_CAPTURE_ACTIVE && (dependencies != NULL || count != NULL)) {
        TRY(emu_capture_dependencies(stream, captured, &nodes, &found_count));
    }
    *state = now;
    if (now != EMU_CAPTURE_ACTIVE) {
        return EMU_OK;
    }
    if (id != NULL) {
        *id = found;
    }
    if (graph != NULL) {
        *graph = captured;
    }
    if (dependencies != NULL) {
        *dependencies = nodes;
    }
    if (edges != NULL) {
        *edges = NULL;
    }
    if (count != NULL) {
        *count = found_count;
    }
    return EMU_OK;
}

#if CUDA_MAJOR >= 13

EMU_EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, int *state, unsigned long long *id, cudaGraph_t *graph,
    cudaGraphNode_t **dependencies, const void **edges, size_t *count) {
    return capture_info(stream, state, id, graph, dependencies, edges, count);
}

EMU_EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *nodes, void *edges, size_t *count) {
    int status = emu_node_dependencies(node, nodes, count);
    if (status == EMU_OK && edges != NULL && nodes != NULL) {
        memset(edges, 0, *count * EDGE_DATA_BYTES);
    }
    return finish(status);
}

#else

EMU_EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, int *state, unsigned long long *id) {
    return capture_info(stream, state, id, NULL, NULL, NULL, NULL);
}

EMU_EXPORT cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, int *state, unsigned long long *id, cudaGraph_t *graph,
    cudaGraphNode_t **dependencies, size_t *count) {
    return capture_info(stream, state, id, graph, dependencies, NULL, count);
}

EMU_EXPORT cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, int *state, unsigned long long *id, cudaGraph_t *graph,
    cudaGraphNode_t **dependencies, const void **edges, size_t *count) {
    return capture_info(stream, state, id, graph, dependencies, edges, count);
}

EMU_EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *nodes, size_t *count) {
    return finish(emu_node_dependencies(node, nodes, count));
}

#endif

EMU_EXPORT cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, int *type) {
    return finish(emu_node_kind(node, type));
}

/* ---- graphs ---- */

EMU_EXPORT cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags) {
    return finish(flags == 0 ? emu_graph_new(graph) : EMU_INVALID_VALUE);
}

EMU_EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return finish(emu_graph_delete(graph, false));
}

EMU_EXPORT cudaError_t cudaGraphClone(cudaGraph_t *copy, cudaGraph_t graph) {
    return finish(emu_graph_copy(graph, copy));
}

EMU_EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    return finish(emu_graph_count(graph, nodes, count));
}

EMU_EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags) {
    TRY(emu_use_context());
    return finish(emu_graph_instantiate(graph, flags, executable));
}

EMU_EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(executable, graph, flags);
}

EMU_EXPORT cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t executable, unsigned long long *flags) {
    return finish(emu_graph_flags(executable, flags));
}

EMU_EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    TRY(emu_use_context());
    return finish(emu_graph_run(executable, stream));
}

/* A graph is where it has to be; there is nothing to upload. */
EMU_EXPORT cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t handle) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    return finish(emu_handle_is(executable, HANDLE_GRAPH_EXEC) ? EMU_OK : EMU_INVALID_VALUE);
}

EMU_EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    return finish(emu_graph_delete(executable, true));
}

EMU_EXPORT cudaError_t cudaUserObjectCreate(
    cudaUserObject_t *object, void *data, void (*destroy)(void *), unsigned count, unsigned flags) {
    return finish(emu_user_object_new(object, data, destroy, count, flags));
}

EMU_EXPORT cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned count) {
    return finish(emu_user_object_retain(object, count));
}

EMU_EXPORT cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
    return finish(emu_user_object_release(object, count));
}

EMU_EXPORT cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
    return finish(emu_graph_retain_object(graph, object, count, flags));
}

EMU_EXPORT cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count) {
    return finish(emu_graph_release_object(graph, object, count));
}
