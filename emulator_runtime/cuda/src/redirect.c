/* Lets a program find emugpu's libraries where it asks for NVIDIA's: an auditing library of the dynamic linker (LD_AUDIT, see
 * rtld-audit(7)).
 *
 * The linker asks `la_objsearch` before each attempt to open a library, whether it is needed by another library or opened by
 * dlopen, by its name or by an absolute path. If this file's directory has a library of that name, its path is the answer.
 * Wheels rename libraries that they bring along (libcudart.3eda8113.so.13); the inserted hash is left out.
 *
 * Every process of the environment loads this, shells and compilers included: it allocates nothing, prints nothing, and looks
 * into the file system only for names that begin as NVIDIA's do. */
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST_DIRECTORY = 1024, LONGEST_NAME = 128, HASH_DIGITS = 8 };

static const char own_file[] = "/libemugpu_redirect.so";
static char directory[LONGEST_DIRECTORY];

static bool is_redirected(const char *name) {
    static const char *const beginnings[] = {"libcu", "libnccl", "libnv", "libemugpu"};
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++) {
        if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* The bytes of "libcudart.3eda8113.so.13" that are a hash: from its dot or hyphen to before ".so"; 0 if there is none. */
static size_t hash_length(const char *place) {
    if (place[0] != '.' && place[0] != '-') {
        return 0;
    }
    if (strspn(place + 1, "0123456789abcdef") != HASH_DIGITS || strncmp(place + 1 + HASH_DIGITS, ".so", 3) != 0) {
        return 0;
    }
    return 1 + HASH_DIGITS;
}

/* Copies `name` without its hash to `to`; false if it is too long. */
static bool copy_name(char to[static LONGEST_NAME], const char *name) {
    size_t length = 0;
    while (*name != '\0') {
        name += hash_length(name);
        if (length == LONGEST_NAME - 1) {
            return false;
        }
        to[length++] = *name++;
    }
    to[length] = '\0';
    return true;
}

/* The directory of this library, by its entry in LD_AUDIT. (dladdr, which would know it, crashes here before glibc 2.34.) */
static const char *own_directory(size_t *length) {
    const char *entry = getenv("LD_AUDIT");
    while (entry != NULL && *entry != '\0') {
        size_t whole = strcspn(entry, ":");
        if (whole > strlen(own_file) && memcmp(entry + whole - strlen(own_file), own_file, strlen(own_file)) == 0) {
            *length = whole - strlen(own_file);
            return entry;
        }
        entry += whole + (entry[whole] == ':');
    }
    *length = 0;
    return NULL;
}

/* The directory that EMUGPU_CUDA_LIBRARIES names, else this library's own; empty if it is unknown or too long. */
static void find_directory(void) {
    const char *from = getenv("EMUGPU_CUDA_LIBRARIES");
    size_t length = from == NULL ? 0 : strlen(from);
    if (length == 0 || from[0] != '/') {
        from = own_directory(&length);
    }
    if (length > 0 && length < LONGEST_DIRECTORY && from[0] == '/') {
        memcpy(directory, from, length);
    }
}

__attribute__((visibility("default"))) unsigned la_version(unsigned version) {
    find_directory();
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

/* The linker holds its lock while it asks, and copies the answer.
 *
 * It asks first about the name as the program gives it (LA_SER_ORIG), then about each path that it tries. A name with a hash is
 * answered only then: the linker looks for a library's symbol versions by the name that the program needs, and adds that name to
 * a library which it has already loaded from the same file only if it comes to this file by searching (glibc 2.31 to 2.36; else
 * "Assertion `needed != NULL' failed"). As it then takes the path that it tried for the library's place, $ORIGIN isn't where the
 * core is, and so the core is redirected, too. */
__attribute__((visibility("default"))) char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag) {
    static char path[LONGEST_DIRECTORY + LONGEST_NAME];
    (void)cookie;
    const char *slash = strrchr(name, '/');
    const char *file = slash == NULL ? name : slash + 1;
    if (directory[0] == '\0' || !is_redirected(file)) {
        return (char *)name;
    }
    size_t length = strlen(directory);
    char *own_name = path + length + 1;
    memcpy(path, directory, length);
    path[length] = '/';
    if (!copy_name(own_name, file) || (flag == LA_SER_ORIG && slash == NULL && strcmp(own_name, file) != 0)) {
        return (char *)name;
    }
    return access(path, R_OK) == 0 ? path : (char *)name;
}
