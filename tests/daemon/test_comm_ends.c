/* SPDX-License-Identifier: MIT */
/*
 * What other nodes hear of ranks and communicators that end here while those who should say so are busy: executors that
 * do not answer.
 */
#include "tests/daemon/comm_nodes_fixture.h"

#include "railmux/railmux.h"

/* A rank has begun to leave, and its process ends before an executor has answered. It has left all the same. */
static void test_ends_while_it_leaves(void **unused) {
        const Railmux__Peer__Left *left;
        struct both b;

        (void)unused;
        setup_follower(&b);
        b.f.executor.hold = true;
        send_comm_destroy(b.clients[1], b.handles[1], 7);
        both_wait(&b, b.f.executor.count[RAILMUX__EXECUTOR__MESSAGE__BODY_RANK_LEAVE]);
        assert_false(has_heard(&b.n, SAYS(LEFT)));
        client_close(b.clients[1]);
        left = take(&b, SAYS(LEFT))->left;
        assert_true(left->key == b.key);
        assert_int_equal(left->rank, 3);
        assert_int_equal(left->last_sequence, 7);
        executor_release(&b.f);
        b.clients[1] = client_open(&b.f);
        assert_int_equal(take_ack(b.clients[0], send_comm_destroy(b.clients[0], b.handles[0], 7), NULL, 0), 0);
        assert_int_equal(take(&b, SAYS(LEFT))->left->rank, 2); /* and of the other one nothing more */
        finish(&b);
}

/* An abort is told to other nodes at once, whatever the executor does here. */
static void test_aborts_beside_a_busy_executor(void **unused) {
        const Railmux__Peer__Failed *failed;
        struct both b;
        uint64_t call;

        (void)unused;
        setup_follower(&b);
        b.f.executor.deaf = true;
        call = send_comm_abort(b.clients[0], b.handles[0]);
        failed = take(&b, SAYS(FAILED))->failed;
        assert_true(failed->key == b.key);
        assert_int_equal(failed->code, RMX_E_ABORTED);
        assert_int_equal(failed->rank, 2);
        assert_false(client_has_event(b.clients[1], RAILMUX__SESSION__EVENT__BODY_COMM_FAILED));
        b.f.executor.deaf = false;
        assert_int_equal(take_ack(b.clients[0], call, NULL, 0), 0);
        settle(&b);
        assert_false(has_heard(&b.n, SAYS(FAILED))); /* once */
        finish(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_ends_while_it_leaves),
                cmocka_unit_test(test_aborts_beside_a_busy_executor),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
