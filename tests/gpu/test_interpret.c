/* SPDX-License-Identifier: MIT */
/* Single properties of the interpreter: budgets, running ahead, groups, what a backend says about itself. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>

#include "railmux/railmux.h"
#include "ring/ring.h"
#include "run.h"

static const struct plan_geometry SMALL = {.part_bytes = 64, .slots = 1};

/* Work in pieces: larger than one, also in place. */
static void test_pieces(void **state) {
        static const uint32_t list[] = {RING_OP_ALL_REDUCE, RING_OP_REDUCE, RING_OP_REDUCE_SCATTER, RING_OP_ALL_GATHER,
                                        RING_OP_BROADCAST};
        struct plan_geometry geometry = {.part_bytes = 1u << 20, .slots = 1};

        (void)state;
        for (uint32_t i = 0; i < 20; i++) {
                struct job *job = calloc(1, sizeof(*job));
                struct run run = {.jobs = job, .n_jobs = 1, .random = {i}};

                assert_non_null(job);
                *job = (struct job){
                        .operation = list[i % 5],
                        .algorithm = PLAN_ZERO_COPY,
                        .count = 150001 + i,
                        .type = i / 5 % 2 ? RMX_FLOAT32 : RMX_FLOAT16,
                        .redop = i / 10 % 2 ? RMX_AVG : RMX_PREMUL_SUM,
                        .root = 1,
                        .in_place = i / 5 % 2,
                        .style = REFERENCE_MILD,
                        .seed = i,
                };
                job_prepare(job, 3);
                run_open(&run, 3, &geometry, 0);
                run_all(&run);
                run_close(&run);
                job_release(job);
                free(job);
        }
}

static uint32_t count_calls(struct run *run, uint32_t rank, uint64_t max_bytes) {
        uint32_t calls = 0;
        int r;

        run->max_bytes = max_bytes;
        do {
                r = run_call(run, rank);
                assert_true(r == GPU_DONE || r == GPU_PROGRESS);
                calls++;
        } while (r != GPU_DONE);
        return calls;
}

/* A call does not do much more than it was allowed to, and a rank that cannot move returns at once. */
static void test_budget(void **state) {
        struct plan_geometry geometry = {.part_bytes = 1024, .slots = 64};
        struct job *job = calloc(1, sizeof(*job));
        struct run run = {.jobs = job, .n_jobs = 1, .random = {1}, .max_bytes = UINT64_MAX};

        (void)state;
        assert_non_null(job);
        *job = (struct job){.operation = RING_OP_BROADCAST,
                            .algorithm = PLAN_DIRECT,
                            .count = 65536,
                            .type = RMX_INT8,
                            .in_place = true,
                            .seed = 1};
        job_prepare(job, 2);
        run_open(&run, 2, &geometry, 0);
        assert_int_equal(run_call(&run, 1), GPU_IDLE);
        /* Per call four parts of 1 KiB at most. */
        assert_in_range(count_calls(&run, 0, 4096), 16, 21);
        assert_int_equal(count_calls(&run, 1, UINT64_MAX), 1);
        run_close(&run);
        job_release(job);
        free(job);
}

/* A fold is large, whatever the parts are; it takes many calls. */
static void test_budget_of_folds(void **state) {
        struct plan_geometry geometry = {.part_bytes = 1u << 20, .slots = 1};
        struct job *job = calloc(1, sizeof(*job));
        struct run run = {.jobs = job, .n_jobs = 1, .random = {1}, .max_bytes = UINT64_MAX};

        (void)state;
        assert_non_null(job);
        *job = (struct job){.operation = RING_OP_ALL_REDUCE,
                            .algorithm = PLAN_ZERO_COPY,
                            .count = 4u << 20,
                            .type = RMX_INT8,
                            .redop = RMX_MAX,
                            .seed = 1};
        job_prepare(job, 2);
        run_open(&run, 2, &geometry, 0);
        assert_int_equal(run_call(&run, 0), GPU_PROGRESS); /* its signal */
        assert_int_equal(run_call(&run, 1), GPU_PROGRESS); /* all but the other's last signal */
        /* 2 MiB from two ranks to two ranks, at most a piece of 256 KiB per call. */
        assert_in_range(count_calls(&run, 0, 1), 32, 60);
        assert_int_equal(count_calls(&run, 1, 1), 1);
        run_close(&run);
        job_release(job);
        free(job);
}

/* A broadcast root may run ahead of the others as far as its slots reach, and no further. */
static void test_root_runs_ahead(void **state) {
        struct plan_geometry geometry = {.part_bytes = 64, .slots = 3};
        struct job *jobs = calloc(8, sizeof(*jobs));
        struct run run = {.jobs = jobs, .n_jobs = 8, .random = {1}, .max_bytes = UINT64_MAX};

        (void)state;
        assert_non_null(jobs);
        for (uint32_t i = 0; i < 8; i++) {
                jobs[i] = (struct job){.operation = RING_OP_BROADCAST,
                                       .algorithm = PLAN_DIRECT,
                                       .count = 16,
                                       .type = RMX_INT32,
                                       .seed = i};
                job_prepare(&jobs[i], 3);
        }
        run_open(&run, 3, &geometry, 0);
        for (uint32_t i = 0; i < 20; i++)
                run_call(&run, 0);
        assert_int_equal(run.ranks[0].job, 3);
        for (uint32_t i = 0; i < 3; i++) { /* rank 1 frees slots, rank 2 does not */
                run_call(&run, 1);
                run_call(&run, 0);
        }
        assert_int_equal(run.ranks[1].job, 3);
        assert_int_equal(run.ranks[0].job, 3);
        run_all(&run);
        run_close(&run);
        for (uint32_t i = 0; i < 8; i++)
                job_release(&jobs[i]);
        free(jobs);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */
static struct gpu_request message(const struct plan *plan, uint32_t role, uint32_t from, uint32_t to, uint32_t *value) {
        return (struct gpu_request){
                .plan = plan,
                .in = role == PLAN_ROLE_SENDER ? value : NULL,
                .out = role == PLAN_ROLE_SENDER ? NULL : value,
                .shape = {.count = 1, .element_bytes = 4, .partial_bytes = 4, .root = from, .peer = to, .role = role},
                .type = RMX_UINT32,
        };
}

/* A request of a group is done when it is done, whatever the others wait for; those of a pair keep their order. */
static void test_group_is_concurrent(void **state) {
        struct run run = {.random = {1}};
        uint32_t sent[4] = {11, 12, 13, 14}, got[4] = {0};
        struct gpu_request group[4], two[2], one;
        struct plan plan;

        (void)state;
        assert_int_equal(plan_build(RING_OP_SEND, PLAN_ZERO_COPY, 3, &plan), PLAN_OK);
        run_open(&run, 3, &SMALL, 0);
        group[0] = message(&plan, PLAN_ROLE_SENDER, 0, 2, &sent[0]);
        group[1] = message(&plan, PLAN_ROLE_SENDER, 0, 1, &sent[1]);
        group[2] = message(&plan, PLAN_ROLE_RECEIVER, 1, 0, &got[2]);
        group[3] = message(&plan, PLAN_ROLE_SENDER, 0, 1, &sent[3]);
        gpu_host_ops.start(run.comm, 0, group, 4);
        assert_int_equal(gpu_host_ops.progress(run.comm, 0, UINT64_MAX), GPU_PROGRESS);
        assert_int_equal(gpu_host_ops.progress(run.comm, 0, UINT64_MAX), GPU_IDLE);

        two[0] = message(&plan, PLAN_ROLE_RECEIVER, 0, 1, &got[1]);
        two[1] = message(&plan, PLAN_ROLE_RECEIVER, 0, 1, &got[3]);
        gpu_host_ops.start(run.comm, 1, two, 2);
        assert_int_equal(gpu_host_ops.progress(run.comm, 1, UINT64_MAX), GPU_PROGRESS);
        assert_true(two[0].done && !two[1].done);
        assert_int_equal(gpu_host_ops.progress(run.comm, 0, UINT64_MAX), GPU_PROGRESS);
        assert_true(group[1].done && !group[0].done && !group[2].done && !group[3].done);
        assert_int_equal(gpu_host_ops.progress(run.comm, 1, UINT64_MAX), GPU_DONE);
        assert_true(two[1].done);
        assert_int_equal(got[1], 12);
        assert_int_equal(got[3], 14);

        one = message(&plan, PLAN_ROLE_SENDER, 1, 0, &sent[2]);
        gpu_host_ops.start(run.comm, 1, &one, 1);
        assert_int_equal(gpu_host_ops.progress(run.comm, 1, UINT64_MAX), GPU_PROGRESS);
        assert_int_equal(gpu_host_ops.progress(run.comm, 0, UINT64_MAX), GPU_PROGRESS);
        assert_true(group[2].done && group[3].done && !group[0].done);
        assert_int_equal(gpu_host_ops.progress(run.comm, 1, UINT64_MAX), GPU_DONE);

        one = message(&plan, PLAN_ROLE_RECEIVER, 0, 2, &got[0]);
        gpu_host_ops.start(run.comm, 2, &one, 1);
        assert_int_equal(gpu_host_ops.progress(run.comm, 2, UINT64_MAX), GPU_DONE);
        assert_int_equal(gpu_host_ops.progress(run.comm, 0, UINT64_MAX), GPU_DONE);
        assert_int_equal(got[0], 11);
        assert_int_equal(got[2], 13);
        run_close(&run);
}

/* Sides that do not agree: nothing is read that the sender has not offered. */
static void test_mismatched_lengths(void **state) {
        struct run run = {.random = {1}};
        uint32_t sent[2] = {5, 6}, got[2] = {7, 8};
        struct gpu_request requests[2];
        struct plan plan;

        (void)state;
        assert_int_equal(plan_build(RING_OP_SEND, PLAN_ZERO_COPY, 2, &plan), PLAN_OK);
        run_open(&run, 2, &SMALL, 0);
        requests[0] = message(&plan, PLAN_ROLE_SENDER, 1, 1, sent);
        requests[1] = message(&plan, PLAN_ROLE_RECEIVER, 1, 1, got);
        requests[1].shape.count = 2;
        gpu_host_ops.start(run.comm, 1, requests, 2);
        assert_int_equal(gpu_host_ops.progress(run.comm, 1, UINT64_MAX), GPU_DONE);
        assert_int_equal(got[0], 5);
        assert_int_equal(got[1], 8);
        run_close(&run);
}

/* A communicator may go at any moment. */
static void test_free_any_time(void **state) {
        (void)state;
        assert_null(gpu_host_ops.comm_free(NULL));
        for (uint32_t n_calls = 0; n_calls < 120; n_calls++) {
                struct job *job = calloc(1, sizeof(*job));
                struct run run = {.jobs = job, .n_jobs = 1, .max_bytes = 1, .random = {n_calls}};

                assert_non_null(job);
                job_random(job, n_calls, operations[n_calls % n_operations], 4, 2003);
                run_open(&run, 4, &((struct plan_geometry){64, 3}), 0);
                for (uint32_t i = 0; i < n_calls; i++)
                        run_call(&run, random_below(&run.random, 4));
                run_close(&run);
                job_release(job);
                free(job);
        }
}

static void test_gpus(void **state) {
        struct plan_geometry geometry = SMALL;
        struct gpu_comm *comm = NULL;
        struct gpu_info info;
        struct gpu *three = NULL;

        (void)state;
        assert_int_equal(gpu_host_ops.open(0, &three), -EINVAL);
        assert_int_equal(gpu_host_ops.open(HOST_GPUS_MAX + 1, &three), -EINVAL);
        assert_null(three);
        assert_int_equal(gpu_host_ops.open(3, &three), 0);
        assert_string_equal(gpu_host_ops.name, "host");
        assert_int_equal(gpu_host_ops.count(three), 3);
        gpu_host_ops.info(three, 2, &info);
        assert_int_equal(info.index, 2);
        assert_true(info.memory_bytes > 0);
        assert_string_equal(info.name, "emulated GPU 2");
        assert_true(gpu_host_ops.reduces(three, RMX_BFLOAT16, RMX_SUM));
        assert_true(gpu_host_ops.reduces(three, RMX_FLOAT8_E4M3, RMX_PREMUL_SUM));
        assert_false(gpu_host_ops.reduces(three, RMX_TYPE_COUNT, RMX_SUM));
        assert_false(gpu_host_ops.reduces(three, RMX_FLOAT32, RMX_REDOP_COUNT));
        assert_int_equal(gpu_host_ops.comm_new(three, 0, &geometry, &comm), -EINVAL);
        assert_int_equal(gpu_host_ops.comm_new(three, PLAN_RANKS_MAX + 1, &geometry, &comm), -EINVAL);
        geometry.slots = 0;
        assert_int_equal(gpu_host_ops.comm_new(three, 2, &geometry, &comm), -EINVAL);
        assert_null(comm);
        gpu_host_ops.close(three);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_gpus),
                cmocka_unit_test(test_budget),
                cmocka_unit_test(test_budget_of_folds),
                cmocka_unit_test(test_root_runs_ahead),
                cmocka_unit_test(test_group_is_concurrent),
                cmocka_unit_test(test_mismatched_lengths),
                cmocka_unit_test(test_free_any_time),
                cmocka_unit_test(test_pieces),
        };

        return cmocka_run_group_tests(tests, run_setup, run_teardown);
}
