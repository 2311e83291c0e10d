/* SPDX-License-Identifier: MIT */
/* A planned end: what has begun is finished, whatever stands before it in the rings, and nothing else is begun. */
#include "tests/cmocka_all.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "executor/worker.h"
#include "fixture.h"
#include "railmux/railmux.h"
#include "util/clock.h"
#include "util/memfd.h"

#define N            3u
#define BYTES        (1u << 16)
#define OTHER_COMM   8u
#define OTHER_HANDLE 20u
#define NOBODY       UINT32_MAX

/* The host backend; but one rank's work is kept where it is. */
static _Atomic uint32_t held_rank;

static int held_progress(struct gpu_comm *comm, uint32_t rank, uint64_t max_bytes) {
        return rank == atomic_load(&held_rank) ? GPU_IDLE : gpu_host_ops.progress(comm, rank, max_bytes);
}

static struct gpu_ops held_ops;
static int other_marks_fd;

static void attach(struct fixture *f) {
        uint32_t lost;

        fixture_attach(f, &lost);
        assert_int_equal(lost, 0);
        pthread_rwlock_wrlock(&f->executor.tables);
        fixture_attach_comm(f, OTHER_COMM, OTHER_HANDLE, other_marks_fd, &lost);
        pthread_rwlock_unlock(&f->executor.tables);
        assert_int_equal(lost, 0);
}

static int setup(void **state) {
        static struct fixture f;

        fixture_init(&f, N, BYTES);
        assert_int_equal(memfd_new("other", marks_bytes(N), &other_marks_fd), 0);
        held_ops = gpu_host_ops;
        held_ops.progress = held_progress;
        f.ops = &held_ops;
        atomic_store(&held_rank, NOBODY);
        attach(&f);
        *state = &f;
        return 0;
}

static int teardown(void **state) {
        atomic_store(&held_rank, NOBODY);
        fixture_deinit(*state);
        close(other_marks_fd);
        return 0;
}

static uint32_t barrier(struct fixture *f, uint32_t rank) {
        struct ring_request request = fixture_request(f, rank, RING_OP_BARRIER, 0, 0, 0, 0);

        return fixture_ring(f, rank, &request);
}

/* The first one of the other comm. */
static uint32_t other_barrier(struct fixture *f, uint32_t rank) {
        struct ring_request request = fixture_request(f, rank, RING_OP_BARRIER, 0, 0, 0, 0);

        f->ranks[rank].sequence--;
        request.word[RING_W_COMM] = OTHER_HANDLE + rank;
        request.word[RING_W_SEQUENCE] = 1;
        return fixture_ring(f, rank, &request);
}

static uint32_t transfer(struct fixture *f, uint32_t rank, bool sends, uint32_t peer, uint32_t sequence) {
        const struct ring_group_entry entry = {
                .operation = sends ? RING_OP_SEND : RING_OP_RECV,
                .type = RMX_INT32,
                .peer = peer,
                .sequence = sequence,
                .count = 100 + sequence,
                .offset = sends ? 0 : BYTES / 2,
                .buffer = FIXTURE_BUFFER,
        };

        return fixture_ring_single(f, rank, &entry);
}

/* While draining, workers go to sleep over lines, and a timer of the executor's wakes them again and again. */
static uint32_t wait_draining(struct fixture *f, uint32_t rank, uint32_t q) {
        const uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000);
        uint32_t status;

        while (ring_producer_poll(&f->ranks[rank].producer, q, &status) == RING_E_AGAIN) {
                assert_true(clock_now_ns() < end_ns);
                worker_pool_kick(f->executor.workers);
                sched_yield();
        }
        ring_producer_release(&f->ranks[rank].producer, q);
        return status;
}

static void expect_ok(struct fixture *f, uint32_t rank, uint32_t q) {
        assert_int_equal(wait_draining(f, rank, q), ring_status(RMX_OK, -1));
}

static void drain(struct fixture *f) {
        pthread_rwlock_wrlock(&f->executor.tables);
        atomic_store(&f->executor.draining, true);
        pthread_rwlock_unlock(&f->executor.tables);
}

/* Ends the executor as a drain does, and begins the next one. */
static void restart(struct fixture *f) {
        assert_true(executor_quiet(&f->executor));
        fixture_detach(f);
        attach(f);
}

/* Rank 0 waits in a collective; the others come to theirs only behind a send that nobody has begun. */
static void behind_a_send(struct fixture *f, uint32_t (*ring_collective)(struct fixture *, uint32_t)) {
        uint32_t q[N], left[N], send, receive;

        q[0] = ring_collective(f, 0);
        fixture_wait_entered(f, 0, q[0]);
        drain(f);
        send = transfer(f, 1, true, 2, 1);
        q[1] = ring_collective(f, 1);
        receive = transfer(f, 2, false, 1, 1);
        q[2] = ring_collective(f, 2);
        expect_ok(f, 1, send);
        expect_ok(f, 2, receive);
        for (uint32_t r = 0; r < N; r++)
                expect_ok(f, r, q[r]);
        for (uint32_t r = 0; r < N; r++) /* for the next executor */
                left[r] = barrier(f, r);
        restart(f);
        for (uint32_t r = 0; r < N; r++)
                expect_ok(f, r, left[r]);
}

static void own_comm(void **state) {
        behind_a_send(*state, barrier);
}

static void other_comm(void **state) {
        behind_a_send(*state, other_barrier);
}

/* Rank 0 waits in a receive, whose send stands behind another one that nobody has begun. */
static void behind_another_send(void **state) {
        struct fixture *f = *state;
        uint32_t receive = transfer(f, 0, false, 1, 1), sends[2], other;

        fixture_wait_entered(f, 0, receive);
        drain(f);
        sends[0] = transfer(f, 1, true, 2, 1);
        sends[1] = transfer(f, 1, true, 0, 1);
        other = transfer(f, 2, false, 1, 1);
        expect_ok(f, 0, receive);
        expect_ok(f, 2, other);
        expect_ok(f, 1, sends[0]);
        expect_ok(f, 1, sends[1]);
        restart(f);
}

/* Both sides of a transfer have come: nobody waits for a call, and it must not keep the drain going for ever. */
static void not_for_a_matched_one(void **state) {
        struct fixture *f = *state;
        uint32_t send, receive, next[2];

        atomic_store(&held_rank, 1);
        send = transfer(f, 0, true, 1, 1);
        receive = transfer(f, 1, false, 0, 1);
        fixture_wait_entered(f, 0, send);
        fixture_wait_entered(f, 1, receive);
        drain(f);
        next[0] = transfer(f, 0, true, 1, 2);
        next[1] = transfer(f, 1, false, 0, 2);
        for (uint32_t i = 0; i < 4; i++) { /* answered by rounds over all rings */
                struct ring_request stranger = {0};

                ring_request_set_head(&stranger, RING_OP_BARRIER, 0, 0);
                stranger.word[RING_W_COMM] = 99;
                assert_int_equal(ring_status_code(wait_draining(f, 2, fixture_ring(f, 2, &stranger))), RMX_E_INVALID);
        }
        atomic_store(&held_rank, NOBODY);
        worker_pool_kick(f->executor.workers);
        expect_ok(f, 0, send);
        expect_ok(f, 1, receive);
        assert_false(fixture_latched(f, 0, next[0]));
        assert_false(fixture_latched(f, 1, next[1]));
        restart(f);
        expect_ok(f, 0, next[0]);
        expect_ok(f, 1, next[1]);
}

static void *look(void *argument) {
        return (void *)(uintptr_t)executor_quiet(argument);
}

/* executor_quiet looks at the tables only when no worker is inside. */
static void quiet_waits_for_workers(void **state) {
        struct fixture *f = *state;
        pthread_t thread;
        void *quiet;

        pthread_rwlock_rdlock(&f->executor.tables); /* as a worker does */
        assert_int_equal(pthread_create(&thread, NULL, look, &f->executor), 0);
        /* With a writer waiting no other reader gets in. */
        while (!pthread_rwlock_tryrdlock(&f->executor.tables)) {
                pthread_rwlock_unlock(&f->executor.tables);
                if (!pthread_tryjoin_np(thread, &quiet))
                        fail_msg("executor_quiet did not wait");
                sched_yield();
        }
        pthread_rwlock_unlock(&f->executor.tables);
        assert_int_equal(pthread_join(thread, &quiet), 0);
        assert_true(quiet);
}

int main(void) {
#define DRAIN_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                DRAIN_TEST(own_comm),
                DRAIN_TEST(other_comm),
                DRAIN_TEST(behind_another_send),
                DRAIN_TEST(not_for_a_matched_one),
                DRAIN_TEST(quiet_waits_for_workers),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
