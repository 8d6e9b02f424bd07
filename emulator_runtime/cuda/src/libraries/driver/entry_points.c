/* cuGetProcAddress: functions of the driver by name and by the CUDA version that a program was written for. */
#include "driver.h"

#include "entry_versions.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROC_FOUND = 0, PROC_NOT_FOUND = 1, PROC_VERSION_NOT_SUFFICIENT = 2 };
enum { LEGACY_STREAM = 1, PER_THREAD_STREAM = 2 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library; /* this one */

static void open_library(void) {
    Dl_info info;
    if (dladdr((void *)(uintptr_t)&entry_points, &info) != 0) {
        library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }
}

static void *exported(const char *name) {
    pthread_once(&once, open_library);
    return library != NULL ? dlsym(library, name) : NULL;
}

static int by_name(const void *name, const void *entry) {
    return strcmp(name, ((const entry_point *)entry)->name);
}

/* 1: the first one, 0: the function is younger than `cuda_version`. */
static int variant_of(const entry_point *entry, int cuda_version) {
    int variant = 0;
    while (variant < MOST_VERSIONS && entry->versions[variant] != 0 && entry->versions[variant] <= cuda_version) {
        variant++;
    }
    return variant;
}

/* With PER_THREAD_STREAM the functions that use a default stream have names of their own; others don't. */
static void *find(const char *name, unsigned long long flags) {
    char longer[160];
    if (flags & PER_THREAD_STREAM) {
        snprintf(longer, sizeof longer, "%s_ptsz", name);
        void *function = exported(longer);
        if (function != NULL) {
            return function;
        }
    }
    return exported(name);
}

static void *find_variant(const entry_point *entry, int variant, unsigned long long flags) {
    char name[128];
    if (variant == 1) {
        return find(entry->name, flags);
    }
    snprintf(name, sizeof name, "%s_v%d", entry->name, variant);
    return find(name, flags);
}

static int look_up(const char *name, void **function, int cuda_version, unsigned long long flags) {
    const entry_point *entry = bsearch(name, entry_points, sizeof entry_points / sizeof entry_points[0], sizeof entry_points[0], by_name);
    if (entry == NULL) { /* a name with its suffix, or one that isn't in the table */
        *function = strncmp(name, "cu", 2) == 0 ? find(name, flags) : NULL;
        return *function != NULL ? PROC_FOUND : PROC_NOT_FOUND;
    }
    int variant = variant_of(entry, cuda_version);
    if (variant == 0) {
        return PROC_VERSION_NOT_SUFFICIENT;
    }
    if (strcmp(name, "cuGraphInstantiate") == 0 && cuda_version >= 12000) { /* the exception to the rule of the suffixes */
        *function = find("cuGraphInstantiateWithFlags", flags);
    } else {
        *function = find_variant(entry, variant, flags);
    }
    if (*function == NULL && entry->versions[variant - 1] <= emu_driver_version()) {
        emu_unsupported("CUDA driver", name);
    }
    return *function != NULL ? PROC_FOUND : PROC_NOT_FOUND;
}

EMU_EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int cuda_version, uint64_t flags, int *state) {
    if (name == NULL || *name == 0 || function == NULL || flags > (LEGACY_STREAM | PER_THREAD_STREAM)) {
        return EMU_INVALID_VALUE;
    }
    *function = NULL;
    int found = look_up(name, function, cuda_version, flags);
    if (state != NULL) {
        *state = found;
    }
    return found == PROC_FOUND ? EMU_OK : EMU_NOT_FOUND;
}

EMU_EXPORT CUresult cuGetProcAddress(const char *name, void **function, int cuda_version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, cuda_version, flags, NULL);
}

/* The tables of functions behind this interface aren't documented; nothing here takes their place. NVIDIA's own runtime asks for them
 * first of all: a program that gets here has it linked into it. */
EMU_EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    (void)id;
    if (table != NULL) {
        *table = NULL;
    }
    emu_unsupported("CUDA driver", "cuGetExportTable");
    if (!atomic_flag_test_and_set(&said)) {
        emu_log(1, "a statically linked CUDA runtime can't be emulated: compile the program with nvcc -cudart shared");
    }
    return EMU_NOT_SUPPORTED;
}
