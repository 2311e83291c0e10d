/* SPDX-License-Identifier: MIT */
/* Communicators over several nodes: each node has its own area, and a carrier between them takes its time and any
 * order. Every operation with plans made of channels, and with those for nodes; sends and receives. */
#include "tests/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/host/net.h"
#include "nodes.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "util/type.h"

/* Plans that work in place on each node, and with channels between them. */
static uint32_t job_draw_nodes(struct job *job, struct random *random, uint32_t n_ranks,
                               const struct plan_nodes *nodes) {
        uint32_t algorithms[PLAN_ALGORITHM_COUNT], n = 0, a, operation = operations[random_below(random, n_operations)];

        for (uint32_t k = 0; (a = plan_algorithm_at_nodes(operation, n_ranks, nodes, k)) != PLAN_ALGORITHM_NONE; k++)
                algorithms[n++] = a;
        assert_true(n > 0);
        a = algorithms[random_below(random, n)];
        *job = (struct job){
                .operation = operation,
                .algorithm = a,
                .count = operation == RING_OP_BARRIER ? 0 : random_below(random, random_below(random, 2) ? 20 : 1009),
                .type = random_below(random, RMX_TYPE_COUNT),
                .redop = random_below(random, RMX_REDOP_COUNT),
                .root = random_below(random, n_ranks),
                .in_place = random_below(random, 2),
                .style = REFERENCE_EXACT,
                .seed = random_next(random),
                .nodes = operation == RING_OP_SEND ? NULL : nodes,
        };
        job_prepare(job, n_ranks);
        return a;
}

/* What was posted for a job is what its plan says, rank by rank. */
static void compare_load(const struct job *job, struct carrier *carrier, const struct plan_geometry *geometry) {
        const struct plan_shape shape = {.count = job->count,
                                         .element_bytes = (uint32_t)type_size(job->type),
                                         .partial_bytes = (uint32_t)type_accumulator_size(job->type, job->redop),
                                         .root = job->root};
        struct plan_load load[PLAN_RANKS_MAX];

        carrier_take(carrier); /* the last credits */
        plan_load_ranks(&job->plan, geometry, &shape, load);
        for (uint32_t r = 0; r < job->n_ranks; r++) {
                load[r].bytes_out -= load[r].lines_out;
                load[r].bytes_in -= load[r].lines_in;
                load[r].lines_out = load[r].lines_in = 0;
                if (memcmp(&load[r], &carrier->posted[r], sizeof(load[r])) != 0)
                        fail_msg("%s %s, rank %u: %llu chunks, %llu credits, %llu bytes posted, not %llu, %llu, %llu",
                                 plan_operation_name(job->operation), plan_algorithm_name(job->algorithm), r,
                                 (unsigned long long)carrier->posted[r].chunks_out,
                                 (unsigned long long)carrier->posted[r].credits_out,
                                 (unsigned long long)carrier->posted[r].bytes_out,
                                 (unsigned long long)load[r].chunks_out, (unsigned long long)load[r].credits_out,
                                 (unsigned long long)load[r].bytes_out);
        }
}

static void run_nodes(struct job *jobs, uint32_t n_jobs, const struct nodes_placement *placement, struct random *random,
                      uint32_t start) {
        const struct plan_geometry *geometry = &nodes_geometries[random_below(random, n_nodes_geometries)];
        struct carrier carrier;
        struct run run = {
                .jobs = jobs,
                .n_jobs = n_jobs,
                .schedule = (enum schedule)random_below(random, SCHEDULE_COUNT),
                .max_bytes = (const uint64_t[]){0, 1, 777, 65536, UINT64_MAX}[random_below(random, 5)],
                .random = {random_next(random)},
                .reluctance = (const uint32_t[]){0, 1, 5, 100}[random_below(random, 4)],
        };

        carrier_init(&carrier, placement->n_ranks, placement->node, geometry, random_next(random));
        run_open_nodes(&run, &carrier, geometry, start);
        run_all(&run);
        /* Vectors and messages have another load for each pair. */
        if (n_jobs == 1 && jobs->nodes && jobs->operation != RING_OP_ALL_TO_ALL_V)
                compare_load(jobs, &carrier, geometry);
        run_close(&run);
        for (uint32_t i = 0; i < n_jobs; i++)
                job_release(&jobs[i]);
}

/* ---- what must work ---------------------------------------------------------------------------------------------- */
static void test_each_plan(void **state) {
        struct random random = {harness_seed()};
        struct job *job = calloc(1, sizeof(*job));

        (void)state;
        assert_non_null(job);
        for (size_t i = 0; i < n_nodes_placements; i++)
                for (uint32_t o = 0; o < n_operations; o++) {
                        uint32_t algorithms[PLAN_ALGORITHM_COUNT], n_ranks = nodes_placements[i].n_ranks;
                        uint32_t n = nodes_algorithms(operations[o], n_ranks, algorithms);

                        for (uint32_t k = 0; k < n; k++)
                                for (uint32_t repeat = 0; repeat < (harness_full() ? 100 : 6); repeat++) {
                                        nodes_draw(job, &random, operations[o], algorithms[k], n_ranks);
                                        run_nodes(job, 1, &nodes_placements[i], &random, 0);
                                }
                }
        free(job);
}

/* Every type and reduction at least once, over two nodes. */
static void test_each_type(void **state) {
        struct random random = {harness_seed()};
        struct job *job = calloc(1, sizeof(*job));

        (void)state;
        assert_non_null(job);
        for (uint32_t type = 0; type < RMX_TYPE_COUNT; type++)
                for (uint32_t redop = 0; redop < RMX_REDOP_COUNT; redop++) {
                        *job = (struct job){
                                .operation = RING_OP_ALL_REDUCE,
                                .algorithm = random_below(&random, 2) ? PLAN_RING : PLAN_TWO_SHOT,
                                .count = 333,
                                .type = type,
                                .redop = redop,
                                .style = REFERENCE_MILD,
                                .seed = random_next(&random),
                        };
                        job_prepare(job, 4);
                        run_nodes(job, 1, &nodes_placements[2], &random, 0);
                }
        free(job);
}

/* Requests in a row, ranks ahead of each other; starts: counters of 32 bits that wrap on the way, or 0. */
static void run_sequences(uint32_t n_repeats, bool wrap) {
        struct random random = {harness_seed()};
        struct job *jobs = calloc(NODES_JOBS_MAX, sizeof(*jobs));

        assert_non_null(jobs);
        for (size_t i = 0; i < n_nodes_placements; i++)
                for (uint32_t k = 0; k < (harness_full() ? 10 * n_repeats : n_repeats); k++) {
                        for (uint32_t j = 0; j < NODES_JOBS_MAX; j++)
                                nodes_draw_any(&jobs[j], &random, nodes_placements[i].n_ranks);
                        run_nodes(jobs, NODES_JOBS_MAX, &nodes_placements[i], &random, wrap ? 0u - k % 12 : 0);
                }
        free(jobs);
}

static void test_mixed_sequences(void **state) {
        (void)state;
        run_sequences(12, false);
}

static void test_counters_wrap(void **state) {
        (void)state;
        run_sequences(12, true);
}

static void test_plans_over_nodes(void **state) {
        struct random random = {harness_seed()};
        struct job *jobs = calloc(NODES_JOBS_MAX, sizeof(*jobs));
        uint32_t n_hierarchical = 0;

        (void)state;
        assert_non_null(jobs);
        for (size_t i = 0; i < n_nodes_placements; i++) {
                struct plan_nodes nodes;

                assert_int_equal(plan_nodes_init(&nodes, nodes_placements[i].n_ranks, nodes_placements[i].node),
                                 PLAN_OK);
                for (uint32_t k = 0; k < (harness_full() ? 1000 : 60); k++) {
                        for (uint32_t j = 0; j < NODES_JOBS_MAX; j++)
                                n_hierarchical += job_draw_nodes(&jobs[j], &random, nodes_placements[i].n_ranks,
                                                                 &nodes) >= PLAN_HIERARCHICAL;
                        run_nodes(jobs, NODES_JOBS_MAX, &nodes_placements[i], &random, k % 2 ? 0u - k : 0);
                }
        }
        assert_true(n_hierarchical > 100);
        free(jobs);
}

/* Each plan for nodes alone, and what it posts. */
static void test_load(void **state) {
        struct random random = {harness_seed()};
        struct job *job = calloc(1, sizeof(*job));

        (void)state;
        assert_non_null(job);
        for (size_t i = 0; i < n_nodes_placements; i++) {
                struct plan_nodes nodes;

                assert_int_equal(plan_nodes_init(&nodes, nodes_placements[i].n_ranks, nodes_placements[i].node),
                                 PLAN_OK);
                for (uint32_t k = 0; k < (harness_full() ? 3000 : 200); k++) {
                        job_draw_nodes(job, &random, nodes_placements[i].n_ranks, &nodes);
                        run_nodes(job, 1, &nodes_placements[i], &random, 0);
                }
        }
        free(job);
}

/* Sends and receives alone, many at a time. */
static void test_messages(void **state) {
        struct random random = {harness_seed()};
        struct job *job = calloc(1, sizeof(*job));

        (void)state;
        assert_non_null(job);
        for (size_t i = 0; i < n_nodes_placements; i++)
                for (uint32_t k = 0; k < (harness_full() ? 200 : 20); k++) {
                        nodes_draw(job, &random, RING_OP_SEND, PLAN_ZERO_COPY, nodes_placements[i].n_ranks);
                        run_nodes(job, 1, &nodes_placements[i], &random, 0);
                }
        free(job);
}

/* The same requests on one node and on several, with the same schedule of inputs: equal bits, whatever the types. */
static void test_same_bits(void **state) {
        struct random random = {harness_seed()};
        struct job *jobs = calloc(2, sizeof(*jobs));

        (void)state;
        assert_non_null(jobs);
        for (uint32_t k = 0; k < 200; k++) {
                const struct nodes_placement *placement = &nodes_placements[k % n_nodes_placements];
                struct random same;

                same.state = random_next(&random);
                for (uint32_t where = 0; where < 2; where++) {
                        struct random drawn = same;
                        struct run run = {.jobs = &jobs[where], .n_jobs = 1, .random = {k}};
                        struct carrier carrier;

                        nodes_draw_any(&jobs[where], &drawn, placement->n_ranks);
                        if (where == 0) {
                                run_open(&run, placement->n_ranks, &nodes_geometries[2], 0);
                        } else {
                                carrier_init(&carrier, placement->n_ranks, placement->node, &nodes_geometries[2], k);
                                run_open_nodes(&run, &carrier, &nodes_geometries[2], 0);
                        }
                        run_all(&run); /* compares with the reference, which is the same for both */
                        run_close(&run);
                }
                for (uint32_t rank = 0; rank < placement->n_ranks; rank++) {
                        assert_int_equal(jobs[0].ranks[rank].size, jobs[1].ranks[rank].size);
                        assert_memory_equal(jobs[0].ranks[rank].want, jobs[1].ranks[rank].want,
                                            jobs[0].ranks[rank].size);
                }
                job_release(&jobs[0]);
                job_release(&jobs[1]);
        }
        free(jobs);
}

/* No send is done before its receive, however long the data takes and whatever may overtake it. */
static void test_send_after_receive(void **state) {
        enum { COUNT = 3000 };
        static int32_t in[COUNT], out[COUNT];
        struct plan plan;

        (void)state;
        assert_int_equal(plan_build(RING_OP_SEND, PLAN_ZERO_COPY, 2, &plan), PLAN_OK);
        for (uint32_t k = 0; k < 100; k++) {
                struct gpu_request requests[2];
                struct carrier carrier;
                struct run run = {.random = {k}};
                int done[2] = {0};

                carrier_init(&carrier, 2, nodes_placements[0].node, &nodes_geometries[k % n_nodes_geometries], k);
                run_open_nodes(&run, &carrier, &nodes_geometries[k % n_nodes_geometries], 0);
                for (uint32_t r = 0; r < 2; r++) {
                        requests[r] = (struct gpu_request){.plan = &plan,
                                                           .in = r ? NULL : in,
                                                           .out = r ? out : NULL,
                                                           .shape = {.count = k % 3 ? COUNT : k,
                                                                     .element_bytes = 4,
                                                                     .partial_bytes = 4,
                                                                     .peer = 1,
                                                                     .role = r ? PLAN_ROLE_RECEIVER : PLAN_ROLE_SENDER},
                                                           .type = RMX_INT32};
                        gpu_host_ops.start(run.comms[r], r, &requests[r], 1);
                }
                while (!done[0] || !done[1]) {
                        uint32_t r = random_below(&run.random, 2);

                        done[r] |= gpu_host_ops.progress(run.comms[r], r, random_below(&run.random, 500)) == GPU_DONE;
                        assert_true(!done[0] || requests[1].done);
                        carrier_take(&carrier);
                        if (random_below(&run.random, 3) == 0)
                                carrier_carry(&carrier);
                }
                run_close(&run);
        }
}

/* ---- the area ---------------------------------------------------------------------------------------------------- */
static void test_area_refusals(void **state) {
        const struct plan_geometry *geometry = &nodes_geometries[0];
        uint32_t capacity, capacity_before = 0;
        uint64_t bytes;
        struct carrier carrier;
        struct gpu_net net;
        struct gpu_comm *comm;

        (void)state;
        for (uint32_t n = 1; n <= PLAN_RANKS_MAX; n++) {
                assert_int_equal(host_net_size(n, geometry, &capacity, &bytes), 0);
                assert_int_equal(capacity & (capacity - 1), 0);
                assert_true(capacity >= capacity_before && bytes > 0);
                /* both directions of every channel over the worst cut */
                assert_true(capacity >= 2 * PLAN_REGIONS_MAX * geometry->slots * (n / 2) * (n - n / 2));
                capacity_before = capacity;
        }
        assert_true(host_net_size(0, geometry, &capacity, &bytes) < 0);
        assert_true(host_net_size(PLAN_RANKS_MAX + 1, geometry, &capacity, &bytes) < 0);
        assert_true(host_net_size(2, &(struct plan_geometry){.part_bytes = 100, .slots = 2}, &capacity, &bytes) < 0);
        carrier_init(&carrier, 4, nodes_placements[2].node, geometry, 1);
        net = (struct gpu_net){.area = carrier.nodes[0].area, .doorbell_fd = -1};
        assert_true(gpu_host_ops.comm_new_net(run_gpu, 3, geometry, &net, &comm) < 0);
        assert_true(gpu_host_ops.comm_new_net(run_gpu, 4, &nodes_geometries[1], &net, &comm) < 0);
        assert_int_equal(gpu_host_ops.comm_new_net(run_gpu, 4, geometry, &net, &comm), 0);
        gpu_host_ops.comm_free(comm);
        net.area->capacity /= 2;
        assert_true(gpu_host_ops.comm_new_net(run_gpu, 4, geometry, &net, &comm) < 0);
        carrier_deinit(&carrier);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_each_plan),
                cmocka_unit_test(test_each_type),
                cmocka_unit_test(test_messages),
                cmocka_unit_test(test_plans_over_nodes),
                cmocka_unit_test(test_load),
                cmocka_unit_test(test_mixed_sequences),
                cmocka_unit_test(test_counters_wrap),
                cmocka_unit_test(test_same_bits),
                cmocka_unit_test(test_send_after_receive),
                cmocka_unit_test(test_area_refusals),
        };

        return cmocka_run_group_tests(tests, run_setup, run_teardown);
}
