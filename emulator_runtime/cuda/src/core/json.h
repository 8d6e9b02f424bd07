/* Reading the JSON of the protocol with the sharing manager: objects are short and are looked up by name, so nothing is built. */
#ifndef EMUGPU_JSON_H
#define EMUGPU_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All of these take a pointer into a zero-terminated text, where a value begins, or NULL, and answer NULL for what isn't there. */
const char *json_member(const char *object, const char *name);
const char *json_element(const char *array, int index);
int64_t json_integer(const char *value, int64_t otherwise);
bool json_true(const char *value);
/* The text without its escapes, cut to the room. False if `value` isn't a text. */
bool json_text(const char *value, char *text, size_t room);
/* `text` with escapes and quotes, for a message. */
void json_quote(const char *text, char *quoted, size_t room);

#endif
