/* SPDX-License-Identifier: MIT */
/* Ranks that give up joining: before, while and after the others come. */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "railmux/railmux.h"
#include <string.h>

#define FAILED RAILMUX__SESSION__EVENT__BODY_COMM_FAILED
#define RANKS  3

static void open_clients(struct fixture *f, struct client **clients) {
        for (uint32_t i = 0; i < RANKS; i++)
                clients[i] = client_open(f);
}

static void close_clients(struct fixture *f, struct client **clients) {
        for (uint32_t i = 0; i < RANKS; i++)
                client_close(clients[i]);
        fixture_wait(f, f->executor.n_sessions == 0);
        fixture_wait(f, f->executor.n_comms == 0);
        fixture_wait_idle(f);
        fixture_teardown(f);
}

/* Whoever waits is told, whoever comes later too, and with the same id they may try again. */
static void test_gathering(void **unused) {
        struct fixture f;
        struct client *clients[RANKS];
        uint64_t calls[RANKS], other;
        struct comm_answer answer;
        uint8_t id[COMM_ID_BYTES], another[COMM_ID_BYTES];

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients);
        call_id_create(clients[0], id);
        call_id_create(clients[0], another);
        other = send_comm_create(clients[0], another, RANKS, 0);
        for (uint32_t r = 0; r < 2; r++)
                calls[r] = send_comm_create(clients[r], id, RANKS, r);
        /* Not theirs to cancel, or not there. */
        assert_int_equal(take_ack(clients[0], send_join_cancel(clients[0], id, 1), NULL, 0), 0);
        assert_int_equal(take_ack(clients[2], send_join_cancel(clients[2], id, 0), NULL, 0), 0);
        assert_int_equal(take_ack(clients[2], send_join_cancel(clients[2], id, 2), NULL, 0), 0);
        assert_int_equal(take_ack(clients[2], send_join_cancel(clients[2], id, 4711), NULL, 0), 0);
        assert_null(client_find(clients[0], calls[0]));

        assert_int_equal(take_ack(clients[1], send_join_cancel(clients[1], id, 1), NULL, 0), 0);
        for (uint32_t r = 0; r < 2; r++) {
                answer = take_comm(clients[r], calls[r]);
                assert_int_equal(answer.code, RMX_E_ABORTED);
                assert_non_null(strstr(answer.text, "rank 1"));
                assert_non_null(strstr(answer.text, "gave up"));
        }
        assert_int_equal(take_comm(clients[2], send_comm_create(clients[2], id, RANKS, 2)).code, RMX_E_ABORTED);
        /* Once more, after it has gone. */
        assert_int_equal(take_ack(clients[1], send_join_cancel(clients[1], id, 1), NULL, 0), 0);
        for (uint32_t r = 0; r < RANKS; r++)
                calls[r] = send_comm_create(clients[r], id, RANKS, r);
        for (uint32_t r = 0; r < RANKS; r++)
                assert_int_equal(take_comm(clients[r], calls[r]).code, 0);
        /* The one that waited under another id has heard nothing. */
        assert_null(client_find(clients[0], other));
        close_clients(&f, clients);
}

/* All have joined, and the executor has not answered. */
static void test_attaching(void **unused) {
        struct fixture f;
        struct client *clients[RANKS];
        uint64_t calls[RANKS];
        uint8_t id[COMM_ID_BYTES];

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients);
        call_id_create(clients[0], id);
        f.executor.hold = true;
        for (uint32_t r = 0; r < RANKS; r++)
                calls[r] = send_comm_create(clients[r], id, RANKS, r);
        fixture_wait(&f, f.executor.n_comms == 1);
        assert_int_equal(take_ack(clients[2], send_join_cancel(clients[2], id, 2), NULL, 0), 0);
        for (uint32_t r = 0; r < RANKS; r++)
                assert_int_equal(take_comm(clients[r], calls[r]).code, RMX_E_ABORTED);
        executor_release(&f);
        fixture_wait(&f, f.executor.n_comms == 0);
        close_clients(&f, clients);
}

/* The answer was on its way already: the rank is taken out, and the others hear of it. */
static void test_crossed(void **unused) {
        struct fixture f;
        struct client *clients[RANKS];
        struct inbox_message *event;
        struct comm_answer answers[RANKS];
        uint64_t calls[RANKS];
        uint8_t id[COMM_ID_BYTES];

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients);
        call_id_create(clients[0], id);
        for (uint32_t r = 0; r < RANKS; r++)
                calls[r] = send_comm_create(clients[r], id, RANKS, r);
        for (uint32_t r = 0; r < RANKS; r++)
                answers[r] = take_comm(clients[r], calls[r]);
        assert_int_equal(take_ack(clients[1], send_join_cancel(clients[1], id, 1), NULL, 0), 0);
        for (uint32_t r = 0; r < RANKS; r += 2) {
                event = client_event(clients[r], FAILED);
                assert_int_equal(event->message->event->comm_failed->code, RMX_E_ABORTED);
                assert_int_equal(event->message->event->comm_failed->rank, 1);
                client_drop(clients[r], event);
                assert_int_equal(take_ack(clients[r], send_comm_destroy(clients[r], answers[r].handle, 0), NULL, 0), 0);
        }
        fixture_wait(&f, f.executor.n_comms == 0); /* rank 1 has left without a word of its own */
        assert_int_equal(take_ack(clients[1], send_comm_destroy(clients[1], answers[1].handle, 0), NULL, 0), 0);
        close_clients(&f, clients);
}

static void test_split(void **unused) {
        struct fixture f;
        struct client *clients[RANKS];
        struct comm_answer answers[RANKS];
        uint32_t handles[RANKS];
        uint64_t calls[RANKS];

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients);
        make_comm(clients, RANKS, handles);
        for (uint32_t r = 0; r < 2; r++)
                calls[r] = send_comm_split(clients[r], handles[r], 1, 0, 0);
        /* It has not come to this split; nor has anybody to the other one. */
        assert_int_equal(take_ack(clients[2], send_split_cancel(clients[2], handles[2], 1), NULL, 0), 0);
        assert_int_equal(take_ack(clients[0], send_split_cancel(clients[0], handles[0], 2), NULL, 0), 0);
        assert_int_equal(take_ack(clients[0], send_split_cancel(clients[0], 4711, 1), NULL, 0), 0);
        assert_null(client_find(clients[0], calls[0]));
        assert_int_equal(take_ack(clients[0], send_split_cancel(clients[0], handles[0], 1), NULL, 0), 0);
        for (uint32_t r = 0; r < 2; r++)
                assert_int_equal(take_comm(clients[r], calls[r]).code, RMX_E_ABORTED);
        assert_int_equal(take_comm(clients[2], send_comm_split(clients[2], handles[2], 1, 0, 0)).code, RMX_E_ABORTED);
        /* The parent is as it was. */
        for (uint32_t r = 0; r < RANKS; r++)
                calls[r] = send_comm_split(clients[r], handles[r], 2, 0, 0);
        for (uint32_t r = 0; r < RANKS; r++) {
                answers[r] = take_comm(clients[r], calls[r]);
                assert_int_equal(answers[r].code, 0);
        }
        /* This answer had crossed. */
        assert_int_equal(take_ack(clients[0], send_split_cancel(clients[0], handles[0], 2), NULL, 0), 0);
        for (uint32_t r = 1; r < RANKS; r++) {
                struct inbox_message *event = client_event(clients[r], FAILED);

                assert_int_equal(event->message->event->comm_failed->handle, answers[r].handle);
                assert_int_equal(event->message->event->comm_failed->code, RMX_E_ABORTED);
                client_drop(clients[r], event);
                assert_int_equal(take_ack(clients[r], send_comm_destroy(clients[r], answers[r].handle, 0), NULL, 0), 0);
        }
        fixture_wait(&f, f.executor.n_comms == 1);
        close_clients(&f, clients);
}

/* More of them than a session may have calls unanswered. */
static void test_many(void **unused) {
        struct fixture f;
        struct client *clients[RANKS];
        uint8_t id[COMM_ID_BYTES];

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients);
        for (unsigned int i = 0; i < 1100; i++) {
                uint64_t call;

                call_id_create(clients[0], id);
                call = send_comm_create(clients[0], id, RANKS, 0);
                assert_int_equal(take_ack(clients[0], send_join_cancel(clients[0], id, 0), NULL, 0), 0);
                assert_int_equal(take_comm(clients[0], call).code, RMX_E_ABORTED);
        }
        close_clients(&f, clients);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_gathering), cmocka_unit_test(test_attaching), cmocka_unit_test(test_crossed),
                cmocka_unit_test(test_split),     cmocka_unit_test(test_many),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
