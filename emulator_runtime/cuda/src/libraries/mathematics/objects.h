/* The live objects that a library handed out as handles.
 *
 * A handle is a pointer that comes back from the program; looking it up first means that a destroyed, foreign or random one is
 * answered by an error and never followed. One table for each library that is linked with objects.c; any thread.
 */
#ifndef EMUGPU_OBJECTS_H
#define EMUGPU_OBJECTS_H

#include <stdbool.h>
#include <stddef.h>

/* `kind` is the library's own number for what the object is. */
void *object_create(int kind, size_t bytes);          /* zeroed; NULL: no memory left */
void *object_find(int kind, const void *handle);      /* NULL: `handle` isn't a live object of this kind */
bool object_destroy(int kind, void *handle);          /* false: likewise */
bool object_forget(int kind, const void *handle);     /* no longer a handle, but its memory is kept: the caller frees it */

#endif
