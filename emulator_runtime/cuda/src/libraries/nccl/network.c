/* Connections between processes, served by one thread that starts with the first communicator.
 *
 * A stranger can connect to a listening socket and send anything. Until its greeting has been accepted it has a small buffer, ten
 * seconds, and 127 others beside it at most, of which the oldest one is closed for a further one.
 */
#include "network.h"

#include "coordinator.h"
#include "core.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_STRANGERS = 128, READ_BYTES = 256 << 10, EVENTS = 64, BACKLOG = 512, NS_PER_S = 1000000000 };
#define STRANGER_NS (10 * (int64_t)NS_PER_S)

pthread_mutex_t nccl_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t nccl_news;

static int poller = -1;
static net_address own_address;
static connection *connections, *closed_connections;

int64_t host_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* ---- addresses ---- */

static socklen_t to_system(const net_address *address, struct sockaddr_storage *system) {
    memset(system, 0, sizeof *system);
    if (address->family == AF_INET) {
        struct sockaddr_in *four = (struct sockaddr_in *)system;
        four->sin_family = AF_INET;
        four->sin_port = htons(address->port);
        memcpy(&four->sin_addr, address->bytes + 12, 4);
        return sizeof *four;
    }
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)system;
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(address->port);
    six->sin6_scope_id = address->scope;
    memcpy(&six->sin6_addr, address->bytes, 16);
    return sizeof *six;
}

static bool from_system(const struct sockaddr *system, net_address *address) {
    memset(address, 0, sizeof *address);
    address->family = system->sa_family;
    if (system->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)system;
        address->port = ntohs(four->sin_port);
        memcpy(address->bytes + 12, &four->sin_addr, 4);
        return true;
    }
    if (system->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)system;
        address->port = ntohs(six->sin6_port);
        address->scope = six->sin6_scope_id;
        memcpy(address->bytes, &six->sin6_addr, 16);
        return true;
    }
    return false;
}

bool parse_address(const char *text, net_address *address) {
    char host[256];
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text || (size_t)(colon - text) >= sizeof host)
        return false;
    size_t length = (size_t)(colon - text);
    memcpy(host, text, length);
    host[length] = '\0';
    char *name = host;
    if (host[0] == '[' && host[length - 1] == ']') {
        host[length - 1] = '\0';
        name++;
    }
    struct addrinfo *found, hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    if (getaddrinfo(name, colon + 1, &hints, &found) != 0)
        return false;
    bool known = from_system(found->ai_addr, address);
    freeaddrinfo(found);
    return known;
}

/* Whether NCCL_SOCKET_IFNAME allows an interface: prefixes, separated by commas; "=" asks for whole names, "^" excludes. */
static bool name_allowed(const char *interface, const char *rule) {
    bool excludes = *rule == '^';
    if (excludes)
        rule++;
    bool whole = *rule == '=';
    if (whole)
        rule++;
    while (*rule != '\0') {
        size_t length = strcspn(rule, ",");
        if (length > 0 && strncmp(interface, rule, length) == 0 && (!whole || interface[length] == '\0'))
            return !excludes;
        rule += length;
        rule += *rule == ',';
    }
    return excludes;
}

/* How well an interface's address suits; 0: not at all. */
static int address_rank(const struct ifaddrs *interface) {
    const char *rule = getenv("NCCL_SOCKET_IFNAME");
    const char *family = getenv("NCCL_SOCKET_FAMILY");
    if (interface->ifa_addr == NULL || !(interface->ifa_flags & IFF_UP))
        return 0;
    int kind = interface->ifa_addr->sa_family;
    if (kind != AF_INET && kind != AF_INET6)
        return 0;
    if (family != NULL && (strcmp(family, "AF_INET") == 0 || strcmp(family, "AF_INET6") == 0)
        && (strcmp(family, "AF_INET") == 0) != (kind == AF_INET))
        return 0;
    bool four = kind == AF_INET;
    if (rule != NULL && *rule != '\0')
        return name_allowed(interface->ifa_name, rule) ? 1 + four : 0;
    if (interface->ifa_flags & IFF_LOOPBACK)
        return 1 + four;
    if (strncmp(interface->ifa_name, "docker", 6) == 0)
        return 3 + four;
    return 5 + four;
}

static bool choose_address(net_address *address) {
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return false;
    int best = 0;
    for (const struct ifaddrs *each = all; each != NULL; each = each->ifa_next) {
        int rank = address_rank(each);
        if (rank > best && from_system(each->ifa_addr, address))
            best = rank;
    }
    freeifaddrs(all);
    address->port = 0;
    return best > 0;
}

static uint64_t mix(uint64_t number, const char *text) {
    for (; *text != '\0'; text++)
        number = (number ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return number;
}

uint64_t host_number(void) {
    char text[256] = "";
    uint64_t number = UINT64_C(0xcbf29ce484222325);
    const char *given = getenv("NCCL_HOSTID");
    if (given != NULL)
        return mix(number, given);
    gethostname(text, sizeof text - 1);
    number = mix(number, text);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL) {
        if (fgets(text, sizeof text, file) != NULL)
            number = mix(number, text);
        fclose(file);
    }
    return number;
}

/* ---- connections ---- */

static void watch(connection *link, int action) {
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = link};
    if (link->output_bytes > 0)
        wanted.events |= EPOLLOUT;
    epoll_ctl(poller, action, link->descriptor, &wanted);
}

connection *connection_add(int descriptor, const connection_role *role, void *owner) {
    connection *link = calloc(1, sizeof *link);
    if (link == NULL)
        return NULL;
    int yes = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
    link->descriptor = descriptor;
    link->role = role;
    link->owner = owner;
    link->next = connections;
    connections = link;
    watch(link, EPOLL_CTL_ADD);
    return link;
}

/* The object itself is freed by the network's thread, which may have an event for it in its hands. */
void connection_close(connection *link) {
    if (link->descriptor < 0)
        return;
    epoll_ctl(poller, EPOLL_CTL_DEL, link->descriptor, NULL);
    close(link->descriptor);
    link->descriptor = -1;
    connection **place = &connections;
    while (*place != link)
        place = &(*place)->next;
    *place = link->next;
    link->next = closed_connections;
    closed_connections = link;
}

static void lose(connection *link) {
    const connection_role *role = link->role;
    if (link->descriptor < 0)
        return;
    connection_close(link);
    role->closed(link);
}

static void free_closed(void) {
    while (closed_connections != NULL) {
        connection *link = closed_connections;
        closed_connections = link->next;
        free(link->input);
        free(link->output);
        free(link);
    }
}

static bool make_room(unsigned char **buffer, size_t *room, size_t wanted) {
    if (wanted <= *room)
        return true;
    size_t larger = *room < 4096 ? 4096 : *room;
    while (larger < wanted)
        larger *= 2;
    unsigned char *grown = realloc(*buffer, larger);
    if (grown == NULL)
        return false;
    *buffer = grown;
    *room = larger;
    return true;
}

static void append(connection *link, const void *data, size_t bytes) {
    memcpy(link->output + link->output_bytes, data, bytes);
    link->output_bytes += bytes;
}

/* Write what the socket takes. A broken connection is noticed when it is read. */
static void flush(connection *link) {
    size_t written = 0;
    while (written < link->output_bytes) {
        ssize_t bytes = send(link->descriptor, link->output + written, link->output_bytes - written, MSG_NOSIGNAL);
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes < 0)
            break;
        written += (size_t)bytes;
    }
    memmove(link->output, link->output + written, link->output_bytes - written);
    link->output_bytes -= written;
}

void connection_send(connection *link, frame_type type, const void *body, size_t bytes, const void *payload, size_t payload_bytes) {
    frame_header header = {.bytes = (uint32_t)(bytes + payload_bytes), .type = type};
    if (link->descriptor < 0)
        return;
    bool waiting = link->output_bytes > 0;
    if (!make_room(&link->output, &link->output_room, link->output_bytes + sizeof header + bytes + payload_bytes)) {
        shutdown(link->descriptor, SHUT_RDWR); /* a gap would be worse */
        return;
    }
    append(link, &header, sizeof header);
    append(link, body, bytes);
    if (payload_bytes > 0)
        append(link, payload, payload_bytes);
    if (waiting)
        return;
    flush(link);
    if (link->output_bytes > 0)
        watch(link, EPOLL_CTL_MOD);
}

/* ---- strangers ---- */

/* The only thing that a stranger may send. The coordinator takes the connection over, or closes it. */
static bool stranger_received(connection *link, frame_type type, const void *body, size_t bytes) {
    greeting_frame greeting;
    if (type != GREETING || bytes != sizeof greeting)
        return false;
    memcpy(&greeting, body, sizeof greeting);
    return greeting.magic == PROTOCOL_MAGIC && coordinator_greeted(link, &greeting);
}

static void stranger_closed(connection *link) {
    (void)link;
}

static const connection_role stranger = {stranger_received, stranger_closed};

static bool listener_received(connection *link, frame_type type, const void *body, size_t bytes) {
    (void)link;
    (void)type;
    (void)body;
    (void)bytes;
    return true;
}

static const connection_role listener = {listener_received, stranger_closed};

/* Close strangers whose time is over, and the oldest one if there are too many. New ones are at the head of the list. */
static void limit_strangers(int64_t now_ns) {
    int count = 0;
    for (connection *link = connections, *next; link != NULL; link = next) {
        next = link->next;
        if (link->role == &stranger && (++count > MAX_STRANGERS || link->deadline_ns < now_ns))
            connection_close(link);
    }
}

static void accept_strangers(connection *at) {
    for (;;) {
        int descriptor = accept4(at->descriptor, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (descriptor < 0)
            return;
        connection *link = connection_add(descriptor, &stranger, NULL);
        if (link == NULL) {
            close(descriptor);
            return;
        }
        link->deadline_ns = host_clock_ns() + STRANGER_NS;
        limit_strangers(host_clock_ns());
    }
}

/* ---- the thread ---- */

/* Handle the complete frames of the input; false: the connection is to be closed. */
static bool handle_input(connection *link) {
    size_t used = 0;
    frame_header header;
    while (link->descriptor >= 0 && link->input_bytes - used >= sizeof header) {
        memcpy(&header, link->input + used, sizeof header);
        size_t limit = link->role == &stranger ? sizeof(greeting_frame) : MAX_FRAME_BYTES;
        if (header.bytes > limit)
            return false;
        if (link->input_bytes - used - sizeof header < header.bytes)
            break;
        if (!link->role->received(link, (frame_type)header.type, link->input + used + sizeof header, header.bytes))
            return false;
        used += sizeof header + header.bytes;
    }
    memmove(link->input, link->input + used, link->input_bytes - used);
    link->input_bytes -= used;
    return true;
}

static void serve(connection *link, uint32_t events) {
    if (link->descriptor < 0)
        return;
    if (link->role == &listener) {
        accept_strangers(link);
        return;
    }
    if (events & EPOLLOUT) {
        flush(link);
        watch(link, EPOLL_CTL_MOD);
    }
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    size_t room = link->role == &stranger ? 4096 : READ_BYTES;
    if (!make_room(&link->input, &link->input_room, link->input_bytes + room)) {
        lose(link);
        return;
    }
    ssize_t bytes = recv(link->descriptor, link->input + link->input_bytes, room, MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (bytes > 0)
        link->input_bytes += (size_t)bytes;
    if (bytes <= 0 || !handle_input(link))
        lose(link);
}

static void *attend(void *unused) {
    struct epoll_event events[EVENTS];
    (void)unused;
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS, 1000);
        pthread_mutex_lock(&nccl_lock);
        for (int i = 0; i < count; i++)
            serve(events[i].data.ptr, events[i].events);
        limit_strangers(host_clock_ns());
        free_closed();
        pthread_cond_broadcast(&nccl_news);
        pthread_mutex_unlock(&nccl_lock);
        if (count > 0)
            emu_wake(); /* the ends of collectives may be known now */
    }
    return NULL;
}

/* A child of a fork (a data loader, say) has no such thread, and must not keep connections of its parent open. */
static void forget_connections(void) {
    for (connection *link = connections; link != NULL; link = link->next)
        close(link->descriptor);
    for (connection *link = connections; link != NULL; link = link->next)
        link->descriptor = -1;
    close(poller);
    poller = -1;
    connections = NULL;
    pthread_mutex_init(&nccl_lock, NULL);
}

static bool start_thread(void) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's */
    bool started = pthread_create(&thread, NULL, attend, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread);
    return started;
}

static bool listen_at(net_address *address) {
    struct sockaddr_storage system;
    socklen_t length = to_system(address, &system);
    int yes = 1;
    int descriptor = socket(address->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0)
        return false;
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(descriptor, (struct sockaddr *)&system, length) != 0 || listen(descriptor, BACKLOG) != 0
        || getsockname(descriptor, (struct sockaddr *)&system, &length) != 0) {
        close(descriptor);
        return false;
    }
    from_system((struct sockaddr *)&system, address);
    if (connection_add(descriptor, &listener, NULL) == NULL) {
        close(descriptor);
        return false;
    }
    return true;
}

bool network_running(void) {
    return poller >= 0;
}

bool network_listen(const net_address *address) {
    net_address copy = *address;
    return listen_at(&copy);
}

static void prepare_once(void) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&nccl_news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_atfork(NULL, NULL, forget_connections);
}

bool network_start(net_address *own) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (poller < 0) {
        net_address address;
        pthread_once(&once, prepare_once);
        if (!choose_address(&address))
            return false;
        poller = epoll_create1(EPOLL_CLOEXEC);
        if (poller < 0 || !listen_at(&address) || !start_thread()) {
            if (poller >= 0)
                close(poller);
            poller = -1;
            return false;
        }
        own_address = address;
    }
    *own = own_address;
    return true;
}

int network_connect(const net_address *address) {
    struct sockaddr_storage system;
    socklen_t length = to_system(address, &system);
    int yes = 1;
    int descriptor = socket(address->family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        return -1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(descriptor, (struct sockaddr *)&system, length) == 0)
        return descriptor;
    int cause = errno;
    close(descriptor);
    errno = cause;
    return -1;
}
