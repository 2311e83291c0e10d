/* SPDX-License-Identifier: MIT */
/*
 * Communicators over nodes that have lost each other, or were started anew: what each node makes of what the others say
 * of lost nodes, who is told and who is not, and which ids ranks can still meet with.
 */
#include "tests/daemon/comm_nodes_fixture.h"

#include "daemon/cluster.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "railmux/railmux.h"
#include "util/clock.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

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
        uint64_t call, end_ns, begin_ns, allowed;
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
        begin_ns = clock_now_ns();
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
        allowed = (uint64_t)CLUSTER_ASKS *
                  (1 + (clock_now_ns() - begin_ns) / 1000000000 + 1); /* more on a slow machine */
        assert_in_range(n_made, 1000, allowed < ASKS ? allowed : ASKS);
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

/* A tenant that asks for more of them than it may is refused by its own node, and the first one does not hear of it:
 * what that gives to a node is for all of its tenants. */
static void test_ids_of_a_tenant_are_bounded(void **unused) {
        enum { BATCH = 60 };
        unsigned int n_asked = 0, n_refused = 0;
        struct comm_answer answer;
        uint64_t calls[BATCH], number = 1;
        uint8_t id[COMM_ID_BYTES];
        struct both b;

        (void)unused;
        setup_follower(&b);
        for (; !n_refused; number += BATCH) {
                for (unsigned int i = 0; i < BATCH; i++)
                        calls[i] = send_id_create(b.clients[0], b.handles[0], number + i);
                take_ack(b.clients[0], send_buffer_destroy(b.clients[0], 1), NULL, 0); /* it has read all of them */
                for (unsigned int i = 0; i < BATCH; i++) {
                        if (client_find(b.clients[0], calls[i])) {
                                answer = take_comm(b.clients[0], calls[i]);
                                assert_int_equal(answer.code, RMX_E_LIMIT);
                                assert_non_null(strstr(answer.text, "tenant default"));
                                n_refused++;
                                continue;
                        }
                        assert_true(take(&b, SAYS(ID_ASK))->id_ask->number == number + i);
                        say_id(&b, b.key, number + i, 7, COMM_ID_BYTES);
                        take_id(&b, 0, calls[i], id);
                        n_asked++;
                }
                assert_true(n_asked < CLUSTER_ASKS);
        }
        assert_true(n_asked >= TENANT_IDS);
        settle(&b);
        assert_false(has_heard(&b.n, SAYS(ID_ASK)));
        /* It may ask again after a while. */
        for (bool asked = false; !asked; number++) {
                calls[0] = send_id_create(b.clients[0], b.handles[0], number);
                both_wait(&b, client_find(b.clients[0], calls[0]) || has_heard(&b.n, SAYS(ID_ASK)));
                asked = has_heard(&b.n, SAYS(ID_ASK));
                if (!asked)
                        assert_int_equal(take_comm(b.clients[0], calls[0]).code, RMX_E_LIMIT);
        }
        say_id(&b, b.key, number - 1, 7, COMM_ID_BYTES);
        take_id(&b, 0, calls[0], id);
        /* What needs nobody else's word is not refused. */
        b.n.peers = peers_free(b.n.peers);
        for (unsigned int i = 0; i < 2 * TENANT_IDS; i++)
                take_id(&b, 0, send_id_create(b.clients[0], b.handles[0], number + i), id);
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

static void join_here(struct both *b, const uint8_t id[COMM_ID_BYTES], struct comm_answer ret_answers[2]) {
        uint64_t call = send_comm_create(b->clients[0], id, 2, 0);

        ret_answers[1] = take_comm(b->clients[1], send_comm_create(b->clients[1], id, 2, 1));
        ret_answers[0] = take_comm(b->clients[0], call);
        for (uint32_t i = 0; i < 2; i++)
                assert_int_equal(ret_answers[i].code, 0);
}

/* Ids that the first node made for all are over when it is started anew: the others have lost it, and make others. So
 * whoever still has one is told so, here and on other nodes, in place of waiting for nobody. Who has met with it is
 * where it was, and may not have heard that. */
static void test_ids_of_a_restarted_node(void **unused) {
        const Railmux__Peer__JoinFailed *failed;
        uint8_t plain[COMM_ID_BYTES], shared[2][COMM_ID_BYTES];
        struct comm_answer answer, before[2], again[2];
        struct both b;

        (void)unused;
        both_managed = true;
        setup_first(&b);
        call_id_create(b.clients[0], plain);
        for (uint32_t i = 0; i < 2; i++)
                take_id(&b, i, send_id_create(b.clients[i], b.handles[i], i), shared[i]);
        join_here(&b, shared[1], before);
        succeed(&b);
        join_here(&b, shared[1], again);
        for (uint32_t i = 0; i < 2; i++)
                assert_true(again[i].handle == before[i].handle && again[i].comm == before[i].comm);
        answer = take_comm(b.clients[0], send_comm_create(b.clients[0], shared[0], 2, 0));
        assert_int_equal(answer.code, RMX_E_PEER_LOST);
        assert_non_null(strstr(answer.text, "started anew"));
        memcpy(b.id, shared[0], COMM_ID_BYTES);
        say_join(&b, 2, 7);
        failed = take(&b, SAYS(JOIN_FAILED))->join_failed;
        assert_true(failed->code == RMX_E_PEER_LOST && failed->attempt == 7);
        assert_non_null(strstr(failed->text, "started anew"));
        join_here(&b, plain, again); /* which any rank may have, and nobody makes anew */
        both_managed = false;
        finish(&b);
}

/* As version 4 has written it, which did not say how many nodes there are. */
static void make_older(struct both *b) {
        int fd = b->f.store[fixture_stored(&b->f, "state")].fd;
        struct state_record *records;
        struct stat status;
        unsigned int n = 0;
        uint8_t *map;

        assert_int_equal(fstat(fd, &status), 0);
        map = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(map != MAP_FAILED);
        ((struct state_header *)map)->version = 4;
        records = (struct state_record *)(map + STATE_HEADER_BYTES);
        for (size_t i = 0; i < ((size_t)status.st_size - STATE_HEADER_BYTES) / STATE_RECORD_BYTES; i++)
                if (atomic_load(&records[i].valid) == STATE_VALID && records[i].kind == STATE_COMM) {
                        n += records[i].comm.n_nodes;
                        records[i].comm.n_nodes = 0;
                }
        munmap(map, (size_t)status.st_size);
        assert_int_equal(n, 2);
}

/* A successor knows which communicators were over several nodes, whatever they have failed of. */
static void failed_before_a_restart(bool older) {
        const struct fake_comm *comm;
        struct both b;
        char text[256];

        both_managed = true;
        setup_follower(&b);
        comm = &b.f.executor.comms[0];
        assert_int_equal(comm->n_choices, 1); /* the neighbour's word */
        b.n.peers = peers_free(b.n.peers);
        assert_comm_fails(&b, RMX_E_PEER_LOST);
        fixture_kill(&b.f);
        executor_disconnect(&b.f);
        if (older)
                make_older(&b);
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

static void test_failed_before_a_restart(void **unused) {
        (void)unused;
        failed_before_a_restart(false);
}

static void test_failed_before_an_update(void **unused) {
        (void)unused;
        failed_before_a_restart(true);
}

static void assert_staging(struct both *b, const struct plan_geometry *geometry) {
        char text[64];

        snprintf(text, sizeof(text), "\"staging_bytes\": %" PRIu64 ",", plan_staging_bytes(geometry, RANKS));
        fixture_assert_says(&b->f, "--json", "comms", text);
}

/* It has the staging of one that lies on one node then, and says so. */
static void test_staging_after_a_restart(void **unused) {
        struct plan_geometry near, far;
        struct both b;

        (void)unused;
        both_managed = true;
        setup_first(&b);
        plan_geometry_choose_nodes(RANKS, &far);
        assert_staging(&b, &far);
        succeed(&b);
        assert_comm_fails(&b, RMX_E_LOST);
        plan_geometry_choose(RANKS, &near);
        assert_true(plan_staging_bytes(&near, RANKS) < plan_staging_bytes(&far, RANKS));
        assert_staging(&b, &near);
        both_managed = false;
        finish(&b);
}

/* The only rail that the neighbour has, too, is known and cannot be opened: whoever reads that it is not there would
 * look for it in the configuration. */
static void test_rail_waits(void **unused) {
        static const char no_address[] = BOTH_CONFIG "  plain: yes\n  rails: 'other0=127.0.0.1 tcp0=192.0.2.1'\n";
        uint64_t calls[2];
        struct both b;

        (void)unused;
        both_managed = true;
        both_rails = "tcp0=127.0.0.1 other0=127.0.0.1";
        begin(&b, 0xee, 1);
        fixture_configure(&b.f, no_address, false); /* which is documentation's */
        succeed(&b);
        call_id_create(b.clients[0], b.id);
        for (uint32_t i = 0; i < 2; i++)
                calls[i] = send_comm_create(b.clients[i], b.id, RANKS, i);
        settle(&b);
        say_join(&b, 2, 7);
        say_join(&b, 3, 7);
        assert_split_fails(&b, calls, RMX_E_UNSUPPORTED, " while tcp0 of node ");
        both_managed = false;
        both_rails = NULL;
        for (uint32_t i = 0; i < 2; i++)
                client_close(b.clients[i]);
        abandon(&b); /* it has fewer descriptors than before, without that rail */
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_own_loss_is_not_believed),    cmocka_unit_test(test_lost_are_not_believed),
                cmocka_unit_test(test_nothing_waits_for_the_lost),  cmocka_unit_test(test_failure_goes_on),
                cmocka_unit_test(test_own_loss_is_told_besides),    cmocka_unit_test(test_ids_are_bounded),
                cmocka_unit_test(test_ids_of_a_restarted_node),     cmocka_unit_test(test_failed_before_a_restart),
                cmocka_unit_test(test_failed_before_an_update),     cmocka_unit_test(test_staging_after_a_restart),
                cmocka_unit_test(test_ids_of_a_tenant_are_bounded), cmocka_unit_test(test_rail_waits),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
