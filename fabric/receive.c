/* SPDX-License-Identifier: MIT */
/*
 * What comes in. Heads come through a small buffer; data of a chunk that are not in it already are read to where they
 * belong, and the flag follows when the trailer has said that all of it is right.
 *
 * Nothing that a peer sends is believed: the frame must be of this connection and the next one in order, else the
 * connection ends; the area must be here, the ranks must live where they say, and the offsets lie inside of what the
 * area had when it was added, else the message is counted and thrown away, and the connection goes on.
 */
#include <errno.h>
#include <openssl/err.h>
#include <sys/epoll.h>

#include "fabric/crc.h"
#include "fabric/private.h"
#include "util/clock.h"

#define RECEIVE_ROUNDS 16u
#define RECEIVE_DUMP   65536u              /* at once, of what is thrown away; the size of rail->scratch */
#define TELL_BYTES     (UINT64_C(1) << 16) /* acknowledged at once after so many, else a little later */
#define TELL_MESSAGES  32u
#define TELL_LATER_NS  UINT64_C(1000000)

ssize_t conn_read(struct fabric_conn *conn, const struct iovec *to, int n_to) {
        struct fabric *fabric = conn->rail->fabric;
        int saved = 0, error = SSL_ERROR_NONE;
        ssize_t n;

        pthread_mutex_unlock(&fabric->lock);
        if (conn->ssl) {
                ERR_clear_error();
                errno = 0;
                n = SSL_read(conn->ssl, to[0].iov_base, (int)(to[0].iov_len < INT32_MAX ? to[0].iov_len : INT32_MAX));
                if (n <= 0)
                        error = SSL_get_error(conn->ssl, (int)n);
        } else {
                do
                        n = readv(conn->fd, to, n_to);
                while (n < 0 && errno == EINTR);
                if (n <= 0)
                        error = n == 0                                    ? SSL_ERROR_ZERO_RETURN
                                : errno == EAGAIN || errno == EWOULDBLOCK ? SSL_ERROR_WANT_READ
                                                                          : SSL_ERROR_SYSCALL;
        }
        saved = errno;
        pthread_mutex_lock(&fabric->lock);
        switch (error) {
        case SSL_ERROR_NONE:
                conn->rail->bytes_received += (uint64_t)n;
                return n;
        case SSL_ERROR_WANT_READ:
                return 0;
        case SSL_ERROR_WANT_WRITE:
                conn_watch(conn, EPOLLIN | EPOLLOUT);
                return 0;
        case SSL_ERROR_ZERO_RETURN:
                conn_doom(conn, true, "closed by the other end");
                return -1;
        default:
                conn_doom(conn, true, "receive: %s", error == SSL_ERROR_SYSCALL && saved ? strerror(saved) : "TLS");
                return -1;
        }
}

static void conn_malformed(struct fabric_conn *conn, const char *what) {
        struct fabric *fabric = conn->rail->fabric;

        fabric->counters.malformed++;
        fabric_tell_violation(fabric, conn->peer, 0, what);
        conn_doom(conn, true, "%s", what);
}

static void conn_corrupted(struct fabric_conn *conn) {
        conn->rail->fabric->counters.corrupted++;
        conn_doom(conn, true, "a checksum is wrong");
}

/* Where a message is to be stored; NULL if nowhere. */
static struct fabric_area *conn_target(struct fabric_conn *conn, const struct frame *frame) {
        struct fabric *fabric = conn->rail->fabric;
        struct fabric_area *area;
        struct net_descriptor d = {.kind = frame->kind,
                                   .data_bytes = frame->data_bytes,
                                   .line_offset = frame->line_offset,
                                   .data_offset = frame->data_offset};

        HASH_FIND(hh, fabric->areas, &frame->key, sizeof(frame->key), area);
        if (!area) {
                fabric->counters.unknown_area++;
                return NULL;
        }
        if (!net_descriptor_valid(&d, area->memory_offset, area->memory_bytes)) {
                fabric->counters.out_of_bounds++;
                fabric_tell_violation(fabric, conn->peer, frame->key, "the peer sent offsets outside of the area");
                return NULL;
        }
        if (frame->source >= area->n_ranks || frame->destination >= area->n_ranks ||
            memcmp(&area->nodes[frame->source], &conn->peer->node, sizeof(struct fabric_node)) != 0 ||
            memcmp(&area->nodes[frame->destination], &fabric->options.self, sizeof(struct fabric_node)) != 0) {
                fabric->counters.wrong_rank++;
                fabric_tell_violation(fabric, conn->peer, frame->key,
                                      "the peer sent something for ranks that are not its own and ours");
                return NULL;
        }
        return area;
}

/* All of a message is here: it counts as received, whether or not it is stored. */
static void conn_apply(struct fabric_conn *conn, struct fabric_area *area) {
        struct fabric *fabric = conn->rail->fabric;
        const struct frame *frame = &conn->frame;

        conn->received = frame->sequence;
        conn->untold_bytes += frame_bytes(frame->kind, frame->data_bytes);
        conn->rail->messages_received++;
        if (!area)
                return;
        if (area->gone) {
                fabric->counters.dropped++;
                return;
        }
        if (frame->kind == FRAME_CHUNK) {
                memcpy((uint8_t *)area->memory + frame->line_offset + 4, conn->line, FRAME_LINE);
                fabric->counters.chunks_arrived++;
        } else {
                fabric->counters.credits_arrived++;
        }
        net_area_arrive(area->memory, frame->kind, frame->line_offset, frame->value);
        if (net_area_wake_executor(area->memory)) {
                fabric->counters.wakes++;
                fabric_ring(area->wake_fd);
        }
}

/* Frames without sequence. */
static void conn_heard(struct fabric_conn *conn, const struct frame *frame, uint64_t now_ns) {
        struct fabric *fabric = conn->rail->fabric;
        struct fabric_route *route = conn->port->route;

        switch (frame->kind) {
        case FRAME_PING:
                conn->pong = true;
                break;
        case FRAME_PONG:
                if (route_good(&route->health, &fabric->limits, now_ns))
                        route_changed(fabric, route, "it answers");
                break;
        case FRAME_QUESTION:
                recover_question(fabric, conn, frame->key);
                break;
        case FRAME_ANSWER:
                recover_answer(fabric, conn, frame);
                break;
        case FRAME_FORGET:
                recover_forget(fabric, conn, frame->key);
                break;
        default:
                break;
        }
}

/* A head. False: more bytes are needed, or the connection has ended. */
static bool conn_take_head(struct fabric_conn *conn, uint64_t now_ns) {
        struct frame *frame = &conn->frame;
        struct fabric_area *area;
        int r;

        r = frame_decode(conn->in + conn->in_start, conn->in_end - conn->in_start, frame);
        if (r == FRAME_E_MORE)
                return false;
        if (r == FRAME_E_CORRUPTED)
                conn_corrupted(conn);
        else if (r)
                conn_malformed(conn, "the peer sent something that is no frame");
        else if (frame->connection != conn->number)
                conn_malformed(conn, "the peer sent a frame of another connection");
        else if (frame->sequence && frame->sequence != conn->received + 1)
                conn_malformed(conn, "the peer sent a frame out of order");
        else
                conn_acked(conn, frame->ack, now_ns);
        if (conn->doomed)
                return false;
        if (frame->kind == FRAME_CHUNK)
                memcpy(conn->line, conn->in + conn->in_start + FRAME_HEAD, FRAME_LINE);
        conn->in_start += frame_head_bytes(frame->kind);
        if (frame->sequence == 0) {
                conn_heard(conn, frame, now_ns);
                return !conn->doomed;
        }
        area = frame->kind == FRAME_SKIP ? NULL : conn_target(conn, frame);
        if (frame->data_bytes == 0) {
                conn_apply(conn, area);
                return true;
        }
        conn->target = area_ref(area);
        conn->stage = IN_DATA;
        conn->data_done = conn->crc = 0;
        return true;
}

/* Data that came with a head; under the lock, at most CONN_IN. */
static bool conn_take_data(struct fabric_conn *conn) {
        uint32_t there = conn->in_end - conn->in_start, left = conn->frame.data_bytes - conn->data_done;
        uint32_t size = there < left ? there : left;
        const uint8_t *from = conn->in + conn->in_start;

        if (conn->target && !conn->target->gone)
                memcpy((uint8_t *)conn->target->memory + conn->frame.data_offset + conn->data_done, from, size);
        if (!conn->ssl)
                conn->crc = crc32c(conn->crc, from, size);
        conn->data_done += size;
        conn->in_start += size;
        if (size < left)
                return false;
        conn->stage = IN_TRAILER;
        return true;
}

static bool conn_take_trailer(struct fabric_conn *conn) {
        struct fabric_area *area = conn->target;
        uint32_t state, crc;

        if (conn->in_end - conn->in_start < FRAME_TRAILER)
                return false;
        frame_unpack_trailer(conn->in + conn->in_start, &state, &crc);
        if (state != FRAME_TORN && (state != FRAME_WHOLE || crc != conn->crc)) {
                conn_corrupted(conn);
                return false;
        }
        conn->in_start += FRAME_TRAILER;
        conn->target = NULL;
        conn->stage = IN_HEAD;
        conn_apply(conn, state == FRAME_WHOLE ? area : NULL);
        if (state == FRAME_TORN)
                conn->rail->fabric->counters.torn++;
        area_unref(area);
        return true;
}

/* What is in the buffer. */
static void conn_take(struct fabric_conn *conn, uint64_t now_ns) {
        bool more = true;

        while (more && !conn->doomed && conn->in_start < conn->in_end) {
                switch (conn->stage) {
                case IN_HEAD:
                        more = conn_take_head(conn, now_ns);
                        break;
                case IN_DATA:
                        more = conn_take_data(conn);
                        break;
                case IN_TRAILER:
                        more = conn_take_trailer(conn);
                        break;
                }
        }
        memmove(conn->in, conn->in + conn->in_start, conn->in_end - conn->in_start);
        conn->in_end -= conn->in_start;
        conn->in_start = 0;
}

/* One read; data to where they belong. Gives the lock away. */
static ssize_t conn_receive_once(struct fabric_conn *conn) {
        struct fabric *fabric = conn->rail->fabric;
        struct fabric_area *area = NULL;
        struct iovec to[2];
        uint32_t left = 0;
        int n_to = 0;
        bool all = true;
        ssize_t n;

        if (conn->stage == IN_DATA) { /* the buffer is empty then */
                left = conn->frame.data_bytes - conn->data_done;
                if (conn->target && !conn->target->gone) {
                        area = conn->target;
                        area->n_users++;
                        to[0].iov_base = (uint8_t *)area->memory + conn->frame.data_offset + conn->data_done;
                } else {
                        all = left <= RECEIVE_DUMP;
                        left = all ? left : RECEIVE_DUMP;
                        to[0].iov_base = conn->rail->scratch;
                }
                to[0].iov_len = left;
                n_to = 1;
        }
        if (all) /* and what comes behind them */
                to[n_to++] = (struct iovec){.iov_base = conn->in + conn->in_end, .iov_len = CONN_IN - conn->in_end};
        n = conn_read(conn, to, n_to);
        if (n > 0 && left > 0) {
                uint32_t data = (uint64_t)n < left ? (uint32_t)n : left;

                if (!conn->ssl) {
                        /* As it lies in the area now: what the flag will stand for. */
                        pthread_mutex_unlock(&fabric->lock);
                        conn->crc = crc32c(conn->crc, to[0].iov_base, data);
                        pthread_mutex_lock(&fabric->lock);
                }
                conn->data_done += data;
                if (conn->data_done == conn->frame.data_bytes)
                        conn->stage = IN_TRAILER;
                conn->in_end += (uint32_t)n - data;
        } else if (n > 0) {
                conn->in_end += (uint32_t)n;
        }
        if (area)
                area_leave(fabric, area);
        return n;
}

static void conn_tell(struct fabric_conn *conn, uint64_t now_ns) {
        struct fabric_rail *rail = conn->rail;

        if (conn->pong && conn_control(conn, FRAME_PONG, 0, 0, 0))
                conn->pong = false;
        if (conn->received == conn->told)
                return;
        if (conn->untold_bytes >= TELL_BYTES || conn->received - conn->told >= TELL_MESSAGES)
                (void)conn_control(conn, FRAME_ACK, 0, 0, 0);
        else if (rail->ack_ns == 0)
                rail->ack_ns = now_ns + TELL_LATER_NS;
}

void conn_receive(struct fabric_conn *conn, uint64_t now_ns) {
        conn_take(conn, now_ns); /* what came behind the handshake */
        for (unsigned int i = 0; !conn->doomed; i++) {
                ssize_t n;

                if (i >= RECEIVE_ROUNDS && !(conn->ssl && SSL_pending(conn->ssl) > 0))
                        break; /* others want their turn, and epoll tells of the rest */
                n = conn_receive_once(conn);
                if (n <= 0 || conn->doomed)
                        break;
                conn->heard_ns = now_ns;
                conn_take(conn, now_ns);
        }
        if (!conn->doomed)
                conn_tell(conn, now_ns);
}
