/* SPDX-License-Identifier: MIT */
/* Collectives with the ranks on several threads, a lock per rank, as the executor's workers do it. For TSan above all.
 */
#include "tests/cmocka_all.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "gpu/host/host.h"
#include "harness.h"
#include "railmux/railmux.h"
#include "ring/ring.h"

#define THREADS_MAX 4u

struct pool_rank {
        pthread_mutex_t lock;
        uint32_t job; /* this and the others: under the lock */
        uint32_t start;
        bool running;
};

struct pool {
        struct gpu_comm *comm;
        struct job *jobs;
        uint32_t n_jobs;
        uint32_t n_ranks;
        uint64_t max_bytes;
        struct pool_rank ranks[PLAN_RANKS_MAX];
        _Atomic uint32_t n_unfinished; /* ranks */
};

struct worker {
        pthread_t thread;
        struct pool *pool;
        struct random random;
};

static void rank_next(struct pool *pool, uint32_t rank) {
        struct pool_rank *state = &pool->ranks[rank];

        while (state->job < pool->n_jobs && state->start == pool->jobs[state->job].ranks[rank].n_starts) {
                state->start = 0;
                if (++state->job == pool->n_jobs)
                        /* Release; partner: the acquire load in worker_run. */
                        atomic_fetch_sub_explicit(&pool->n_unfinished, 1, memory_order_release);
        }
}

/* One call for a rank whose lock is held. */
static bool pool_call(struct pool *pool, uint32_t rank) {
        struct pool_rank *state = &pool->ranks[rank];
        int r;

        if (state->job == pool->n_jobs)
                return false;
        rank_next(pool, rank);
        if (state->job == pool->n_jobs)
                return true;
        if (!state->running) {
                uint32_t n;
                struct gpu_request *requests = job_start(&pool->jobs[state->job], rank, state->start, &n);

                gpu_host_ops.start(pool->comm, rank, requests, n);
                state->running = true;
        }
        r = gpu_host_ops.progress(pool->comm, rank, pool->max_bytes);
        if (r == GPU_DONE) {
                state->running = false;
                job_end(&pool->jobs[state->job], rank, state->start++);
                rank_next(pool, rank);
        }
        return r != GPU_IDLE;
}

static void *worker_run(void *argument) {
        struct worker *worker = argument;
        struct pool *pool = worker->pool;

        /* Acquire; partner: the release subtraction in pool_call. */
        while (atomic_load_explicit(&pool->n_unfinished, memory_order_acquire) > 0) {
                uint32_t first = random_below(&worker->random, pool->n_ranks);
                bool moved = false;

                for (uint32_t i = 0; i < pool->n_ranks; i++) {
                        uint32_t rank = (first + i) % pool->n_ranks;

                        if (pthread_mutex_trylock(&pool->ranks[rank].lock) != 0)
                                continue;
                        moved |= pool_call(pool, rank);
                        pthread_mutex_unlock(&pool->ranks[rank].lock);
                }
                if (!moved)
                        sched_yield();
        }
        return NULL;
}

/* Runs pool->jobs, which are prepared, to their end, and releases them. */
static void pool_run(struct pool *pool, uint32_t n_threads, const struct plan_geometry *geometry, uint64_t seed,
                     uint32_t start) {
        struct worker workers[THREADS_MAX];
        struct gpu *gpu;

        assert_int_equal(gpu_host_ops.open(8, &gpu), 0);
        assert_int_equal(host_comm_new_at(gpu, pool->n_ranks, geometry, NULL, start, &pool->comm), 0);
        atomic_init(&pool->n_unfinished, pool->n_ranks);
        for (uint32_t rank = 0; rank < pool->n_ranks; rank++)
                assert_int_equal(pthread_mutex_init(&pool->ranks[rank].lock, NULL), 0);
        for (uint32_t t = 0; t < n_threads; t++) {
                workers[t] = (struct worker){.pool = pool, .random = {seed + 77 * t}};
                assert_int_equal(pthread_create(&workers[t].thread, NULL, worker_run, &workers[t]), 0);
        }
        for (uint32_t t = 0; t < n_threads; t++)
                assert_int_equal(pthread_join(workers[t].thread, NULL), 0);
        for (uint32_t rank = 0; rank < pool->n_ranks; rank++)
                pthread_mutex_destroy(&pool->ranks[rank].lock);
        for (uint32_t i = 0; i < pool->n_jobs; i++)
                job_release(&pool->jobs[i]);
        gpu_host_ops.comm_free(pool->comm);
        gpu_host_ops.close(gpu);
}

#define N_JOBS 8u

static void run_random(uint32_t n_threads, uint32_t n_ranks, uint64_t max_count, const struct plan_geometry *geometry,
                       uint64_t seed, uint32_t start) {
        struct random random = {seed};
        struct job *jobs = calloc(N_JOBS, sizeof(*jobs));
        struct pool pool = {.jobs = jobs, .n_jobs = N_JOBS, .n_ranks = n_ranks};

        assert_non_null(jobs);
        pool.max_bytes = (const uint64_t[]){1, 3000, 65536}[random_below(&random, 3)];
        for (uint32_t i = 0; i < N_JOBS; i++)
                job_random(&jobs[i], random_next(&random), RING_OP_NONE, n_ranks, max_count);
        pool_run(&pool, n_threads, geometry, seed, start);
        free(jobs);
}

static void test_small_staging(void **state) {
        static const uint32_t ranks[] = {1, 2, 3, 5, 8, 16};
        static const struct plan_geometry geometries[] = {{64, 2}, {64, 3}, {192, 2}};
        uint64_t seed = harness_seed();

        (void)state;
        for (uint32_t n_threads = 2; n_threads <= THREADS_MAX; n_threads++)
                for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
                        for (uint32_t k = 0; k < (harness_full() ? 90 : 12); k++)
                                run_random(n_threads, ranks[i], ranks[i] <= 8 ? 1009 : 127, &geometries[k % 3],
                                           seed += 1000, k % 2 ? 0u - k : 0);
}

static void test_many_ranks(void **state) {
        struct plan_geometry geometry = {.part_bytes = 512, .slots = 2};
        uint64_t seed = harness_seed();

        (void)state;
        for (uint32_t n_threads = 2; n_threads <= THREADS_MAX; n_threads++) {
                run_random(n_threads, 33, 127, &geometry, seed + n_threads, 0);
                run_random(n_threads, 64, 61, &geometry, seed + 10 + n_threads, 0);
        }
}

/* Large enough that threads meet inside copies and reductions. */
static void run_large(uint32_t operation, uint64_t seed) {
        struct plan_geometry geometry = {.part_bytes = 65536, .slots = 4};
        struct job *jobs = calloc(PLAN_ALGORITHM_COUNT, sizeof(*jobs));
        struct pool pool = {.jobs = jobs, .n_ranks = 4, .max_bytes = 262144};

        assert_non_null(jobs);
        for (uint32_t a; (a = plan_algorithm_at(operation, 4, pool.n_jobs)); pool.n_jobs++) {
                struct job *job = &jobs[pool.n_jobs];

                *job = (struct job){.operation = operation,
                                    .algorithm = a,
                                    .count = operation == RING_OP_BARRIER ? 0 : 60007,
                                    .type = seed % 2 ? RMX_BFLOAT16 : RMX_FLOAT32,
                                    .redop = RMX_SUM,
                                    .in_place = (seed + pool.n_jobs) % 2,
                                    .style = REFERENCE_MILD,
                                    .seed = seed};
                job_prepare(job, 4);
        }
        pool_run(&pool, 2, &geometry, seed, 0);
        free(jobs);
}

static void test_large(void **state) {
        uint64_t seed = harness_seed();

        (void)state;
        for (uint32_t o = 0; o < n_operations; o++)
                for (uint32_t k = 0; k < (harness_full() ? 6 : 1); k++)
                        run_large(operations[o], seed + o + k);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_small_staging),
                cmocka_unit_test(test_many_ranks),
                cmocka_unit_test(test_large),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
