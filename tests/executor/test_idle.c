/* SPDX-License-Identifier: MIT */
/* Communicators that do nothing cost the others no time: workers do not look at them. comm_run() is wrapped. */
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "executor/session.h"
#include "executor/worker.h"
#include "fixture.h"
#include "railmux/railmux.h"
#include "ring/marks.h"
#include "tests/cmocka_all.h"
#include "util/memfd.h"

#define N      3u
#define IDLE   130u /* more than two words of bits */
#define BYTES  (64u << 10)
#define HANDLE 1000u
#define ID     500u

static _Atomic uint32_t n_idle_runs; /* of comms that are not the fixture's; only counted */

bool __real_comm_run(struct comm *comm, uint32_t first_rank, uint32_t numa, uint64_t *ret_bytes);
bool __wrap_comm_run(struct comm *comm, uint32_t first_rank, uint32_t numa, uint64_t *ret_bytes);

bool __wrap_comm_run(struct comm *comm, uint32_t first_rank, uint32_t numa, uint64_t *ret_bytes) {
        n_idle_runs += comm->id != FIXTURE_COMM;
        return __real_comm_run(comm, first_rank, numa, ret_bytes);
}

static int setup(void **state) {
        static struct fixture f;
        uint32_t lost;

        fixture_init(&f, N, BYTES);
        fixture_attach(&f, &lost);
        pthread_rwlock_wrlock(&f.executor.tables);
        for (uint32_t i = 0; i < IDLE; i++) {
                int marks_fd;

                assert_int_equal(memfd_new("marks", marks_bytes(N), &marks_fd), 0);
                fixture_attach_comm(&f, ID + i, HANDLE + i * N, marks_fd, &lost);
                close(marks_fd);
        }
        pthread_rwlock_unlock(&f.executor.tables);
        *state = &f;
        return 0;
}

static int teardown(void **state) {
        fixture_deinit(*state);
        return 0;
}

/* Until no worker has to look at any comm. Those that have changed hold no worker awake, as there is nothing to do. */
static void await_rest(struct fixture *f) {
        worker_pool_kick(f->executor.workers);
        for (bool busy = true; busy; sched_yield()) {
                pthread_rwlock_wrlock(&f->executor.tables); /* so no worker is in the middle of a look */
                busy = executor_busy_next(&f->executor, 0, f->executor.n_comms) < f->executor.n_comms;
                pthread_rwlock_unlock(&f->executor.tables);
        }
}

/* A barrier of the comm with these handles, which is its first. */
static void barrier_of(struct fixture *f, uint32_t handle) {
        uint32_t q[N];

        for (uint32_t r = 0; r < N; r++) {
                struct ring_request request = fixture_request(f, r, RING_OP_BARRIER, 0, 0, 0, 0);

                request.word[RING_W_COMM] = handle + r;
                request.word[RING_W_SEQUENCE] = 1;
                f->ranks[r].sequence--;
                q[r] = fixture_ring(f, r, &request);
        }
        for (uint32_t r = 0; r < N; r++)
                assert_int_equal(ring_status_code(fixture_wait(f, r, q[r])), RMX_OK);
}

static void rounds(struct fixture *f, uint32_t n) {
        for (uint32_t i = 0; i < n; i++) {
                uint32_t q[N];

                for (uint32_t r = 0; r < N; r++) {
                        struct ring_request request =
                                fixture_request(f, r, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, 100, 0);

                        q[r] = fixture_ring(f, r, &request);
                }
                for (uint32_t r = 0; r < N; r++)
                        assert_int_equal(ring_status_code(fixture_wait(f, r, q[r])), RMX_OK);
        }
}

static void test_not_looked_at(void **state) {
        struct fixture *f = *state;
        uint32_t before;

        rounds(f, 1);
        await_rest(f);
        before = n_idle_runs;
        rounds(f, 200);
        assert_int_equal(n_idle_runs, before);
}

/* They are there when they are needed, wherever they have come to stand when others went. */
static void test_awake_again(void **state) {
        struct fixture *f = *state;

        await_rest(f);
        for (uint32_t i = 0; i < IDLE; i += 3) {
                pthread_rwlock_wrlock(&f->executor.tables);
                comm_detach(comm_find(&f->executor, ID + i));
                pthread_rwlock_unlock(&f->executor.tables);
                executor_tidy(&f->executor);
        }
        await_rest(f);
        for (uint32_t i = 0; i < IDLE; i++) {
                if (i % 3)
                        barrier_of(f, HANDLE + i * N);
        }
        rounds(f, 1);
        await_rest(f);
}

/* Also to fail, with what was called. */
static void test_failing(void **state) {
        struct fixture *f = *state;
        struct ring_request request;
        uint32_t q[2];

        await_rest(f);
        for (uint32_t r = 0; r < 2; r++) {
                request = fixture_request(f, r, r ? RING_OP_BARRIER : RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, r ? 0 : 8,
                                          0);
                request.word[RING_W_COMM] = HANDLE + 70 * N + r;
                request.word[RING_W_SEQUENCE] = 1;
                q[r] = fixture_ring(f, r, &request);
        }
        pthread_rwlock_wrlock(&f->executor.tables);
        comm_fail(comm_find(&f->executor, ID + 70), ring_status(RMX_E_ABORTED, -1), "enough");
        pthread_rwlock_unlock(&f->executor.tables);
        for (uint32_t r = 0; r < 2; r++)
                assert_int_not_equal(ring_status_code(fixture_wait(f, r, q[r])), RMX_OK);
        await_rest(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_not_looked_at, setup, teardown),
                cmocka_unit_test_setup_teardown(test_awake_again, setup, teardown),
                cmocka_unit_test_setup_teardown(test_failing, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
