/* SPDX-License-Identifier: MIT */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <unistd.h>

#include "fabric/private.h"
#include "util/cleanup.h"

/* A link-local address with an interface that is not there: neither more nor less is wrong with it. */
static bool socket_lacks_interface(const char *text) {
        const char *scope = strchr(text, '%');
        char plain[FABRIC_ADDRESS_MAX + 1];
        struct in6_addr address;

        if (!scope || strlen(scope + 1) == 0 || strlen(scope + 1) >= IF_NAMESIZE || if_nametoindex(scope + 1) != 0)
                return false;
        snprintf(plain, sizeof(plain), "%.*s", (int)(scope - text), text);
        return inet_pton(AF_INET6, plain, &address) == 1 && IN6_IS_ADDR_LINKLOCAL(&address);
}

int socket_address(const char *text, uint16_t port, struct sockaddr_storage *ret_address) {
        const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
        struct addrinfo *found = NULL;
        char service[8];

        snprintf(service, sizeof(service), "%u", port);
        if (strlen(text) > FABRIC_ADDRESS_MAX)
                return -EINVAL;
        if (getaddrinfo(text, service, &hints, &found) != 0)
                return socket_lacks_interface(text) ? -ENODEV : -EINVAL;
        *ret_address = (struct sockaddr_storage){0};
        memcpy(ret_address, found->ai_addr, found->ai_addrlen);
        freeaddrinfo(found);
        return 0;
}

socklen_t socket_length(const struct sockaddr_storage *address) {
        return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

void socket_text(const struct sockaddr_storage *address, char ret_text[FABRIC_ADDRESS_MAX + 1], uint16_t *ret_port) {
        char service[8] = "0";

        if (getnameinfo((const struct sockaddr *)address, socket_length(address), ret_text, FABRIC_ADDRESS_MAX + 1,
                        service, sizeof(service), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
                snprintf(ret_text, FABRIC_ADDRESS_MAX + 1, "?");
        *ret_port = (uint16_t)strtoul(service, NULL, 10);
}

bool socket_is_loopback(const struct sockaddr_storage *address) {
        if (address->ss_family == AF_INET) {
                const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;

                return ntohl(in->sin_addr.s_addr) >> 24 == 127;
        }
        return address->ss_family == AF_INET6 &&
               IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

void socket_tune(int fd, uint64_t deadline_ns) {
        unsigned int timeout_ms = (unsigned int)(deadline_ns / 1000000u);
        int one = 1;

        /* Without these it works all the same, only later. */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

void socket_class(const struct fabric_rail *rail, int fd, enum fabric_class class) {
        int tos = rail->dscp[class] << 2;

        if (tos == 0)
                return;
        if (rail->address.ss_family == AF_INET6)
                (void)setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof(tos));
        else
                (void)setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
}

/* Of the rail's family, bound to its device if there is one. */
static int socket_new(const struct fabric_rail *rail, int *ret_fd) {
        int fd = socket(rail->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return -errno;
        if (rail->device[0] &&
            setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, rail->device, (socklen_t)strlen(rail->device)) < 0 &&
            errno != EPERM) { /* permitted to few; the address then has to do */
                int r = -errno;

                close(fd);
                return r;
        }
        *ret_fd = fd;
        return 0;
}

int socket_listen(const struct fabric_rail *rail, struct sockaddr_storage *ret_address, int *ret_fd) {
        _cleanup_close_ int fd = -1;
        struct sockaddr_storage address = {0};
        socklen_t size = sizeof(address);
        int one = 1, r;

        r = socket_new(rail, &fd);
        if (r)
                return r;
        if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
            bind(fd, (const struct sockaddr *)&rail->address, socket_length(&rail->address)) < 0 ||
            listen(fd, 128) < 0 || getsockname(fd, (struct sockaddr *)&address, &size) < 0)
                return -errno;
        *ret_address = address;
        *ret_fd = fd;
        fd = -1;
        return 0;
}

int socket_dial(const struct fabric_rail *rail, const struct sockaddr_storage *to, int *ret_fd) {
        _cleanup_close_ int fd = -1;
        struct sockaddr_storage from = rail->address;
        int one = 1, r;

        if (to->ss_family != from.ss_family)
                return -EAFNOSUPPORT;
        r = socket_new(rail, &fd);
        if (r)
                return r;
        if (from.ss_family == AF_INET6)
                ((struct sockaddr_in6 *)(void *)&from)->sin6_port = 0;
        else
                ((struct sockaddr_in *)(void *)&from)->sin_port = 0;
        /* Ports are then chosen for the pair of addresses, not for ours alone. */
        (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
        if (bind(fd, (const struct sockaddr *)&from, socket_length(&from)) < 0)
                return -errno;
        if (connect(fd, (const struct sockaddr *)to, socket_length(to)) < 0 && errno != EINPROGRESS)
                return -errno;
        *ret_fd = fd;
        fd = -1;
        return 0;
}
