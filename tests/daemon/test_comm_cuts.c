/* SPDX-License-Identifier: MIT */
/*
 * Communicators over nodes that have lost each other, or were started anew: what each node makes of what the others say
 * of lost nodes, who is told and who is not, and which ids ranks can still meet with.
 */
#include "tests/daemon/comm_nodes_fixture.h"

#include "railmux/railmux.h"
#include "util/clock.h"
#include <string.h>

/* lost: as in Failed, 1 + the index. */
static void say_failed(struct both *b, struct neighbour *n, uint32_t code, uint32_t lost) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Failed body = RAILMUX__PEER__FAILED__INIT;

        body.key = b->key;
        body.code = code;
        body.rank = -1;
        body.text = "said by the test";
        body.lost = lost;
        message.body_case = SAYS(FAILED);
        message.failed = &body;
        say_of(n, &message);
}

static void assert_comm_fails(struct both *b, uint32_t code) {
        for (uint32_t i = 0; i < 2; i++) {
                struct inbox_message *event;

                both_wait(b, client_has_event(b->clients[i], RAILMUX__SESSION__EVENT__BODY_COMM_FAILED));
                event = client_event(b->clients[i], RAILMUX__SESSION__EVENT__BODY_COMM_FAILED);
                assert_int_equal(event->message->event->comm_failed->code, code);
                client_drop(b->clients[i], event);
        }
}

static void assert_makes_ids(struct both *b, uint64_t number) {
        uint8_t ids[2][COMM_ID_BYTES];

        for (uint32_t i = 0; i < 2; i++)
                take_id(b, i, send_id_create(b->clients[i], b->handles[i], number), ids[i]);
        assert_memory_equal(ids[0], ids[1], COMM_ID_BYTES);
}

/* After a cut each side says that the other was lost. A node does not believe that of itself. */
static void test_own_loss_is_not_believed(void **unused) {
        struct both b;

        (void)unused;
        setup_follower(&b);
        say_failed(&b, &b.n, RMX_E_PEER_LOST, 2);
        assert_comm_fails(&b, RMX_E_PEER_LOST);
        b.n.peers = peers_free(b.n.peers);
        assert_makes_ids(&b, 3);
        finish(&b);
}

/* ... and who has been lost sees the other side of the cut, whatever it says when it is back. */
static void test_lost_are_not_believed(void **unused) {
        uint8_t id[COMM_ID_BYTES];
        struct both b;
        uint64_t call;

        (void)unused;
        setup_three(&b);
        third_stop(&b);
        assert_comm_fails(&b, RMX_E_PEER_LOST);
        third_start(&b, 0x22, 1);
        say_failed(&b, &b.third, RMX_E_PEER_LOST, 1);
        settle_of(&b, &b.third);
        call = send_id_create(b.clients[0], b.handles[0], 4);
        assert_int_equal(take(&b, SAYS(ID_ASK))->id_ask->number, 4); /* the first node is there */
        say_id(&b, b.key, 4, 7, COMM_ID_BYTES);
        take_id(&b, 0, call, id);
        /* One that was not is believed. */
        say_failed(&b, &b.n, RMX_E_PEER_LOST, 1);
        settle(&b);
        assert_makes_ids(&b, 5);
        finish(&b);
}

/* What is said of a communicator does not wait for a node that was lost, to come behind the cut. */
static void test_nothing_waits_for_the_lost(void **unused) {
        const Railmux__Peer__Failed *failed;
        struct both b;

        (void)unused;
        setup_three(&b);
        third_stop(&b);
        assert_comm_fails(&b, RMX_E_PEER_LOST);
        failed = take(&b, SAYS(FAILED))->failed;
        assert_true(failed->key == b.key && failed->lost == 2 && failed->code == RMX_E_PEER_LOST);
        assert_int_equal(take_ack(b.clients[1], send_comm_destroy(b.clients[1], b.handles[1], 0), NULL, 0), 0);
        third_start(&b, 0x22, 1);
        settle_of(&b, &b.third);
        b.third.n_taken = 0; /* what waited would have come before all else */
        assert_true(has_heard(&b.third, SAYS(RAILS)));
        assert_false(has_heard(&b.third, SAYS(FAILED)));
        assert_false(has_heard(&b.third, SAYS(LEFT)));
        finish(&b);
}

/* A node's word of a failure may not have come to all others: it goes on to those that have not said so themselves. */
static void test_failure_goes_on(void **unused) {
        const Railmux__Peer__Failed *failed;
        struct both b;

        (void)unused;
        setup_three(&b);
        say_failed(&b, &b.n, RMX_E_MISMATCH, 0);
        assert_comm_fails(&b, RMX_E_MISMATCH);
        failed = take_of(&b, &b.third, SAYS(FAILED))->failed;
        assert_true(failed->key == b.key && failed->code == RMX_E_MISMATCH && failed->lost == 0);
        settle(&b);
        assert_false(has_heard(&b.n, SAYS(FAILED)));
        /* Which node is lost then is told to all: ids depend on it. */
        third_stop(&b);
        failed = take(&b, SAYS(FAILED))->failed;
        assert_true(failed->key == b.key && failed->lost == 2);
        finish(&b);
}

/* The word that a node was lost is this one's own when the failure was somebody else's. */
static void test_own_loss_is_told_besides(void **unused) {
        const Railmux__Peer__Failed *failed;
        struct both b;

        (void)unused;
        setup_three(&b);
        b.f.executor.hold = true; /* it does not say yet that it has ended the communicator */
        say_failed(&b, &b.n, RMX_E_MISMATCH, 0);
        settle(&b);
        third_stop(&b);
        both_wait(&b, b.f.executor.n_held > 0);
        call_id_create(b.clients[0], b.id); /* railmuxd has turned */
        settle(&b);
        b.f.executor.hold = false;
        executor_release(&b.f);
        assert_comm_fails(&b, RMX_E_MISMATCH);
        failed = take(&b, SAYS(FAILED))->failed;
        assert_true(failed->key == b.key && failed->lost == 2 && failed->code == RMX_E_MISMATCH);
        finish(&b);
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */
/* Another daemon asks for ids without end: it gets so many, and then a word; and later some more. */
static void test_ids_are_bounded(void **unused) {
        enum { ASKS = 4000 };
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__IdAsk ask = RAILMUX__PEER__ID_ASK__INIT;
        unsigned int n_made = 0, n_refused = 0;
        uint64_t call, end_ns;
        struct both b;

        (void)unused;
        setup_follower(&b);
        ask.key = KEY;
        ask.tenant = "nobody";
        message.body_case = SAYS(ID_ASK);
        message.id_ask = &ask;
        for (unsigned int i = 0; i < 2; i++) { /* now and then it may */
                say(&b, &message);
                assert_int_equal(take(&b, SAYS(ID_TOLD))->id_told->code, 0);
                end_ns = clock_now_ns() + UINT64_C(5000000);
                both_wait(&b, clock_now_ns() > end_ns);
        }
        for (ask.number = 1; ask.number <= ASKS; ask.number++)
                say(&b, &message);
        for (unsigned int i = 0; i < ASKS; i++) {
                const Railmux__Peer__IdTold *told = take(&b, SAYS(ID_TOLD))->id_told;

                assert_int_equal(told->number, i + 1); /* each is answered */
                assert_int_equal(told->comm_id.len, told->code ? 0 : COMM_ID_BYTES);
                assert_true(told->code == 0 || told->code == RMX_E_LIMIT);
                n_made += !told->code;
                n_refused += told->code != 0;
        }
        assert_in_range(n_made, 1000, ASKS - 1);
        assert_int_equal(n_made + n_refused, ASKS);
        /* It may ask again after a while. */
        do
                say(&b, &message);
        while (take(&b, SAYS(ID_TOLD))->id_told->code);
        /* A rank here, of a node that says so. */
        call = send_id_create(b.clients[0], b.handles[0], 12);
        (void)take(&b, SAYS(ID_ASK));
        say_id(&b, b.key, 12, RMX_E_LIMIT, 0);
        assert_int_equal(take_split(&b, 0, call).code, RMX_E_LIMIT);
        finish(&b);
}

/* railmuxd is killed, and a successor takes over; the neighbour is connected to that. */
static void succeed(struct both *b) {
        neighbour_stop(b);
        fixture_kill(&b->f);
        fixture_wait(&b->f, b->f.executor.fd < 0);
        fixture_start(&b->f);
        executor_connect(&b->f, false);
        fixture_wait(&b->f, b->f.executor.welcome);
        neighbour_start(b, 0xee, 2);
}

static void join_here(struct both *b, const uint8_t id[COMM_ID_BYTES]) {
        uint64_t call = send_comm_create(b->clients[0], id, 2, 0);

        assert_int_equal(take_comm(b->clients[1], send_comm_create(b->clients[1], id, 2, 1)).code, 0);
        assert_int_equal(take_comm(b->clients[0], call).code, 0);
}

/* Ids that the first node made for all are over when it is started anew: the others have lost it, and make others. So
 * whoever still has one is told so, here and on other nodes, in place of waiting for nobody. */
static void test_ids_of_a_restarted_node(void **unused) {
        const Railmux__Peer__JoinFailed *failed;
        uint8_t plain[COMM_ID_BYTES], shared[2][COMM_ID_BYTES];
        struct comm_answer answer;
        struct both b;

        (void)unused;
        both_managed = true;
        setup_first(&b);
        call_id_create(b.clients[0], plain);
        for (uint32_t i = 0; i < 2; i++)
                take_id(&b, i, send_id_create(b.clients[i], b.handles[i], i), shared[i]);
        join_here(&b, shared[1]);
        succeed(&b);
        answer = take_comm(b.clients[0], send_comm_create(b.clients[0], shared[0], 2, 0));
        assert_int_equal(answer.code, RMX_E_PEER_LOST);
        assert_non_null(strstr(answer.text, "started anew"));
        memcpy(b.id, shared[0], COMM_ID_BYTES);
        say_join(&b, 2, 7);
        failed = take(&b, SAYS(JOIN_FAILED))->join_failed;
        assert_true(failed->code == RMX_E_PEER_LOST && failed->attempt == 7);
        assert_non_null(strstr(failed->text, "started anew"));
        join_here(&b, plain); /* which any rank may have, and nobody makes anew */
        both_managed = false;
        finish(&b);
}

/* A successor knows which communicators were over several nodes, whatever they have failed of. */
static void test_failed_before_a_restart(void **unused) {
        const struct fake_comm *comm;
        struct both b;
        char text[256];

        (void)unused;
        both_managed = true;
        setup_follower(&b);
        comm = &b.f.executor.comms[0];
        assert_int_equal(comm->n_choices, 1); /* the neighbour's word */
        b.n.peers = peers_free(b.n.peers);
        assert_comm_fails(&b, RMX_E_PEER_LOST);
        fixture_kill(&b.f);
        executor_disconnect(&b.f);
        fixture_start(&b.f);
        executor_connect(&b.f, true);
        fixture_wait(&b.f, b.f.executor.n_comms == 1);
        assert_true(comm->n_choices > 1); /* it has to be one that can be made here alone */
        assert_int_equal(comm->code, RMX_E_PEER_LOST);
        assert_int_equal(take_ack(b.clients[0], send_id_create(b.clients[0], b.handles[0], 3), text, sizeof(text)),
                         RMX_E_LOST);
        assert_non_null(strstr(text, "its ids too"));
        both_managed = false;
        finish(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_own_loss_is_not_believed),   cmocka_unit_test(test_lost_are_not_believed),
                cmocka_unit_test(test_nothing_waits_for_the_lost), cmocka_unit_test(test_failure_goes_on),
                cmocka_unit_test(test_own_loss_is_told_besides),   cmocka_unit_test(test_ids_are_bounded),
                cmocka_unit_test(test_ids_of_a_restarted_node),    cmocka_unit_test(test_failed_before_a_restart),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
