/* Graphs as programs handle them, and the objects of theirs that graphs keep alive. */
#include "cuda_state.h"

#include "pointer_map.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

struct emu_user_object {
    void *data;
    void (*destroy)(void *);
    unsigned long references;
};

/* References that a graph, or what was instantiated from it, has to an object. */
typedef struct holding {
    struct holding *next;
    emu_user_object *object;
    unsigned count;
} holding;

typedef struct {
    holding *holdings;
    unsigned long long flags; /* of an executable graph */
} graph_record;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pointer_map records; /* from emu_graph * */

/* A graph that isn't executable; the core doesn't tell them apart. */
static bool is_graph(const emu_graph *graph) {
    return emu_graph_valid(graph) && !emu_handle_is(graph, HANDLE_GRAPH_EXEC);
}

/* NULL: out of memory. The lock is held. */
static graph_record *record_of(const emu_graph *graph) {
    graph_record *record = pointer_map_get(&records, graph);
    if (record != NULL) {
        return record;
    }
    record = calloc(1, sizeof *record);
    if (record != NULL && !pointer_map_set(&records, graph, record)) {
        free(record);
        return NULL;
    }
    return record;
}

/* The destructor runs without the lock: it may call functions of graphs. */
static void drop_references(emu_user_object *object, unsigned count) {
    if (!emu_handle_is(object, HANDLE_USER_OBJECT)) { /* the program has released more references than it had */
        return;
    }
    pthread_mutex_lock(&lock);
    object->references -= count < object->references ? count : object->references;
    bool last = object->references == 0;
    pthread_mutex_unlock(&lock);
    if (last && emu_handle_remove(object, HANDLE_USER_OBJECT)) {
        object->destroy(object->data);
        free(object);
    }
}

static int hold(graph_record *record, emu_user_object *object, unsigned count) {
    holding *added = malloc(sizeof *added);
    if (record == NULL || added == NULL) {
        free(added);
        return EMU_OUT_OF_MEMORY;
    }
    added->object = object;
    added->count = count;
    added->next = record->holdings;
    record->holdings = added;
    return EMU_OK;
}

/* What is copied from a graph keeps its objects alive as well. */
static int inherit(emu_graph *copy, const emu_graph *graph, unsigned long long flags) {
    int status = EMU_OK;
    pthread_mutex_lock(&lock);
    graph_record *record = record_of(copy);
    graph_record *original = pointer_map_get(&records, graph);
    if (record == NULL) {
        status = EMU_OUT_OF_MEMORY;
    } else {
        record->flags = flags;
    }
    for (holding *entry = original ? original->holdings : NULL; entry != NULL && status == EMU_OK; entry = entry->next) {
        if (!emu_handle_is(entry->object, HANDLE_USER_OBJECT)) {
            continue;
        }
        status = hold(record, entry->object, entry->count);
        entry->object->references += status == EMU_OK ? entry->count : 0;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static int copy_graph(emu_graph *graph, bool executable, unsigned long long flags, emu_graph **copy) {
    if (copy == NULL || !is_graph(graph)) {
        return EMU_INVALID_VALUE;
    }
    emu_graph *made = NULL;
    int status = emu_graph_clone(graph, &made);
    if (status != EMU_OK) {
        return status;
    }
    if (executable && !emu_handle_add(made, HANDLE_GRAPH_EXEC)) {
        emu_graph_destroy(made);
        return EMU_OUT_OF_MEMORY;
    }
    status = inherit(made, graph, flags);
    if (status != EMU_OK) {
        emu_graph_delete(made, executable);
        return status;
    }
    *copy = made;
    return EMU_OK;
}

int emu_graph_new(emu_graph **graph) {
    return emu_graph_create(graph);
}

int emu_graph_copy(emu_graph *graph, emu_graph **copy) {
    return copy_graph(graph, false, 0, copy);
}

int emu_graph_instantiate(emu_graph *graph, unsigned long long flags, emu_graph **executable) {
    const unsigned long long known = 0xf; /* free memory at launch, upload, launch from the device, priorities of nodes */
    if (flags & ~known) {
        return EMU_INVALID_VALUE;
    }
    return copy_graph(graph, true, flags, executable);
}

int emu_graph_count(emu_graph *graph, emu_node **nodes, size_t *count) {
    if (count == NULL || !is_graph(graph)) {
        return EMU_INVALID_VALUE;
    }
    return emu_nodes_of_graph(graph, nodes, count);
}

int emu_graph_run(emu_graph *executable, void *stream) {
    emu_stream *target = emu_stream_of(stream);
    if (!emu_handle_is(executable, HANDLE_GRAPH_EXEC)) {
        return EMU_INVALID_VALUE;
    }
    return target == NULL ? EMU_INVALID_HANDLE : emu_graph_launch(executable, target);
}

void emu_graph_forget(emu_graph *graph) {
    emu_nodes_forget(graph);
    pthread_mutex_lock(&lock);
    graph_record *record = pointer_map_remove(&records, graph);
    pthread_mutex_unlock(&lock);
    holding *entry = record ? record->holdings : NULL;
    while (entry != NULL) {
        holding *next = entry->next;
        drop_references(entry->object, entry->count);
        free(entry);
        entry = next;
    }
    free(record);
}

int emu_graph_delete(emu_graph *graph, bool executable) {
    bool ours = executable ? emu_handle_remove(graph, HANDLE_GRAPH_EXEC) : is_graph(graph);
    if (!ours) {
        return EMU_INVALID_VALUE;
    }
    int status = emu_graph_destroy(graph);
    if (status == EMU_OK) {
        emu_graph_forget(graph);
    }
    return status;
}

int emu_graph_flags(emu_graph *executable, unsigned long long *flags) {
    if (flags == NULL || !emu_handle_is(executable, HANDLE_GRAPH_EXEC)) {
        return EMU_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    graph_record *record = pointer_map_get(&records, executable);
    *flags = record ? record->flags : 0;
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}

enum { NO_DESTRUCTOR_SYNC = 1, MOVE_REFERENCES = 1 };

int emu_user_object_new(emu_user_object **object, void *data, void (*destroy)(void *), unsigned count, unsigned flags) {
    /* The driver demands this flag: it says that the program doesn't wait for the destructor. */
    if (object == NULL || destroy == NULL || count == 0 || count > INT_MAX || flags != NO_DESTRUCTOR_SYNC) {
        return EMU_INVALID_VALUE;
    }
    emu_user_object *made = malloc(sizeof *made);
    if (made == NULL) {
        return EMU_OUT_OF_MEMORY;
    }
    *made = (emu_user_object){.data = data, .destroy = destroy, .references = count};
    if (!emu_handle_add(made, HANDLE_USER_OBJECT)) {
        free(made);
        return EMU_OUT_OF_MEMORY;
    }
    *object = made;
    return EMU_OK;
}

static bool valid_count(const emu_user_object *object, unsigned count) {
    return count > 0 && count <= INT_MAX && emu_handle_is(object, HANDLE_USER_OBJECT);
}

int emu_user_object_retain(emu_user_object *object, unsigned count) {
    if (!valid_count(object, count)) {
        return EMU_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    object->references += count;
    pthread_mutex_unlock(&lock);
    return EMU_OK;
}

int emu_user_object_release(emu_user_object *object, unsigned count) {
    if (!valid_count(object, count)) {
        return EMU_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    bool enough = object->references >= count;
    pthread_mutex_unlock(&lock);
    if (!enough) {
        return EMU_INVALID_VALUE;
    }
    drop_references(object, count);
    return EMU_OK;
}

int emu_graph_retain_object(emu_graph *graph, emu_user_object *object, unsigned count, unsigned flags) {
    if (!is_graph(graph) || !valid_count(object, count) || flags & ~(unsigned)MOVE_REFERENCES) {
        return EMU_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    int status = hold(record_of(graph), object, count);
    if (status == EMU_OK && !(flags & MOVE_REFERENCES)) {
        object->references += count;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* Take up to `count` references from the graph's holdings; answers how many there were. The lock is held. */
static unsigned take_back(graph_record *record, const emu_user_object *object, unsigned count) {
    unsigned taken = 0;
    holding **place = &record->holdings;
    while (*place != NULL && taken < count) {
        holding *entry = *place;
        if (entry->object != object) {
            place = &entry->next;
            continue;
        }
        unsigned part = entry->count < count - taken ? entry->count : count - taken;
        taken += part;
        entry->count -= part;
        if (entry->count == 0) {
            *place = entry->next;
            free(entry);
        }
    }
    return taken;
}

int emu_graph_release_object(emu_graph *graph, emu_user_object *object, unsigned count) {
    if (!is_graph(graph) || !valid_count(object, count)) {
        return EMU_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    graph_record *record = pointer_map_get(&records, graph);
    unsigned taken = record ? take_back(record, object, count) : 0;
    pthread_mutex_unlock(&lock);
    if (taken == 0) {
        return EMU_INVALID_VALUE;
    }
    drop_references(object, taken);
    return EMU_OK;
}
