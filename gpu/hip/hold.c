/* SPDX-License-Identifier: MIT */
/*
 * Standing still
 *
 * When an executor is replaced as planned, the staging of its ranks goes with it. A chunk that stands there, pushed by
 * a rank on another GPU, would be gone, and the rank that pushed it may have finished and overwritten its memory. So
 * the old executor may end only when all ranks of its communicators have finished the same last request and nobody has
 * begun the next. A lane is one warp's business and no two warps are at the same line, so this cut has to be made.
 *
 * Which requests. Lines are taken in the order of the ring. A limited ring has a first line that is to stay (`limit`).
 * The limit is put behind what the client has drawn (the counter in the area). Workers may be beyond that when they
 * read it; each tells with its acknowledgement which line it looks for next, and the limit follows the farthest. It is
 * level when all look for the limit: then each line before it has been taken by all lanes, and lane 0's last sequence
 * of each rank (`rung`) is exact. It is settled when besides no worker has a task of a held rank.
 *
 * How far. Ranks come to stand at different requests. Those ahead wait in the middle of theirs for those behind, so
 * railmuxd, which sees all, tells these to go on to the last one that any rank has begun (upto): the limit is put
 * forward by as many lines as are missing, and by more if other communicators' lines were among them. A rank may reach
 * it only when its client gets round to it, or never; there is a bound on that, in the executor that wants to end.
 * Other communicators' tasks are not counted: they may wait for a rank whose ring stands still for our sake, and go on
 * afterwards.
 *
 * That all have finished the same collective is not all. What a send has pushed may not have been received yet, and the
 * send be over. So those who are settled also tell how many chunks they have pushed to and taken from each rank, and
 * railmuxd compares. (It does not make a receiver go on: when its program does, the communicator stands later, or the
 * bound passes.)
 *
 * It is enough to be settled everywhere once: who is settled begins nothing, since limits rise only when railmuxd says
 * so, and takes nothing of what others push, since nobody who is settled pushes. Acknowledging drops every cached
 * counter, so while all is settled the lane states in memory are the truth and no worker writes them: staging and
 * states may be cleared and the peers' addresses replaced (comms_move), and channels begin again with chunk 1 at both
 * ends. The last one to have done so is heard of by railmuxd, which releases all.
 *
 * The counter is the client's, and so is the line. One that lies holds up its own communicators until the bound.
 */
#include "gpu/hip/hold.h"

#include <errno.h>
#include <string.h>

#include "gpu/hip/adaptive.h"
#include "gpu/hip/comms.h"
#include "gpu/hip/error.h"
#include "gpu/hip/hip.h"
#include "gpu/hip/rings.h"

#define LEVEL_UNKNOWN UINT64_MAX

_Static_assert(STAGING_RANKS_MAX <= PLAN_RANKS_MAX, "levels hold the numbers of all ranks");

bool hold_any(const struct plane *plane) {
        return plane->n_held > 0;
}

static bool rank_of(const struct plane *plane, uint32_t index, const struct comm *comm) {
        return comm && plane->ranks[index].comm == comm;
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */
static int rank_hold(struct plane *plane, uint32_t index, bool held, char *error) {
        struct plane_rank *rank = &plane->ranks[index];
        int r = plane_changed(plane, shadow_rank_hold(&plane->tables.shadow, index, held), "a rank", error);

        if (r)
                return r;
        rank->held = held;
        rank->has_upto = false;
        plane->rings[rank->ring].n_held += held ? 1u : -1u;
        plane->n_held += held ? 1u : -1u;
        return 0;
}

int hold_begin(struct plane *plane, uint64_t id, bool has_upto, uint32_t upto, char *error) {
        const struct comm *comm = comms_find(plane, id);
        int r = 0;

        if (!comm)
                return error_set(-ENOENT, error, "there is no such communicator");
        if (comms_spans(comm))
                return error_set(-EOPNOTSUPP, error, "a communicator over nodes does not survive its executors");
        for (uint32_t i = 0; !r && i < TABLE_RANKS; i++) {
                struct plane_rank *rank = &plane->ranks[i];

                const struct table_rank *entry = &plane->tables.shadow.table->ranks[i];

                if (!rank_of(plane, i, comm) || (entry->abort && !entry->has_last))
                        continue; /* who has failed goes on answering */
                if (!rank->held)
                        r = rank_hold(plane, i, true, error);
                rank->has_upto = has_upto;
                rank->upto = upto;
                plane->rings[rank->ring].settled = false; /* until it has been looked at again */
        }
        return r ? r : plane_fault(plane, adaptive_wake(plane, error), error);
}

static int ring_limit(struct plane *plane, uint32_t index, bool limited, uint32_t limit, char *error) {
        struct ring *ring = &plane->rings[index];
        int r = plane_changed(plane, shadow_ring_limit(&plane->tables.shadow, index, limited, limit), "a ring", error);

        if (r)
                return r;
        if (limited && !ring->limited)
                for (uint32_t i = 0; i < TABLE_WORKERS_MAX; i++) /* no worker has heard of a limit */
                        __atomic_store_n(&plane->tables.report->level[i][index], LEVEL_UNKNOWN, __ATOMIC_RELAXED);
        ring->limited = limited;
        ring->limit = limit;
        ring->settled = false;
        return 0;
}

int hold_end(struct plane *plane, uint64_t id, char *error) {
        const struct comm *comm = comms_find(plane, id);
        bool any = false;
        int r = 0;

        for (uint32_t i = 0; !r && i < TABLE_RANKS; i++)
                if (rank_of(plane, i, comm) && plane->ranks[i].held) {
                        r = rank_hold(plane, i, false, error);
                        any = true;
                }
        for (uint32_t i = 0; !r && i < TABLE_RINGS; i++)
                if (plane->rings[i].limited && !plane->rings[i].n_held)
                        r = ring_limit(plane, i, false, 0, error);
        if (!r && any)
                r = plane_commit(plane, error);
        if (any)
                plane->adaptive = (struct adaptive){0}; /* what was noted of silence was none */
        return r;
}

/* ---- level ------------------------------------------------------------------------------------------------------- */
uint32_t hold_level(const struct plane *plane, uint64_t id, struct plane_level *levels, uint32_t max) {
        const struct comm *comm = comms_find(plane, id);
        uint32_t n = 0;

        for (uint32_t i = 0; i < TABLE_RANKS && n < max; i++) {
                const struct plane_rank *rank = &plane->ranks[i];

                if (!rank_of(plane, i, comm) || !rank->held)
                        continue;
                levels[n] = (struct plane_level){
                        .rank = rank->rank,
                        .taken = __atomic_load_n(&plane->tables.report->rank[i].rung, __ATOMIC_RELAXED),
                        .settled = plane->rings[rank->ring].settled || !plane->rings[rank->ring].mapping,
                };
                memcpy(levels[n].pushed, rank->pushed, sizeof(rank->pushed));
                memcpy(levels[n++].pulled, rank->pulled, sizeof(rank->pulled));
        }
        return n;
}

bool hold_settled(const struct plane *plane, uint64_t id) {
        const struct comm *comm = comms_find(plane, id);
        bool settled = true;

        for (uint32_t i = 0; i < TABLE_RANKS; i++) {
                const struct plane_rank *rank = &plane->ranks[i];

                if (!rank_of(plane, i, comm))
                        continue;
                settled = settled && rank->held &&
                          (plane->rings[rank->ring].settled || !plane->rings[rank->ring].mapping);
        }
        return comm && settled;
}

/* Lines that the ring's ranks still have to take. */
static uint32_t ring_missing(const struct plane *plane, uint32_t ring) {
        uint32_t missing = 0;

        for (uint32_t i = 0; i < TABLE_RANKS; i++) {
                const struct plane_rank *rank = &plane->ranks[i];
                uint32_t ahead;

                if (!rank->comm || rank->ring != ring || !rank->held || !rank->has_upto)
                        continue;
                /* Written before the acknowledgement that came with the levels. */
                ahead = rank->upto - __atomic_load_n(&plane->tables.report->rank[i].rung, __ATOMIC_RELAXED);
                if ((int32_t)ahead > 0)
                        missing += ahead;
        }
        return missing;
}

/* All channels of a rank together: if the sums of both ends agree, each channel is empty, since no end can have taken
 * more of it than the other has put there. */
static int rank_count(struct plane *plane, uint32_t index, char *error) {
        const struct lane_states *from = (const struct lane_states *)plane->states.base + index;
        const struct lane_states *state = &plane->words->state;
        struct plane_rank *rank = &plane->ranks[index];
        int r = runtime_check(
                hipMemcpyAsync(&plane->words->state, from, sizeof(*from), hipMemcpyDeviceToHost, plane->control),
                "reading lane states", error);

        if (!r)
                r = runtime_wait(plane->control, "reading lane states", error);
        if (r)
                return r;
        memset(rank->pushed, 0, sizeof(rank->pushed));
        memset(rank->pulled, 0, sizeof(rank->pulled));
        for (uint32_t channel = 0; channel < STAGING_CHANNELS; channel++)
                for (uint32_t p = 0; p < STAGING_RANKS_MAX; p++) {
                        rank->pushed[p] += state->channel[channel].pushed[p];
                        rank->pulled[p] += state->channel[channel].taken[p];
                }
        return 0;
}

/* Nobody works with the counters now, and caches were written back with the acknowledgement. */
static int ring_count(struct plane *plane, uint32_t ring, char *error) {
        int r = 0;

        for (uint32_t i = 0; !r && i < TABLE_RANKS; i++)
                if (plane->ranks[i].comm && plane->ranks[i].held && plane->ranks[i].ring == ring)
                        r = rank_count(plane, i, error);
        return r;
}

static int ring_look(struct plane *plane, uint32_t index, bool *ret_changed, char *error) {
        struct ring *ring = &plane->rings[index];
        uint32_t farthest = ring->limit, tasks = 0, missing;
        bool level = true;

        for (uint32_t i = 0; i < plane->park.n_workers; i++) {
                uint64_t word = __atomic_load_n(&plane->tables.report->level[i][index], __ATOMIC_RELAXED);

                if (word == LEVEL_UNKNOWN) {
                        level = false;
                        continue;
                }
                level = level && (uint32_t)word == ring->limit;
                tasks += (uint32_t)(word >> 32);
                if ((int32_t)((uint32_t)word - farthest) > 0)
                        farthest = (uint32_t)word;
        }
        missing = level ? ring_missing(plane, index) : 0;
        if (level && !missing && !tasks && !ring->settled) {
                int r = ring_count(plane, index, error);

                if (r)
                        return r;
        }
        ring->settled = level && !missing && !tasks;
        if (farthest == ring->limit && !missing)
                return 0;
        *ret_changed = true;
        return ring_limit(plane, index, true, farthest + missing, error);
}

int hold_tick(struct plane *plane, char *error) {
        bool rang, changed = false;
        int r;

        if (!plane->n_held || !plane->park.running)
                return 0;
        r = rings_counters(plane, &rang, error);
        for (uint32_t i = 0; !r && i < TABLE_RINGS; i++) {
                struct ring *ring = &plane->rings[i];

                if (ring->n_held && ring->mapping && !ring->limited)
                        r = ring_limit(plane, i, true, bell_sequence_next(plane->words->counter[i]), error);
        }
        if (!r)
                r = plane_commit(plane, error);
        for (uint32_t i = 0; !r && i < TABLE_RINGS; i++)
                if (plane->rings[i].limited)
                        r = ring_look(plane, i, &changed, error);
        return r || !changed ? r : plane_commit(plane, error);
}
