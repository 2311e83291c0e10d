/* SPDX-License-Identifier: MIT */
/* What the cost model makes of rails, compared with what plans put on them. */
#include <math.h>

#include "plan/cost.h"
#include "plan/rails.h"
#include "worlds.h"

/* What the model takes for the busiest rail, chunks and bytes, if nothing else takes any time: one part, and no shard
 * is ragged. */
static void check_wires(const struct plan *plan, const char *letters, uint32_t n_rails) {
        const uint64_t count = UINT64_C(64) * 16 * 9 * 5 * 7;
        const struct plan_geometry geometry = {.part_bytes = 1u << 30, .slots = 2};
        const struct plan_shape shape = {.count = count, .element_bytes = 2, .partial_bytes = 4};
        const struct plan_constants nothing = {.parallel = 1};
        struct plan_load load[16 * 8] = {{0}};
        double chunks = 0, bytes = 0;

        assert_true(n_rails <= 8 && plan->nodes->n_nodes <= 16);
        plan_load_rails(plan, &geometry, &shape, n_rails, load);
        for (uint32_t i = 0; i < plan->nodes->n_nodes * n_rails; i++) {
                chunks = fmax(chunks, fmax((double)load[i].chunks_out, (double)load[i].chunks_in));
                bytes = fmax(bytes, fmax((double)load[i].bytes_out, (double)load[i].bytes_in));
        }
        for (uint32_t k = 0; k < 2; k++) {
                const struct plan_net net = {.n_rails = n_rails, .ns_per_chunk = k == 0, .ns_per_byte = k == 1};
                const double want = k == 0 ? chunks : bytes;
                struct plan_model model;
                struct plan_cost cost;

                assert_int_equal(plan_model_init_net(&model, plan, &nothing, &net, &geometry, 2, 4), 0);
                plan_model_predict(&model, count, &cost);
                if (fabs(cost.wire_ns - want) > 0.001 * want)
                        fail_msg("%s %s, %s, %u rails: %.0f %s on the busiest one, and the model has %.0f", letters,
                                 plan_operation_name(plan->operation), plan_algorithm_name(plan->algorithm), n_rails,
                                 want, k == 0 ? "chunks" : "bytes", cost.wire_ns);
        }
}

/* Also of nodes that differ: what a node gets comes in over rails that its own ranks are too few to have. */
static void test_wires(void **state) {
        uint32_t n_compared = 0;

        (void)state;
        for (uint32_t w = 0; w < N_WORLDS; w++) {
                struct plan_nodes nodes;
                uint32_t n = world_nodes(worlds[w].nodes, &nodes);
                struct plan plan;

                for (uint32_t i = 0; world_plan(&nodes, n, i, &plan); i++)
                        for (uint32_t n_rails = 1; plan.nodes && n_rails <= 8; n_rails++, n_compared++)
                                check_wires(&plan, worlds[w].nodes, n_rails);
        }
        assert_true(n_compared > 1000);
}

/* Blocks of 1 MiB for one rank of 4 x 8 come in over all eight rails of its node. */
static void test_gathered(void **state) {
        const uint64_t count = UINT64_C(1) << 18;
        struct plan_constants constants;
        struct plan_cost one, eight;
        struct plan_model model;
        struct plan_nodes nodes;
        struct plan_net net;
        struct plan plan;

        (void)state;
        world_nodes("aaaaaaaabbbbbbbbccccccccdddddddd", &nodes);
        plan_constants_host(&constants, 8);
        plan_net_host(&net);
        assert_int_equal(plan_build_nodes(RING_OP_GATHER, PLAN_DIRECT, 32, &nodes, &plan), PLAN_OK);
        assert_int_equal(plan_model_init_net(&model, &plan, &constants, &net, NULL, 4, 4), 0);
        plan_model_predict(&model, count, &one);
        net.n_rails = 8;
        assert_int_equal(plan_model_init_net(&model, &plan, &constants, &net, NULL, 4, 4), 0);
        plan_model_predict(&model, count, &eight);
        assert_true(one.ns > 7 * eight.ns);
}

/* More rails that may be the busiest than a model has room for: it has none of them too low. */
static void test_crowded(void **state) {
        char letters[PLAN_RANKS_MAX + 1];
        uint32_t n = 0;
        struct plan_nodes nodes;
        struct plan plan;

        (void)state;
        for (uint32_t i = 0; i < 32; i++)
                letters[n++] = (char)('a' + i);
        while (n < PLAN_RANKS_MAX)
                letters[n++] = 'a';
        letters[n] = 0;
        world_nodes(letters, &nodes);
        assert_int_equal(plan_build_nodes(RING_OP_ALL_TO_ALL, PLAN_DIRECT, n, &nodes, &plan), PLAN_OK);
        for (uint32_t n_rails = 1; n_rails <= 64; n_rails *= 2) {
                const struct plan_constants nothing = {.parallel = 1};
                const struct plan_net net = {.n_rails = n_rails, .ns_per_byte = 1};
                struct plan_model model;
                struct plan_cost cost;

                assert_int_equal(plan_model_init_net(&model, &plan, &nothing, &net, NULL, 4, 4), 0);
                assert_in_range(model.n_rails, 1, PLAN_MODEL_RAILS);
                plan_model_predict(&model, 1024, &cost);
                assert_true(cost.wire_ns >= 4096.0 * 33 * 31 / n_rails); /* out of the largest node, shared evenly */
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_wires),
                cmocka_unit_test(test_gathered),
                cmocka_unit_test(test_crowded),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
