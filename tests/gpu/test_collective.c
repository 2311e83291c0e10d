/* SPDX-License-Identifier: MIT */
/* Collectives on one thread under hostile schedules, several requests in a row, ranks running ahead of each other. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/host/host.h"
#include "harness.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "util/type.h"

static const uint32_t rank_counts[] = {1, 2, 3, 5, 8, 16, 33, 64};
#define N_RANK_COUNTS (sizeof(rank_counts) / sizeof(rank_counts[0]))

static const struct plan_geometry geometries[] = {{.part_bytes = 64, .slots = 1},
                                                  {.part_bytes = 64, .slots = 3},
                                                  {.part_bytes = 192, .slots = 2},
                                                  {.part_bytes = 4096, .slots = 4}};
#define N_GEOMETRIES (sizeof(geometries) / sizeof(geometries[0]))

/* How the next rank to be called is chosen. */
enum schedule {
        SCHEDULE_RANDOM,   /* any rank */
        SCHEDULE_FORWARD,  /* in turn */
        SCHEDULE_BACKWARD, /* in turn, the other way */
        SCHEDULE_STARVE,   /* one rank only when no other can move */
        SCHEDULE_GREEDY,   /* one rank until it cannot move, then another */
        SCHEDULE_COUNT,
};

/* All ranks' way through a list of requests. */
struct run {
        struct gpu *gpu;
        struct gpu_comm *comm;
        struct job *jobs;
        uint32_t n_jobs;
        uint32_t n_ranks;
        uint32_t started[PLAN_RANKS_MAX]; /* requests */
        uint32_t done[PLAN_RANKS_MAX];
        enum schedule schedule;
        uint64_t max_bytes; /* 0: another small number each time */
        struct random random;
        uint32_t last;
};

static void run_open(struct run *run, uint32_t n_ranks, const struct plan_geometry *geometry, uint32_t start) {
        run->n_ranks = n_ranks;
        assert_int_equal(gpu_host_ops.open(8, &run->gpu), 0);
        if (start == 0)
                assert_int_equal(gpu_host_ops.comm_new(run->gpu, n_ranks, geometry, &run->comm), 0);
        else
                assert_int_equal(host_comm_new_at(run->gpu, n_ranks, geometry, start, &run->comm), 0);
}

static void run_close(struct run *run) {
        assert_null(gpu_host_ops.comm_free(run->comm));
        gpu_host_ops.close(run->gpu);
}

/* A barrier is done on no rank before it was started on all. */
static void run_check_barrier(const struct run *run, uint32_t rank) {
        if (run->jobs[run->done[rank]].operation == RING_OP_BARRIER)
                for (uint32_t r = 0; r < run->n_ranks; r++)
                        assert_true(run->started[r] > run->done[rank]);
}

/* Starts the rank's next request if it has none, and calls it once. */
static int run_call(struct run *run, uint32_t rank) {
        uint64_t max_bytes = run->max_bytes > 0 ? run->max_bytes : random_below(&run->random, 1000);
        int r;

        if (run->done[rank] == run->n_jobs) {
                assert_int_equal(gpu_host_ops.progress(run->comm, rank, max_bytes), GPU_IDLE); /* done was said once */
                return GPU_IDLE;
        }
        if (run->started[rank] == run->done[rank]) {
                struct gpu_request request = job_request(&run->jobs[run->started[rank]++], rank);

                gpu_host_ops.start(run->comm, rank, &request);
        }
        r = gpu_host_ops.progress(run->comm, rank, max_bytes);
        if (r == GPU_DONE) {
                run_check_barrier(run, rank);
                run->done[rank]++;
        }
        return r;
}

static uint32_t run_choose(struct run *run, bool last_moved) {
        uint32_t n = run->n_ranks;

        switch (run->schedule) {
        case SCHEDULE_FORWARD:
                return (run->last + 1) % n;
        case SCHEDULE_BACKWARD:
                return (run->last + n - 1) % n;
        case SCHEDULE_STARVE:
                return n > 1 ? 1 + random_below(&run->random, n - 1) : 0;
        case SCHEDULE_GREEDY:
                return last_moved ? run->last : random_below(&run->random, n);
        default:
                return random_below(&run->random, n);
        }
}

static bool run_finished(const struct run *run) {
        for (uint32_t rank = 0; rank < run->n_ranks; rank++)
                if (run->done[rank] < run->n_jobs)
                        return false;
        return true;
}

/* If the schedule finds nobody to move for a while, everyone is tried in turn; if none moves then, none ever will. */
static void run_all(struct run *run) {
        uint32_t n_idle = 0;
        bool moved = false;

        while (!run_finished(run)) {
                uint32_t rank = run_choose(run, moved);

                moved = run_call(run, rank) != GPU_IDLE;
                run->last = rank;
                n_idle = moved ? 0 : n_idle + 1;
                if (n_idle > 2 * run->n_ranks) {
                        uint32_t r = 0;

                        while (r < run->n_ranks && run_call(run, r) == GPU_IDLE)
                                r++;
                        if (r == run->n_ranks)
                                fail_msg("no rank of %u can move", run->n_ranks);
                        n_idle = 0;
                }
        }
        for (uint32_t rank = 0; rank < run->n_ranks; rank++)
                run_call(run, rank);
}

/* ---- the matrix -------------------------------------------------------------------------------------------------- */
static uint64_t max_count_for(uint32_t n_ranks) {
        return n_ranks <= 8 ? 2003 : n_ranks <= 16 ? 509 : n_ranks <= 33 ? 257 : 127;
}

/* n_jobs requests in a row; combination NULL: each one another. */
static void run_random(uint32_t n_ranks, const struct combination *combination, uint32_t n_jobs, uint64_t seed,
                       uint32_t start) {
        struct random random = {seed};
        struct job *jobs = calloc(n_jobs, sizeof(*jobs));
        struct run run = {
                .jobs = jobs,
                .n_jobs = n_jobs,
                .schedule = (enum schedule)random_below(&random, SCHEDULE_COUNT),
                .max_bytes = (const uint64_t[]){0, 1, 777, 65536, UINT64_MAX}[random_below(&random, 5)],
                .random = {seed + 1},
        };

        assert_non_null(jobs);
        for (uint32_t i = 0; i < n_jobs; i++)
                job_random(&jobs[i], seed * 1000 + i,
                           combination ? combination : &combinations[random_below(&random, n_combinations)], n_ranks,
                           max_count_for(n_ranks));
        run_open(&run, n_ranks, &geometries[random_below(&random, N_GEOMETRIES)], start);
        run_all(&run);
        for (uint32_t i = 0; i < n_jobs; i++) {
                job_check(&jobs[i]);
                job_release(&jobs[i]);
        }
        run_close(&run);
        free(jobs);
}

static uint32_t n_repeats(uint32_t n_ranks, uint32_t work) {
        return n_ranks <= 8 ? work : n_ranks <= 16 ? work / 4 : work / 20 + 1;
}

static void test_each_plan(void **state) {
        (void)state;
        for (size_t i = 0; i < N_RANK_COUNTS; i++)
                for (uint32_t c = 0; c < n_combinations; c++)
                        for (uint32_t k = 0; k < n_repeats(rank_counts[i], 80); k++)
                                run_random(rank_counts[i], &combinations[c], 3, 100000 * i + 1000 * c + k, 0);
}

static void test_mixed_sequences(void **state) {
        (void)state;
        for (size_t i = 0; i < N_RANK_COUNTS; i++)
                for (uint32_t k = 0; k < n_repeats(rank_counts[i], 80); k++)
                        run_random(rank_counts[i], NULL, 12, 5000000 + 1000 * i + k, 0);
}

static void test_counters_wrap(void **state) {
        (void)state;
        for (size_t i = 0; i < N_RANK_COUNTS; i++)
                for (uint32_t k = 0; k < n_repeats(rank_counts[i], 48); k++)
                        run_random(rank_counts[i], NULL, 6, 7000000 + 1000 * i + k, 0u - k % 12);
}

/* Every count up to a few laps, every in_place, one type: nothing is left to chance near the edges. */
static void test_every_small_count(void **state) {
        static const uint32_t ranks[] = {1, 2, 3, 5};

        (void)state;
        for (size_t i = 0; i < 4; i++)
                for (uint32_t c = 0; c < n_combinations; c++)
                        for (uint32_t count = 0; count < 140; count++) {
                                struct job job = {
                                        .operation = combinations[c].operation,
                                        .algorithm = combinations[c].algorithm,
                                        .count = combinations[c].operation == RING_OP_BARRIER ? 0 : count,
                                        .type = RMX_FLOAT32,
                                        .redop = RMX_SUM,
                                        .root = count % ranks[i],
                                        .in_place = count / 2 % 2,
                                        .style = REFERENCE_EXACT,
                                        .seed = count,
                                };
                                struct run run = {.jobs = &job, .n_jobs = 1, .random = {count}};

                                job_prepare(&job, ranks[i]);
                                run_open(&run, ranks[i], &geometries[count % 2], 0);
                                run_all(&run);
                                job_check(&job);
                                job_release(&job);
                                run_close(&run);
                        }
}

/* ---- single properties ------------------------------------------------------------------------------------------- */
static void run_one(struct job *job, uint32_t n_ranks) {
        struct run run = {.jobs = job, .n_jobs = 1, .random = {job->seed}};

        job_prepare(job, n_ranks);
        run_open(&run, n_ranks, &geometries[1], 0);
        run_all(&run);
        job_check(job);
        run_close(&run);
}

/* One-shot and two-shot declare the same tree: the same bits, also where sums are inexact. */
static void test_equal_trees_equal_bits(void **state) {
        static const uint32_t types[] = {RMX_FLOAT32, RMX_BFLOAT16, RMX_FLOAT16, RMX_FLOAT64};

        (void)state;
        for (size_t t = 0; t < 4; t++)
                for (uint32_t redop = 0; redop < RMX_REDOP_COUNT; redop++)
                        for (uint32_t n_ranks = 2; n_ranks <= 16; n_ranks += 7) {
                                struct job one = {.operation = RING_OP_ALL_REDUCE,
                                                  .algorithm = PLAN_ONE_SHOT,
                                                  .count = 1009,
                                                  .type = types[t],
                                                  .redop = redop,
                                                  .style = REFERENCE_MILD,
                                                  .seed = n_ranks};
                                struct job two = one;

                                two.algorithm = PLAN_TWO_SHOT;
                                run_one(&one, n_ranks);
                                run_one(&two, n_ranks);
                                for (uint32_t rank = 0; rank < n_ranks; rank++) {
                                        assert_memory_equal(one.out[rank], two.out[rank], 1009 * type_size(types[t]));
                                        assert_memory_equal(one.out[0], two.out[rank], 1009 * type_size(types[t]));
                                }
                                job_release(&one);
                                job_release(&two);
                        }
}

/* A call does not do much more than it was allowed to, and a rank that cannot move returns at once. */
static void test_budget(void **state) {
        struct plan_geometry geometry = {.part_bytes = 1024, .slots = 64};
        struct job job = {.operation = RING_OP_BROADCAST,
                          .algorithm = PLAN_DIRECT,
                          .count = 65536,
                          .type = RMX_INT8,
                          .in_place = true,
                          .seed = 1};
        struct run run = {.jobs = &job, .n_jobs = 1, .random = {1}};
        struct gpu_request request;
        uint32_t calls = 0;

        (void)state;
        job_prepare(&job, 2);
        run_open(&run, 2, &geometry, 0);
        request = job_request(&job, 1);
        gpu_host_ops.start(run.comm, 1, &request);
        assert_int_equal(gpu_host_ops.progress(run.comm, 1, UINT64_MAX), GPU_IDLE);
        request = job_request(&job, 0);
        gpu_host_ops.start(run.comm, 0, &request);
        for (int r = GPU_PROGRESS; r != GPU_DONE; calls++) {
                r = gpu_host_ops.progress(run.comm, 0, 4096);
                assert_true(r == GPU_DONE || r == GPU_PROGRESS);
        }
        /* Per call four parts of 1 KiB at most. */
        assert_in_range(calls, 16, 21);
        assert_int_equal(gpu_host_ops.progress(run.comm, 1, UINT64_MAX), GPU_DONE);
        job_check(&job);
        job_release(&job);
        run_close(&run);
}

/* A broadcast root may run ahead of the others as far as its slots reach, and no further. */
static void test_root_runs_ahead(void **state) {
        struct plan_geometry geometry = {.part_bytes = 64, .slots = 3};
        struct job jobs[8];
        struct run run = {.jobs = jobs, .n_jobs = 8, .random = {1}};

        (void)state;
        for (uint32_t i = 0; i < 8; i++) {
                jobs[i] = (struct job){.operation = RING_OP_BROADCAST,
                                       .algorithm = PLAN_DIRECT,
                                       .count = 16,
                                       .type = RMX_INT32,
                                       .seed = i};
                job_prepare(&jobs[i], 3);
        }
        run_open(&run, 3, &geometry, 0);
        run.max_bytes = UINT64_MAX;
        for (uint32_t i = 0; i < 20; i++)
                run_call(&run, 0);
        assert_int_equal(run.done[0], 3);
        for (uint32_t i = 0; i < 3; i++) { /* rank 1 frees slots, rank 2 does not */
                run_call(&run, 1);
                run_call(&run, 0);
        }
        assert_int_equal(run.done[1], 3);
        assert_int_equal(run.done[0], 3);
        run_all(&run);
        for (uint32_t i = 0; i < 8; i++) {
                job_check(&jobs[i]);
                job_release(&jobs[i]);
        }
        run_close(&run);
}

/* A communicator may go at any moment. */
static void test_free_any_time(void **state) {
        (void)state;
        assert_null(gpu_host_ops.comm_free(NULL));
        for (uint32_t n_calls = 0; n_calls < 60; n_calls++) {
                struct job job;
                struct run run = {.jobs = &job, .n_jobs = 1, .max_bytes = 1, .random = {n_calls}};

                job_random(&job, n_calls, &combinations[n_calls % n_combinations], 4, 2003);
                run_open(&run, 4, &geometries[0], 0);
                for (uint32_t i = 0; i < n_calls; i++)
                        run_call(&run, random_below(&run.random, 4));
                run_close(&run);
                job_release(&job);
        }
}

static void test_gpus(void **state) {
        struct plan_geometry geometry = geometries[0];
        struct gpu_comm *comm = NULL;
        struct gpu_info info;
        struct gpu *gpu = NULL;

        (void)state;
        assert_int_equal(gpu_host_ops.open(0, &gpu), -EINVAL);
        assert_int_equal(gpu_host_ops.open(HOST_GPUS_MAX + 1, &gpu), -EINVAL);
        assert_null(gpu);
        assert_int_equal(gpu_host_ops.open(3, &gpu), 0);
        assert_string_equal(gpu_host_ops.name, "host");
        assert_int_equal(gpu_host_ops.count(gpu), 3);
        gpu_host_ops.info(gpu, 2, &info);
        assert_int_equal(info.index, 2);
        assert_true(info.memory_bytes > 0);
        assert_string_equal(info.name, "emulated GPU 2");
        assert_true(gpu_host_ops.reduces(gpu, RMX_BFLOAT16, RMX_SUM));
        assert_false(gpu_host_ops.reduces(gpu, RMX_FLOAT8_E4M3, RMX_SUM));
        assert_int_equal(gpu_host_ops.comm_new(gpu, 0, &geometry, &comm), -EINVAL);
        assert_int_equal(gpu_host_ops.comm_new(gpu, PLAN_RANKS_MAX + 1, &geometry, &comm), -EINVAL);
        geometry.slots = 0;
        assert_int_equal(gpu_host_ops.comm_new(gpu, 2, &geometry, &comm), -EINVAL);
        assert_null(comm);
        gpu_host_ops.close(gpu);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_gpus),
                cmocka_unit_test(test_budget),
                cmocka_unit_test(test_root_runs_ahead),
                cmocka_unit_test(test_free_any_time),
                cmocka_unit_test(test_every_small_count),
                cmocka_unit_test(test_equal_trees_equal_bits),
                cmocka_unit_test(test_each_plan),
                cmocka_unit_test(test_mixed_sequences),
                cmocka_unit_test(test_counters_wrap),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
