/* A table from addresses to addresses. Not locked: its owner does that. */
#ifndef EMUGPU_POINTER_MAP_H
#define EMUGPU_POINTER_MAP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const void *key; /* NULL: free; the map's own mark: removed */
    void *value;
} pointer_map_entry;

typedef struct {
    pointer_map_entry *entries;
    size_t capacity; /* a power of two, or 0 */
    size_t taken;    /* entries that aren't free, removed ones included */
} pointer_map;

/* The value, or NULL. */
void *pointer_map_get(const pointer_map *map, const void *key);
/* Add or replace; `key` isn't NULL. False: out of memory, and nothing has changed. */
bool pointer_map_set(pointer_map *map, const void *key, void *value);
/* Remove the key and answer its value, or NULL. */
void *pointer_map_remove(pointer_map *map, const void *key);

#endif
