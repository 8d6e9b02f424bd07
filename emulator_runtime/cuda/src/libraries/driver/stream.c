/* The driver's streams, events, captures and graphs. */
#include "driver.h"

/* ---- streams ---- */

EMU_EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    TRY(in_context());
    return emu_stream_new(flags, priority, stream);
}

EMU_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    return cuStreamCreateWithPriority(stream, flags, 0);
}

EMU_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
    TRY(in_context());
    return emu_stream_delete(stream);
}

/* The stream that the handle means, in a context. */
static int find_stream(CUstream handle, emu_stream **stream) {
    TRY(in_context());
    *stream = emu_stream_of(handle);
    return *stream != NULL ? EMU_OK : EMU_INVALID_HANDLE;
}

EMU_EXPORT CUresult cuStreamQuery(CUstream handle) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    return emu_stream_query(stream);
}

EMU_EXPORT CUresult cuStreamSynchronize(CUstream handle) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    return emu_stream_synchronize(stream);
}

EMU_EXPORT CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    if (flags > 1) {
        return EMU_INVALID_VALUE;
    }
    return emu_stream_wait(stream, event);
}

EMU_EXPORT CUresult cuStreamGetPriority(CUstream handle, int *priority) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    if (priority == NULL) {
        return EMU_INVALID_VALUE;
    }
    *priority = emu_stream_priority(stream);
    return EMU_OK;
}

EMU_EXPORT CUresult cuStreamGetFlags(CUstream handle, unsigned *flags) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    if (flags == NULL) {
        return EMU_INVALID_VALUE;
    }
    *flags = emu_stream_flags(stream);
    return EMU_OK;
}

EMU_EXPORT CUresult cuStreamGetId(CUstream handle, unsigned long long *id) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    if (id == NULL) {
        return EMU_INVALID_VALUE;
    }
    *id = emu_stream_id(stream);
    return EMU_OK;
}

EMU_EXPORT CUresult cuStreamGetDevice(CUstream handle, CUdevice *device) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    if (device == NULL) {
        return EMU_INVALID_VALUE;
    }
    *device = emu_stream_device(stream);
    return EMU_OK;
}

EMU_EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    if (context == NULL) {
        return EMU_INVALID_VALUE;
    }
    *context = emu_context_primary(emu_stream_device(stream));
    return EMU_OK;
}

EMU_EXPORT CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *context, void **green_context) {
    TRY(cuStreamGetCtx(handle, context));
    if (green_context != NULL) {
        *green_context = NULL;
    }
    return EMU_OK;
}

EMU_EXPORT CUresult cuStreamAddCallback(
    CUstream stream, void (*callback)(CUstream stream, CUresult result, void *data), void *data, unsigned flags) {
    TRY(in_context());
    return emu_stream_callback(stream, callback, data, flags);
}

EMU_EXPORT CUresult cuLaunchHostFunc(CUstream handle, void (*function)(void *), void *data) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    return emu_launch_host(stream, function, data);
}

EMU_EXPORT CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags) {
    TRY(in_context());
    if (flags > 1) {
        return EMU_INVALID_VALUE;
    }
    return emu_memory_set(stream, pointer(address), value, sizeof value, 1, false);
}

EMU_EXPORT CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags) {
    return cuStreamWriteValue32_v2(stream, address, value, flags);
}

EMU_EXPORT CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags) {
    TRY(cuStreamWriteValue32_v2(stream, address, (uint32_t)value, flags));
    return cuStreamWriteValue32_v2(stream, address + sizeof(uint32_t), (uint32_t)(value >> 32), flags);
}

/* ---- events ---- */

EMU_EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
    const unsigned known = 0x7; /* wait by sleeping, no timing, for other processes */
    const unsigned other_processes = 0x4, no_timing = 0x2;
    TRY(in_context());
    if (event == NULL || flags & ~known) {
        return EMU_INVALID_VALUE;
    }
    if (flags & other_processes) {
        return flags & no_timing ? EMU_NOT_SUPPORTED : EMU_INVALID_VALUE;
    }
    return emu_event_create(emu_current_device(), flags, event);
}

EMU_EXPORT CUresult cuEventDestroy_v2(CUevent event) {
    TRY(in_context());
    return emu_event_destroy(event);
}

EMU_EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    if (flags > 1) {
        return EMU_INVALID_VALUE;
    }
    return emu_event_record(event, stream);
}

EMU_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
    return cuEventRecordWithFlags(event, stream, 0);
}

EMU_EXPORT CUresult cuEventQuery(CUevent event) {
    TRY(in_context());
    TRY(emu_capture_permits());
    return emu_event_query(event);
}

EMU_EXPORT CUresult cuEventSynchronize(CUevent event) {
    TRY(in_context());
    TRY(emu_capture_permits());
    return emu_event_synchronize(event);
}

EMU_EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    TRY(in_context());
    if (milliseconds == NULL) {
        return EMU_INVALID_VALUE;
    }
    return emu_event_elapsed(start, end, milliseconds);
}

EMU_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

/* ---- capture ---- */

EMU_EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    TRY(ready());
    return emu_capture_exchange_mode(mode);
}

EMU_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
    TRY(in_context());
    return emu_capture_start(stream, NULL, mode);
}

/* Work that is captured follows what is in the graph already, whichever of its nodes are named. */
EMU_EXPORT CUresult cuStreamBeginCaptureToGraph(
    CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const void *edges, size_t count, int mode) {
    (void)edges;
    TRY(in_context());
    if (graph == NULL || (dependencies == NULL && count > 0)) {
        return EMU_INVALID_VALUE;
    }
    return emu_capture_start(stream, graph, mode);
}

EMU_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    TRY(in_context());
    return emu_capture_stop(stream, graph);
}

EMU_EXPORT CUresult cuStreamIsCapturing(CUstream handle, int *state) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    if (state == NULL) {
        return EMU_INVALID_VALUE;
    }
    *state = emu_capture_of(stream, NULL, NULL);
    return EMU_OK;
}

/* `edges`: all of them are plain ones, for which there is no data. */
EMU_EXPORT CUresult cuStreamGetCaptureInfo_v3(
    CUstream handle, int *state, uint64_t *id, CUgraph *graph, CUgraphNode **dependencies, const void **edges, size_t *count) {
    emu_stream *stream;
    emu_graph *captured = NULL;
    emu_node **nodes = NULL;
    uint64_t found = 0;
    size_t found_count = 0;
    TRY(find_stream(handle, &stream));
    if (state == NULL) {
        return EMU_INVALID_VALUE;
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

EMU_EXPORT CUresult cuStreamGetCaptureInfo_v2(
    CUstream stream, int *state, uint64_t *id, CUgraph *graph, CUgraphNode **dependencies, size_t *count) {
    return cuStreamGetCaptureInfo_v3(stream, state, id, graph, dependencies, NULL, count);
}

EMU_EXPORT CUresult cuStreamGetCaptureInfo(CUstream stream, int *state, uint64_t *id) {
    return cuStreamGetCaptureInfo_v3(stream, state, id, NULL, NULL, NULL, NULL);
}

EMU_EXPORT CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count) {
    TRY(ready());
    return emu_node_dependencies(node, nodes, count);
}

EMU_EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, int *type) {
    TRY(ready());
    return emu_node_kind(node, type);
}

/* ---- graphs ---- */

EMU_EXPORT CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
    TRY(ready());
    return flags == 0 ? emu_graph_new(graph) : EMU_INVALID_VALUE;
}

EMU_EXPORT CUresult cuGraphDestroy(CUgraph graph) {
    TRY(ready());
    return emu_graph_delete(graph, false);
}

EMU_EXPORT CUresult cuGraphClone(CUgraph *copy, CUgraph graph) {
    TRY(ready());
    return emu_graph_copy(graph, copy);
}

EMU_EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    TRY(ready());
    return emu_graph_count(graph, nodes, count);
}

EMU_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags) {
    TRY(in_context());
    return emu_graph_instantiate(graph, flags, executable);
}

EMU_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *executable, CUgraph graph, CUgraphNode *wrong, char *text, size_t length) {
    if (wrong != NULL) {
        *wrong = NULL;
    }
    if (text != NULL && length > 0) {
        text[0] = 0;
    }
    return cuGraphInstantiateWithFlags(executable, graph, 0);
}

EMU_EXPORT CUresult cuGraphExecGetFlags(CUgraphExec executable, unsigned long long *flags) {
    TRY(ready());
    return emu_graph_flags(executable, flags);
}

EMU_EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    TRY(in_context());
    return emu_graph_run(executable, stream);
}

/* A graph is where it has to be; there is nothing to upload. */
EMU_EXPORT CUresult cuGraphUpload(CUgraphExec executable, CUstream handle) {
    emu_stream *stream;
    TRY(find_stream(handle, &stream));
    return emu_handle_is(executable, HANDLE_GRAPH_EXEC) ? EMU_OK : EMU_INVALID_VALUE;
}

EMU_EXPORT CUresult cuGraphExecDestroy(CUgraphExec executable) {
    TRY(ready());
    return emu_graph_delete(executable, true);
}

EMU_EXPORT CUresult cuUserObjectCreate(CUuserObject *object, void *data, void (*destroy)(void *), unsigned count, unsigned flags) {
    TRY(ready());
    return emu_user_object_new(object, data, destroy, count, flags);
}

EMU_EXPORT CUresult cuUserObjectRetain(CUuserObject object, unsigned count) {
    TRY(ready());
    return emu_user_object_retain(object, count);
}

EMU_EXPORT CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
    TRY(ready());
    return emu_user_object_release(object, count);
}

EMU_EXPORT CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags) {
    TRY(ready());
    return emu_graph_retain_object(graph, object, count, flags);
}

EMU_EXPORT CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count) {
    TRY(ready());
    return emu_graph_release_object(graph, object, count);
}
