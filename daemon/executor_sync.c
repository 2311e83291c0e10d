/* SPDX-License-Identifier: MIT */
/*
 * After HELLO an executor lists what it holds, then says READY. Three cases per object:
 *   both have it         it counts as attached
 *   only the executor    detached: its session or comm ended while no daemon was connected
 *   only the daemon      attached: a new executor, or one that missed it
 * What an executor was told but did not confirm (a rank's leaving, an abort, a retired buffer) is said again; all of it
 * is idempotent. A ring or buffer number is chosen by the client. If a predecessor died between telling the executor of
 * one and recording it, the client has made it anew since, and what the executor holds under that number is not ours
 * (attachment.known tells). A buffer that it has retired and still uses is retired again, to hear of its end, also by a
 * successor that knows nothing of the client's call yet: the client repeats it.
 *
 * A comm that has lost a member is ended before the member's session is detached, so it fails with this rank whatever
 * the executor saw.
 */
#include "daemon/executor_sync.h"

#include "daemon/buffer.h"
#include "daemon/comm.h"
#include "daemon/comm_device.h"
#include "daemon/executor_link.h"
#include "daemon/executor_op.h"
#include "daemon/handover.h"
#include "daemon/manager.h"
#include "daemon/reach.h"
#include "daemon/session.h"
#include "daemon/session_ring.h"
#include "railmux/railmux.h"
#include "util/log.h"
#include <string.h>
#include <utlist.h>

static void executor_sync_have(struct attachment *attachment, uint64_t mask) {
        attachment->sent |= mask;
        attachment->acked |= mask;
}

/* The first member whose process has gone without leaving; -1 if none. */
static int32_t executor_sync_lost_rank(const struct comm *comm) {
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                if (comm->members[r].lost)
                        return (int32_t)r;
        }
        return -1;
}

void executor_sync_inventory(struct executor_link *link, const Railmux__Executor__Inventory *inventory) {
        struct manager *manager = link->manager;
        uint64_t mask = executor_link_mask(link);

        for (size_t i = 0; i < inventory->n_comms; i++) {
                const Railmux__Executor__CommKey *key = inventory->comms[i];
                struct comm *comm = manager_comm(manager, key->comm);
                int32_t rank;

                if (!comm || comm->state == COMM_JOINING) {
                        executor_op_push_owed(link, EXECUTOR_OP_COMM_DETACH, key->comm, 0);
                        continue;
                }
                if (key->held && handover_leaves(comm, link))
                        continue;
                executor_sync_have(&comm->attachment, mask);
                if (key->code)
                        comm_broken(comm, mask, key->code,
                                    key->failed && key->failed <= comm->n_ranks ? (int32_t)key->failed - 1
                                                                                : executor_sync_lost_rank(comm),
                                    key->message[0] || comm->code ? key->message
                                                                  : "ended by a railmuxd that did not record why");
                comm_set_epoch(comm, key->epoch);
                rank = executor_sync_lost_rank(comm);
                if (rank >= 0)
                        comm_broken(comm, 0, RMX_E_PEER_LOST, rank, "");
                if (comm->code && !key->code)
                        executor_op_push(link, EXECUTOR_OP_COMM_ABORT, comm->number, 0);
                reach_thaw(comm, mask);
                if (key->held && comm->handover.state == HANDOVER_NONE) /* a predecessor's doing, or long over */
                        executor_op_push(link, EXECUTOR_OP_COMM_RELEASE, comm->number, 0);
        }
        for (size_t i = 0; i < inventory->n_sessions; i++) {
                struct session *session = manager_session(manager, inventory->sessions[i]);

                if (session)
                        executor_sync_have(&session->attachment, mask);
                else
                        executor_op_push(link, EXECUTOR_OP_SESSION_DETACH, inventory->sessions[i], 0);
        }
        for (size_t i = 0; i < inventory->n_rings; i++) {
                struct session *session = manager_session(manager, inventory->rings[i]->session);
                struct session_ring *ring = session ? session_ring_find(session, inventory->rings[i]->gpu) : NULL;

                if (ring && ring->attachment.known & mask)
                        executor_sync_have(&ring->attachment, mask);
                else if (ring)
                        session_end(session, LOG_LEVEL_ERROR, "executor %s holds another ring for GPU %u", link->name,
                                    ring->gpu);
        }
        for (size_t i = 0; i < inventory->n_buffers; i++) {
                const Railmux__Executor__BufferKey *key = inventory->buffers[i];
                struct session *session = manager_session(manager, key->session);
                struct buffer *buffer = session ? buffer_find(session, key->buffer) : NULL;

                if (buffer && buffer->attachment.known & mask)
                        executor_sync_have(&buffer->attachment, mask);
                else if (session)
                        executor_op_push(link, EXECUTOR_OP_BUFFER_RETIRE, key->session, key->buffer);
        }
        for (size_t i = 0; i < inventory->n_retired; i++) {
                const Railmux__Executor__BufferKey *key = inventory->retired[i];
                struct session *session = manager_session(manager, key->session);
                struct buffer *buffer = session ? buffer_find(session, key->buffer) : NULL;

                if (!buffer || buffer->attachment.acked & mask) /* the number is another buffer's by now */
                        continue;
                executor_sync_have(&buffer->attachment, mask);
                buffer_retire(buffer);
        }
        reach_inventory(link, inventory);
}

static void executor_sync_sessions(struct executor_link *link) {
        uint64_t mask = executor_link_mask(link);
        struct session *session, *next;

        for (session = link->manager->sessions; session; session = next) {
                struct buffer *buffer, *next_buffer;

                next = session->hh.next;
                executor_attach_session(session);
                for (buffer = session->buffers; buffer; buffer = next_buffer) {
                        next_buffer = buffer->hh.next;
                        if (buffer->retiring && buffer->attachment.acked & mask)
                                executor_op_push(link, EXECUTOR_OP_BUFFER_RETIRE, session->id, buffer->id);
                        else if (buffer->retiring)
                                buffer_retired(buffer, mask);
                        else if (buffer->attachment.acked & mask)
                                buffer_attached(buffer, mask, 0, "");
                        else
                                executor_attach_buffer(buffer);
                }
        }
}

/* Last of all: requests may stand in a ring already, and they name buffers and comms. */
static void executor_sync_rings(struct executor_link *link) {
        uint64_t mask = executor_link_mask(link);
        struct session *session, *next;

        for (session = link->manager->sessions; session; session = next) {
                struct session_ring *ring, *next_ring;

                next = session->hh.next;
                for (ring = session->rings; ring; ring = next_ring) {
                        next_ring = ring->next;
                        if (ring->attachment.acked & mask)
                                session_ring_attached(ring, mask, 0, "");
                        else
                                executor_attach_ring(ring);
                }
        }
}

static void executor_sync_comms(struct executor_link *link) {
        uint64_t mask = executor_link_mask(link);
        struct comm *comm, *next;

        for (comm = link->manager->comms; comm; comm = next) {
                int32_t rank = comm->code == 0 ? executor_sync_lost_rank(comm) : -1;

                if (rank >= 0 && comm->state == COMM_READY && comm_needed(comm) & mask)
                        comm_broken(comm, 0, RMX_E_PEER_LOST, rank, ""); /* may end others, of its splits */
                next = comm->hh.next;
                if (comm->state == COMM_JOINING || !(comm_needed(comm) & mask))
                        continue;
                if (!(comm->attachment.acked & mask))
                        executor_attach_comm(comm);
                for (uint32_t r = 0; r < comm->n_ranks; r++) {
                        if (comm->members[r].leaving && !comm->members[r].left)
                                executor_op_push(link, EXECUTOR_OP_RANK_LEAVE, comm->number, r);
                }
                if (comm->aborting)
                        executor_op_push(link, EXECUTOR_OP_COMM_ABORT, comm->number, comm->abort_rank);
        }
}

/* Comms that were on their way when the connection broke, and that the executor has: their ranks can be answered. That
 * may free comms (a split that fails as a whole), so the walk begins again when the number of comms has changed. */
static void executor_sync_arrivals(struct executor_link *link) {
        uint64_t mask = executor_link_mask(link);
        struct comm *comm, *next;
        unsigned int n;

again:
        n = HASH_COUNT(link->manager->comms);
        for (comm = link->manager->comms; comm; comm = next) {
                next = comm->hh.next;
                if (comm->state != COMM_ATTACHING || !(comm->attachment.acked & mask))
                        continue;
                comm_attached(comm, mask, 0, "", comm->epoch, 0);
                if (HASH_COUNT(link->manager->comms) != n)
                        goto again;
        }
}

void executor_sync_ready(struct executor_link *link) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__Welcome welcome = RAILMUX__EXECUTOR__WELCOME__INIT;
        int r;

        welcome.version = link->version;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_WELCOME;
        message.welcome = &welcome;
        r = frame_send(link->fd, &message.base, NULL, 0);
        if (r != FRAME_OK) {
                executor_link_disconnect(link, r > 0 ? frame_error_text(r) : "cannot send WELCOME");
                return;
        }
        link->state = EXECUTOR_ATTACHING;
        link->n_owed++; /* not ready before everything below is queued */
        executor_link_flush(link);
        if (link->manager->on_device) {
                comm_device_settle(link);
                comm_device_join(link, link->fresh);
        }
        link->fresh = false;
        executor_sync_sessions(link);
        if (link->manager->on_device)
                reach_sync(link); /* who was reached by one that has ended must not count on it in what comes now */
        executor_sync_comms(link);
        executor_sync_arrivals(link);
        executor_sync_rings(link);
        handover_join(link);
        if (link->state == EXECUTOR_GONE)
                return;
        link->n_owed--;
        executor_link_flush(link);
}

void executor_sync_forget(struct executor_link *link) {
        uint64_t mask = executor_link_mask(link);
        struct session *session;
        struct session_ring *ring;
        struct buffer *buffer;
        struct comm *comm;

        for (session = link->manager->sessions; session; session = session->hh.next) {
                attachment_forget(&session->attachment, mask);
                DL_FOREACH(session->rings, ring)
                        attachment_forget(&ring->attachment, mask);
                for (buffer = session->buffers; buffer; buffer = buffer->hh.next) {
                        attachment_forget(&buffer->attachment, mask);
                        buffer->held &= ~mask;
                }
        }
        for (comm = link->manager->comms; comm; comm = comm->hh.next)
                attachment_forget(&comm->attachment, mask);
        memset(link->peers, 0, sizeof(link->peers));
        reach_forget(link);
}
