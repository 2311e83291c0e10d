/* SPDX-License-Identifier: MIT */
/*
 * What railmuxd's messages on communicators do to a plane, and how one ends whose rank's process has.
 *
 * On one node it ends at once. Over several, a program may exit when its last call has returned, which is when its own
 * GPU is done: what others still need of it may be on its way to another node, by a thread that stops with the comm. So
 * as in executors of the host (comm_nodes.c) a rank that has nothing under way and that nobody here waits for is taken
 * for one that has left, and the comm ends for all when the others have had some time.
 *
 * Each executor of the node hears of the end of the session, and knows of its own GPU only. The rank's own looks
 * whether it had something under way, and whether others there are ahead of it. The rest see who waits for a send or
 * receive of it; what they cannot see costs no more than the time that the others are given. Whoever finds a reason to
 * end the comm tells railmuxd, and railmuxd the others.
 */
#include "executor/plane_call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "executor/comm.h"
#include "executor/plane_executor.h"
#include "railmux/railmux.h"
#include "ring/line.h"
#include "util/clock.h"

static bool member_far(const Railmux__Executor__CommAttach *m, uint32_t rank) {
        return m->n_nodes > 1 && m->members[rank]->node != m->node;
}

static uint8_t member_node(const Railmux__Executor__CommAttach *m, uint32_t rank) {
        return m->n_nodes > 1 ? (uint8_t)m->members[rank]->node : 0;
}

static bool attach_fits(const Railmux__Executor__CommAttach *m) {
        return plane_staging_bytes(m->n_ranks) && m->n_members == m->n_ranks && m->n_choices <= PLAN_CHOICES_MAX;
}

static void comm_fill(struct plane_executor *executor, struct plane_attached *comm,
                      const Railmux__Executor__CommAttach *m, struct plane_comm_member *members) {
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                const Railmux__Executor__Member *from = m->members[i];
                struct plane_rank *rank = &comm->ranks[i];

                rank->far = member_far(m, i);
                rank->session = from->session;
                rank->handle = from->handle;
                rank->here = !rank->far && from->gpu == executor->gpu;
                if (!rank->comm) { /* else CommMove: RankLeave says so, and more */
                        rank->left = from->left;
                        rank->last = from->last_sequence;
                }
                members[i] = (struct plane_comm_member){
                        .session = from->left || !plane_session_find(executor, from->session) ? 0 : from->session,
                        .handle = from->handle,
                        .gpu = from->gpu,
                        .staging = from->staging,
                        .here = rank->here,
                        .far = rank->far,
                        .node = member_node(m, i),
                };
        }
}

static void choices_fill(const Railmux__Executor__CommAttach *m, struct plan_choice *ret_choices) {
        for (size_t i = 0; i < m->n_choices; i++)
                ret_choices[i] = (struct plan_choice){
                        .operation = m->choices[i]->operation,
                        .algorithm = m->choices[i]->algorithm,
                        .max_bytes = m->choices[i]->max_bytes,
                };
}

/* What the plane is told; members and choices lie where the caller keeps them. */
static void comm_describe(struct plane_executor *executor, struct plane_attached *comm,
                          const Railmux__Executor__CommAttach *m, struct plane_comm_member *members,
                          struct plan_choice *choices, struct plane_comm *ret_description) {
        comm_fill(executor, comm, m, members);
        choices_fill(m, choices);
        *ret_description = (struct plane_comm){
                .id = comm->id,
                .n_ranks = comm->n_ranks,
                .epoch = comm->epoch,
                .code = comm->code,
                .failed_rank = comm->failed_rank,
                .members = members,
                .choices = choices,
                .n_choices = (uint32_t)m->n_choices,
                .first = m->first,
                .lanes = m->lanes,
                .reach_bytes = m->reach_bytes,
                .burst_bytes = m->burst_bytes,
                .net = comm->net.net.area ? &comm->net.net : NULL,
        };
}

/* Of one over several nodes: what railmuxd sends beside it. */
static int comm_net(struct plane_attached *comm, const Railmux__Executor__CommAttach *m, const int *fds,
                    unsigned int n_fds, char *error) {
        if (m->n_nodes <= 1)
                return 0;
        if (n_fds < 3 || m->node >= m->n_nodes) {
                snprintf(error, PLANE_TEXT, "comm_attach over nodes needs marks, a net area, a doorbell and a node");
                return -EINVAL;
        }
        for (uint32_t i = 0; i < comm->n_ranks; i++) { /* numbers of sessions mean something on their own node only */
                if (m->members[i]->node < m->n_nodes && (!member_far(m, i) || !m->members[i]->session))
                        continue;
                snprintf(error, PLANE_TEXT, "rank %u: a node beyond the number of nodes, or a session on another node",
                         i);
                return -EINVAL;
        }
        return plane_net_map(&comm->net, fds[1], fds[2], error);
}

/* Whatever is wrong with the call shows again, and is reported, when it is carried out. */
bool plane_call_ready(struct plane_executor *executor, const Railmux__Executor__CommAttach *m) {
        const struct plane_net somewhere = {.doorbell_fd = -1};
        struct plane_comm_member members[PLAN_RANKS_MAX];
        struct plan_choice choices[PLAN_CHOICES_MAX];
        const struct plane_comm wanted = {.id = m->comm,
                                          .n_ranks = m->n_ranks,
                                          .members = members,
                                          .choices = choices,
                                          .n_choices = (uint32_t)m->n_choices,
                                          .net = m->n_nodes > 1 ? &somewhere : NULL};

        if (!executor->ops->comm_ready || plane_comm_find(executor, m->comm) || !attach_fits(m))
                return true;
        for (uint32_t i = 0; i < m->n_ranks; i++) {
                const bool far = member_far(m, i);

                members[i] = (struct plane_comm_member){
                        .here = !far && m->members[i]->gpu == executor->gpu,
                        .far = far,
                        .node = member_node(m, i),
                };
        }
        choices_fill(m, choices);
        return executor->ops->comm_ready(executor->plane, &wanted);
}

void plane_call_comm(struct plane_executor *executor, const Railmux__Executor__CommAttach *m, const int *fds,
                     unsigned int n_fds, struct dispatch_result *result) {
        struct plane_attached *comm = plane_comm_find(executor, m->comm);
        struct plane_comm_member members[PLAN_RANKS_MAX];
        struct plan_choice choices[PLAN_CHOICES_MAX];
        struct plane_comm description;
        char error[PLANE_TEXT] = "";
        int r;

        if (comm) {
                result->epoch = comm->epoch;
                return;
        }
        if (!attach_fits(m)) {
                plane_result_set(result, RMX_E_INVALID, "comm_attach out of bounds");
                return;
        }
        comm = calloc(1, sizeof(*comm) + m->n_ranks * sizeof(comm->ranks[0]));
        if (comm) {
                comm->id = m->comm;
                comm->net = (struct plane_net_map)PLANE_NET_MAP_NULL;
                HASH_ADD(hh, executor->comms, id, sizeof(comm->id), comm);
        }
        if (!comm || !comm->hh.tbl) {
                free(comm);
                plane_result_set(result, RMX_E_NO_MEMORY, "attaching a communicator: out of memory");
                return;
        }
        comm->n_ranks = m->n_ranks;
        comm->epoch = m->epoch ? m->epoch : 1;
        comm->code = m->code;
        comm->failed_rank = m->failed_rank;
        r = comm_net(comm, m, fds, n_fds, error);
        comm_describe(executor, comm, m, members, choices, &description);
        if (!r)
                r = executor->ops->comm_attach(executor->plane, &description, error);
        plane_result_of(result, r, "attaching a communicator", error);
        if (r == -EBUSY)
                result->code = RMX_E_BUSY;
        result->epoch = comm->epoch;
        if (r) {
                plane_comm_free(executor, comm);
                return;
        }
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                struct plane_rank *rank = &comm->ranks[i];

                rank->comm = comm;
                if (rank->left)
                        executor->ops->rank_leave(executor->plane, comm->id, i, rank->last);
                else if (rank->here) /* without memory for it nobody is told how far its exchanges are */
                        HASH_ADD_KEYPTR(hh, executor->ranks, rank, PLANE_RANK_KEY, rank);
        }
}

void plane_call_abort(struct plane_executor *executor, const Railmux__Executor__CommAbort *m) {
        struct plane_attached *comm = plane_comm_find(executor, m->comm);

        if (!comm)
                return;
        /* Others may have called something else than ranks here: what these called is told, too. */
        plane_exchanges_look(executor);
        if (comm->unreported && comm->code == RMX_E_MISMATCH)
                return;
        comm->told = comm->told || !comm->code;
        plane_comm_fail(executor, comm, m->code, m->rank, "aborted");
        comm->unreported = false; /* it is railmuxd that says so */
}

void plane_call_detach(struct plane_executor *executor, const Railmux__Executor__CommDetach *m) {
        struct plane_attached *comm = plane_comm_find(executor, m->comm);

        if (!comm)
                return;
        executor->ops->comm_detach(executor->plane, comm->id);
        plane_comm_free(executor, comm);
}

/* ---- planned restarts of another executor ------------------------------------------------------------------------ */

void plane_call_hold(struct plane_executor *executor, const Railmux__Executor__CommHold *m,
                     struct dispatch_result *result) {
        struct plane_attached *comm = plane_comm_find(executor, m->comm);
        char error[PLANE_TEXT] = "";
        int r;

        if (!comm || comm->code)
                return; /* railmuxd hears of it otherwise */
        r = executor->ops->comm_hold(executor->plane, comm->id, m->has_upto, m->upto, error);
        plane_result_of(result, r, "holding a communicator", error);
        if (!r && !comm->held)
                for (uint32_t i = 0; i < comm->n_ranks; i++)
                        comm->ranks[i].told = false;
        comm->held = comm->held || !r;
}

void plane_call_move(struct plane_executor *executor, const Railmux__Executor__CommAttach *m,
                     struct dispatch_result *result) {
        struct plane_attached *comm = plane_comm_find(executor, m->comm);
        struct plane_comm_member members[PLAN_RANKS_MAX];
        struct plan_choice choices[PLAN_CHOICES_MAX];
        struct plane_comm description;
        char error[PLANE_TEXT] = "";

        if (!comm || m->n_members != comm->n_ranks || m->n_choices > PLAN_CHOICES_MAX) {
                plane_result_set(result, RMX_E_INVALID, "comm_move out of bounds");
                return;
        }
        result->epoch = comm->epoch;
        if (comm->code)
                return;
        comm_describe(executor, comm, m, members, choices, &description);
        plane_result_of(result, executor->ops->comm_move(executor->plane, &description, error), "moving a communicator",
                        error);
}

void plane_call_release(struct plane_executor *executor, const Railmux__Executor__CommRelease *m) {
        struct plane_attached *comm = plane_comm_find(executor, m->comm);

        if (comm && m->ended)
                plane_comm_thaw(executor, comm);
        if (!comm || !comm->held)
                return;
        executor->ops->comm_release(executor->plane, comm->id);
        comm->held = false;
}

/* Has the plane said what it has rung? Not if its process had gone before the comm was attached. */
static bool rank_seen(const struct plane_rank *rank) {
        return rank->here && rank->since_ns;
}

/* Its process says what it has rung last. What it has not, others would wait for without an end; so of a rank here what
 * was seen counts alone. Of one elsewhere its own executor may have corrected it. */
void plane_call_leave(struct plane_executor *executor, const Railmux__Executor__RankLeave *m,
                      struct dispatch_result *result) {
        struct plane_attached *comm = plane_comm_find(executor, m->comm);
        struct plane_rank *rank;

        if (!comm || m->rank >= comm->n_ranks)
                return;
        rank = &comm->ranks[m->rank];
        if (!rank->left || (!rank->here && ring_sequence_before(m->last_sequence, rank->last))) {
                plane_executor_look(executor);
                rank->left = true;
                rank->last = rank_seen(rank) && ring_sequence_before(m->last_sequence, rank->rung) ? rank->rung
                                                                                                   : m->last_sequence;
                executor->ops->rank_leave(executor->plane, comm->id, m->rank, rank->last);
                plane_executor_look(executor); /* kernels have acknowledged that, so now it is complete */
                if (rank_seen(rank) && ring_sequence_before(rank->rung, rank->last)) {
                        rank->last = rank->rung;
                        executor->ops->rank_leave(executor->plane, comm->id, m->rank, rank->last);
                }
        }
        result->has_rung = rank_seen(rank);
        result->rung = rank->last;
}

/* ---- ranks whose process has ended ------------------------------------------------------------------------------- */
/* Does it wait for somebody, or somebody here for it? */
static bool rank_needed(const struct plane_attached *comm, uint32_t index) {
        const struct plane_rank *rank = &comm->ranks[index];

        for (size_t i = 0; i < comm->n_pairs; i++)
                if (comm->pairs[i].rank == index || comm->pairs[i].peer == index)
                        return true;
        if (!rank->here)
                return false;
        if (rank->rung != rank->finished)
                return true;
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                if (comm->ranks[i].here && ring_sequence_before(rank->rung, comm->ranks[i].rung))
                        return true;
        return false;
}

static bool rank_linger(struct plane_executor *executor, struct plane_attached *comm, uint32_t index) {
        struct plane_rank *rank = &comm->ranks[index];

        if (!comm->net.net.area || comm->code || rank_needed(comm, index))
                return false;
        rank->ended_ns = clock_now_ns();
        if (!rank->here)
                return true;
        rank->left = true;
        rank->last = rank->finished;
        executor->ops->rank_leave(executor->plane, comm->id, index, rank->last);
        return true;
}

void plane_comm_lost(struct plane_executor *executor, struct plane_attached *comm, uint64_t session) {
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                if (comm->ranks[i].session == session && !comm->ranks[i].left && !rank_linger(executor, comm, i))
                        plane_comm_fail(executor, comm, RMX_E_PEER_LOST, (int32_t)i, "its process has ended");
}

void plane_comms_ended(struct plane_executor *executor, uint64_t since_ns) {
        for (struct plane_attached *comm = executor->comms; comm; comm = comm->hh.next)
                for (uint32_t i = 0; i < comm->n_ranks && !comm->code; i++)
                        if (comm->ranks[i].ended_ns && comm->ranks[i].ended_ns <= since_ns)
                                plane_comm_fail(executor, comm, RMX_E_PEER_LOST, (int32_t)i, "its process has ended");
}
