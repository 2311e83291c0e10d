/* SPDX-License-Identifier: MIT */
/*
 * Splits that fail for one rank fail for all, on one node and over two: what a neighbour says of its ranks cannot be,
 * the tenant has no room, a rank comes when it is over.
 */
#include "tests/daemon/comm_nodes_fixture.h"

#include "daemon/session.h"
#include "railmux/railmux.h"
#include <stdio.h>
#include <string.h>

/* ---- what cannot be ---------------------------------------------------------------------------------------------- */
enum wrong {
        WRONG_OWNER,   /* a rank of railmuxd's own */
        WRONG_RANK,    /* one more than there are */
        WRONG_NUMBER,  /* far more */
        WRONG_NO_GPUS, /* a node without any */
        WRONG_GPUS,
        WRONG_GPU, /* none of its two */
        WRONG_GPU_BELOW,
        WRONG_NAME,
        WRONGS,
};

static void say_wrong_join(struct both *b, uint32_t number, enum wrong wrong) {
        static char name[SESSION_NAME_MAX + 1];
        Railmux__Peer__SplitJoin body = wish(b, number, 2, 1);

        memset(name, 'x', SESSION_NAME_MAX);
        if (wrong == WRONG_OWNER)
                body.rank = 0;
        else if (wrong == WRONG_RANK)
                body.rank = RANKS;
        else if (wrong == WRONG_NUMBER)
                body.rank = UINT32_MAX;
        else if (wrong == WRONG_NO_GPUS || wrong == WRONG_GPUS)
                body.gpus = wrong == WRONG_GPUS ? 65 : 0;
        else if (wrong == WRONG_GPU || wrong == WRONG_GPU_BELOW)
                body.gpu = wrong == WRONG_GPU ? 2 : -2;
        else
                body.name = name;
        split_join(b, &body);
}

/* Nobody waits for a rank that has said nonsense, and all hear what it was; before any other has come, and after. */
static void test_wrong_joins(void **unused) {
        static const char *const words[WRONGS] = {"not on that node", "not on that node", "not on that node",
                                                  "1 to 64 GPUs",     "1 to 64 GPUs",     "none of that node's",
                                                  "none of that",     "63 bytes"};
        const Railmux__Peer__SplitFailed *failed;
        Railmux__Peer__SplitJoin body;
        uint64_t calls[2];
        uint32_t number = 1;
        struct both b;

        (void)unused;
        setup_first(&b);
        for (uint32_t i = 0; i < 2 * WRONGS; i++, number++) {
                if (i % 2)
                        client_splits(&b, number, 0, calls);
                settle(&b);
                say_wrong_join(&b, number, i / 2);
                failed = take(&b, SAYS(SPLIT_FAILED))->split_failed;
                if (!failed->verdict || failed->number != number || failed->code != RMX_E_INTERNAL ||
                    !strstr(failed->text, words[i / 2]))
                        fail_msg("wrong %u: %u, %s", i / 2, failed->code, failed->text);
                if (i % 2 == 0)
                        client_splits(&b, number, 0, calls);
                assert_split_fails(&b, calls, RMX_E_INTERNAL, words[i / 2]);
        }
        /* Numbers that nobody can have come to: said to who has said it, and nothing for the others. */
        client_splits(&b, number, 0, calls);
        for (uint32_t i = 0; i < 2; i++) {
                uint32_t far = i ? UINT32_MAX : number + 32;

                body = wish(&b, far, 2, 0);
                split_join(&b, &body);
                failed = take(&b, SAYS(SPLIT_FAILED))->split_failed;
                assert_true(failed->verdict && failed->number == far && failed->code == RMX_E_INTERNAL);
                assert_non_null(strstr(failed->text, "too early"));
        }
        assert_unanswered(&b, calls);
        say_wrong_join(&b, number, WRONG_GPU);
        assert_split_fails(&b, calls, RMX_E_INTERNAL, "none of that node's");
        finish(&b);
}

/* ---- no room ----------------------------------------------------------------------------------------------------- */
#define USED "railmux_tenant_used{tenant=\"default\",resource=\"bytes\"}"

static void limit_bytes(struct both *b, double bytes) {
        char config[512];

        snprintf(config, sizeof(config), BOTH_CONFIG "limits: {bytes: %.0f}\n", bytes);
        fixture_configure(&b->f, config, true);
}

/* What a split takes while it is under way is charged, on the node of a rank and on the one that decides; and what does
 * not fit is refused to all. */
static void test_charged(void **unused) {
        const Railmux__Peer__SplitFailed *failed;
        double before, here, both;
        Railmux__Peer__SplitJoin body;
        uint64_t calls[2];
        struct both b;

        (void)unused;
        setup_first(&b);
        before = fixture_metric(&b.f, USED);
        /* The one that decides: a rank elsewhere has come. */
        body = wish(&b, 1, 2, 0);
        split_join(&b, &body);
        settle(&b);
        here = fixture_metric(&b.f, USED) - before;
        assert_true(here > 1000);
        client_splits(&b, 1, 0, calls);
        settle(&b);
        both = fixture_metric(&b.f, USED) - before;
        assert_true(both > here + 100);
        say_split_failed(&b, 1, RMX_E_ABORTED, "no", false);
        assert_split_fails(&b, calls, RMX_E_ABORTED, "no");
        assert_true(fixture_metric(&b.f, USED) == before);
        /* No room for a rank of this node. */
        (void)take(&b, SAYS(SPLIT_FAILED));
        limit_bytes(&b, before + (both - here) - 1);
        calls[0] = send_comm_split(b.clients[0], b.handles[0], 2, 0, 0);
        assert_int_equal(take_split(&b, 0, calls[0]).code, RMX_E_LIMIT);
        failed = take(&b, SAYS(SPLIT_FAILED))->split_failed;
        assert_true(failed->verdict && failed->number == 2 && failed->code == RMX_E_LIMIT);
        calls[1] = send_comm_split(b.clients[1], b.handles[1], 2, -1, 0);
        assert_int_equal(take_split(&b, 1, calls[1]).code, RMX_E_LIMIT);
        /* None for the decision. */
        limit_bytes(&b, before + both - 1);
        client_splits(&b, 3, 0, calls);
        assert_split_fails(&b, calls, RMX_E_LIMIT, "bytes limit");
        assert_int_equal(take(&b, SAYS(SPLIT_FAILED))->split_failed->code, RMX_E_LIMIT);
        assert_true(fixture_metric(&b.f, USED) == before);
        limit_bytes(&b, before + both);
        client_splits(&b, 4, 0, calls);
        assert_unanswered(&b, calls);
        finish(&b);
}

static void test_charged_on_one_node(void **unused) {
        struct client *clients[2];
        uint32_t handles[2];
        char config[64];
        struct fixture f;
        uint64_t call;
        double before;

        (void)unused;
        fixture_setup(&f, NULL, false);
        for (uint32_t i = 0; i < 2; i++)
                clients[i] = client_open(&f);
        make_comm(clients, 2, handles);
        before = fixture_metric(&f, USED);
        snprintf(config, sizeof(config), "limits: {bytes: %.0f}\n", before < 1048576 ? 1048576 : before);
        if (before < 1048576) { /* less cannot be allowed */
                client_drop(clients[0], client_answer(clients[0], send_buffer_create(clients[0], 1, 1048576)));
                before = fixture_metric(&f, USED);
                snprintf(config, sizeof(config), "limits: {bytes: %.0f}\n", before);
        }
        fixture_configure(&f, config, true);
        assert_int_equal(take_comm(clients[1], send_comm_split(clients[1], handles[1], 1, 0, 0)).code, RMX_E_LIMIT);
        assert_int_equal(take_comm(clients[0], send_comm_split(clients[0], handles[0], 1, -1, 0)).code, RMX_E_LIMIT);
        fixture_configure(&f, "", true);
        call = send_comm_split(clients[0], handles[0], 2, -1, 0);
        assert_int_equal(take_comm(clients[1], send_comm_split(clients[1], handles[1], 2, -1, 0)).code, 0);
        assert_int_equal(take_comm(clients[0], call).code, 0);
        assert_true(fixture_metric(&f, USED) == before);
        for (uint32_t i = 0; i < 2; i++)
                client_close(clients[i]);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

/* ---- what a client says that cannot be --------------------------------------------------------------------------- */
/* The others would wait for that rank: whether they come before it or after. Who calls again is waited for. */
static void test_wrong_gpu(void **unused) {
        static const int32_t wrong[] = {-2, 8, INT32_MAX};
        struct comm_answer answer;
        struct client *clients[2];
        uint32_t handles[2];
        struct fixture f;
        uint64_t calls[2];

        (void)unused;
        fixture_setup(&f, NULL, false);
        for (uint32_t i = 0; i < 2; i++)
                clients[i] = client_open(&f);
        make_comm(clients, 2, handles);
        for (uint32_t number = 1; number <= 6; number++) {
                bool first = number % 2;

                if (!first)
                        calls[0] = send_comm_split(clients[0], handles[0], number, 0, 0);
                answer = take_comm(clients[1],
                                   send_comm_split_on(clients[1], handles[1], number, 0, 0, wrong[(number - 1) / 2]));
                assert_int_equal(answer.code, RMX_E_INVALID);
                assert_non_null(strstr(answer.text, "allowed: -1 .. 7"));
                if (first)
                        calls[0] = send_comm_split(clients[0], handles[0], number, 0, 0);
                answer = take_comm(clients[0], calls[0]);
                assert_int_equal(answer.code, RMX_E_INVALID);
                assert_non_null(strstr(answer.text, "allowed: -1 .. 7"));
        }
        calls[1] = send_comm_split(clients[1], handles[1], 7, 0, 0);
        (void)send_comm_split_on(clients[1], handles[1], 7, 0, 0, 8);
        assert_int_equal(take_comm(clients[0], send_comm_split(clients[0], handles[0], 7, 0, 0)).code, 0);
        assert_int_equal(take_comm(clients[1], calls[1]).code, 0);
        for (uint32_t i = 0; i < 2; i++)
                client_close(clients[i]);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

/* The same over two nodes: the first one says so to all. */
static void test_wrong_gpu_over_nodes(void **unused) {
        const Railmux__Peer__SplitFailed *failed;
        struct comm_answer answer;
        uint64_t call = 0;
        struct both b;

        (void)unused;
        setup_first(&b);
        for (uint32_t number = 1; number <= 2; number++) {
                if (number == 2)
                        call = send_comm_split(b.clients[0], b.handles[0], number, 0, 0);
                answer = take_split(&b, 1, send_comm_split_on(b.clients[1], b.handles[1], number, 0, 0, 8));
                assert_int_equal(answer.code, RMX_E_INVALID);
                failed = take(&b, SAYS(SPLIT_FAILED))->split_failed;
                assert_true(failed->verdict && failed->number == number && failed->code == RMX_E_INVALID);
                if (number == 1)
                        call = send_comm_split(b.clients[0], b.handles[0], number, 0, 0);
                answer = take_split(&b, 0, call);
                assert_int_equal(answer.code, RMX_E_INVALID);
                assert_non_null(strstr(answer.text, "gpu is 8"));
        }
        finish(&b);
}

/* ---- too late ---------------------------------------------------------------------------------------------------- */
/* A rank that wants no communicator comes when the split is over: as the others it hears that it failed, also after a
 * restart; and not of one that it has taken part in. */
static void test_late_without_colour(void **unused) {
        struct client *clients[2];
        uint32_t handles[2], number = 1;
        struct comm_answer answer;
        struct fixture f;
        uint64_t call;

        (void)unused;
        fixture_setup(&f, NULL, true);
        for (uint32_t i = 0; i < 2; i++)
                clients[i] = client_open(&f);
        make_comm(clients, 2, handles);
        for (uint32_t round = 0; round < 100; round++, number += 2) {
                bool restart = round % 25 == 24;

                if (round == 50) { /* from now on numbers fail whose place in the words was another's */
                        call = send_comm_split(clients[0], handles[0], number, -1, 0);
                        assert_int_equal(
                                take_comm(clients[1], send_comm_split(clients[1], handles[1], number, 0, 0)).code, 0);
                        assert_int_equal(take_comm(clients[0], call).code, 0);
                        number++;
                }
                call = send_comm_split(clients[0], handles[0], number, -1, 0);
                assert_int_equal(take_comm(clients[1], send_comm_split(clients[1], handles[1], number, -1, 0)).code, 0);
                assert_int_equal(take_comm(clients[0], call).code, 0);
                call = send_comm_split(clients[0], handles[0], number + 1, 0, 0);
                take_ack(clients[0], send_split_cancel(clients[0], handles[0], number + 1), NULL, 0);
                assert_int_equal(take_comm(clients[0], call).code, RMX_E_ABORTED);
                if (restart) {
                        executor_disconnect(&f);
                        fixture_kill(&f);
                        fixture_start(&f);
                        executor_connect(&f, false);
                }
                answer = take_comm(clients[1], send_comm_split(clients[1], handles[1], number + 1, -1, 0));
                assert_int_equal(answer.code, restart ? RMX_E_LOST : RMX_E_ABORTED);
                assert_true(!restart || strstr(answer.text, "failed before railmuxd was restarted"));
                assert_int_equal(take_comm(clients[1], send_comm_split(clients[1], handles[1], number, -1, 0)).code, 0);
        }
        /* Nobody asks again about what is so long ago: it can only be too late. */
        for (uint32_t old = 1; old <= 2; old++)
                assert_int_equal(take_comm(clients[1], send_comm_split(clients[1], handles[1], old, -1, 0)).code,
                                 RMX_E_INVALID);
        for (uint32_t i = 0; i < 2; i++)
                client_close(clients[i]);
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

/* The same over two nodes, where the first one has said so before anybody here has called. */
static void test_late_over_nodes(void **unused) {
        uint64_t calls[2];
        struct both b;

        (void)unused;
        setup_follower(&b);
        say_split_failed(&b, 1, RMX_E_LIMIT, "somebody had no room", true);
        settle(&b);
        client_splits(&b, 1, -1, calls);
        assert_split_fails(&b, calls, RMX_E_LIMIT, "somebody had no room");
        finish(&b);
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */
/* As many communicators as there may be of four ranks: two, each over both nodes. Returns the tables made up to now. */
static double split_in_two(struct both *b, uint32_t number) {
        uint64_t calls[2];

        for (uint32_t i = 0; i < 2; i++)
                calls[i] = send_comm_split(b->clients[i], b->handles[i], number, (int32_t)i, 0);
        for (uint32_t r = 2; r < RANKS; r++) {
                Railmux__Peer__SplitJoin body = wish(b, number, r, (int32_t)r - 2);

                split_join(b, &body);
        }
        assert_int_equal(take(b, SAYS(SPLIT_FORM))->split_form->n_children, 2);
        say_split_ready(b, number);
        for (uint32_t i = 0; i < 2; i++)
                assert_int_equal(take_split(b, i, calls[i]).n_ranks, 2);
        return fixture_metric(&b->f, "railmux_plans_chosen_total");
}

/* Communicators that lie on nodes alike have plans alike, and nobody works them out twice. */
static void test_plans_are_kept(void **unused) {
        double chosen;
        uint64_t calls[2];
        struct both b;

        (void)unused;
        setup_first(&b);
        chosen = split_in_two(&b, 1);
        assert_true(chosen == 2); /* the first communicator's, and the children's */
        for (uint32_t number = 2; number <= 3; number++)
                assert_true(split_in_two(&b, number) == chosen);
        fixture_configure(&b.f, BOTH_CONFIG, true); /* the constants may be others now */
        client_splits(&b, 4, 0, calls);
        for (uint32_t r = 2; r < RANKS; r++) {
                Railmux__Peer__SplitJoin body = wish(&b, 4, r, 0);

                split_join(&b, &body);
        }
        (void)take(&b, SAYS(SPLIT_FORM));
        assert_true(fixture_metric(&b.f, "railmux_plans_chosen_total") == chosen + 1);
        finish(&b);
}

/* With another number of rails they are others, and the old ones are there when it is as before. */
static void test_plans_go_by_rails(void **unused) {
        struct both b;

        (void)unused;
        both_rails = "tcp0=127.0.0.1 tcp1=127.0.0.1";
        setup_first(&b);
        assert_true(split_in_two(&b, 1) == 2);
        fixture_assert_says(&b.f, "drain-rail", "tcp1", "");
        assert_true(split_in_two(&b, 2) == 3);
        fixture_assert_says(&b.f, "undrain-rail", "tcp1", "");
        assert_true(split_in_two(&b, 3) == 3);
        finish(&b);
        both_rails = NULL;
}

/* Only those that the tenant may take count, in communicators and their splits alike. */
static void test_plans_go_by_rails_of_the_tenant(void **unused) {
        uint64_t calls[2];
        struct both b;

        (void)unused;
        both_rails = "tcp0=127.0.0.1 tcp1=127.0.0.1 tcp2=127.0.0.1";
        both_more = "tenants: {by_uid: 't=0-4294967294,rails=tcp0/tcp1'}\n";
        both_tenant = "t";
        setup_first(&b);
        assert_true(split_in_two(&b, 1) == 2);
        fixture_assert_says(&b.f, "drain-rail", "tcp2", "");
        assert_true(split_in_two(&b, 2) == 2);
        fixture_assert_says(&b.f, "drain-rail", "tcp1", "");
        assert_true(split_in_two(&b, 3) == 3);
        fixture_assert_says(&b.f, "undrain-rail", "tcp1", "");
        client_splits(&b, 4, 0, calls); /* as what is split */
        for (uint32_t r = 2; r < RANKS; r++) {
                Railmux__Peer__SplitJoin body = wish(&b, 4, r, 0);

                split_join(&b, &body);
        }
        (void)take(&b, SAYS(SPLIT_FORM));
        assert_true(fixture_metric(&b.f, "railmux_plans_chosen_total") == 3);
        finish(&b);
        both_rails = both_more = NULL;
        both_tenant = "default";
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_wrong_joins),         cmocka_unit_test(test_charged),
                cmocka_unit_test(test_charged_on_one_node), cmocka_unit_test(test_late_without_colour),
                cmocka_unit_test(test_late_over_nodes),     cmocka_unit_test(test_plans_are_kept),
                cmocka_unit_test(test_plans_go_by_rails),   cmocka_unit_test(test_plans_go_by_rails_of_the_tenant),
                cmocka_unit_test(test_wrong_gpu),           cmocka_unit_test(test_wrong_gpu_over_nodes),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
