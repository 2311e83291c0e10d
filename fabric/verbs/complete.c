/* SPDX-License-Identifier: MIT */
/*
 * What the completion queue of a rail has: frames and words of credit from other nodes, and that ours have gone.
 *
 * It is polled as long as there was something not long ago; then it is armed, looked at once more (what came between
 * makes no event), and the thread sleeps until its channel can be read.
 *
 * Of a completion that failed, only its id, status and queue pair mean anything.
 *
 * A reliable connection hands over each frame once. Soft-RoCE (Linux 6.1) does not always: where it has to send again
 * on processors that are too busy, a frame has come twice (8 nodes of 4 rails on two emulated processors). That is
 * treated as all else that cannot be: the connection is made anew, and what it had not been told about is sent again.
 */
#include "fabric/verbs/verbs.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <utlist.h>

#define POLL_BATCH   32
#define POLL_BATCHES 8u
#define REFILL_BATCH 64u
#define UNARMED_MAX  1000u
#define REFUSALS     3u /* of one message's data, or of an area's by several rails */

int nic_refill(struct verbs_nic *nic) {
        while (nic->n_missing > 0) {
                struct ibv_recv_wr wrs[REFILL_BATCH], *bad = NULL;
                uint32_t n = nic->n_missing < REFILL_BATCH ? nic->n_missing : REFILL_BATCH;
                int r;

                for (uint32_t i = 0; i < n; i++)
                        wrs[i] = (struct ibv_recv_wr){.wr_id = COMPLETION_RECEIVE,
                                                      .next = i + 1 < n ? &wrs[i + 1] : NULL};
                r = nic->api->post_srq_recv(nic->srq, wrs, &bad);
                if (r) {
                        nic->n_missing -= bad ? (uint32_t)(bad - wrs) : 0;
                        return -abs(r);
                }
                nic->n_missing -= n;
        }
        return 0;
}

static void link_took_there(struct verbs_link *link, uint32_t count) {
        uint32_t n = (count - link->taken_there) & IMM_COUNT;

        if (n > link->posted - link->taken_there) {
                conn_malformed(link->conn, "the peer says that it took frames that were not sent");
                return;
        }
        link->taken_there += n;
        link->conn->rail->again = true;
}

static void link_take_frame(struct verbs_link *link, uint32_t count, uint32_t size, uint64_t now_ns) {
        struct fabric_conn *conn = link->conn;
        const struct frame *frame = &conn->frame;
        uint8_t copy[FRAME_HEAD_MAX]; /* theirs to write to, and they may do so at any time */
        uint32_t n;

        if (count != (link->taken & IMM_COUNT) || size < FRAME_HEAD || size > FRAME_HEAD_MAX) {
                char text[96];

                snprintf(text, sizeof(text), "the peer sent frame %u of %u bytes, where %u was the next one", count,
                         size, link->taken & IMM_COUNT);
                conn_malformed(conn, text);
                return;
        }
        memcpy(copy, link->rings + (size_t)(link->taken % LINK_SLOTS) * LINK_SLOT, size);
        link->taken++;
        n = conn_head(conn, copy, size, now_ns);
        if (conn->doomed)
                return;
        if (n != size) {
                conn_malformed(conn, "the peer sent a part of a frame");
                return;
        }
        conn->rail->bytes_received += (uint64_t)n + frame->data_bytes;
        if (frame->sequence)
                conn_apply(conn, frame->kind == FRAME_SKIP ? NULL : conn_target(conn, frame));
        link->heard = true;
}

static void nic_arrived(struct verbs_nic *nic, struct verbs_link *link, const struct ibv_wc *wc, uint64_t now_ns) {
        uint32_t imm = ntohl(wc->imm_data);
        struct fabric_conn *conn;

        nic->n_missing++;
        if (!link || link->conn->doomed)
                return;
        conn = link->conn;
        if (!(wc->wc_flags & IBV_WC_WITH_IMM) || ((imm ^ imm_of(conn->number, 0, false)) & (UINT32_C(0x7f) << 24))) {
                conn_malformed(conn, "the peer sent something of another epoch");
                return;
        }
        link_up(link, now_ns); /* it would not have sent before it was ready */
        conn_heard_at(conn, now_ns);
        if (imm & IMM_CREDIT)
                link_took_there(link, imm & IMM_COUNT);
        else
                link_take_frame(link, imm & IMM_COUNT, wc->byte_len, now_ns);
}

/* All up to this one have gone. */
static void link_done(struct verbs_link *link, uint32_t count) {
        while ((int32_t)(count - link->done) > 0 && link->done != link->posted) {
                uint32_t slot = link->done++ % LINK_SLOTS;

                link->n_wrs -= link->slots[slot].n_wrs;
                area_unref(link->slots[slot].area);
                link->slots[slot].area = NULL;
        }
        link->conn->rail->again = true;
}

/* A key or an address is wrong, here or at the other end. */
static bool status_is_refusal(enum ibv_wc_status status) {
        return status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR;
}

/* Is that the rail's fault? Else it is ours or the peer's, and the next connection may do better. */
static bool status_is_rail(enum ibv_wc_status status) {
        return !status_is_refusal(status) && status != IBV_WC_LOC_LEN_ERR && status != IBV_WC_REM_OP_ERR;
}

/*
 * The data of a message is refused. The connection is over for all who use it, and would be again for the same message:
 * after a few times its area fails. Until then one of the adapters may be what is wrong, and the message is to go
 * elsewhere if it can. It is not when several rails refuse what the area has, of which each connection that ends shows
 * one message only. NULL: it is something else.
 */
static struct fabric_area *link_refused(struct verbs_link *link, const struct ibv_wc *wc) {
        const uint32_t count = (uint32_t)wc->wr_id - 1, slot = count % LINK_SLOTS;
        struct fabric_area *area = link->slots[slot].area;
        struct schedule_item *item;
        bool fails;

        if (!(wc->wr_id & COMPLETION_DATA) || !status_is_refusal(wc->status) ||
            count - link->done >= link->posted - link->done || !area)
                return NULL;
        area->n_refused++;
        area->refused_on |= 1u << link->nic->rail->index;
        fails = area->n_refused >= REFUSALS && (area->refused_on & (area->refused_on - 1)) != 0;
        DL_FOREACH(link->conn->unacked, item) {
                if (item_of(item)->sequence == link->slots[slot].sequence)
                        fails |= ++item_of(item)->refused >= REFUSALS;
        }
        if (fails)
                area_fail(area, "an adapter refuses its data");
        return area;
}

static void nic_broke(struct verbs_nic *nic, struct verbs_link *link, const struct ibv_wc *wc, uint64_t now_ns) {
        struct fabric_area *refused;
        char text[80];

        if (wc->wr_id == COMPLETION_RECEIVE)
                nic->n_missing++;
        if (!link)
                return;
        refused = link_refused(link, wc); /* the other end may have been quicker to end the connection */
        if (link->conn->doomed)           /* the first error says why, what follows is flushed */
                return;
        snprintf(text, sizeof(text), "%s (%u)", ibv_wc_status_str(wc->status), wc->vendor_err);
        if (!status_is_rail(wc->status))
                fabric_tell_violation(nic->rail->fabric, link->conn->peer, refused ? refused->key : 0, text);
        nic->look = true;
        if (refused && (refused->failed || refused->gone))
                conn_doom(link->conn, false, "%s: %s", nic->device, text); /* that is over, and the rail is well */
        else
                link_doom(link, refused || status_is_rail(wc->status), now_ns, text);
}

static void nic_completed(struct verbs_nic *nic, const struct ibv_wc *wc, uint64_t now_ns) {
        struct verbs_link *link;

        HASH_FIND(hh, nic->links, &wc->qp_num, sizeof(link->number), link);
        if (wc->status != IBV_WC_SUCCESS) {
                nic_broke(nic, link, wc, now_ns);
        } else if (wc->opcode & IBV_WC_RECV) {
                nic_arrived(nic, link, wc, now_ns);
        } else if (link && wc->wr_id == COMPLETION_CREDIT) {
                link->n_credits--;
        } else if (link) {
                link_done(link, (uint32_t)wc->wr_id);
        }
}

/* Is there more? */
static bool nic_poll_batch(struct verbs_nic *nic, uint64_t now_ns) {
        struct ibv_wc wcs[POLL_BATCH];
        uint64_t carried;
        int n;

        n = nic->fatal ? 0 : nic->api->poll_cq(nic->cq, POLL_BATCH, wcs);
        for (int j = 0; j < n; j++)
                nic_completed(nic, &wcs[j], now_ns);
        if (n > 0)
                nic->busy_ns = now_ns;
        else if (n < 0)
                nic_failed(nic, "the completion queue cannot be read");
        carried = nic->rail->messages_sent + nic->rail->messages_received;
        if (carried != nic->carried) {
                nic->carried = carried;
                nic->work_ns = now_ns;
        }
        if (nic->n_missing >= REFILL_BATCH)
                (void)nic_refill(nic); /* what is missing still is missing, and is tried again */
        return n == POLL_BATCH;
}

/* Once for all that has come: each word of it takes a place in the connection's ring of frames. */
static void nic_tell(struct verbs_nic *nic, uint64_t now_ns) {
        struct verbs_link *link, *tmp;

        HASH_ITER(hh, nic->links, link, tmp) {
                if (!link->heard || link->conn->doomed)
                        continue;
                link->heard = false;
                conn_tell(link->conn, now_ns);
                if (link->taken - link->told >= LINK_TELL)
                        nic->rail->again = true;
        }
}

void nic_poll(struct fabric_rail *rail, uint64_t now_ns) {
        struct verbs_nic *nic = nic_of(rail);
        bool more = true;

        for (unsigned int i = 0; i < POLL_BATCHES && more; i++)
                more = nic_poll_batch(nic, now_ns);
        nic_tell(nic, now_ns);
        if (more)
                rail->again = true;
}

void nic_drain(struct verbs_nic *nic, uint64_t now_ns) {
        while (nic_poll_batch(nic, now_ns))
                ;
        nic->rail->again = true; /* some may have to be told */
}

bool nic_sleep(struct fabric_rail *rail, uint64_t now_ns) {
        struct verbs_nic *nic = nic_of(rail);

        if (nic->n_links > 0 && now_ns - nic->work_ns < rail->fabric->spin_ns &&
            !yielder_rests(&rail->fabric->looks, now_ns))
                return false;
        (void)nic_refill(nic);
        if (nic->armed)
                return true;
        if (nic->fatal)
                return true;
        if (nic->api->req_notify_cq(nic->cq) != 0) {
                if (++nic->n_unarmed >= UNARMED_MAX)
                        nic_failed(nic, "the completion queue gives no events");
                return false;
        }
        nic->n_unarmed = 0;
        nic->armed = true;
        rail->again = false;
        nic->busy_ns = 0;
        nic_poll(rail, now_ns);
        return nic->busy_ns == 0 && !rail->again;
}
