/* SPDX-License-Identifier: MIT */
/*
 * Splits of a communicator over two nodes, and ids that both have alike. The neighbour says what it should, what it
 * must not, late, or nothing any more; once railmuxd is the first node, which decides, and once it is the other one.
 */
#include "tests/daemon/comm_nodes_fixture.h"

#include "daemon/session.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "railmux/railmux.h"
#include <string.h>

/* ---- railmuxd decides -------------------------------------------------------------------------------------------- */
/* What must change nothing. */
static void say_nonsense(struct both *b, uint32_t number) {
        Railmux__Peer__SplitJoin body = wish(b, number, 2, 1);

        body.key ^= 1;
        split_join(b, &body);
        body = wish(b, 0, 2, 1);
        split_join(b, &body);
        say_split_ready(b, number); /* too early */
        say_split_ready(b, number + 1);
        say_split_go(b, number); /* it decides itself */
        say_split_failed(b, number, RMX_E_DENIED, "not its business", true);
}

static void test_first(void **unused) {
        const Railmux__Peer__SplitForm *form;
        struct comm_answer answers[2];
        Railmux__Peer__SplitJoin body;
        uint64_t calls[2];
        struct both b;

        (void)unused;
        setup_first(&b);
        say_nonsense(&b, 1);
        settle(&b);
        client_splits(&b, 1, 5, calls);
        settle(&b);
        say_nonsense(&b, 1);
        body = wish(&b, 1, 2, 5);
        split_join(&b, &body);
        body.colour = 6; /* it has said so */
        split_join(&b, &body);
        assert_unanswered(&b, calls);
        assert_false(has_heard(&b.n, SAYS(SPLIT_FORM)));
        body = wish(&b, 1, 3, 5);
        body.order = -1;
        split_join(&b, &body);
        form = take(&b, SAYS(SPLIT_FORM))->split_form;
        assert_int_equal(form->n_places, RANKS);
        assert_int_equal(form->places[2]->colour, 5);
        assert_int_equal(form->places[3]->order, -1);
        assert_int_equal(form->places[3]->gpu, 0);
        assert_int_equal(form->places[2]->gpu, 1); /* rank 3 of 2 GPUs */
        assert_int_equal(form->n_children, 1);
        assert_true(form->children[0]->key && form->children[0]->key != b.key && form->children[0]->n_choices);
        assert_unanswered(&b, calls); /* the neighbour is not ready */
        say_split_ready(&b, 1);
        (void)take(&b, SAYS(SPLIT_GO));
        for (uint32_t i = 0; i < 2; i++) {
                answers[i] = take_split(&b, i, calls[i]);
                assert_int_equal(answers[i].code, 0);
                assert_int_equal(answers[i].n_ranks, RANKS);
                assert_int_equal(answers[i].rank, i + 1); /* the neighbour's last has come first */
        }
        /* Again: the same answer. From the neighbour, which must know it: nothing. */
        assert_int_equal(take_comm(b.clients[0], send_comm_split(b.clients[0], b.handles[0], 1, 5, 0)).handle,
                         answers[0].handle);
        body = wish(&b, 1, 2, 5);
        split_join(&b, &body);
        /* Each node for itself: no word of communicators that are not over both. */
        client_splits(&b, 2, 1, calls);
        body = wish(&b, 2, 2, 2);
        split_join(&b, &body);
        body = wish(&b, 2, 3, -1);
        split_join(&b, &body);
        form = take(&b, SAYS(SPLIT_FORM))->split_form;
        assert_int_equal(form->n_children, 0);
        say_split_ready(&b, 2);
        answers[0] = take_split(&b, 0, calls[0]);
        assert_int_equal(answers[0].n_ranks, 2);
        assert_non_null(executor_comm(&b.f, answers[0].comm));
        finish(&b);
}

static void test_first_is_told(void **unused) {
        const Railmux__Peer__SplitFailed *failed;
        Railmux__Peer__SplitJoin body;
        uint64_t calls[2];
        struct both b;

        (void)unused;
        setup_first(&b);
        /* It cannot be over there, before all have joined and after. */
        for (uint32_t number = 1; number <= 2; number++) {
                client_splits(&b, number, 0, calls);
                body = wish(&b, number, 2, 0);
                split_join(&b, &body);
                if (number == 2) {
                        body = wish(&b, number, 3, 0);
                        split_join(&b, &body);
                        (void)take(&b, SAYS(SPLIT_FORM));
                }
                say_split_failed(&b, number, number == 1 ? RMX_E_LIMIT : 9999, "no room here", false);
                assert_split_fails(&b, calls, number == 1 ? RMX_E_LIMIT : RMX_E_LOST, "no room here");
                failed = take(&b, SAYS(SPLIT_FAILED))->split_failed;
                assert_true(failed->verdict && failed->number == number);
                assert_int_equal(failed->code, number == 1 ? RMX_E_LIMIT : RMX_E_LOST);
        }
        /* A rank that comes late hears it, too. */
        body = wish(&b, 1, 3, 0);
        split_join(&b, &body);
        failed = take(&b, SAYS(SPLIT_FAILED))->split_failed;
        assert_true(failed->verdict && failed->number == 1 && failed->code);
        /* A client gives up. */
        client_splits(&b, 3, 0, calls);
        assert_int_equal(take_ack(b.clients[1], send_split_cancel(b.clients[1], b.handles[1], 3), NULL, 0), 0);
        assert_split_fails(&b, calls, RMX_E_ABORTED, "gave up");
        assert_int_equal(take(&b, SAYS(SPLIT_FAILED))->split_failed->code, RMX_E_ABORTED);
        /* A client dies when all have joined. */
        client_splits(&b, 4, 0, calls);
        for (uint32_t r = 2; r < RANKS; r++) {
                body = wish(&b, 4, r, 0);
                split_join(&b, &body);
        }
        (void)take(&b, SAYS(SPLIT_FORM));
        client_close(b.clients[1]);
        assert_int_equal(take_split(&b, 0, calls[0]).code, RMX_E_PEER_LOST);
        failed = take(&b, SAYS(SPLIT_FAILED))->split_failed;
        assert_true(failed->verdict && failed->number == 4 && failed->code == RMX_E_PEER_LOST);
        b.clients[1] = client_open(&b.f);
        finish(&b);
}

/* The neighbour goes: before it has joined, before it is ready, and as the first node. */
static void test_neighbour_lost(void **unused) {
        for (uint32_t when = 0; when < 3; when++) {
                uint64_t calls[2];
                struct both b;

                (void)unused;
                if (when < 2)
                        setup_first(&b);
                else
                        setup_follower(&b);
                client_splits(&b, 1, 0, calls);
                if (when == 1) {
                        for (uint32_t r = 2; r < RANKS; r++) {
                                Railmux__Peer__SplitJoin body = wish(&b, 1, r, 0);

                                split_join(&b, &body);
                        }
                        (void)take(&b, SAYS(SPLIT_FORM));
                }
                if (when == 2)
                        (void)take(&b, SAYS(SPLIT_JOIN));
                b.n.peers = peers_free(b.n.peers);
                for (uint32_t i = 0; i < 2; i++)
                        assert_int_equal(take_split(&b, i, calls[i]).code, RMX_E_PEER_LOST);
                finish(&b);
        }
}

/* ---- the neighbour decides --------------------------------------------------------------------------------------- */
enum lie {
        NO_LIE,
        LIE_PLACES,
        LIE_COLOUR,
        LIE_ORDER,
        LIE_NAME,
        LIE_NO_CHILD,
        LIE_MORE_CHILDREN,
        LIE_NO_KEY,
        LIE_USED_KEY,
        LIE_CHOICES,
        LIE_NO_CHOICES,
        LIE_PART,
        LIE_STAGING,
        LIES,
};

static void say_form(struct both *b, uint32_t number, enum lie lie) {
        static char name[SESSION_NAME_MAX + 1];
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__SplitForm body = RAILMUX__PEER__SPLIT_FORM__INIT;
        Railmux__Peer__SplitPlace places[RANKS], *place_list[RANKS];
        Railmux__Peer__SplitChild child = RAILMUX__PEER__SPLIT_CHILD__INIT, *children[] = {&child, &child};
        Railmux__Peer__Choice choice = RAILMUX__PEER__CHOICE__INIT, *choices[PLAN_CHOICES_MAX + 1];
        struct plan_geometry geometry;

        memset(name, 'n', SESSION_NAME_MAX);
        for (uint32_t r = 0; r < RANKS; r++) {
                railmux__peer__split_place__init(&places[r]);
                place_list[r] = &places[r];
        }
        places[3].colour = lie == LIE_COLOUR;
        places[3].order = lie == LIE_ORDER;
        places[0].name = lie == LIE_NAME ? name : "";
        places[0].gpu = UINT32_MAX; /* of another node: a number to show */
        for (uint32_t i = 0; i <= PLAN_CHOICES_MAX; i++)
                choices[i] = &choice;
        choice.operation = 1;
        choice.max_bytes = UINT64_MAX;
        plan_geometry_choose(RANKS, &geometry);
        child.key = lie == LIE_NO_KEY ? 0 : lie == LIE_USED_KEY ? b->key : KEY + number;
        child.choices = choices;
        child.n_choices = lie == LIE_CHOICES ? PLAN_CHOICES_MAX + 1 : lie != LIE_NO_CHOICES;
        child.part_bytes = lie == LIE_PART ? 63 : geometry.part_bytes;
        child.slots = lie == LIE_STAGING ? 1u << 30 : geometry.slots;
        body.key = b->key;
        body.number = number;
        body.places = place_list;
        body.n_places = lie == LIE_PLACES ? RANKS - 1 : RANKS;
        body.children = children;
        body.n_children = lie == LIE_NO_CHILD ? 0 : lie == LIE_MORE_CHILDREN ? 2 : 1;
        message.body_case = SAYS(SPLIT_FORM);
        message.split_form = &body;
        say(b, &message);
}

static void test_follower(void **unused) {
        const Railmux__Peer__SplitFailed *failed;
        struct comm_answer answers[2];
        uint64_t calls[2];
        uint32_t number = 1;
        struct both b;

        (void)unused;
        setup_follower(&b);
        for (enum lie lie = LIE_PLACES; lie < LIES; lie++, number++) {
                client_splits(&b, number, 0, calls);
                assert_int_equal(take(&b, SAYS(SPLIT_JOIN))->split_join->rank, 2);
                assert_int_equal(take(&b, SAYS(SPLIT_JOIN))->split_join->rank, 3);
                say_form(&b, number, lie);
                failed = take(&b, SAYS(SPLIT_FAILED))->split_failed;
                if (failed->verdict || failed->code != RMX_E_INTERNAL || !strstr(failed->text, "cannot be"))
                        fail_msg("lie %d: code %u, %s", (int)lie, failed->code, failed->text);
                say_form(&b, number, NO_LIE); /* it has complained already */
                assert_unanswered(&b, calls);
                say_split_go(&b, number); /* and is not ready */
                assert_unanswered(&b, calls);
                say_split_failed(&b, number, failed->code, failed->text, true);
                assert_split_fails(&b, calls, RMX_E_INTERNAL, "cannot be");
        }
        /* Ready, but not told to go; a request is no decision, and another split's neither. */
        client_splits(&b, number, 0, calls);
        (void)take(&b, SAYS(SPLIT_JOIN));
        (void)take(&b, SAYS(SPLIT_JOIN));
        say_form(&b, number, NO_LIE);
        (void)take(&b, SAYS(SPLIT_READY));
        say_form(&b, number, NO_LIE);
        say_split_go(&b, number + 1);
        say_split_failed(&b, number, RMX_E_LIMIT, "asked", false);
        assert_unanswered(&b, calls);
        say_split_go(&b, number);
        for (uint32_t i = 0; i < 2; i++) {
                answers[i] = take_split(&b, i, calls[i]);
                assert_int_equal(answers[i].code, 0);
                assert_int_equal(answers[i].rank, 2 + i);
        }
        assert_false(has_heard(&b.n, SAYS(SPLIT_READY)));
        finish(&b);
}

static void test_follower_late(void **unused) {
        uint64_t calls[2], call;
        struct both b;

        (void)unused;
        setup_follower(&b);
        /* Decided before anybody here has called, and it stays so; what cannot be decided on yet is not. */
        say_split_failed(&b, 1, RMX_E_LIMIT, "somebody had no room", true);
        say_split_failed(&b, 1, RMX_E_DENIED, "another word", true);
        say_split_failed(&b, 0, RMX_E_DENIED, "none", true);
        say_split_failed(&b, 2 + 40, RMX_E_DENIED, "too far", true);
        settle(&b);
        client_splits(&b, 1, 0, calls);
        assert_split_fails(&b, calls, RMX_E_LIMIT, "somebody had no room");
        /* Of two ranks one has come. */
        call = send_comm_split(b.clients[0], b.handles[0], 2, 0, 0);
        (void)take(&b, SAYS(SPLIT_JOIN));
        say_form(&b, 2, NO_LIE);
        (void)take(&b, SAYS(SPLIT_FAILED));
        say_split_failed(&b, 2, RMX_E_ABORTED, "no", true);
        assert_int_equal(take_split(&b, 0, call).code, RMX_E_ABORTED);
        assert_int_equal(take_comm(b.clients[1], send_comm_split(b.clients[1], b.handles[1], 2, 0, 0)).code,
                         RMX_E_ABORTED);
        /* A rank that is ready dies: the others of the child have to hear of it if they are let go. */
        client_splits(&b, 3, 0, calls);
        (void)take(&b, SAYS(SPLIT_JOIN));
        (void)take(&b, SAYS(SPLIT_JOIN));
        say_form(&b, 3, NO_LIE);
        (void)take(&b, SAYS(SPLIT_READY));
        b.f.executor.announce_failures = true;
        client_close(b.clients[1]);
        assert_int_equal(take_split(&b, 0, calls[0]).code, RMX_E_PEER_LOST);
        while (take(&b, SAYS(FAILED))->failed->key != KEY + 3)
                ;
        b.clients[1] = client_open(&b.f);
        finish(&b);
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */
static void test_ids(void **unused) {
        uint8_t ids[3][COMM_ID_BYTES], filled[COMM_ID_BYTES];
        const Railmux__Peer__IdAsk *ask;
        uint64_t calls[2];
        struct both b;

        (void)unused;
        setup_follower(&b);
        for (uint32_t i = 0; i < 2; i++)
                calls[i] = send_id_create(b.clients[i], b.handles[i], 9);
        ask = take(&b, SAYS(ID_ASK))->id_ask;
        assert_true(ask->key == b.key && ask->number == 9);
        assert_string_equal(ask->tenant, "default");
        say_id(&b, b.key ^ 1, 9, 1, COMM_ID_BYTES);
        say_id(&b, b.key, 8, 2, COMM_ID_BYTES);
        assert_unanswered(&b, calls);
        say_id(&b, b.key, 9, 3, COMM_ID_BYTES);
        memset(filled, 3, sizeof(filled));
        for (uint32_t i = 0; i < 2; i++) {
                take_id(&b, i, calls[i], ids[i]);
                assert_memory_equal(ids[i], filled, COMM_ID_BYTES);
        }
        calls[0] = send_id_create(b.clients[0], b.handles[0], 10);
        say_id(&b, b.key, 10, 4, 2 * COMM_ID_BYTES); /* too early, too long */
        (void)take(&b, SAYS(ID_ASK));
        say_id(&b, b.key, 10, 4, 2 * COMM_ID_BYTES);
        assert_int_equal(take_split(&b, 0, calls[0]).code, RMX_E_INTERNAL);
        /* A rank asks and goes; then the answer comes. */
        calls[0] = send_id_create(b.clients[1], b.handles[1], 11);
        (void)take(&b, SAYS(ID_ASK));
        client_close(b.clients[1]);
        settle(&b);
        say_id(&b, b.key, 11, 5, COMM_ID_BYTES);
        settle(&b);
        b.clients[1] = client_open(&b.f);
        /* The first node is asked, and lost: now it is this one's. */
        calls[0] = send_id_create(b.clients[0], b.handles[0], 12);
        (void)take(&b, SAYS(ID_ASK));
        b.n.peers = peers_free(b.n.peers);
        take_id(&b, 0, calls[0], ids[0]);
        take_id(&b, 0, send_id_create(b.clients[0], b.handles[0], 12), ids[1]);
        take_id(&b, 0, send_id_create(b.clients[0], b.handles[0], 13), ids[2]);
        assert_memory_equal(ids[0], ids[1], COMM_ID_BYTES);
        assert_memory_not_equal(ids[0], ids[2], COMM_ID_BYTES);
        finish(&b);
}

/* That the first node was lost another one says, which has noticed before. (Here there are two, and it says so itself.)
 */
static void test_ids_by_hearsay(void **unused) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Failed body = RAILMUX__PEER__FAILED__INIT;
        uint8_t ids[2][COMM_ID_BYTES];
        struct both b;
        uint64_t call;

        (void)unused;
        setup_follower(&b);
        call = send_id_create(b.clients[0], b.handles[0], 12);
        (void)take(&b, SAYS(ID_ASK));
        body.key = b.key;
        body.code = RMX_E_PEER_LOST;
        body.rank = 0;
        body.lost = 3; /* there is no such node */
        message.body_case = SAYS(FAILED);
        message.failed = &body;
        say(&b, &message);
        settle(&b);
        assert_null(client_find(b.clients[0], call));
        body.lost = 1; /* and of one that has failed already it is heard, too */
        say(&b, &message);
        take_id(&b, 0, call, ids[0]);
        take_id(&b, 1, send_id_create(b.clients[1], b.handles[1], 12), ids[1]);
        assert_memory_equal(ids[0], ids[1], COMM_ID_BYTES);
        assert_false(has_heard(&b.n, SAYS(ID_ASK)));
        finish(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_first),          cmocka_unit_test(test_first_is_told),
                cmocka_unit_test(test_neighbour_lost), cmocka_unit_test(test_follower),
                cmocka_unit_test(test_follower_late),  cmocka_unit_test(test_ids),
                cmocka_unit_test(test_ids_by_hearsay),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
