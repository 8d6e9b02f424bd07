/* What the core says to the person who runs the program. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { REPORTED = 1024 };

static const char *reported[REPORTED];
static int reported_count;

void emu_log(int level, const char *format, ...) {
    if (level > settings.log_level)
        return;
    char line[512];
    int prefix = snprintf(line, sizeof line, "emugpu[%d]: ", (int)getpid());
    va_list values;
    va_start(values, format);
    vsnprintf(line + prefix, sizeof line - (size_t)prefix - 1, format, values);
    va_end(values);
    strcat(line, "\n");
    if (write(STDERR_FILENO, line, strlen(line)) < 0)
        return; /* there is nobody to say it to */
}

void emu_unsupported(const char *library, const char *function) {
    emu_machine_start(); /* reads how much is to be said */
    pthread_mutex_lock(&core_lock);
    bool first = true;
    for (int i = 0; i < reported_count && first; i++)
        first = strcmp(reported[i], function) != 0;
    if (first && reported_count < REPORTED)
        reported[reported_count++] = function;
    pthread_mutex_unlock(&core_lock);
    if (first)
        emu_log(1, "not supported: %s (%s)", function, library);
}
