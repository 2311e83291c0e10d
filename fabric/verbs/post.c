/* SPDX-License-Identifier: MIT */
/*
 * What is sent. A chunk's data are written to where they belong in the other node's area; then its head and line, like
 * all frames, into the next slot of a ring at the other end, with immediate data that have the slot's number. Both go
 * over the same queue pair, whose order is the only thing that says that the data are there when the frame is. Never is
 * a frame sent over another one than its data.
 *
 * A slot is written again when the other end has told that it took the frame, and when our own adapter has said that it
 * is done with it. Frames of control go the same way, so no kind of frame can starve another; that slots were taken is
 * told by immediate data alone, for which a ring has always room.
 */
#include "fabric/verbs/verbs.h"

#include <arpa/inet.h>

#include "fabric/stream.h"

#define BATCH_WRS    160u /* a chunk of FRAME_DATA_MAX in messages of 8 MiB, and some */
#define CREDITS_MAX  (LINK_SLOTS / LINK_TELL + 2u)
#define POST_BATCHES 4u

struct batch {
        struct ibv_send_wr wrs[BATCH_WRS];
        struct ibv_sge sges[BATCH_WRS];
        uint32_t n;
};

static struct ibv_send_wr *batch_add(struct batch *batch, const struct verbs_link *link, uint64_t id, int opcode) {
        struct ibv_send_wr *wr = &batch->wrs[batch->n];

        *wr = (struct ibv_send_wr){.wr_id = id, .opcode = opcode};
        wr->wr.rdma.remote_addr = link->theirs.ring_address;
        wr->wr.rdma.rkey = link->theirs.ring_rkey;
        if (batch->n > 0)
                batch->wrs[batch->n - 1].next = wr;
        batch->n++;
        return wr;
}

static void batch_piece(struct batch *batch, struct ibv_send_wr *wr, const void *bytes, uint32_t size, uint32_t lkey) {
        struct ibv_sge *sge = &batch->sges[wr - batch->wrs];

        *sge = (struct ibv_sge){.addr = (uintptr_t)bytes, .length = size, .lkey = lkey};
        wr->sg_list = sge;
        wr->num_sge = 1;
}

/* That slots of ours are free again. */
static void link_fill_credit(struct verbs_link *link, struct batch *batch) {
        struct ibv_send_wr *wr;

        if (link->taken - link->told < LINK_TELL || link->n_credits >= CREDITS_MAX)
                return;
        wr = batch_add(batch, link, COMPLETION_CREDIT, IBV_WR_RDMA_WRITE_WITH_IMM);
        wr->send_flags = IBV_SEND_SIGNALED;
        wr->imm_data = htonl(imm_of(link->conn->number, link->taken, true));
        link->n_credits++;
        link->told = link->taken;
}

static uint32_t data_wrs(const struct verbs_link *link, uint32_t bytes) {
        return bytes ? (bytes - 1) / link->nic->max_message + 1 : 0;
}

/* The area has gone, here or there: the message keeps its sequence and says nothing. */
static void frame_empty(struct conn_frame *frame) {
        struct frame head;

        if (frame_decode(frame->head, frame->head_bytes, &head) == 0) {
                head.kind = FRAME_SKIP;
                head.data_bytes = 0;
                frame->head_bytes = frame_pack(&head, NULL, frame->head);
        }
        frame->data_bytes = 0;
        area_unref(frame->area);
        frame->area = NULL;
}

static void link_fill_data(struct verbs_link *link, struct batch *batch, const struct conn_frame *frame,
                           const struct verbs_place *place) {
        struct fabric_area *area = frame->area;
        const struct ibv_mr *mr = area->regions[link->nic->rail->index];
        const uint8_t *from = (const uint8_t *)area->memory + frame->data_offset;
        uint64_t to = place->address + (frame->data_offset - area->memory_offset);
        uint32_t left = frame->data_bytes;

        while (left > 0) {
                uint32_t size = left < link->nic->max_message ? left : link->nic->max_message;
                struct ibv_send_wr *wr =
                        batch_add(batch, link, COMPLETION_DATA | (link->posted + 1), IBV_WR_RDMA_WRITE);

                batch_piece(batch, wr, from, size, mr->lkey);
                wr->wr.rdma.remote_addr = to;
                wr->wr.rdma.rkey = place->rkey;
                from += size;
                to += size;
                left -= size;
        }
}

static void link_fill_frame(struct verbs_link *link, struct batch *batch, const struct conn_frame *frame) {
        struct ibv_send_wr *wr = batch_add(batch, link, link->posted + 1, IBV_WR_RDMA_WRITE_WITH_IMM);
        uint8_t *slot = link_slot_out(link, link->posted);

        memcpy(slot, frame->head, frame->head_bytes);
        batch_piece(batch, wr, slot, frame->head_bytes, link->out->lkey);
        wr->wr.rdma.remote_addr += (uint64_t)(link->posted % LINK_SLOTS) * LINK_SLOT;
        wr->imm_data = htonl(imm_of(link->conn->number, link->posted, false));
        if (frame->head_bytes <= link->max_inline)
                wr->send_flags |= IBV_SEND_INLINE;
        if (++link->unsignalled >= LINK_SIGNAL) {
                wr->send_flags |= IBV_SEND_SIGNALED;
                link->unsignalled = 0;
        }
}

/* The next frame, if there is room for it everywhere. */
static bool link_fill_next(struct verbs_link *link, struct batch *batch) {
        struct fabric_conn *conn = link->conn;
        struct conn_frame *frame = &conn->frames[conn->first_frame];
        struct verbs_place *place = NULL;
        uint32_t n_before = batch->n, n_wrs;

        if (conn->n_frames == 0 || link->posted - link->taken_there >= LINK_SLOTS ||
            link->posted - link->done >= LINK_SLOTS)
                return false;
        if (frame->area) {
                place = frame->area->gone ? NULL : link_place(link, frame->area->key);
                if (place && place->bytes != frame->area->memory_bytes) {
                        fabric_tell_violation(conn->rail->fabric, conn->peer, frame->area->key,
                                              "the peer offers an area that is not as large as ours");
                        place = NULL;
                }
                if (!place)
                        frame_empty(frame);
        }
        n_wrs = data_wrs(link, frame->data_bytes) + 1;
        if (batch->n + n_wrs > BATCH_WRS || link->n_wrs + n_wrs > LINK_WRS)
                return false;
        if (place)
                link_fill_data(link, batch, frame, place);
        link_fill_frame(link, batch, frame);
        link->slots[link->posted % LINK_SLOTS].area = frame->area;
        link->slots[link->posted % LINK_SLOTS].sequence = frame->sequence;
        link->slots[link->posted % LINK_SLOTS].n_wrs = batch->n - n_before;
        link->n_wrs += batch->n - n_before;
        link->posted++;
        conn->rail->bytes_sent += (uint64_t)frame->head_bytes + frame->data_bytes;
        conn_has_sent(conn, frame);
        if (frame->sequence) {
                conn->whole = frame->sequence;
                conn->rail->messages_sent++;
        }
        conn->first_frame = (conn->first_frame + 1) % CONN_FRAMES;
        conn->n_frames--;
        return true;
}

void link_send(struct fabric_conn *conn) {
        struct verbs_link *link = link_of(conn);
        struct fabric *fabric = conn->rail->fabric;

        if (conn->out_start < conn->out_end) /* the last word of the handshake */
                stream_flush(conn);
        for (unsigned int i = 0; i < POST_BATCHES && !conn->doomed; i++) {
                struct ibv_send_wr *bad;
                struct batch batch;
                int r;

                batch.n = 0;
                link_fill_credit(link, &batch);
                while (link_fill_next(link, &batch))
                        ;
                if (batch.n == 0)
                        return;
                if (link->unsignalled > 0) {
                        batch.wrs[batch.n - 1].send_flags |= IBV_SEND_SIGNALED;
                        link->unsignalled = 0;
                }
                pthread_mutex_unlock(&fabric->lock);
                r = link->nic->api->post_send(link->qp, batch.wrs, &bad);
                fabric_lock(fabric);
                if (r)
                        conn_doom(conn, true, "post: %s", strerror(abs(r)));
        }
        if (!conn->doomed && conn->n_frames > 0)
                conn->rail->again = true;
}
