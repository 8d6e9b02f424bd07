/* The connections to the sharing manager of the node. */
#include "manager.h"

#include "clock.h"
#include "grant.h"
#include "internal.h"
#include "json.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    LONGEST_FRAME = 256 << 10,
    ANSWER_S = 30,            /* how long a manager that restarts may take */
    REPORT_NS = 50000000,
    PAUSE_NS = 100000000,     /* between two attempts to connect */
    MAIN = EMU_MAX_DEVICES    /* the place of the main session's connection */
};

typedef struct {
    int socket;               /* -1: not connected */
    char *received;           /* bytes that aren't a whole frame yet */
    size_t received_count;
    int answers_due;          /* requests that haven't been answered */
    bool last_ok;             /* of the last answer */
    bool refused;             /* the last answer was a no for good: another attempt would get the same */
    int64_t lost_ns;          /* host time since which there is no connection; 0: there is one, or it was complained about */
    char mode[32];
    bool entered;
    int64_t retry_ns;         /* host time of the next attempt to connect */
    size_t reserved_bytes;
    int64_t free_ns;          /* a device of the process's own is so from then on */
    int64_t from_ns, until_ns, work_ns; /* not yet reported */
    int64_t report_ns;        /* host time of the next report */
    int64_t reported_until_ns;
} connection;

static connection connections[EMU_MAX_DEVICES + 1];
static char process_name[48];
static int alarm_event = -1;
static bool running;
static bool beginning; /* a thread attaches the main session */

static bool managed(void) {
    return settings.manager[0] != '\0';
}

/* ---- frames ---- */

static void disconnect(connection *lost) {
    if (lost->socket >= 0)
        close(lost->socket);
    lost->socket = -1;
    lost->received_count = 0;
    lost->answers_due = 0;
    lost->last_ok = false;
    lost->refused = false;
    lost->lost_ns = host_ns();
    lost->retry_ns = lost->lost_ns + PAUSE_NS;
}

/* A frame is a length in network order and so many bytes of JSON. A manager that doesn't read for long loses the connection. */
static bool send_frame(connection *to, const char *json) {
    size_t length = strlen(json);
    unsigned char frame[2048 + 4];
    if (to->socket < 0 || length > sizeof frame - 4)
        return false;
    for (int i = 0; i < 4; i++)
        frame[i] = (unsigned char)(length >> (24 - 8 * i));
    memcpy(frame + 4, json, length);
    ssize_t sent = send(to->socket, frame, length + 4, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == (ssize_t)(length + 4))
        return true;
    disconnect(to);
    return false;
}

static void device_lost(int device, const char *why) {
    if (device == MAIN || devices[device].lost)
        return;
    devices[device].lost = true;
    grant_forget(device);
    emu_log(1, "device %d is lost: %s", device, why);
}

/* ---- what the manager says ---- */

static void take_mode(connection *to, const char *object) {
    json_text(json_member(object, "mode"), to->mode, sizeof to->mode);
    if (strcmp(to->mode, "exclusive") == 0)
        grant_forget((int)(to - connections)); /* nobody will answer what was asked */
}

static void take_notification(int device, const char *frame, const char *operation) {
    char text[256];
    if (strcmp(operation, "piece") == 0 && device != MAIN) {
        grant_answer(device, json_integer(json_member(frame, "sequence"), -1), json_integer(json_member(frame, "start_ns"), 0),
                     json_integer(json_member(frame, "end_ns"), 0));
    } else if (strcmp(operation, "mode") == 0 && device != MAIN) {
        take_mode(&connections[device], frame);
        emu_log(2, "device %d: %s", device, connections[device].mode);
    } else if (strcmp(operation, "lost") == 0) {
        json_text(json_member(frame, "error"), text, sizeof text);
        device_lost(device, text);
    } else if (strcmp(operation, "stop") == 0) {
        emu_log(1, "the job is asked to stop");
    }
}

/* A scheduler may have given the container another device than the settings file says, as long as nobody had attached. */
static void take_uuid(const connection *to, const char *device) {
    char uuid[sizeof settings.devices[0].uuid];
    int place = (int)(to - connections);
    if (place == MAIN || !json_text(json_member(device, "uuid"), uuid, sizeof uuid) || strcmp(uuid, settings.devices[place].uuid) == 0)
        return;
    emu_log(2, "device %d is %s", place, uuid);
    device_rename(place, uuid);
}

/* What an answer to `attach` says more than others. */
static void take_attachment(connection *to, const char *frame) {
    const char *device = json_element(json_member(frame, "devices"), 0);
    if (device != NULL) {
        take_mode(to, device);
        take_uuid(to, device);
    }
    to->free_ns = json_integer(json_member(frame, "free_ns"), to->free_ns);
    char state[32];
    if (json_text(json_member(frame, "ended"), state, sizeof state)) { /* the container's run hasn't begun, or is over */
        to->last_ok = false;
        to->refused = strcmp(state, "finished") != 0 && strcmp(state, "released") != 0; /* another run may begin after these */
    }
}

/* The answer to the oldest request that has none. */
static void take_result(connection *from, bool ok) {
    from->last_ok = ok;
    from->answers_due -= from->answers_due > 0;
}

/* An error names what it is about: demands and reports are answered by errors only. */
static void take_error(int device, const char *frame) {
    connection *from = &connections[device];
    char code[32], error[256], about[20];
    json_text(json_member(frame, "code"), code, sizeof code);
    json_text(json_member(frame, "error"), error, sizeof error);
    json_text(json_member(frame, "about"), about, sizeof about);
    bool demanded = strcmp(about, "demand") == 0;
    bool answer = !demanded && strcmp(about, "report") != 0;
    if (answer) {
        take_result(from, false);
        from->refused = strcmp(code, "manager-unavailable") != 0 && strcmp(code, "out-of-memory") != 0;
    }
    if (strcmp(code, "device-lost") == 0 || (demanded && grant_asked(device)))
        device_lost(device, error); /* a demand that is refused has no other answer */
    emu_log(answer ? 2 : 1, "the sharing manager: %s: %s", code, error);
}

static void take_answer(int device, const char *frame) {
    if (!json_true(json_member(frame, "ok"))) {
        take_error(device, frame);
        return;
    }
    take_result(&connections[device], true);
    take_attachment(&connections[device], frame);
}

static void take_frame(int device, const char *frame) {
    char operation[16];
    if (json_text(json_member(frame, "op"), operation, sizeof operation))
        take_notification(device, frame, operation);
    else
        take_answer(device, frame);
    pthread_cond_broadcast(&core_progress);
}

static size_t length_at(const char *bytes) {
    const unsigned char *at = (const unsigned char *)bytes;
    return (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
}

/* Read what there is, without waiting. False: the connection has ended. */
static bool receive(int device) {
    connection *from = &connections[device];
    if (from->received == NULL)
        from->received = malloc(LONGEST_FRAME + 5);
    if (from->received == NULL)
        return false;
    for (;;) {
        ssize_t count = recv(from->socket, from->received + from->received_count, LONGEST_FRAME + 4 - from->received_count, MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (count <= 0)
            return false;
        from->received_count += (size_t)count;
        size_t done = 0;
        while (from->received_count - done >= 4) {
            size_t length = length_at(from->received + done);
            if (length > LONGEST_FRAME)
                return false;
            if (from->received_count - done < length + 4)
                break;
            char *end = from->received + done + 4 + length;
            char saved = *end;
            *end = '\0';
            take_frame(device, from->received + done + 4);
            *end = saved;
            done += length + 4;
            if (from->socket < 0)
                return false;
        }
        memmove(from->received, from->received + done, from->received_count - done);
        from->received_count -= done;
    }
}

/* ---- connecting ---- */

static int open_socket(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, settings.manager);
    int opened = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); /* a full queue of the manager's is "not yet" */
    if (opened >= 0 && connect(opened, (struct sockaddr *)&address, sizeof address) != 0) {
        close(opened);
        return -1;
    }
    return opened;
}

static void pause_unlocked(int64_t ns) {
    struct timespec time = {0, ns};
    pthread_mutex_unlock(&core_lock);
    nanosleep(&time, NULL);
    pthread_mutex_lock(&core_lock);
}

/* Wait for the next answer on this connection; other threads may go on. False: none came in time, or the connection was lost. */
static bool await_answer(int device) {
    connection *from = &connections[device];
    int64_t give_up_ns = host_ns() + (int64_t)ANSWER_S * 1000000000;
    while (from->socket >= 0 && from->answers_due > 0 && host_ns() < give_up_ns) {
        struct pollfd readable = {.fd = from->socket, .events = POLLIN};
        pthread_mutex_unlock(&core_lock);
        poll(&readable, 1, 5); /* another thread may read the answer */
        pthread_mutex_lock(&core_lock);
        if (from->socket >= 0 && from->answers_due > 0 && !receive(device))
            disconnect(from);
    }
    return from->socket >= 0 && from->answers_due == 0 && from->last_ok;
}

static bool request(int device, const char *json) {
    if (!send_frame(&connections[device], json))
        return false;
    connections[device].answers_due++;
    return true;
}

static void attach_message(int device, char *json, size_t room) {
    char token[2 * sizeof settings.token];
    json_quote(settings.token, token, sizeof token);
    if (device == MAIN)
        snprintf(json, room, "{\"op\":\"attach\",\"version\":3,\"token\":%s,\"devices\":[]}", token);
    else
        snprintf(json, room, "{\"op\":\"attach\",\"version\":3,\"token\":%s,\"session\":\"%s %d\",\"devices\":[%d]}", token, process_name,
                 machine_index_of(device), machine_index_of(device));
}

static bool send_reservation(int device) {
    char json[256];
    snprintf(json, sizeof json, "{\"op\":\"reserve\",\"persistent_bytes\":%zu,\"peak_bytes\":%zu,\"measured\":true}",
             connections[device].reserved_bytes, connections[device].reserved_bytes);
    return request(device, json);
}

/* Connect and attach, and wait for the answer. `refused`: there was one, and it was a no for good. */
static bool attach(int device, bool *refused) {
    connection *to = &connections[device];
    char json[1024];
    *refused = false;
    to->socket = open_socket();
    if (to->socket < 0)
        return false;
    attach_message(device, json, sizeof json);
    if (!request(device, json))
        return false;
    bool answered = await_answer(device);
    *refused = !answered && to->socket >= 0 && to->answers_due == 0 && to->refused;
    if (answered)
        to->lost_ns = 0;
    else if (to->socket >= 0)
        disconnect(to);
    return answered;
}

/* ---- the thread ---- */

/* Report what the device has done until now and hasn't been reported. */
static void report(int device) {
    connection *to = &connections[device];
    int64_t now_ns = emu_now_ns();
    int64_t from_ns = to->from_ns > to->reported_until_ns ? to->from_ns : to->reported_until_ns;
    int64_t until_ns = to->until_ns < now_ns ? to->until_ns : now_ns;
    int64_t work_ns = to->work_ns < until_ns - from_ns ? to->work_ns : until_ns - from_ns;
    char json[256];
    to->report_ns = host_ns() + REPORT_NS;
    if (work_ns > 0) {
        snprintf(json, sizeof json, "{\"op\":\"report\",\"from_ns\":%lld,\"until_ns\":%lld,\"work_ns\":%lld}", (long long)from_ns,
                 (long long)until_ns, (long long)work_ns);
        if (!send_frame(to, json))
            return; /* reported when the manager is back */
        to->reported_until_ns = until_ns;
        to->work_ns -= work_ns;
    }
    if (until_ns == to->until_ns)
        to->work_ns = 0;
}

static void complain(connection *about) {
    if (about->lost_ns == 0 || host_ns() - about->lost_ns < (int64_t)ANSWER_S * 1000000000)
        return;
    emu_log(1, "the sharing manager at %s hasn't answered for %d s; work on shared devices waits for it", settings.manager, ANSWER_S);
    about->lost_ns = 0;
}

static void connect_again(int device) {
    bool refused;
    int64_t lost_ns = connections[device].lost_ns;
    if (!attach(device, &refused)) {
        if (refused && device != MAIN)
            device_lost(device, "the sharing manager refuses this process");
        connections[device].retry_ns = host_ns() + PAUSE_NS;
        connections[device].lost_ns = lost_ns;
        complain(&connections[device]);
        return;
    }
    emu_log(2, "connected again to the sharing manager");
    if (device != MAIN) {
        send_reservation(device);
        grant_repeat(device);
    }
}

/* How long nothing needs to be done, in milliseconds; -1: until something happens. */
static int idle_ms(void) {
    int wait = -1;
    for (int i = 0; i <= MAIN; i++) {
        if (connections[i].entered && (connections[i].socket < 0 || connections[i].work_ns > 0))
            wait = REPORT_NS / 1000000;
    }
    return wait;
}

static void serve_connections(const struct pollfd *ready, const int *places, int count) {
    for (int i = 0; i < count; i++) {
        connection *from = &connections[places[i]];
        if (ready[i].revents != 0 && from->socket == ready[i].fd && !receive(places[i]))
            disconnect(from);
    }
    for (int i = 0; i <= MAIN; i++) {
        if (!connections[i].entered)
            continue;
        if (connections[i].socket < 0 && host_ns() >= connections[i].retry_ns)
            connect_again(i);
        if (connections[i].work_ns > 0 && host_ns() >= connections[i].report_ns)
            report(i);
    }
    streams_resolve();
}

static void *serve(void *unused) {
    (void)unused;
    pthread_mutex_lock(&core_lock);
    for (;;) {
        struct pollfd ready[EMU_MAX_DEVICES + 2];
        int places[EMU_MAX_DEVICES + 1];
        int count = 0;
        for (int i = 0; i <= MAIN; i++) {
            if (connections[i].entered && connections[i].socket >= 0) {
                ready[count] = (struct pollfd){.fd = connections[i].socket, .events = POLLIN};
                places[count++] = i;
            }
        }
        ready[count] = (struct pollfd){.fd = alarm_event, .events = POLLIN};
        int timeout_ms = idle_ms();
        pthread_mutex_unlock(&core_lock);
        poll(ready, (nfds_t)count + 1, timeout_ms);
        uint64_t alarms;
        if (ready[count].revents != 0 && read(alarm_event, &alarms, sizeof alarms) < 0)
            alarms = 0; /* another thread has read it */
        pthread_mutex_lock(&core_lock);
        serve_connections(ready, places, count);
    }
    return NULL;
}

static void ring(void) {
    uint64_t one = 1;
    if (write(alarm_event, &one, sizeof one) < 0)
        return; /* the counter is full: the thread will wake anyway */
}

static bool start_serving(void) {
    if (running)
        return true;
    unsigned noise = 0;
    if (getrandom(&noise, sizeof noise, 0) != sizeof noise)
        noise = (unsigned)host_ns();
    snprintf(process_name, sizeof process_name, "cuda %d %08x", (int)getpid(), noise);
    for (int i = 0; i <= MAIN; i++)
        connections[i].socket = -1;
    alarm_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    running = alarm_event >= 0 && thread_start(serve);
    return running;
}

/* ---- what the core asks for ---- */

/* Attach the main session, unless this process or another one of the container has it. One thread does it, others wait. */
static void begin_run(int64_t give_up_ns) {
    while (beginning)
        pthread_cond_wait(&core_progress, &core_lock);
    beginning = true;
    bool refused = false;
    while (!connections[MAIN].entered && !attach(MAIN, &refused) && !refused && host_ns() < give_up_ns)
        pause_unlocked(PAUSE_NS);
    connections[MAIN].entered = connections[MAIN].entered || connections[MAIN].socket >= 0;
    beginning = false;
    pthread_cond_broadcast(&core_progress);
}

void manager_finish(void) {
    pthread_mutex_lock(&core_lock);
    for (int device = 0; running && device < settings.device_count; device++) {
        if (connections[device].entered && connections[device].work_ns > 0)
            report(device);
    }
    pthread_mutex_unlock(&core_lock);
}

void manager_forget(void) {
    for (int i = 0; running && i <= MAIN; i++) {
        if (connections[i].socket >= 0)
            close(connections[i].socket);
        connections[i] = (connection){.socket = -1};
    }
    running = beginning = false;
}

bool manager_enter(int device) {
    if (!managed())
        return true;
    if (!start_serving())
        return false;
    int64_t give_up_ns = host_ns() + (int64_t)ANSWER_S * 1000000000;
    begin_run(give_up_ns);
    bool refused = false;
    while (!attach(device, &refused) && !refused && host_ns() < give_up_ns)
        pause_unlocked(PAUSE_NS / 2);
    if (connections[device].socket < 0) {
        emu_log(1, "device %d: the sharing manager at %s doesn't admit this process", device, settings.manager);
        return false;
    }
    connections[device].entered = true;
    engine_take(&devices[device].compute, 0, connections[device].free_ns, &(int64_t){0});
    ring();
    return true;
}

bool manager_reserve(int device, size_t bytes) {
    connection *to = &connections[device];
    if (!managed() || !to->entered)
        return true;
    size_t before = to->reserved_bytes;
    to->reserved_bytes = bytes;
    if (to->socket < 0 || !send_reservation(device))
        return true; /* sent when the manager is back */
    if (bytes <= before || await_answer(device) || to->socket < 0) /* the answer to less isn't waited for */
        return true;
    to->reserved_bytes = before;
    send_reservation(device);
    return false;
}

bool manager_accounts(int device) {
    return connections[device].entered;
}

bool manager_shares(int device) {
    const connection *to = &connections[device];
    return to->entered && strcmp(to->mode, "exclusive") != 0;
}

void manager_worked(int device, int64_t start_ns, int64_t end_ns, int64_t work_ns) {
    connection *to = &connections[device];
    if (!to->entered)
        return;
    bool first = to->work_ns == 0;
    to->from_ns = first || start_ns < to->from_ns ? start_ns : to->from_ns;
    to->until_ns = end_ns > to->until_ns ? end_ns : to->until_ns;
    to->work_ns += work_ns;
    if (!first)
        return;
    to->report_ns = host_ns() + REPORT_NS;
    ring();
}

void manager_demand(int device, int64_t sequence, int64_t ready_ns, int64_t work_ns) {
    connection *to = &connections[device];
    char json[320], uuid[2 * sizeof settings.devices[0].uuid];
    json_quote(settings.devices[device].uuid, uuid, sizeof uuid);
    snprintf(json, sizeof json, "{\"op\":\"demand\",\"resource\":%s,\"sequence\":%lld,\"ready_ns\":%lld,\"work_ns\":%lld}", uuid,
             (long long)sequence, (long long)ready_ns, (long long)work_ns);
    send_frame(to, json);
}
