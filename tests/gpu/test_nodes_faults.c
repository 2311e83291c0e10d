/* SPDX-License-Identifier: MIT */
/* Over several nodes: ranks that call different things; then carriers that get something wrong, which must be noticed
 * by what comes out. */
#include "tests/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nodes.h"
#include "railmux/railmux.h"
#include "ring/ring.h"

/* ---- ranks that call different things ---------------------------------------------------------------------------- */
/* Of one rank's request, one thing changes. */
enum difference {
        DIFFER_COUNT,
        DIFFER_TYPE,
        DIFFER_REDOP,
        DIFFER_ROOT,
        DIFFER_OPERATION,
        DIFFER_SEQUENCE,
        DIFFERENCES
};

static void differ(struct job *job, const struct plan *other, uint32_t rank, enum difference difference) {
        struct gpu_request *request = &job->ranks[rank].requests[0];

        switch (difference) {
        case DIFFER_COUNT:
                request->shape.count -= 1;
                break;
        case DIFFER_TYPE:
                request->type = RMX_UINT32; /* of the same size */
                break;
        case DIFFER_REDOP:
                request->redop = RMX_MAX;
                break;
        case DIFFER_ROOT:
                request->shape.root = 1;
                break;
        case DIFFER_OPERATION:
                request->plan = other;
                break;
        default:
                break;
        }
}

/* Whoever gets a chunk of another call notices, and nothing of it is used. */
static void run_mismatch(struct job *job, enum difference difference, uint32_t rank, uint64_t seed) {
        const struct plan_geometry *geometry = &nodes_geometries[seed % n_nodes_geometries];
        struct run run = {.jobs = job, .n_jobs = 1, .random = {seed}, .tolerant = true};
        struct carrier carrier;
        struct plan other;

        job_prepare(job, 2);
        assert_int_equal(plan_build(RING_OP_ALL_REDUCE, PLAN_TREE, 2, &other), PLAN_OK);
        differ(job, &other, rank, difference);
        carrier_init(&carrier, 2, nodes_placements[0].node, geometry, seed);
        run_open_nodes(&run, &carrier, geometry, 0);
        run.differs = difference == DIFFER_SEQUENCE ? 1 + rank : 0;
        run_all(&run);
        assert_true(run.stuck);
        assert_false(run.wrong);
        assert_true(run.n_mismatches > 0);
        for (uint32_t r = 0; r < 2; r++)
                assert_true(run.blamed[r] == 0 || run.blamed[r] == 1 + !r);
        run_close(&run);
        job_release(job);
}

static void test_mismatch(void **state) {
        struct random random = {harness_seed()};
        struct job *job = calloc(1, sizeof(*job));

        (void)state;
        assert_non_null(job);
        for (uint32_t k = 0; k < 40 * DIFFERENCES; k++) {
                enum difference difference = (enum difference)(k % DIFFERENCES);

                if (difference == DIFFER_ROOT) /* see the next test */
                        continue;
                *job = (struct job){.operation = RING_OP_ALL_REDUCE,
                                    .algorithm = PLAN_ONE_SHOT,
                                    .count = 2 + random_below(&random, 300),
                                    .type = RMX_INT32,
                                    .redop = RMX_SUM,
                                    .seed = k};
                run_mismatch(job, difference, random_below(&random, 2), k);
        }
        free(job);
}

/* all_to_all_v: both ends of a pair, and no others, have to agree on its length. */
static void test_vector_mismatch(void **state) {
        struct job *job = calloc(1, sizeof(*job));
        uint32_t n_runs = 0;

        (void)state;
        assert_non_null(job);
        for (uint64_t seed = 0; seed < 60; seed++) {
                struct run run = {.jobs = job, .n_jobs = 1, .random = {seed}, .tolerant = true};
                struct carrier carrier;

                *job = (struct job){.operation = RING_OP_ALL_TO_ALL_V,
                                    .algorithm = PLAN_DIRECT,
                                    .count = 100,
                                    .type = RMX_INT32,
                                    .seed = seed};
                job_prepare(job, 2);
                if (job->ranks[1].numbers[2][0] < 2) { /* nothing left of it */
                        job_release(job);
                        continue;
                }
                job->ranks[1].numbers[2][0]--; /* what rank 1 expects of rank 0 */
                carrier_init(&carrier, 2, nodes_placements[0].node, &nodes_geometries[seed % n_nodes_geometries], seed);
                run_open_nodes(&run, &carrier, &nodes_geometries[seed % n_nodes_geometries], 0);
                run_all(&run);
                assert_true(run.stuck);
                assert_int_equal(run.blamed[1], 1 + 0);
                assert_int_equal(run.blamed[0], 0);
                run_close(&run);
                job_release(job);
                n_runs++;
        }
        assert_true(n_runs > 10);
        free(job);
}

/* A rank that gets nothing cannot notice anything; but what it sent meets the other's next request. */
static void test_late_mismatch(void **state) {
        struct job *jobs = calloc(2, sizeof(*jobs));

        (void)state;
        assert_non_null(jobs);
        for (uint32_t k = 0; k < 40; k++) {
                struct run run = {.jobs = jobs, .n_jobs = 2, .random = {k}, .tolerant = true};
                struct carrier carrier;

                for (uint32_t j = 0; j < 2; j++) {
                        jobs[j] = (struct job){.operation = j ? RING_OP_ALL_REDUCE : RING_OP_BROADCAST,
                                               .algorithm = j ? PLAN_ONE_SHOT : PLAN_DIRECT,
                                               .count = 1 + k,
                                               .type = RMX_INT32,
                                               .redop = RMX_SUM,
                                               .seed = k};
                        job_prepare(&jobs[j], 2);
                }
                /* Both are roots and send. */
                jobs[0].ranks[1].requests[0].in = jobs[0].ranks[1].requests[0].out;
                differ(&jobs[0], NULL, 1, DIFFER_ROOT);
                carrier_init(&carrier, 2, nodes_placements[0].node, &nodes_geometries[3], k);
                run_open_nodes(&run, &carrier, &nodes_geometries[3], 0);
                run_all(&run);
                assert_true(run.stuck && run.n_mismatches == 2);
                run_close(&run);
                for (uint32_t j = 0; j < 2; j++)
                        job_release(&jobs[j]);
        }
        free(jobs);
}

/* ---- carriers that get it wrong ---------------------------------------------------------------------------------- */
/* In a child: an assertion of the backend, a wrong result, a rank that never ends, or a mismatch. */
static bool noticed(enum carrier_mutation mutation, uint64_t seed) {
        pid_t child = fork();
        int status;

        assert_true(child >= 0);
        if (child == 0) {
                struct random random = {seed};
                struct job *jobs = calloc(NODES_JOBS_MAX, sizeof(*jobs));
                const struct nodes_placement *placement = &nodes_placements[seed % 8];
                const struct plan_geometry *geometry = &nodes_geometries[seed % 3];
                struct carrier carrier;
                struct run run = {.jobs = jobs,
                                  .n_jobs = NODES_JOBS_MAX,
                                  .random = {seed},
                                  .max_bytes = UINT64_MAX,
                                  .reluctance = 1,
                                  .tolerant = true};

                (void)!freopen("/dev/null", "w", stderr);
                for (uint32_t j = 0; j < NODES_JOBS_MAX; j++)
                        nodes_draw_any(&jobs[j], &random, placement->n_ranks);
                carrier_init(&carrier, placement->n_ranks, placement->node, geometry, seed);
                carrier.mutation = mutation;
                carrier.mutate_after = 20;
                run_open_nodes(&run, &carrier, geometry, 0);
                run_all(&run);
                _exit(run.wrong || run.stuck || run.n_mismatches);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void test_wrong_carriers(void **state) {
        const uint32_t n_runs = 40;
        uint64_t seed = harness_seed();

        (void)state;
        for (uint32_t m = CARRIER_RIGHT; m < CARRIER_MUTATIONS; m++) {
                uint32_t n = 0;

                for (uint32_t k = 0; k < n_runs; k++)
                        n += noticed((enum carrier_mutation)m, seed + k);
                print_message("mutation %u: noticed in %u of %u runs\n", m, n, n_runs);
                if (m == CARRIER_RIGHT)
                        assert_int_equal(n, 0);
                else
                        assert_true(n > n_runs / 4);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_mismatch),
                cmocka_unit_test(test_vector_mismatch),
                cmocka_unit_test(test_late_mismatch),
                cmocka_unit_test(test_wrong_carriers),
        };

        return cmocka_run_group_tests(tests, run_setup, run_teardown);
}
