/* Graphs: work that is recorded once and then given to a stream as a whole.
 *
 * A graph consists of lanes, one for each stream that took part in the capture; lane 0 is that of the stream on which it began. A
 * launch gives the work of lane 0 to the stream it names, and the other lanes to streams of the graph's own, so order and
 * overlap are as they would be without the graph.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LANES = 64, MAX_STEPS = 1 << 20 };

struct emu_graph {
    graph_step *steps;
    int count, room;
    int lanes, moments;
    size_t nodes;
    bool capturing;
};

static emu_pool graph_pool = {.object_bytes = sizeof(emu_graph)};
static emu_pool capture_pool = {.object_bytes = sizeof(capture)};
static uint64_t captures;
/* The streams of lanes 1 and up, by device: launches of graphs on one device share them. */
static kept_stream lane_streams[EMU_MAX_DEVICES][MAX_LANES];

/* ---- graphs ---- */

static emu_graph *new_graph(void) {
    emu_graph *graph = pool_take(&graph_pool);
    if (graph != NULL)
        graph->lanes = 1;
    return graph;
}

static bool add_step(emu_graph *graph, const graph_step *step) {
    if (graph->count == graph->room) {
        int room = graph->room ? 2 * graph->room : 64;
        graph_step *grown = realloc(graph->steps, sizeof(graph_step) * (size_t)room);
        if (grown == NULL)
            return false;
        graph->steps = grown;
        graph->room = room;
    }
    graph->steps[graph->count++] = *step;
    arguments_share(step->work.arguments);
    if (step->work.kind == ITEM_DEFERRED)
        plan_share(step->work.plan);
    return true;
}

static void clear(emu_graph *graph) {
    for (int i = 0; i < graph->count; i++) {
        arguments_release(graph->steps[i].work.arguments);
        if (graph->steps[i].work.kind == ITEM_DEFERRED)
            plan_release(graph->steps[i].work.plan);
    }
    free(graph->steps);
    pool_give(&graph_pool, graph);
}

emu_status emu_graph_create(emu_graph **graph) {
    if (graph == NULL)
        return EMU_INVALID_VALUE;
    pthread_mutex_lock(&core_lock);
    *graph = new_graph();
    pthread_mutex_unlock(&core_lock);
    return *graph == NULL ? EMU_OUT_OF_MEMORY : EMU_OK;
}

static emu_graph *copy_of(const emu_graph *graph) {
    emu_graph *copy = new_graph();
    if (copy == NULL)
        return NULL;
    copy->lanes = graph->lanes;
    copy->moments = graph->moments;
    copy->nodes = graph->nodes;
    for (int i = 0; i < graph->count; i++) {
        if (!add_step(copy, &graph->steps[i])) {
            clear(copy);
            return NULL;
        }
    }
    return copy;
}

emu_status emu_graph_clone(const emu_graph *graph, emu_graph **copy) {
    if (copy == NULL)
        return EMU_INVALID_VALUE;
    pthread_mutex_lock(&core_lock);
    emu_status status = EMU_INVALID_VALUE;
    if (pool_has(&graph_pool, graph) && !graph->capturing) {
        *copy = copy_of(graph);
        status = *copy == NULL ? EMU_OUT_OF_MEMORY : EMU_OK;
    }
    pthread_mutex_unlock(&core_lock);
    return status;
}

emu_status emu_graph_destroy(emu_graph *graph) {
    pthread_mutex_lock(&core_lock);
    bool ours = pool_has(&graph_pool, graph) && !graph->capturing;
    if (ours)
        clear(graph);
    pthread_mutex_unlock(&core_lock);
    return ours ? EMU_OK : EMU_INVALID_VALUE;
}

bool emu_graph_valid(const emu_graph *graph) {
    return pool_has(&graph_pool, graph);
}

size_t emu_graph_nodes(const emu_graph *graph) {
    return emu_graph_valid(graph) ? graph->nodes : 0;
}

static emu_step_kind kind_of(const item *work) {
    switch (work->kind) {
    case ITEM_COPY:
        return work->copy.from == NULL ? EMU_STEP_SET : EMU_STEP_COPY;
    case ITEM_HOST:
        return EMU_STEP_HOST;
    case ITEM_MARK:
        return EMU_STEP_RECORD;
    case ITEM_WAIT:
        return EMU_STEP_WAIT;
    default:
        return EMU_STEP_KERNEL;
    }
}

size_t emu_graph_steps(const emu_graph *graph, size_t first, emu_graph_step *steps, size_t room) {
    size_t copied = 0;
    pthread_mutex_lock(&core_lock);
    if (pool_has(&graph_pool, graph)) {
        for (size_t i = first; i < (size_t)graph->count && copied < room; i++) {
            const graph_step *step = &graph->steps[i];
            steps[copied++] = (emu_graph_step){.kind = kind_of(&step->work), .lane = step->lane, .moment = step->moment};
        }
    }
    pthread_mutex_unlock(&core_lock);
    return copied;
}

/* ---- launches ---- */

static emu_stream *stream_of_lane(emu_stream *launched_on, int lane) {
    if (lane == 0)
        return launched_on;
    return stream_of_kept(&lane_streams[launched_on->device][lane], launched_on->device, EMU_STREAM_NON_BLOCKING);
}

static emu_status run_step(const graph_step *step, emu_stream *stream, moment **moments) {
    item work = step->work;
    work.dispatch_ns = 0; /* the device launches a graph's work by itself */
    work.by_host = false;
    if (step->moment >= 0) {
        if (work.kind == ITEM_MARK && moments[step->moment] == NULL)
            moments[step->moment] = moment_new();
        work.moment = moments[step->moment];
        if (work.moment == NULL)
            return EMU_OUT_OF_MEMORY;
        work.moment->references++;
    }
    return stream_issue(stream, &work);
}

/* A graph that is launched while its stream is captured becomes part of the new one; its moments and lanes get numbers there. */
static emu_status capture_graph(const emu_graph *graph, emu_stream *stream) {
    emu_graph *target = stream->capture->graph;
    if (graph == target || graph->count > MAX_STEPS - target->count || graph->lanes > MAX_LANES - target->lanes + 1) {
        stream->capture->broken = true;
        return graph == target ? EMU_INVALID_VALUE : EMU_OUT_OF_MEMORY;
    }
    int first_moment = target->moments, first_lane = target->lanes - 1;
    target->moments += graph->moments;
    target->lanes += graph->lanes - 1;
    target->nodes += graph->nodes;
    for (int i = 0; i < graph->count; i++) {
        graph_step step = graph->steps[i];
        step.lane = step.lane == 0 ? stream->lane : first_lane + step.lane;
        step.moment += step.moment >= 0 ? first_moment : 0;
        if (!add_step(target, &step)) {
            stream->capture->broken = true;
            return EMU_OUT_OF_MEMORY;
        }
    }
    return EMU_OK;
}

emu_status emu_graph_launch(const emu_graph *graph, emu_stream *stream) {
    pthread_mutex_lock(&core_lock);
    emu_status status = EMU_OK;
    if (!pool_has(&graph_pool, graph) || !stream_live(stream))
        status = EMU_INVALID_HANDLE;
    if (status == EMU_OK && stream->capture != NULL) {
        status = capture_graph(graph, stream);
        pthread_mutex_unlock(&core_lock);
        return status;
    }
    moment **moments = status == EMU_OK ? calloc((size_t)graph->moments + 1, sizeof *moments) : NULL;
    if (status == EMU_OK && moments == NULL)
        status = EMU_OUT_OF_MEMORY;
    for (int i = 0; status == EMU_OK && i < graph->count; i++) {
        emu_stream *own = stream_of_lane(stream, graph->steps[i].lane);
        status = own == NULL ? EMU_OUT_OF_MEMORY : run_step(&graph->steps[i], own, moments);
    }
    for (int i = 0; moments != NULL && i < graph->moments; i++)
        moment_release(moments[i]);
    free(moments);
    pthread_mutex_unlock(&core_lock);
    return status;
}

/* ---- capture ---- */

emu_status emu_capture_begin(emu_stream *stream, emu_graph *graph) {
    pthread_mutex_lock(&core_lock);
    emu_status status = EMU_OK;
    if (!stream_live(stream) || (graph != NULL && !pool_has(&graph_pool, graph)))
        status = EMU_INVALID_VALUE;
    else if (stream->is_default)
        status = EMU_CAPTURE_UNSUPPORTED;
    else if (stream->capture != NULL || (graph != NULL && graph->capturing))
        status = EMU_INVALID_VALUE;
    if (status == EMU_OK) {
        capture *begun = pool_take(&capture_pool);
        emu_graph *target = graph != NULL ? graph : new_graph();
        if (begun == NULL || target == NULL) {
            status = EMU_OUT_OF_MEMORY;
        } else {
            *begun = (capture){.graph = target, .origin = stream, .id = ++captures, .made_graph = graph == NULL};
            target->capturing = true;
            stream->capture = begun;
            stream->lane = 0;
        }
    }
    pthread_mutex_unlock(&core_lock);
    return status;
}

/* Whether all work of the capture comes before its end, which is that of lane 0: through waits for records behind it. From the last
 * step to the first, since a wait comes after the record that it waits for. */
static bool joined(const capture *current, int *recorded_at) {
    const emu_graph *graph = current->graph;
    int joined_until[MAX_LANES] = {graph->count}; /* the steps of a lane before this one come before the end */
    for (int i = 0; i < graph->count; i++) {
        if (graph->steps[i].work.kind == ITEM_MARK && graph->steps[i].moment >= 0)
            recorded_at[graph->steps[i].moment] = i;
    }
    for (int i = graph->count; i-- > 0;) {
        const graph_step *step = &graph->steps[i];
        bool before_end = i < joined_until[step->lane];
        if (step->moment < 0 && !before_end)
            return false;
        if (step->moment < 0 || step->work.kind != ITEM_WAIT || !before_end)
            continue;
        int record = recorded_at[step->moment];
        int *until = &joined_until[graph->steps[record].lane];
        *until = *until > record ? *until : record;
    }
    return true;
}

/* EMU_OK: the capture can end with a graph. */
static emu_status check_ending(const capture *current) {
    if (current->broken)
        return EMU_CAPTURE_INVALIDATED;
    int *recorded_at = calloc((size_t)current->graph->moments + 1, sizeof *recorded_at);
    if (recorded_at == NULL)
        return EMU_OUT_OF_MEMORY;
    bool complete = joined(current, recorded_at);
    free(recorded_at);
    return complete ? EMU_OK : EMU_CAPTURE_UNJOINED;
}

/* `keep`: the graph is wanted. */
static void end(capture *current, bool keep) {
    current->graph->capturing = false;
    if (!keep && current->made_graph)
        clear(current->graph);
    for (emu_stream *other = pool_next(&stream_pool, NULL); other != NULL; other = pool_next(&stream_pool, other)) {
        if (other->capture == current)
            other->capture = NULL;
    }
    pool_give(&capture_pool, current);
}

emu_status emu_capture_end(emu_stream *stream, emu_graph **graph) {
    pthread_mutex_lock(&core_lock);
    emu_status status = EMU_OK;
    capture *current = stream_live(stream) ? stream->capture : NULL;
    if (current == NULL)
        status = EMU_INVALID_VALUE;
    else if (current->origin != stream)
        status = EMU_CAPTURE_UNMATCHED;
    if (status == EMU_OK) {
        emu_graph *captured = current->graph;
        status = check_ending(current);
        end(current, status == EMU_OK);
        if (graph != NULL)
            *graph = status == EMU_OK ? captured : NULL;
    }
    pthread_mutex_unlock(&core_lock);
    return status;
}

void capture_lose(emu_stream *stream) {
    capture *lost = stream->capture;
    stream->capture = NULL;
    if (stream != lost->origin) {
        lost->broken = true; /* the stream on which it began learns it when it ends the capture */
        return;
    }
    end(lost, false); /* nobody else can end it */
}

void emu_capture_break(emu_stream *stream) {
    pthread_mutex_lock(&core_lock);
    if (stream_live(stream) && stream->capture != NULL)
        stream->capture->broken = true;
    pthread_mutex_unlock(&core_lock);
}

emu_capture_state emu_capture_of(const emu_stream *stream, uint64_t *id, emu_graph **graph) {
    pthread_mutex_lock(&core_lock);
    const capture *current = stream_live(stream) ? stream->capture : NULL;
    emu_capture_state state = EMU_CAPTURE_NONE;
    if (current != NULL) {
        state = current->broken ? EMU_CAPTURE_BROKEN : EMU_CAPTURE_ACTIVE;
        if (id != NULL)
            *id = current->id;
        if (graph != NULL)
            *graph = current->graph;
    }
    pthread_mutex_unlock(&core_lock);
    return state;
}

int emu_capture_lane(const emu_stream *stream) {
    pthread_mutex_lock(&core_lock);
    int lane = stream_live(stream) && stream->capture != NULL ? stream->lane : -1;
    pthread_mutex_unlock(&core_lock);
    return lane;
}

static emu_status add(emu_stream *stream, const graph_step *step) {
    if (add_step(stream->capture->graph, step))
        return EMU_OK;
    stream->capture->broken = true;
    return EMU_OUT_OF_MEMORY;
}

emu_status capture_work(emu_stream *stream, const item *work) {
    graph_step step = {.lane = stream->lane, .moment = -1, .work = *work};
    stream->capture->graph->nodes++;
    return add(stream, &step);
}

emu_status capture_record(emu_stream *stream, emu_event *event) {
    capture *current = stream->capture;
    event->capture = current;
    event->capture_id = current->id;
    event->capture_moment = current->graph->moments++;
    graph_step step = {.lane = stream->lane, .moment = event->capture_moment, .work = {.kind = ITEM_MARK}};
    return add(stream, &step);
}

bool capture_contains(const emu_event *event) {
    return pool_has(&capture_pool, event->capture) && event->capture->id == event->capture_id;
}

emu_status capture_wait(emu_stream *stream, emu_event *event) {
    capture *current = event->capture;
    if (stream->capture != NULL && stream->capture != current) {
        stream->capture->broken = current->broken = true;
        return EMU_CAPTURE_ISOLATION;
    }
    if (stream->capture == NULL) {
        if (current->graph->lanes == MAX_LANES)
            return EMU_CAPTURE_UNSUPPORTED;
        stream->capture = current;
        stream->lane = current->graph->lanes++;
    }
    graph_step step = {.lane = stream->lane, .moment = event->capture_moment, .work = {.kind = ITEM_WAIT}};
    return add(stream, &step);
}
