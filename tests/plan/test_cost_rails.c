/* SPDX-License-Identifier: MIT */
/* What the cost model makes of rails, compared with what plans put on them. */
#include <math.h>

#include "plan/cost.h"
#include "plan/cost_rails.h"
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

/* Node i sends i chunks in all and some in every part, the more the less (backwards: the other way round), and a few
 * more to a node further on: hardly any two rails are alike, and none has more of everything than another. */
static void crowd(struct cost_rails *rails, uint32_t n, bool backwards) {
        for (uint32_t i = 0; i < n; i++)
                for (uint32_t k = 0; k < 2; k++) {
                        const uint32_t to = (i + (k ? 7 : 1)) % n, in_all = k ? i * i % 61 : i;

                        for (uint32_t chunk = 0; chunk < 64; chunk++)
                                cost_rails_add(rails, i, to, (chunk >= in_all) != backwards, 0);
                }
}

/* More rails that may be the busiest than a model has room for: however many parts there are, it has none of them too
 * low. */
static void test_crowded(void **state) {
        const struct plan_net net = {.n_rails = 1, .ns_per_chunk = 1};
        const double parts[] = {0, 0.5, 1, 2, 100};
        uint8_t node[PLAN_RANKS_MAX];
        struct plan_nodes nodes;
        struct plan_model model;
        struct cost_rails rails;

        (void)state;
        for (uint32_t r = 0; r < PLAN_RANKS_MAX; r++)
                node[r] = (uint8_t)r;
        assert_int_equal(plan_nodes_init(&nodes, PLAN_RANKS_MAX, node), 0);
        for (uint32_t k = 0; k < 2; k++) {
                assert_int_equal(cost_rails_init(&rails, &net, &nodes), 0);
                crowd(&rails, PLAN_RANKS_MAX, k);
                cost_rails_busiest(&rails, &model);
                assert_int_equal(model.n_rails, PLAN_MODEL_RAILS);
                for (size_t p = 0; p < sizeof(parts) / sizeof(parts[0]); p++) {
                        double kept = 0, all = 0;

                        for (uint32_t i = 0; i < model.n_rails; i++)
                                kept = fmax(kept, model.rail[i].fixed + parts[p] * model.rail[i].part);
                        for (uint32_t i = 0; i < 2 * PLAN_RANKS_MAX; i++)
                                all = fmax(all, rails.work[i].fixed + parts[p] * rails.work[i].part);
                        assert_true(all > 0 && kept >= all);
                }
                cost_rails_deinit(&rails);
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
