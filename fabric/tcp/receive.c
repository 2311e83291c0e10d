/* SPDX-License-Identifier: MIT */
/*
 * What comes in. Heads come through a buffer; data of a chunk that are not in it already are read to where they belong,
 * and the flag follows when the trailer has said that all of it is right. A call of the system takes as long as it
 * takes to copy some ten kilobytes, so short messages are read many at a time, and copied.
 */
#include "fabric/crc.h"
#include "fabric/tcp/tcp.h"

#define RECEIVE_ROUNDS 16u
#define RECEIVE_SHORT  8192u  /* what follows data of this size at most is read with them: more of the kind, it seems */
#define RECEIVE_BEHIND 512u   /* else only the next head, and not much that has to be copied */
#define RECEIVE_DUMP   65536u /* at once, of what is thrown away; the size of rail->scratch */

/* A head. False: more bytes are needed, or the connection has ended. */
static bool conn_take_head(struct fabric_conn *conn, uint64_t now_ns) {
        struct fabric_area *area;
        uint32_t head;

        head = conn_head(conn, conn->in + conn->in_start, conn->in_end - conn->in_start, now_ns);
        if (head == 0)
                return false;
        conn->in_start += head;
        if (conn->frame.sequence == 0)
                return !conn->doomed;
        area = conn->frame.kind == FRAME_SKIP ? NULL : conn_target(conn, &conn->frame);
        if (conn->frame.data_bytes == 0) {
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
        conn_came(conn, size);
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

/* One read; data to where they belong. *ret_all: the socket had no more than that. Gives the lock away. */
static ssize_t conn_receive_once(struct fabric_conn *conn, bool *ret_all) {
        struct fabric *fabric = conn->rail->fabric;
        struct fabric_area *area = NULL;
        struct iovec to[2];
        uint32_t left = 0;
        int n_to = 0;
        uint32_t behind = CONN_IN - conn->in_end;
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
                behind = conn->frame.data_bytes <= RECEIVE_SHORT ? CONN_IN : RECEIVE_BEHIND;
        }
        if (all) /* and what comes behind them */
                to[n_to++] = (struct iovec){.iov_base = conn->in + conn->in_end, .iov_len = behind};
        n = conn_read(conn, to, n_to);
        *ret_all = !conn->ssl && n > 0 && (size_t)n < to[0].iov_len + (n_to > 1 ? to[1].iov_len : 0);
        if (n > 0 && left > 0) {
                uint32_t data = (uint64_t)n < left ? (uint32_t)n : left;

                if (!conn->ssl) {
                        /* As it lies in the area now: what the flag will stand for. */
                        pthread_mutex_unlock(&fabric->lock);
                        conn->crc = crc32c(conn->crc, to[0].iov_base, data);
                        fabric_lock(fabric);
                }
                conn->data_done += data;
                conn_came(conn, data);
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

void tcp_receive(struct fabric_conn *conn, uint64_t now_ns) {
        conn_take(conn, now_ns); /* what came behind the handshake */
        for (unsigned int i = 0; !conn->doomed; i++) {
                bool drained;
                ssize_t n;

                if (i >= RECEIVE_ROUNDS && !(conn->ssl && SSL_pending(conn->ssl) > 0))
                        break; /* others want their turn, and epoll tells of the rest */
                n = conn_receive_once(conn, &drained);
                if (n <= 0 || conn->doomed)
                        break;
                conn_heard_at(conn, now_ns);
                conn_take(conn, now_ns);
                if (drained) /* epoll tells when there is more, for less than another look here costs */
                        break;
        }
        if (!conn->doomed)
                conn_tell(conn, now_ns);
}
