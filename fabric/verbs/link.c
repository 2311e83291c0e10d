/* SPDX-License-Identifier: MIT */
/*
 * The queue pair of a connection. It is made for one connection and destroyed with it, never brought back from an
 * error: not all adapters can, and a new one with a random sequence number has nothing to do with packets of an old one
 * that are still on their way. So the number of the connection, which is never used again, is the epoch of all that is
 * written on it, and recover.c's promise holds: once a connection is buried its queue pair is gone, and what the other
 * end has sent on it is refused by the adapter.
 *
 * The socket on which both ends have proven themselves stays open. It carries nothing more, but its end is the quickest
 * word of a peer that was killed.
 */
#include "fabric/verbs/verbs.h"

#include <errno.h>
#include <openssl/rand.h>
#include <poll.h>
#include <sys/mman.h>

#include "fabric/stream.h"
#include "util/clock.h"

#define RINGS_BYTES ((size_t)2 * LINK_SLOTS * LINK_SLOT)
#define LAST_NS     UINT64_C(20000000) /* an adapter that says it does so in microseconds */
#define MUTE_NS     UINT64_C(1000000)
#define MUTE_ENDS   3u

static void link_say(struct fabric_conn *conn, const void *bytes, uint32_t size) {
        if (conn->out_start == conn->out_end)
                conn->out_start = conn->out_end = 0;
        memcpy(conn->out + conn->out_end, bytes, size); /* a hello is all that can stand before it */
        conn->out_end += size;
        conn->rail->again = true;
}

/* What an adapter is asked for may take long: the others have the lock meanwhile, and know of it (peer_count_up(),
 * rail_give_up()). Many short calls of one turn are as bad as a long one: nothing is looked at between
 * them. What it computes for itself, such as handshakes, and waits for a processor is not the adapter's. */
static void rail_leave(struct fabric_rail *rail) {
        rail->away_ns = clock_now_ns() - rail->spent_ns;
        pthread_mutex_unlock(&rail->fabric->lock);
}

static void rail_return(struct fabric_rail *rail) {
        pthread_mutex_lock(&rail->fabric->lock);
        rail->spent_ns = clock_now_ns() - rail->away_ns;
        rail->away_ns = 0;
}

/* Without the lock; 0 or a negative errno. What there is of it is taken down by link_end(). */
static int link_make(struct verbs_link *link) {
        struct verbs_nic *nic = link->nic;
        const struct verbs_api *api = nic->api;
        struct ibv_qp_init_attr init = {
                .send_cq = nic->cq,
                .recv_cq = nic->cq,
                .srq = nic->srq,
                .qp_type = IBV_QPT_RC,
                .cap = {.max_send_wr = LINK_WRS + 8, .max_send_sge = 1, .max_inline_data = FRAME_HEAD_MAX}};
        struct ibv_qp_attr attr = {
                .qp_state = IBV_QPS_INIT, .port_num = nic->port, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
        int r;

        if (RAND_bytes((uint8_t *)&link->psn, sizeof(link->psn)) != 1)
                return -EIO;
        link->psn &= 0xffffff;
        /* Shared, so that a fork() of this process leaves the pages where the adapter knows them to be. */
        link->rings = mmap(NULL, RINGS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (link->rings == MAP_FAILED) {
                link->rings = NULL;
                return -ENOMEM;
        }
        link->in = api->reg_mr(nic->pd, link->rings, RINGS_BYTES / 2, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        if (!link->in)
                return -errno;
        link->out = api->reg_mr(nic->pd, link->rings + RINGS_BYTES / 2, RINGS_BYTES / 2, IBV_ACCESS_LOCAL_WRITE);
        if (!link->out)
                return -errno;
        link->qp = api->create_qp(nic->pd, &init);
        if (!link->qp && (errno == ENOMEM || errno == EINVAL)) { /* some have no room for so much inline */
                init.cap.max_inline_data = 0;
                link->qp = api->create_qp(nic->pd, &init);
        }
        if (!link->qp)
                return -errno;
        link->number = link->qp->qp_num;
        link->max_inline = init.cap.max_inline_data;
        r = api->modify_qp(link->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
        return r ? -abs(r) : 0;
}

/* After link_make(). */
static bool link_introduce(struct verbs_link *link) {
        struct verbs_nic *nic = link->nic;
        struct fabric_conn *conn = link->conn;
        struct pair ours = {.queue_pair = link->number,
                            .psn = link->psn,
                            .lid = nic->lid,
                            .mtu = (uint8_t)nic->mtu,
                            .slots = LINK_SLOTS,
                            .slot_bytes = LINK_SLOT,
                            .ring_address = (uintptr_t)link->rings,
                            .ring_rkey = link->in->rkey};
        uint8_t bytes[PAIR_BYTES];

        memcpy(ours.gid, nic->gid.raw, sizeof(ours.gid));
        if (pair_pack(&ours, conn->nonce, conn->number, !conn->dialled, conn->peer->token, bytes)) {
                conn_doom(conn, false, "no proof could be made");
                return false;
        }
        link_say(conn, bytes, sizeof(bytes));
        return true;
}

void link_begin(struct fabric_conn *conn, uint64_t now_ns) {
        struct fabric_rail *rail = conn->rail;
        struct verbs_nic *nic = nic_of(rail);
        struct verbs_link *link;
        bool look = nic->look;
        int r;

        conn->state = CONN_PAIR;
        if (nic->fatal || nic->n_links >= nic->max_links) {
                conn_doom(conn, true,
                          nic->fatal ? "the adapter has failed; restart railmuxd when it is well"
                                     : "there are as many queue pairs as the completion queue has room for");
                return;
        }
        link = calloc(1, sizeof(*link));
        if (!link) {
                conn_doom(conn, false, "no memory");
                return;
        }
        link->nic = nic;
        link->conn = conn;
        link->work = true;
        conn->link = link;
        nic->n_links++;
        nic->look = false;
        rail_leave(rail);
        if (look || !nic->active)
                nic_look(nic);
        r = nic->active ? link_make(link) : -ENETDOWN;
        rail_return(rail);
        if (link->qp)
                HASH_ADD(hh, nic->links, number, sizeof(link->number), link);
        if (conn->doomed)
                return;
        if (r == 0 && !link->hh.tbl)
                r = -ENOMEM;
        if (r) {
                nic->look = true;
                conn_doom(conn, true, "no queue pair could be made: %s", strerror(-r));
                return;
        }
        if (link_introduce(link))
                link_pair(conn, now_ns); /* what came behind the hello */
}

/* Without the lock. */
static int link_connect(struct verbs_link *link, uint8_t dscp) {
        struct verbs_nic *nic = link->nic;
        const struct pair *theirs = &link->theirs;
        struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR,
                                      .path_mtu = theirs->mtu < nic->mtu ? (enum ibv_mtu)theirs->mtu : nic->mtu,
                                      .dest_qp_num = theirs->queue_pair,
                                      .rq_psn = theirs->psn,
                                      .max_dest_rd_atomic = 1,
                                      .min_rnr_timer = 12,
                                      .ah_attr = {.is_global = 1,
                                                  .dlid = theirs->lid,
                                                  .port_num = nic->port,
                                                  .grh = {.sgid_index = (uint8_t)nic->gid_index,
                                                          .hop_limit = 64,
                                                          .flow_label = nic->flow_label}}};
        struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS,
                                   .timeout = nic->timeout,
                                   .retry_cnt = nic->retries,
                                   .rnr_retry = 7,
                                   .sq_psn = link->psn,
                                   .max_rd_atomic = 1};
        int r;

        receive.ah_attr.grh.traffic_class = (uint8_t)(dscp << 2);
        memcpy(receive.ah_attr.grh.dgid.raw, theirs->gid, 16);
        r = nic->api->modify_qp(link->qp, &receive,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
        link->receives = r == 0;
        if (r == 0)
                r = nic->api->modify_qp(link->qp, &send,
                                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
        return r ? -abs(r) : 0;
}

static void link_meet(struct verbs_link *link) {
        struct fabric_conn *conn = link->conn;
        struct fabric *fabric = conn->rail->fabric;
        const uint8_t ready = PAIR_READY;
        uint8_t dscp;
        int r;

        r = pair_unpack(conn->in + conn->in_start, conn->nonce, conn->number, conn->dialled, conn->peer->token,
                        &link->theirs);
        conn->in_start += PAIR_BYTES;
        if (r || link->theirs.mtu < IBV_MTU_256 || link->theirs.mtu > IBV_MTU_4096) {
                fabric->counters.refused++;
                conn->rail->n_refused++;
                conn_doom(conn, true,
                          r == PAIR_E_TOKEN ? "the other end's queue pair is not proven"
                                            : "the rail of this name at the other end is not of kind verbs");
                return;
        }
        if (link->theirs.slots != LINK_SLOTS || link->theirs.slot_bytes != LINK_SLOT) {
                conn_doom(conn, true, "the other end has rings of %u x %u bytes, not %u x %u: another railmux",
                          link->theirs.slots, link->theirs.slot_bytes, LINK_SLOTS, LINK_SLOT);
                return;
        }
        dscp = conn->rail->dscp[conn->port->class]; /* the port may go meanwhile */
        rail_leave(conn->rail);
        r = link_connect(link, dscp);
        rail_return(conn->rail);
        if (conn->doomed)
                return;
        if (r) {
                link->nic->look = true;
                conn_doom(conn, true, "the queue pair cannot be connected: %s", strerror(-r));
                return;
        }
        link->connected = true;
        link_say(conn, &ready, 1);
}

void link_up(struct verbs_link *link, uint64_t now_ns) {
        if (link->conn->state == CONN_PAIR)
                conn_up(link->conn, now_ns);
}

void link_pair(struct fabric_conn *conn, uint64_t now_ns) {
        struct verbs_link *link = link_of(conn);

        while (!conn->doomed) {
                struct iovec to;
                ssize_t n;

                if (!link->connected && conn->in_end - conn->in_start >= PAIR_BYTES) {
                        link_meet(link);
                        continue;
                }
                if (link->connected && conn->in_end > conn->in_start) {
                        link->said_ready = true;
                        if (conn->in[conn->in_start++] != PAIR_READY)
                                conn_malformed(conn, "the peer said something else than that it is ready");
                        else
                                link_up(link, now_ns);
                        return;
                }
                to = (struct iovec){.iov_base = conn->in + conn->in_end, .iov_len = CONN_IN - conn->in_end};
                n = to.iov_len ? conn_read(conn, &to, 1) : 0;
                if (n <= 0)
                        return;
                conn->in_end += (uint32_t)n;
        }
}

void link_receive(struct fabric_conn *conn, uint64_t now_ns) {
        struct verbs_link *link = link_of(conn);
        uint8_t bytes[64];
        struct iovec to = {.iov_base = bytes, .iov_len = sizeof(bytes)};
        ssize_t n;

        (void)now_ns;
        n = conn_read(conn, &to, 1);
        /* What it says when a frame was here sooner than its word. */
        if (n > 1 || (n == 1 && (link->said_ready || bytes[0] != PAIR_READY)))
                conn_malformed(conn, "the peer sent something over the socket of a queue pair");
        link->said_ready |= n == 1;
}

static void link_free(struct verbs_link *link) {
        struct verbs_nic *nic = link->nic;

        if (link->out)
                nic->api->dereg_mr(link->out);
        if (link->in)
                nic->api->dereg_mr(link->in);
        if (link->rings)
                munmap(link->rings, RINGS_BYTES);
        free(link);
}

/*
 * A receive that the queue pair had taken for a message in the midst of which it was stopped comes to the completion
 * queue when the adapter gets to it, and then the adapter says that this was the last one. It may have said so long
 * ago, if the queue pair failed. Some never do (Soft-RoCE of Linux 6.1): not much time is lost for these, as nothing
 * else is done on the rail meanwhile. Without the lock.
 */
static void link_wait_last(struct verbs_link *link) {
        struct verbs_nic *nic = link->nic;
        struct fabric_rail *rail = nic->rail;
        struct pollfd fd = {.fd = nic->context->async_fd, .events = POLLIN};
        uint64_t now_ns = clock_now_ns();
        const uint64_t end_ns = now_ns + (nic->n_mute < MUTE_ENDS ? LAST_NS : MUTE_NS);

        nic->ending = link;
        while (!link->last && !nic->fatal && now_ns < end_ns) {
                (void)poll(&fd, 1, (int)((end_ns - now_ns + 999999) / 1000000));
                now_ns = clock_now_ns();
                rail_return(rail);
                nic_event(rail, now_ns);
                rail_leave(rail);
        }
        nic->ending = NULL;
        nic->n_mute = link->last || nic->fatal ? 0 : nic->n_mute + 1;
}

/*
 * Some adapters (mlx5) throw away what a destroyed queue pair has left in the completion queue. Of receives of the
 * shared queue nobody would hear then, they would never be posted again, and a rail without receives is dead. So
 * nothing more may arrive first, and what has arrived is polled; the queue pair is not in nic->links any more.
 */
static void link_stop(struct verbs_link *link) {
        struct fabric_rail *rail = link->nic->rail;
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

        if (link->nic->api->modify_qp(link->qp, &attr, IBV_QP_STATE) == 0 && link->receives)
                link_wait_last(link); /* if not, it is destroyed all the same */
        rail_return(rail);
        if (link->receives && !link->last && !link->nic->fatal)
                rail->n_unsettled++;
        nic_drain(link->nic, clock_now_ns());
        rail_leave(rail);
}

void link_end(struct fabric_conn *conn) {
        struct verbs_link *link = link_of(conn);
        struct fabric_rail *rail = conn->rail;

        if (!link)
                return;
        conn->link = NULL;
        if (link->hh.tbl)
                HASH_DEL(link->nic->links, link);
        rail_leave(rail);
        if (link->qp) {
                link_stop(link);
                link->nic->api->destroy_qp(link->qp);
        }
        rail_return(rail);
        /* What it has left in the completion queue must not be taken for that of a new one with its number. */
        nic_drain(link->nic, clock_now_ns());
        link->nic->n_links--;
        for (uint32_t i = link->done; i != link->posted; i++)
                area_unref(link->slots[i % LINK_SLOTS].area);
        link_forget_places(link);
        rail_leave(rail);
        link_free(link);
        rail_return(rail);
}
