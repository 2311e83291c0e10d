/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/private.h"

#define KNOCK_AGAIN_NS  UINT64_C(200000000)
#define ACCEPT_PER_TURN 16u

static int port_dial(struct fabric *fabric, struct fabric_port *port, bool knock, uint64_t now_ns) {
        struct fabric_route *route = port->route;
        struct fabric_conn *conn;
        int fd, r;

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

        if (port->schedule.queued_bytes > 0 || port->wanted)
                return true;
        if (port->class == route->probe && peer->dials &&
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

void rail_accept(struct fabric_rail *rail, uint64_t now_ns) {
        struct fabric *fabric = rail->fabric;

        for (unsigned int i = 0; i < ACCEPT_PER_TURN; i++) {
                struct fabric_conn *conn;
                int fd;

                fd = accept4(rail->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (fd < 0) {
                        if (errno == EINTR || errno == ECONNABORTED)
                                continue;
                        /* No fds or memory: a level-triggered loop would turn at full rate; the next tick arms it. */
                        if (errno != EAGAIN && errno != EWOULDBLOCK &&
                            epoll_ctl(rail->epoll_fd, EPOLL_CTL_DEL, rail->listen_fd, NULL) == 0)
                                rail->listen_paused = true;
                        return;
                }
                if (!rail->enabled || rail->n_strangers >= FABRIC_STRANGERS ||
                    conn_new(rail, fd, true, now_ns, &conn) != 0) {
                        fabric->counters.refused++;
                        rail->n_refused++;
                        close(fd);
                        continue;
                }
                rail->n_strangers++;
        }
}
