/* What a cubin (an ELF file with GPU code) says of its kernels and variables. */
#ifndef EMUGPU_CUBIN_H
#define EMUGPU_CUBIN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const char *name; /* in the image */
    int registers;
    int static_shared_bytes;
} cubin_kernel;

typedef struct {
    /* Called for each kernel and each variable; false ends the reading. */
    bool (*kernel)(void *state, const cubin_kernel *kernel);
    bool (*variable)(void *state, const char *name, size_t bytes);
    void *state;
} cubin_reader;

/* `bytes`: so many may be read of `image`; SIZE_MAX if that isn't known. False: it isn't an ELF file for 64 bits, or its tables are
 * wrong, or a function of the reader answered so. */
bool cubin_read(const void *image, size_t bytes, const cubin_reader *reader);

#endif
