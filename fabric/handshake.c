/* SPDX-License-Identifier: MIT */
/*
 * From a socket to a connection that carries messages.
 *
 * The node with the lower id dials; the other one, if it has something to carry or wants to know whether a route lives,
 * knocks: a connection on which it says hello and that it would like to be dialled. So there are never two connections
 * where one is meant to be. Who is dialled believes nothing before the proof; what a stranger can have until then is a
 * socket, a buffer and handshake_ns. Refusals are answered with their reason, so that the other end can tell its
 * operator.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utlist.h>

#include "fabric/private.h"
#include "fabric/transport.h"

#define RENUMBERED_MAX 8u

static void hello_from_us(const struct fabric_conn *conn, struct hello *ret_hello) {
        const struct fabric *fabric = conn->rail->fabric;

        *ret_hello = (struct hello){.from = fabric->options.self, .from_epoch = fabric->options.boot_epoch};
        memcpy(ret_hello->cluster, fabric->cluster, sizeof(ret_hello->cluster));
        memcpy(ret_hello->rail, conn->rail->name, sizeof(ret_hello->rail));
}

int conn_say_hello(struct fabric_conn *conn) {
        struct hello hello;
        int r;

        hello_from_us(conn, &hello);
        hello.kind = conn->knock ? HELLO_KNOCK : HELLO_DIAL;
        hello.class = (uint8_t)conn->port->class;
        hello.missed = conn->knock && route_is_missed(conn->port->route);
        hello.to = conn->peer->node;
        hello.to_epoch = conn->peer->boot_epoch;
        hello.number = conn->number;
        if (RAND_bytes(conn->nonce, sizeof(conn->nonce)) != 1)
                return -EIO;
        memcpy(hello.nonce, conn->nonce, sizeof(hello.nonce));
        r = hello_pack(&hello, conn->peer->token, conn->out);
        if (r)
                return r;
        conn->out_end = HELLO_BYTES;
        return 0;
}

void conn_up(struct fabric_conn *conn, uint64_t now_ns) {
        struct fabric_rail *rail = conn->rail;
        struct fabric *fabric = rail->fabric;
        struct fabric_route *route = conn->port->route;

        conn_heard_at(conn, now_ns);
        conn->state = CONN_UP;
        if (conn->dialled) /* else our answer may be on its way yet */
                conn_is_heard(conn);
        conn->moved = true;
        conn->port->n_connections++;
        conn->port->n_renumbered = 0;
        conn->port->missed = conn->port->tried = false;
        conn->peer->n_up++;
        conn->peer->down_ns = conn->peer->told_ns = 0;
        rail->n_up++;
        recover_begin(conn->peer);
        conn_shut(conn);
        if (route_good(&route->health, &fabric->limits, now_ns))
                route_changed(fabric, route, "connected");
        rail->again = true;
}

static bool number_is_used(struct fabric_peer *peer, uint64_t number) {
        struct fabric_conn *conn;

        if (number <= peer->strange_number || grave_find(peer, number)) /* the first is 1 */
                return true;
        for (size_t i = 0; i < peer->n_routes; i++) {
                DL_FOREACH(peer->routes[i]->rail->conns, conn) {
                        if (conn->peer == peer && !conn->knock && conn->number == number)
                                return true;
                }
        }
        return false;
}

static enum hello_status conn_judge(struct fabric_conn *conn, const struct hello *hello,
                                    struct fabric_peer **ret_peer) {
        struct fabric_rail *rail = conn->rail;
        struct fabric *fabric = rail->fabric;
        struct fabric_peer *peer;

        if (strcmp(hello->cluster, fabric->cluster) != 0)
                return HELLO_E_CLUSTER;
        if (memcmp(&hello->to, &fabric->options.self, sizeof(hello->to)) != 0)
                return HELLO_E_NODE;
        peer = peer_of_node(fabric, &hello->from);
        if (!peer)
                return HELLO_E_PEER;
        if (hello->to_epoch != fabric->options.boot_epoch || hello->from_epoch != peer->boot_epoch)
                return HELLO_E_EPOCH;
        if (!hello_proven(conn->in, peer->token))
                return HELLO_E_TOKEN;
        *ret_peer = peer;
        if (strcmp(hello->rail, rail->name) != 0 || !rail->enabled || !peer_route(peer, rail))
                return HELLO_E_RAIL;
        if (hello->kind == HELLO_DIAL ? peer->dials || number_is_used(peer, hello->number) : !peer->dials)
                return HELLO_E_NUMBER;
        return HELLO_OK;
}

static void conn_refuse(struct fabric_conn *conn, enum hello_status status) {
        struct fabric *fabric = conn->rail->fabric;

        fabric->counters.refused++;
        fabric->counters.refused_token += status == HELLO_E_TOKEN;
        fabric->counters.refused_epoch += status == HELLO_E_EPOCH;
        conn->rail->n_refused++;
}

/* They know the number of a connection that is dead, or that there is none. */
static void conn_was_knocked(struct fabric_conn *conn, struct fabric_peer *peer, const struct hello *hello,
                             uint64_t now_ns) {
        struct fabric_route *route = peer_route(peer, conn->rail);
        struct fabric_port *port = &route->ports[hello->class];

        if (port->conn && port->conn->state == CONN_UP && port->conn->number == hello->number)
                conn_doom(port->conn, true, "the peer says that it is dead");
        port->wanted = true;
        if (route_met(&route->health, now_ns))
                route_changed(conn->rail->fabric, route, "the peer knows of it");
        port->missed = hello->missed && route->health.state == FABRIC_DOWN;
}

/* A stranger's hello is there. */
static void conn_heard_hello(struct fabric_conn *conn, uint64_t now_ns) {
        struct fabric_peer *peer = NULL;
        struct hello hello, answer;
        enum hello_status status;

        if (hello_unpack(conn->in, &hello) || hello.kind == HELLO_ANSWER) {
                conn_refuse(conn, HELLO_OK);
                conn_doom(conn, false, "no hello of this protocol");
                return;
        }
        status = conn_judge(conn, &hello, &peer);
        hello_from_us(conn, &answer);
        answer.kind = HELLO_ANSWER;
        answer.class = hello.class;
        answer.status = (uint8_t)status;
        answer.to = hello.from;
        answer.to_epoch = hello.from_epoch;
        answer.number = hello.number;
        memcpy(answer.nonce, hello.nonce, sizeof(answer.nonce));
        if (hello_pack(&answer, peer ? peer->token : NULL, conn->out)) {
                conn_doom(conn, false, "no answer could be made");
                return;
        }
        conn->out_end = HELLO_BYTES;
        conn->rail->again = true;
        if (status != HELLO_OK) {
                conn_refuse(conn, status);
                conn->closing = true;
                return;
        }
        peer_route(peer, conn->rail)->from = conn->from;
        if (hello.kind == HELLO_KNOCK) {
                conn->closing = true;
                conn_was_knocked(conn, peer, &hello, now_ns);
                return;
        }
        conn->rail->n_strangers--;
        conn->peer = peer;
        conn->number = hello.number;
        memcpy(conn->nonce, hello.nonce, sizeof(conn->nonce));
        conn->port = &peer_route(peer, conn->rail)->ports[hello.class];
        if (conn->port->conn) /* they know better */
                conn_doom(conn->port->conn, true, "the peer has made a new connection");
        conn->port->conn = conn;
        socket_class(conn->rail, conn->fd, hello.class);
        conn->in_start = HELLO_BYTES;
        conn->rail->transport->conn_begin(conn, now_ns);
}

/* It has heard of the end of a later connection that it does not know (recover.c). No fault of the route, and the next
 * number will do, or one soon after if others end meanwhile; whom none will do is not to be asked without a rest. */
static bool conn_may_renumber(const struct fabric_conn *conn, const struct hello *hello) {
        return hello->status == HELLO_E_NUMBER && !conn->knock && conn->number < conn->rail->fabric->next_number &&
               conn->port->n_renumbered < RENUMBERED_MAX && hello_proven(conn->in, conn->peer->token);
}

/* Our hello was answered. */
static void conn_heard_answer(struct fabric_conn *conn, uint64_t now_ns) {
        struct hello hello;

        if (hello_unpack(conn->in, &hello) || hello.kind != HELLO_ANSWER ||
            memcmp(hello.nonce, conn->nonce, sizeof(hello.nonce)) != 0 || hello.number != conn->number ||
            memcmp(&hello.from, &conn->peer->node, sizeof(hello.from)) != 0) {
                if (!hello_unpack(conn->in, &hello) && hello.kind == HELLO_ANSWER && hello.status != HELLO_OK)
                        conn_doom(conn, true, "refused: %s", hello_status_name(hello.status));
                else
                        conn_doom(conn, true, "answered by somebody else");
                return;
        }
        if (conn_may_renumber(conn, &hello)) {
                conn->port->n_renumbered++;
                conn->port->wanted = true;
                conn_doom(conn, false, "refused: %s", hello_status_name(hello.status));
                return;
        }
        if (hello.status != HELLO_OK) {
                conn_doom(conn, true, "refused: %s", hello_status_name(hello.status));
                return;
        }
        if (!hello_proven(conn->in, conn->peer->token)) {
                conn_doom(conn, true, "the other end cannot prove the token");
                return;
        }
        if (conn->knock) {
                if (!conn->port->knocked_ns)
                        conn->port->knocked_ns = now_ns;
                conn_doom(conn, false, "knocked");
                return;
        }
        conn->in_start = HELLO_BYTES;
        conn->rail->transport->conn_begin(conn, now_ns);
}

static void conn_shake_tls(struct fabric_conn *conn) {
        struct fabric *fabric = conn->rail->fabric;
        char text[96];
        int r, error;

        pthread_mutex_unlock(&fabric->lock);
        ERR_clear_error();
        r = SSL_do_handshake(conn->ssl);
        error = r == 1 ? SSL_ERROR_NONE : SSL_get_error(conn->ssl, r);
        pthread_mutex_lock(&fabric->lock);
        if (r == 1) {
                conn->state = CONN_HELLO;
        } else if (error == SSL_ERROR_WANT_WRITE) {
                conn_watch(conn, EPOLLIN | EPOLLOUT);
        } else if (error != SSL_ERROR_WANT_READ) {
                ERR_error_string_n(ERR_peek_error(), text, sizeof(text));
                if (!conn->peer)
                        conn_refuse(conn, HELLO_OK);
                conn_doom(conn, true, "TLS: %s", text);
        }
}

void conn_shake(struct fabric_conn *conn, uint64_t now_ns) {
        if (conn->state == CONN_CONNECTING) {
                int error = 0;
                socklen_t size = sizeof(error);

                if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
                        error = errno;
                if (error) {
                        conn_doom(conn, true, "connect: %s", strerror(error));
                        return;
                }
                conn->state = conn->ssl ? CONN_TLS : CONN_HELLO;
        }
        /* What is blocked below asks for more again; else the loop would turn for as long as the other end is silent.
         */
        conn_watch(conn, EPOLLIN);
        if (conn->state == CONN_TLS)
                conn_shake_tls(conn);
        if (conn->state == CONN_PAIR && !conn->doomed)
                conn->rail->transport->conn_pair(conn, now_ns);
        if (conn->doomed || conn->state != CONN_HELLO)
                return;
        conn_send(conn);
        if (conn->doomed || conn->closing)
                return;
        while (conn->in_end < HELLO_BYTES) {
                struct iovec to = {.iov_base = conn->in + conn->in_end, .iov_len = CONN_IN - conn->in_end};
                ssize_t n = conn_read(conn, &to, 1);

                if (n <= 0) {
                        if (n < 0 && !conn->peer)
                                conn_refuse(conn, HELLO_OK);
                        return;
                }
                if (conn->doomed)
                        return;
                conn->in_end += (uint32_t)n;
                if (!hello_begins(conn->in, conn->in_end)) { /* at once: it may never say more */
                        if (!conn->peer)
                                conn_refuse(conn, HELLO_OK);
                        conn_doom(conn, true, "the other end speaks another protocol%s", conn->ssl ? "" : ", TLS?");
                        return;
                }
        }
        if (conn->peer)
                conn_heard_answer(conn, now_ns);
        else
                conn_heard_hello(conn, now_ns);
}
