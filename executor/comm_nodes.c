/* SPDX-License-Identifier: MIT */
/*
 * A communicator over several nodes
 *
 * Each node has an executor that knows the ranks on it and runs them; the others have a place in comm->ranks, by which
 * plans name them, and nothing more: no session, no requests. What is counted (who has rung, who is done, marks,
 * stalls) is counted for the ranks here. So a sequence is final here when the ranks here are done with it.
 *
 * Chunks to and from other nodes lie in a net area that railmuxd made and its fabric mirrors (ring/net.h,
 * gpu/host/net.c). Workers that go to sleep say so in each area, and the fabric writes wake_fd when it brings
 * something; see worker.c.
 *
 * What was called. Ranks here are compared when they ring (comm_mismatch.c). What ranks elsewhere called is seen by
 * their chunks only: the backend refuses one that belongs to another call, and the comm ends with its rank.
 *
 * Plans may read and write other ranks' memory in place only on their own node. The verifier proves it; since a mistake
 * there would be an access to an address that means something else here, each plan's steps are looked at once more.
 *
 * No taking over. What a dead executor had pushed and pulled is known to the areas of other nodes, which went on; its
 * successor knows none of the counters. So a comm that was served before ends with RMX_E_LOST, for everything that is
 * not marked as final, also if nothing was under way; railmuxd hears it as CommFailed and tells the other nodes.
 *
 * Leaving. A rank elsewhere that leaves has been answered everything that it had called. A collective that it has not
 * called will not come (comm_rank_leave). With a send or receive that is open here it may be otherwise: the other side
 * may be done, and its last chunk on the way, slower than the word of its leaving. So that is believed only after a
 * while (comm_nodes_deserted).
 *
 * Ending. A program may exit when its last call has returned. On one node that is done for all ranks then; over several
 * it is for those here, and what others still need of it may lie in the area, which goes with the comm. So a rank that
 * has nothing under way and that nobody here waits for is taken for one that has left, and the comm ends for all when
 * the others have had some time to finish (comm_nodes_ended). That is well within the second in which they are to hear
 * of a process that has died.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "executor/comm_private.h"
#include "executor/executor.h"
#include "executor/worker.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "util/clock.h"
#include "util/memfd.h"

static int invalid(char *error, size_t error_size, const struct comm *comm, const char *text) {
        snprintf(error, error_size, "comm %llu: %s", (unsigned long long)comm->id, text);
        return COMM_E_INVALID;
}

static int duplicate(int fd, int *ret_fd) {
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

        if (copy < 0)
                return -errno;
        *ret_fd = copy;
        return 0;
}

static int map_area(struct comm *comm, int fd, char *error, size_t error_size) {
        struct stat st;
        void *area;
        int r;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (st.st_size < (off_t)sizeof(struct net_area))
                return invalid(error, error_size, comm, "a net area that is too short");
        r = memfd_map(fd, (size_t)st.st_size, 1, 1, &area);
        if (r < 0)
                return r;
        comm->area = area;
        comm->area_bytes = (size_t)st.st_size;
        if (!net_area_valid(comm->area, comm->area_bytes))
                return invalid(error, error_size, comm, "what was sent as its net area is none");
        return 0;
}

int comm_nodes_attach(struct comm *comm, const struct comm_parameters *p, const struct comm_member *members,
                      char *error, size_t error_size) {
        uint8_t node[PLAN_RANKS_MAX] = {0};
        int r;

        comm->n_here = comm->n_ranks;
        comm->nodes.n_nodes = 1;
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                comm->ranks[i].here = true;
        if (p->n_nodes <= 1)
                return 0;
        if (p->node >= p->n_nodes || p->n_nodes > comm->n_ranks)
                return invalid(error, error_size, comm, "a node beyond the number of nodes, or more nodes than ranks");
        comm->n_here = 0;
        comm->node = p->node;
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                struct comm_rank *rank = &comm->ranks[i];

                if (members[i].node >= p->n_nodes)
                        return invalid(error, error_size, comm, "a rank on a node beyond the number of nodes");
                node[i] = (uint8_t)members[i].node;
                rank->here = members[i].node == p->node;
                comm->n_here += rank->here;
                if (!rank->here && members[i].session)
                        return invalid(error, error_size, comm, "a session for a rank of another node");
        }
        if (plan_nodes_init(&comm->nodes, comm->n_ranks, node) || comm->nodes.n_nodes != p->n_nodes)
                return invalid(error, error_size, comm, "a node without ranks");
        r = map_area(comm, p->area_fd, error, error_size);
        if (!r)
                r = duplicate(p->doorbell_fd, &comm->doorbell_fd);
        if (!r)
                r = duplicate(p->wake_fd, &comm->wake_fd);
        return r ? r : worker_pool_watch(comm->executor->workers, comm->wake_fd);
}

void comm_nodes_detach(struct comm *comm) {
        if (comm->wake_fd >= 0) {
                worker_pool_unwatch(comm->executor->workers, comm->wake_fd);
                close(comm->wake_fd);
        }
        if (comm->doorbell_fd >= 0)
                close(comm->doorbell_fd);
        memfd_unmap(comm->area, comm->area_bytes);
        comm->area = NULL;
}

int comm_nodes_gpu(struct comm *comm, char *error, size_t error_size) {
        const struct gpu_ops *ops = comm->executor->ops;
        struct gpu_net net = {.area = comm->area, .doorbell_fd = comm->doorbell_fd, .own = comm->node};
        int r;

        if (!comm->area)
                return ops->comm_new(comm->executor->gpu, comm->n_ranks, &comm->geometry, &comm->gpu);
        if (!ops->comm_new_net)
                return invalid(error, error_size, comm, "this backend has no communicators over several nodes");
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                net.node[i] = comm->nodes.node[i];
        r = ops->comm_new_net(comm->executor->gpu, comm->n_ranks, &comm->geometry, &net, &comm->gpu);
        return r == -EINVAL ? invalid(error, error_size, comm, "a net area for another number of ranks or geometry")
                            : r;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */
/* A rank of another node whose memory the step touches; n_ranks: none. */
static uint32_t step_reaches(const struct comm *comm, const struct plan_step *step) {
        for (uint32_t i = 0; i < step->n_sources; i++)
                if (step->source[i].kind == PLAN_SOURCE_INPUT && !comm->ranks[step->source[i].rank].here)
                        return step->source[i].rank;
        for (uint32_t i = 0; i < step->n_outputs; i++)
                if (!comm->ranks[step->output[i].rank].here)
                        return step->output[i].rank;
        return comm->n_ranks;
}

/* The steps of the first part: which ranks a step touches does not depend on the part. */
static int check_rank(const struct comm *comm, const struct plan *plan, const struct plan_shape *shape, uint32_t me,
                      char *error, size_t error_size) {
        for (uint32_t p = 0; p < plan->n_phases; p++) {
                const struct plan_phase *phase = &plan->phases[p];
                uint32_t n_steps = plan_phase_steps(plan, phase, shape, me), other;
                struct plan_step step;

                for (uint32_t k = 0; k < n_steps; k++) {
                        if (!plan_step(plan, phase, &comm->geometry, shape, me, 0, k, &step))
                                continue;
                        other = step_reaches(comm, &step);
                        if (other == comm->n_ranks)
                                continue;
                        snprintf(error, error_size,
                                 "plan %s of %s: rank %u touches the memory of rank %u on another node; between nodes "
                                 "only channels are allowed",
                                 plan_algorithm_name(plan->algorithm), plan_operation_name(plan->operation), me, other);
                        return COMM_E_PLAN;
                }
        }
        return 0;
}

int comm_nodes_check_plan(const struct comm *comm, const struct plan *plan, char *error, size_t error_size) {
        uint32_t n_roots = plan_operation_rooted(plan->operation) ? comm->n_ranks : 1;
        uint64_t ones[PLAN_RANKS_MAX];
        struct plan_vector vector = {ones, ones, ones, ones};
        int r = 0;

        /* Sends: the backend runs their plan for pairs of one node only. */
        if (comm->n_here == comm->n_ranks || plan_operation_p2p(plan->operation))
                return 0;
        for (uint32_t i = 0; i < PLAN_RANKS_MAX; i++)
                ones[i] = 1;
        for (uint32_t root = 0; !r && root < n_roots; root++) {
                struct plan_shape shape = {.count = 1, .element_bytes = 1, .partial_bytes = 1, .root = root};

                if (plan->operation == RING_OP_ALL_TO_ALL_V)
                        shape.vector = &vector;
                for (uint32_t me = 0; !r && me < comm->n_ranks; me++)
                        if (comm->ranks[me].here)
                                r = check_rank(comm, plan, &shape, me, error, error_size);
        }
        return r;
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */
int comm_nodes_forsake(struct comm *comm, char *error, size_t error_size) {
        /* relaxed, all of them: written by ourselves or by a dead process */
        uint32_t version = atomic_load_explicit(&comm->marks->version, memory_order_relaxed);

        if (!comm->area)
                return 0;
        if (version == 0 && atomic_load_explicit(&comm->area->tail, memory_order_relaxed) != 0)
                return invalid(error, error_size, comm, "a net area that has been used, with marks that have not");
        if (version == MARKS_VERSION && !atomic_load_explicit(&comm->marks->error, memory_order_relaxed))
                comm_mark(comm->marks->error, ring_status(RMX_E_LOST, -1));
        return 0;
}

void comm_nodes_mismatch(struct comm_rank *rank) {
        struct comm *comm = rank->comm;
        const struct request *request = rank->current;
        uint32_t blamed = comm->executor->ops->blamed(comm->gpu, rank->index);

        comm_lock(comm);
        executor_count(comm->executor, mismatches, 1);
        if (request_p2p(request))
                comm_set_error(
                        comm, ring_status(RMX_E_MISMATCH, (int32_t)blamed),
                        "rank %u, on another node, called something else than rank %u, which called send or recv",
                        blamed, rank->index);
        else
                comm_set_error(comm, ring_status(RMX_E_MISMATCH, (int32_t)blamed),
                               "rank %u, on another node, called something else than rank %u, whose call %u is %s, or "
                               "that as another call",
                               blamed, rank->index, request->sequence, plan_operation_name(request->operation));
        comm_unlock(comm);
}

bool comm_nodes_deserted(struct comm *comm, uint64_t since_ns) {
        bool deserted;

        if (!comm->area)
                return false;
        comm_lock(comm);
        deserted = !comm_error(comm) && comm_p2p_deserted(comm, since_ns);
        comm_unlock(comm);
        return deserted;
}

void comm_nodes_desert(struct comm *comm, uint64_t since_ns) {
        const struct p2p_entry *entry;
        uint32_t peer = 0;

        comm_lock(comm);
        entry = comm_error(comm) ? NULL : comm_p2p_deserted(comm, since_ns);
        if (entry)
                peer = entry->peer;
        comm_unlock(comm);
        if (entry)
                comm_fail(comm, ring_status(RMX_E_PEER_LOST, (int32_t)peer), "a rank left before the others");
}

bool comm_nodes_linger(struct comm_rank *rank) {
        struct comm *comm = rank->comm;
        bool done;

        if (!comm->area)
                return false;
        comm_lock(comm);
        done = !comm_error(comm) && !rank->requests && !ring_sequence_before(rank->expected - 1, comm->highest) &&
               !comm_p2p_awaits(comm, rank->index);
        comm_unlock(comm);
        if (!done)
                return false;
        rank->left = rank->ended = true;
        rank->left_ns = clock_now_ns();
        rank->last_sequence = rank->expected - 1;
        return true;
}

/* NULL: none. */
static const struct comm_rank *nodes_ended(const struct comm *comm, uint64_t since_ns) {
        for (uint32_t i = 0; i < comm->n_ranks && !comm_error(comm); i++)
                if (comm->ranks[i].ended && comm->ranks[i].left_ns <= since_ns)
                        return &comm->ranks[i];
        return NULL;
}

bool comm_nodes_ended(struct comm *comm, uint64_t since_ns) {
        return nodes_ended(comm, since_ns) != NULL;
}

void comm_nodes_end(struct comm *comm, uint64_t since_ns) {
        const struct comm_rank *rank = nodes_ended(comm, since_ns);

        if (rank)
                comm_fail(comm, ring_status(RMX_E_PEER_LOST, (int32_t)rank->index), "the process of a rank ended");
}

/* ---- sleeping ---------------------------------------------------------------------------------------------------- */
uint32_t comm_nodes_arrivals(const struct executor *executor) {
        const struct comm *comm;
        uint32_t sum = 0;

        for (comm = executor->net_comms; comm; comm = comm->net_next)
                /* acquire, with the release in net_area_arrive: who sees the number sees the word */
                sum += atomic_load_explicit(&comm->area->arrivals, memory_order_acquire);
        return sum;
}

static void set_asleep(const struct executor *executor, uint32_t value) {
        struct comm *comm;

        for (comm = executor->net_comms; comm; comm = comm->net_next)
                /* relaxed: ordered by the caller's fence, with that in net_area_wake_executor */
                atomic_store_explicit(&comm->area->executor_asleep, value, memory_order_relaxed);
}

void comm_nodes_sleep(const struct executor *executor) {
        set_asleep(executor, 1);
}

void comm_nodes_awake(const struct executor *executor) {
        set_asleep(executor, 0);
}
