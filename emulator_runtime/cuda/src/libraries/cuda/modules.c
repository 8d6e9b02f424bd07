/* Modules and libraries: code that a program loads while it runs, such as the cubins that Triton makes.
 *
 * Of a cubin and of PTX the names of the kernels are known, so a wrong name is an error. A fat binary is usually compressed; there
 * each name is accepted.
 */
#include "cuda_state.h"

#include "cubin.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *name;
    size_t bytes;
    void *address; /* NULL: not asked for yet */
} module_variable;

struct emu_module {
    bool names_known;
    emu_kernel **kernels;
    size_t kernel_count;
    module_variable *variables;
    size_t variable_count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the modules' variables and kernels */

static bool add_kernel(emu_module *module, const char *name, int registers, int static_shared_bytes) {
    enum { REGISTER_FILE = 65536, UNIT = 128 };
    emu_kernel *kernel = emu_kernel_named(name);
    emu_kernel **longer = realloc(module->kernels, (module->kernel_count + 1) * sizeof *longer);
    if (kernel == NULL || longer == NULL) {
        module->kernels = longer ? longer : module->kernels;
        return false;
    }
    module->kernels = longer;
    module->kernels[module->kernel_count++] = kernel;
    emu_kernel_traits traits = emu_kernel_traits_of(kernel);
    traits.static_shared_bytes = static_shared_bytes;
    traits.module = module;
    if (registers > 0) {
        int threads = REGISTER_FILE / registers / UNIT * UNIT;
        traits.registers = registers;
        traits.maximum_threads = threads < 1024 ? threads : 1024;
    }
    return emu_kernel_set_traits(kernel, &traits) == EMU_OK;
}

static bool read_kernel(void *state, const cubin_kernel *kernel) {
    return add_kernel(state, kernel->name, kernel->registers, kernel->static_shared_bytes);
}

static bool read_variable(void *state, const char *name, size_t bytes) {
    emu_module *module = state;
    module_variable *longer = realloc(module->variables, (module->variable_count + 1) * sizeof *longer);
    char *copy = strdup(name);
    module->variables = longer ? longer : module->variables;
    if (longer == NULL || copy == NULL) {
        free(copy);
        return false;
    }
    longer[module->variable_count++] = (module_variable){.name = copy, .bytes = bytes};
    return true;
}

/* The kernels of PTX: ".entry NAME(". */
static bool read_ptx(emu_module *module, const char *text) {
    static const char entry[] = ".entry";
    char name[512];
    for (const char *at = strstr(text, entry); at != NULL; at = strstr(at, entry)) {
        at += sizeof entry - 1;
        while (isspace((unsigned char)*at)) {
            at++;
        }
        size_t length = strcspn(at, "( \t\r\n;{");
        if (length == 0 || length >= sizeof name) {
            continue;
        }
        memcpy(name, at, length);
        name[length] = 0;
        if (!add_kernel(module, name, 0, 0)) {
            return false;
        }
    }
    return true;
}

static bool is_fat_binary(const void *image) {
    static const unsigned char container[] = {0x50, 0xed, 0x55, 0xba};
    static const unsigned char wrapper[] = {0xb1, 0x43, 0x62, 0x46};
    return memcmp(image, container, 4) == 0 || memcmp(image, wrapper, 4) == 0;
}

static bool is_ptx(const char *text) {
    while (isspace((unsigned char)*text)) {
        text++;
    }
    return strncmp(text, "//", 2) == 0 || strncmp(text, ".version", 8) == 0;
}

static void free_module(emu_module *module) {
    for (size_t i = 0; i < module->variable_count; i++) {
        emu_memory_free(EMU_MEMORY_DEVICE, module->variables[i].address);
        free(module->variables[i].name);
    }
    free(module->variables);
    free(module->kernels);
    free(module);
}

static bool read_image(emu_module *module, const void *image, size_t bytes) {
    cubin_reader reader = {.kernel = read_kernel, .variable = read_variable, .state = module};
    module->names_known = true;
    if (is_fat_binary(image)) {
        module->names_known = false;
        return true;
    }
    return is_ptx(image) ? read_ptx(module, image) : cubin_read(image, bytes, &reader);
}

static int load(const void *image, size_t bytes, emu_module **module) {
    if (image == NULL || module == NULL) {
        return EMU_INVALID_VALUE;
    }
    emu_module *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return EMU_OUT_OF_MEMORY;
    }
    if (!read_image(made, image, bytes)) {
        free_module(made);
        return EMU_INVALID_IMAGE;
    }
    if (!emu_handle_add(made, HANDLE_MODULE)) {
        free_module(made);
        return EMU_OUT_OF_MEMORY;
    }
    *module = made;
    return EMU_OK;
}

int emu_module_load(const void *image, emu_module **module) {
    return load(image, SIZE_MAX, module);
}

/* All of a file with a zero behind it; NULL: it can't be read. */
static char *read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    char *content = NULL;
    if (file == NULL) {
        return NULL;
    }
    if (fseek(file, 0, SEEK_END) == 0) {
        long length = ftell(file);
        rewind(file);
        content = length >= 0 ? calloc(1, (size_t)length + 64) : NULL; /* an ELF header is read from whatever there is */
        *bytes = content ? fread(content, 1, (size_t)length, file) : 0;
    }
    fclose(file);
    return content;
}

int emu_module_load_file(const char *path, emu_module **module) {
    size_t bytes = 0;
    if (path == NULL || module == NULL) {
        return EMU_INVALID_VALUE;
    }
    char *content = read_file(path, &bytes);
    if (content == NULL) {
        return RESULT_FILE_NOT_FOUND;
    }
    int status = bytes > 0 ? load(content, bytes, module) : EMU_INVALID_IMAGE;
    free(content);
    return status;
}

int emu_module_unload(emu_module *module) {
    if (!emu_handle_remove(module, HANDLE_MODULE)) {
        return EMU_INVALID_HANDLE;
    }
    for (size_t i = 0; i < module->kernel_count; i++) {
        emu_kernel_traits traits = emu_kernel_traits_of(module->kernels[i]);
        if (traits.module == module) {
            traits.module = NULL;
            emu_kernel_set_traits(module->kernels[i], &traits);
        }
    }
    free_module(module);
    return EMU_OK;
}

static emu_kernel *find_kernel(const emu_module *module, const char *name) {
    for (size_t i = 0; i < module->kernel_count; i++) {
        if (strcmp(emu_kernel_name(module->kernels[i]), name) == 0) {
            return module->kernels[i];
        }
    }
    return NULL;
}

int emu_module_kernel(emu_module *module, const char *name, emu_kernel **kernel) {
    if (name == NULL || kernel == NULL || *name == 0) {
        return EMU_INVALID_VALUE;
    }
    if (!emu_handle_is(module, HANDLE_MODULE)) {
        return EMU_INVALID_HANDLE;
    }
    pthread_mutex_lock(&lock);
    emu_kernel *found = find_kernel(module, name);
    bool added = found == NULL && !module->names_known && add_kernel(module, name, 0, 0);
    found = added ? find_kernel(module, name) : found;
    pthread_mutex_unlock(&lock);
    if (found == NULL) {
        return EMU_NOT_FOUND;
    }
    *kernel = found;
    return EMU_OK;
}

int emu_module_variable(emu_module *module, const char *name, void **address, size_t *bytes) {
    if (name == NULL || (address == NULL && bytes == NULL)) {
        return EMU_INVALID_VALUE;
    }
    if (!emu_handle_is(module, HANDLE_MODULE)) {
        return EMU_INVALID_HANDLE;
    }
    int status = EMU_NOT_FOUND;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < module->variable_count && status == EMU_NOT_FOUND; i++) {
        module_variable *variable = &module->variables[i];
        if (strcmp(variable->name, name) != 0) {
            continue;
        }
        status = EMU_OK;
        if (variable->address == NULL) {
            status = emu_memory_allocate(emu_current_device(), EMU_MEMORY_DEVICE, variable->bytes, &variable->address);
        }
        if (address != NULL) {
            *address = variable->address;
        }
        if (bytes != NULL) {
            *bytes = variable->bytes;
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int emu_module_kernel_count(emu_module *module, unsigned *count) {
    if (count == NULL) {
        return EMU_INVALID_VALUE;
    }
    if (!emu_handle_is(module, HANDLE_MODULE)) {
        return EMU_INVALID_HANDLE;
    }
    if (!module->names_known) {
        return EMU_NOT_SUPPORTED;
    }
    *count = (unsigned)module->kernel_count;
    return EMU_OK;
}

int emu_module_kernels(emu_module *module, emu_kernel **kernels, unsigned count) {
    if (kernels == NULL || count == 0) {
        return EMU_INVALID_VALUE;
    }
    unsigned all = 0;
    int status = emu_module_kernel_count(module, &all);
    for (unsigned i = 0; status == EMU_OK && i < count && i < all; i++) {
        kernels[i] = module->kernels[i];
    }
    return status;
}
