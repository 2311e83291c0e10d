/* SPDX-License-Identifier: MIT */
/* A destroy that waits for another rank in one thread, and an abort of the same communicator in another. */
#include "tests/nccl/pair.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "util/clock.h"

enum { ABORTS = 4 };

struct caller {
        pthread_t thread;
        ncclComm_t comm;
        ncclResult_t result;
        int32_t value;
};

static void *destroy(void *userdata) {
        struct caller *caller = userdata;

        caller->result = ncclCommDestroy(caller->comm);
        return NULL;
}

static void *reduce(void *userdata) {
        struct caller *caller = userdata;

        caller->result = ncclAllReduce(&caller->value, &caller->value, 1, ncclInt32, ncclSum, caller->comm, NULL);
        return NULL;
}

static void *break_it(void *userdata) {
        struct caller *caller = userdata;

        caller->result = ncclCommAbort(caller->comm);
        return NULL;
}

static void start(struct caller *caller, ncclComm_t comm, void *(*run)(void *userdata)) {
        *caller = (struct caller){.comm = comm};
        assert_int_equal(pthread_create(&caller->thread, NULL, run, caller), 0);
}

static void expect(struct caller *caller, ncclResult_t result) {
        pthread_join(caller->thread, NULL);
        assert_int_equal(caller->result, result);
}

/* It takes no calls any more: the destroy is at its waiting, which nobody ends but the tests. */
static void await_destroy(ncclComm_t comm) {
        int n;

        while (!ncclCommCount(comm, &n))
                sched_yield();
}

static void await_line(uint32_t n) {
        while (fake_lines(&fake) < n)
                sched_yield();
}

/* If the abort does not break it, the destroy never returns: the time limit of the test ends it. */
static void destroy_and_abort(ncclComm_t comm) {
        struct caller destroyer;

        start(&destroyer, comm, destroy);
        await_destroy(comm);
        assert_int_equal(ncclCommAbort(comm), ncclSuccess);
        expect(&destroyer, ncclSuccess);
        /* The end was the destroy's. */
        assert_int_equal(ncclCommAbort(comm), ncclInvalidArgument);
        assert_int_equal(ncclCommDestroy(comm), ncclInvalidArgument);
}

/* The other rank has heard of it, and handles are good for others. */
static void leave(ncclComm_t other) {
        ncclComm_t again[2];
        int32_t in = 7, out = 0;

        assert_int_equal(settled(other), ncclSuccess);
        in_progress(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, other, NULL));
        assert_int_equal(settled(other), ncclRemoteError);
        assert_int_equal(ncclCommAbort(other), ncclSuccess);
        pair_new(again, false);
        in_progress(transfers(again[0], true, &in, 1));
        receive(again[1], &out, 1);
        assert_int_equal(settled(again[1]), ncclSuccess);
        assert_int_equal(out, 7);
        pair_destroy(again);
}

/* What was called without blocking. */
static void test_pending(void **state) {
        uint32_t before = fake_calls(&fake, BODY(COMM_ABORT));
        int32_t in = 1, out = -1;
        ncclComm_t comms[2];

        (void)state;
        pair_new(comms, false);
        assert_int_equal(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comms[0], NULL), ncclInProgress);
        destroy_and_abort(comms[0]);
        assert_true(fake_calls(&fake, BODY(COMM_ABORT)) > before);
        assert_int_equal(out, -1);
        leave(comms[1]);
}

/* More than is started at once. */
static void test_many(void **state) {
        static int32_t in[MANY];
        ncclComm_t comms[2];

        (void)state;
        pair_new(comms, false);
        assert_int_equal(transfers(comms[0], true, in, MANY), ncclInProgress);
        destroy_and_abort(comms[0]);
        leave(comms[1]);
}

/* A third thread is in a call. */
static void test_call(void **state) {
        uint32_t lines = fake_lines(&fake);
        struct caller caller;
        ncclComm_t comms[2];

        (void)state;
        pair_new(comms, true);
        start(&caller, comms[0], reduce);
        await_line(lines + 1);
        destroy_and_abort(comms[0]);
        expect(&caller, ncclRemoteError);
        assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
}

/* A group of the same thread holds it until its end, and the destroy cannot wait for that once it is broken. */
static void test_held(void **state) {
        struct caller destroyer;
        ncclComm_t comms[2];
        int32_t value = 0;

        (void)state;
        pair_new(comms, true);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[0], NULL), ncclSuccess);
        start(&destroyer, comms[0], destroy);
        await_destroy(comms[0]);
        assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
        expect(&destroyer, ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclRemoteError);
        assert_int_equal(ncclCommAbort(comms[0]), ncclInvalidArgument);
        assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
}

/* What is made from it holds it until the end of a group, which has recorded calls for others. */
static void test_held_by_split(void **state) {
        uint32_t left = fake_calls(&fake, BODY(COMM_DESTROY));
        struct caller aborter;
        ncclComm_t comms[2], others[2], child;
        int32_t value = 0;

        (void)state;
        for (int called = 0; called < 2; called++) {
                pair_new(comms, true);
                pair_new(others, true);
                assert_int_equal(ncclGroupStart(), ncclSuccess);
                assert_int_equal(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, others[0], NULL), ncclSuccess);
                assert_int_equal(ncclCommSplit(comms[0], 0, 0, &child, NULL), ncclSuccess);
                start(&aborter, comms[0], break_it);
                expect(&aborter, ncclSuccess);
                if (called) /* wrong, so nothing of the group is done */
                        assert_int_equal(ncclAllReduce(NULL, NULL, 1, ncclInt32, ncclSum, NULL, NULL),
                                         ncclInvalidArgument);
                assert_int_equal(ncclGroupEnd(), called ? ncclInvalidArgument : ncclInvalidUsage);
                assert_null(child);
                fake_wait_calls(&fake, BODY(COMM_DESTROY), left + 1);
                assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
                pair_destroy(others);
                left += 4;
                fake_wait_calls(&fake, BODY(COMM_DESTROY), left);
        }
}

static void *reduce_and_destroy(void *userdata) {
        struct caller *caller = userdata;

        caller->result = ncclGroupStart();
        if (!caller->result)
                caller->result =
                        ncclAllReduce(&caller->value, &caller->value, 1, ncclInt32, ncclSum, caller->comm, NULL);
        if (!caller->result)
                caller->result = ncclCommDestroy(caller->comm);
        if (!caller->result)
                caller->result = ncclGroupEnd();
        return NULL;
}

/* It is at the end of a group, which waits for a call. */
static void test_group(void **state) {
        uint32_t lines = fake_lines(&fake);
        struct caller destroyer;
        ncclComm_t comms[2];

        (void)state;
        pair_new(comms, true);
        start(&destroyer, comms[0], reduce_and_destroy);
        await_line(lines + 1);
        assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
        expect(&destroyer, ncclRemoteError);
        assert_int_equal(ncclCommAbort(comms[0]), ncclInvalidArgument);
        assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
}

/* Of one thread, in one group: that is two ends. */
static void test_group_twice(void **state) {
        ncclComm_t comms[2];

        (void)state;
        pair_new(comms, false);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclCommDestroy(comms[0]), ncclSuccess);
        assert_int_equal(ncclCommAbort(comms[0]), ncclInvalidArgument);
        assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
        assert_int_equal(ncclCommAbort(comms[0]), ncclInvalidArgument);
        assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
}

/* Several at once, some of which may come after the end. */
static void test_several(void **state) {
        (void)state;
        for (int turn = 0; turn < 50; turn++) {
                struct caller destroyer, aborts[ABORTS];
                int32_t in = 1, out = -1;
                ncclComm_t comms[2];
                int n_good = 0;

                pair_new(comms, false);
                assert_int_equal(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comms[0], NULL), ncclInProgress);
                start(&destroyer, comms[0], destroy);
                await_destroy(comms[0]);
                for (int i = 0; i < ABORTS; i++)
                        start(&aborts[i], comms[0], break_it);
                for (int i = 0; i < ABORTS; i++) {
                        pthread_join(aborts[i].thread, NULL);
                        n_good += aborts[i].result == ncclSuccess;
                        if (aborts[i].result)
                                assert_int_equal(aborts[i].result, ncclInvalidArgument);
                }
                assert_true(n_good >= 1);
                expect(&destroyer, ncclSuccess);
                assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
        }
}

/* The end of an abort is its own: a destroy and other aborts beside it are refused, as before. */
static void test_second_end(void **state) {
        ncclComm_t comms[2];

        (void)state;
        pair_new(comms, false);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
        assert_int_equal(ncclCommAbort(comms[0]), ncclInvalidArgument);
        assert_int_equal(ncclCommDestroy(comms[0]), ncclInvalidArgument);
        assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
        assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
}

/* Both come back while the daemon stands still, and it hears of the end when it goes on. */
static void test_deaf(void **state) {
        uint32_t left = fake_calls(&fake, BODY(COMM_DESTROY));
        uint64_t start_ns = clock_now_ns();
        struct caller destroyer;
        int32_t in = 1, out = -1;
        ncclComm_t comms[2];

        (void)state;
        pair_new(comms, false);
        assert_int_equal(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comms[0], NULL), ncclInProgress);
        start(&destroyer, comms[0], destroy);
        await_destroy(comms[0]);
        fake_deafen(&fake, true);
        assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
        expect(&destroyer, ncclSuccess);
        assert_true(clock_now_ns() - start_ns < UINT64_C(10000000000));
        assert_int_equal(fake_calls(&fake, BODY(COMM_DESTROY)), left);
        /* It is on its way: whoever comes now is not needed, and does no harm. */
        assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
        fake_deafen(&fake, false);
        fake_wait_calls(&fake, BODY(COMM_DESTROY), left + 1);
        assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
        fake_wait_calls(&fake, BODY(COMM_DESTROY), left + 2);
}

/* Nothing is under way: the destroy waits for the daemon only. */
static void test_deaf_leave(void **state) {
        uint32_t left = fake_calls(&fake, BODY(COMM_DESTROY));
        struct caller destroyer;
        ncclComm_t comms[2];

        (void)state;
        pair_new(comms, true);
        fake_deafen(&fake, true);
        start(&destroyer, comms[0], destroy);
        fake_wait_unread(&fake);
        assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
        expect(&destroyer, ncclSuccess); /* otherwise the time limit of the test ends it */
        assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
        assert_int_equal(ncclCommDestroy(comms[0]), ncclInvalidArgument);
        assert_int_equal(fake_calls(&fake, BODY(COMM_DESTROY)), left);
        fake_deafen(&fake, false);
        fake_wait_calls(&fake, BODY(COMM_DESTROY), left + 1);
        assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_pending),       cmocka_unit_test(test_many),
                cmocka_unit_test(test_call),          cmocka_unit_test(test_held),
                cmocka_unit_test(test_held_by_split), cmocka_unit_test(test_group),
                cmocka_unit_test(test_group_twice),   cmocka_unit_test(test_several),
                cmocka_unit_test(test_second_end),    cmocka_unit_test(test_deaf),
                cmocka_unit_test(test_deaf_leave),
        };

        return cmocka_run_group_tests(tests, pair_start, pair_stop);
}
