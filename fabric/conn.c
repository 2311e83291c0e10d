/* SPDX-License-Identifier: MIT */
#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "fabric/private.h"
#include "fabric/stream.h"
#include "fabric/transport.h"

#define STUCK_PINGS 16u

int conn_new(struct fabric_rail *rail, int fd, bool server, uint64_t now_ns, struct fabric_conn **ret_conn) {
        struct fabric *fabric = rail->fabric;
        struct fabric_conn *conn = calloc(1, sizeof(*conn));
        struct epoll_event event = {.events = EPOLLIN};
        int r = -ENOMEM;

        if (!conn)
                return r;
        conn->frames = calloc(CONN_FRAMES, sizeof(*conn->frames));
        conn->in = malloc(CONN_IN);
        conn->out = malloc(CONN_OUT);
        if (!conn->frames || !conn->in || !conn->out)
                goto fail;
        if (fabric->options.tls) {
                conn->ssl = SSL_new(fabric->options.tls);
                if (!conn->ssl || SSL_set_fd(conn->ssl, fd) != 1)
                        goto fail;
                SSL_set_mode(conn->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
                if (server)
                        SSL_set_accept_state(conn->ssl);
                else
                        SSL_set_connect_state(conn->ssl);
        }
        if (!server)
                event.events |= EPOLLOUT; /* when it is connected */
        event.data.ptr = conn;
        if (epoll_ctl(rail->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
                r = -errno;
                goto fail;
        }
        socket_tune(fd, fabric->deadline_ns);
        conn->rail = rail;
        conn->fd = fd;
        conn->epoll_events = event.events;
        conn->ready_out = true;
        conn->state = server ? (conn->ssl ? CONN_TLS : CONN_HELLO) : CONN_CONNECTING;
        conn->dialled = !server;
        conn->started_ns = conn->heard_ns = conn->asked_ns = now_ns;
        DL_APPEND(rail->conns, conn);
        *ret_conn = conn;
        return 0;
fail:
        SSL_free(conn->ssl);
        free(conn->out);
        free(conn->in);
        free(conn->frames);
        free(conn);
        return r;
}

void conn_doom(struct fabric_conn *conn, bool failed, const char *format, ...) {
        va_list args;

        if (conn->doomed)
                return;
        conn->doomed = true;
        conn->failed = failed;
        va_start(args, format);
        vsnprintf(conn->why, sizeof(conn->why), format, args);
        va_end(args);
        if (conn->port && conn->port->conn == conn)
                schedule_shut(&conn->rail->schedule, &conn->port->schedule, true);
        rail_wake(conn->rail);
}

/*
 * Those of this class alone cannot be made, or take long: the network does not carry what is marked so, or an adapter
 * has as many queue pairs as it may. At the end that is dialled one may be up that the other end has not heard of.
 * Another class has one that lives, so the route is well, and that one takes what is of this class, too. One is tried
 * again after a while (route_port()).
 */
bool port_rests(struct fabric_port *port, uint64_t now_ns) {
        struct fabric *fabric = port->route->rail->fabric;

        if (port->conn && port->conn->state == CONN_UP && !port->conn->doomed)
                return true; /* it has come by another way */
        for (unsigned int i = 0; i < FABRIC_N_CLASSES; i++) {
                const struct fabric_conn *other = port->route->ports[i].conn;

                if (i == port->class || port->route->ports[i].rest_ns > 0 || !other || other->doomed ||
                    other->state != CONN_UP || time_passed(now_ns, other->heard_ns) >= fabric->deadline_ns / 2)
                        continue;
                port->rest_ns = now_ns + fabric->limits.hold_max_ns;
                route_replace(fabric, port->route);
                return true;
        }
        return false;
}

/* Out of its port, and the route's health. */
static void conn_leave_port(struct fabric_conn *conn, uint64_t now_ns) {
        struct fabric *fabric = conn->rail->fabric;
        struct fabric_port *port = conn->port;
        struct fabric_route *route = port->route;

        if (port->conn == conn) {
                port->conn = NULL;
                schedule_shut(&conn->rail->schedule, &port->schedule, true);
        }
        if (port->knock == conn)
                port->knock = NULL;
        if (!conn->failed)
                return;
        port->n_errors++;
        if (conn->number && !conn->knock)
                route->last_dead = conn->number;
        if (!conn->heard_us && port_rests(port, now_ns)) {
                if (port->rest_ns > 0)
                        port->wanted = false; /* who wants it rests as well, and knocks again */
                return;
        }
        /* Connections of several classes that end together are one failure; of a route that is late it is the first. */
        if (route->health.state != FABRIC_UP && !route->health.late && conn->started_ns < route->health.since_ns)
                return;
        route->probe = port->class;
        /* One may have been lost with others that were made again since. */
        if (conn->started_ns < route->health.failed_ns ? route_late(&route->health, &fabric->limits, now_ns)
                                                       : route_error(&route->health, &fabric->limits, now_ns))
                route_changed(fabric, route, conn->why);
        /* What stands in its place was made since: when that ends, this is another failure. */
        if (port->conn && port->conn->started_ns < route->health.failed_ns)
                route->health.failed_ns = port->conn->started_ns;
}

void conn_unpark(struct fabric_conn *conn) {
        struct schedule_item *parked = conn->parked, *item, *tmp;

        conn->parked = NULL;
        DL_FOREACH_SAFE(parked, item, tmp) {
                DL_DELETE(parked, item);
                item->prev = item->next = NULL;
                item_place(conn->rail->fabric, item_of(item));
        }
}

void conn_bury(struct fabric_conn *conn, uint64_t now_ns) {
        struct fabric_rail *rail = conn->rail;
        struct fabric *fabric = rail->fabric;

        /* What brings messages first: what recover.c promises. */
        if (rail->transport->conn_end)
                rail->transport->conn_end(conn);
        SSL_free(conn->ssl);
        /* close() alone would leave it there while somebody else has the socket: a child before its exec(), a process
         * that looks into /proc/PID/fd. What the socket then had to say would be told of memory that is freed below,
         * and the other end would not hear that this one is gone. */
        (void)epoll_ctl(rail->epoll_fd, EPOLL_CTL_DEL, conn->fd, NULL);
        (void)shutdown(conn->fd, SHUT_RDWR); /* it may not be connected yet */
        close(conn->fd);
        DL_DELETE(rail->conns, conn);
        if (conn->peer) {
                if (conn->state == CONN_UP) {
                        rail->n_up--;
                        /* The silence counts in which its end was noticed. */
                        if (--conn->peer->n_up == 0 && conn->peer->n_items > 0)
                                conn->peer->down_ns = conn->peer->heard_ns;
                }
                rail->flight_bytes -= conn->flight_bytes;
                if (conn->port)
                        conn->port->flight_bytes -= conn->flight_bytes;
                grave_dig(fabric, conn);
        } else {
                rail->n_strangers--;
        }
        while (conn->n_frames > 0) {
                area_unref(conn->frames[conn->first_frame].area);
                conn->first_frame = (conn->first_frame + 1) % CONN_FRAMES;
                conn->n_frames--;
        }
        area_unref(conn->target);
        if (conn->port)
                conn_leave_port(conn, now_ns);
        conn_unpark(conn);
        assert(!conn->unacked);
        free(conn->out);
        free(conn->in);
        free(conn->frames);
        free(conn);
}

void conn_watch(struct fabric_conn *conn, uint32_t events) {
        struct epoll_event event = {.events = events, .data.ptr = conn};

        if (conn->epoll_events == events)
                return;
        if (epoll_ctl(conn->rail->epoll_fd, EPOLL_CTL_MOD, conn->fd, &event) < 0)
                conn_doom(conn, false, "epoll: %s", strerror(errno));
        conn->epoll_events = events;
}

void conn_assign(struct fabric_conn *conn, struct fabric_item *item) {
        struct conn_frame *out = &conn->frames[(conn->first_frame + conn->n_frames) % CONN_FRAMES];
        struct fabric_area *area = item->area;
        struct frame frame = {.kind = item->kind,
                              .source = item->source,
                              .destination = item->destination,
                              .value = item->value,
                              .data_bytes = item->data_bytes,
                              .connection = conn->number,
                              .sequence = ++conn->sequence,
                              .ack = conn->received,
                              .key = area->key,
                              .line_offset = item->line_offset,
                              .data_offset = item->data_offset};
        const uint8_t *line = NULL;

        assert(conn->n_frames < CONN_FRAMES); /* else its port is shut */
        if (area->gone)
                item->kind = frame.kind = FRAME_SKIP, frame.data_bytes = 0;
        else
                line = (const uint8_t *)area->memory + item->line_offset + 4;
        *out = (struct conn_frame){.sequence = frame.sequence,
                                   .data_bytes = frame.data_bytes,
                                   .data_offset = item->data_offset,
                                   .area = frame.data_bytes ? area_ref(area) : NULL};
        out->head_bytes = frame_pack(&frame, line, out->head);
        conn->n_frames++;
        conn->told = conn->received;
        conn->untold_bytes = 0;
        item->sequence = frame.sequence;
        DL_APPEND(conn->unacked, &item->schedule);
        conn->flight_bytes += item->schedule.bytes;
        conn->port->flight_bytes += item->schedule.bytes;
        conn->rail->flight_bytes += item->schedule.bytes;
}

bool conn_control(struct fabric_conn *conn, uint8_t kind, uint64_t key, uint64_t offset, uint32_t value) {
        struct frame frame = {.kind = kind, .value = value, .key = key, .line_offset = offset};

        return conn_say(conn, &frame);
}

bool conn_say(struct fabric_conn *conn, struct frame *frame) {
        struct conn_frame *out;

        if (conn->n_frames >= CONN_FRAMES)
                return false;
        out = &conn->frames[(conn->first_frame + conn->n_frames) % CONN_FRAMES];
        *out = (struct conn_frame){0};
        frame->connection = conn->number;
        frame->ack = conn->received;
        out->head_bytes = frame_pack(frame, NULL, out->head);
        conn->n_frames++;
        conn_shut(conn); /* it may have taken the last place that items may have */
        conn->told = conn->received;
        conn->untold_bytes = 0;
        conn->rail->again = true;
        return true;
}

void conn_send(struct fabric_conn *conn) {
        if (conn->state == CONN_UP)
                conn->rail->transport->conn_send(conn);
        else
                stream_flush(conn);
        if (conn->closing && !conn->doomed && conn->n_frames == 0 && conn->out_start == conn->out_end)
                conn_doom(conn, false, "answered");
        conn_shut(conn);
}

void conn_shut(struct fabric_conn *conn) {
        struct fabric_rail *rail = conn->rail;

        if (!conn->port || conn->port->conn != conn)
                return;
        /* One peer that does not take anything must not have all of the rail's window. */
        schedule_shut(&rail->schedule, &conn->port->schedule,
                      conn->state != CONN_UP || conn->doomed || conn->n_frames >= CONN_FRAMES_DATA ||
                              conn->flight_bytes >= (rail->window + 1) / 2);
}

void conn_acked(struct fabric_conn *conn, uint64_t ack, uint64_t now_ns) {
        struct fabric_rail *rail = conn->rail;
        struct fabric *fabric = rail->fabric;

        if (ack > conn->whole) {
                fabric->counters.malformed++;
                conn_doom(conn, true, "acknowledges what was not sent");
                return;
        }
        if (ack <= conn->acked)
                return;
        conn->acked = ack;
        conn->moved = true;
        conn->came_bytes = 0;
        while (conn->unacked && item_of(conn->unacked)->sequence <= ack) {
                struct schedule_item *item = conn->unacked;

                DL_DELETE(conn->unacked, item);
                conn->flight_bytes -= item->bytes;
                conn->port->flight_bytes -= item->bytes;
                rail->flight_bytes -= item->bytes;
                rail->measure_bytes += item->bytes;
                traffic_out(item_of(item));
                item_free(fabric, item_of(item));
        }
        rail_measure(rail, now_ns);
        conn_shut(conn);
        rail->again = true;
}

/*
 * Nobody answers, not even a kernel. Ours would ask again one second after the first time, and three, and seven: a
 * network that has come back would be found seconds later. A route that is up is suspect after that; of the others it
 * is known already that they do not work, and how long they may try is the route's to say.
 */
static void conn_begin_anew(struct fabric_conn *conn) {
        const bool was_up = conn->port->route->health.state == FABRIC_UP;

        if (conn->wanted)
                conn->port->wanted = true;
        conn->port->missed = false; /* who misses it knocks again */
        if (!was_up)
                conn->port->n_errors++; /* else it is counted as the failure that it is */
        conn_doom(conn, was_up, "nobody answers");
}

/* By now, and the rail's thread has not come to see it yet. */
static bool conn_is_answered(const struct fabric_conn *conn) {
        struct pollfd fd = {.fd = conn->fd, .events = POLLOUT};

        return poll(&fd, 1, 0) > 0;
}

/* Bytes in our socket that the other end's kernel has not taken. */
static uint64_t conn_queued(const struct fabric_conn *conn) {
        int bytes = 0;

        return ioctl(conn->fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? (uint64_t)bytes : 0;
}

/* What it has to acknowledge comes behind all that it sent before, which is no more than its window has room for. */
void conn_came(struct fabric_conn *conn, uint32_t bytes) {
        conn->came_bytes += bytes;
        if (conn->came_bytes <= conn->rail->window + FRAME_DATA_MAX)
                conn->moved = true;
}

/*
 * It says something, so it is not silent, but takes nothing or does not tell that it does: for ever it would keep its
 * half of the window and the memory that is under way, and no other rail would be tried. An honest end tells of what
 * has arrived with the next frame that it sends, whatever that is.
 *
 * Whether it has arrived takes as long as the rail is slow. So the time counts since anything moved last: a message was
 * acknowledged, bytes of one were given to the socket or the adapter, or data of one came (conn_came()); how much of it
 * is too much says rail_stuck_ns(). While more than pings is in the socket the network is slow, or the kernel ends the
 * connection (socket_tune()).
 */
static bool conn_is_stuck(struct fabric_conn *conn, uint64_t now_ns) {
        if (conn->moved || (!conn->unacked && conn->n_frames < CONN_FRAMES_DATA)) {
                conn->moved = false;
                conn->moved_ns = now_ns;
                if (!conn->unacked)
                        conn->came_bytes = 0;
                return false;
        }
        if (time_passed(now_ns, conn->moved_ns) < rail_stuck_ns(conn->rail, conn->flight_bytes))
                return false;
        if (conn_queued(conn) <= STUCK_PINGS * FRAME_HEAD_MAX)
                return true;
        conn->moved_ns = now_ns;
        return false;
}

/* A handshake stands still, and what would go over it waits. It may take its time, for that process may be busy, but
 * who has another way takes that meanwhile. */
static void conn_shakes_long(struct fabric_conn *conn, uint64_t now_ns) {
        struct fabric *fabric = conn->rail->fabric;
        struct fabric_port *port = conn->port;

        if (!port || conn != (port->conn ? port->conn : port->knock) ||
            time_passed(now_ns, conn->started_ns) < fabric->deadline_ns || now_ns < port->rest_ns ||
            port_rests(port, now_ns))
                return;
        if (route_late(&port->route->health, &fabric->limits, now_ns))
                route_changed(fabric, port->route, "a connection takes long to be made");
}

void conn_tick(struct fabric_conn *conn, uint64_t now_ns) {
        struct fabric *fabric = conn->rail->fabric;
        uint64_t silent_ns = now_ns - conn->heard_ns, period_ns = fabric->heartbeat_ns;
        struct fabric_route *route;

        if (conn->doomed)
                return;
        if (conn->state != CONN_UP) {
                if (conn->state == CONN_CONNECTING &&
                    time_passed(now_ns, conn->started_ns) >= fabric->deadline_ns / 2 && !conn_is_answered(conn)) {
                        conn_begin_anew(conn);
                        return;
                }
                if (now_ns - conn->started_ns < fabric->handshake_ns) {
                        conn_shakes_long(conn, now_ns);
                        return;
                }
                if (!conn->peer) {
                        fabric->counters.refused++;
                        conn->rail->n_refused++;
                }
                conn_doom(conn, true, "the handshake took too long");
                return;
        }
        route = conn->port->route;
        if (silent_ns >= fabric->deadline_ns) {
                conn_doom(conn, true, "silent for %llu ms", (unsigned long long)(silent_ns / 1000000u));
                return;
        }
        if (conn_is_stuck(conn, now_ns)) {
                conn_doom(conn, true, "nothing was acknowledged for %llu ms",
                          (unsigned long long)(time_passed(now_ns, conn->moved_ns) / 1000000u));
                return;
        }
        if (silent_ns >= fabric->deadline_ns * 3 / 4 && route_late(&route->health, &fabric->limits, now_ns))
                route_changed(fabric, route, "a connection is late");
        if (route->health.state != FABRIC_UP)
                period_ns /= 4; /* it is to become up again soon */
        else if (silent_ns < period_ns)
                return;
        if (now_ns - conn->asked_ns >= period_ns && conn_control(conn, FRAME_PING, 0, 0, 0))
                conn->asked_ns = now_ns;
}
