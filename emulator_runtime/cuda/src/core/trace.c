/* A trace of what the devices did, in the format that chrome://tracing and Perfetto read ("Trace Event Format", complete events). */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *file;
static bool postponed; /* a forked child opens its own file when its first work ends */

static void close_trace(void) {
    pthread_mutex_lock(&core_lock);
    if (file != NULL) {
        fputs("{}]\n", file);
        fclose(file);
        file = NULL;
    }
    pthread_mutex_unlock(&core_lock);
}

static void open_file(int buffering) {
    char path[600];
    settings_file_name(settings.trace, path, sizeof path);
    file = fopen(path, "we");
    if (file == NULL) {
        emu_log(1, "can't write the trace %s", path);
        return;
    }
    setvbuf(file, NULL, buffering, BUFSIZ);
    fputs("[\n", file);
}

void trace_open(void) {
    if (settings.trace[0] == '\0')
        return;
    open_file(_IOFBF);
    atexit(close_trace);
}

void trace_forget(void) {
    file = NULL; /* not closed: that would write what the parent has buffered */
    postponed = strstr(settings.trace, "%p") != NULL;
}

bool trace_wanted(void) {
    if (postponed) {
        postponed = false;
        open_file(_IOLBF); /* such children often end by _exit, which writes nothing */
    }
    return file != NULL;
}

static void write_text(const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', file);
        if ((unsigned char)*text >= ' ')
            fputc(*text, file);
    }
}

void trace_work(const emu_stream *stream, const item *work, int64_t start_ns, int64_t end_ns) {
    fputs("{\"ph\":\"X\",\"name\":\"", file);
    write_text(work->name);
    fprintf(file, "\",\"pid\":%d,\"tid\":%llu,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"process\":%d,\"work_ns\":%lld", machine_index_of(stream->device),
            (unsigned long long)stream->id, (double)start_ns / 1e3, (double)(end_ns - start_ns) / 1e3, (int)getpid(),
            (long long)work->duration_ns);
    if (work->kind == ITEM_COPY)
        fprintf(file, ",\"bytes\":%zu", work->copy.width * work->copy.rows);
    const emu_work *described = &work->work;
    if (described->flops > 0 || described->bytes > 0)
        fprintf(file, ",\"kind\":%d,\"flops\":%.0f,\"bytes\":%.0f,\"precision\":%d", (int)described->kind, described->flops,
                described->bytes, (int)described->precision);
    if (described->columns > 0)
        fprintf(file, ",\"columns\":%.0f,\"depth\":%.0f", described->columns, described->depth);
    if (described->grid[0] > 0)
        fprintf(file, ",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u]", described->grid[0], described->grid[1], described->grid[2],
                described->block[0], described->block[1], described->block[2]);
    fputs("}},\n", file);
}
