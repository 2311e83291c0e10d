/* SPDX-License-Identifier: MIT */
/*
 * The interpreter of retriable phases
 *
 * A rank's request is a plan, and a cursor (part, peer) for each phase. A *step* moves one cursor by one place:
 *
 *   PUSH    copies one part for one peer into its channel                needs a free slot
 *   REDUCE  combines one part of all ranks, perhaps sends the result on  needs each other rank's chunk, and free slots
 *   COPY    takes one part from one peer, or from the own input          needs that peer's chunk
 *   SIGNAL  as PUSH without data, WAIT as COPY without data
 *
 * A step that is not ready changes nothing and gives up at once; whoever calls us again retries it. (REDUCE remembers
 * how many of its conditions it found true. They stay true.) So a rank never waits inside a call, one thread can serve
 * any number of ranks of any number of communicators, and no order of calls can deadlock what the plan verifier has
 * accepted. `after` is the only order between the phases of a request.
 *
 * Each cursor goes through its parts in order and within a part through its peers in order; a peer without a free slot
 * holds up the peers behind it. That is part of the plan's meaning: both ends of a channel agree on the order of chunks
 * only because of it, and the verifier assumes it. Parts without elements send their chunk too, so both ends count the
 * same.
 *
 * In place. Steps read the input only up to where the plan's `after` lets a step of another phase write: a REDUCE or
 * COPY into a part waits until PUSH has sent that part to all. REDUCE reads its own contribution straight from the
 * input, at its rank's place in the order, and the kernels load a block from all sources before they store it.
 *
 * Budget. A call stops after about max_bytes of data moved; every step counts at least STEP_BYTES, so empty chunks are
 * bounded too. A step is never divided, so one call may exceed the budget by one step. The next call begins with the
 * phase behind the one that ended this one: otherwise a small budget could be spent on PUSH alone while chunks of
 * others lie unread.
 */
#include "gpu/host/interpret.h"

#include <assert.h>
#include <string.h>

#include "util/type.h"

#define STEP_BYTES 256u

void interpret_rank_init(struct interpret_rank *rank, const struct channel_set *set, uint32_t me, uint32_t start) {
        *rank = (struct interpret_rank){.set = set, .me = me};
        for (uint32_t region = 0; region < PLAN_REGIONS_MAX; region++)
                for (uint32_t peer = 0; peer < PLAN_RANKS_MAX; peer++) {
                        rank->to[region][peer] = (struct channel_end){.count = start, .seen = start};
                        rank->from[region][peer] = (struct channel_end){.count = start};
                }
}

void interpret_rank_start(struct interpret_rank *rank, const struct gpu_request *request,
                          const struct plan_geometry *geometry) {
        const struct plan *plan = request->plan;

        assert(!rank->active);
        assert(plan->n_ranks == rank->set->n_ranks);
        rank->request = *request;
        rank->element_bytes = (uint32_t)type_size(request->type);
        rank->reduce = reduce_find(request->type, request->redop);
        rank->turn = 0;
        for (uint32_t p = 0; p < plan->n_phases; p++) {
                const struct plan_phase *phase = &plan->phases[p];
                struct interpret_cursor *cursor = &rank->cursor[p];

                *cursor = (struct interpret_cursor){0};
                if (!plan_phase_mine(phase, rank->me, request->root))
                        continue;
                cursor->n_parts = plan_phase_parts(plan, phase, geometry, request->count, rank->element_bytes);
                cursor->n_peers = plan_phase_peers(plan, phase, rank->me, request->root);
        }
        rank->active = true;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */
struct step {
        struct interpret_rank *rank;
        const struct plan_geometry *geometry;
        const struct plan_phase *phase;
        struct interpret_cursor *cursor;
};

static bool cursor_done(const struct interpret_cursor *cursor) {
        return cursor->part == cursor->n_parts;
}

static void cursor_next_part(struct interpret_cursor *cursor) {
        cursor->part++;
        cursor->peer = 0;
}

static void cursor_next_peer(struct interpret_cursor *cursor) {
        if (++cursor->peer >= cursor->n_peers)
                cursor_next_part(cursor);
}

static struct plan_span step_span(const struct step *step, uint32_t range, uint32_t peer) {
        const struct interpret_rank *rank = step->rank;

        return plan_span(range, rank->request.plan, step->geometry, rank->request.count, rank->element_bytes, rank->me,
                         peer, step->cursor->part);
}

static uint32_t step_peer(const struct step *step) {
        const struct interpret_rank *rank = step->rank;

        return plan_phase_peer(rank->request.plan, step->phase, rank->me, rank->request.root, step->cursor->peer);
}

static const unsigned char *step_in(const struct step *step, struct plan_span span) {
        return (const unsigned char *)step->rank->request.in + span.offset * step->rank->element_bytes;
}

static unsigned char *step_out(const struct step *step, struct plan_span span) {
        return (unsigned char *)step->rank->request.out + span.offset * step->rank->element_bytes;
}

/* The channel to a peer, and from it. */
static struct channel_id step_to(const struct step *step, uint32_t peer) {
        return (struct channel_id){step->phase->region_out, step->rank->me, peer};
}

static struct channel_id step_from(const struct step *step, uint32_t peer) {
        return (struct channel_id){step->phase->region_in, peer, step->rank->me};
}

static struct channel_end *step_to_end(const struct step *step, uint32_t peer) {
        return &step->rank->to[step->phase->region_out][peer];
}

static struct channel_end *step_from_end(const struct step *step, uint32_t peer) {
        return &step->rank->from[step->phase->region_in][peer];
}

/* Sends `size` bytes; the caller knows that there is room. An empty chunk's address may be anything. */
static void step_send(const struct step *step, uint32_t peer, const void *data, uint64_t size) {
        const struct channel_set *set = step->rank->set;
        struct channel_end *end = step_to_end(step, peer);

        assert(size <= set->part_bytes);
        if (size > 0)
                memcpy(channel_push_data(set, step_to(step, peer), end), data, size);
        channel_push(set, step_to(step, peer), end);
}

/* Steps return whether they were done, and count the bytes they moved. */

static bool step_push(const struct step *step, uint64_t *bytes) {
        uint32_t peer = step_peer(step);
        struct plan_span span = {0};
        uint64_t size;

        if (!channel_may_push(step->rank->set, step_to(step, peer), step_to_end(step, peer)))
                return false;
        if (step->phase->kind == PLAN_PUSH)
                span = step_span(step, step->phase->in_range, peer);
        size = span.length * step->rank->element_bytes;
        step_send(step, peer, size > 0 ? step_in(step, span) : NULL, size);
        *bytes += size;
        cursor_next_peer(step->cursor);
        return true;
}

static bool step_copy(const struct step *step, uint64_t *bytes) {
        const struct channel_set *set = step->rank->set;
        uint32_t peer = step_peer(step);
        struct channel_end *end = step_from_end(step, peer);
        struct plan_span span = {0};
        uint64_t size;

        if (!channel_has_chunk(set, step_from(step, peer), end))
                return false;
        if (step->phase->kind == PLAN_COPY)
                span = step_span(step, step->phase->out_range, peer);
        size = span.length * step->rank->element_bytes;
        assert(size <= set->part_bytes);
        if (size > 0)
                memcpy(step_out(step, span), channel_chunk_data(set, step_from(step, peer), end), size);
        channel_release(set, step_from(step, peer), end);
        *bytes += size;
        cursor_next_peer(step->cursor);
        return true;
}

static bool step_copy_self(const struct step *step, uint64_t *bytes) {
        struct plan_span in = step_span(step, step->phase->in_range, step->rank->me);
        struct plan_span out = step_span(step, step->phase->out_range, step->rank->me);
        uint64_t size = out.length * step->rank->element_bytes;

        assert(in.length == out.length);
        if (size > 0 && step_out(step, out) != step_in(step, in)) {
                memcpy(step_out(step, out), step_in(step, in), size);
                *bytes += size;
        }
        cursor_next_part(step->cursor);
        return true;
}

/*
 * Is everything there for the current part? cursor->peer counts how many conditions are known to hold: first a chunk
 * from each rank (the own one is trivial), then, when forwarding, a free slot for each. Nobody but us can undo either.
 */
static bool step_reduce_ready(const struct step *step) {
        const struct interpret_rank *rank = step->rank;
        struct interpret_cursor *cursor = step->cursor;
        uint32_t n = rank->set->n_ranks;
        uint32_t n_conditions = step->phase->forward ? 2 * n : n;

        for (; cursor->peer < n_conditions; cursor->peer++) {
                uint32_t peer = cursor->peer < n ? cursor->peer : cursor->peer - n;

                if (peer == rank->me)
                        continue;
                if (cursor->peer < n) {
                        if (!channel_has_chunk(rank->set, step_from(step, peer), step_from_end(step, peer)))
                                return false;
                } else if (!channel_may_push(rank->set, step_to(step, peer), step_to_end(step, peer))) {
                        return false;
                }
        }
        return true;
}

static bool step_reduce(const struct step *step, uint64_t *bytes) {
        const struct interpret_rank *rank = step->rank;
        const void *source[PLAN_RANKS_MAX];
        uint32_t n = rank->set->n_ranks;
        struct plan_span in, out;
        uint64_t size;

        if (!step_reduce_ready(step))
                return false;
        in = step_span(step, step->phase->in_range, rank->me);
        out = step_span(step, step->phase->out_range, rank->me);
        size = out.length * rank->element_bytes;
        assert(in.length == out.length && size <= rank->set->part_bytes);

        if (size > 0) {
                for (uint32_t r = 0; r < n; r++)
                        source[r] = r == rank->me
                                            ? (const void *)step_in(step, in)
                                            : channel_chunk_data(rank->set, step_from(step, r), step_from_end(step, r));
                assert(rank->reduce);
                rank->reduce(step_out(step, out), source, n, out.length);
        }
        for (uint32_t i = 1; step->phase->forward && i < n; i++)
                step_send(step, (rank->me + i) % n, size > 0 ? step_out(step, out) : NULL, size);
        for (uint32_t i = 1; i < n; i++) {
                uint32_t peer = (rank->me + n - i) % n;

                channel_release(rank->set, step_from(step, peer), step_from_end(step, peer));
        }
        *bytes += size * n;
        cursor_next_part(step->cursor);
        return true;
}

/* ---- request ----------------------------------------------------------------------------------------------------- */
static bool interpret_rank_step(struct interpret_rank *rank, const struct plan_geometry *geometry, uint32_t p,
                                uint64_t *bytes) {
        struct step step = {
                .rank = rank,
                .geometry = geometry,
                .phase = &rank->request.plan->phases[p],
                .cursor = &rank->cursor[p],
        };

        if (step.phase->after >= 0) {
                const struct interpret_cursor *before = &rank->cursor[step.phase->after];

                if (!cursor_done(before) && before->part <= step.cursor->part)
                        return false;
        }
        if (step.phase->kind == PLAN_REDUCE)
                return step_reduce(&step, bytes);
        if (step.phase->kind == PLAN_COPY && step.phase->peers == PLAN_PEERS_SELF)
                return step_copy_self(&step, bytes);
        if (step.cursor->n_peers == 0) { /* a single rank has nobody to talk to */
                step.cursor->part = step.cursor->n_parts;
                return true;
        }
        if (step.phase->kind == PLAN_PUSH || step.phase->kind == PLAN_SIGNAL)
                return step_push(&step, bytes);
        assert(step.phase->kind == PLAN_COPY || step.phase->kind == PLAN_WAIT);
        return step_copy(&step, bytes);
}

static bool interpret_rank_done(const struct interpret_rank *rank) {
        for (uint32_t p = 0; p < rank->request.plan->n_phases; p++)
                if (!cursor_done(&rank->cursor[p]))
                        return false;
        return true;
}

int interpret_rank_run(struct interpret_rank *rank, const struct plan_geometry *geometry, uint64_t max_bytes) {
        uint32_t n_phases, p, n_idle = 0;
        uint64_t spent = 0;
        bool moved = false;

        if (!rank->active)
                return GPU_IDLE;

        n_phases = rank->request.plan->n_phases;
        for (p = rank->turn; n_idle < n_phases; p = (p + 1) % n_phases) {
                bool phase_moved = false;

                while (!cursor_done(&rank->cursor[p]) && (spent < max_bytes || !moved)) {
                        uint64_t bytes = 0;

                        if (!interpret_rank_step(rank, geometry, p, &bytes))
                                break;
                        spent += bytes + STEP_BYTES;
                        moved = phase_moved = true;
                }
                n_idle = phase_moved ? 0 : n_idle + 1;
                if (moved && spent >= max_bytes) {
                        rank->turn = (p + 1) % n_phases;
                        break;
                }
        }
        if (interpret_rank_done(rank)) {
                rank->active = false;
                return GPU_DONE;
        }
        return moved ? GPU_PROGRESS : GPU_IDLE;
}
