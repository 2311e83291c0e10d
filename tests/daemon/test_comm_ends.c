/* SPDX-License-Identifier: MIT */
/*
 * What other nodes hear of ranks and communicators that end here while those who should say so are busy: executors that
 * do not answer, and a service manager that does not.
 */
#include "tests/daemon/comm_nodes_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "railmux/railmux.h"
#include "tests/time_scale.h"
#include "util/clock.h"

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
        b.f.executor.rung = 5; /* less than its process says */
        assert_int_equal(take_ack(b.clients[0], send_comm_destroy(b.clients[0], b.handles[0], 7), NULL, 0), 0);
        left = take(&b, SAYS(LEFT))->left;
        assert_int_equal(left->rank, 2); /* and of the other one nothing more */
        assert_int_equal(left->last_sequence, 5);
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

/* Of which other nodes have patience for so long. */
static const char patient[] = "peer:\n"
                              "  listen: '127.0.0.1:0'\n"
                              "  cluster: test\n"
                              "  heartbeat_ms: 200\n"
                              "  lost_ms: 1600\n";

/* A service manager that is busy for long, as systemd when it reads its units again: not every call waits for it, and
 * none for as long as other nodes have patience. */
static void test_beside_a_busy_service_manager(void **unused) {
        struct client *client;
        unsigned int barriers, stored;
        uint64_t began_ns;
        struct fixture f;

        (void)unused;
        fixture_setup(&f, patient, true);
        client = client_open(&f);
        barriers = f.n_barriers;
        stored = f.n_store;
        f.busy = true;
        began_ns = clock_now_ns();
        for (uint32_t i = 1; i <= 4; i++)
                expect_reply(client, send_buffer_create(client, i, 4096));
        assert_true(clock_now_ns() - began_ns < UINT64_C(4000000000) * time_scale()); /* it waits for 400 ms, once */
        f.busy = false;
        fixture_wait(&f, fixture_ctl_says(&f, "status", NULL, "slow to keep descriptors"));
        fixture_wait(&f, f.n_store >= stored + 4);
        assert_int_equal(f.n_barriers, barriers + 1);
        /* In the end it is waited for again, and then all is well. */
        for (uint32_t i = 5; fixture_ctl_says(&f, "status", NULL, "slow to keep descriptors"); i++) {
                expect_reply(client, send_buffer_create(client, i, 4096));
                assert_int_equal(take_ack(client, send_buffer_destroy(client, i), NULL, 0), 0);
        }
        assert_true(f.n_barriers > barriers + 1);
        fixture_teardown(&f);
}

/* Until there is no room for a message to it. */
static void fill_service_manager(const struct fixture *f) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        assert_true(fd >= 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", f->notify);
        while (sendto(fd, "FILL=1", 6, 0, (struct sockaddr *)&address, sizeof(address)) == 6) {
        }
        assert_int_equal(errno, EAGAIN);
        close(fd);
}

/* One that does not even read any more: nobody waits for it here either, and in the end it keeps what it should. */
static void test_beside_a_full_service_manager(void **unused) {
        struct client *client;
        struct fixture f;

        (void)unused;
        fixture_setup(&f, patient, true);
        client = client_open(&f);
        for (uint32_t i = 1; i <= 2; i++)
                expect_reply(client, send_buffer_create(client, i, 4096));
        f.busy = true;
        fill_service_manager(&f);
        for (uint32_t i = 3; i <= 6; i++)
                expect_reply(client, send_buffer_create(client, i, 4096));
        for (uint32_t i = 2; i <= 3; i++)
                assert_int_equal(take_ack(client, send_buffer_destroy(client, i), NULL, 0), 0);
        expect_reply(client, send_buffer_create(client, 2, 4096));
        fixture_assert_says(&f, "status", NULL, "slow to keep descriptors");
        f.busy = false;
        for (uint32_t i = 1; i <= 6; i++) {
                char name[16];

                snprintf(name, sizeof(name), "b1.%u", i);
                if (i != 3)
                        fixture_wait(&f, fixture_stored(&f, name) >= 0);
                else
                        assert_int_equal(fixture_stored(&f, name), -1);
        }
        fixture_teardown(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_ends_while_it_leaves),
                cmocka_unit_test(test_aborts_beside_a_busy_executor),
                cmocka_unit_test(test_beside_a_busy_service_manager),
                cmocka_unit_test(test_beside_a_full_service_manager),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
