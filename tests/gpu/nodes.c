/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"

#include "nodes.h"

#include "railmux/railmux.h"
#include "ring/ring.h"

const struct nodes_placement nodes_placements[] = {
        {2, {0, 1}},
        {4, {0, 1, 1, 1}},
        {4, {0, 0, 1, 1}},
        {4, {0, 0, 0, 1}},
        {4, {0, 1, 0, 1}},
        {4, {0, 1, 2, 2}},
        {3, {0, 1, 2}},
        {4, {0, 1, 2, 3}},
        {5, {2, 0, 1, 0, 2}},
        {8, {0, 0, 0, 0, 1, 1, 1, 1}},
        {7, {0, 1, 2, 3, 3, 3, 0}},
        {16, {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}},
};
const uint32_t n_nodes_placements = sizeof(nodes_placements) / sizeof(nodes_placements[0]);

const struct plan_geometry nodes_geometries[] = {{.part_bytes = 64, .slots = 2},
                                                 {.part_bytes = 64, .slots = 3},
                                                 {.part_bytes = 192, .slots = 2},
                                                 {.part_bytes = 4096, .slots = 4}};
const uint32_t n_nodes_geometries = sizeof(nodes_geometries) / sizeof(nodes_geometries[0]);

uint32_t nodes_algorithms(uint32_t operation, uint32_t n_ranks, uint32_t algorithms[PLAN_ALGORITHM_COUNT]) {
        uint32_t n = 0, algorithm;

        for (uint32_t k = 0; (algorithm = plan_algorithm_at(operation, n_ranks, k)) != PLAN_ALGORITHM_NONE; k++)
                if (algorithm <= PLAN_TREE && (algorithm != PLAN_ZERO_COPY || operation == RING_OP_SEND))
                        algorithms[n++] = algorithm;
        assert_true(n > 0);
        return n;
}

void nodes_draw(struct job *job, struct random *random, uint32_t operation, uint32_t algorithm, uint32_t n_ranks) {
        static const uint64_t counts[] = {0, 1, 2, 3, 7, 13, 16, 31, 61, 64, 127, 257, 509, 1009};

        *job = (struct job){
                .operation = operation,
                .algorithm = algorithm,
                .count = operation == RING_OP_BARRIER
                                 ? 0
                                 : counts[random_below(random, sizeof(counts) / sizeof(counts[0]))],
                .type = random_below(random, RMX_TYPE_COUNT),
                .redop = random_below(random, RMX_REDOP_COUNT),
                .root = random_below(random, n_ranks),
                .misalign = random_below(random, 3) ? 0 : random_below(random, 64),
                .in_place = random_below(random, 2),
                .style = (enum reference_style)random_below(random, REFERENCE_STYLE_COUNT),
                .seed = random_next(random),
        };
        job_prepare(job, n_ranks);
}

void nodes_draw_any(struct job *job, struct random *random, uint32_t n_ranks) {
        uint32_t algorithms[PLAN_ALGORITHM_COUNT], operation = operations[random_below(random, n_operations)];
        uint32_t n = nodes_algorithms(operation, n_ranks, algorithms);

        nodes_draw(job, random, operation, algorithms[random_below(random, n)], n_ranks);
}
