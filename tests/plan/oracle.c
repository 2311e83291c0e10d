/* SPDX-License-Identifier: MIT */
/*
 * The oracle
 *
 * Every (rank, phase) is a thread, and so is every rank's caller, who rings when it likes. A step is many operations,
 * and any thread may come in between: each source is read, each output and each chunk is written in two halves, and
 * every flag and every release is an operation of its own. The number of a chunk is taken at the beginning of a step
 * and counted on at its end, as an executor would that does not expect a second one at the same end of a channel.
 *
 * A caller's memory is rubbish until it rings. It checks all of it in the operation that sees completion: outputs, and
 * that nothing else has changed. Then it fills it with other rubbish, which must still be there at the end. Whoever
 * looks at memory at another time is caught in the act.
 *
 * Schedules: uniformly random; priorities per thread that change now and then; priorities per rank, so that one runs
 * ahead and one starves as long as anything else can move. Some runs do a whole step at once: then more goes on in the
 * same time.
 */
#include "oracle_world.h"

#include <stdlib.h>
#include <string.h>

#include "ring/ring.h"

#define MOVES_MAX 10000000u

const char *const oracle_harm_names[ORACLE_HARM_COUNT] = {"fine", "stuck",    "wrong", "outside",
                                                          "late", "leftover", "far"};

uint64_t oracle_random(uint64_t *state) {
        uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

static uint32_t dice(struct world *w, uint32_t sides) {
        return (uint32_t)(oracle_random(&w->random) % sides);
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

bool actor_done(const struct actor *a, uint32_t lap) {
        return a->lap > lap || (a->lap == lap && a->at == a->n_steps);
}

/* ---- the callers ------------------------------------------------------------------------------------------------- */
static void spoil(struct world *w, struct buffers *b) {
        b->rubbish = oracle_random(&w->random) | 1; /* no element is odd */
        for (uint64_t i = 0; i < b->n_words; i++)
                b->words[i] = b->rubbish;
}

static void buffers_init(struct world *w, uint32_t lap, uint32_t rank) {
        struct buffers *b = &w->buffers[lap][rank];

        layout_init(w, lap, rank);
        b->words = calloc(b->n_words + 1, sizeof(*b->words));
        if (!b->words)
                abort();
        spoil(w, b);
}

static void caller_rings(struct world *w, uint32_t rank) {
        uint32_t lap = w->rung[rank]++;
        struct buffers *b = &w->buffers[lap][rank];

        for (uint64_t i = 0; i < b->n_words; i++) {
                if (b->words[i] != b->rubbish)
                        world_harm(w, ORACLE_LATE);
                b->words[i] = layout_first(w, lap, rank, i);
        }
}

static void caller_completes(struct world *w, uint32_t rank) {
        uint32_t lap = w->done[rank];
        struct buffers *b = &w->buffers[lap][rank];

        for (uint64_t i = 0; i < b->n_words; i++)
                if (b->words[i] != layout_due(w, lap, rank, i))
                        world_harm(w, ORACLE_WRONG);
        if (w->requests[lap].plan->operation == RING_OP_BARRIER)
                for (uint32_t r = 0; r < w->n; r++)
                        if (w->rung[r] <= lap)
                                world_harm(w, ORACLE_WRONG);
        spoil(w, b);
        w->done[rank]++;
}

/* Rings, or sees completion. */
static bool caller_moves(struct world *w, uint32_t rank) {
        uint32_t lap = w->done[rank];

        if (lap == w->n_requests)
                return false;
        if (w->rung[rank] == lap) {
                caller_rings(w, rank);
                return true;
        }
        for (uint32_t p = 0; p < w->requests[lap].plan->n_phases; p++)
                if (!actor_done(world_actor(w, rank, p), lap) && !world_mutated(w, VERIFY_MUTATION_EARLY_END, rank, p))
                        return false;
        caller_completes(w, rank);
        return true;
}

/* ---- schedules --------------------------------------------------------------------------------------------------- */
static int by_priority(const void *a, const void *b) {
        const struct thread *x = a, *y = b;

        return x->priority < y->priority ? 1 : x->priority > y->priority ? -1 : 0;
}

static void priorities_draw(struct world *w, bool by_rank) {
        uint32_t base[ORACLE_RANKS_MAX];

        for (uint32_t rank = 0; rank < w->n; rank++)
                base[rank] = dice(w, 1000) * 1000;
        for (uint32_t i = 0; i < w->n_threads; i++)
                w->threads[i].priority = by_rank ? base[w->threads[i].rank] + dice(w, 1000) : dice(w, 1000000);
        qsort(w->threads, w->n_threads, sizeof(w->threads[0]), by_priority);
}

/* Moves the first thread that can move, from `first` on. */
static bool move_one(struct world *w, uint32_t first) {
        for (uint32_t i = 0; i < w->n_threads; i++) {
                uint32_t at = (first + i) % w->n_threads, rank = w->threads[at].rank, p = w->threads[at].p;

                if (p == w->n_phases ? caller_moves(w, rank) : actor_moves(w, rank, p))
                        return true;
        }
        return false;
}

static void world_run(struct world *w) {
        uint32_t mode = dice(w, 3), change = 5 + dice(w, 200);
        bool moved = true;

        priorities_draw(w, mode == 2);
        for (uint32_t i = 0; moved && w->harm == ORACLE_FINE && i < MOVES_MAX; i++) {
                if (mode > 0 && dice(w, change) == 0)
                        priorities_draw(w, mode == 2);
                moved = move_one(w, mode == 0 ? dice(w, w->n_threads) : 0);
        }
        for (uint32_t rank = 0; rank < w->n; rank++) {
                if (w->done[rank] < w->n_requests)
                        world_harm(w, ORACLE_STUCK);
                for (uint32_t p = 0; p < w->n_phases; p++)
                        if (world_actor(w, rank, p)->at < world_actor(w, rank, p)->n_steps)
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

/* ---- the world --------------------------------------------------------------------------------------------------- */
static void world_init(struct world *w) {
        static const uint32_t grains[] = {1, 1, 3, UINT32_MAX};
        static struct actor actors[ORACLE_RANKS_MAX * PLAN_PHASES_MAX]; /* large */

        for (uint32_t i = 0; i < w->n_requests; i++)
                if (w->n_phases < w->requests[i].plan->n_phases)
                        w->n_phases = w->requests[i].plan->n_phases;
        w->grain = grains[dice(w, 4)];
        w->empty_waits = dice(w, 2);
        w->fifos = calloc((size_t)PLAN_REGIONS_MAX * w->n * w->n, sizeof(*w->fifos));
        w->actors = actors;
        if (!w->fifos)
                abort();
        for (uint32_t rank = 0; rank < w->n; rank++) {
                for (uint32_t lap = 0; lap < w->n_requests; lap++)
                        buffers_init(w, lap, rank);
                for (uint32_t p = 0; p <= w->n_phases; p++, w->n_threads++) {
                        w->threads[w->n_threads].rank = rank;
                        w->threads[w->n_threads].p = p;
                        if (p == w->n_phases)
                                continue;
                        world_actor(w, rank, p)->lap = 0;
                        actor_begin(w, rank, p);
                }
        }
}

static void world_deinit(struct world *w) {
        for (uint32_t i = 0; i < PLAN_REGIONS_MAX * w->n * w->n; i++)
                free(w->fifos[i].slots);
        for (uint32_t lap = 0; lap < w->n_requests; lap++)
                for (uint32_t rank = 0; rank < w->n; rank++) {
                        free(w->buffers[lap][rank].numbers);
                        free(w->buffers[lap][rank].words);
                }
        free(w->fifos);
}

bool oracle_executable(const struct plan *plan) {
        if (plan->n_ranks < 1 || plan->n_ranks > ORACLE_RANKS_MAX || plan->n_phases > PLAN_PHASES_MAX ||
            plan->n_shards < 1 || (plan->tree >= PLAN_TREE_NODE_ORDER && !plan->nodes))
                return false;
        for (uint32_t p = 0; p < plan->n_phases; p++) {
                const struct plan_phase *phase = &plan->phases[p];

                if (phase->kind < PLAN_PUSH || phase->kind > PLAN_PASS ||
                    (phase->kind > PLAN_WAIT && phase->kind < PLAN_READ) || phase->region_in >= PLAN_REGIONS_MAX ||
                    phase->region_out >= PLAN_REGIONS_MAX || phase->after >= (int)plan->n_phases ||
                    phase->schedule >= PLAN_SCHEDULE_COUNT ||
                    (phase->schedule == PLAN_HALVING_REDUCE_SCATTER && plan->n_ranks & (plan->n_ranks - 1)) ||
                    (phase->schedule >= PLAN_SCHEDULE_NODES && !plan->nodes))
                        return false;
        }
        return true;
}

enum oracle_harm oracle_run(const struct oracle_request *requests, uint32_t n_requests,
                            const struct verify_options *options, uint64_t seed) {
        static struct world w;

        w = (struct world){
                .requests = requests,
                .n_requests = n_requests,
                .n = requests[0].plan->n_ranks,
                .options = options,
                .mask = options->counter_bits < 32 ? (1u << options->counter_bits) - 1 : UINT32_MAX,
                .random = seed,
        };
        if (w.n > ORACLE_RANKS_MAX || n_requests > ORACLE_REQUESTS_MAX)
                abort();
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
