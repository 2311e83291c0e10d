/* SPDX-License-Identifier: MIT */
/* Every plan on one thread under hostile schedules, several requests in a row, ranks running ahead of each other. */
#include "tests/cmocka_all.h"

#include <stdlib.h>

#include "railmux/railmux.h"
#include "ring/ring.h"
#include "run.h"

static const uint32_t rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 64};
#define N_RANK_COUNTS (sizeof(rank_counts) / sizeof(rank_counts[0]))

static const struct plan_geometry geometries[] = {{.part_bytes = 64, .slots = 1},
                                                  {.part_bytes = 64, .slots = 3},
                                                  {.part_bytes = 192, .slots = 2},
                                                  {.part_bytes = 4096, .slots = 4}};
#define N_GEOMETRIES (sizeof(geometries) / sizeof(geometries[0]))

static uint64_t max_count_for(uint32_t n_ranks) {
        return n_ranks <= 9 ? 2003 : n_ranks <= 16 ? 257 : n_ranks <= 33 ? 127 : 61;
}

/* A ring's ranks take a chunk and send one in the same step, so they need a second slot to get around. */
static const struct plan_geometry *choose_geometry(struct random *random, const struct job *jobs, uint32_t n_jobs) {
        const struct plan_geometry *geometry = &geometries[random_below(random, N_GEOMETRIES)];

        for (uint32_t i = 0; i < n_jobs; i++)
                if (jobs[i].algorithm == PLAN_RING && geometry->slots < 2)
                        geometry++;
        return geometry;
}

/* Runs jobs that are prepared, under a random schedule, and releases them. */
static void run_jobs(struct job *jobs, uint32_t n_jobs, uint32_t n_ranks, struct random *random, uint32_t start) {
        struct run run = {
                .jobs = jobs,
                .n_jobs = n_jobs,
                .schedule = (enum schedule)random_below(random, SCHEDULE_COUNT),
                .max_bytes = (const uint64_t[]){0, 1, 777, 65536, UINT64_MAX}[random_below(random, 5)],
                .random = {random_next(random)},
        };

        run_open(&run, n_ranks, choose_geometry(random, jobs, n_jobs), start);
        run_all(&run);
        run_close(&run);
        for (uint32_t i = 0; i < n_jobs; i++)
                job_release(&jobs[i]);
}

/* Up to RUN_JOBS_MAX requests in a row; RING_OP_NONE: each one another. */
#define RUN_JOBS_MAX 12u
static void run_random(uint32_t n_ranks, uint32_t operation, uint32_t n_jobs, uint64_t seed, uint32_t start) {
        struct random random = {seed};
        struct job *jobs = calloc(RUN_JOBS_MAX, sizeof(*jobs));

        assert_non_null(jobs);
        for (uint32_t i = 0; i < n_jobs; i++)
                job_random(&jobs[i], random_next(&random), operation, n_ranks, max_count_for(n_ranks));
        run_jobs(jobs, n_jobs, n_ranks, &random, start);
        free(jobs);
}

/* Work for a number of ranks, so that all take about as long. */
static uint32_t n_repeats(uint32_t n_ranks, uint32_t work) {
        work = n_ranks <= 9 ? work : n_ranks <= 16 ? work / 3 : work / 20;
        return harness_full() ? 10 * work + 5 : work + 1;
}

static void run_each(uint32_t n_ranks, uint32_t operation, uint32_t algorithm, uint64_t seed) {
        struct random random = {seed};
        struct job *job = calloc(1, sizeof(*job)), *drawn = calloc(1, sizeof(*drawn));
        bool reduces = plan_operation_reduces(operation);

        assert_true(job && drawn);
        for (uint32_t type = 0; type < RMX_TYPE_COUNT; type++)
                for (uint32_t redop = 0; redop < (reduces ? RMX_REDOP_COUNT : 1); redop++) {
                        if (!harness_full() && random_below(&random, reduces ? 12 : 3))
                                continue;
                        job_random(drawn, random_next(&random), operation, n_ranks, max_count_for(n_ranks));
                        *job = (struct job){
                                .operation = operation,
                                .algorithm = algorithm,
                                .count = drawn->count,
                                .type = type,
                                .redop = redop,
                                .root = drawn->root,
                                .misalign = drawn->misalign,
                                .in_place = drawn->in_place,
                                .style = drawn->style,
                                .seed = drawn->seed,
                        };
                        job_release(drawn);
                        job_prepare(job, n_ranks);
                        run_jobs(job, 1, n_ranks, &random, 0);
                }
        free(job);
        free(drawn);
}

/* Every algorithm of every operation, with (RAILMUX_FULL: all, else some) types and reductions. */
static void test_each_plan(void **state) {
        uint64_t seed = harness_seed();

        (void)state;
        for (size_t i = 0; i < N_RANK_COUNTS; i++)
                for (uint32_t o = 0; o < n_operations; o++)
                        for (uint32_t k = 0, a; (a = plan_algorithm_at(operations[o], rank_counts[i], k)); k++)
                                for (uint32_t repeat = 0; repeat < (harness_full() ? 1 : n_repeats(rank_counts[i], 5));
                                     repeat++)
                                        run_each(rank_counts[i], operations[o], a, seed += 1000);
}

static void test_mixed_sequences(void **state) {
        uint64_t seed = harness_seed();

        (void)state;
        for (size_t i = 0; i < N_RANK_COUNTS; i++)
                for (uint32_t k = 0; k < n_repeats(rank_counts[i], 60); k++)
                        run_random(rank_counts[i], RING_OP_NONE, RUN_JOBS_MAX, seed += 1000, 0);
}

static void test_messages(void **state) {
        uint64_t seed = harness_seed();

        (void)state;
        for (size_t i = 0; i < N_RANK_COUNTS; i++)
                for (uint32_t k = 0; k < n_repeats(rank_counts[i], 60); k++)
                        run_random(rank_counts[i], RING_OP_SEND, 3, seed += 1000, 0);
}

static void test_counters_wrap(void **state) {
        uint64_t seed = harness_seed();

        (void)state;
        for (size_t i = 0; i < N_RANK_COUNTS; i++)
                for (uint32_t k = 0; k < n_repeats(rank_counts[i], 36); k++)
                        run_random(rank_counts[i], RING_OP_NONE, 6, seed += 1000, 0u - k % 12);
}

static void run_count(uint32_t n_ranks, uint32_t operation, uint32_t algorithm, uint64_t count) {
        struct random random = {count};
        struct job *job = calloc(1, sizeof(*job));

        assert_non_null(job);
        *job = (struct job){
                .operation = operation,
                .algorithm = algorithm,
                .count = operation == RING_OP_BARRIER ? 0 : count,
                .type = RMX_FLOAT32,
                .redop = RMX_SUM,
                .root = (uint32_t)count % n_ranks,
                .in_place = count / 2 % 2,
                .style = REFERENCE_MILD,
                .seed = count,
        };
        job_prepare(job, n_ranks);
        run_jobs(job, 1, n_ranks, &random, 0);
        free(job);
}

/* Every count up to a few parts, one type: nothing is left to chance near the edges. */
static void test_every_small_count(void **state) {
        static const uint32_t ranks[] = {1, 2, 3, 5};

        (void)state;
        for (size_t i = 0; i < 4; i++)
                for (uint32_t o = 0; o < n_operations; o++)
                        for (uint32_t k = 0, a; (a = plan_algorithm_at(operations[o], ranks[i], k)); k++)
                                for (uint32_t count = 0; count < (harness_full() ? 280 : 70); count++)
                                        run_count(ranks[i], operations[o], a, count);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_every_small_count), cmocka_unit_test(test_each_plan),
                cmocka_unit_test(test_messages),          cmocka_unit_test(test_mixed_sequences),
                cmocka_unit_test(test_counters_wrap),
        };

        return cmocka_run_group_tests(tests, run_setup, run_teardown);
}
