/* The nodes of graphs and what they depend on, as far as a capture determines them.
 *
 * A node is the n-th piece of work of a graph. Its handle belongs to the graph and ends with it. Example: lane 0 has nodes 0 and 1,
 * then a record; lane 1 waits for it and has node 2. Node 1 depends on node 0, node 2 on node 1.
 */
#include "cuda_state.h"

#include "pointer_map.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct emu_node {
    emu_graph *graph;
    size_t index;
};

typedef struct {
    emu_node **nodes;
    size_t count;
} node_list;

/* A growing list of numbers of nodes. */
typedef struct {
    size_t *indices;
    size_t count;
} index_list;

enum { LANES = 64 };

/* Which nodes what comes next depends on, by lane and by moment. */
typedef struct {
    index_list lanes[LANES];
    index_list *moments;
    size_t moment_count;
    size_t nodes;
    bool failed; /* out of memory */
} progress;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pointer_map lists; /* from emu_graph * to node_list */

static bool add_index(index_list *list, size_t index) {
    for (size_t i = 0; i < list->count; i++) {
        if (list->indices[i] == index) {
            return true;
        }
    }
    size_t *longer = realloc(list->indices, (list->count + 1) * sizeof *longer);
    if (longer == NULL) {
        return false;
    }
    list->indices = longer;
    list->indices[list->count++] = index;
    return true;
}

static index_list *moment_of(progress *walk, int moment) {
    size_t wanted = (size_t)moment + 1;
    if (wanted > walk->moment_count) {
        index_list *longer = realloc(walk->moments, wanted * 2 * sizeof *longer);
        if (longer == NULL) {
            return NULL;
        }
        memset(longer + walk->moment_count, 0, (wanted * 2 - walk->moment_count) * sizeof *longer);
        walk->moments = longer;
        walk->moment_count = wanted * 2;
    }
    return &walk->moments[moment];
}

static bool add_all(index_list *target, const index_list *added) {
    for (size_t i = 0; i < added->count; i++) {
        if (!add_index(target, added->indices[i])) {
            return false;
        }
    }
    return true;
}

static bool follow(progress *walk, const emu_graph_step *step) {
    index_list *lane = &walk->lanes[step->lane % LANES];
    if (step->kind != EMU_STEP_RECORD && step->kind != EMU_STEP_WAIT) {
        lane->count = 0;
        return add_index(lane, walk->nodes++);
    }
    if (step->moment < 0) {
        return true;
    }
    index_list *moment = moment_of(walk, step->moment);
    if (moment == NULL) {
        return false;
    }
    if (step->kind == EMU_STEP_WAIT) {
        return add_all(lane, moment);
    }
    moment->count = 0;
    return add_all(moment, lane);
}

static void finish_walk(progress *walk) {
    for (int lane = 0; lane < LANES; lane++) {
        free(walk->lanes[lane].indices);
    }
    for (size_t i = 0; i < walk->moment_count; i++) {
        free(walk->moments[i].indices);
    }
    free(walk->moments);
}

/* Go through the graph, up to where node `until` would be added; answers that node's lane and kind in `step`, or false: there is no
 * such node, and the whole graph has been followed. */
static bool walk_until(progress *walk, const emu_graph *graph, size_t until, emu_graph_step *step) {
    emu_graph_step steps[256];
    size_t first = 0, count;
    while ((count = emu_graph_steps(graph, first, steps, sizeof steps / sizeof steps[0])) > 0) {
        for (size_t i = 0; i < count; i++) {
            bool is_node = steps[i].kind != EMU_STEP_RECORD && steps[i].kind != EMU_STEP_WAIT;
            if (is_node && walk->nodes == until) {
                *step = steps[i];
                return true;
            }
            if (!follow(walk, &steps[i])) {
                walk->failed = true;
                return false;
            }
        }
        first += count;
    }
    return false;
}

/* The handle of a node; made when it is asked for. The lock is held. NULL: out of memory. */
static emu_node *node_of(emu_graph *graph, size_t index) {
    node_list *list = pointer_map_get(&lists, graph);
    if (list == NULL) {
        list = calloc(1, sizeof *list);
        if (list == NULL || !pointer_map_set(&lists, graph, list)) {
            free(list);
            return NULL;
        }
    }
    if (index >= list->count) {
        emu_node **longer = realloc(list->nodes, (index + 1) * sizeof *longer);
        if (longer == NULL) {
            return NULL;
        }
        memset(longer + list->count, 0, (index + 1 - list->count) * sizeof *longer);
        list->nodes = longer;
        list->count = index + 1;
    }
    if (list->nodes[index] == NULL) {
        emu_node *node = malloc(sizeof *node);
        if (node == NULL || !emu_handle_add(node, HANDLE_NODE)) {
            free(node);
            return NULL;
        }
        *node = (emu_node){.graph = graph, .index = index};
        list->nodes[index] = node;
    }
    return list->nodes[index];
}

void emu_nodes_forget(emu_graph *graph) {
    pthread_mutex_lock(&lock);
    node_list *list = pointer_map_remove(&lists, graph);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; list != NULL && i < list->count; i++) {
        if (list->nodes[i] != NULL && emu_handle_remove(list->nodes[i], HANDLE_NODE)) {
            free(list->nodes[i]);
        }
    }
    if (list != NULL) {
        free(list->nodes);
    }
    free(list);
}

/* As the functions of CUDA that list nodes do: without `nodes` the number is answered; with them `*count` says how many there is
 * room for, and those beyond the last are NULL. */
static int answer(emu_graph *graph, const index_list *found, emu_node **nodes, size_t *count) {
    size_t room = *count;
    if (nodes == NULL) {
        *count = found->count;
        return EMU_OK;
    }
    pthread_mutex_lock(&lock);
    int status = EMU_OK;
    for (size_t i = 0; i < room && status == EMU_OK; i++) {
        nodes[i] = i < found->count ? node_of(graph, found->indices[i]) : NULL;
        status = i < found->count && nodes[i] == NULL ? EMU_OUT_OF_MEMORY : EMU_OK;
    }
    pthread_mutex_unlock(&lock);
    *count = room < found->count ? room : found->count;
    return status;
}

int emu_nodes_of_graph(emu_graph *graph, emu_node **nodes, size_t *count) {
    size_t all = emu_graph_nodes(graph);
    index_list found = {0};
    int status = EMU_OK;
    if (nodes == NULL) {
        *count = all;
        return EMU_OK;
    }
    found.indices = malloc((all + 1) * sizeof *found.indices);
    if (found.indices == NULL) {
        return EMU_OUT_OF_MEMORY;
    }
    for (found.count = 0; found.count < all; found.count++) {
        found.indices[found.count] = found.count;
    }
    status = answer(graph, &found, nodes, count);
    free(found.indices);
    return status;
}

static int node_graph(emu_node *node, emu_graph **graph, size_t *index) {
    if (!emu_handle_is(node, HANDLE_NODE)) {
        return EMU_INVALID_VALUE;
    }
    *graph = node->graph;
    *index = node->index;
    return EMU_OK;
}

int emu_node_dependencies(emu_node *node, emu_node **nodes, size_t *count) {
    emu_graph *graph = NULL;
    size_t index = 0;
    emu_graph_step step;
    progress walk = {0};
    if (count == NULL || node_graph(node, &graph, &index) != EMU_OK) {
        return EMU_INVALID_VALUE;
    }
    int status = EMU_INVALID_VALUE;
    if (walk_until(&walk, graph, index, &step)) {
        status = answer(graph, &walk.lanes[step.lane % LANES], nodes, count);
    }
    finish_walk(&walk);
    return status;
}

int emu_node_kind(emu_node *node, int *kind) {
    static const int kinds[] = {[EMU_STEP_KERNEL] = 0, [EMU_STEP_COPY] = 1, [EMU_STEP_SET] = 2, [EMU_STEP_HOST] = 3};
    emu_graph *graph = NULL;
    size_t index = 0;
    emu_graph_step step;
    progress walk = {0};
    if (kind == NULL || node_graph(node, &graph, &index) != EMU_OK) {
        return EMU_INVALID_VALUE;
    }
    bool found = walk_until(&walk, graph, index, &step);
    finish_walk(&walk);
    if (!found) {
        return EMU_INVALID_VALUE;
    }
    *kind = kinds[step.kind];
    return EMU_OK;
}

/* What emu_capture_dependencies answered last; it belongs to the thread. */
static _Thread_local emu_node **answered;

int emu_capture_dependencies(const emu_stream *stream, emu_graph *graph, emu_node ***nodes, size_t *count) {
    emu_graph_step step;
    progress walk = {0};
    int lane = emu_capture_lane(stream);
    if (lane < 0) {
        *nodes = NULL;
        *count = 0;
        return EMU_OK;
    }
    walk_until(&walk, graph, SIZE_MAX, &step);
    const index_list *found = &walk.lanes[lane % LANES];
    emu_node **longer = realloc(answered, (found->count + 1) * sizeof *longer);
    int status = longer == NULL || walk.failed ? EMU_OUT_OF_MEMORY : EMU_OK;
    answered = longer != NULL ? longer : answered;
    if (status == EMU_OK) {
        *count = found->count;
        status = answer(graph, found, answered, count);
        *nodes = answered;
    }
    finish_walk(&walk);
    return status;
}
