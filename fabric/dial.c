/* SPDX-License-Identifier: MIT */
/*
 * Connections that we ask for, and those that others ask for.
 *
 * Who can reach a rail can connect to it, so whoever has proven nothing must not be able to keep others out. Peers dial
 * from the address of their own rail, which is known before they say a word, or from what a translator of addresses
 * makes of it, which is known once they have proven who they are: they have places there that nobody else can take, and
 * those that come from elsewhere contend with their like alone. Where all places are taken the oldest
 * makes room: honest ones are done in a moment, so it is the least likely to be one.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "fabric/private.h"

#define KNOCK_AGAIN_NS  UINT64_C(200000000)
#define ACCEPT_PER_TURN 16u

static int port_dial(struct fabric *fabric, struct fabric_port *port, bool knock, uint64_t now_ns) {
        struct fabric_route *route = port->route;
        struct fabric_conn *conn;
        int fd, r;

        port->tried = false;
        r = socket_dial(route->rail, &route->address, &fd);
        if (r)
                return r;
        socket_class(route->rail, fd, port->class);
        r = conn_new(route->rail, fd, false, now_ns, &conn);
        if (r) {
                close(fd);
                return r;
        }
        conn->peer = route->peer;
        conn->port = port;
        conn->knock = knock;
        conn->number = knock ? route->last_dead : ++fabric->next_number;
        if (knock) {
                port->knock = conn;
                port->knock_ns = now_ns + KNOCK_AGAIN_NS;
        } else {
                port->conn = conn;
                conn->wanted = port->wanted;
                port->wanted = false;
        }
        r = conn_say_hello(conn);
        if (r)
                conn_doom(conn, true, "no hello could be made");
        return 0;
}

/* A connection for this class, for what is queued, for a question about a dead one, or to see whether the route lives?
 */
static bool port_wants(const struct fabric_port *port) {
        const struct fabric_route *route = port->route;
        const struct fabric_peer *peer = route->peer;

        if (port->schedule.queued_bytes > 0 || port->wanted || port->tried)
                return true;
        /* Who does not dial asks for it: the other end may not know that anything was wrong. */
        if (port->class == route->probe &&
            (route->health.state == FABRIC_SUSPECT || route->health.state == FABRIC_PROBING))
                return true;
        return port->class == FABRIC_NORMAL && peer->n_items > 0 && peer->n_up == 0;
}

void route_dial(struct fabric *fabric, struct fabric_route *route, uint64_t now_ns) {
        if (!route->rail->enabled)
                return;
        for (unsigned int i = 0; i < FABRIC_N_CLASSES; i++) {
                struct fabric_port *port = &route->ports[i];
                int r;

                if (!route_may_dial(&route->health))
                        return;
                if (port->conn || port->knock || !port_wants(port))
                        continue;
                if (!route->peer->dials && now_ns < port->knock_ns)
                        continue;
                r = port_dial(fabric, port, !route->peer->dials, now_ns);
                if (r == 0)
                        continue;
                port->n_errors++;
                port->knock_ns = now_ns + KNOCK_AGAIN_NS;
                if (route_error(&route->health, &fabric->limits, now_ns))
                        route_changed(fabric, route, strerror(-r));
        }
}

/*
 * Knocks are answered, and the other end does not dial: its route is held down, and it has other ways. We hear nothing
 * of that, and a connection of another class may say that all is well. What is queued here would wait for its
 * hold-down, so for us it is a failure, too. Or it dials in vain, since that direction does not carry this class. If
 * another one's connection lives, that takes it.
 */
void route_check_knocks(struct fabric *fabric, struct fabric_route *route, uint64_t now_ns) {
        for (unsigned int i = 0; i < FABRIC_N_CLASSES; i++) {
                struct fabric_port *port = &route->ports[i];

                if (port->conn || port->schedule.queued_bytes == 0)
                        port->knocked_ns = 0;
                if (route->health.state != FABRIC_UP || !port->knocked_ns ||
                    time_passed(now_ns, port->knocked_ns) < fabric->deadline_ns)
                        continue;
                port->knocked_ns = 0;
                port->n_errors++;
                if (port_rests(port, now_ns))
                        continue;
                route->probe = port->class;
                if (route_error(&route->health, &fabric->limits, now_ns))
                        route_changed(fabric, route, "the other end does not call back");
        }
}

/* Without the port. */
static struct in6_addr address_host(const struct sockaddr_storage *address) {
        struct in6_addr host = {0};

        if (address->ss_family == AF_INET6)
                return ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        host.s6_addr[10] = host.s6_addr[11] = 0xff;
        memcpy(host.s6_addr + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
        return host;
}

/* How many peers' rails are there, or dialled from there last; several where nodes share an address. */
static uint32_t rail_peers_at(const struct fabric_rail *rail, const struct in6_addr *host) {
        const struct fabric_route *route;
        uint32_t n = 0;

        DL_FOREACH(rail->routes, route) {
                struct in6_addr at = address_host(&route->address);

                n += IN6_ARE_ADDR_EQUAL(&at, host) || IN6_ARE_ADDR_EQUAL(&route->from, host);
        }
        return n;
}

static void rail_refuse(struct fabric_rail *rail) {
        rail->fabric->counters.refused++;
        rail->n_refused++;
}

/* For one more that comes from there. */
static void rail_make_place(struct fabric_rail *rail, const struct in6_addr *host, uint32_t n_peers) {
        const uint32_t max = n_peers ? n_peers * FABRIC_UNPROVEN : FABRIC_STRANGERS;
        struct fabric_conn *conn, *oldest = NULL;
        uint32_t n = 0;

        if (rail->n_strangers < max)
                return;
        DL_FOREACH(rail->conns, conn) { /* in the order in which they came */
                if (conn->peer || conn->doomed || (n_peers ? !IN6_ARE_ADDR_EQUAL(&conn->from, host) : conn->from_peer))
                        continue;
                if (!oldest)
                        oldest = conn;
                n++;
        }
        if (n < max)
                return;
        rail_refuse(rail);
        conn_doom(oldest, false, "too many wait to be let in");
}

void rail_accept(struct fabric_rail *rail, uint64_t now_ns) {
        for (unsigned int i = 0; i < ACCEPT_PER_TURN; i++) {
                struct sockaddr_storage address = {0};
                socklen_t size = sizeof(address);
                struct fabric_conn *conn;
                struct in6_addr host;
                uint32_t n_peers;
                int fd;

                fd = accept4(rail->listen_fd, (struct sockaddr *)&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (fd < 0) {
                        if (errno == EINTR || errno == ECONNABORTED)
                                continue;
                        /* No fds or memory: a level-triggered loop would turn at full rate; the next tick arms it. */
                        if (errno != EAGAIN && errno != EWOULDBLOCK &&
                            epoll_ctl(rail->epoll_fd, EPOLL_CTL_DEL, rail->listen_fd, NULL) == 0)
                                rail->listen_paused = true;
                        return;
                }
                host = address_host(&address);
                n_peers = rail_peers_at(rail, &host);
                if (rail->enabled)
                        rail_make_place(rail, &host, n_peers);
                if (!rail->enabled || conn_new(rail, fd, true, now_ns, &conn) != 0) {
                        rail_refuse(rail);
                        close(fd);
                        continue;
                }
                conn->from = host;
                conn->from_peer = n_peers > 0;
                rail->n_strangers++;
        }
}
