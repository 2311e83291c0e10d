/* SPDX-License-Identifier: MIT */
/* Geometry, prediction and the table of choices. The model is compared with counting and running every step of a
 * request as it really is, without lanes, parts that stand for others, or interpolation. */
#include <math.h>
#include <stdlib.h>

#include "plan/cost.h"
#include "ring/ring.h"
#include "tests/cmocka_all.h"

static const uint32_t operations[] = {
        RING_OP_ALL_REDUCE,     RING_OP_REDUCE,     RING_OP_BROADCAST,    RING_OP_ALL_GATHER,
        RING_OP_REDUCE_SCATTER, RING_OP_ALL_TO_ALL, RING_OP_ALL_TO_ALL_V, RING_OP_GATHER,
        RING_OP_SCATTER,        RING_OP_SEND,       RING_OP_BARRIER,
};
#define N_OPERATIONS (sizeof(operations) / sizeof(operations[0]))

/* Every plan that exists for n ranks: i-th, or false. */
static bool plan_at(uint32_t n_ranks, uint32_t i, struct plan *plan) {
        for (size_t o = 0; o < N_OPERATIONS; o++)
                for (uint32_t k = 0; plan_algorithm_at(operations[o], n_ranks, k) != PLAN_ALGORITHM_NONE; k++)
                        if (i-- == 0) {
                                assert_int_equal(plan_build(operations[o], plan_algorithm_at(operations[o], n_ranks, k),
                                                            n_ranks, plan),
                                                 PLAN_OK);
                                return true;
                        }
        return false;
}

static const uint32_t some_ranks[] = {1, 2, 3, 4, 5, 8, 12};
#define N_SOME (sizeof(some_ranks) / sizeof(some_ranks[0]))

/* All different, so that one taken for another shows. */
static const struct plan_constants odd = {
        .request_ns = 1009,
        .hop_ns = 311,
        .ns_per_phase = 7,
        .ns_per_chunk = 23,
        .ns_per_signal = 5,
        .ns_per_byte_copy = 0.03,
        .ns_per_byte_reduce = 0.05,
        .ns_per_byte_fold = 0.11,
        .ns_per_turn = 13,
        .parallel = 3,
};

static void test_geometry(void **state) {
        uint32_t last = UINT32_MAX;

        (void)state;
        for (uint32_t n = 1; n <= PLAN_RANKS_MAX; n++) {
                struct plan_geometry g;
                uint64_t bytes = 0;

                plan_geometry_choose(n, &g);
                assert_int_equal(g.part_bytes % 64, 0);
                assert_in_range(g.part_bytes, 4096, 65536);
                assert_int_equal(g.slots, 2);
                assert_true(g.part_bytes <= last);
                last = g.part_bytes;
                for (uint32_t a = 0; a < n; a++)
                        for (uint32_t b = 0; b < n; b++) {
                                uint64_t slots = a == b && n > 2 ? n : 2;

                                bytes += slots * 2 * (g.part_bytes + 64); /* two regions with data, two without */
                        }
                assert_int_equal(plan_staging_bytes(&g, n), bytes);
                if (g.part_bytes > 4096)
                        assert_true(bytes <= UINT64_C(32) << 20);
                assert_true(bytes <= UINT64_C(104) << 20);
        }
        assert_int_equal(last, 4096);
}

/* A channel has room for what an all_reduce of 2 MiB puts through it, and so has the memory that is charged. */
static void test_geometry_nodes(void **state) {
        (void)state;
        for (uint32_t n = 2; n <= PLAN_RANKS_MAX; n++) {
                struct plan_geometry g, local;

                plan_geometry_choose_nodes(n, &g);
                plan_geometry_choose(n, &local);
                assert_int_equal(g.part_bytes % 64, 0);
                assert_in_range(g.part_bytes, 4096, 65536);
                assert_in_range(g.slots, 4, 32);
                assert_true(n > 10 || g.part_bytes == 65536); /* what fabrics stripe */
                assert_true((uint64_t)g.part_bytes * g.slots * n >= 2u << 20);
                assert_true(plan_staging_bytes(&g, n) >= plan_staging_bytes(&local, n));
                assert_true(plan_staging_bytes(&g, n) <= UINT64_C(6) * n << 20);
        }
}

/* ---- the long way ------------------------------------------------------------------------------------------------ */
#define CHUNKS_MAX 4096u

struct fifo {
        double *put, *given_back; /* by number */
        uint32_t n_put, n_taken;
};

struct runner {
        const struct plan *plan;
        const struct plan_constants *constants;
        struct plan_geometry geometry;
        struct plan_shape shape;
        struct fifo *fifos; /* [region][source][destination] */
        struct {
                uint64_t part;
                uint32_t step;
                double now, *part_done;
        } at[PLAN_RANKS_MAX][PLAN_PHASES_MAX];
        double work[PLAN_RANKS_MAX];
};

static struct fifo *runner_fifo(struct runner *w, uint32_t region, uint32_t source, uint32_t destination) {
        struct fifo *fifo = &w->fifos[(region * w->plan->n_ranks + source) * w->plan->n_ranks + destination];

        if (!fifo->put) {
                fifo->put = calloc(CHUNKS_MAX, sizeof(double));
                fifo->given_back = calloc(CHUNKS_MAX, sizeof(double));
                assert_non_null(fifo->put);
                assert_non_null(fifo->given_back);
        }
        return fifo;
}

static double price(const struct runner *w, const struct plan_phase *phase, const struct plan_step *step) {
        const struct plan_constants *k = w->constants;
        uint32_t chunks = step->n_targets, writes = step->n_outputs + step->n_targets;
        double ns, read = 0, written;

        for (uint32_t i = 0; i < step->n_sources; i++) {
                bool chunk = step->source[i].kind == PLAN_SOURCE_CHUNK;

                chunks += chunk;
                read += (double)step->length *
                        (chunk && step->partial_in ? w->shape.partial_bytes : w->shape.element_bytes);
        }
        if (!step->data)
                return chunks * k->ns_per_signal;
        ns = chunks * k->ns_per_chunk;
        written = (double)step->length * step->n_outputs * w->shape.element_bytes +
                  (double)step->length * step->n_targets *
                          (step->partial_out ? w->shape.partial_bytes : w->shape.element_bytes);
        if (step->n_sources == 1)
                return ns + written * k->ns_per_byte_copy;
        return ns + read * (phase->kind == PLAN_FOLD ? k->ns_per_byte_fold : k->ns_per_byte_reduce) +
               written * (writes - 1) / writes * k->ns_per_byte_copy;
}

static bool runner_after(struct runner *w, uint32_t me, uint32_t p, double *begin) {
        const struct plan_phase *phase = &w->plan->phases[p];
        uint32_t q = (uint32_t)phase->after;
        uint64_t parts;

        if (phase->after < 0 || plan_phase_steps(w->plan, &w->plan->phases[q], &w->shape, me) == 0)
                return true;
        parts = plan_phase_parts(w->plan, &w->plan->phases[q], &w->geometry, &w->shape, me);
        if (!phase->after_whole && parts > w->at[me][p].part)
                parts = w->at[me][p].part + 1;
        if (w->at[me][q].part < parts)
                return false;
        if (parts > 0)
                *begin = fmax(*begin, w->at[me][q].part_done[parts - 1]);
        return true;
}

static bool runner_step(struct runner *w, uint32_t me, uint32_t p) {
        const struct plan_phase *phase = &w->plan->phases[p];
        double begin = w->at[me][p].now, end, hop;
        struct plan_step step;

        if (!runner_after(w, me, p, &begin))
                return false;
        if (!plan_step(w->plan, phase, &w->geometry, &w->shape, me, w->at[me][p].part, w->at[me][p].step, &step))
                return true;
        for (uint32_t i = 0; i < step.n_sources; i++)
                if (step.source[i].kind == PLAN_SOURCE_CHUNK) {
                        struct fifo *fifo = runner_fifo(w, phase->region_in, step.source[i].rank, me);

                        if (fifo->n_put == fifo->n_taken)
                                return false;
                        begin = fmax(begin, fifo->put[fifo->n_taken]);
                }
        for (uint32_t i = 0; i < step.n_targets; i++) {
                struct fifo *fifo = runner_fifo(w, phase->region_out, me, step.target[i]);
                uint32_t slots = step.target[i] == me && w->plan->n_ranks > 2 ? w->plan->n_ranks : 2;

                if (fifo->n_put - fifo->n_taken >= slots)
                        return false;
                if (fifo->n_put >= slots)
                        begin = fmax(begin, fifo->given_back[fifo->n_put - slots]);
        }
        end = begin + price(w, phase, &step);
        w->work[me] += end - begin;
        w->at[me][p].now = end;
        for (uint32_t i = 0; i < step.n_sources; i++)
                if (step.source[i].kind == PLAN_SOURCE_CHUNK) {
                        struct fifo *fifo = runner_fifo(w, phase->region_in, step.source[i].rank, me);

                        hop = step.source[i].rank == me ? 0 : w->constants->hop_ns;
                        fifo->given_back[fifo->n_taken++] = end + hop;
                }
        for (uint32_t i = 0; i < step.n_targets; i++) {
                struct fifo *fifo = runner_fifo(w, phase->region_out, me, step.target[i]);

                assert_true(fifo->n_put < CHUNKS_MAX);
                hop = step.target[i] == me ? 0 : w->constants->hop_ns;
                fifo->put[fifo->n_put++] = end + hop;
        }
        return true;
}

static void run_long(const struct plan *plan, const struct plan_constants *constants, uint64_t count,
                     struct plan_cost *ret_cost) {
        uint64_t counts[PLAN_RANKS_MAX], zeros[PLAN_RANKS_MAX] = {0};
        struct plan_vector vector = {counts, zeros, counts, zeros};
        struct runner *w = calloc(1, sizeof(*w));
        uint32_t n = plan->n_ranks;
        double total = 0;
        bool moved = true;

        assert_non_null(w);
        for (uint32_t i = 0; i < n; i++)
                counts[i] = count;
        w->plan = plan;
        w->constants = constants;
        w->shape = (struct plan_shape){.count = count, .element_bytes = 4, .partial_bytes = 8, .vector = &vector};
        w->shape.peer = plan->operation == RING_OP_SEND && n > 1 ? 1 : 0;
        plan_geometry_choose(n, &w->geometry);
        w->fifos = calloc((size_t)PLAN_REGIONS_MAX * n * n, sizeof(*w->fifos));
        assert_non_null(w->fifos);
        *ret_cost = (struct plan_cost){0};
        for (uint32_t me = 0; me < n; me++)
                for (uint32_t p = 0; p < plan->n_phases; p++) {
                        bool mine = plan_phase_mine(&plan->phases[p], &w->shape, me);

                        w->at[me][p].part_done = calloc(CHUNKS_MAX, sizeof(double));
                        assert_non_null(w->at[me][p].part_done);
                        w->at[me][p].now = w->work[me] += 0;
                        w->at[me][p].now = mine ? constants->ns_per_phase : 0;
                        w->work[me] += w->at[me][p].now;
                }
        while (moved) {
                moved = false;
                for (uint32_t me = 0; me < n; me++)
                        for (uint32_t p = 0; p < plan->n_phases; p++) {
                                const struct plan_phase *phase = &plan->phases[p];
                                uint32_t steps = plan_phase_steps(plan, phase, &w->shape, me);
                                uint64_t parts = plan_phase_parts(plan, phase, &w->geometry, &w->shape, me);

                                while (steps > 0 && w->at[me][p].part < parts && runner_step(w, me, p)) {
                                        moved = true;
                                        if (++w->at[me][p].step < steps)
                                                continue;
                                        w->at[me][p].step = 0;
                                        w->at[me][p].part_done[w->at[me][p].part++] = w->at[me][p].now;
                                }
                        }
        }
        for (uint32_t me = 0; me < n; me++) {
                for (uint32_t p = 0; p < plan->n_phases; p++) {
                        ret_cost->critical_ns = fmax(ret_cost->critical_ns, w->at[me][p].now);
                        if (plan_phase_steps(plan, &plan->phases[p], &w->shape, me) > 0)
                                assert_int_equal(w->at[me][p].part,
                                                 plan_phase_parts(plan, &plan->phases[p], &w->geometry, &w->shape, me));
                        free(w->at[me][p].part_done);
                }
                ret_cost->busiest_ns = fmax(ret_cost->busiest_ns, w->work[me]);
                total += w->work[me];
        }
        ret_cost->shared_ns = total / constants->parallel;
        for (uint32_t i = 0; i < PLAN_REGIONS_MAX * n * n; i++) {
                free(w->fifos[i].put);
                free(w->fifos[i].given_back);
        }
        free(w->fifos);
        free(w);
}

static bool close_to(double a, double b, double relative) {
        return fabs(a - b) <= relative * fmax(fabs(a), fabs(b)) + 1e-6;
}

static void check_model(const struct plan *plan, const struct plan_constants *constants, const struct plan_model *model,
                        uint64_t count, double critical_error) {
        const struct plan_constants only_hops = {.hop_ns = 1, .parallel = 1};
        double idle = plan->n_ranks > constants->parallel ? plan->n_ranks - constants->parallel : 0;
        struct plan_cost cost, truth, hops;

        plan_model_predict(model, count, &cost);
        run_long(plan, constants, count, &truth);
        run_long(plan, &only_hops, count, &hops);
        truth.shared_ns += hops.critical_ns * idle * constants->ns_per_turn / constants->parallel;
        if (!close_to(cost.busiest_ns, truth.busiest_ns, 1e-9) ||
            !close_to(cost.shared_ns, truth.shared_ns, critical_error) ||
            !close_to(cost.critical_ns, truth.critical_ns, critical_error))
                fail_msg("%s %s, %u ranks, %llu elements: path %.1f work %.1f all %.1f, really %.1f %.1f %.1f",
                         plan_operation_name(plan->operation), plan_algorithm_name(plan->algorithm), plan->n_ranks,
                         (unsigned long long)count, cost.critical_ns, cost.busiest_ns, cost.shared_ns,
                         truth.critical_ns, truth.busiest_ns, truth.shared_ns);
        assert_true(close_to(
                cost.ns, constants->request_ns + fmax(fmax(cost.critical_ns, cost.busiest_ns), cost.shared_ns), 1e-12));
}

/* Full parts: work to the last bit, the path as well up to four parts, nearly so beyond. A part not full: nearly. */
static void test_model(void **state) {
        (void)state;
        for (size_t s = 0; s < N_SOME; s++) {
                struct plan plan;

                for (uint32_t i = 0; plan_at(some_ranks[s], i, &plan); i++) {
                        static const uint32_t n_parts[] = {1, 2, 4, 7, 12};
                        struct plan_model model;

                        assert_int_equal(plan_model_init(&model, &plan, &odd, NULL, 4, 8), 0);
                        for (size_t j = 0; j < sizeof(n_parts) / sizeof(n_parts[0]); j++) {
                                uint64_t count = n_parts[j] * model.part_elements * model.n_shards;

                                check_model(&plan, &odd, &model, count,
                                            n_parts[j] <= 4 && n_parts[j] != 3 ? 1e-9 : 0.05);
                        }
                        check_model(&plan, &odd, &model, model.part_elements / 16 * 4 * model.n_shards, 0.2);
                        check_model(&plan, &odd, &model, 4 * model.n_shards, 0.05);
                }
        }
}

static void test_hops(void **state) {
        struct plan plan;

        (void)state;
        for (uint32_t n = 2; n <= PLAN_RANKS_MAX; n++) {
                const struct {
                        uint32_t operation, algorithm, hops;
                } known[] = {
                        {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 1},     {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, 2},
                        {RING_OP_ALL_REDUCE, PLAN_ZERO_COPY, 2},    {RING_OP_ALL_REDUCE, PLAN_RING, 2 * n - 2},
                        {RING_OP_BROADCAST, PLAN_DIRECT, 1},        {RING_OP_BROADCAST, PLAN_RING, n - 1},
                        {RING_OP_REDUCE, PLAN_RING, n - 1},         {RING_OP_ALL_GATHER, PLAN_RING, n - 1},
                        {RING_OP_REDUCE_SCATTER, PLAN_RING, n - 1}, {RING_OP_BARRIER, PLAN_DIRECT, 1},
                        {RING_OP_SEND, PLAN_ZERO_COPY, 2},
                };
                uint32_t depth = 0, rounds = 0;

                for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
                        assert_int_equal(plan_build(known[i].operation, known[i].algorithm, n, &plan), 0);
                        assert_int_equal(plan_cost_hops(&plan), known[i].hops);
                }
                for (uint32_t v = n - 1; v > 0; v = (v - 1) / 2)
                        depth++;
                plan_build(RING_OP_BROADCAST, PLAN_TREE, n, &plan);
                assert_int_equal(plan_cost_hops(&plan), depth);
                plan_build(RING_OP_ALL_REDUCE, PLAN_TREE, n, &plan);
                assert_int_equal(plan_cost_hops(&plan), 2 * depth);
                while (1u << rounds < n)
                        rounds++;
                plan_build(RING_OP_BARRIER, PLAN_RECURSIVE_DOUBLING, n, &plan);
                assert_int_equal(plan_cost_hops(&plan), rounds);
        }
        plan_build(RING_OP_ALL_REDUCE, PLAN_RING, 1, &plan);
        assert_int_equal(plan_cost_hops(&plan), 0);
}

/* More data never takes less, nor do larger constants, nor fewer workers; and a plan that gets stuck has no price. */
static void test_prediction(void **state) {
        struct plan_constants host;
        struct plan plan;

        (void)state;
        plan_constants_host(&host, 2);
        for (uint32_t n = 1; n <= PLAN_RANKS_MAX; n += n < 9 ? 1 : 23)
                for (uint32_t i = 0; plan_at(n, i, &plan); i++) {
                        struct plan_model model;
                        double last = 0;

                        assert_int_equal(plan_model_init(&model, &plan, &host, NULL, 4, 4), 0);
                        for (uint64_t count = 1; count < UINT64_C(1) << 40; count *= 3) {
                                struct plan_cost cost;

                                plan_model_predict(&model, count, &cost);
                                assert_true(cost.ns >= last && cost.ns < 1e18);
                                last = cost.ns;
                        }
                        for (uint64_t count = 1; count < UINT64_C(1) << 40; count <<= 20) {
                                double ns = plan_cost_ns(&plan, &host, count, 4);
                                struct plan_constants worse[] = {host, host, host, host, host,
                                                                 host, host, host, host, host};

                                worse[0].request_ns = worse[1].hop_ns = worse[2].ns_per_phase = 1000;
                                worse[3].ns_per_chunk = worse[4].ns_per_signal = 1000;
                                worse[5].ns_per_byte_copy = worse[6].ns_per_byte_reduce = worse[7].ns_per_byte_fold = 1;
                                worse[8].parallel = 1;
                                worse[9].ns_per_turn = 1000;
                                for (size_t j = 0; j < sizeof(worse) / sizeof(worse[0]); j++)
                                        assert_true(plan_cost_ns(&plan, &worse[j], count, 4) >= ns);
                        }
                }
        plan_build(RING_OP_BARRIER, PLAN_DIRECT, 4, &plan);
        assert_true(plan_cost_ns(&plan, &host, 0, 4) == plan_cost_ns(&plan, &host, 1 << 20, 4));
        plan.phases[0].after = 1; /* each waits for the others' signals before it sends its own */
        assert_true(isinf(plan_cost_ns(&plan, &host, 0, 4)));
        assert_int_equal(plan_cost_hops(&plan), -1);
}

/* For every operation ascending and up to the end, for elements of any width; every plan named exists. */
static void check_table(const struct plan_choice *choices, uint32_t n_choices, uint32_t n_ranks) {
        assert_in_range(n_choices, N_OPERATIONS, PLAN_CHOICES_MAX);
        for (uint32_t i = 0; i < n_choices; i++) {
                struct plan plan;
                bool first = i == 0 || choices[i - 1].operation != choices[i].operation;
                bool last = i + 1 == n_choices || choices[i + 1].operation != choices[i].operation;

                assert_int_equal(plan_build(choices[i].operation, choices[i].algorithm, n_ranks, &plan), 0);
                assert_int_equal(choices[i].widening, 0); /* no partial sums travel */
                assert_true(last == (choices[i].max_bytes == UINT64_MAX));
                if (!last) {
                        assert_true(choices[i].algorithm != choices[i + 1].algorithm);
                        assert_true(choices[i].max_bytes < choices[i + 1].max_bytes);
                }
                if (!first && !last) /* not narrower than a factor of four */
                        assert_true(choices[i].max_bytes / 4 >= choices[i - 1].max_bytes);
        }
        for (size_t i = 0; i < N_OPERATIONS; i++)
                for (uint32_t shift = 0; shift <= 64; shift++) {
                        uint64_t bytes = shift == 64 ? UINT64_MAX : UINT64_C(1) << shift;
                        const struct plan_choice *choice =
                                plan_choice_find(choices, n_choices, operations[i], 1 + (shift & 3), bytes - 1);

                        assert_non_null(choice);
                        assert_int_equal(choice->operation, operations[i]);
                        assert_true(bytes - 1 <= choice->max_bytes);
                }
        assert_null(plan_choice_find(choices, n_choices, RING_OP_RECV, 1, 1));
        assert_null(plan_choice_find(choices, n_choices, RING_OP_NONE, 1, 0));
        assert_null(plan_choice_find(choices, 0, RING_OP_ALL_REDUCE, 1, 0));
}

/* What is chosen costs hardly more than the cheapest of those that give the same bits at every size. */
static void check_cheap(const struct plan_constants *constants, const struct plan_choice *choices, uint32_t n_choices,
                        uint32_t n_ranks) {
        for (size_t o = 0; o < N_OPERATIONS; o++)
                for (double size = 16; size <= 1 << 30; size *= 1.3) {
                        uint64_t bytes = (uint64_t)size / 4 * 4;
                        uint32_t chosen = plan_choice_find(choices, n_choices, operations[o], 1, bytes)->algorithm;
                        double best = INFINITY, ns = INFINITY;
                        struct plan plan;
                        uint32_t a;

                        for (uint32_t k = 0; (a = plan_algorithm_at(operations[o], n_ranks, k)) != 0; k++) {
                                double price;

                                assert_int_equal(plan_build(operations[o], a, n_ranks, &plan), 0);
                                price = plan_cost_ns(&plan, constants, bytes / 4, 4);
                                if (plan.tree > PLAN_TREE_RANK_ORDER) {
                                        assert_int_not_equal(a, chosen);
                                        continue;
                                }
                                best = fmin(best, price);
                                if (a == chosen)
                                        ns = price;
                        }
                        assert_true(ns <= 1.05 * best);
                }
}

static void test_choices(void **state) {
        struct plan_constants constants;
        struct plan_choice choices[PLAN_CHOICES_MAX];

        (void)state;
        for (uint32_t workers = 0; workers <= 64; workers = workers * 2 + 1)
                for (uint32_t n = 1; n <= PLAN_RANKS_MAX; n += n < 17 ? 1 : 47) {
                        uint32_t n_choices;

                        plan_constants_host(&constants, workers);
                        n_choices = plan_choose(&constants, n, choices);
                        check_table(choices, n_choices, n);
                        if (workers < 4 && n < 17)
                                check_cheap(&constants, choices, n_choices, n);
                }
        assert_int_equal(plan_choose(&constants, 0, choices), 0);
        assert_int_equal(plan_choose(&constants, PLAN_RANKS_MAX + 1, choices), 0);
        for (uint32_t n = 1; n <= 16; n++) /* prices without rhyme or reason */
                for (uint32_t seed = 1; seed <= 12; seed++) {
                        double *k = &constants.request_ns;

                        srand(seed);
                        for (uint32_t i = 0; i < 9; i++)
                                k[i] = rand() % 4 ? pow(10, rand() % 6 - (i < 5 ? 2 : 4)) : 0;
                        constants.parallel = (uint32_t)rand() % 9;
                        check_table(choices, plan_choose(&constants, n, choices), n);
                }
}

static void test_restricted(void **state) {
        struct plan_constants host;
        struct plan_choice choices[PLAN_CHOICES_MAX], free_choices[PLAN_CHOICES_MAX];

        (void)state;
        plan_constants_host(&host, 2);
        for (uint32_t n = 2; n <= 9; n++) {
                uint32_t n_free = plan_choose(&host, n, free_choices), n_choices;

                for (size_t o = 0; o < N_OPERATIONS; o++)
                        for (uint32_t a = 1; a < PLAN_ALGORITHM_COUNT; a++) {
                                struct plan plan;
                                bool exists = plan_build(operations[o], a, n, &plan) == PLAN_OK;

                                n_choices = plan_choose_restricted(&host, n, operations[o], a, choices);
                                check_table(choices, n_choices, n);
                                for (uint32_t i = 0; i < n_choices; i++) {
                                        const struct plan_choice *c = plan_choice_find(
                                                free_choices, n_free, choices[i].operation, 1, choices[i].max_bytes);

                                        if (exists && choices[i].operation == operations[o])
                                                assert_true(choices[i].algorithm == a &&
                                                            choices[i].max_bytes == UINT64_MAX);
                                        else
                                                assert_int_equal(choices[i].algorithm, c->algorithm);
                                }
                        }
                n_choices = plan_choose_restricted(&host, n, RING_OP_NONE, PLAN_ZERO_COPY, choices);
                assert_int_equal(choices[0].algorithm, PLAN_ZERO_COPY);
                assert_int_equal(choices[n_choices - 1].operation, RING_OP_BARRIER);
        }
}

/* Where the choice changes comes from the constants and nothing else. */
static void test_crossing(void **state) {
        struct plan_constants host, other;
        struct plan_choice choices[PLAN_CHOICES_MAX];
        uint32_t n;

        (void)state;
        plan_constants_host(&host, 2);
        other = host;
        other.hop_ns = 1e7; /* one hop if at all possible */
        n = plan_choose(&other, 8, choices);
        assert_int_equal(plan_choice_find(choices, n, RING_OP_ALL_REDUCE, 1, 65536)->algorithm, PLAN_ONE_SHOT);
        assert_int_equal(plan_choice_find(choices, n, RING_OP_BARRIER, 1, 0)->algorithm, PLAN_DIRECT);

        other = host;
        other.hop_ns = 0; /* as few chunks as possible */
        n = plan_choose(&other, 64, choices);
        assert_int_equal(plan_choice_find(choices, n, RING_OP_BARRIER, 1, 0)->algorithm, PLAN_RECURSIVE_DOUBLING);

        other = host;
        other.ns_per_byte_fold = 100 * host.ns_per_byte_reduce; /* others' memory is far away */
        n = plan_choose(&other, 8, choices);
        assert_int_not_equal(plan_choice_find(choices, n, RING_OP_ALL_REDUCE, 1, 1 << 20)->algorithm, PLAN_ZERO_COPY);
        assert_int_not_equal(plan_choice_find(choices, n, RING_OP_ALL_REDUCE, 1, 1 << 20)->algorithm, PLAN_ONE_SHOT);

        other = (struct plan_constants){.ns_per_byte_copy = 1, .ns_per_byte_reduce = 1, .ns_per_byte_fold = 1};
        other.parallel = 1; /* only bytes */
        n = plan_choose(&other, 8, choices);
        assert_int_equal(plan_choice_find(choices, n, RING_OP_ALL_REDUCE, 1, 4096)->algorithm, PLAN_ZERO_COPY);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_geometry),   cmocka_unit_test(test_geometry_nodes),
                cmocka_unit_test(test_model),      cmocka_unit_test(test_hops),
                cmocka_unit_test(test_prediction), cmocka_unit_test(test_choices),
                cmocka_unit_test(test_restricted), cmocka_unit_test(test_crossing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
