/* SPDX-License-Identifier: MIT */
/* Communicators: gathering, splitting, leaving, aborting, and ranks that die at each of these. */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "railmux/railmux.h"
#include "ring/line.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FAILED RAILMUX__SESSION__EVENT__BODY_COMM_FAILED

static void open_clients(struct fixture *f, struct client **clients, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                clients[i] = client_open(f);
}

static void close_clients(struct fixture *f, struct client **clients, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                client_close(clients[i]);
        fixture_wait(f, f->executor.n_sessions == 0);
        fixture_wait(f, f->executor.n_comms == 0);
        fixture_wait_idle(f);
}

static void test_create_and_destroy(void **unused) {
        struct fixture f;
        struct client *clients[4];
        struct comm_answer answer;
        struct fake_comm *fake;
        uint32_t handles[4];
        uint64_t number, calls[4];
        uint8_t id[COMM_ID_BYTES];

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients, 4);
        number = make_comm(clients, 4, handles);
        fake = executor_comm(&f, number);
        assert_non_null(fake);
        for (uint32_t r = 0; r < 4; r++) {
                assert_int_equal(fake->sessions[r], clients[r]->session);
                assert_int_equal(fake->handles[r], handles[r]);
        }
        /* a second one; every call twice, under the same and under other ids */
        call_id_create(clients[2], id);
        calls[0] = send_comm_create(clients[0], id, 4, 0);
        calls[1] = send_comm_create(clients[0], id, 4, 0);
        answer.handle = 0;
        for (uint32_t r = 1; r < 4; r++)
                (void)send_comm_create(clients[r], id, 4, r);
        answer = take_comm(clients[0], calls[0]);
        assert_int_equal(answer.code, 0);
        assert_int_equal(take_comm(clients[0], calls[1]).handle, answer.handle);
        assert_int_equal(take_comm(clients[0], send_comm_create(clients[0], id, 4, 0)).handle, answer.handle);
        assert_int_not_equal(answer.comm, number);
        assert_int_not_equal(answer.handle, handles[0]);

        for (uint32_t r = 0; r < 4; r++)
                calls[r] = send_comm_destroy(clients[r], handles[r], 10 + r);
        for (uint32_t r = 0; r < 4; r++)
                assert_int_equal(take_ack(clients[r], calls[r], NULL, 0), 0);
        fixture_wait(&f, !executor_comm(&f, number));
        /* repeated after it has gone */
        assert_int_equal(take_ack(clients[0], send_comm_destroy(clients[0], handles[0], 10), NULL, 0), 0);
        assert_int_equal(take_ack(clients[0], send_comm_abort(clients[0], handles[0]), NULL, 0), 0);
        assert_int_equal(take_ack(clients[0], send_comm_destroy(clients[0], 4711, 0), NULL, 0), RMX_E_INVALID);
        assert_int_equal(take_ack(clients[0], send_comm_abort(clients[0], 0), NULL, 0), RMX_E_INVALID);
        close_clients(&f, clients, 4);
        fixture_teardown(&f);
}

static void test_wrong_arguments(void **unused) {
        struct fixture f;
        struct client *clients[3];
        struct comm_answer answer;
        uint8_t id[COMM_ID_BYTES];
        uint64_t first;

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients, 3);
        call_id_create(clients[0], id);
        assert_int_equal(take_comm(clients[0], send_comm_create(clients[0], id, 0, 0)).code, RMX_E_INVALID);
        assert_int_equal(take_comm(clients[0], send_comm_create(clients[0], id, 65, 0)).code, RMX_E_INVALID);
        assert_int_equal(take_comm(clients[0], send_comm_create(clients[0], id, 2, 2)).code, RMX_E_INVALID);
        id[100] ^= 4;
        assert_int_equal(take_comm(clients[0], send_comm_create(clients[0], id, 2, 0)).code, RMX_E_DENIED);
        id[100] ^= 4;
        first = send_comm_create(clients[0], id, 2, 0);
        answer = take_comm(clients[1], send_comm_create(clients[1], id, 3, 1));
        assert_int_equal(answer.code, RMX_E_INVALID);
        assert_non_null(strstr(answer.text, "n_ranks is 3, but other ranks said 2"));
        answer = take_comm(clients[1], send_comm_create(clients[1], id, 2, 0));
        assert_int_equal(answer.code, RMX_E_INVALID);
        assert_non_null(strstr(answer.text, "rank 0 is taken by pid"));
        assert_int_equal(take_comm(clients[2], send_comm_create(clients[2], id, 2, 1)).code, 0);
        assert_int_equal(take_comm(clients[0], first).code, 0); /* none of that hurt the others */
        assert_int_equal(take_comm(clients[1], send_comm_create(clients[1], id, 2, 1)).code, RMX_E_INVALID);
        close_clients(&f, clients, 3);
        fixture_teardown(&f);
}

/* One process may hold several ranks. */
static void test_all_ranks_in_one_process(void **unused) {
        struct fixture f;
        struct client *same[64];
        uint32_t handles[64];

        (void)unused;
        fixture_setup(&f, NULL, false);
        same[0] = client_open(&f);
        for (unsigned int i = 1; i < 64; i++)
                same[i] = same[0];
        make_comm(same, 64, handles);
        for (unsigned int i = 1; i < 64; i++)
                assert_int_not_equal(handles[i], handles[i - 1]);
        make_comm(same, 1, handles);
        close_clients(&f, same, 1);
        fixture_teardown(&f);
}

static void test_death_while_gathering(void **unused) {
        struct fixture f;
        struct client *clients[4];
        struct comm_answer answer;
        uint8_t id[COMM_ID_BYTES];
        uint64_t calls[4], again[4];

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients, 4);
        call_id_create(clients[0], id);
        for (uint32_t r = 0; r < 3; r++)
                calls[r] = send_comm_create(clients[r], id, 4, r);
        take_ack(clients[1], send_buffer_destroy(clients[1], 1), NULL, 0); /* its call has arrived */
        client_close(clients[1]);
        answer = take_comm(clients[0], calls[0]);
        assert_int_equal(answer.code, RMX_E_PEER_LOST);
        assert_non_null(strstr(answer.text, "rank 1"));
        assert_int_equal(take_comm(clients[2], calls[2]).code, RMX_E_PEER_LOST);
        /* a rank that comes later is told too */
        assert_int_equal(take_comm(clients[3], send_comm_create(clients[3], id, 4, 3)).code, RMX_E_PEER_LOST);
        /* and whoever knows may try again with the same id */
        clients[1] = client_open(&f);
        for (uint32_t i = 0; i < 4; i++)
                again[i] = send_comm_create(clients[i], id, 4, i);
        for (uint32_t i = 0; i < 4; i++)
                assert_int_equal(take_comm(clients[i], again[i]).code, 0);
        close_clients(&f, clients, 4);
        fixture_teardown(&f);
}

/* The rank dies when all have joined, but the executor has not answered yet. */
static void test_death_while_attaching(void **unused) {
        struct fixture f;
        struct client *clients[2];
        uint8_t id[COMM_ID_BYTES];
        uint64_t call;

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients, 2);
        call_id_create(clients[0], id);
        f.executor.hold = true;
        call = send_comm_create(clients[0], id, 2, 0);
        (void)send_comm_create(clients[1], id, 2, 1);
        fixture_wait(&f, f.executor.n_comms == 1);
        client_close(clients[1]);
        assert_int_equal(take_comm(clients[0], call).code, RMX_E_PEER_LOST);
        executor_release(&f);
        close_clients(&f, clients, 1);
        fixture_teardown(&f);
}

static void test_executor_refuses(void **unused) {
        struct fixture f;
        struct client *clients[2];
        uint8_t id[COMM_ID_BYTES];
        uint64_t calls[2];

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients, 2);
        call_id_create(clients[0], id);
        f.executor.refuse = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH;
        for (uint32_t r = 0; r < 2; r++)
                calls[r] = send_comm_create(clients[r], id, 2, r);
        for (uint32_t r = 0; r < 2; r++)
                assert_int_equal(take_comm(clients[r], calls[r]).code, RMX_E_UNSUPPORTED);
        f.executor.refuse = 0;
        close_clients(&f, clients, 2);
        fixture_teardown(&f);
}

static void test_death_in_ready_comm(void **unused) {
        struct fixture f;
        struct client *clients[3];
        struct inbox_message *event;
        uint32_t handles[3];

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients, 3);
        make_comm(clients, 3, handles);
        client_close(clients[1]);
        for (uint32_t r = 0; r < 3; r += 2) {
                event = client_event(clients[r], FAILED);
                assert_int_equal(event->message->event->comm_failed->handle, handles[r]);
                assert_int_equal(event->message->event->comm_failed->code, RMX_E_PEER_LOST);
                assert_int_equal(event->message->event->comm_failed->rank, 1);
                client_drop(clients[r], event);
        }
        /* a failed comm cannot be split, but left */
        assert_int_equal(take_comm(clients[0], send_comm_split(clients[0], handles[0], 1, 0, 0)).code, RMX_E_PEER_LOST);
        assert_int_equal(take_ack(clients[0], send_comm_destroy(clients[0], handles[0], 0), NULL, 0), 0);
        assert_int_equal(f.executor.n_comms, 1);
        assert_int_equal(take_ack(clients[2], send_comm_destroy(clients[2], handles[2], 0), NULL, 0), 0);
        fixture_wait(&f, f.executor.n_comms == 0);
        clients[1] = clients[2];
        close_clients(&f, clients, 2);
        fixture_teardown(&f);
}

/* The rank dies while the executor is away: the others hear of it at once, the executor when it returns. */
static void test_death_without_executor(void **unused) {
        struct fixture f;
        struct client *clients[2];
        struct inbox_message *event;
        uint32_t handles[2];
        uint64_t number;

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients, 2);
        number = make_comm(clients, 2, handles);
        executor_disconnect(&f);
        take_ack(clients[0], send_ring_open(clients[0], 77), NULL, 0); /* a round trip: it has seen that */
        client_close(clients[0]);
        event = client_event(clients[1], FAILED);
        assert_int_equal(event->message->event->comm_failed->rank, 0);
        client_drop(clients[1], event);
        executor_connect(&f, false);
        fixture_wait(&f, executor_comm(&f, number)->code == RMX_E_PEER_LOST);
        fixture_wait(&f, f.executor.n_sessions == 1);
        executor_disconnect(&f);
        executor_connect(&f, true); /* a new one is given the comm with its error */
        fixture_wait(&f, executor_comm(&f, number));
        assert_int_equal(executor_comm(&f, number)->code, RMX_E_PEER_LOST);
        clients[0] = clients[1];
        close_clients(&f, clients, 1);
        fixture_teardown(&f);
}

static void test_abort(void **unused) {
        struct fixture f;
        struct client *clients[3];
        struct inbox_message *event;
        uint32_t handles[3];
        uint64_t call;

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients, 3);
        make_comm(clients, 3, handles);
        f.executor.hold = true;
        call = send_comm_abort(clients[2], handles[2]);
        fixture_wait(&f, f.executor.n_held == 1);
        assert_null(client_find(clients[2], call)); /* not before the executor touches nothing any more */
        executor_release(&f);
        assert_int_equal(take_ack(clients[2], call, NULL, 0), 0);
        for (uint32_t r = 0; r < 3; r++) {
                event = client_event(clients[r], FAILED);
                assert_int_equal(event->message->event->comm_failed->code, RMX_E_ABORTED);
                assert_int_equal(event->message->event->comm_failed->rank, 2);
                client_drop(clients[r], event);
        }
        assert_int_equal(take_ack(clients[0], send_comm_abort(clients[0], handles[0]), NULL, 0), 0); /* again */
        assert_false(client_has_event(clients[0], FAILED));                                          /* told once */
        close_clients(&f, clients, 3);
        fixture_teardown(&f);
}

/* A rank that has found out that another one called something else: all hear that. */
static void test_abort_for_mismatch(void **unused) {
        static const uint32_t wrong[] = {RMX_E_MISMATCH, 1u << 16 | RMX_E_ABORTED, 4u << 16 | RMX_E_MISMATCH,
                                         0xffffu << 16 | RMX_E_MISMATCH, 1u << 16};
        struct fixture f;
        struct client *clients[3];
        struct inbox_message *event;
        uint32_t handles[3];
        char text[200];

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients, 3);
        make_comm(clients, 3, handles);
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) { /* of rank 2 */
                assert_int_equal(
                        take_ack(clients[2], send_comm_abort_for(clients[2], handles[2], wrong[i]), text, sizeof(text)),
                        RMX_E_INVALID);
                assert_non_null(strstr(text, "is no mismatch with a rank of the communicator"));
        }
        for (uint32_t r = 0; r < 3; r++)
                assert_false(client_has_event(clients[r], FAILED));
        assert_int_equal(take_ack(clients[2],
                                  send_comm_abort_for(clients[2], handles[2], ring_status(RMX_E_MISMATCH, 1)), NULL, 0),
                         0);
        for (uint32_t r = 0; r < 3; r++) {
                event = client_event(clients[r], FAILED);
                assert_int_equal(event->message->event->comm_failed->code, RMX_E_MISMATCH);
                assert_int_equal(event->message->event->comm_failed->rank, 1);
                assert_string_equal(event->message->event->comm_failed->message,
                                    "rank 1 called something else, as rank 2 has found");
                client_drop(clients[r], event);
        }
        assert_int_equal(take_ack(clients[1],
                                  send_comm_abort_for(clients[1], handles[1], ring_status(RMX_E_MISMATCH, 1)), NULL, 0),
                         0); /* which has found the same: nobody hears it again */
        for (uint32_t r = 0; r < 3; r++)
                assert_false(client_has_event(clients[r], FAILED));
        close_clients(&f, clients, 3);
        fixture_teardown(&f);
}

static void test_abort_and_leave_over_executor_loss(void **unused) {
        struct fixture f;
        struct client *clients[2];
        uint32_t handles[2], others[2];
        uint64_t abort_call, leave_call, number, other;

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients, 2);
        number = make_comm(clients, 2, handles);
        other = make_comm(clients, 2, others);
        executor_disconnect(&f);
        abort_call = send_comm_abort(clients[0], handles[0]);
        leave_call = send_comm_destroy(clients[1], others[1], 5);
        take_ack(clients[1], send_ring_open(clients[1], 77), NULL, 0);
        assert_null(client_find(clients[0], abort_call));
        assert_null(client_find(clients[1], leave_call));
        executor_connect(&f, true);
        assert_int_equal(take_ack(clients[0], abort_call, NULL, 0), 0);
        assert_int_equal(take_ack(clients[1], leave_call, NULL, 0), 0);
        assert_int_equal(executor_comm(&f, number)->code, RMX_E_ABORTED);
        assert_true(executor_comm(&f, other)->left[1]);
        close_clients(&f, clients, 2);
        fixture_teardown(&f);
}

static void test_split(void **unused) {
        struct fixture f;
        struct client *clients[6];
        struct comm_answer answers[6];
        uint32_t handles[6];
        uint64_t calls[6];

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients, 6);
        make_comm(clients, 6, handles);
        /* ranks 0, 2, 4: colour 5 in falling key order; 1, 3: colour 0 with equal keys; 5: none */
        for (uint32_t r = 0; r < 6; r++) {
                int32_t colour = r == 5 ? -1 : r % 2 ? 0 : 5;

                calls[r] = send_comm_split(clients[r], handles[r], 1, colour, r % 2 ? 7 : -(int32_t)r);
        }
        for (uint32_t r = 0; r < 6; r++) {
                answers[r] = take_comm(clients[r], calls[r]);
                assert_int_equal(answers[r].code, 0);
        }
        assert_int_equal(answers[5].handle, 0);
        assert_int_equal(answers[4].rank, 0);
        assert_int_equal(answers[2].rank, 1);
        assert_int_equal(answers[0].rank, 2);
        assert_int_equal(answers[0].n_ranks, 3);
        assert_int_equal(answers[0].comm, answers[4].comm);
        assert_int_equal(answers[1].rank, 0);
        assert_int_equal(answers[3].rank, 1);
        assert_int_equal(answers[1].comm, answers[3].comm);
        assert_int_not_equal(answers[1].comm, answers[0].comm);
        assert_int_equal(f.executor.n_comms, 3);
        /* repeated */
        assert_int_equal(take_comm(clients[4], send_comm_split(clients[4], handles[4], 1, 5, -4)).handle,
                         answers[4].handle);
        assert_int_equal(take_comm(clients[5], send_comm_split(clients[5], handles[5], 1, -1, 0)).code, 0);
        /* numbers */
        assert_int_equal(take_comm(clients[0], send_comm_split(clients[0], handles[0], 0, 0, 0)).code, RMX_E_INVALID);
        assert_int_equal(take_comm(clients[0], send_comm_split(clients[0], handles[0], 500, 0, 0)).code, RMX_E_INVALID);
        assert_int_equal(take_comm(clients[0], send_comm_split(clients[0], 999, 2, 0, 0)).code, RMX_E_INVALID);
        /* nobody wants one */
        for (uint32_t r = 0; r < 6; r++)
                calls[r] = send_comm_split(clients[r], handles[r], 2, -1, 0);
        for (uint32_t r = 0; r < 6; r++)
                assert_int_equal(take_comm(clients[r], calls[r]).handle, 0);
        /* two at once, finishing in the other order */
        calls[0] = send_comm_split(clients[0], handles[0], 3, 1, 0);
        for (uint32_t r = 0; r < 6; r++)
                calls[r] = r == 0 ? calls[0] : send_comm_split(clients[r], handles[r], 4, 1, 0);
        {
                uint64_t late = send_comm_split(clients[0], handles[0], 4, 1, 0), early[6];

                assert_int_equal(take_comm(clients[0], late).n_ranks, 6);
                for (uint32_t r = 1; r < 6; r++) {
                        assert_int_equal(take_comm(clients[r], calls[r]).n_ranks, 6);
                        early[r] = send_comm_split(clients[r], handles[r], 3, (int32_t)r, 0);
                }
                for (uint32_t r = 2; r < 6; r++)
                        assert_int_equal(take_comm(clients[r], early[r]).n_ranks, 1);
                assert_int_equal(take_comm(clients[1], early[1]).n_ranks, 2);
                assert_int_equal(take_comm(clients[0], calls[0]).n_ranks, 2);
        }
        /* the parent may go, the children stay */
        for (uint32_t r = 0; r < 6; r++)
                assert_int_equal(take_ack(clients[r], send_comm_destroy(clients[r], handles[r], 0), NULL, 0), 0);
        assert_int_equal(take_ack(clients[1], send_comm_abort(clients[1], answers[1].handle), NULL, 0), 0);
        client_drop(clients[3], client_event(clients[3], FAILED));
        close_clients(&f, clients, 6);
        fixture_teardown(&f);
}

static void test_split_fails_as_a_whole(void **unused) {
        struct fixture f;
        struct client *clients[4];
        uint32_t handles[4];
        uint64_t calls[4];

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients, 4);
        make_comm(clients, 4, handles);
        /* a rank leaves while others wait */
        for (uint32_t r = 0; r < 3; r++)
                calls[r] = send_comm_split(clients[r], handles[r], 1, (int32_t)r % 2, 0);
        assert_int_equal(take_ack(clients[3], send_comm_destroy(clients[3], handles[3], 0), NULL, 0), 0);
        for (uint32_t r = 0; r < 3; r++)
                assert_int_equal(take_comm(clients[r], calls[r]).code, RMX_E_PEER_LOST);
        make_comm(clients, 4, handles);
        /* the parent is aborted while some wait */
        for (uint32_t r = 0; r < 3; r++)
                calls[r] = send_comm_split(clients[r], handles[r], 1, (int32_t)r % 2, 0);
        assert_int_equal(take_ack(clients[3], send_comm_abort(clients[3], handles[3]), NULL, 0), 0);
        for (uint32_t r = 0; r < 3; r++) {
                client_drop(clients[r], client_event(clients[r], FAILED));
                assert_int_equal(take_comm(clients[r], calls[r]).code, RMX_E_ABORTED);
        }
        assert_int_equal(take_comm(clients[3], send_comm_split(clients[3], handles[3], 1, 0, 0)).code, RMX_E_ABORTED);
        make_comm(clients, 4, handles);
        /* the executor refuses */
        f.executor.refuse = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH;
        for (uint32_t r = 0; r < 4; r++)
                calls[r] = send_comm_split(clients[r], handles[r], 1, (int32_t)r % 2, 0);
        for (uint32_t r = 0; r < 4; r++)
                assert_int_equal(take_comm(clients[r], calls[r]).code, RMX_E_UNSUPPORTED);
        f.executor.refuse = 0;
        /* a rank that asks again for the failed one hears the same */
        assert_int_equal(take_comm(clients[0], send_comm_split(clients[0], handles[0], 1, 0, 0)).code,
                         RMX_E_UNSUPPORTED);
        /* a rank dies when the children are on their way */
        f.executor.hold = true;
        for (uint32_t r = 0; r < 4; r++)
                calls[r] = send_comm_split(clients[r], handles[r], 2, (int32_t)r % 2, 0);
        fixture_wait(&f, f.executor.n_held == 2);
        client_close(clients[3]);
        for (uint32_t r = 0; r < 3; r++)
                assert_int_equal(take_comm(clients[r], calls[r]).code, RMX_E_PEER_LOST);
        executor_release(&f);
        close_clients(&f, clients, 3);
        fixture_teardown(&f);
}

/* The connection breaks while comms and splits are on their way; the executor comes back with or without them. */
static void test_executor_away_while_attaching(void **unused) {
        struct fixture f;
        struct client *clients[4];
        uint32_t handles[4];
        uint64_t calls[4];
        uint8_t id[COMM_ID_BYTES];

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients, 4);
        for (unsigned int fresh = 0; fresh < 2; fresh++) {
                f.executor.hold = true;
                call_id_create(clients[0], id);
                for (uint32_t r = 0; r < 4; r++)
                        calls[r] = send_comm_create(clients[r], id, 4, r);
                fixture_wait(&f, f.executor.n_held == 1);
                f.executor.hold = false;
                executor_connect(&f, fresh);
                for (uint32_t r = 0; r < 4; r++) {
                        struct comm_answer answer = take_comm(clients[r], calls[r]);

                        assert_int_equal(answer.code, 0);
                        handles[r] = answer.handle;
                }
                f.executor.hold = true;
                for (uint32_t r = 0; r < 4; r++)
                        calls[r] = send_comm_split(clients[r], handles[r], 1, (int32_t)r / 2, 0);
                fixture_wait(&f, f.executor.n_held == 2);
                f.executor.hold = false;
                executor_connect(&f, fresh);
                for (uint32_t r = 0; r < 4; r++)
                        assert_int_equal(take_comm(clients[r], calls[r]).code, 0);
        }
        close_clients(&f, clients, 4);
        fixture_teardown(&f);
}

static void test_comm_limits(void **unused) {
        struct fixture f;
        struct client *clients[4];
        struct comm_answer answer;
        uint8_t id[COMM_ID_BYTES];
        uint32_t handles[4];
        uint64_t first;

        (void)unused;
        fixture_setup(&f, "limits: {comms: 4}\n", false);
        open_clients(&f, clients, 4);
        make_comm(clients, 3, handles);
        call_id_create(clients[0], id);
        first = send_comm_create(clients[0], id, 2, 0);
        answer = take_comm(clients[1], send_comm_create(clients[1], id, 2, 1));
        assert_int_equal(answer.code, RMX_E_LIMIT);
        assert_string_equal(answer.text, "tenant default: comms limit 4 reached");
        answer = take_comm(clients[0], first); /* it would wait for ever */
        assert_int_equal(answer.code, RMX_E_LIMIT);
        assert_string_equal(answer.text, "rank 1: tenant default: comms limit 4 reached");
        for (uint32_t r = 0; r < 3; r++)
                assert_int_equal(take_ack(clients[r], send_comm_destroy(clients[r], handles[r], 0), NULL, 0), 0);
        make_comm(clients, 4, handles);
        close_clients(&f, clients, 4);
        fixture_teardown(&f);
}

/* The executor would only keep the ring of a session whose comm it has not attached yet: it is not asked to. */
static void test_ring_waits_for_comm(void **unused) {
        struct fixture f;
        struct client *clients[3];
        uint8_t id[COMM_ID_BYTES];
        uint64_t calls[2], rings[2];

        (void)unused;
        fixture_setup(&f, NULL, false);
        open_clients(&f, clients, 3);
        fixture_wait(&f, f.executor.n_sessions == 3);
        call_id_create(clients[0], id);
        f.executor.hold = true;
        for (uint32_t r = 0; r < 2; r++)
                calls[r] = send_comm_create(clients[r], id, 2, r);
        fixture_wait(&f, f.executor.n_comms == 1);
        rings[0] = send_ring_open(clients[0], 0);
        (void)send_buffer_create(clients[0], 1, 4096);
        fixture_wait(&f, f.executor.n_buffers == 1); /* what comes later goes past it */
        rings[1] = send_ring_open(clients[2], 0);
        fixture_wait(&f, f.executor.n_rings > 0);
        assert_int_equal(f.executor.n_rings, 1);
        assert_int_equal(f.executor.rings[0].session, clients[2]->session);
        executor_release(&f);
        fixture_wait(&f, f.executor.n_rings == 2);
        for (uint32_t r = 0; r < 2; r++)
                assert_int_equal(take_comm(clients[r], calls[r]).code, 0);
        client_drop(clients[0], client_answer(clients[0], rings[0]));
        client_drop(clients[2], client_answer(clients[2], rings[1]));
        close_clients(&f, clients, 3);
        fixture_teardown(&f);
}

/* A rank leaves when the new executor has said who it is, and not yet what it has. */
static void test_rank_leaves_beside_hello(void **unused) {
        struct client *clients[2];
        uint8_t id[COMM_ID_BYTES];
        uint32_t handles[2];
        struct fixture f;
        uint64_t number;
        uint64_t calls[2];

        (void)unused;
        fixture_setup(&f, NULL, false);
        for (uint32_t r = 0; r < 2; r++)
                clients[r] = client_open(&f);
        number = make_comm(clients, 2, handles);
        executor_disconnect(&f);
        executor_begin(&f, true);
        fixture_wait(&f, fixture_ctl_says(&f, "--json", "status", "\"state\": \"attaching\""));
        calls[0] = send_comm_destroy(clients[0], handles[0], 0);
        call_id_create(clients[0], id); /* railmuxd has read that */
        executor_go_on(&f);
        assert_int_equal(take_ack(clients[0], calls[0], NULL, 0), 0);
        fixture_wait(&f, executor_comm(&f, number));
        assert_true(executor_comm(&f, number)->left[0]);
        assert_false(executor_comm(&f, number)->left[1]);
        calls[1] = send_comm_destroy(clients[1], handles[1], 0);
        assert_int_equal(take_ack(clients[1], calls[1], NULL, 0), 0);
        fixture_wait(&f, f.executor.n_comms == 0);
        for (uint32_t r = 0; r < 2; r++)
                client_close(clients[r]);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_ring_waits_for_comm),
                cmocka_unit_test(test_create_and_destroy),
                cmocka_unit_test(test_wrong_arguments),
                cmocka_unit_test(test_all_ranks_in_one_process),
                cmocka_unit_test(test_death_while_gathering),
                cmocka_unit_test(test_death_while_attaching),
                cmocka_unit_test(test_executor_refuses),
                cmocka_unit_test(test_death_in_ready_comm),
                cmocka_unit_test(test_death_without_executor),
                cmocka_unit_test(test_abort),
                cmocka_unit_test(test_abort_for_mismatch),
                cmocka_unit_test(test_abort_and_leave_over_executor_loss),
                cmocka_unit_test(test_split),
                cmocka_unit_test(test_split_fails_as_a_whole),
                cmocka_unit_test(test_executor_away_while_attaching),
                cmocka_unit_test(test_comm_limits),
                cmocka_unit_test(test_rank_leaves_beside_hello),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
