/* SPDX-License-Identifier: MIT */
/*
 * The oracle
 *
 * Every (rank, phase) is a thread, and so is every rank's caller, who rings when it likes. A step is many operations,
 * and any thread may come in between: data moves in two halves, a flag is set in an operation of its own, a release
 * too. The caller checks its output in the operation that sees completion, then fills both buffers with rubbish, and at
 * the end the rubbish must be as it was. The reduction is one where order matters.
 *
 * Schedules: uniformly random; priorities per thread that change now and then; priorities per rank, so that one runs
 * ahead and one starves as long as anything else can move.
 */
#include "oracle_world.h"

#include <stdlib.h>
#include <string.h>

#include "ring/ring.h"

#define OPS_MAX 10000000u

const char *const oracle_harm_names[ORACLE_HARM_COUNT] = {"fine", "stuck", "wrong", "outside", "late", "leftover"};

uint64_t oracle_random(uint64_t *state) {
        uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

static uint32_t dice(struct world *w, uint32_t sides) {
        return (uint32_t)(oracle_random(&w->random) % sides);
}

uint64_t world_input_word(uint32_t lap, uint32_t rank, uint64_t i) {
        uint64_t state = (uint64_t)lap << 56 ^ (uint64_t)rank << 48 ^ i;

        return oracle_random(&state) | 1;
}

uint64_t world_reduce_word(uint64_t sum, uint64_t term) {
        return sum * UINT64_C(6364136223846793005) + (term ^ sum >> 29);
}

bool world_mutated(const struct world *w, enum verify_mutation_kind kind, uint32_t rank, uint32_t phase) {
        const struct verify_mutation *mutation = &w->options->mutation;

        return mutation->kind == kind && mutation->phase == phase &&
               (mutation->rank == rank || mutation->rank == VERIFY_EVERY_RANK);
}

void world_harm(struct world *w, enum oracle_harm what) {
        if (w->harm == ORACLE_FINE)
                w->harm = what;
}

/* ---- the callers ------------------------------------------------------------------------------------------------- */
static void buffers_init(struct world *w, uint32_t lap, uint32_t rank) {
        const struct plan *plan = w->requests[lap].plan;
        const struct plan_case *c = &w->requests[lap].pcase;
        struct buffers *b = &w->buffers[lap][rank];
        bool root = plan_operation_rooted(plan->operation) && rank == c->root;

        if (plan_request_elements(plan->operation, w->n, c->count, root, &b->n_in, &b->n_out))
                abort();
        b->in_at = 0;
        b->out_at = b->n_in;
        if (c->in_place && plan->operation == RING_OP_ALL_GATHER) {
                b->in_at = c->count * rank;
                b->out_at = 0;
        } else if (c->in_place) {
                b->out_at = plan->operation == RING_OP_REDUCE_SCATTER ? c->count * rank : 0;
        }
        b->n_words = b->n_in + b->n_out;
        b->words = calloc(b->n_words + 1, sizeof(*b->words));
        if (!b->words)
                abort();
        for (uint64_t i = 0; i < b->n_in; i++)
                b->words[b->in_at + i] = world_input_word(lap, rank, i);
}

static uint64_t right_word(const struct world *w, uint32_t lap, uint32_t rank, uint64_t i) {
        uint64_t count = w->requests[lap].pcase.count, sum;

        switch (w->requests[lap].plan->operation) {
        case RING_OP_ALL_GATHER:
                return world_input_word(lap, (uint32_t)(i / count), i % count);
        case RING_OP_BROADCAST:
                return world_input_word(lap, w->requests[lap].pcase.root, i);
        case RING_OP_REDUCE_SCATTER:
                i += count * rank;
                break;
        default:
                break;
        }
        sum = world_input_word(lap, 0, i);
        for (uint32_t r = 1; r < w->n; r++)
                sum = world_reduce_word(sum, world_input_word(lap, r, i));
        return sum;
}

static void caller_completes(struct world *w, uint32_t rank) {
        uint32_t lap = w->done[rank];
        struct buffers *b = &w->buffers[lap][rank];

        for (uint64_t i = 0; i < b->n_out; i++)
                if (b->words[b->out_at + i] != right_word(w, lap, rank, i))
                        world_harm(w, ORACLE_WRONG);
        if (w->requests[lap].plan->operation == RING_OP_BARRIER)
                for (uint32_t r = 0; r < w->n; r++)
                        if (w->rung[r] <= lap)
                                world_harm(w, ORACLE_WRONG);
        b->rubbish = oracle_random(&w->random) | 1;
        for (uint64_t i = 0; i < b->n_words; i++)
                b->words[i] = b->rubbish;
        w->done[rank]++;
}

bool actor_done(const struct actor *a, uint32_t lap) {
        return a->lap > lap || (a->lap == lap && a->step == a->n_steps);
}

/* Rings, or sees completion. */
static bool caller_moves(struct world *w, uint32_t rank) {
        uint32_t lap = w->done[rank];

        if (lap == w->n_requests)
                return false;
        if (w->rung[rank] == lap) {
                w->rung[rank]++;
                return true;
        }
        for (uint32_t p = 0; p < w->requests[lap].plan->n_phases; p++)
                if (!actor_done(&w->actors[rank][p], lap) && !world_mutated(w, VERIFY_MUTATION_EARLY_END, rank, p))
                        return false;
        caller_completes(w, rank);
        return true;
}

/* ---- schedules --------------------------------------------------------------------------------------------------- */
static void priorities_draw(struct world *w, bool by_rank) {
        for (uint32_t rank = 0; rank < w->n; rank++) {
                uint32_t base = dice(w, 1000) * 1000;

                w->caller_priority[rank] = by_rank ? base : dice(w, 1000000);
                for (uint32_t p = 0; p < w->n_phases; p++)
                        w->actors[rank][p].priority = by_rank ? base + dice(w, 1000) : dice(w, 1000000);
        }
}

/* Moves the most important thread that can move. */
static bool move_first(struct world *w) {
        bool tried[PLAN_RANKS_MAX][PLAN_PHASES_MAX + 1] = {0};

        for (;;) {
                uint32_t best_rank = 0, best_p = 0, best = 0;
                bool any = false;

                for (uint32_t rank = 0; rank < w->n; rank++)
                        for (uint32_t p = 0; p <= w->n_phases; p++) {
                                uint32_t priority =
                                        p == w->n_phases ? w->caller_priority[rank] : w->actors[rank][p].priority;

                                if (!tried[rank][p] && (!any || priority >= best)) {
                                        any = true;
                                        best = priority;
                                        best_rank = rank;
                                        best_p = p;
                                }
                        }
                if (!any)
                        return false;
                tried[best_rank][best_p] = true;
                if (best_p == w->n_phases ? caller_moves(w, best_rank) : actor_moves(w, best_rank, best_p))
                        return true;
        }
}

static bool move_any(struct world *w) {
        uint32_t n_threads = w->n * (w->n_phases + 1), first = dice(w, n_threads);

        for (uint32_t i = 0; i < n_threads; i++) {
                uint32_t at = (first + i) % n_threads, rank = at / (w->n_phases + 1), p = at % (w->n_phases + 1);

                if (p == w->n_phases ? caller_moves(w, rank) : actor_moves(w, rank, p))
                        return true;
        }
        return false;
}

static void world_run(struct world *w) {
        uint32_t mode = dice(w, 3), change = 5 + dice(w, 200);
        bool moved = true;

        priorities_draw(w, mode == 2);
        for (uint32_t i = 0; moved && w->harm == ORACLE_FINE && i < OPS_MAX; i++) {
                if (mode > 0 && dice(w, change) == 0)
                        priorities_draw(w, mode == 2);
                moved = mode == 0 ? move_any(w) : move_first(w);
        }
        for (uint32_t rank = 0; rank < w->n; rank++) {
                if (w->done[rank] < w->n_requests)
                        world_harm(w, ORACLE_STUCK);
                for (uint32_t p = 0; p < w->n_phases; p++)
                        if (w->actors[rank][p].step < w->actors[rank][p].n_steps)
                                world_harm(w, ORACLE_STUCK);
        }
}

static void world_inspect(struct world *w) {
        for (uint32_t i = 0; i < PLAN_REGIONS_MAX * w->n * w->n; i++)
                if (w->fifos[i].sent != w->fifos[i].got)
                        world_harm(w, ORACLE_LEFTOVER);
        for (uint32_t lap = 0; lap < w->n_requests; lap++)
                for (uint32_t rank = 0; rank < w->n; rank++)
                        for (uint64_t i = 0; i < w->buffers[lap][rank].n_words; i++)
                                if (w->buffers[lap][rank].words[i] != w->buffers[lap][rank].rubbish)
                                        world_harm(w, ORACLE_LATE);
}

static void world_init(struct world *w) {
        uint32_t n_fifos = PLAN_REGIONS_MAX * w->n * w->n;

        w->fifos = calloc(n_fifos, sizeof(*w->fifos));
        if (!w->fifos)
                abort();
        for (uint32_t i = 0; i < n_fifos; i++) {
                struct fifo *f = &w->fifos[i];

                f->slots = calloc(w->slots, sizeof(*f->slots));
                for (uint32_t k = 0; f->slots && k < w->slots; k++) {
                        f->slots[k].flag = w->options->counter_first & w->mask;
                        f->slots[k].data = calloc(w->slot_words, sizeof(*f->slots[k].data));
                        if (!f->slots[k].data)
                                abort();
                }
        }
        for (uint32_t rank = 0; rank < w->n; rank++) {
                for (uint32_t lap = 0; lap < w->n_requests; lap++)
                        buffers_init(w, lap, rank);
                for (uint32_t p = 0; p < w->n_phases; p++)
                        actor_begin(w, rank, p);
        }
}

static void world_deinit(struct world *w) {
        for (uint32_t i = 0; i < PLAN_REGIONS_MAX * w->n * w->n; i++) {
                for (uint32_t k = 0; k < w->slots; k++)
                        free(w->fifos[i].slots[k].data);
                free(w->fifos[i].slots);
        }
        free(w->fifos);
        for (uint32_t lap = 0; lap < w->n_requests; lap++)
                for (uint32_t rank = 0; rank < w->n; rank++)
                        free(w->buffers[lap][rank].words);
}

enum oracle_harm oracle_run(const struct oracle_request *requests, uint32_t n_requests,
                            const struct verify_options *options, uint64_t seed) {
        static struct world w;
        const struct plan_case *c = &requests[0].pcase;

        w = (struct world){
                .requests = requests,
                .n_requests = n_requests,
                .n = requests[0].plan->n_ranks,
                .options = options,
                .mask = options->counter_bits < 32 ? (1u << options->counter_bits) - 1 : UINT32_MAX,
                .slots = c->geometry.slots,
                .slot_words = c->geometry.part_bytes / c->element_bytes,
                .random = seed,
        };
        for (uint32_t i = 0; i < n_requests; i++)
                if (w.n_phases < requests[i].plan->n_phases)
                        w.n_phases = requests[i].plan->n_phases;
        world_init(&w);
        world_run(&w);
        if (w.harm == ORACLE_FINE)
                world_inspect(&w);
        world_deinit(&w);
        return w.harm;
}

enum oracle_harm oracle_search(const struct oracle_request *requests, uint32_t n_requests,
                               const struct verify_options *options, uint64_t seed, uint32_t n_schedules) {
        for (uint32_t i = 0; i < n_schedules; i++) {
                enum oracle_harm found = oracle_run(requests, n_requests, options, seed + i * UINT64_C(7919));

                if (found != ORACLE_FINE)
                        return found;
        }
        return ORACLE_FINE;
}
