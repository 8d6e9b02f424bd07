/* libcudnn: the descriptors of graphs of operations, as stores of attributes. */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

#include "mathematics/objects.h"

enum { MOST_ELEMENTS = 1 << 20 };

/* Size of an element by its type. */
static size_t element_size(int type) {
    enum { TYPES = 34, HANDLE = 0, BOOLEAN = 2, DOUBLE = 5, POINTER = 6, CHARACTER = 24, FRACTION = 26 };
    if (type < 0 || type >= TYPES)
        return 0;
    switch (type) {
    case BOOLEAN:
    case CHARACTER:
        return 1;
    case HANDLE:
    case TYPE_INT64:
    case DOUBLE:
    case POINTER:
    case TYPE_DESCRIPTOR:
        return 8;
    case FRACTION:
        return 16;
    default:
        return 4; /* float, int32, enumerations */
    }
}

static backend *find(const void *descriptor) {
    return object_find(CUDNN_BACKEND, descriptor);
}

/* ---- life ---- */

static void retain(backend *descriptor) {
    __atomic_add_fetch(&descriptor->references, 1, __ATOMIC_RELAXED);
}

static void clear_attribute(backend_attribute *attribute) {
    backend **descriptors = attribute->values;
    for (int64_t i = 0; attribute->type == TYPE_DESCRIPTOR && i < attribute->count; i++)
        backend_release(descriptors[i]);
    free(attribute->values);
    attribute->values = NULL;
    attribute->count = 0;
}

static void clear_attributes(backend *descriptor) {
    for (int i = 0; i < descriptor->attribute_count; i++)
        clear_attribute(&descriptor->attributes[i]);
    free(descriptor->attributes);
    descriptor->attributes = NULL;
    descriptor->attribute_count = 0;
}

void backend_release(backend *descriptor) {
    if (!descriptor || __atomic_sub_fetch(&descriptor->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    clear_attributes(descriptor);
    execution_destroy(descriptor->execution);
    free(descriptor);
}

backend *backend_create(int type) {
    backend *created = calloc(1, sizeof *created);
    if (created) {
        created->type = type;
        created->references = 1;
    }
    return created;
}

EMU_EXPORT cudnn_status cudnnBackendCreateDescriptor(int type, void **descriptor) {
    if (!descriptor)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for the descriptor");
    if (type < 0 || type >= BACKEND_TYPES)
        return cudnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "descriptors of type %d", type);
    cudnn_status status = cudnn_create_object(CUDNN_BACKEND, sizeof(backend), descriptor);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    backend *created = *descriptor;
    created->type = type;
    created->references = 1;
    return CUDNN_STATUS_SUCCESS;
}

/* Others may hold the descriptor: it is no handle any more, and goes when they do. */
EMU_EXPORT cudnn_status cudnnBackendDestroyDescriptor(void *descriptor) {
    if (!object_forget(CUDNN_BACKEND, descriptor))
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "not a live descriptor");
    backend_release(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- reading ---- */

static backend_attribute *find_any(const backend *descriptor, int name) {
    for (int i = 0; descriptor && i < descriptor->attribute_count; i++) {
        if (descriptor->attributes[i].name == name)
            return &descriptor->attributes[i];
    }
    return NULL;
}

const backend_attribute *backend_find_attribute(const backend *descriptor, int name) {
    const backend_attribute *found = find_any(descriptor, name);
    return found && found->count > 0 ? found : NULL;
}

backend *backend_descriptor_at(const backend *descriptor, int name, int64_t index) {
    const backend_attribute *found = backend_find_attribute(descriptor, name);
    if (!found || found->type != TYPE_DESCRIPTOR || index < 0 || index >= found->count)
        return NULL;
    return ((backend **)found->values)[index];
}

int64_t backend_number(const backend *descriptor, int name, int64_t index, int64_t otherwise) {
    const backend_attribute *found = backend_find_attribute(descriptor, name);
    if (!found || index < 0 || index >= found->count)
        return otherwise;
    switch (element_size(found->type)) {
    case 1:
        return ((const int8_t *)found->values)[index];
    case 4:
        return ((const int32_t *)found->values)[index];
    case 8:
        return ((const int64_t *)found->values)[index];
    default:
        return otherwise;
    }
}

/* ---- writing ---- */

static backend_attribute *add_attribute(backend *descriptor, int name) {
    backend_attribute *found = find_any(descriptor, name);
    if (found)
        return found;
    size_t count = (size_t)descriptor->attribute_count + 1;
    backend_attribute *more = realloc(descriptor->attributes, count * sizeof *more);
    if (!more)
        return NULL;
    descriptor->attributes = more;
    descriptor->attribute_count++;
    found = &more[count - 1];
    *found = (backend_attribute){.name = name};
    return found;
}

cudnn_status backend_set(backend *descriptor, int name, int type, int64_t count, const void *values) {
    size_t bytes = (size_t)count * element_size(type);
    void *copy = malloc(bytes > 0 ? bytes : 1);
    backend_attribute *attribute = copy ? add_attribute(descriptor, name) : NULL;
    if (!attribute) {
        free(copy);
        return cudnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "out of memory");
    }
    if (bytes > 0)
        memcpy(copy, values, bytes);
    backend **descriptors = copy;
    for (int64_t i = 0; type == TYPE_DESCRIPTOR && i < count; i++)
        retain(descriptors[i]);
    clear_attribute(attribute);
    attribute->type = type;
    attribute->count = count;
    attribute->values = copy;
    return CUDNN_STATUS_SUCCESS;
}

static cudnn_status check_descriptors(int64_t count, const void *values) {
    void *const *descriptors = values;
    for (int64_t i = 0; i < count; i++) {
        const backend *held = find(descriptors[i]);
        if (!held)
            return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "element %lld isn't a live descriptor", (long long)i);
        if (!held->is_finalized)
            return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "element %lld isn't finalized", (long long)i);
    }
    return CUDNN_STATUS_SUCCESS;
}

EMU_EXPORT cudnn_status cudnnBackendSetAttribute(void *descriptor, int name, int type, int64_t count, const void *values) {
    backend *found = find(descriptor);
    if (!found)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "not a live descriptor");
    if (found->is_finalized)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized");
    if (!backend_may_have(found->type, name))
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "descriptors of type %d have no attribute %d", found->type, name);
    if (element_size(type) == 0)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "there is no attribute type %d", type);
    if (count < 0 || count > MOST_ELEMENTS || (count > 0 && !values))
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "%lld elements", (long long)count);
    if (type == TYPE_DESCRIPTOR) {
        cudnn_status status = check_descriptors(count, values);
        if (status != CUDNN_STATUS_SUCCESS)
            return status;
    }
    return backend_set(found, name, type, count, values);
}

EMU_EXPORT cudnn_status cudnnBackendFinalize(void *descriptor) {
    backend *found = find(descriptor);
    if (!found)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "not a live descriptor");
    if (found->is_finalized)
        return CUDNN_STATUS_SUCCESS;
    cudnn_status status = backend_check(found);
    if (status == CUDNN_STATUS_SUCCESS && found->type == BACKEND_EXECUTION_PLAN)
        status = execution_create(found, &found->execution);
    found->is_finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

/* ---- answering ---- */

typedef struct {
    int type;
    int64_t requested;
    int64_t *count; /* may be NULL */
    void *values;   /* may be NULL if none are requested */
} request;

static cudnn_status answer(const request *request, int type, int64_t count, const void *values) {
    if (request->type != type)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "asked as type %d, it is %d", request->type, type);
    if (request->count)
        *request->count = count;
    int64_t copied = request->requested < count ? request->requested : count;
    if (copied > 0 && request->values)
        memcpy(request->values, values, (size_t)copied * element_size(type));
    return CUDNN_STATUS_SUCCESS;
}

/* Make `target`, which the program created for this, equal to `source`. */
static cudnn_status copy_descriptor(backend *target, const backend *source) {
    if (target->type != source->type)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a descriptor for the answer has the wrong type");
    clear_attributes(target);
    for (int i = 0; i < source->attribute_count; i++) {
        const backend_attribute *from = &source->attributes[i];
        cudnn_status status = backend_set(target, from->name, from->type, from->count, from->values);
        if (status != CUDNN_STATUS_SUCCESS)
            return status;
    }
    target->is_finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

/* Descriptors are answered into those that the program brings along. */
static cudnn_status answer_descriptors(const request *request, int64_t count, backend *const *sources) {
    void **targets = request->values;
    if (request->type != TYPE_DESCRIPTOR)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "asked as type %d, it is descriptors", request->type);
    if (request->count)
        *request->count = count;
    for (int64_t i = 0; targets && i < count && i < request->requested; i++) {
        backend *target = find(targets[i]);
        if (!target)
            return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "a descriptor for the answer isn't live");
        cudnn_status status = copy_descriptor(target, sources[i]);
        if (status != CUDNN_STATUS_SUCCESS)
            return status;
    }
    return CUDNN_STATUS_SUCCESS;
}

static backend *engine_of(backend *graph, int64_t index) {
    backend *engine = backend_create(BACKEND_ENGINE);
    if (!engine)
        return NULL;
    backend_set(engine, ATTRIBUTE_ENGINE_GRAPH, TYPE_DESCRIPTOR, 1, &graph);
    backend_set(engine, ATTRIBUTE_ENGINE_INDEX, TYPE_INT64, 1, &index);
    engine->is_finalized = true;
    return engine;
}

/* A configuration of engine `index`, without knobs. */
static backend *configuration_of(backend *graph, int64_t index) {
    backend *engine = engine_of(graph, index);
    backend *configuration = engine ? backend_create(BACKEND_ENGINE_CONFIGURATION) : NULL;
    if (configuration) {
        backend_set(configuration, ATTRIBUTE_CONFIGURATION_ENGINE, TYPE_DESCRIPTOR, 1, &engine);
        configuration->is_finalized = true;
    }
    backend_release(engine);
    return configuration;
}

/* The fallback list names the engine that serves anything: the last one. */
static cudnn_status answer_heuristics(const backend *heuristics, const request *asked) {
    enum { MOST_ENGINES = 2 };
    backend *graph = backend_descriptor_at(heuristics, ATTRIBUTE_HEURISTICS_GRAPH, 0);
    bool fallback = backend_number(heuristics, ATTRIBUTE_HEURISTICS_MODE, 0, 0) == HEURISTICS_FALLBACK;
    backend *results[MOST_ENGINES] = {NULL, NULL};
    int engines = backend_engine_count(graph);
    if (engines == 0)
        return cudnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "no engine of this device runs this graph");
    int first = fallback ? engines - 1 : 0;
    int64_t count = engines - first;
    if (asked->requested > 0 && asked->requested < count)
        count = asked->requested; /* unlike for other attributes, the number is that of the results which were given */
    cudnn_status status = CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < count && status == CUDNN_STATUS_SUCCESS; i++) {
        results[i] = configuration_of(graph, first + i);
        if (!results[i])
            status = cudnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "out of memory");
    }
    if (status == CUDNN_STATUS_SUCCESS)
        status = answer_descriptors(asked, count, results);
    for (int i = 0; i < count; i++)
        backend_release(results[i]);
    return status;
}

static cudnn_status answer_notes(const backend *engine, const request *request) {
    int32_t tensor_core = 0;
    return answer(request, TYPE_NUMERICAL_NOTE, backend_engine_uses_tensor_cores(engine) ? 1 : 0, &tensor_core);
}

/* What wasn't set, but follows. */
static cudnn_status answer_derived(const backend *descriptor, int name, const request *request) {
    int64_t zero = 0;
    int64_t engines;
    switch (name) {
    case ATTRIBUTE_HEURISTICS_RESULTS:
        return answer_heuristics(descriptor, request);
    case ATTRIBUTE_GRAPH_ENGINE_COUNT:
        engines = backend_engine_count(descriptor);
        return answer(request, TYPE_INT64, 1, &engines);
    case ATTRIBUTE_ENGINE_NUMERICAL_NOTE:
        return answer_notes(descriptor, request);
    case ATTRIBUTE_CONFIGURATION_WORKSPACE:
    case ATTRIBUTE_PLAN_WORKSPACE:
        return answer(request, TYPE_INT64, 1, &zero);
    case ATTRIBUTE_CONFIGURATION_SHARED_MEMORY:
        return answer(request, TYPE_INT32, 1, &zero);
    case ATTRIBUTE_PLAN_JSON:
    case ATTRIBUTE_KERNEL_CACHE_JSON:
    case ATTRIBUTE_DEVICE_JSON:
        return cudnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "descriptions in JSON");
    default: /* was never set: no elements */
        return answer(request, request->type, 0, NULL);
    }
}

EMU_EXPORT cudnn_status cudnnBackendGetAttribute(
    const void *descriptor, int name, int type, int64_t requested, int64_t *count, void *values) {
    const backend *found = find(descriptor);
    request request = {type, requested, count, values};
    if (!found)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "not a live descriptor");
    if (!found->is_finalized)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the descriptor isn't finalized");
    if (!backend_may_have(found->type, name))
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "descriptors of type %d have no attribute %d", found->type, name);
    if (element_size(type) == 0)
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "there is no attribute type %d", type);
    if (requested < 0 || (!count && !values))
        return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "no room for an answer");
    const backend_attribute *attribute = backend_find_attribute(found, name);
    if (!attribute)
        return answer_derived(found, name, &request);
    if (attribute->type == TYPE_DESCRIPTOR)
        return answer_descriptors(&request, attribute->count, attribute->values);
    return answer(&request, attribute->type, attribute->count, attribute->values);
}
