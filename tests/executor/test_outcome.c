/* SPDX-License-Identifier: MIT */
/* What one side of a send was told the other side is told, too: after a second death, and when the comm fails. */
#include "tests/cmocka_all.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "executor/comm.h"
#include "executor/report.h"
#include "executor/worker.h"
#include "fixture.h"
#include "railmux/railmux.h"
#include "util/memfd.h"

#define N      3u
#define COUNT  300u
#define BYTES  (1u << 16)
#define NOBODY UINT32_MAX

/* The host backend; but a rank's worker is kept from telling that the rank's work is done. */
static _Atomic uint32_t held_rank;
static _Atomic bool held;

static int held_progress(struct gpu_comm *comm, uint32_t rank, uint64_t max_bytes) {
        int r = gpu_host_ops.progress(comm, rank, max_bytes);

        if (r != GPU_DONE)
                return r;
        while (rank == atomic_load(&held_rank)) {
                atomic_store(&held, true);
                sched_yield();
        }
        return r;
}

static struct gpu_ops held_ops;
static struct marks *marks; /* as an executor maps them, for leaving behind what a dead one would */

static int setup(void **state) {
        static struct fixture f;

        fixture_init(&f, N, BYTES);
        assert_int_equal(memfd_map(f.marks_fd, marks_bytes(N), 1, 1, (void **)&marks), 0);
        atomic_store(&marks->epoch, 1);
        atomic_store(&marks->version, MARKS_VERSION);
        held_ops = gpu_host_ops;
        held_ops.progress = held_progress;
        f.ops = &held_ops;
        atomic_store(&held_rank, NOBODY);
        atomic_store(&held, false);
        *state = &f;
        return 0;
}

static int teardown(void **state) {
        atomic_store(&held_rank, NOBODY);
        fixture_deinit(*state);
        memfd_unmap(marks, marks_bytes(N));
        return 0;
}

static struct marks_pair *pair(uint32_t sender, uint32_t receiver) {
        return &marks->pair[sender * N + receiver];
}

/* Each sequence of a pair has its own place in both buffers. */
static struct ring_group_entry entry(bool sends, uint32_t peer, uint32_t sequence) {
        return (struct ring_group_entry){
                .operation = sends ? RING_OP_SEND : RING_OP_RECV,
                .type = RMX_INT32,
                .peer = peer,
                .sequence = sequence,
                .count = COUNT,
                .offset = (sends ? 0 : BYTES / 2) + sequence * COUNT * sizeof(int32_t),
                .buffer = FIXTURE_BUFFER,
        };
}

static uint32_t ring(struct fixture *f, uint32_t rank, bool sends, uint32_t peer, uint32_t sequence) {
        struct ring_group_entry e = entry(sends, peer, sequence);

        return fixture_ring_single(f, rank, &e);
}

static int32_t value(uint32_t rank, uint32_t i) {
        return (int32_t)(i * 2654435761u + rank * 97u + 1);
}

static void fill(struct fixture *f) {
        for (uint32_t r = 0; r < N; r++) {
                for (uint32_t i = 0; i < BYTES / 8; i++)
                        ((int32_t *)f->ranks[r].buffer)[i] = value(r, i);
                memset(f->ranks[r].buffer + BYTES / 2, 0xa5, BYTES / 2);
        }
}

static void expect_data(const struct fixture *f, uint32_t sender, uint32_t receiver, uint32_t sequence) {
        const int32_t *out = (const int32_t *)(f->ranks[receiver].buffer + BYTES / 2);

        for (uint32_t i = sequence * COUNT; i < (sequence + 1) * COUNT; i++)
                assert_int_equal(out[i], value(sender, i));
}

/* While one worker is held it counts as awake, so a line does not wake the other one. */
static void wake(struct fixture *f) {
        if (f->attached)
                worker_pool_kick(f->executor.workers);
}

static void expect_code(struct fixture *f, uint32_t rank, uint32_t q, uint32_t code) {
        wake(f);
        assert_int_equal(ring_status_code(fixture_wait(f, rank, q)), code);
}

/* Rank 0's group has a lost send to rank 1, a good one, and a receive that is waited for. The good one is settled, and
 * rank 1 was told everything, when the next executor dies: of the group it must not be forgotten that it is lost.
 * `more`: a third send was rung by then, so that the lost range grows. */
static void second_death(struct fixture *f, bool more) {
        struct ring_group_entry entries[3] = {entry(true, 1, 1), entry(true, 1, 2), entry(false, 2, 1)};
        uint32_t group, third = 0, q;

        fill(f);
        atomic_store(&pair(0, 1)->rung[1], 1); /* the first executor died over rank 1's receive */
        fixture_spawn(f);
        expect_code(f, 1, ring(f, 1, false, 0, 1), RMX_E_LOST);
        group = fixture_ring_group(f, 0, entries, 3, RING_ARGUMENT_ALIGN);
        expect_code(f, 1, ring(f, 1, false, 0, 2), RMX_OK);
        expect_data(f, 0, 1, 2);
        if (more) {
                third = ring(f, 0, true, 1, 3);
                while (atomic_load(&pair(0, 1)->rung[0]) != 3)
                        sched_yield();
        }
        fixture_kill(f);
        /* As if the receive had become final just before. */
        atomic_store(&pair(2, 0)->rung[0], 1);
        atomic_store(&pair(2, 0)->final, 1);
        fixture_spawn(f);
        expect_code(f, 0, group, RMX_E_LOST);
        expect_code(f, 2, ring(f, 2, true, 0, 1), RMX_OK);
        if (more)
                expect_code(f, 0, third, RMX_E_LOST);
        else
                third = ring(f, 0, true, 1, 3);
        expect_code(f, 1, ring(f, 1, false, 0, 3), more ? RMX_E_LOST : RMX_OK);
        q = ring(f, 0, true, 1, 4);
        expect_code(f, 1, ring(f, 1, false, 0, 4), RMX_OK);
        expect_code(f, 0, q, RMX_OK);
        expect_data(f, 0, 1, 4);
        third = more ? 4 : 3; /* the first one after all were told */
        assert_int_equal(atomic_load(&pair(0, 1)->lost), (uint64_t)third << 32 | third);
}

static void range_stays(void **state) {
        second_death(*state, false);
}

static void range_grows(void **state) {
        second_death(*state, true);
}

/* A group with a lost send waits for nothing but our look at the other one's receiver. The next request of its rank
 * must not run before it is answered: with that one's end the lost range is emptied. */
static void nothing_overtakes(void **state) {
        struct fixture *f = *state;
        struct ring_group_entry entries[2] = {entry(true, 1, 1), entry(true, 2, 1)};
        uint32_t group, send, q[2], receive, lost, status;

        fill(f);
        atomic_store(&pair(0, 1)->rung[1], 1);
        fixture_attach(f, &lost);
        assert_int_equal(lost, 1);
        atomic_store(&held_rank, 2);
        receive = ring(f, 2, false, 0, 1);
        group = fixture_ring_group(f, 0, entries, 2, RING_ARGUMENT_ALIGN);
        while (!atomic_load(&held))
                sched_yield();
        send = ring(f, 0, true, 1, 2);
        for (uint32_t s = 1; s <= 2; s++)
                q[s - 1] = ring(f, 1, false, 0, s);
        expect_code(f, 1, q[0], RMX_E_LOST);
        assert_int_equal(ring_producer_wait(&f->ranks[1].producer, q[1], 20000000, &status), RING_E_AGAIN);
        assert_int_equal(atomic_load(&pair(0, 1)->lost), 1);
        atomic_store(&held_rank, NOBODY);
        expect_code(f, 0, group, RMX_E_LOST);
        expect_code(f, 2, receive, RMX_OK);
        expect_data(f, 0, 2, 1);
        expect_code(f, 0, send, RMX_OK);
        expect_code(f, 1, q[1], RMX_OK);
        expect_data(f, 0, 1, 2);
}

/* The comm fails after the receiver was told and before the sender's worker has come back. */
static void error_after_the_end(void **state) {
        struct fixture *f = *state;
        struct ring_request bad;
        uint32_t send, q, lost;

        fill(f);
        fixture_attach(f, &lost);
        atomic_store(&held_rank, 0);
        send = ring(f, 0, true, 1, 1);
        expect_code(f, 1, ring(f, 1, false, 0, 1), RMX_OK);
        expect_data(f, 0, 1, 1);
        while (!atomic_load(&held))
                sched_yield();
        bad = fixture_request(f, 2, RING_OP_BARRIER, 0, 0, 0, 0);
        bad.word[RING_W_FLAGS] = 1;
        q = fixture_ring(f, 2, &bad);
        wake(f);
        while (!atomic_load(&marks->error))
                sched_yield();
        atomic_store(&held_rank, NOBODY);
        expect_code(f, 0, send, RMX_OK);
        expect_code(f, 2, q, RMX_E_INVALID);
        expect_code(f, 0, ring(f, 0, true, 1, 2), RMX_E_INVALID);
}

/* The same with a death in between: the successor finds the error and the settled send. */
static void error_in_marks(void **state) {
        struct fixture *f = *state;
        uint32_t lost, status;

        atomic_store(&pair(0, 1)->rung[0], 1);
        atomic_store(&pair(0, 1)->rung[1], 1);
        atomic_store(&pair(0, 1)->final, 1);
        atomic_store(&marks->error, ring_status(RMX_E_ABORTED, 2));
        fixture_attach(f, &lost);
        assert_int_equal(lost, 0);
        expect_code(f, 0, ring(f, 0, true, 1, 1), RMX_OK);
        for (uint32_t s = 2; s < 9; s += 3) { /* also where no sequence is due */
                status = fixture_wait(f, 0, ring(f, 0, true, 1, s));
                assert_int_equal(status, ring_status(RMX_E_ABORTED, 2));
        }
}

static unsigned int n_inventory, n_failed;

static int hear(void *userdata, const Railmux__Executor__Message *message) {
        const Railmux__Executor__CommKey *key;

        (void)userdata;
        if (message->body_case == RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_FAILED) {
                n_failed++;
                return 0;
        }
        assert_int_equal(message->body_case, RAILMUX__EXECUTOR__MESSAGE__BODY_INVENTORY);
        n_inventory++;
        assert_int_equal(message->inventory->n_comms, 1);
        key = message->inventory->comms[0];
        assert_int_equal(key->code, RMX_E_INVALID);
        assert_int_equal(key->failed, 1 + 2);
        assert_string_equal(key->message, "a test's reason");
        return 0;
}

/* Each railmuxd that comes hears of a failure with all that is known, once. */
static void inventory(void **state) {
        struct fixture *f = *state;
        uint32_t lost;

        fixture_attach(f, &lost);
        pthread_rwlock_wrlock(&f->executor.tables);
        comm_fail(f->executor.comms, ring_status(RMX_E_INVALID, 2), "a test's reason");
        for (unsigned int round = 1; round <= 2; round++) {
                assert_int_equal(report_inventory(&f->executor, hear, NULL), 0);
                assert_int_equal(report_failures(&f->executor, hear, NULL), 0);
                assert_true(n_inventory == round && n_failed == 0);
        }
        pthread_rwlock_unlock(&f->executor.tables);
}

int main(void) {
#define OUTCOME_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                OUTCOME_TEST(range_stays),         OUTCOME_TEST(range_grows),    OUTCOME_TEST(nothing_overtakes),
                OUTCOME_TEST(error_after_the_end), OUTCOME_TEST(error_in_marks), OUTCOME_TEST(inventory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
