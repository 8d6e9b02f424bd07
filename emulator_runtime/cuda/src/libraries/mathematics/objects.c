/* A hash table of live handles: open addressing, at most half full, removal by moving later entries up. */
#include "objects.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct {
    const void *handle; /* NULL: free place */
    int kind;
} entry;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static entry *entries;
static size_t capacity; /* a power of two, or 0 at first */
static size_t used;

enum { FIRST_CAPACITY = 256 };

/* Where the search for `handle` begins: heap addresses differ in the middle bits, a multiplication spreads them. */
static size_t home(const void *handle, size_t places) {
    uint64_t hash = (uint64_t)(uintptr_t)handle * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(hash >> 32) & (places - 1);
}

/* The place of `handle`, or the free place where it would go. */
static size_t place_of(const entry *table, size_t places, const void *handle) {
    size_t place = home(handle, places);
    while (table[place].handle && table[place].handle != handle)
        place = (place + 1) & (places - 1);
    return place;
}

static bool grow(void) {
    size_t places = capacity ? 2 * capacity : FIRST_CAPACITY;
    entry *larger = calloc(places, sizeof *larger);
    if (!larger)
        return false;
    for (size_t i = 0; i < capacity; i++) {
        if (entries[i].handle)
            larger[place_of(larger, places, entries[i].handle)] = entries[i];
    }
    free(entries);
    entries = larger;
    capacity = places;
    return true;
}

static bool insert(int kind, const void *handle) {
    if (2 * (used + 1) > capacity && !grow())
        return false;
    size_t place = place_of(entries, capacity, handle);
    entries[place].handle = handle;
    entries[place].kind = kind;
    used++;
    return true;
}

/* Close the gap at `gap`: an entry after it may only be found because the gap was filled. */
static void close_gap(size_t gap) {
    size_t mask = capacity - 1;
    for (size_t next = (gap + 1) & mask; entries[next].handle; next = (next + 1) & mask) {
        size_t wanted = home(entries[next].handle, capacity);
        if (((next - wanted) & mask) >= ((next - gap) & mask)) {
            entries[gap] = entries[next];
            gap = next;
        }
    }
    entries[gap].handle = NULL;
}

static bool contains(int kind, const void *handle) {
    if (!handle || !capacity)
        return false;
    const entry *found = &entries[place_of(entries, capacity, handle)];
    return found->handle && found->kind == kind;
}

void *object_create(int kind, size_t bytes) {
    void *object = calloc(1, bytes);
    if (!object)
        return NULL;
    pthread_rwlock_wrlock(&lock);
    bool inserted = insert(kind, object);
    pthread_rwlock_unlock(&lock);
    if (!inserted) {
        free(object);
        return NULL;
    }
    return object;
}

void *object_find(int kind, const void *handle) {
    pthread_rwlock_rdlock(&lock);
    bool live = contains(kind, handle);
    pthread_rwlock_unlock(&lock);
    return live ? (void *)(uintptr_t)handle : NULL;
}

bool object_forget(int kind, const void *handle) {
    pthread_rwlock_wrlock(&lock);
    bool live = contains(kind, handle);
    if (live) {
        close_gap(place_of(entries, capacity, handle));
        used--;
    }
    pthread_rwlock_unlock(&lock);
    return live;
}

bool object_destroy(int kind, void *handle) {
    if (!object_forget(kind, handle))
        return false;
    free(handle);
    return true;
}

