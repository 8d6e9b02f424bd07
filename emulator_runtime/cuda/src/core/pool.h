/* Objects of one kind, such as streams, whose addresses can be checked: a program may pass any pointer as a handle. */
#ifndef EMUGPU_POOL_H
#define EMUGPU_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { POOL_BLOCKS = 24 };

/* Block k has 64 * 2^k slots, so few blocks hold any number of objects. Zero-initialised but for the object's size. */
typedef struct {
    size_t object_bytes;
    char *blocks[POOL_BLOCKS];
    atomic_int block_count;
    void *free_slot; /* a list through the first word of each free object */
} emu_pool;

/* A zeroed object; NULL: out of memory. */
void *pool_take(emu_pool *pool);
void pool_give(emu_pool *pool, void *object);
/* Whether `object` is one that was taken and not given back. Needs no lock: another thread may destroy the object right after. */
bool pool_has(const emu_pool *pool, const void *object);
/* The next object that is in use, after `object` (NULL: the first); NULL at the end. */
void *pool_next(const emu_pool *pool, const void *object);

#endif
