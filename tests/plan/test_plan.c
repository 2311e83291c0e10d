/* SPDX-License-Identifier: MIT */
/* Ranges, parts, peers and planners, against their definitions. */
#include <string.h>

#include "plans.h"
#include "tests/cmocka_all.h"

static struct plan plan_of(uint32_t n_ranks) {
        struct plan plan;

        assert_int_equal(plan_build(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, n_ranks, &plan), 0);
        return plan;
}

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
static uint64_t tile(uint32_t range, const struct plan *plan, const struct plan_geometry *g, uint64_t count,
                     uint32_t bytes, uint32_t me, uint32_t peer, uint64_t begin) {
        struct plan_phase phase = {.kind = PLAN_PUSH, .in_range = (uint8_t)range};
        uint64_t parts = plan_phase_parts(plan, &phase, g, count, bytes), at = begin;

        for (uint64_t i = 0; i <= parts; i++) {
                struct plan_span span = plan_span(range, plan, g, count, bytes, me, peer, i);

                assert_true(span.length * bytes <= g->part_bytes);
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
                for (uint32_t i = 0; i < sizeof(counts) / sizeof(counts[0]) * 12; i++) {
                        const struct plan_geometry *g = &geometries[i % 3];
                        uint32_t bytes = sizes[i / 3 % 4];
                        uint64_t count = counts[i / 12], at = 0;
                        struct plan plan = plan_of(n);

                        assert_int_equal(tile(PLAN_RANGE_WHOLE, &plan, g, count, bytes, 0, 0, 0), count);
                        for (uint32_t r = 0; r < n; r++) {
                                uint64_t end = tile(PLAN_RANGE_SHARD_ME, &plan, g, count, bytes, r, 0, at);

                                assert_int_equal(tile(PLAN_RANGE_SHARD_PEER, &plan, g, count, bytes, 0, r, at), end);
                                assert_true(end - at <= plan_shard_elements(count, n, bytes));
                                assert_true(at * bytes % 16 == 0 || end == at); /* aligned, or empty */
                                at = end;
                                end = tile(PLAN_RANGE_BLOCK_ME, &plan, g, count, bytes, r, 0, r * count);
                                assert_int_equal(end, (r + 1) * count);
                                end = tile(PLAN_RANGE_BLOCK_PEER, &plan, g, count, bytes, 0, r, r * count);
                                assert_int_equal(end, (r + 1) * count);
                        }
                        assert_int_equal(at, count);
                }
}

/* Where offsets would wrap they stick to the end, outside of any buffer. */
static void test_saturation(void **state) {
        struct plan_geometry g = {4096, 2};
        struct plan plan = plan_of(64);
        struct plan_span span;

        (void)state;
        span = plan_span(PLAN_RANGE_BLOCK_ME, &plan, &g, UINT64_MAX / 2, 4, 63, 0, 0);
        assert_true(span.offset == UINT64_MAX);
        span = plan_span(PLAN_RANGE_WHOLE, &plan, &g, UINT64_MAX, 4, 63, 0, UINT64_MAX);
        assert_true(span.offset == UINT64_MAX && span.length == 0);
        span = plan_span(PLAN_RANGE_SHARD_ME, &plan, &g, UINT64_MAX, 1, 63, 0, 0);
        assert_true(span.offset + span.length > span.offset);
        span = plan_span(PLAN_RANGE_NONE, &plan, &g, 100, 4, 0, 0, 0);
        assert_true(span.offset == 0 && span.length == 0);
        span = plan_span(77, &plan, &g, 100, 4, 0, 0, 0);
        assert_true(span.offset == 0 && span.length == 0);
}

static void test_elements(void **state) {
        uint64_t in = 7, out = 7;

        (void)state;
        assert_int_equal(plan_request_elements(RING_OP_ALL_REDUCE, 8, 100, false, &in, &out), 0);
        assert_true(in == 100 && out == 100);
        assert_int_equal(plan_request_elements(RING_OP_ALL_GATHER, 8, 100, false, &in, &out), 0);
        assert_true(in == 100 && out == 800);
        assert_int_equal(plan_request_elements(RING_OP_REDUCE_SCATTER, 8, 100, false, &in, &out), 0);
        assert_true(in == 800 && out == 100);
        assert_int_equal(plan_request_elements(RING_OP_BROADCAST, 8, 100, true, &in, &out), 0);
        assert_true(in == 100 && out == 100);
        assert_int_equal(plan_request_elements(RING_OP_BROADCAST, 8, 100, false, &in, &out), 0);
        assert_true(in == 0 && out == 100);
        assert_int_equal(plan_request_elements(RING_OP_BARRIER, 8, 100, false, &in, &out), 0);
        assert_true(in == 0 && out == 0);

        in = out = 7;
        assert_int_equal(plan_request_elements(RING_OP_ALL_GATHER, 8, UINT64_MAX / 8 + 1, false, &in, &out),
                         PLAN_E_INVALID);
        assert_int_equal(plan_request_elements(RING_OP_REDUCE_SCATTER, 8, UINT64_MAX / 8 + 1, false, &in, &out),
                         PLAN_E_INVALID);
        assert_int_equal(plan_request_elements(RING_OP_ALL_TO_ALL, 8, 1, false, &in, &out), PLAN_E_UNSUPPORTED);
        assert_int_equal(plan_request_elements(RING_OP_COUNT, 8, 1, false, &in, &out), PLAN_E_UNSUPPORTED);
        assert_true(in == 7 && out == 7);
}

/* What one sends in its k-th place is what the other takes in its k-th place. */
static void test_peers(void **state) {
        struct plan_phase send = {.kind = PLAN_PUSH, .peers = PLAN_PEERS_OTHERS};
        struct plan_phase take = {.kind = PLAN_COPY, .peers = PLAN_PEERS_OTHERS};

        (void)state;
        for (uint32_t n = 1; n <= PLAN_RANKS_MAX; n++) {
                struct plan plan = plan_of(n);

                for (uint32_t me = 0; me < n; me++) {
                        uint64_t seen = UINT64_C(1) << me;

                        assert_int_equal(plan_phase_peers(&plan, &send, me, 0), n - 1);
                        for (uint32_t k = 0; k + 1 < n; k++) {
                                uint32_t peer = plan_phase_peer(&plan, &send, me, 0, k);

                                assert_true(peer < n && !(seen >> peer & 1));
                                seen |= UINT64_C(1) << peer;
                                assert_int_equal(plan_phase_peer(&plan, &take, peer, 0, k), me);
                        }
                }
        }
        send.peers = PLAN_PEERS_SELF;
        take.peers = PLAN_PEERS_ROOT;
        {
                struct plan plan = plan_of(5);

                assert_int_equal(plan_phase_peer(&plan, &send, 3, 1, 0), 3);
                assert_int_equal(plan_phase_peer(&plan, &take, 3, 1, 0), 1);
        }
}

static void test_roles(void **state) {
        struct plan_phase phase = {.who = PLAN_WHO_ALL};

        (void)state;
        assert_true(plan_phase_mine(&phase, 0, 0) && plan_phase_mine(&phase, 1, 0));
        phase.who = PLAN_WHO_ROOT;
        assert_true(plan_phase_mine(&phase, 2, 2) && !plan_phase_mine(&phase, 1, 2));
        phase.who = PLAN_WHO_OTHERS;
        assert_true(!plan_phase_mine(&phase, 2, 2) && plan_phase_mine(&phase, 1, 2));
}

static void test_parts(void **state) {
        struct plan_phase phase = {.kind = PLAN_SIGNAL};
        struct plan_geometry g = {64, 1};
        struct plan plan = plan_of(4);

        (void)state;
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, 1000, 4), 1);
        phase.kind = PLAN_WAIT;
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, 0, 4), 1);
        phase = (struct plan_phase){.kind = PLAN_PUSH, .in_range = PLAN_RANGE_WHOLE};
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, 0, 4), 0);
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, 16, 4), 1);
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, 17, 4), 2);
        phase.in_range = PLAN_RANGE_SHARD_ME;
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, 5, 4), 1); /* also where the shard is empty */
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, 65, 4), 2);
        phase = (struct plan_phase){.kind = PLAN_COPY, .peers = PLAN_PEERS_OTHERS, .out_range = PLAN_RANGE_BLOCK_PEER};
        assert_int_equal(plan_phase_parts(&plan, &phase, &g, 33, 4), 3);
}

static void test_build(void **state) {
        struct plan plan, untouched;
        uint32_t n_exist = 0;

        (void)state;
        for (uint32_t n = 0; n <= PLAN_RANKS_MAX + 1; n++)
                for (uint32_t operation = 0; operation <= RING_OP_COUNT; operation++)
                        for (uint32_t algorithm = 0; algorithm <= PLAN_ALGORITHM_COUNT; algorithm++) {
                                int r;

                                memset(&plan, 0x5a, sizeof(plan));
                                untouched = plan;
                                r = plan_build(operation, algorithm, n, &plan);
                                if (r) {
                                        assert_true(r > 0 && memcmp(&plan, &untouched, sizeof(plan)) == 0);
                                        continue;
                                }
                                assert_in_range(n, 1, PLAN_RANKS_MAX);
                                assert_true(plan.operation == operation && plan.algorithm == algorithm);
                                assert_true(plan.n_ranks == n);
                                assert_in_range(plan.n_phases, 1, PLAN_PHASES_MAX);
                                assert_in_range(plan.n_regions, 1, PLAN_REGIONS_MAX);
                                assert_int_equal(plan.tree != PLAN_TREE_NONE, plan_operation_reduces(operation));
                                n_exist++;
                        }
        assert_int_equal(n_exist, N_PLANS * PLAN_RANKS_MAX);
}

static void test_names(void **state) {
        (void)state;
        assert_string_equal(plan_operation_name(RING_OP_ALL_REDUCE), "all_reduce");
        assert_string_equal(plan_operation_name(RING_OP_BARRIER), "barrier");
        assert_string_equal(plan_operation_name(RING_OP_COUNT), "?");
        assert_string_equal(plan_algorithm_name(PLAN_TWO_SHOT), "two_shot");
        assert_string_equal(plan_algorithm_name(PLAN_ALGORITHM_COUNT), "?");
        for (uint32_t i = 0; i < RING_OP_COUNT; i++)
                assert_non_null(plan_operation_name(i));
        assert_true(plan_operation_reduces(RING_OP_REDUCE_SCATTER) && !plan_operation_reduces(RING_OP_ALL_GATHER));
        assert_true(plan_operation_rooted(RING_OP_BROADCAST) && !plan_operation_rooted(RING_OP_ALL_REDUCE));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_shards),   cmocka_unit_test(test_tiling), cmocka_unit_test(test_saturation),
                cmocka_unit_test(test_elements), cmocka_unit_test(test_peers),  cmocka_unit_test(test_roles),
                cmocka_unit_test(test_parts),    cmocka_unit_test(test_build),  cmocka_unit_test(test_names),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
