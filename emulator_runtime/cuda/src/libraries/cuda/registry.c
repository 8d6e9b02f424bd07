/* Kernels and variables that a program's binaries register when they are loaded, by the addresses of their host symbols.
 *
 * A framework registers tens of thousands of kernels and launches a few hundred of them, so the core is told of a kernel when it is
 * used first.
 */
#include "cuda_state.h"

#include "pointer_map.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct registered {
    struct registered *next; /* of the same owner */
    const void *symbol;
    const char *name;        /* in the binary */
    emu_kernel *kernel;      /* NULL: not used yet, or a variable */
    bool is_variable;
    size_t bytes;
    void *address[];         /* a variable's, on each device; NULL: not used there yet */
} registered;

struct emu_registry_owner {
    registered *first;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pointer_map symbols; /* from host addresses to registered */

emu_registry_owner *emu_registry_open(void) {
    return calloc(1, sizeof(emu_registry_owner));
}

void emu_registry_close(emu_registry_owner *owner) {
    if (owner == NULL) {
        return;
    }
    pthread_rwlock_wrlock(&lock);
    registered *entry = owner->first;
    while (entry != NULL) {
        registered *next = entry->next;
        if (pointer_map_get(&symbols, entry->symbol) == entry) {
            pointer_map_remove(&symbols, entry->symbol);
        }
        for (int device = 0; entry->is_variable && device < EMU_MAX_DEVICES; device++) {
            emu_memory_free(EMU_MEMORY_DEVICE, entry->address[device]);
        }
        free(entry);
        entry = next;
    }
    pthread_rwlock_unlock(&lock);
    free(owner);
}

static void add(emu_registry_owner *owner, registered *entry) {
    pthread_rwlock_wrlock(&lock);
    if (pointer_map_set(&symbols, entry->symbol, entry)) {
        entry->next = owner->first;
        owner->first = entry;
    } else {
        free(entry); /* a launch will answer "invalid device function" */
    }
    pthread_rwlock_unlock(&lock);
}

void emu_registry_add_kernel(emu_registry_owner *owner, const void *symbol, const char *name) {
    if (owner == NULL || symbol == NULL || name == NULL) {
        return;
    }
    registered *entry = calloc(1, sizeof *entry);
    if (entry != NULL) {
        entry->symbol = symbol;
        entry->name = name;
        add(owner, entry);
    }
}

void emu_registry_add_variable(emu_registry_owner *owner, const void *symbol, const char *name, size_t bytes) {
    if (owner == NULL || symbol == NULL || name == NULL) {
        return;
    }
    registered *entry = calloc(1, sizeof *entry + EMU_MAX_DEVICES * sizeof(void *));
    if (entry != NULL) {
        entry->symbol = symbol;
        entry->name = name;
        entry->is_variable = true;
        entry->bytes = bytes;
        add(owner, entry);
    }
}

/* The name is read while the lock is held: the binary may be unloaded by another thread. */
static emu_kernel *resolve(const void *symbol) {
    emu_kernel *kernel = NULL;
    pthread_rwlock_wrlock(&lock);
    registered *entry = pointer_map_get(&symbols, symbol);
    if (entry != NULL && !entry->is_variable) {
        if (entry->kernel == NULL) {
            entry->kernel = emu_kernel_named(entry->name);
        }
        kernel = entry->kernel;
    }
    pthread_rwlock_unlock(&lock);
    return kernel;
}

emu_kernel *emu_registry_kernel(const void *symbol) {
    pthread_rwlock_rdlock(&lock);
    registered *entry = pointer_map_get(&symbols, symbol);
    emu_kernel *kernel = entry ? entry->kernel : NULL;
    pthread_rwlock_unlock(&lock);
    if (kernel != NULL) {
        return kernel;
    }
    if (entry != NULL) {
        return resolve(symbol);
    }
    return emu_kernel_valid(symbol) ? (emu_kernel *)symbol : NULL;
}

int emu_registry_variable(const void *symbol, void **address, size_t *bytes) {
    int device = emu_current_device();
    int status = EMU_OK;
    pthread_rwlock_wrlock(&lock);
    registered *entry = pointer_map_get(&symbols, symbol);
    if (entry == NULL || !entry->is_variable || entry->bytes == 0) {
        status = RESULT_INVALID_SYMBOL;
    } else if (entry->address[device] == NULL) {
        status = emu_memory_allocate(device, EMU_MEMORY_DEVICE, entry->bytes, &entry->address[device]);
    }
    if (status == EMU_OK) {
        *address = entry->address[device];
        *bytes = entry->bytes;
    }
    pthread_rwlock_unlock(&lock);
    return status;
}

void emu_registry_reset(int device) {
    pthread_rwlock_wrlock(&lock);
    for (size_t i = 0; i < symbols.capacity; i++) {
        registered *entry = symbols.entries[i].value;
        if (entry != NULL && entry->is_variable && entry->address[device] != NULL) {
            emu_memory_free(EMU_MEMORY_DEVICE, entry->address[device]);
            entry->address[device] = NULL;
        }
    }
    pthread_rwlock_unlock(&lock);
}
