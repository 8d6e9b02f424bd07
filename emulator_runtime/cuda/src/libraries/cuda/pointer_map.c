/* Open addressing with linear probing; at most half of the entries are taken, so a search is short. */
#include "pointer_map.h"

#include <stdint.h>
#include <stdlib.h>

static char removed_mark;

static size_t first_slot(const pointer_map *map, const void *key) {
    uint64_t mixed = (uint64_t)(uintptr_t)key;
    mixed ^= mixed >> 33;
    mixed *= 0x9e3779b97f4a7c15u; /* 2^64 divided by the golden ratio: neighbouring addresses go far apart */
    mixed ^= mixed >> 29;
    return (size_t)mixed & (map->capacity - 1);
}

static pointer_map_entry *find(const pointer_map *map, const void *key) {
    if (map->capacity == 0 || key == NULL) {
        return NULL;
    }
    for (size_t slot = first_slot(map, key);; slot = (slot + 1) & (map->capacity - 1)) {
        pointer_map_entry *entry = &map->entries[slot];
        if (entry->key == key) {
            return entry;
        }
        if (entry->key == NULL) {
            return NULL;
        }
    }
}

static void insert(pointer_map *map, const void *key, void *value) {
    size_t slot = first_slot(map, key);
    while (map->entries[slot].key != NULL) {
        slot = (slot + 1) & (map->capacity - 1);
    }
    map->entries[slot].key = key;
    map->entries[slot].value = value;
    map->taken++;
}

/* Also sheds the removed entries; the capacity stays where it was if most of them are such. */
static bool rebuild(pointer_map *map) {
    size_t alive = 0;
    for (size_t slot = 0; slot < map->capacity; slot++) {
        const void *key = map->entries[slot].key;
        alive += key != NULL && key != &removed_mark;
    }
    pointer_map larger = {.capacity = 64};
    while (larger.capacity < 4 * (alive + 1)) {
        larger.capacity *= 2;
    }
    larger.entries = calloc(larger.capacity, sizeof *larger.entries);
    if (larger.entries == NULL) {
        return false;
    }
    for (size_t slot = 0; slot < map->capacity; slot++) {
        pointer_map_entry entry = map->entries[slot];
        if (entry.key != NULL && entry.key != &removed_mark) {
            insert(&larger, entry.key, entry.value);
        }
    }
    free(map->entries);
    *map = larger;
    return true;
}

void *pointer_map_get(const pointer_map *map, const void *key) {
    const pointer_map_entry *entry = find(map, key);
    return entry ? entry->value : NULL;
}

bool pointer_map_set(pointer_map *map, const void *key, void *value) {
    pointer_map_entry *entry = find(map, key);
    if (entry != NULL) {
        entry->value = value;
        return true;
    }
    if (2 * (map->taken + 1) > map->capacity && !rebuild(map)) {
        return false;
    }
    insert(map, key, value);
    return true;
}

void *pointer_map_remove(pointer_map *map, const void *key) {
    pointer_map_entry *entry = find(map, key);
    if (entry == NULL) {
        return NULL;
    }
    void *value = entry->value;
    entry->key = &removed_mark;
    entry->value = NULL;
    return value;
}
