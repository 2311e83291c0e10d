/* SPDX-License-Identifier: MIT */
/*
 * How evenly plans load the rails of a node. A message takes its sender's rail, and rank i of a node has rail i modulo
 * their number; so of nodes with equally many ranks each rail has what its ranks have, and where all ranks of a node do
 * the same these are equal parts: within one chunk, as shards are of whole units and the last one is shorter. Rails
 * without ranks of their own carry nothing.
 */
#include <math.h>
#include <stdio.h>

#include "plan/cost.h"
#include "plan/rails.h"
#include "worlds.h"

#define RAILS_MAX 8u

/* All ranks of a node do the same: between nodes those of a rail among themselves, or each with all others. */
static bool even(const struct plan *plan) {
        switch (plan->algorithm) {
        case PLAN_ONE_SHOT:
        case PLAN_TWO_SHOT:
                return true;
        case PLAN_DIRECT: /* the root's rail has all that it sends */
                return plan->operation != RING_OP_BROADCAST && plan->operation != RING_OP_SCATTER;
        default:
                return plan->algorithm >= PLAN_HIERARCHICAL;
        }
}

/* In chunks. Of many ranks chunks are short, and where a shard is cut into a piece for each node, or each rank has one,
 * the last ones have none of a short request. */
static double allowed(const struct plan *plan) {
        const bool pieces = plan->algorithm == PLAN_TWO_SHOT || plan->algorithm == PLAN_HIERARCHICAL_SCATTER ||
                            plan->algorithm == PLAN_HIERARCHICAL_STAGED_SCATTER;

        return pieces && plan->n_ranks > 32 ? 10 : 1;
}

/* Ranks of a node with `n_ranks` that have a rail. */
static uint32_t ranks_of(uint32_t rail, uint32_t n_ranks, uint32_t n_rails) {
        return n_ranks / n_rails + (rail < n_ranks % n_rails);
}

/* The most that a rail of any node is away from the part that its ranks are of all, in either direction. */
static double unevenness(const struct plan *plan, const struct plan_load *load, uint32_t n_rails) {
        double worst = 0;

        for (uint32_t node = 0; node < plan->nodes->n_nodes; node++) {
                const uint32_t n_ranks = plan_nodes_size(plan->nodes, node);
                const struct plan_load *rails = &load[node * n_rails];
                double all_out = 0, all_in = 0;

                for (uint32_t i = 0; i < n_rails; i++) {
                        all_out += (double)rails[i].bytes_out;
                        all_in += (double)rails[i].bytes_in;
                }
                for (uint32_t i = 0; i < n_rails; i++) {
                        double part = (double)ranks_of(i, n_ranks, n_rails) / n_ranks;

                        worst = fmax(worst, fmax(fabs((double)rails[i].bytes_out - part * all_out),
                                                 fabs((double)rails[i].bytes_in - part * all_in)));
                }
        }
        return worst;
}

/* Of rails that have equally many ranks, the most that two of a node differ by. */
static double spread(const struct plan *plan, const struct plan_load *load, uint32_t n_rails) {
        double worst = 0;

        for (uint32_t i = 0; i < plan->nodes->n_nodes * n_rails; i++)
                for (uint32_t k = i - i % n_rails; k < i; k++) {
                        const uint32_t n_ranks = plan_nodes_size(plan->nodes, i / n_rails);

                        if (ranks_of(i % n_rails, n_ranks, n_rails) != ranks_of(k % n_rails, n_ranks, n_rails))
                                continue;
                        worst = fmax(worst, fabs((double)load[i].bytes_out - (double)load[k].bytes_out));
                        worst = fmax(worst, fabs((double)load[i].bytes_in - (double)load[k].bytes_in));
                }
        return worst;
}

static void check(const struct plan *plan, const char *text, uint64_t count, uint32_t root) {
        static const uint32_t widths[][2] = {{4, 4}, {2, 4}, {1, 4}};

        for (uint32_t w = 0; w < 3; w++)
                for (uint32_t n_rails = 1; n_rails <= RAILS_MAX; n_rails += n_rails < 4 ? 1 : 4) {
                        const struct plan_shape shape = {.count = count,
                                                         .element_bytes = widths[w][0],
                                                         .partial_bytes = widths[w][1],
                                                         .root = plan_operation_rooted(plan->operation) ? root : 0};
                        struct plan_load load[PLAN_RANKS_MAX * RAILS_MAX];
                        struct plan_geometry geometry;

                        plan_geometry_choose_nodes(plan->n_ranks, &geometry);
                        plan_load_rails(plan, &geometry, &shape, n_rails, load);
                        if (spread(plan, load, n_rails) > allowed(plan) * geometry.part_bytes ||
                            unevenness(plan, load, n_rails) > allowed(plan) * geometry.part_bytes)
                                fail_msg("%s %s, %s, %u rails, %llu elements of %u bytes: %.0f bytes apart, %.0f off, "
                                         "chunks have %u",
                                         plan_operation_name(plan->operation), plan_algorithm_name(plan->algorithm),
                                         text, n_rails, (unsigned long long)count, shape.element_bytes,
                                         spread(plan, load, n_rails), unevenness(plan, load, n_rails),
                                         geometry.part_bytes);
                }
}

/* n_nodes with n_ranks each, node after node or in turns. Returns how many plans there were that are even. */
static uint32_t check_world(uint32_t n_nodes, uint32_t n_ranks, bool turns) {
        static const uint64_t counts[] = {0, 63, 4099, 70001, 4194304};
        const uint32_t n = n_nodes * n_ranks;
        uint8_t node[PLAN_RANKS_MAX];
        struct plan_nodes nodes;
        uint32_t n_even = 0;
        struct plan plan;
        char text[32];

        for (uint32_t r = 0; r < n; r++)
                node[r] = (uint8_t)(turns ? r % n_nodes : r / n_ranks);
        assert_int_equal(plan_nodes_init(&nodes, n, node), PLAN_OK);
        snprintf(text, sizeof(text), "%ux%u%s", n_nodes, n_ranks, turns ? " in turns" : "");
        for (uint32_t i = 0; world_plan(&nodes, n, i, &plan); i++) {
                if (!plan.nodes || !even(&plan))
                        continue;
                n_even++;
                for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
                        check(&plan, text, counts[c], c % n);
        }
        return n_even;
}

static void test_even(void **state) {
        (void)state;
        for (uint32_t n_nodes = 2; n_nodes <= 4; n_nodes++)
                for (uint32_t n_ranks = 1; n_ranks <= 8; n_ranks += n_ranks < 4 ? 1 : 2)
                        assert_true(check_world(n_nodes, n_ranks, n_ranks % 2) > 10);
        assert_true(check_world(16, 2, true) > 10);
        assert_true(check_world(32, 2, false) > 10);
}

/* What is chosen for hosts and GPUs is even, but for a scatter, and for broadcasts that go by chunks fewer than ranks.
 */
static void test_chosen(void **state) {
        struct plan_choice choices[PLAN_CHOICES_MAX];
        struct plan_constants constants;
        struct plan_nodes nodes;
        struct plan_net net;
        struct plan_over over = {.constants = &constants, .nodes = &nodes, .net = &net, .n_ranks = 16};
        uint32_t n_even = 0;

        (void)state;
        world_nodes("aaaaaaaabbbbbbbb", &nodes);
        for (uint32_t device = 0; device < 2; device++) {
                uint32_t n;

                plan_constants_host(&constants, 8);
                plan_net_host(&net);
                if (device)
                        plan_net_device(&net);
                net.n_rails = 8;
                n = device ? plan_choose_device_nodes(&nodes, 16, &net, choices) : plan_choose_nodes(&over, choices);
                assert_true(n > 0);
                for (uint32_t i = 0; i < n; i++) {
                        struct plan plan;

                        if (plan_operation_p2p(choices[i].operation))
                                continue;
                        assert_int_equal(
                                plan_build_nodes(choices[i].operation, choices[i].algorithm, 16, &nodes, &plan),
                                PLAN_OK);
                        n_even += even(&plan);
                        if (!even(&plan) && plan.operation != RING_OP_SCATTER)
                                assert_true(plan.operation == RING_OP_BROADCAST && choices[i].max_bytes <= 65536);
                }
        }
        assert_true(n_even >= 20);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_even),
                cmocka_unit_test(test_chosen),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
