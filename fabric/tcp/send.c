/* SPDX-License-Identifier: MIT */
/*
 * Frames go out as they stand in the connection's ring: heads and trailers from there, data out of the area. Without
 * TLS one sendmsg() takes all of them.
 *
 * When an area goes while one of its chunks is on its way, the frame has to be ended all the same: what is left of the
 * data is zeros then, and the trailer says that nothing of it may be used.
 */
#include "fabric/bytes.h"
#include "fabric/crc.h"
#include "fabric/stream.h"
#include "fabric/tcp/tcp.h"

#define SEND_ROUNDS 8u

static const uint8_t send_zeros[65536];

static uint64_t conn_frame_bytes(const struct conn_frame *frame) {
        return frame->head_bytes + (frame->data_bytes ? (uint64_t)frame->data_bytes + FRAME_TRAILER : 0);
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

/* So many bytes of the frames have gone. */
static void conn_advance(struct fabric_conn *conn, uint64_t bytes) {
        while (conn->n_frames > 0) {
                struct conn_frame *frame = &conn->frames[conn->first_frame];
                uint64_t left = conn_frame_bytes(frame) - frame->done;

                if (bytes > 0)
                        conn_has_sent(conn, frame);
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
static void conn_send_once(struct fabric_conn *conn, struct stream_sent *sent) {
        struct fabric *fabric = conn->rail->fabric;
        struct iovec pieces[STREAM_PIECES];
        bool entered[CONN_FRAMES];
        int n_pieces = 0;

        for (uint32_t i = 0; i < conn->n_frames; i++)
                entered[i] = frame_enter(&conn->frames[(conn->first_frame + i) % CONN_FRAMES]);
        pthread_mutex_unlock(&fabric->lock);
        for (uint32_t i = 0; i < conn->n_frames; i++) {
                struct conn_frame *frame = &conn->frames[(conn->first_frame + i) % CONN_FRAMES];

                if (entered[i])
                        frame_finish(conn, frame);
                n_pieces += frame_pieces(frame, pieces + n_pieces, STREAM_PIECES - n_pieces);
        }
        stream_write(conn, pieces, n_pieces, sent);
        fabric_lock(fabric);
        for (uint32_t i = 0; i < conn->n_frames; i++)
                if (entered[i])
                        area_leave(fabric, conn->frames[(conn->first_frame + i) % CONN_FRAMES].area);
}

void tcp_send(struct fabric_conn *conn) {
        for (unsigned int i = 0; i < SEND_ROUNDS && conn->ready_out && !conn->doomed; i++) {
                struct stream_sent sent = {0};

                if (conn->n_frames == 0 && conn->out_start == conn->out_end)
                        break;
                conn_send_once(conn, &sent);
                conn_advance(conn, sent.consumed);
                stream_written(conn, &sent);
        }
        if (conn->ready_out && conn->n_frames > 0)
                conn->rail->again = true;
}
