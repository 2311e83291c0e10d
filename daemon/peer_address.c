/* SPDX-License-Identifier: MIT */
#include "daemon/peer_address.h"

#include "util/parse.h"
#include <arpa/inet.h>
#include <errno.h>
#include <event2/util.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int peer_address_split(const char *address, char host[PEER_ADDRESS_MAX], uint16_t *ret_port) {
        const char *colon = strrchr(address, ':'), *first = address;
        size_t length;
        uint32_t port;

        if (!colon || parse_u32(colon + 1, &port) < 0 || port > UINT16_MAX)
                return -EINVAL;
        length = (size_t)(colon - address);
        if (address[0] == '[') {
                if (length < 3 || address[length - 1] != ']')
                        return -EINVAL;
                first++;
                length -= 2;
        } else if (memchr(address, ':', length)) {
                return -EINVAL; /* which colon? */
        }
        if (length == 0 || length >= PEER_ADDRESS_MAX || strlen(address) >= PEER_ADDRESS_MAX)
                return -EINVAL;
        for (size_t i = 0; i < length; i++)
                if (first[i] <= ' ' || first[i] >= 0x7f || strchr("[]/", first[i]))
                        return -EINVAL;
        memcpy(host, first, length);
        host[length] = '\0';
        *ret_port = (uint16_t)port;
        return 0;
}

int peer_address_parse(const char *address, struct sockaddr_storage *ret_address, int *ret_size) {
        struct sockaddr_storage parsed = {0};
        char host[PEER_ADDRESS_MAX];
        int size = (int)sizeof(parsed);
        uint16_t port;

        if (peer_address_split(address, host, &port) < 0)
                return -EINVAL;
        if (port == 0) { /* libevent takes no port 0 */
                struct sockaddr_in *v4 = (struct sockaddr_in *)&parsed;
                struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&parsed;

                if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
                        v4->sin_family = AF_INET;
                        size = (int)sizeof(*v4);
                } else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
                        v6->sin6_family = AF_INET6;
                        size = (int)sizeof(*v6);
                } else {
                        return -EINVAL;
                }
        } else if (evutil_parse_sockaddr_port(address, (struct sockaddr *)&parsed, &size) < 0) {
                return -EINVAL;
        }
        *ret_address = parsed;
        *ret_size = size;
        return 0;
}

int peer_address_host(const char *address, struct in6_addr *ret_host) {
        char host[PEER_ADDRESS_MAX];
        struct in_addr v4;
        uint16_t port;

        if (peer_address_split(address, host, &port) < 0)
                return -EINVAL;
        host[strcspn(host, "%")] = '\0';
        if (inet_pton(AF_INET6, host, ret_host) == 1)
                return 0;
        if (inet_pton(AF_INET, host, &v4) != 1)
                return -EINVAL;
        memset(ret_host, 0, sizeof(*ret_host));
        ret_host->s6_addr[10] = ret_host->s6_addr[11] = 0xff;
        memcpy(ret_host->s6_addr + 12, &v4, sizeof(v4));
        return 0;
}

void peer_address_format(const struct sockaddr *address, char out[PEER_ADDRESS_MAX]) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
        char host[INET6_ADDRSTRLEN] = "?";

        if (address->sa_family == AF_INET) {
                inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
                snprintf(out, PEER_ADDRESS_MAX, "%s:%u", host, ntohs(v4->sin_port));
        } else if (address->sa_family == AF_INET6) {
                inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
                if (v6->sin6_scope_id)
                        snprintf(out, PEER_ADDRESS_MAX, "[%s%%%u]:%u", host, v6->sin6_scope_id, ntohs(v6->sin6_port));
                else
                        snprintf(out, PEER_ADDRESS_MAX, "[%s]:%u", host, ntohs(v6->sin6_port));
        } else {
                snprintf(out, PEER_ADDRESS_MAX, "?");
        }
}

bool peer_address_is_loopback(const struct sockaddr *address) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

        if (address->sa_family == AF_INET)
                return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
        if (address->sa_family != AF_INET6)
                return false;
        if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
                return v6->sin6_addr.s6_addr[12] == 127;
        return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

bool peer_address_is_wildcard(const struct sockaddr *address) {
        if (address->sa_family == AF_INET)
                return ((const struct sockaddr_in *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
        return address->sa_family == AF_INET6 &&
               IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* How well an address of the host does: 0 not at all. IPv4 before IPv6 before link-local, loopback if there is nothing
 * else. A socket of IPv4 cannot be dialled by IPv6. */
static int address_rank(const struct ifaddrs *one, bool v6_too) {
        const struct sockaddr *address = one->ifa_addr;

        if (!address || !(one->ifa_flags & IFF_UP))
                return 0;
        if (address->sa_family == AF_INET6 && v6_too) {
                if (IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)address)->sin6_addr))
                        return 0; /* means something on one link only */
                return peer_address_is_loopback(address) ? 1 : 3;
        }
        if (address->sa_family != AF_INET)
                return 0;
        return peer_address_is_loopback(address) ? 2 : 4;
}

void peer_address_advertise(const struct sockaddr *bound, char out[PEER_ADDRESS_MAX]) {
        struct sockaddr_storage best;
        struct ifaddrs *all = NULL;
        bool v6 = bound->sa_family == AF_INET6;
        int best_rank = 0;
        in_port_t port =
                v6 ? ((const struct sockaddr_in6 *)bound)->sin6_port : ((const struct sockaddr_in *)bound)->sin_port;

        memcpy(&best, bound, v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
        if (peer_address_is_wildcard(bound) && getifaddrs(&all) == 0) {
                for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
                        int rank = address_rank(one, v6);

                        if (rank <= best_rank)
                                continue;
                        best_rank = rank;
                        if (one->ifa_addr->sa_family == AF_INET6) {
                                memcpy(&best, one->ifa_addr, sizeof(struct sockaddr_in6));
                                ((struct sockaddr_in6 *)&best)->sin6_port = port;
                        } else {
                                memcpy(&best, one->ifa_addr, sizeof(struct sockaddr_in));
                                ((struct sockaddr_in *)&best)->sin_port = port;
                        }
                }
                freeifaddrs(all);
        }
        peer_address_format((const struct sockaddr *)&best, out);
}
