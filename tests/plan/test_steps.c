/* SPDX-License-Identifier: MIT */
/*
 * Steps of every plan, without executing them: what one rank sends in its k-th place is what the other takes in its
 * k-th place, every promised element is written once, and as many elements move as the literature says.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/verify.h"
#include "plans.h"
#include "tests/cmocka_all.h"

#define PARTS_MAX 3u

/* Everything that happens in one request. */
struct end {
        uint32_t n, phase;
        uint64_t *chunks; /* lengths; twice, and one more for accumulators */
};
struct traffic { /* elements */
        uint64_t sent, taken, read, written, n_sent;
};
struct walk {
        const struct plan *plan;
        const struct plan_case *c;
        struct plan_shape shapes[PLAN_RANKS_MAX];
        struct plan_vector vectors[PLAN_RANKS_MAX];
        uint64_t numbers[PLAN_RANKS_MAX][4 * PLAN_RANKS_MAX];
        uint8_t *writes[PLAN_RANKS_MAX]; /* how often each element of the output was written */
        uint64_t n_out[PLAN_RANKS_MAX];
        struct traffic traffic[PLAN_RANKS_MAX];
        struct end *ends; /* [region][source][destination][0: pushed, 1: taken] */
};

static struct end *end_of(const struct walk *w, uint32_t region, uint32_t from, uint32_t to, uint32_t side) {
        uint32_t n = w->plan->n_ranks;

        return &w->ends[((region * n + from) * n + to) * 2 + side];
}

static void end_add(struct end *end, uint32_t phase, uint64_t length, bool partial) {
        if (end->n > 0)
                assert_int_equal(end->phase, phase); /* nobody shares an end: who would be first? */
        if ((end->n & (end->n - 1)) == 0) {          /* room for twice as many */
                end->chunks = reallocarray(end->chunks, end->n ? 2 * (size_t)end->n : 1, sizeof(end->chunks[0]));
                assert_non_null(end->chunks);
        }
        end->phase = phase;
        end->chunks[end->n++] = 2 * length + partial;
}

static void walk_step(struct walk *w, uint32_t me, uint32_t p, uint64_t part, const struct plan_step *step) {
        const struct plan_phase *phase = &w->plan->phases[p];
        struct traffic *t = &w->traffic[me];
        uint64_t targets = 0, length = step->data ? step->length : 0;

        assert_true(length * w->c->element_bytes <= w->c->geometry.part_bytes);
        if (step->partial_in || step->partial_out)
                assert_true(w->plan->partials && step->reduce &&
                            length * w->c->partial_bytes <= w->c->geometry.part_bytes);
        if (step->finish)
                assert_true(step->reduce && !step->partial_out);
        for (uint32_t i = 0; i < step->n_sources; i++) {
                const struct plan_source *source = &step->source[i];

                assert_true(source->rank < w->plan->n_ranks && source->index < w->plan->n_ranks);
                if (source->kind == PLAN_SOURCE_CHUNK) {
                        end_add(end_of(w, phase->region_in, source->rank, me, 1), p, length, step->partial_in);
                        t->taken += source->rank != me ? length : 0;
                } else if (source->rank != me) {
                        assert_true(phase->kind == PLAN_READ || phase->kind == PLAN_FOLD);
                        t->read += length;
                }
        }
        for (uint32_t i = 0; i < step->n_outputs; i++) {
                const struct plan_place *place = &step->output[i];
                struct plan_span span;

                assert_true(place->rank < w->plan->n_ranks && place->index < w->plan->n_ranks);
                span = plan_span(phase->out_range, w->plan, &w->c->geometry, &w->shapes[place->rank], place->rank,
                                 place->index, part);
                assert_int_equal(span.length, length);
                for (uint64_t e = 0; e < length; e++) {
                        assert_true(span.offset + e < w->n_out[place->rank]);
                        w->writes[place->rank][span.offset + e]++;
                }
                t->written += place->rank != me ? length : 0;
        }
        for (uint32_t i = 0; i < step->n_targets; i++) {
                assert_true(step->target[i] < w->plan->n_ranks && !(targets >> step->target[i] & 1));
                targets |= UINT64_C(1) << step->target[i];
                end_add(end_of(w, phase->region_out, me, step->target[i], 0), p, length, step->partial_out);
                t->sent += step->target[i] != me ? length : 0;
                t->n_sent += step->target[i] != me;
        }
}

static void walk_rank(struct walk *w, uint32_t me) {
        for (uint32_t p = 0; p < w->plan->n_phases; p++) {
                const struct plan_phase *phase = &w->plan->phases[p];
                uint64_t parts = plan_phase_parts(w->plan, phase, &w->c->geometry, &w->shapes[me], me);
                uint32_t steps = plan_phase_steps(w->plan, phase, &w->shapes[me], me);

                assert_true(phase->after < (int)p); /* no cycle */
                for (uint64_t at = 0; at < parts * steps; at++) {
                        struct plan_step step;

                        if (plan_step(w->plan, phase, &w->c->geometry, &w->shapes[me], me, at / steps,
                                      (uint32_t)(at % steps), &step))
                                walk_step(w, me, p, at / steps, &step);
                }
        }
}

static void walk_init(struct walk *w, const struct plan *plan, const struct plan_case *c) {
        uint32_t n = plan->n_ranks;

        memset(w, 0, sizeof(*w));
        w->plan = plan;
        w->c = c;
        w->ends = calloc((size_t)PLAN_REGIONS_MAX * n * n * 2, sizeof(*w->ends));
        assert_non_null(w->ends);
        for (uint32_t r = 0; r < n; r++) {
                bool root = plan->operation == RING_OP_SEND ? r == c->peer : r == c->root;
                uint32_t operation = plan->operation == RING_OP_SEND ? RING_OP_RECV : plan->operation;
                uint64_t n_in;

                plan_case_shape(c, NULL, &w->shapes[r]);
                if (operation == RING_OP_ALL_TO_ALL_V) {
                        plan_case_vector(c, n, r, w->numbers[r], &w->vectors[r]);
                        w->shapes[r].vector = &w->vectors[r];
                        assert_int_equal(plan_vector_elements(&w->vectors[r], n, &n_in, &w->n_out[r]), 0);
                } else {
                        assert_int_equal(plan_request_elements(operation, n, c->count, root, &n_in, &w->n_out[r]), 0);
                }
                if (operation == RING_OP_RECV && !root)
                        w->n_out[r] = 0;
                w->writes[r] = calloc(w->n_out[r] + 1, 1);
                assert_non_null(w->writes[r]);
        }
        for (uint32_t r = 0; r < n; r++)
                walk_rank(w, r);
}

static void walk_deinit(struct walk *w) {
        uint32_t n = w->plan->n_ranks;

        for (uint32_t r = 0; r < n; r++)
                free(w->writes[r]);
        for (uint32_t i = 0; i < PLAN_REGIONS_MAX * n * n * 2; i++)
                free(w->ends[i].chunks);
        free(w->ends);
}

/* ---- both ends --------------------------------------------------------------------------------------------------- */
static void check_ends(const struct walk *w) {
        uint32_t n = w->plan->n_ranks;

        for (uint32_t i = 0; i < PLAN_REGIONS_MAX * n * n; i++) {
                const struct end *pushed = &w->ends[2 * i], *taken = &w->ends[2 * i + 1];

                if (pushed->n != taken->n || (pushed->n > 0 && memcmp(pushed->chunks, taken->chunks,
                                                                      pushed->n * sizeof(pushed->chunks[0])) != 0))
                        fail_msg("%s %s, %u ranks: region %u, from %u to %u: %u and %u chunks, or they differ",
                                 plan_operation_name(w->plan->operation), plan_algorithm_name(w->plan->algorithm), n,
                                 i / n / n, i / n % n, i % n, pushed->n, taken->n);
                if (pushed->n > 0)
                        assert_true(i / n / n < w->plan->n_regions);
        }
}

static bool due(const struct walk *w, uint32_t rank, uint64_t element) {
        const struct plan_vector *vector = w->shapes[rank].vector;

        for (uint32_t from = 0; vector && from < w->plan->n_ranks; from++)
                if (element - vector->recv_offset[from] < vector->recv_count[from])
                        return true;
        return !vector;
}

static void check_writes(const struct walk *w) {
        for (uint32_t r = 0; r < w->plan->n_ranks; r++)
                for (uint64_t e = 0; e < w->n_out[r]; e++)
                        if (w->writes[r][e] != due(w, r, e))
                                fail_msg("%s %s, %u ranks: element %llu of rank %u is written %u times",
                                         plan_operation_name(w->plan->operation),
                                         plan_algorithm_name(w->plan->algorithm), w->plan->n_ranks,
                                         (unsigned long long)e, r, w->writes[r][e]);
}

static struct plan_case case_of(const struct plan *plan, uint32_t which) {
        static const struct {
                uint32_t part_bytes, element_bytes, partial_bytes;
        } sizes[] = {{64, 8, 16}, {128, 16, 16}, {64, 2, 4}};
        uint32_t n = plan->n_ranks, roots[] = {0, n - 1, n / 2};
        struct plan_case c = {
                .geometry = {sizes[which].part_bytes, 2},
                .element_bytes = sizes[which].element_bytes,
                .partial_bytes = sizes[which].partial_bytes,
                .vector = n,
        };

        if (plan_operation_rooted(plan->operation) || plan_operation_p2p(plan->operation))
                c.root = roots[which];
        if (plan_operation_p2p(plan->operation))
                c.peer = roots[(which + 1) % 3];
        return c;
}

/* All numbers of ranks; ragged counts of up to three parts, so that lengths differ. */
static void test_ends_meet(void **state) {
        static struct walk w;
        uint32_t n_walks = 0;

        (void)state;
        for (uint32_t n = 1; n <= PLAN_RANKS_MAX; n++)
                for (uint32_t i = 0; i < N_PLANS; i++)
                        for (uint32_t which = 0; which < 3; which++) {
                                struct plan plan;
                                struct plan_case c;
                                struct plan_shape shape;
                                uint64_t whole;

                                if (!plans_build(i, n, &plan) || (n > 17 && which != n % 3))
                                        continue;
                                c = case_of(&plan, which);
                                plan_case_shape(&c, NULL, &shape);
                                whole = plan_part_elements(&plan, &c.geometry, &shape);
                                for (uint32_t k = 0; k < 3; k++, n_walks++) {
                                        const uint64_t counts[] = {1, whole + 1, PARTS_MAX * whole - 1};

                                        c.count = counts[k];
                                        walk_init(&w, &plan, &c);
                                        check_ends(&w);
                                        check_writes(&w);
                                        walk_deinit(&w);
                                }
                        }
        print_message("%u requests\n", n_walks);
}

/* What one sends in its k-th place is what the other takes in its k-th place, and not all begin with the same rank. */
static void test_places_match(void **state) {
        static const struct {
                uint32_t operation, send, take;
        } pairs[] = {{RING_OP_ALL_GATHER, 0, 2}, {RING_OP_BARRIER, 0, 1}, {RING_OP_ALL_REDUCE, 0, 2}};
        const struct plan_geometry geometry = {4096, 2};
        const struct plan_shape shape = {.count = 500, .element_bytes = 4, .partial_bytes = 4};

        (void)state;
        for (uint32_t n = 1; n <= PLAN_RANKS_MAX; n++)
                for (uint32_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
                        uint32_t algorithm = pairs[i].operation == RING_OP_ALL_REDUCE ? PLAN_TWO_SHOT : PLAN_DIRECT;
                        uint64_t seen = 0;
                        struct plan plan;

                        assert_int_equal(plan_build(pairs[i].operation, algorithm, n, &plan), 0);
                        for (uint32_t me = 0; me < n; me++) {
                                const struct plan_phase *send = &plan.phases[pairs[i].send];
                                const struct plan_phase *take = &plan.phases[pairs[i].take];

                                assert_int_equal(plan_phase_steps(&plan, send, &shape, me), n - 1);
                                assert_int_equal(plan_phase_steps(&plan, take, &shape, me), n - 1);
                                for (uint32_t k = 0; k + 1 < n; k++) {
                                        struct plan_step step;
                                        uint32_t peer;

                                        assert_true(plan_step(&plan, send, &geometry, &shape, me, 0, k, &step));
                                        assert_int_equal(step.n_targets, 1);
                                        peer = step.target[0];
                                        if (k == 0)
                                                seen |= UINT64_C(1) << peer;
                                        assert_true(plan_step(&plan, take, &geometry, &shape, peer, 0, k, &step));
                                        assert_int_equal(step.n_sources, 1);
                                        assert_int_equal(step.source[0].rank, me);
                                }
                        }
                        if (n > 1)
                                assert_int_equal(__builtin_popcountll(seen), n);
                }
}

/* ---- how much moves ---------------------------------------------------------------------------------------------- */
static uint32_t log2_of(uint32_t n) {
        uint32_t log = 0;

        while (1u << (log + 1) <= n)
                log++;
        return log;
}

static uint32_t children(uint32_t n, uint32_t v) {
        return (2 * v + 1 < n) + (2 * v + 2 < n);
}

/* What a rank should send, and read and write where it lies, if each rank's shard or block has b elements. */
static struct traffic traffic_due(const struct walk *w, uint32_t rank) {
        uint32_t n = w->plan->n_ranks, p = 1u << log2_of(n), root = w->c->root, v = (rank + n - root) % n;
        bool reduces = w->plan->operation == RING_OP_ALL_REDUCE, has_extra = rank + p < n;
        uint64_t all = w->c->count, b = all / n; /* operations on shards */
        struct traffic t = {0};

        switch (w->plan->operation << 8 | w->plan->algorithm) {
        case RING_OP_ALL_REDUCE << 8 | PLAN_ONE_SHOT:
                t.sent = (n - 1) * all;
                break;
        case RING_OP_ALL_REDUCE << 8 | PLAN_TWO_SHOT:
        case RING_OP_ALL_REDUCE << 8 | PLAN_RING:
                t.sent = 2 * (n - 1) * b;
                break;
        case RING_OP_ALL_REDUCE << 8 | PLAN_ZERO_COPY:
                t.read = t.written = (n - 1) * b;
                break;
        case RING_OP_ALL_REDUCE << 8 | PLAN_RECURSIVE_DOUBLING:
                t.sent = rank >= p ? all : (log2_of(n) + has_extra) * all;
                break;
        case RING_OP_ALL_REDUCE << 8 | PLAN_HALVING_DOUBLING:
                t.sent = rank >= p ? all : 2 * (p - 1) * (all / p) + has_extra * all;
                break;
        case RING_OP_REDUCE << 8 | PLAN_DIRECT:
        case RING_OP_REDUCE << 8 | PLAN_RING:
        case RING_OP_REDUCE << 8 | PLAN_TREE:
        case RING_OP_GATHER << 8 | PLAN_DIRECT:
                t.sent = v > 0 ? all : 0;
                break;
        case RING_OP_ALL_REDUCE << 8 | PLAN_TREE:
        case RING_OP_BROADCAST << 8 | PLAN_TREE:
                t.sent = children(n, v) * all + (reduces && v > 0 ? all : 0);
                break;
        case RING_OP_REDUCE << 8 | PLAN_ZERO_COPY:
                t.read = (n - 1) * b;
                t.written = v > 0 ? b : 0;
                break;
        case RING_OP_BROADCAST << 8 | PLAN_DIRECT:
        case RING_OP_SCATTER << 8 | PLAN_DIRECT:
                t.sent = v == 0 ? (n - 1) * all : 0;
                break;
        case RING_OP_BROADCAST << 8 | PLAN_ZERO_COPY:
        case RING_OP_SCATTER << 8 | PLAN_ZERO_COPY:
                t.read = v > 0 ? all : 0;
                break;
        case RING_OP_BROADCAST << 8 | PLAN_RING:
                t.sent = v + 1 < n ? all : 0;
                break;
        case RING_OP_ALL_GATHER << 8 | PLAN_ZERO_COPY:
        case RING_OP_REDUCE_SCATTER << 8 | PLAN_ZERO_COPY:
        case RING_OP_ALL_TO_ALL << 8 | PLAN_ZERO_COPY:
                t.read = (n - 1) * all;
                break;
        case RING_OP_GATHER << 8 | PLAN_ZERO_COPY:
                t.read = v == 0 ? (n - 1) * all : 0;
                break;
        case RING_OP_SEND << 8 | PLAN_ZERO_COPY:
                t.read = rank == w->c->peer && rank != root ? all : 0;
                break;
        case RING_OP_ALL_TO_ALL_V << 8 | PLAN_DIRECT:
                for (uint32_t r = 0; r < n; r++)
                        t.sent += r != rank ? w->vectors[rank].send_count[r] : 0;
                break;
        case RING_OP_ALL_TO_ALL_V << 8 | PLAN_ZERO_COPY:
                for (uint32_t r = 0; r < n; r++)
                        t.read += r != rank ? w->vectors[rank].recv_count[r] : 0;
                break;
        case RING_OP_BARRIER << 8 | PLAN_DIRECT:
                t.n_sent = n - 1;
                break;
        case RING_OP_BARRIER << 8 | PLAN_RECURSIVE_DOUBLING:
                t.n_sent = n > 1 ? log2_of(n - 1) + 1 : 0;
                break;
        default: /* blocks, each to or through every other rank once */
                t.sent = (n - 1) * all;
                break;
        }
        return t;
}

/* Counts that all shards divide. */
static void test_traffic(void **state) {
        static struct walk w;

        (void)state;
        for (uint32_t n = 1; n <= PLAN_RANKS_MAX; n++)
                for (uint32_t i = 0; i < N_PLANS; i++) {
                        bool blocks = plans[i].operation == RING_OP_ALL_GATHER ||
                                      plans[i].operation == RING_OP_REDUCE_SCATTER ||
                                      plans[i].operation == RING_OP_ALL_TO_ALL ||
                                      plans[i].operation == RING_OP_ALL_TO_ALL_V;
                        struct plan plan;
                        struct plan_case c;

                        if (!plans_build(i, n, &plan))
                                continue;
                        c = case_of(&plan, i % 3);
                        c.geometry.part_bytes = 4096;
                        c.count = blocks ? 40 : 8 * n * (1u << log2_of(n));
                        walk_init(&w, &plan, &c);
                        for (uint32_t r = 0; r < n; r++) {
                                struct traffic due = traffic_due(&w, r), is = w.traffic[r];

                                if (plans[i].operation == RING_OP_BARRIER)
                                        assert_int_equal(is.n_sent, due.n_sent);
                                if (is.sent != due.sent || is.read != due.read || is.written != due.written)
                                        fail_msg("%s %s, rank %u of %u: %llu sent, %llu read, %llu written",
                                                 plan_operation_name(plan.operation),
                                                 plan_algorithm_name(plan.algorithm), r, n, (unsigned long long)is.sent,
                                                 (unsigned long long)is.read, (unsigned long long)is.written);
                        }
                        walk_deinit(&w);
                }
}

/* ---- how many steps ---------------------------------------------------------------------------------------------- */
static void test_step_counts(void **state) {
        (void)state;
        for (uint32_t n = 1; n <= PLAN_RANKS_MAX; n++) {
                uint32_t levels = log2_of(n), p = 1u << levels;
                struct plan plan;

                for (uint32_t me = 0; me < n; me++) {
                        const struct plan_shape shape = {.count = 1, .element_bytes = 4, .partial_bytes = 4};

                        assert_int_equal(plan_build(RING_OP_ALL_REDUCE, PLAN_RING, n, &plan), 0);
                        assert_int_equal(plan_phase_steps(&plan, &plan.phases[0], &shape, me), 2 * n - 1);
                        assert_int_equal(plan_build(RING_OP_REDUCE_SCATTER, PLAN_RING, n, &plan), 0);
                        assert_int_equal(plan_phase_steps(&plan, &plan.phases[0], &shape, me), n);
                        assert_int_equal(plan_build(RING_OP_ALL_GATHER, PLAN_RING, n, &plan), 0);
                        assert_int_equal(plan_phase_steps(&plan, &plan.phases[0], &shape, me), n);
                        assert_int_equal(plan_build(RING_OP_BROADCAST, PLAN_TREE, n, &plan), 0);
                        assert_int_equal(plan_phase_steps(&plan, &plan.phases[0], &shape, me), 1);
                        assert_int_equal(plan_build(RING_OP_ALL_REDUCE, PLAN_RECURSIVE_DOUBLING, n, &plan), 0);
                        assert_int_equal(plan_phase_steps(&plan, &plan.phases[0], &shape, me), me < p ? levels + 1 : 2);
                        assert_int_equal(plan_build(RING_OP_ALL_GATHER, PLAN_RECURSIVE_DOUBLING, n, &plan), 0);
                        assert_int_equal(plan_phase_steps(&plan, &plan.phases[0], &shape, me), 2 * n - 1);
                        assert_int_equal(plan_build(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, n, &plan), 0);
                        assert_int_equal(plan_phase_steps(&plan, &plan.phases[0], &shape, me), n - 1);
                        assert_int_equal(plan_phase_steps(&plan, &plan.phases[1], &shape, me), 1);
                        assert_int_equal(plan_build(RING_OP_ALL_REDUCE, PLAN_HALVING_DOUBLING, n, &plan), 0);
                        assert_int_equal(plan.n_shards, p);
                        if (n > 1)
                                assert_int_equal(plan_phase_steps(&plan, &plan.phases[0], &shape, me),
                                                 me >= p ? 2 * p : 4 * (p - 1) + (me + p < n ? 2 * p : 0));
                }
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_ends_meet),
                cmocka_unit_test(test_places_match),
                cmocka_unit_test(test_traffic),
                cmocka_unit_test(test_step_counts),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
