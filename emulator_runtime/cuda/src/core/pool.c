/* Objects of one kind in blocks that are never given back, so that any address can be checked. */
#include "pool.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A slot is this mark, then the object. */
typedef struct {
    _Atomic uint64_t in_use;
} slot_mark;

static size_t slot_bytes(const emu_pool *pool) {
    size_t object = (pool->object_bytes + 15) & ~(size_t)15;
    return object + 16; /* the mark, and the alignment that malloc promises */
}

static size_t slots_of_block(int block) {
    return (size_t)64 << block;
}

static slot_mark *mark_of(const void *object) {
    return (slot_mark *)((char *)(uintptr_t)object - 16);
}

static bool add_block(emu_pool *pool) {
    if (pool->block_count == POOL_BLOCKS)
        return false;
    size_t bytes = slot_bytes(pool);
    size_t count = slots_of_block(pool->block_count);
    char *block = calloc(count, bytes);
    if (block == NULL)
        return false;
    int number = atomic_load_explicit(&pool->block_count, memory_order_relaxed);
    pool->blocks[number] = block;
    atomic_store_explicit(&pool->block_count, number + 1, memory_order_release);
    for (size_t i = count; i-- > 0;) {
        void *object = block + i * bytes + 16;
        *(void **)object = pool->free_slot;
        pool->free_slot = object;
    }
    return true;
}

void *pool_take(emu_pool *pool) {
    if (pool->free_slot == NULL && !add_block(pool))
        return NULL;
    void *object = pool->free_slot;
    pool->free_slot = *(void **)object;
    memset(object, 0, pool->object_bytes);
    atomic_store_explicit(&mark_of(object)->in_use, 1, memory_order_release);
    return object;
}

void pool_give(emu_pool *pool, void *object) {
    atomic_store_explicit(&mark_of(object)->in_use, 0, memory_order_relaxed);
    *(void **)object = pool->free_slot;
    pool->free_slot = object;
}

bool pool_has(const emu_pool *pool, const void *object) {
    size_t bytes = slot_bytes(pool);
    uintptr_t address = (uintptr_t)object;
    for (int i = atomic_load_explicit(&pool->block_count, memory_order_acquire); i-- > 0;) {
        uintptr_t first = (uintptr_t)pool->blocks[i] + 16;
        if (address < first || address >= first + slots_of_block(i) * bytes)
            continue;
        return (address - first) % bytes == 0 && atomic_load_explicit(&mark_of(object)->in_use, memory_order_acquire);
    }
    return false;
}

void *pool_next(const emu_pool *pool, const void *object) {
    size_t bytes = slot_bytes(pool);
    bool passed = object == NULL;
    for (int i = 0; i < pool->block_count; i++) {
        char *block = pool->blocks[i];
        size_t count = slots_of_block(i);
        size_t first = 0;
        if (!passed) {
            uintptr_t offset = (uintptr_t)object - ((uintptr_t)block + 16);
            if (offset >= count * bytes)
                continue; /* of another block; an address below this one wraps around to a large offset */
            passed = true;
            first = offset / bytes + 1;
        }
        for (size_t k = first; k < count; k++) {
            void *candidate = block + k * bytes + 16;
            if (mark_of(candidate)->in_use)
                return candidate;
        }
    }
    return NULL;
}
