/* Measured times of kernels: a file in which each line has the median time of the launches of a kernel with one grid.
 *
 *     emugpu-kernels 1
 *     NANOSECONDS <tab> GRID <tab> BLOCK <tab> NAME        4821  256,1,1  512,1,1  void at::native::vectorized_...(int, ...)
 *
 * `emugpu cuda kernels` writes it (emulator_runtime/cuda/kernel_times.py). Names are as a profiler shows them: demangled, or those of
 * extern "C" kernels. Blanks in names don't count, since demanglers differ in them.
 */
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char FIRST_LINE[] = "emugpu-kernels 1";

typedef struct {
    unsigned grid[3], block[3];
    double ns;
} measured_launch;

struct measured_kernel {
    char *name; /* without blanks */
    measured_launch *launches;
    size_t count;
};

static measured_kernel *table; /* sorted by name once it is complete */
static size_t table_count;

/* ---- names ---- */

static void remove_blanks(char *text) {
    char *to = text;
    for (; *text != '\0'; text++) {
        if (*text != ' ')
            *to++ = *text;
    }
    *to = '\0';
}

typedef char *(*demangler)(const char *, char *, size_t *, int *);

/* The C++ library's own (Itanium C++ ABI, 3.4); a program in C++ has it loaded, PyTorch among them. */
static demangler find_demangler(void) {
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY);
    void *function = dlsym(library != NULL ? library : RTLD_DEFAULT, "__cxa_demangle");
    demangler found = NULL;
    memcpy(&found, &function, sizeof found);
    if (found == NULL)
        emu_log(1, "there is no libstdc++.so.6: the kernel table is without effect on kernels that are written in C++");
    return found;
}

/* To be freed; NULL: it isn't a name of C++. */
static char *demangled(const char *mangled) {
    static demangler demangle;
    static bool sought;
    if (!sought) {
        demangle = find_demangler();
        sought = true;
    }
    int status = 0;
    return demangle == NULL ? NULL : demangle(mangled, NULL, NULL, &status);
}

/* ---- the file ---- */

static int by_name(const void *one, const void *other) {
    return strcmp(((const measured_kernel *)one)->name, ((const measured_kernel *)other)->name);
}

/* "256,1,1", each from 1 on; false if it is something else. */
static bool read_sizes(const char *text, unsigned sizes[3]) {
    int length = 0;
    bool three = sscanf(text, "%u,%u,%u%n", &sizes[0], &sizes[1], &sizes[2], &length) == 3;
    return three && text[length] == '\0' && sizes[0] > 0 && sizes[1] > 0 && sizes[2] > 0;
}

static bool add_launch(measured_kernel *kernel, const measured_launch *launch) {
    measured_launch *grown = realloc(kernel->launches, (kernel->count + 1) * sizeof *grown);
    if (grown == NULL)
        return false;
    kernel->launches = grown;
    kernel->launches[kernel->count++] = *launch;
    return true;
}

/* The lines of a kernel follow each other, so that only the last one is looked at. NULL: out of memory. */
static measured_kernel *kernel_for(const char *name) {
    if (table_count > 0 && strcmp(table[table_count - 1].name, name) == 0)
        return &table[table_count - 1];
    measured_kernel *grown = realloc(table, (table_count + 1) * sizeof *grown);
    if (grown == NULL)
        return NULL;
    table = grown;
    char *copy = strdup(name);
    if (copy == NULL)
        return NULL;
    table[table_count] = (measured_kernel){.name = copy};
    return &table[table_count++];
}

/* Answers what is wrong with a line; NULL: nothing. */
static const char *take_line(char *line) {
    char *rest = line;
    char *columns[4] = {NULL};
    for (int i = 0; i < 4; i++) {
        columns[i] = i < 3 ? strsep(&rest, "\t") : rest;
        if (columns[i] == NULL)
            return "it needs a time in nanoseconds, a grid, a block and a name, with tabs between them";
    }
    char *end;
    measured_launch launch = {.ns = strtod(columns[0], &end)};
    if (end == columns[0] || *end != '\0' || !(launch.ns > 0) || launch.ns > 1e15)
        return "the time must be a number of nanoseconds above 0";
    if (!read_sizes(columns[1], launch.grid) || !read_sizes(columns[2], launch.block))
        return "a grid and a block are three numbers above 0, such as 256,1,1";
    remove_blanks(columns[3]);
    if (columns[3][0] == '\0')
        return "the name is empty";
    measured_kernel *kernel = kernel_for(columns[3]);
    return kernel != NULL && add_launch(kernel, &launch) ? NULL : "out of memory";
}

static bool read_lines(FILE *file) {
    char *line = NULL;
    size_t room = 0;
    const char *wrong = NULL;
    int number = 0;
    while (wrong == NULL && getline(&line, &room, file) >= 0) {
        number++;
        line[strcspn(line, "\n")] = '\0';
        if (number == 1)
            wrong = strcmp(line, FIRST_LINE) == 0 ? NULL : "this is not a kernel table (emugpu cuda kernels writes one)";
        else if (line[0] != '\0' && line[0] != '#')
            wrong = take_line(line);
    }
    free(line);
    if (wrong == NULL && number == 0)
        wrong = "the file is empty";
    if (wrong != NULL)
        emu_log(1, "%s, line %d: %s", settings.kernel_table, number, wrong);
    return wrong == NULL;
}

bool kernel_table_read(void) {
    if (settings.kernel_table[0] == '\0')
        return true;
    FILE *file = fopen(settings.kernel_table, "re");
    if (file == NULL) {
        emu_log(1, "can't read the kernel table %s: %s", settings.kernel_table, strerror(errno));
        return false;
    }
    bool right = read_lines(file);
    fclose(file);
    if (right && table_count > 0)
        qsort(table, table_count, sizeof table[0], by_name);
    return right;
}

/* ---- look-ups ---- */

static const measured_kernel *named(char *name) {
    remove_blanks(name);
    measured_kernel wanted = {.name = name};
    return bsearch(&wanted, table, table_count, sizeof table[0], by_name);
}

const measured_kernel *kernel_table_find(const char *mangled_name) {
    if (table_count == 0)
        return NULL;
    char *name = demangled(mangled_name);
    if (name == NULL)
        name = strdup(mangled_name);
    const measured_kernel *found = name == NULL ? NULL : named(name);
    free(name);
    return found;
}

static double threads(const unsigned grid[3], const unsigned block[3]) {
    return (double)grid[0] * grid[1] * grid[2] * block[0] * block[1] * block[2];
}

/* Of other grids, the one that is nearest by its ratio counts, and its time without the fixed part grows with the threads. */
int64_t kernel_table_ns(const measured_kernel *kernel, const unsigned grid[3], const unsigned block[3], double fixed_ns) {
    double wanted = threads(grid, block);
    double nearest = 0, nearest_ns = 0;
    for (size_t i = 0; i < kernel->count; i++) {
        const measured_launch *known = &kernel->launches[i];
        if (memcmp(known->grid, grid, sizeof known->grid) == 0 && memcmp(known->block, block, sizeof known->block) == 0)
            return cost_in_ns(known->ns / 1e9);
        double ratio = wanted / threads(known->grid, known->block);
        double distance = ratio > 1 ? ratio : 1 / ratio;
        if (nearest == 0 || distance < (nearest > 1 ? nearest : 1 / nearest)) {
            nearest = ratio;
            nearest_ns = known->ns;
        }
    }
    double fixed = fixed_ns < nearest_ns ? fixed_ns : nearest_ns;
    return cost_in_ns((fixed + (nearest_ns - fixed) * nearest) / 1e9);
}
