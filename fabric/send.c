/* SPDX-License-Identifier: MIT */
/*
 * Frames go out as they stand in the connection's ring: heads and trailers from there, data out of the area. Without
 * TLS one sendmsg() takes all of them. With TLS large data are given to SSL_write() where they are, and small pieces
 * are gathered into one record first.
 *
 * When an area goes while one of its chunks is on its way, the frame has to be ended all the same: what is left of the
 * data is zeros then, and the trailer says that nothing of it may be used.
 */
#include <errno.h>
#include <openssl/err.h>
#include <sys/epoll.h>
#include <utlist.h>

#include "fabric/bytes.h"
#include "fabric/crc.h"
#include "fabric/private.h"

#define SEND_PIECES 64
#define SEND_ROUNDS 8u
#define TLS_DIRECT  8192u /* data of this size or more are not copied */
#define TLS_RECORD  16384u

static const uint8_t send_zeros[65536];

static uint64_t conn_frame_bytes(const struct conn_frame *frame) {
        return frame->head_bytes + (frame->data_bytes ? (uint64_t)frame->data_bytes + FRAME_TRAILER : 0);
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

        if (area->gone)
                frame.kind = FRAME_SKIP, frame.data_bytes = 0;
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

/* Has this frame data yet to be read? Then the thread is counted as a user of the area. */
static bool frame_enter(struct conn_frame *frame) {
        if (!frame->area || frame->torn || frame->done >= (uint64_t)frame->head_bytes + frame->data_bytes)
                return false;
        if (frame->area->gone) {
                frame->torn = true;
                frame_pack_trailer(FRAME_TORN, 0, frame->trailer);
                return false;
        }
        frame->area->n_users++;
        return true;
}

/* Without the lock, by a user of the area. */
static void frame_finish(const struct fabric_conn *conn, struct conn_frame *frame) {
        uint32_t crc = 0;

        if (frame->checked)
                return;
        frame->checked = true;
        if (!conn->ssl)
                crc = crc32c(0, (const uint8_t *)frame->area->memory + frame->data_offset, frame->data_bytes);
        frame_pack_trailer(FRAME_WHOLE, crc, frame->trailer);
}

/* The rest of one frame. Returns the number of pieces. */
static int frame_pieces(const struct conn_frame *frame, struct iovec *pieces, int room) {
        uint64_t at = frame->done, data_end = (uint64_t)frame->head_bytes + frame->data_bytes;
        int n = 0;

        if (at < frame->head_bytes && n < room) {
                pieces[n++] = (struct iovec){.iov_base = (void *)(uintptr_t)(frame->head + at),
                                             .iov_len = frame->head_bytes - at};
                at = frame->head_bytes;
        }
        while (at < data_end && n < room) {
                uint64_t left = data_end - at;
                const uint8_t *from = send_zeros;

                if (!frame->torn)
                        from = (const uint8_t *)frame->area->memory + frame->data_offset + (at - frame->head_bytes);
                else if (left > sizeof(send_zeros))
                        left = sizeof(send_zeros);
                pieces[n++] = (struct iovec){.iov_base = (void *)(uintptr_t)from, .iov_len = left};
                at += left;
        }
        if (frame->data_bytes && at >= data_end && n < room)
                pieces[n++] = (struct iovec){.iov_base = (void *)(uintptr_t)(frame->trailer + (at - data_end)),
                                             .iov_len = FRAME_TRAILER - (at - data_end)};
        return n;
}

/* What came of one write. */
struct sent {
        uint64_t consumed; /* bytes of frames */
        uint64_t wire;
        bool blocked;
        int error; /* errno, or EPROTO */
};

static void send_plain(struct fabric_conn *conn, const struct iovec *pieces, int n_pieces, struct sent *sent) {
        struct iovec all[SEND_PIECES + 1];
        struct msghdr message = {.msg_iov = all};
        uint32_t out = conn->out_end - conn->out_start;
        ssize_t n;

        if (out)
                all[message.msg_iovlen++] = (struct iovec){.iov_base = conn->out + conn->out_start, .iov_len = out};
        memcpy(all + message.msg_iovlen, pieces, (size_t)n_pieces * sizeof(*pieces));
        message.msg_iovlen += (size_t)n_pieces;
        do
                n = sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n < 0) {
                sent->blocked = errno == EAGAIN || errno == EWOULDBLOCK;
                sent->error = sent->blocked ? 0 : errno;
                return;
        }
        sent->wire = (uint64_t)n;
        if ((uint64_t)n < out) {
                conn->out_start += (uint32_t)n;
                return;
        }
        conn->out_start = conn->out_end = 0;
        sent->consumed = (uint64_t)n - out;
}

static size_t send_record(struct fabric_conn *conn, const void *bytes, size_t size, struct sent *sent) {
        int n, error;

        ERR_clear_error();
        n = SSL_write(conn->ssl, bytes, (int)size);
        if (n > 0) {
                sent->wire += (uint64_t)n;
                return (size_t)n;
        }
        error = SSL_get_error(conn->ssl, n);
        if (error == SSL_ERROR_WANT_WRITE || error == SSL_ERROR_WANT_READ)
                sent->blocked = true;
        else
                sent->error = error == SSL_ERROR_SYSCALL && errno ? errno : EPROTO;
        return 0;
}

/*
 * A record that could not be written must be offered again as it was: what stands in `out` stays there, and data that
 * were offered where they are come again, since nothing before them was taken out (zeros are as long).
 */
static void send_tls(struct fabric_conn *conn, const struct iovec *pieces, int n_pieces, struct sent *sent) {
        uint32_t room = CONN_OUT;

        if (conn->out_start == conn->out_end) {
                conn->out_start = conn->out_end = 0;
                if (n_pieces == 0)
                        return;
                if (pieces[0].iov_len >= TLS_DIRECT || conn->direct) {
                        size_t size = pieces[0].iov_len < TLS_RECORD ? pieces[0].iov_len : TLS_RECORD;

                        sent->consumed = send_record(conn, pieces[0].iov_base, size, sent);
                        conn->direct = sent->blocked;
                        return;
                }
                for (int i = 0; i < n_pieces && conn->out_end < room && pieces[i].iov_len < TLS_DIRECT; i++) {
                        size_t size =
                                pieces[i].iov_len < room - conn->out_end ? pieces[i].iov_len : room - conn->out_end;

                        memcpy(conn->out + conn->out_end, pieces[i].iov_base, size);
                        conn->out_end += (uint32_t)size;
                        sent->consumed += size;
                }
        }
        conn->out_start +=
                (uint32_t)send_record(conn, conn->out + conn->out_start, conn->out_end - conn->out_start, sent);
}

/* So many bytes of the frames have gone. */
static void conn_advance(struct fabric_conn *conn, uint64_t bytes) {
        while (conn->n_frames > 0) {
                struct conn_frame *frame = &conn->frames[conn->first_frame];
                uint64_t left = conn_frame_bytes(frame) - frame->done;

                if (bytes < left) {
                        frame->done += bytes;
                        return;
                }
                bytes -= left;
                if (frame->sequence) {
                        conn->whole = frame->sequence;
                        conn->rail->messages_sent++;
                }
                area_unref(frame->area);
                conn->first_frame = (conn->first_frame + 1) % CONN_FRAMES;
                conn->n_frames--;
        }
}

/* Gives the lock away. */
static void conn_send_once(struct fabric_conn *conn, struct sent *sent) {
        struct fabric *fabric = conn->rail->fabric;
        struct iovec pieces[SEND_PIECES];
        bool entered[CONN_FRAMES];
        int n_pieces = 0;

        for (uint32_t i = 0; i < conn->n_frames; i++)
                entered[i] = frame_enter(&conn->frames[(conn->first_frame + i) % CONN_FRAMES]);
        pthread_mutex_unlock(&fabric->lock);
        for (uint32_t i = 0; i < conn->n_frames; i++) {
                struct conn_frame *frame = &conn->frames[(conn->first_frame + i) % CONN_FRAMES];

                if (entered[i])
                        frame_finish(conn, frame);
                n_pieces += frame_pieces(frame, pieces + n_pieces, SEND_PIECES - n_pieces);
        }
        if (conn->ssl)
                send_tls(conn, pieces, n_pieces, sent);
        else
                send_plain(conn, pieces, n_pieces, sent);
        pthread_mutex_lock(&fabric->lock);
        for (uint32_t i = 0; i < conn->n_frames; i++)
                if (entered[i])
                        area_leave(fabric, conn->frames[(conn->first_frame + i) % CONN_FRAMES].area);
}

void conn_send(struct fabric_conn *conn) {
        struct fabric_rail *rail = conn->rail;

        for (unsigned int i = 0; i < SEND_ROUNDS && conn->ready_out && !conn->doomed; i++) {
                struct sent sent = {0};

                if (conn->n_frames == 0 && conn->out_start == conn->out_end)
                        break;
                conn_send_once(conn, &sent);
                conn_advance(conn, sent.consumed);
                rail->bytes_sent += sent.wire;
                if (sent.error) {
                        conn_doom(conn, true, "send: %s", strerror(sent.error));
                } else if (sent.blocked) {
                        conn->ready_out = false;
                        conn_watch(conn, EPOLLIN | EPOLLOUT);
                }
        }
        if (conn->closing && !conn->doomed && conn->n_frames == 0 && conn->out_start == conn->out_end)
                conn_doom(conn, false, "answered");
        conn_shut(conn);
        if (conn->ready_out && conn->n_frames > 0)
                rail->again = true;
}
