/* Reading JSON without building anything. */
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 16 };

static const char *past_blanks(const char *at) {
    return at + strspn(at, " \t\r\n");
}

/* Behind the text that begins at the quote `at`; NULL: it has no end. */
static const char *past_text(const char *at) {
    for (at++; *at != '"'; at++) {
        if (*at == '\\' && at[1] != '\0')
            at++;
        else if (*at == '\0')
            return NULL;
    }
    return at + 1;
}

/* Behind the value that begins at `at`; NULL: it has no end, or is nested too deeply. */
static const char *past_value(const char *at, int depth) {
    at = past_blanks(at);
    if (*at == '"')
        return past_text(at);
    if (*at != '{' && *at != '[') {
        size_t length = strcspn(at, ",]} \t\r\n");
        return length > 0 ? at + length : NULL;
    }
    if (depth == DEEPEST)
        return NULL;
    bool object = *at == '{';
    char last = object ? '}' : ']';
    at = past_blanks(at + 1);
    if (*at == last)
        return at + 1;
    for (;;) {
        if (object) {
            at = past_value(at, depth + 1);
            at = at == NULL ? NULL : past_blanks(at);
            if (at == NULL || *at != ':')
                return NULL;
            at++;
        }
        at = past_value(at, depth + 1);
        at = at == NULL ? NULL : past_blanks(at);
        if (at == NULL || (*at != ',' && *at != last))
            return NULL;
        if (*at == last)
            return at + 1;
        at = past_blanks(at + 1);
    }
}

const char *json_member(const char *object, const char *name) {
    if (object == NULL)
        return NULL;
    const char *at = past_blanks(object);
    if (*at != '{')
        return NULL;
    at = past_blanks(at + 1);
    while (*at == '"') {
        char found[64];
        const char *value = past_text(at);
        json_text(at, found, sizeof found);
        value = value == NULL ? NULL : past_blanks(value);
        if (value == NULL || *value != ':')
            return NULL;
        value = past_blanks(value + 1);
        if (strcmp(found, name) == 0)
            return value;
        at = past_value(value, 0);
        at = at == NULL ? "" : past_blanks(at);
        if (*at == ',')
            at = past_blanks(at + 1);
    }
    return NULL;
}

const char *json_element(const char *array, int index) {
    if (array == NULL)
        return NULL;
    const char *at = past_blanks(array);
    if (*at != '[')
        return NULL;
    at = past_blanks(at + 1);
    for (; *at != ']'; index--) {
        if (index == 0)
            return at;
        at = past_value(at, 0);
        at = at == NULL ? NULL : past_blanks(at);
        if (at == NULL || *at != ',')
            return NULL;
        at = past_blanks(at + 1);
    }
    return NULL;
}

int64_t json_integer(const char *value, int64_t otherwise) {
    if (value == NULL)
        return otherwise;
    char *end;
    long long found = strtoll(value, &end, 10);
    return end == value ? otherwise : found;
}

bool json_true(const char *value) {
    return value != NULL && strncmp(value, "true", 4) == 0;
}

bool json_text(const char *value, char *text, size_t room) {
    text[0] = '\0';
    if (value == NULL || *value != '"')
        return false;
    size_t length = 0;
    for (const char *at = value + 1; *at != '"' && *at != '\0' && length + 1 < room; at++) {
        if (*at == '\\' && at[1] != '\0')
            at++; /* names and numbers have no other escapes than of quotes; a line's end becomes an n */
        text[length++] = *at;
    }
    text[length] = '\0';
    return true;
}

void json_quote(const char *text, char *quoted, size_t room) {
    size_t length = 0;
    quoted[length++] = '"';
    for (; *text != '\0' && length + 8 < room; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\')
            quoted[length++] = '\\';
        if (byte >= ' ')
            quoted[length++] = *text;
        else
            length += (size_t)snprintf(quoted + length, 7, "\\u%04x", byte);
    }
    quoted[length++] = '"';
    quoted[length] = '\0';
}
