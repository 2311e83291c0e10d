/* SPDX-License-Identifier: MIT */
/* What ends a communicator, a rank or a session does not wait behind the buffers of others that wait for an executor,
 * and nothing of others behind communicators. */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "railmux/railmux.h"

#define SAYS(which) RAILMUX__EXECUTOR__MESSAGE__BODY_##which
#define BUFFERS     200u
#define WINDOW      64u /* EXECUTOR_WINDOW */

static struct fixture f;
static struct client *many, *others[2];
static uint32_t own, handles[2];

/* An executor that answers nothing has been sent as many calls as may be; the rest waits. */
static int setup(void **unused) {
        (void)unused;
        fixture_setup(&f, NULL, false);
        many = client_open(&f);
        for (unsigned int i = 0; i < 2; i++)
                others[i] = client_open(&f);
        make_comm(&many, 1, &own);
        make_comm(others, 2, handles);
        fixture_wait(&f, f.executor.n_sessions == 3);
        f.executor.hold = true;
        for (uint32_t i = 1; i <= BUFFERS; i++)
                send_buffer_create(many, i, 4096);
        fixture_wait(&f, f.executor.count[SAYS(BUFFER_IMPORT)] == WINDOW);
        return 0;
}

static int teardown(void **unused) {
        (void)unused;
        fixture_wait(&f, f.executor.count[SAYS(BUFFER_IMPORT)] == BUFFERS);
        client_close(many);
        for (unsigned int i = 0; i < 2; i++)
                if (others[i])
                        client_close(others[i]);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
        return 0;
}

/* A call of `client` has been read by railmuxd before this is answered. */
static void round_trip(struct client *client) {
        assert_int_equal(take_ack(client, send_ring_open(client, 77), NULL, 0), RMX_E_INVALID);
}

static void test_abort(void **unused) {
        uint64_t call;

        (void)unused;
        call = send_comm_abort(others[0], handles[0]);
        round_trip(others[0]);
        executor_release(&f);
        assert_int_equal(take_ack(others[0], call, NULL, 0), 0);
        assert_int_equal(f.executor.import_count, WINDOW);
}

static void test_leave(void **unused) {
        uint64_t call;

        (void)unused;
        call = send_comm_destroy(others[0], handles[0], 0);
        round_trip(others[0]);
        executor_release(&f);
        assert_int_equal(take_ack(others[0], call, NULL, 0), 0);
        assert_int_equal(f.executor.import_count, WINDOW);
}

static void test_end(void **unused) {
        (void)unused;
        client_close(others[0]);
        others[0] = NULL;
        round_trip(others[1]);
        executor_release(&f);
        fixture_wait(&f, f.executor.n_sessions == 2);
        assert_int_equal(f.executor.import_count, WINDOW);
}

/* Its own wait before it. */
static void test_own(void **unused) {
        uint64_t call;

        (void)unused;
        call = send_comm_destroy(many, own, 0);
        round_trip(many);
        executor_release(&f);
        assert_int_equal(take_ack(many, call, NULL, 0), 0);
        assert_int_equal(f.executor.import_count, BUFFERS);
}

#define COMMS    100u
#define ATTACHES 48u /* EXECUTOR_ATTACHES */

/* Comms that are being attached, and more that wait for it, leave room for all else, but for rings of their ranks. */
static void comms(bool given_up) {
        const uint32_t n = given_up ? ATTACHES : COMMS;
        uint64_t calls[COMMS], call;
        uint8_t id[COMM_ID_BYTES];
        uint32_t handle;

        fixture_setup(&f, NULL, false);
        many = client_open(&f);
        others[0] = client_open(&f);
        make_comm(&many, 1, &own);
        make_comm(&others[0], 1, &handle);
        f.executor.hold = true;
        for (uint32_t i = 0; i < n; i++) {
                call_id_create(many, id);
                calls[i] = send_comm_create(many, id, 1, 0);
        }
        round_trip(many);
        fixture_wait(&f, f.executor.count[SAYS(COMM_ATTACH)] == 2 + ATTACHES);
        send_ring_open(many, 0);
        send_buffer_create(others[0], 1, 4096);
        call = send_comm_abort(others[0], handle);
        fixture_wait(&f, f.executor.count[SAYS(BUFFER_IMPORT)] == 1 && f.executor.count[SAYS(COMM_ABORT)] == 1);
        send_ring_open(others[0], 0); /* all its comms are attached */
        fixture_wait(&f, f.executor.count[SAYS(RING_ATTACH)] == 1);
        assert_int_equal(f.executor.count[SAYS(COMM_ATTACH)], 2 + ATTACHES);
        if (given_up) { /* nor do the ends of those take the room */
                client_close(many);
                send_buffer_create(others[0], 2, 4096);
                fixture_wait(&f,
                             f.executor.count[SAYS(SESSION_DETACH)] == 1 && f.executor.count[SAYS(BUFFER_IMPORT)] == 2);
                assert_true(f.executor.count[SAYS(COMM_DETACH)] <= 1); /* that was there */
        }
        executor_release(&f);
        assert_int_equal(take_ack(others[0], call, NULL, 0), 0);
        if (!given_up) {
                for (uint32_t i = 0; i < n; i++)
                        assert_int_equal(take_comm(many, calls[i]).code, 0);
                fixture_wait(&f, f.executor.count[SAYS(RING_ATTACH)] == 2);
                client_close(many);
        }
        client_close(others[0]);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

static void test_comms(void **unused) {
        (void)unused;
        comms(false);
        comms(true);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_abort, setup, teardown),
                                           cmocka_unit_test_setup_teardown(test_leave, setup, teardown),
                                           cmocka_unit_test_setup_teardown(test_end, setup, teardown),
                                           cmocka_unit_test_setup_teardown(test_own, setup, teardown),
                                           cmocka_unit_test(test_comms)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
