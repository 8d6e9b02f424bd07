/* What the node's sharing manager knows of a device: the answer to a `query` (docs/protocol.md), as nvidia-smi shows it.
 *
 * The answer is kept for a fifth of a second: a monitor asks for each fact of each device on its own, and the manager gives each
 * container a small part of a core.
 */
#include "telemetry.h"

#include "clock.h"
#include "internal.h"
#include "json.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_FRAME_BYTES = 256 << 10, WAIT_S = 2 };
#define KEPT_NS INT64_C(200000000)

_Static_assert(sizeof settings.manager == sizeof((struct sockaddr_un *)0)->sun_path, "a socket's path");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *answer; /* the last one; NULL: there was none */
static int64_t answered_ns = INT64_MIN;

static int connect_to_manager(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = WAIT_S};
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        return -1;
    memcpy(address.sun_path, settings.manager, sizeof address.sun_path);
    setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(descriptor, (struct sockaddr *)&address, sizeof address) == 0)
        return descriptor;
    close(descriptor);
    return -1;
}

static bool send_query(int descriptor) {
    char token[2 * sizeof settings.token + 3], frame[sizeof token + 64];
    json_quote(settings.token, token, sizeof token);
    int length = snprintf(frame + 4, sizeof frame - 4, "{\"op\": \"query\", \"token\": %s}", token);
    uint32_t size = htonl((uint32_t)length);
    memcpy(frame, &size, 4);
    return send(descriptor, frame, (size_t)length + 4, MSG_NOSIGNAL) == length + 4;
}

static bool read_bytes(int descriptor, void *into, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t got = recv(descriptor, (char *)into + done, bytes - done, 0);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static char *read_answer(int descriptor) {
    uint32_t size;
    if (!read_bytes(descriptor, &size, sizeof size) || ntohl(size) > MAX_FRAME_BYTES)
        return NULL;
    size_t bytes = ntohl(size);
    char *text = malloc(bytes + 1);
    if (text == NULL)
        return NULL;
    text[bytes] = '\0';
    if (read_bytes(descriptor, text, bytes) && json_true(json_member(text, "ok")))
        return text;
    free(text);
    return NULL;
}

static void ask(void) {
    free(answer);
    answer = NULL;
    int descriptor = connect_to_manager();
    if (descriptor < 0)
        return;
    if (send_query(descriptor))
        answer = read_answer(descriptor);
    close(descriptor);
}

/* The value of a JSON number with a fraction. */
static double real_number(const char *value) {
    return value == NULL ? 0 : strtod(value, NULL);
}

static void take_processes(const char *list, emu_device_use *use) {
    for (int i = 0; use->process_count < EMU_PROCESSES_SHOWN; i++) {
        const char *entry = json_element(list, i);
        if (entry == NULL)
            return;
        emu_process_use *process = &use->processes[use->process_count++];
        process->pid = json_integer(json_member(entry, "pid"), 0);
        process->memory_bytes = (size_t)json_integer(json_member(entry, "used_bytes"), 0);
        json_text(json_member(entry, "name"), process->name, sizeof process->name);
    }
}

static bool take_device(const char *uuid, emu_device_use *use) {
    const char *devices = json_member(answer, "devices");
    char found[sizeof((emu_device_info *)0)->uuid];
    for (int i = 0;; i++) {
        const char *entry = json_element(devices, i);
        if (entry == NULL)
            return false;
        if (!json_text(json_member(entry, "uuid"), found, sizeof found) || strcmp(found, uuid) != 0)
            continue;
        use->memory_bytes = (size_t)json_integer(json_member(entry, "used_bytes"), 0);
        use->utilisation = real_number(json_member(entry, "utilisation"));
        take_processes(json_member(entry, "processes"), use);
        return true;
    }
}

bool telemetry_read(const char *uuid, emu_device_use *use) {
    if (settings.manager[0] == '\0' || settings.token[0] == '\0')
        return false;
    pthread_mutex_lock(&lock);
    int64_t now_ns = host_ns();
    if (answered_ns == INT64_MIN || now_ns - answered_ns >= KEPT_NS) {
        ask();
        answered_ns = host_ns();
    }
    bool known = answer != NULL && take_device(uuid, use);
    pthread_mutex_unlock(&lock);
    return known;
}
