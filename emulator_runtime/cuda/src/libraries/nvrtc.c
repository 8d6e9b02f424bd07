/* libnvrtc: "compiles" CUDA C++ to an image that names the kernels of the source and has no code, as emulated GPUs run none.
 *
 * The source is searched for `__global__` and not checked otherwise: a program with errors compiles. Programs keep images on disk
 * (PyTorch in ~/.cache/torch/kernels): the image claims a version of PTX that doesn't exist, so that a real GPU refuses it. */
#include "mathematics/objects.h"
#include "core.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum {
    NVRTC_SUCCESS = 0,
    NVRTC_OUT_OF_MEMORY = 1,
    NVRTC_INVALID_INPUT = 3,
    NVRTC_INVALID_PROGRAM = 4,
    NVRTC_COMPILATION = 6,
    NVRTC_NO_NAME_EXPRESSIONS_AFTER_COMPILATION = 8,
    NVRTC_NO_LOWERED_NAMES_BEFORE_COMPILATION = 9,
    NVRTC_NAME_EXPRESSION_NOT_VALID = 10,
    NVRTC_INTERNAL_ERROR = 11,
} nvrtc_status;

enum { PROGRAM = 1, VERSION_MINOR = CUDA_MAJOR == 12 ? 8 : 2 };

static const char HEAD[] = "// emugpu: the names of kernels, without their code\n.version 0.0\n.target sm_00\n.address_size 64\n";

typedef struct expression {
    struct expression *next;
    char *lowered;
    char text[];
} expression;

typedef struct {
    char *source;
    expression *expressions;
    char *image; /* NULL: not compiled yet */
    size_t image_bytes; /* with the zero at its end */
} program;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what programs point to */

EMU_EXPORT const char *nvrtcGetErrorString(int status) {
    static const char *const names[] = {
        "NVRTC_SUCCESS",
        "NVRTC_ERROR_OUT_OF_MEMORY",
        "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
        "NVRTC_ERROR_INVALID_INPUT",
        "NVRTC_ERROR_INVALID_PROGRAM",
        "NVRTC_ERROR_INVALID_OPTION",
        "NVRTC_ERROR_COMPILATION",
        "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
        "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
        "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
        "NVRTC_ERROR_INTERNAL_ERROR",
    };
    bool known = status >= 0 && (size_t)status < sizeof names / sizeof names[0];
    return known ? names[status] : "NVRTC_ERROR unknown";
}

EMU_EXPORT nvrtc_status nvrtcVersion(int *major, int *minor) {
    if (major == NULL || minor == NULL)
        return NVRTC_INVALID_INPUT;
    *major = CUDA_MAJOR;
    *minor = VERSION_MINOR;
    return NVRTC_SUCCESS;
}

/* ---- programs ---- */

EMU_EXPORT nvrtc_status nvrtcCreateProgram(
    void **handle, const char *source, const char *name, int headers, const char *const *header_sources,
    const char *const *header_names) {
    (void)name, (void)header_sources, (void)header_names;
    if (handle == NULL || source == NULL || headers < 0)
        return NVRTC_INVALID_INPUT;
    char *copy = strdup(source);
    program *created = copy == NULL ? NULL : object_create(PROGRAM, sizeof *created);
    if (created == NULL) {
        free(copy);
        return NVRTC_OUT_OF_MEMORY;
    }
    created->source = copy;
    *handle = created;
    return NVRTC_SUCCESS;
}

EMU_EXPORT nvrtc_status nvrtcDestroyProgram(void **handle) {
    program *destroyed = handle == NULL ? NULL : *handle;
    if (destroyed == NULL || !object_forget(PROGRAM, destroyed))
        return NVRTC_INVALID_PROGRAM;
    while (destroyed->expressions != NULL) {
        expression *first = destroyed->expressions;
        destroyed->expressions = first->next;
        free(first->lowered);
        free(first);
    }
    free(destroyed->source);
    free(destroyed->image);
    free(destroyed);
    *handle = NULL;
    return NVRTC_SUCCESS;
}

/* ---- names of kernels ---- */

static bool is_name(char letter) {
    return isalnum((unsigned char)letter) || letter == '_';
}

/* The end of the parentheses that begin at `at`. */
static const char *after_parentheses(const char *at) {
    int depth = 0;
    for (; *at != '\0'; at++) {
        depth += (*at == '(') - (*at == ')');
        if (depth == 0)
            return at + 1;
    }
    return at;
}

/* The name before the parameters: after `__global__ void __launch_bounds__(256) name(`, "name". */
static const char *kernel_name(const char *start, size_t *length) {
    static const char *const attributes[] = {"__launch_bounds__", "__attribute__", "__cluster_dims__", "__maxnreg__", "__block_size__"};
    const char *at = start;
    for (;;) {
        at += strcspn(at, "(;{");
        if (*at != '(')
            return NULL;
        const char *end = at;
        while (end > start && isspace((unsigned char)end[-1]))
            end--;
        const char *begin = end;
        while (begin > start && is_name(begin[-1]))
            begin--;
        *length = (size_t)(end - begin);
        bool is_attribute = false;
        for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++)
            is_attribute |= strlen(attributes[i]) == *length && strncmp(attributes[i], begin, *length) == 0;
        if (!is_attribute)
            return *length > 0 ? begin : NULL;
        at = after_parentheses(at);
    }
}

static void write_entry(FILE *image, const char *name, size_t length) {
    fprintf(image, ".visible .entry %.*s()\n{\nret;\n}\n", (int)length, name);
}

static bool write_image(program *compiled) {
    static const char word[] = "__global__";
    FILE *image = open_memstream(&compiled->image, &compiled->image_bytes);
    if (image == NULL)
        return false;
    fputs(HEAD, image);
    for (const char *at = strstr(compiled->source, word); at != NULL; at = strstr(at, word)) {
        at += sizeof word - 1;
        size_t length;
        const char *name = kernel_name(at, &length);
        if (name != NULL)
            write_entry(image, name, length);
    }
    for (const expression *each = compiled->expressions; each != NULL; each = each->next)
        write_entry(image, each->lowered, strlen(each->lowered));
    fputc('\0', image);
    bool complete = fclose(image) == 0;
    if (!complete) {
        free(compiled->image);
        compiled->image = NULL;
    }
    return complete;
}

/* A name for an instance of a template, such as "&scale<float, 4>": what isn't a letter or digit becomes "_". */
static char *lowered(const char *text) {
    text += strspn(text, "& \t\n");
    char *name = strdup(text);
    for (char *letter = name; letter != NULL && *letter != '\0'; letter++) {
        if (!is_name(*letter))
            *letter = '_';
    }
    return name;
}

EMU_EXPORT nvrtc_status nvrtcAddNameExpression(void *handle, const char *text) {
    program *changed = object_find(PROGRAM, handle);
    if (changed == NULL)
        return NVRTC_INVALID_PROGRAM;
    if (text == NULL || text[0] == '\0')
        return NVRTC_INVALID_INPUT;
    if (changed->image != NULL)
        return NVRTC_NO_NAME_EXPRESSIONS_AFTER_COMPILATION;
    expression *added = malloc(sizeof *added + strlen(text) + 1);
    char *name = lowered(text);
    if (added == NULL || name == NULL) {
        free(added);
        free(name);
        return NVRTC_OUT_OF_MEMORY;
    }
    strcpy(added->text, text);
    added->lowered = name;
    pthread_mutex_lock(&lock);
    added->next = changed->expressions;
    changed->expressions = added;
    pthread_mutex_unlock(&lock);
    return NVRTC_SUCCESS;
}

EMU_EXPORT nvrtc_status nvrtcGetLoweredName(void *handle, const char *text, const char **name) {
    const program *asked = object_find(PROGRAM, handle);
    if (asked == NULL)
        return NVRTC_INVALID_PROGRAM;
    if (text == NULL || name == NULL)
        return NVRTC_INVALID_INPUT;
    if (asked->image == NULL)
        return NVRTC_NO_LOWERED_NAMES_BEFORE_COMPILATION;
    for (const expression *each = asked->expressions; each != NULL; each = each->next) {
        if (strcmp(each->text, text) == 0) {
            *name = each->lowered;
            return NVRTC_SUCCESS;
        }
    }
    return NVRTC_NAME_EXPRESSION_NOT_VALID;
}

/* ---- images ---- */

EMU_EXPORT nvrtc_status nvrtcCompileProgram(void *handle, int count, const char *const *options) {
    program *compiled = object_find(PROGRAM, handle);
    if (compiled == NULL)
        return NVRTC_INVALID_PROGRAM;
    if (count < 0 || (count > 0 && options == NULL))
        return NVRTC_INVALID_INPUT;
    pthread_mutex_lock(&lock);
    bool done = compiled->image != NULL || write_image(compiled);
    pthread_mutex_unlock(&lock);
    return done ? NVRTC_SUCCESS : NVRTC_OUT_OF_MEMORY;
}

static nvrtc_status image_bytes(void *handle, size_t *bytes) {
    const program *asked = object_find(PROGRAM, handle);
    if (asked == NULL || asked->image == NULL)
        return NVRTC_INVALID_PROGRAM;
    if (bytes == NULL)
        return NVRTC_INVALID_INPUT;
    *bytes = asked->image_bytes;
    return NVRTC_SUCCESS;
}

static nvrtc_status copy_image(void *handle, char *to) {
    const program *asked = object_find(PROGRAM, handle);
    if (asked == NULL || asked->image == NULL)
        return NVRTC_INVALID_PROGRAM;
    if (to == NULL)
        return NVRTC_INVALID_INPUT;
    memcpy(to, asked->image, asked->image_bytes);
    return NVRTC_SUCCESS;
}

EMU_EXPORT nvrtc_status nvrtcGetPTXSize(void *handle, size_t *bytes) {
    return image_bytes(handle, bytes);
}

EMU_EXPORT nvrtc_status nvrtcGetPTX(void *handle, char *to) {
    return copy_image(handle, to);
}

/* The emulated driver takes the same image for a cubin. */
EMU_EXPORT nvrtc_status nvrtcGetCUBINSize(void *handle, size_t *bytes) {
    return image_bytes(handle, bytes);
}

EMU_EXPORT nvrtc_status nvrtcGetCUBIN(void *handle, char *to) {
    return copy_image(handle, to);
}

EMU_EXPORT nvrtc_status nvrtcGetProgramLogSize(void *handle, size_t *bytes) {
    if (object_find(PROGRAM, handle) == NULL)
        return NVRTC_INVALID_PROGRAM;
    if (bytes == NULL)
        return NVRTC_INVALID_INPUT;
    *bytes = 1;
    return NVRTC_SUCCESS;
}

EMU_EXPORT nvrtc_status nvrtcGetProgramLog(void *handle, char *to) {
    if (object_find(PROGRAM, handle) == NULL)
        return NVRTC_INVALID_PROGRAM;
    if (to == NULL)
        return NVRTC_INVALID_INPUT;
    to[0] = '\0';
    return NVRTC_SUCCESS;
}
