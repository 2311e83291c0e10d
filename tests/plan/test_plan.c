/* SPDX-License-Identifier: MIT */
/* Requests, ranges, parts, roles and planners, against their definitions. */
#include <string.h>

#include "plan/verify.h"
#include "plans.h"
#include "tests/cmocka_all.h"

static struct plan plan_of(uint32_t n_ranks) {
        struct plan plan;

        assert_int_equal(plan_build(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, n_ranks, &plan), 0);
        return plan;
}

static struct plan_shape shape_of(uint64_t count, uint32_t element_bytes) {
        return (struct plan_shape){.count = count, .element_bytes = element_bytes, .partial_bytes = element_bytes};
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */
static void test_elements(void **state) {
        static const struct {
                uint32_t operation;
                uint64_t in, out, root_in, root_out; /* of 8 ranks, count 100 */
        } right[] = {
                {RING_OP_ALL_REDUCE, 100, 100, 100, 100},
                {RING_OP_REDUCE, 100, 0, 100, 100},
                {RING_OP_BROADCAST, 0, 100, 100, 100},
                {RING_OP_ALL_GATHER, 100, 800, 100, 800},
                {RING_OP_REDUCE_SCATTER, 800, 100, 800, 100},
                {RING_OP_ALL_TO_ALL, 800, 800, 800, 800},
                {RING_OP_GATHER, 100, 0, 100, 800},
                {RING_OP_SCATTER, 0, 100, 800, 100},
                {RING_OP_SEND, 100, 0, 100, 0},
                {RING_OP_RECV, 0, 100, 0, 100},
                {RING_OP_BARRIER, 0, 0, 0, 0},
        };
        uint64_t in, out;

        (void)state;
        for (uint32_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
                assert_int_equal(plan_request_elements(right[i].operation, 8, 100, false, &in, &out), 0);
                assert_true(in == right[i].in && out == right[i].out);
                assert_int_equal(plan_request_elements(right[i].operation, 8, 100, true, &in, &out), 0);
                assert_true(in == right[i].root_in && out == right[i].root_out);
        }
        in = out = 7;
        for (uint32_t i = 0; i < sizeof(right) / sizeof(right[0]);
             i++) { /* whoever has one of them: all refuse alike */
                assert_int_equal(plan_request_elements(right[i].operation, 8, UINT64_MAX / 8 + 1, false, &in, &out),
                                 PLAN_E_INVALID);
                assert_int_equal(plan_request_elements(right[i].operation, 8, UINT64_MAX / 8 + 1, true, &in, &out),
                                 PLAN_E_INVALID);
        }
        assert_int_equal(plan_request_elements(RING_OP_ALL_TO_ALL_V, 8, 1, false, &in, &out), PLAN_E_UNSUPPORTED);
        assert_int_equal(plan_request_elements(RING_OP_NONE, 8, 1, false, &in, &out), PLAN_E_UNSUPPORTED);
        assert_int_equal(plan_request_elements(RING_OP_GROUP, 8, 1, false, &in, &out), PLAN_E_UNSUPPORTED);
        assert_int_equal(plan_request_elements(RING_OP_COUNT, 8, 1, false, &in, &out), PLAN_E_UNSUPPORTED);
        assert_true(in == 7 && out == 7);
        assert_int_equal(plan_request_elements(RING_OP_ALL_GATHER, 8, UINT64_MAX / 8, false, &in, &out), 0);
        assert_true(out == UINT64_MAX / 8 * 8);
}

static void test_vector_elements(void **state) {
        uint64_t send_count[4] = {3, 0, 5, 1}, send_offset[4] = {10, UINT64_MAX, 0, 4};
        uint64_t recv_count[4] = {0, 2, 0, 0}, recv_offset[4] = {99, 7, 99, 99};
        const struct plan_vector vector = {send_count, send_offset, recv_count, recv_offset};
        uint64_t in = 7, out = 7;

        (void)state;
        assert_int_equal(plan_vector_elements(&vector, 4, &in, &out), 0);
        assert_true(in == 13 && out == 9); /* where nothing lies does not matter */
        assert_int_equal(plan_vector_elements(&vector, 1, &in, &out), 0);
        assert_true(in == 13 && out == 0);
        in = out = 7;
        send_count[1] = 1;
        assert_int_equal(plan_vector_elements(&vector, 4, &in, &out), PLAN_E_INVALID);
        send_count[1] = 0;
        recv_offset[1] = UINT64_MAX - 1;
        assert_int_equal(plan_vector_elements(&vector, 4, &in, &out), PLAN_E_INVALID);
        assert_true(in == 7 && out == 7);
        recv_offset[1] = UINT64_MAX - 2;
        assert_int_equal(plan_vector_elements(&vector, 4, &in, &out), 0);
        assert_true(out == UINT64_MAX);
}

static void test_roles(void **state) {
        struct plan_shape shape = {.root = 2, .peer = 1};
        struct plan_phase phase = {.who = PLAN_WHO_ALL};

        (void)state;
        assert_true(plan_phase_mine(&phase, &shape, 0) && plan_phase_mine(&phase, &shape, 2));
        phase.who = PLAN_WHO_ROOT;
        assert_true(plan_phase_mine(&phase, &shape, 2) && !plan_phase_mine(&phase, &shape, 1));
        phase.who = PLAN_WHO_OTHERS;
        assert_true(!plan_phase_mine(&phase, &shape, 2) && plan_phase_mine(&phase, &shape, 1));
        phase.who = PLAN_WHO_PEER;
        assert_true(plan_phase_mine(&phase, &shape, 1) && !plan_phase_mine(&phase, &shape, 2));

        /* To itself: two requests, each with its half. */
        shape.peer = 2;
        shape.role = PLAN_ROLE_SENDER;
        assert_true(!plan_phase_mine(&phase, &shape, 2));
        phase.who = PLAN_WHO_ROOT;
        assert_true(plan_phase_mine(&phase, &shape, 2));
        shape.role = PLAN_ROLE_RECEIVER;
        assert_true(!plan_phase_mine(&phase, &shape, 2));
        phase.who = PLAN_WHO_PEER;
        assert_true(plan_phase_mine(&phase, &shape, 2));
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */
static void test_shards(void **state) {
        (void)state;
        assert_int_equal(plan_shard_elements(0, 4, 4), 0);
        assert_int_equal(plan_shard_elements(1, 4, 4), 4);
        assert_int_equal(plan_shard_elements(16, 4, 4), 4);
        assert_int_equal(plan_shard_elements(17, 4, 4), 8);
        assert_int_equal(plan_shard_elements(17, 1, 2), 24);
        assert_int_equal(plan_shard_elements(100, 3, 16), 34);
        assert_int_equal(plan_shard_elements(100, 3, 1), 48);
        assert_true(plan_shard_elements(UINT64_MAX, 1, 2) == UINT64_MAX);
        assert_true(plan_shard_elements(UINT64_MAX, 2, 2) == UINT64_C(1) << 63);
}

/* The parts of a range follow one another without gap, fit a slot, and are all. */
static uint64_t tile(uint32_t range, const struct plan *plan, const struct plan_geometry *g,
                     const struct plan_shape *shape, uint32_t me, uint32_t index, uint64_t begin) {
        struct plan_phase phase = {.kind = PLAN_PUSH, .in_range = (uint8_t)range};
        uint64_t parts = plan_phase_parts(plan, &phase, g, shape, me), at = begin;

        for (uint64_t i = 0; i <= parts; i++) {
                struct plan_span span = plan_span(range, plan, g, shape, me, index, i);

                assert_true(span.length * shape->element_bytes <= g->part_bytes);
                if (plan->partials)
                        assert_true(span.length * shape->partial_bytes <= g->part_bytes);
                if (i == parts)
                        assert_int_equal(span.length, 0);
                if (span.length == 0)
                        continue;
                assert_true(span.offset == at);
                at += span.length;
        }
        return at;
}

static void test_tiling(void **state) {
        static const uint64_t counts[] = {0, 1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4095, 4097, 65521};
        static const uint32_t sizes[] = {1, 2, 4, 8};
        static const struct plan_geometry geometries[] = {{64, 1}, {4096, 2}, {34944, 2}};

        (void)state;
        for (uint32_t n = 1; n <= PLAN_RANKS_MAX; n += n < 9 ? 1 : 11)
                for (uint32_t i = 0; i < sizeof(counts) / sizeof(counts[0]) * 24; i++) {
                        const struct plan_geometry *g = &geometries[i % 3];
                        struct plan_shape shape = shape_of(counts[i / 24], sizes[i / 3 % 4]);
                        uint64_t count = shape.count, at = 0;
                        struct plan plan = plan_of(n);

                        plan.partials = i / 12 % 2;
                        shape.partial_bytes = 8;
                        assert_int_equal(tile(PLAN_RANGE_WHOLE, &plan, g, &shape, 0, 0, 0), count);
                        for (uint32_t r = 0; r < n; r++) {
                                uint64_t end = tile(PLAN_RANGE_SHARD_ME, &plan, g, &shape, r, 0, at);

                                assert_int_equal(tile(PLAN_RANGE_SHARD_PEER, &plan, g, &shape, 0, r, at), end);
                                assert_true(end - at <= plan_shard_elements(count, n, shape.element_bytes));
                                assert_true(at * shape.element_bytes % 16 == 0 || end == at); /* aligned, or empty */
                                at = end;
                                end = tile(PLAN_RANGE_BLOCK_ME, &plan, g, &shape, r, 0, r * count);
                                assert_int_equal(end, (r + 1) * count);
                                end = tile(PLAN_RANGE_BLOCK_PEER, &plan, g, &shape, 0, r, r * count);
                                assert_int_equal(end, (r + 1) * count);
                        }
                        assert_int_equal(at, count);
                }
}

static void test_vector_tiling(void **state) {
        struct plan_geometry g = {64, 1};

        (void)state;
        for (uint32_t n = 1; n <= 9; n++)
                for (uint32_t me = 0; me < n; me++) {
                        const struct plan_case c = {.geometry = g, .count = 100, .element_bytes = 4, .vector = n};
                        struct plan_shape shape = shape_of(100, 4);
                        uint64_t storage[4 * 9];
                        struct plan_vector vector;
                        struct plan plan;

                        assert_int_equal(plan_build(RING_OP_ALL_TO_ALL_V, PLAN_DIRECT, n, &plan), 0);
                        plan_case_vector(&c, n, me, storage, &vector);
                        shape.vector = &vector;
                        for (uint32_t i = 0; i < n; i++) {
                                assert_int_equal(
                                        tile(PLAN_RANGE_VECTOR_SEND, &plan, &g, &shape, me, i, vector.send_offset[i]),
                                        vector.send_offset[i] + vector.send_count[i]);
                                assert_int_equal(
                                        tile(PLAN_RANGE_VECTOR_RECV, &plan, &g, &shape, me, i, vector.recv_offset[i]),
                                        vector.recv_offset[i] + vector.recv_count[i]);
                        }
                }
}

/* Where offsets would wrap they stick to the end, outside of any buffer. */
static void test_saturation(void **state) {
        struct plan_geometry g = {4096, 2};
        struct plan_shape half = shape_of(UINT64_MAX / 2, 4), most = shape_of(UINT64_MAX, 4), some = shape_of(100, 4);
        struct plan plan = plan_of(64);
        struct plan_span span;

        (void)state;
        span = plan_span(PLAN_RANGE_BLOCK_ME, &plan, &g, &half, 63, 0, 0);
        assert_true(span.offset == UINT64_MAX);
        span = plan_span(PLAN_RANGE_WHOLE, &plan, &g, &most, 63, 0, UINT64_MAX);
        assert_true(span.offset == UINT64_MAX && span.length == 0);
        most.element_bytes = 1;
        span = plan_span(PLAN_RANGE_SHARD_ME, &plan, &g, &most, 63, 0, 0);
        assert_true(span.offset + span.length > span.offset);
        span = plan_span(PLAN_RANGE_NONE, &plan, &g, &some, 0, 0, 0);
        assert_true(span.offset == 0 && span.length == 0);
        span = plan_span(PLAN_RANGE_VECTOR_SEND, &plan, &g, &some, 0, 0, 0); /* it has no vector */
        assert_true(span.offset == 0 && span.length == 0);
        span = plan_span(77, &plan, &g, &some, 0, 0, 0);
        assert_true(span.offset == 0 && span.length == 0);
}

static void test_parts(void **state) {
        struct plan_phase phase = {.kind = PLAN_SIGNAL};
        struct plan_shape shape = shape_of(1000, 4);
        struct plan_geometry g = {64, 1};
        struct plan plan = plan_of(4);

        (void)state;
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, &shape, 0), 1);
        phase.kind = PLAN_WAIT;
        shape.count = 0;
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, &shape, 0), 1);
        phase = (struct plan_phase){.kind = PLAN_PUSH, .in_range = PLAN_RANGE_WHOLE};
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, &shape, 0), 0);
        shape.count = 16;
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, &shape, 0), 1);
        shape.count = 17;
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, &shape, 0), 2);
        phase.in_range = PLAN_RANGE_SHARD_ME;
        shape.count = 5;
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, &shape, 3), 1); /* also where the shard is empty */
        shape.count = 65;
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, &shape, 0), 2);
        phase = (struct plan_phase){.kind = PLAN_COPY, .peers = PLAN_PEERS_OTHERS, .out_range = PLAN_RANGE_BLOCK_PEER};
        shape.count = 33;
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, &shape, 0), 3);

        /* Accumulators make parts smaller, if the plan has any in chunks. */
        shape.partial_bytes = 16;
        assert_int_equal(plan_part_elements(&plan, &g, &shape), 16);
        plan.partials = 1;
        assert_int_equal(plan_part_elements(&plan, &g, &shape), 4);
        shape.partial_bytes = 2;
        assert_int_equal(plan_part_elements(&plan, &g, &shape), 16);
        shape.partial_bytes = 999;
        assert_int_equal(plan_part_elements(&plan, &g, &shape), 1);
}

static void test_channels(void **state) {
        const struct plan_geometry one = {4096, 1}, many = {4096, 20};

        (void)state;
        assert_int_equal(plan_channel_slots(&one, 8, false), 1);
        assert_int_equal(plan_channel_slots(&one, 8, true), 8);
        assert_int_equal(plan_channel_slots(&many, 8, true), 20);
        assert_int_equal(plan_slot_bytes(&one, 0), 4096);
        assert_int_equal(plan_slot_bytes(&one, PLAN_REGIONS_DATA - 1), 4096);
        assert_int_equal(plan_slot_bytes(&one, PLAN_REGIONS_DATA), PLAN_SIGNAL_BYTES);
        assert_int_equal(plan_slot_bytes(&one, PLAN_REGIONS_MAX - 1), PLAN_SIGNAL_BYTES);
}

/* ---- planners ---------------------------------------------------------------------------------------------------- */
static bool listed(uint32_t operation, uint32_t algorithm, uint32_t n, uint32_t *ret_tree) {
        for (uint32_t i = 0; i < N_PLANS; i++)
                if (plans[i].operation == operation && plans[i].algorithm == algorithm) {
                        *ret_tree = plans[i].tree;
                        return !plans[i].power_of_two || (n & (n - 1)) == 0;
                }
        return false;
}

/* Each combination exists exactly if it is in the list. */
static void test_build(void **state) {
        struct plan plan, untouched;

        (void)state;
        for (uint32_t n = 0; n <= PLAN_RANKS_MAX + 1; n++)
                for (uint32_t operation = 0; operation <= RING_OP_COUNT; operation++)
                        for (uint32_t algorithm = 0; algorithm <= PLAN_ALGORITHM_COUNT; algorithm++) {
                                bool in_bounds = n >= 1 && n <= PLAN_RANKS_MAX;
                                uint32_t tree;
                                int r;

                                memset(&plan, 0x5a, sizeof(plan));
                                untouched = plan;
                                r = plan_build(operation, algorithm, n, &plan);
                                if (!in_bounds || !listed(operation, algorithm, n, &tree)) {
                                        assert_int_equal(r, in_bounds ? PLAN_E_UNSUPPORTED : PLAN_E_INVALID);
                                        assert_memory_equal(&plan, &untouched, sizeof(plan));
                                        continue;
                                }
                                assert_int_equal(r, 0);
                                assert_true(plan.operation == operation && plan.algorithm == algorithm);
                                assert_int_equal(plan.n_ranks, n);
                                assert_in_range(plan.n_phases, 1, PLAN_PHASES_MAX);
                                assert_in_range(plan.n_regions, 1, PLAN_REGIONS_MAX);
                                assert_in_range(plan.n_shards, 1, n);
                                assert_int_equal(plan.tree, tree);
                        }
}

static void test_algorithms(void **state) {
        (void)state;
        for (uint32_t n = 1; n <= PLAN_RANKS_MAX; n++)
                for (uint32_t operation = 0; operation <= RING_OP_COUNT; operation++) {
                        uint32_t k = 0, tree;

                        for (uint32_t i = 0; i < N_PLANS; i++)
                                if (plans[i].operation == operation && listed(operation, plans[i].algorithm, n, &tree))
                                        assert_int_equal(plan_algorithm_at(operation, n, k++), plans[i].algorithm);
                        assert_int_equal(plan_algorithm_at(operation, n, k), PLAN_ALGORITHM_NONE);
                        assert_int_equal(plan_algorithm_at(operation, n, UINT32_MAX), PLAN_ALGORITHM_NONE);
                }
}

/* Every name is there, and is nobody else's. */
static void names_differ(const char *(*name)(uint32_t), uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                for (uint32_t k = 0; k <= n; k++) {
                        assert_non_null(name(i));
                        if (k != i)
                                assert_string_not_equal(name(i), name(k));
                }
        assert_string_equal(name(n), "?");
        assert_string_equal(name(UINT32_MAX), "?");
}

static void test_names(void **state) {
        (void)state;
        assert_string_equal(plan_operation_name(RING_OP_ALL_REDUCE), "all_reduce");
        assert_string_equal(plan_operation_name(RING_OP_ALL_TO_ALL_V), "all_to_all_v");
        assert_string_equal(plan_operation_name(RING_OP_BARRIER), "barrier");
        assert_string_equal(plan_algorithm_name(PLAN_TWO_SHOT), "two_shot");
        assert_string_equal(plan_algorithm_name(PLAN_HALVING_DOUBLING), "halving_doubling");
        assert_string_equal(plan_kind_name(PLAN_PASS), "pass");
        assert_string_equal(plan_tree_name(PLAN_TREE_RANK_ORDER), "rank_order");
        names_differ(plan_operation_name, RING_OP_COUNT);
        names_differ(plan_algorithm_name, PLAN_ALGORITHM_COUNT);
        names_differ(plan_kind_name, PLAN_KIND_COUNT);
        names_differ(plan_tree_name, PLAN_TREE_COUNT);
}

static void test_operations(void **state) {
        (void)state;
        for (uint32_t i = 0; i <= RING_OP_COUNT; i++) {
                assert_int_equal(plan_operation_reduces(i),
                                 i == RING_OP_ALL_REDUCE || i == RING_OP_REDUCE || i == RING_OP_REDUCE_SCATTER);
                assert_int_equal(plan_operation_rooted(i), i == RING_OP_REDUCE || i == RING_OP_BROADCAST ||
                                                                   i == RING_OP_GATHER || i == RING_OP_SCATTER);
                assert_int_equal(plan_operation_p2p(i), i == RING_OP_SEND || i == RING_OP_RECV);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_elements),   cmocka_unit_test(test_vector_elements),
                cmocka_unit_test(test_roles),      cmocka_unit_test(test_shards),
                cmocka_unit_test(test_tiling),     cmocka_unit_test(test_vector_tiling),
                cmocka_unit_test(test_saturation), cmocka_unit_test(test_parts),
                cmocka_unit_test(test_channels),   cmocka_unit_test(test_build),
                cmocka_unit_test(test_algorithms), cmocka_unit_test(test_names),
                cmocka_unit_test(test_operations),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
