/* SPDX-License-Identifier: MIT */
/*
 * A communicator comes into being in this order: its plans and choices are in the tables; the staging and the lane
 * states of its ranks here are zero; the ranks' entries are written; and last the handles, by which lines find them.
 * Its members' executors do the same at their own pace, and nobody rings before all of them are done, so staging is
 * clean before the first chunk comes.
 *
 * It goes the other way round. First its ranks are aborted, which answers what is in hand; only when every worker has
 * acknowledged that, the entries are taken out and used again. So no task ever sees an entry with somebody else in it.
 *
 * Where ranks reach each other's memory, others may still write into that of a rank here when it is aborted here. So
 * requests that have let others in are frozen: they do nothing, and are answered when railmuxd says that all executors
 * have aborted the communicator (thaw), or lets go of it.
 *
 * What is different over several nodes is in comm_far.c.
 */
#include "gpu/hip/comms.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "gpu/hip/comm_private.h"
#include "gpu/hip/error.h"
#include "gpu/hip/hip.h"
#include "gpu/hip/hold.h"
#include "gpu/hip/reach.h"
#include "gpu/hip/rings.h"
#include "plan/nodes.h"
#include "railmux/railmux.h"
#include "ring/line.h"

struct comm *comms_find(const struct plane *plane, uint64_t id) {
        struct comm *comm;

        HASH_FIND(hh, plane->comms, &id, sizeof(id), comm);
        return comm;
}

bool comms_spans(const struct comm *comm) {
        return comm->wires[0] != NULL;
}

/* ---- peers ------------------------------------------------------------------------------------------------------- */
static bool pool_is_own(const struct plane *plane, const struct plane_memory *pool) {
        return pool->kind == PLANE_MEMORY_IPC && pool->n_handle == plane->pool.exported.n_handle &&
               memcmp(pool->handle, plane->pool.exported.handle, pool->n_handle) == 0;
}

void comms_peer_remove(struct plane *plane, uint32_t gpu) {
        if (gpu >= PLANE_GPUS_MAX)
                return;
        memory_release(&plane->memory, plane->peers[gpu].mapping);
        plane->peers[gpu] = (struct plane_peer){0};
}

int comms_peer_add(struct plane *plane, uint32_t gpu, uint64_t instance, const struct plane_memory *pool, char *error) {
        struct plane_peer peer = {.bytes = pool->bytes, .instance = instance};
        int r;

        if (gpu >= PLANE_GPUS_MAX)
                return error_set(-EINVAL, error, "GPU %u is beyond the last", gpu);
        if (plane->peers[gpu].address && plane->peers[gpu].instance == instance)
                return 0;
        if (pool_is_own(plane, pool)) {
                peer.address = (uint64_t)(uintptr_t)plane->pool.base;
                peer.bytes = plane->pool.bytes;
        } else {
                r = memory_import(&plane->memory, MEMORY_ALL_RINGS, pool, &peer.mapping, &peer.address, error);
                if (r)
                        return r;
        }
        comms_peer_remove(plane, gpu);
        plane->peers[gpu] = peer;
        return 0;
}

/* ---- attach ------------------------------------------------------------------------------------------------------ */
/* Where every rank's staging is; the same for all ranks here. */
static int comm_staging(const struct plane *plane, const struct plane_comm *what, uint64_t peer[STAGING_RANKS_MAX],
                        uint64_t *ret_bytes, char *error) {
        struct staging_layout layout;

        staging_layout_init(&layout, what->n_ranks);
        for (uint32_t r = 0; r < what->n_ranks; r++) {
                const struct plane_comm_member *member = &what->members[r];
                const struct plane_peer *at;

                peer[r] = 0;
                if (member->far && (member->here || member->session))
                        return error_set(-EINVAL, error, "rank %u is on another node, and has a session on this one",
                                         r);
                if (member->far)
                        continue; /* comm_far_attach */
                if (!member->session && what->code)
                        continue; /* gone, and so is the communicator: nobody writes to it */
                at = member->gpu < PLANE_GPUS_MAX ? &plane->peers[member->gpu] : NULL;
                if (!at || !at->address)
                        return error_set(-ENOENT, error, "rank %u is on GPU %u, whose staging is not known", r,
                                         member->gpu);
                if (member->staging % 128 || member->staging > at->bytes || layout.bytes > at->bytes - member->staging)
                        return error_set(-EINVAL, error, "the staging of rank %u is not inside of the pool of GPU %u",
                                         r, member->gpu);
                if (member->here && at->mapping)
                        return error_set(-EINVAL, error, "rank %u is here, but its staging is on GPU %u", r,
                                         member->gpu);
                peer[r] = at->address + member->staging;
        }
        *ret_bytes = layout.bytes;
        return 0;
}

static int clear(struct plane *plane, uint64_t address, uint64_t bytes, char *error) {
        return runtime_check(hipMemsetAsync((void *)(uintptr_t)address, 0, bytes, plane->control), "clearing staging",
                             error);
}

/* What a rank's lanes know: that `first` comes next, and nothing of channels. */
static int states_clear(struct plane *plane, uint32_t index, uint32_t first, char *error) {
        struct lane_states *state = (struct lane_states *)plane->states.base + index;
        int r = clear(plane, (uint64_t)(uintptr_t)state, sizeof(*state), error);

        if (r || first <= 1)
                return r;
        plane->words->sequence = first - 1;
        return runtime_check(hipMemcpyAsync(&state->lane[0].sequence, &plane->words->sequence, sizeof(uint32_t),
                                            hipMemcpyHostToDevice, plane->control),
                             "writing lane states", error);
}

/* Are the kernels such that they have room for so many ranks? (While nothing is launched, the next ones will be.) */
static int comm_widen(struct plane *plane, uint32_t n_ranks, char *error) {
        struct park *park = &plane->park;
        struct kernel_shape narrow, wide;
        int r = 0;

        if (n_ranks <= STAGING_RANKS_NARROW)
                return 0;
        kernel_shape(park->n_blocks, false, &narrow);
        kernel_shape(park->n_blocks, true, &wide);
        if (wide.blocks != narrow.blocks && wide.blocks > plane->gpu.processors)
                return error_set(
                        -ENOTSUP, error,
                        "with more than %u ranks a GPU has %u resident blocks in place of %u, more than its %u "
                        "processors; gpu.blocks may be lower",
                        STAGING_RANKS_NARROW, wide.blocks, narrow.blocks, plane->gpu.processors);
        if (wide.blocks != narrow.blocks && (park->running || park->queued) && !park->launched_wide) {
                r = moment_begin(plane, "kernels that know so many ranks", error);
                plane->wide_wanted = r == -EBUSY;
                if (r)
                        return r;
                park->wide = true;
                return moment_end(plane, error);
        }
        plane->wide_wanted = false;
        park->wide = true;
        return 0;
}

void comms_moment(struct plane *plane) {
        plane->park.wide = plane->park.wide || plane->wide_wanted;
        plane->wide_wanted = false;
}

/* Takes a place for a rank and clears what it works with; nothing is in the tables yet. */
static int rank_take(struct plane *plane, struct comm *comm, const struct plane_comm *what, uint32_t rank,
                     char *error) {
        const struct plane_comm_member *member = &what->members[rank];
        uint32_t index = 0, ring;
        int r = rings_take(plane, member->session, &ring, error);

        if (r)
                return r;
        while (index < TABLE_RANKS && plane->ranks[index].comm)
                index++;
        if (shadow_handle_find(&plane->tables.shadow, ring, member->handle) != TABLE_HANDLES)
                r = error_set(-EEXIST, error, "handle %u of the session is in use", member->handle);
        else if (index == TABLE_RANKS)
                r = error_set(-ENOSPC, error, "a GPU serves at most %u ranks", TABLE_RANKS);
        if (r) {
                rings_drop(plane, ring);
                return r;
        }
        if (index >= plane->ranks_end)
                plane->ranks_end = index + 1;
        plane->ranks[index] = (struct plane_rank){.comm = comm, .rank = rank, .ring = ring, .handle = member->handle};
        plane->rings[ring].n_ranks++;
        tables_forget_rank(&plane->tables, index, what->first ? what->first - 1 : 0);
        return states_clear(plane, index, what->first, error);
}

/* A number that kernels do not have counts as not known, on all ranks alike. So does any over several nodes, whose
 * planes are not told the same. */
static uint32_t comm_lanes(const struct plane_comm *what) {
        return what->lanes > STAGING_DATA_LANES || what->net ? 0 : what->lanes;
}

/* The tables know nothing of the communicator's ranks (any more). */
static void comm_free(struct plane *plane, struct comm *comm) {
        comm_far_detach(plane, comm);
        for (uint32_t i = 0; i < TABLE_RANKS; i++) {
                uint32_t ring = plane->ranks[i].ring;

                if (plane->ranks[i].comm != comm)
                        continue;
                plane->ranks[i] = (struct plane_rank){0};
                plane->rings[ring].n_ranks--;
                rings_drop(plane, ring);
        }
        if (comm->hh.tbl)
                HASH_DEL(plane->comms, comm);
        free(comm);
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */
/* Entries first, then what leads to them. */
static int comm_publish(struct plane *plane, const struct comm *comm, const struct plane_comm *what,
                        const uint64_t peer[STAGING_RANKS_MAX], char *error) {
        struct shadow *shadow = &plane->tables.shadow;
        int r = 0;

        for (uint32_t i = 0; !r && i < TABLE_RANKS; i++) {
                const struct plane_rank *rank = &plane->ranks[i];
                struct table_rank entry = {
                        .states = (uint64_t)(uintptr_t)plane->states.base + i * sizeof(struct lane_states),
                        .ring = rank->ring,
                        .handle = rank->handle,
                        .rank = rank->rank,
                        .n_ranks = what->n_ranks,
                        .epoch = what->epoch,
                        .first = what->first ? what->first : 1,
                        .choices = comm->choices,
                        .abort = what->code ? ring_status(what->code, what->failed_rank) : 0,
                        .lanes = comm_lanes(what),
                };

                if (rank->comm != comm)
                        continue;
                memcpy(entry.peer, peer, sizeof(entry.peer));
                if (comm->wires[0])
                        comm_far_rank(comm, rank->rank, &entry);
                else
                        reach_rank(what, rank->rank, &entry);
                r = plane_changed(plane, shadow_rank_set(shadow, i, &entry), "a rank", error);
        }
        for (uint32_t i = 0; !r && i < TABLE_RANKS; i++)
                if (plane->ranks[i].comm == comm)
                        r = plane_changed(plane,
                                          shadow_handle_add(shadow, plane->ranks[i].ring, plane->ranks[i].handle, i),
                                          "a rank's handle", error);
        return r;
}

/* Takes everything out of the tables that comm_publish has put there. 0: nobody uses it any more. */
static int comm_unpublish(struct plane *plane, const struct comm *comm) {
        struct shadow *shadow = &plane->tables.shadow;
        int r = 0;

        for (uint32_t i = 0; !r && i < TABLE_RANKS; i++) {
                const struct plane_rank *rank = &plane->ranks[i];
                uint32_t at;

                if (rank->comm != comm)
                        continue;
                at = shadow_handle_find(shadow, rank->ring, rank->handle);
                if (at != TABLE_HANDLES && shadow->table->handles[at].rank == i)
                        r = shadow_handle_remove(shadow, rank->ring, rank->handle);
                if (!r && shadow->table->ranks[i].key)
                        r = shadow_rank_clear(shadow, i);
                r = plane_changed(plane, r, "a rank", NULL);
        }
        return r ? r : plane_commit(plane, NULL);
}

static int comm_fill(struct plane *plane, struct comm *comm, const struct plane_comm *what, char *error) {
        uint64_t peer[STAGING_RANKS_MAX] = {0}, bytes;
        bool any = false;
        int r = comm_staging(plane, what, peer, &bytes, error);

        for (uint32_t rank = 0; !r && rank < what->n_ranks; rank++) {
                /* One that has left counts: the others go on, and a new executor of this GPU is told of them all. */
                any = any || (what->members[rank].here && !what->members[rank].far);
                if (!member_here(what, rank))
                        continue;
                r = rank_take(plane, comm, what, rank, error);
                if (!r)
                        r = clear(plane, peer[rank], bytes, error);
        }
        if (!r && !any)
                r = error_set(-EINVAL, error, "none of the communicator's ranks is on this GPU");
        if (!r)
                r = comm_far_attach(plane, comm, what, error);
        if (!r)
                r = runtime_wait(plane->control, "clearing staging", error);
        if (r)
                return r;
        r = comm_publish(plane, comm, what, peer, error);
        if (!r)
                return plane_commit(plane, error);
        (void)comm_unpublish(plane, comm);
        return r;
}

static int comm_detach(struct plane *plane, struct comm *comm);

/* nodes: memory for it. False: the nodes are no nodes of a plan. */
static bool comm_where(const struct plane_comm *what, struct plan_nodes *nodes, struct choices_where *ret_where) {
        uint8_t node[STAGING_RANKS_MAX];

        *ret_where = (struct choices_where){.n_ranks = what->n_ranks, .nodes = what->net ? nodes : NULL};
        for (uint32_t r = 0; r < what->n_ranks; r++) {
                node[r] = what->members[r].node;
                ret_where->here |= (uint64_t)member_here(what, r) << r;
        }
        return !what->net || !plan_nodes_init(nodes, what->n_ranks, node);
}

bool comms_ready(struct plane *plane, const struct plane_comm *what) {
        struct choices_where where;
        struct plan_nodes nodes;

        return !what->n_ranks || what->n_ranks > STAGING_RANKS_MAX || !comm_where(what, &nodes, &where) ||
               choices_ready(&plane->choices, &where, what->choices, what->n_choices);
}

static int comm_choose(struct plane *plane, struct comm *comm, const struct plane_comm *what, char *error) {
        struct choices_where where;
        struct plan_nodes nodes;

        if (!comm_where(what, &nodes, &where))
                return error_set(-EINVAL, error, "the communicator's nodes are not numbered without gaps");
        return choices_take(&plane->choices, &plane->tables.shadow, &where, what->choices,
                            where.here ? what->n_choices : 0, &comm->choices, error);
}

int comms_attach(struct plane *plane, const struct plane_comm *what, char *error) {
        struct comm *comm;
        int r;

        if (!what->n_ranks || what->n_ranks > STAGING_RANKS_MAX)
                return error_set(-ENOTSUP, error, "a communicator on GPUs has at most %u ranks", STAGING_RANKS_MAX);
        if (comms_find(plane, what->id))
                return error_set(-EEXIST, error, "the communicator is attached already");
        comm = calloc(1, sizeof(*comm));
        if (!comm)
                return error_set(-ENOMEM, error, "out of memory");
        comm->id = what->id;
        comm->n_ranks = what->n_ranks;
        r = comm_choose(plane, comm, what, error);
        if (r) {
                free(comm);
                return r;
        }
        HASH_ADD(hh, plane->comms, id, sizeof(comm->id), comm);
        r = comm->hh.tbl ? comm_widen(plane, comm->n_ranks, error) : error_set(-ENOMEM, error, "out of memory");
        if (!r)
                r = comm_fill(plane, comm, what, error);
        if (r) {
                choices_drop(&plane->choices, &plane->tables.shadow, comm->choices);
                comm_free(plane, comm);
                return r;
        }
        r = adaptive_wake(plane, error);
        if (r) { /* the caller thinks that there is no communicator, and unmaps what belongs to it */
                plane_fault(plane, r, error ? error : "waking the GPU");
                (void)comm_detach(plane, comm);
        }
        return r;
}

/* Nobody works on its staging (hold.c). What a worker has cached of an entry is gone since the last acknowledgement. */
int comms_move(struct plane *plane, const struct plane_comm *what, char *error) {
        struct comm *comm = comms_find(plane, what->id);
        uint64_t peer[STAGING_RANKS_MAX] = {0}, bytes;
        int r;

        if (!comm || comm->n_ranks != what->n_ranks)
                return error_set(-ENOENT, error, "there is no such communicator");
        if (comm->wires[0])
                return error_set(-EOPNOTSUPP, error, "a communicator over nodes does not survive its executors");
        for (uint32_t i = 0; i < TABLE_RANKS; i++)
                if (plane->ranks[i].comm == comm &&
                    what->first != 1 + __atomic_load_n(&plane->tables.report->rank[i].rung, __ATOMIC_RELAXED))
                        return error_set(-EBUSY, error, "a rank has begun another request than the last");
        if (!hold_settled(plane, what->id))
                return error_set(-EBUSY, error, "requests of the communicator are under way");
        r = comm_staging(plane, what, peer, &bytes, error);
        for (uint32_t i = 0; !r && i < TABLE_RANKS; i++) {
                const struct plane_rank *rank = &plane->ranks[i];
                struct table_rank entry = plane->tables.shadow.table->ranks[i];

                if (rank->comm != comm)
                        continue;
                r = clear(plane, peer[rank->rank], bytes, error);
                if (!r)
                        r = states_clear(plane, i, what->first, error);
                if (!r)
                        r = runtime_wait(plane->control, "clearing staging", error);
                if (r)
                        return plane_fault(plane, r, error);
                memcpy(entry.peer, peer, sizeof(entry.peer));
                entry.lanes = comm_lanes(what);
                reach_rank(what, rank->rank, &entry);
                r = plane_changed(plane, shadow_rank_set(&plane->tables.shadow, i, &entry), "a rank", error);
        }
        return r ? r : plane_commit(plane, error);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */
static int comm_freeze(struct plane *plane, const struct comm *comm, bool freeze) {
        struct shadow *shadow = &plane->tables.shadow;
        int r = 0;

        for (uint32_t i = 0; !r && i < TABLE_RANKS; i++)
                if (plane->ranks[i].comm == comm)
                        r = plane_changed(plane,
                                          shadow_rank_freeze(shadow, i, freeze && shadow->table->ranks[i].reach_bytes),
                                          "a rank's status", NULL);
        return r;
}

static int comm_abort(struct plane *plane, const struct comm *comm, uint32_t status, bool again) {
        struct shadow *shadow = &plane->tables.shadow;
        int r = 0;

        for (uint32_t i = 0; !r && i < TABLE_RANKS; i++) {
                const struct table_rank *entry = &shadow->table->ranks[i];

                if (plane->ranks[i].comm != comm || (entry->abort && !entry->has_last && !again))
                        continue;
                r = plane_changed(plane, shadow_rank_abort(shadow, i, status), "a rank's status", NULL);
        }
        if (!r)
                r = hold_end(plane, comm->id, NULL); /* lines that stood still are answered */
        return r ? r : plane_commit(plane, NULL);
}

void comms_abort(struct plane *plane, uint64_t id, uint32_t status) {
        struct comm *comm = comms_find(plane, id);

        if (comm && !comm_freeze(plane, comm, true))
                (void)comm_abort(plane, comm, status, true); /* a failure is a fault, which tick reports */
}

void comms_thaw(struct plane *plane, uint64_t id) {
        struct comm *comm = comms_find(plane, id);

        if (comm && !comm_freeze(plane, comm, false))
                (void)plane_commit(plane, NULL);
}

static int comm_detach(struct plane *plane, struct comm *comm) {
        int r;

        comm_far_stop(plane, comm); /* first of all, and even if all else fails */
        r = plane->fault ? 0 : comm_freeze(plane, comm, false);
        if (!r && !plane->fault)
                r = comm_abort(plane, comm, ring_status(RMX_E_ABORTED, -1), false);
        if (!r && !plane->fault)
                r = comm_unpublish(plane, comm);
        if (r)
                return r;
        choices_drop(&plane->choices, &plane->tables.shadow, comm->choices);
        comm_free(plane, comm);
        return 0;
}

void comms_detach(struct plane *plane, uint64_t id) {
        struct comm *comm = comms_find(plane, id);

        if (comm)
                (void)comm_detach(plane, comm);
}

void comms_close(struct plane *plane) {
        struct comm *comm, *next;

        HASH_ITER(hh, plane->comms, comm, next) {
                if (comm_detach(plane, comm)) /* a fault; now it is only freed */
                        (void)comm_detach(plane, comm);
        }
}

/* The ranks that stay cannot finish anything that the one which left does not take part in. */
void comms_leave(struct plane *plane, uint64_t id, uint32_t rank, uint32_t last) {
        struct shadow *shadow = &plane->tables.shadow;
        struct comm *comm = comms_find(plane, id);
        int r = 0;

        if (comm && (comm->far >> rank & 1))
                comm_far_leave(comm, rank);
        for (uint32_t i = 0; comm && !r && i < TABLE_RANKS; i++) {
                const struct table_rank *entry = &shadow->table->ranks[i];

                if (plane->ranks[i].comm != comm)
                        continue;
                if (!(comm->far >> rank & 1))
                        r = plane_changed(plane, shadow_rank_left(shadow, i, rank), "a rank that has left", NULL);
                if (r || (entry->abort && !entry->has_last) ||
                    (entry->has_last && !ring_sequence_before(last, entry->last)))
                        continue;
                r = plane_changed(plane,
                                  shadow_rank_leave(shadow, i, last, ring_status(RMX_E_PEER_LOST, (int32_t)rank)),
                                  "a rank's status", NULL);
        }
        if (comm && !r)
                (void)plane_commit(plane, NULL);
}

int comms_tick(struct plane *plane) {
        struct comm *comm, *next;
        bool wide = false;
        int r = 0;

        HASH_ITER(hh, plane->comms, comm, next) {
                wide = wide || comm->n_ranks > STAGING_RANKS_NARROW;
                if (!r)
                        r = comm_far_tick(plane, comm);
        }
        plane->park.wide = wide; /* without them the next kernel takes up less of the GPU */
        return r;
}

int comms_forget_handles(struct plane *plane, uint32_t ring) {
        int r = 0;

        for (uint32_t i = 0; !r && i < TABLE_RANKS; i++)
                if (plane->ranks[i].comm && plane->ranks[i].ring == ring) {
                        r = shadow_handle_remove(&plane->tables.shadow, ring, plane->ranks[i].handle);
                        r = plane_changed(plane, r == -ENOENT ? 0 : r, "a rank's handle", NULL);
                }
        return r;
}
