/* SPDX-License-Identifier: MIT */
/* A communicator over two nodes whose ranks are on GPUs: two here, two of a neighbour that the test plays. */
#include "tests/daemon/comm_nodes_fixture.h"

#include "gpu/plane.h"
#include "plan/cost.h"
#include "plan/nodes.h"
#include "plan/rails.h"
#include "railmux/railmux.h"
#include "ring/marks.h"
#include "tests/executor/fake_plane.h"
#include "util/clock.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS   2u
#define FAILED RAILMUX__SESSION__EVENT__BODY_COMM_FAILED

/* ---- what the test sees ------------------------------------------------------------------------------------------ */
/* How the executor was told of it last. */
static uint64_t last_attached(struct both *b, uint32_t gpu, char *ret_text, size_t size) {
        char text[1024], *end;
        uint64_t number;

        plane_text(&b->f, gpu, "comm_attach ", text, sizeof(text));
        number = strtoull(text, &end, 10);
        assert_true(number > 0);
        snprintf(ret_text, size, "%s", end);
        return number;
}

static uint64_t number_of(struct both *b) {
        char text[1024];

        return last_attached(b, 0, text, sizeof(text));
}

static unsigned int count(struct both *b, uint32_t gpu, const char *what, uint64_t comm, const char *more) {
        char text[256];

        snprintf(text, sizeof(text), "%s %" PRIu64 "%s", what, comm, more);
        return plane_count(&b->f, gpu, text);
}

static void assert_failed(struct both *b, uint32_t client, uint32_t code, int32_t rank, const char *word) {
        const Railmux__Session__CommFailed *failed;
        struct inbox_message *event;

        both_wait(b, client_has_event(b->clients[client], FAILED));
        event = client_event(b->clients[client], FAILED);
        failed = event->message->event->comm_failed;
        assert_int_equal(failed->handle, b->handles[client]);
        assert_int_equal(failed->code, code);
        assert_int_equal(failed->rank, rank);
        if (!strstr(failed->message, word))
                fail_msg("no \"%s\" in \"%s\"", word, failed->message);
        client_drop(b->clients[client], event);
}

static void assert_hears_failed(struct both *b, uint32_t code, int32_t rank) {
        const Railmux__Peer__Failed *failed = take(b, SAYS(FAILED))->failed;

        assert_true(failed->key == b->key);
        assert_int_equal(failed->code, code);
        assert_int_equal(failed->rank, rank);
}

static void assert_aborted(struct both *b, uint64_t comm, uint32_t code) {
        char text[64];

        snprintf(text, sizeof(text), " code=%u", code);
        for (uint32_t i = 0; i < GPUS; i++)
                both_wait(b, count(b, i, "comm_abort", comm, text) == 1);
}

static bool staging_used(struct both *b, uint64_t bytes) {
        char text[96];

        snprintf(text, sizeof(text), "\"staging_used_bytes\": %" PRIu64, bytes);
        return fixture_ctl_says(&b->f, "--json", "gpus", text);
}

static void set_up(struct both *b, bool first) {
        both_gpus = GPUS;
        if (first)
                setup_first(b);
        else
                setup_follower(b);
}

static int tear_down(void **state) {
        (void)state;
        both_managed = false;
        both_rails = NULL;
        fixture_reaches = 0;
        return 0;
}

static void leave(struct both *b, uint32_t client) {
        assert_int_equal(
                take_ack(b->clients[client], send_comm_destroy(b->clients[client], b->handles[client], 0), NULL, 0), 0);
}

/* ---- made -------------------------------------------------------------------------------------------------------- */
/* Ranks of the neighbour take nothing here, whichever GPU they are on there, and nothing of one node is settled. */
static void made(bool first) {
        const uint64_t share = plane_staging_bytes(RANKS);
        static const uint8_t node[RANKS] = {0, 0, 1, 1};
        struct plan_choice choices[PLAN_CHOICES_MAX];
        struct plan_nodes nodes;
        struct plan_net net;
        char text[1024], members[GPUS][64], expected[1024];
        const char *far = " far far";
        struct both b;

        assert_int_equal(plan_nodes_init(&nodes, RANKS, node), 0);
        plan_net_device(&net); /* one rail */
        fixture_reaches = 3;   /* both executors could reach */
        set_up(&b, first);
        for (uint32_t i = 0; i < GPUS; i++) {
                snprintf(members[i], sizeof(members[i]), " %s0@0 %s1@0", i == 0 ? "+" : "", i == 1 ? "+" : "");
                snprintf(expected, sizeof(expected),
                         " ranks=%u code=0 rank=-1 choices=%u%s%s%s lanes=0 reach=0 burst=0", RANKS,
                         first ? plan_choose_device_nodes(&nodes, RANKS, &net, choices) : 1, first ? "" : far,
                         members[i], first ? far : "");
                last_attached(&b, i, text, sizeof(text));
                assert_string_equal(text, expected);
                assert_int_equal(count(&b, i, "comm_nodes", number_of(&b), " 0 0 1 1"), 1);
        }
        assert_true(staging_used(&b, share));
        assert_false(staging_used(&b, 2 * share));
        snprintf(text, sizeof(text), "\"used\": %" PRIu64 ",",
                 GPUS * share + marks_bytes(RANKS) + plane_wire_bytes(GPUS, RANKS - GPUS));
        fixture_assert_says(&b.f, "--json", "tenants", text);
        snprintf(text, sizeof(text), "\"staging_bytes\": %" PRIu64 ",", GPUS * share);
        fixture_assert_says(&b.f, "--json", "comms", text);
        for (uint32_t i = 0; i < GPUS; i++)
                leave(&b, i);
        (void)take(&b, SAYS(ENDED));
        for (uint32_t i = 0; i < GPUS; i++) /* what was sent may be on its way */
                assert_int_equal(count(&b, i, "comm_detach", number_of(&b), ""), 0);
        finish(&b);
}

static void test_made_first(void **state) {
        (void)state;
        made(true);
}

/* The first node's rails are counted: its tables are those that all are told. */
static void test_rails(void **state) {
        static const uint8_t node[RANKS] = {0, 0, 1, 1};
        struct plan_choice choices[PLAN_CHOICES_MAX], few[PLAN_CHOICES_MAX];
        const Railmux__Peer__Assign *assign = NULL;
        struct plan_nodes nodes;
        struct plan_net net;
        bool differs;
        struct both b;
        uint32_t n;

        (void)state;
        both_rails = "tcp0=127.0.0.1 tcp1=127.0.0.1 tcp2=127.0.0.1 tcp3=127.0.0.1";
        set_up(&b, true);
        for (uint32_t i = 0; i < b.n.n_heard; i++)
                if (b.n.heard[i]->body_case == SAYS(ASSIGN))
                        assign = b.n.heard[i]->assign;
        assert_non_null(assign);
        assert_int_equal(plan_nodes_init(&nodes, RANKS, node), 0);
        plan_net_device(&net);
        n = plan_choose_device_nodes(&nodes, RANKS, &net, few);
        net.n_rails = 4;
        net.any_rail = true; /* peer.stripe is what it is if nobody says otherwise */
        differs = n != plan_choose_device_nodes(&nodes, RANKS, &net, choices);
        n = plan_choose_device_nodes(&nodes, RANKS, &net, choices);
        assert_int_equal(assign->n_choices, n);
        for (uint32_t i = 0; i < n; i++) {
                assert_int_equal(assign->choices[i]->operation, choices[i].operation);
                assert_int_equal(assign->choices[i]->algorithm, choices[i].algorithm);
                assert_true(assign->choices[i]->max_bytes == choices[i].max_bytes);
                differs = differs || choices[i].max_bytes != few[i].max_bytes;
        }
        assert_true(differs); /* or this would be no test */
        for (uint32_t i = 0; i < GPUS; i++)
                leave(&b, i);
        (void)take(&b, SAYS(ENDED));
        finish(&b);
}

static void test_made_follower(void **state) {
        (void)state;
        made(false);
}

static void test_says_that_it_has_gpus(void **state) {
        uint64_t calls[2];
        struct both b;

        (void)state;
        for (both_gpus = 0; both_gpus <= GPUS; both_gpus += GPUS) {
                const Railmux__Peer__Join *join;

                begin(&b, 0x11, 1);
                memset(b.id, 0, sizeof(b.id));
                b.id[0] = COMM_ID_VERSION;
                memcpy(b.id + 8, peers_node(b.n.peers), PEER_NODE_BYTES);
                snprintf((char *)b.id + 56, COMM_ID_ADDRESS_BYTES, "%s", peers_address(b.n.peers));
                for (uint32_t i = 0; i < 2; i++)
                        calls[i] = send_comm_create(b.clients[i], b.id, RANKS, 2 + i);
                join = take(&b, SAYS(JOIN))->join;
                assert_int_equal(join->device, both_gpus > 0);
                assert_unanswered(&b, calls);
                finish(&b);
        }
}

static void test_too_many(void **state) {
        struct comm_answer answer;
        struct both b;

        (void)state;
        both_gpus = GPUS;
        begin(&b, 0x11, 1);
        memset(b.id, 0, sizeof(b.id));
        b.id[0] = COMM_ID_VERSION;
        memcpy(b.id + 8, peers_node(b.n.peers), PEER_NODE_BYTES);
        snprintf((char *)b.id + 56, COMM_ID_ADDRESS_BYTES, "%s", peers_address(b.n.peers));
        answer = take_comm(b.clients[0], send_comm_create(b.clients[0], b.id, 65, 0));
        assert_int_equal(answer.code, RMX_E_INVALID);
        assert_non_null(strstr(answer.text, "n_ranks is 65; allowed: 1 .. 64"));
        finish(&b);
}

/* Ranks on GPUs and on emulated ones have no plan in common: whoever comes second is refused, and all hear why. */
static void test_mixed(void **state) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Join join = RAILMUX__PEER__JOIN__INIT;
        const Railmux__Peer__JoinFailed *failed;
        uint64_t calls[2];
        struct both b;

        (void)state;
        both_gpus = GPUS;
        begin(&b, 0xee, 1);
        for (uint32_t i = 0; i < 2; i++)
                calls[i] = send_comm_create(b.clients[i], b.id, RANKS, i);
        settle(&b);
        say_join(&b, 2, 7);
        settle(&b);
        assert_unanswered(&b, calls);
        join.comm_id.data = b.id;
        join.comm_id.len = COMM_ID_BYTES;
        join.tenant = "default";
        join.rank = 3;
        join.n_ranks = RANKS;
        join.attempt = 7;
        message.body_case = SAYS(JOIN);
        message.join = &join;
        say(&b, &message);
        failed = take(&b, SAYS(JOIN_FAILED))->join_failed;
        assert_int_equal(failed->code, RMX_E_INVALID);
        assert_non_null(strstr(failed->text, "this node serves emulated GPUs, but other ranks are on GPUs"));
        for (uint32_t i = 0; i < 2; i++) {
                struct comm_answer answer;

                both_wait(&b, client_find(b.clients[i], calls[i]));
                answer = take_comm(b.clients[i], calls[i]);
                assert_int_equal(answer.code, RMX_E_INVALID);
                assert_non_null(strstr(answer.text, "rank 3 is on emulated GPUs, the others are not"));
        }
        finish(&b);
}

/* An executor that has to stop its kernel first says so, and is asked again. */
static void test_busy(void **state) {
        uint64_t calls[2];
        struct both b;

        (void)state;
        both_gpus = GPUS;
        begin(&b, 0xee, 1);
        plane_write(&b.f, 1, "fail", "comm_attach 16"); /* EBUSY */
        for (uint32_t i = 0; i < 2; i++)
                calls[i] = send_comm_create(b.clients[i], b.id, RANKS, i);
        settle(&b);
        for (uint32_t r = 2; r < RANKS; r++)
                say_join(&b, r, 7);
        b.key = take(&b, SAYS(ASSIGN))->assign->key;
        say_ready(&b, b.key);
        both_wait(&b, plane_count(&b.f, 1, "comm_attach ") >= 3);
        assert_unanswered(&b, calls);
        assert_false(has_heard(&b.n, SAYS(GO)));
        assert_int_equal(plane_count(&b.f, 0, "comm_attach "), 1);
        plane_write(&b.f, 1, "fail", NULL);
        (void)take(&b, SAYS(GO));
        for (uint32_t i = 0; i < 2; i++) {
                both_wait(&b, client_find(b.clients[i], calls[i]));
                assert_int_equal(take_comm(b.clients[i], calls[i]).code, 0);
        }
        finish(&b);
}

/* ---- what comes from the neighbour ------------------------------------------------------------------------------- */
static void test_far_failure(void **state) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Failed failed = RAILMUX__PEER__FAILED__INIT;
        struct both b;

        (void)state;
        set_up(&b, true);
        failed.key = b.key;
        failed.code = RMX_E_MISMATCH;
        failed.rank = 3;
        failed.text = "a far word";
        message.body_case = SAYS(FAILED);
        message.failed = &failed;
        say(&b, &message);
        for (uint32_t i = 0; i < GPUS; i++)
                assert_failed(&b, i, RMX_E_MISMATCH, 3, "a far word");
        assert_aborted(&b, number_of(&b), RMX_E_MISMATCH);
        settle(&b);
        assert_false(has_heard(&b.n, SAYS(FAILED))); /* it knows */
        finish(&b);
}

static void test_far_node_lost(void **state) {
        struct both b;

        (void)state;
        set_up(&b, false);
        neighbour_stop(&b);
        b.n.base = event_base_new(); /* for whoever waits */
        for (uint32_t i = 0; i < GPUS; i++)
                assert_failed(&b, i, RMX_E_PEER_LOST, 0, "was lost");
        assert_aborted(&b, number_of(&b), RMX_E_PEER_LOST);
        finish(&b);
}

static void test_far_rank_leaves(void **state) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Left left = RAILMUX__PEER__LEFT__INIT;
        Railmux__Peer__Ended ended = RAILMUX__PEER__ENDED__INIT;
        uint64_t number;
        struct both b;

        (void)state;
        set_up(&b, true);
        number = number_of(&b);
        left.key = ended.key = b.key;
        left.last_sequence = 5;
        message.body_case = SAYS(LEFT);
        message.left = &left;
        left.rank = 0; /* not its own */
        say(&b, &message);
        left.rank = 3;
        say(&b, &message);
        for (uint32_t i = 0; i < GPUS; i++)
                both_wait(&b, count(&b, i, "rank_leave", number, " rank=3 last=5") == 1);
        left.rank = 2;
        say(&b, &message);
        for (uint32_t i = 0; i < GPUS; i++) {
                leave(&b, i);
                assert_int_equal(take(&b, SAYS(LEFT))->left->rank, i);
                assert_int_equal(count(&b, i, "comm_detach", number, ""), 0);
        }
        (void)take(&b, SAYS(ENDED));
        message.body_case = SAYS(ENDED);
        message.ended = &ended;
        say(&b, &message);
        for (uint32_t i = 0; i < GPUS; i++) {
                both_wait(&b, count(&b, i, "comm_detach", number, "") == 1);
                assert_int_equal(count(&b, i, "rank_leave", number, " rank=0 last=5"), 0);
                assert_int_equal(count(&b, i, "comm_abort", number, ""), 0);
        }
        both_wait(&b, !staging_used(&b, plane_staging_bytes(RANKS)));
        finish(&b);
}

/* All ranks here have called it: the missing ones are elsewhere. And what is final is so as far as is known here. */
static void test_stall(void **state) {
        uint64_t number;
        char text[128];
        struct both b;

        (void)state;
        set_up(&b, true);
        number = number_of(&b);
        for (uint32_t i = 0; i < GPUS; i++) {
                snprintf(text, sizeof(text), "%" PRIu64 " %u 11 10 1 0\n", number, i);
                plane_write(&b.f, i, "reports", text);
        }
        both_wait(&b, fixture_ctl_says(&b.f, "status", NULL, "all_reduce 11 has waited for ranks of other nodes for"));
        both_wait(&b, fixture_ctl_says(&b.f, "comms", NULL, "all_reduce 11 for ranks 2, 3 since"));
        snprintf(text, sizeof(text), "%" PRIu64 " 1 10 10 1 0\n", number);
        plane_write(&b.f, 1, "reports", text);
        snprintf(text, sizeof(text), "%" PRIu64 " 0 12 11 1 0\n", number);
        plane_write(&b.f, 0, "reports", text);
        both_wait(&b, fixture_ctl_says(&b.f, "status", NULL, "all_reduce 12 has waited for rank 1 for"));
        finish(&b);
}

/* ---- what ends here ---------------------------------------------------------------------------------------------- */
/* The neighbour need not wait until all executors here have ended it; the ranks here have to. */
static void test_executor_dies(void **state) {
        bool early = false;
        struct both b;

        set_up(&b, true);
        plane_hang(&b.f, 0, "hang");
        plane_kill(&b.f, 1);
        assert_hears_failed(&b, RMX_E_LOST, -1);
        both_wait(&b, count(&b, 0, "comm_abort", number_of(&b), "") == 1 || plane_is_late(&b.f, 0));
        settle(&b);
        for (uint32_t i = 0; i < GPUS; i++)
                early |= client_has_event(b.clients[i], FAILED);
        if (!plane_go(&b.f, 0, "hang")) {
                abandon(&b);
                test_executor_dies(state);
                return;
        }
        assert_false(early);
        assert_failed(&b, 0, RMX_E_LOST, -1, "executor of GPU 1 has died");
        assert_failed(&b, 1, RMX_E_DEVICE_LOST, -1, "executor of GPU 1 has died");
        settle(&b);
        assert_false(has_heard(&b.n, SAYS(FAILED))); /* once */
        plane_start(&b.f, 1);
        plane_wait_ready(&b.f, GPUS);
        finish(&b);
}

static void test_rank_dies(void **state) {
        uint64_t number, start_ns;
        struct both b;

        (void)state;
        set_up(&b, false);
        number = number_of(&b);
        start_ns = clock_now_ns();
        client_close(b.clients[1]);
        assert_hears_failed(&b, RMX_E_PEER_LOST, 3);
        /* It had nothing under way, so others were given time to finish (executor/plane_call_comm.c). */
        assert_true(clock_now_ns() - start_ns >= UINT64_C(300000000));
        assert_failed(&b, 0, RMX_E_PEER_LOST, 3, "");
        for (uint32_t i = 0; i < GPUS; i++)
                both_wait(&b, count(&b, i, "comm_abort", number, "") == 1);
        /* The last one here. */
        client_close(b.clients[0]);
        for (uint32_t i = 0; i < GPUS; i++)
                both_wait(&b, count(&b, i, "comm_detach", number, "") == 1);
        for (uint32_t i = 0; i < 2; i++)
                b.clients[i] = client_open(&b.f);
        finish(&b);
}

/* All ranks of this node in one go: nobody is left who could be told, but the neighbour is. */
static void test_all_ranks_die(void **state) {
        uint64_t number;
        struct both b;

        set_up(&b, true);
        number = number_of(&b);
        plane_hang(&b.f, 0, "hang");
        for (uint32_t i = 0; i < 2; i++)
                client_close(b.clients[i]);
        assert_int_equal(take(&b, SAYS(FAILED))->failed->code, RMX_E_PEER_LOST);
        if (!plane_go(&b.f, 0, "hang")) {
                abandon(&b);
                test_all_ranks_die(state);
                return;
        }
        for (uint32_t i = 0; i < GPUS; i++)
                both_wait(&b, count(&b, i, "comm_detach", number, "") == 1);
        for (uint32_t i = 0; i < 2; i++)
                b.clients[i] = client_open(&b.f);
        finish(&b);
}

/* A planned end: what is on this node alone is held and handed over, what is over several is lost at once. */
static void test_executor_is_replaced(void **state) {
        uint32_t handles[GPUS];
        uint64_t number, pair;
        struct both b;

        (void)state;
        set_up(&b, true);
        number = number_of(&b);
        pair = make_comm(b.clients, 2, handles);
        assert_int_equal(plane_stop(&b.f, 1), 0);
        for (uint32_t i = 0; i < GPUS; i++) {
                assert_failed(&b, i, RMX_E_LOST, -1, "is being replaced");
                assert_int_equal(count(&b, i, "comm_hold", number, " "), 0);
                assert_true(count(&b, i, "comm_hold", pair, " ") > 0);
        }
        assert_hears_failed(&b, RMX_E_LOST, -1);
        plane_start(&b.f, 1);
        plane_wait_ready(&b.f, GPUS);
        both_wait(&b, count(&b, 0, "comm_release", pair, "") == 1);
        assert_int_equal(count(&b, 0, "comm_move", pair, " "), 1);
        assert_int_equal(count(&b, 1, "comm_attach", pair, " ranks=2 code=0"), 2);
        assert_int_equal(count(&b, 0, "comm_move", number, " "), 0);
        for (uint32_t i = 0; i < GPUS; i++)
                assert_false(client_has_event(b.clients[i], FAILED));
        finish(&b);
}

/* What is on its GPU alone stands first, and has to wait until another one has let go of what is over several nodes. */
static void test_replacement_waits(void **state) {
        struct comm_answer alone;
        uint8_t id[COMM_ID_BYTES];
        unsigned int said = 0, drained;
        uint64_t number;
        struct both b;

        set_up(&b, true);
        number = number_of(&b);
        call_id_create(b.clients[1], id);
        alone = take_comm(b.clients[1], send_comm_create_on(b.clients[1], id, 1, 0, 1));
        assert_int_equal(alone.code, 0);
        plane_hang(&b.f, 0, "hang");
        plane_term(&b.f, 1);
        both_wait(&b, plane_is_late(&b.f, 0) || (count(&b, 0, "comm_abort", number, "") == 1 &&
                                                 count(&b, 1, "comm_hold", alone.comm, " ") > 0));
        for (unsigned int i = 0; i < 3; i++) /* railmuxd has heard how far it is */
                said += fixture_ctl_says(&b.f, "status", NULL, " hip ");
        drained = plane_count(&b.f, 1, "drain");
        if (!plane_go(&b.f, 0, "hang")) {
                abandon(&b);
                test_replacement_waits(state);
                return;
        }
        assert_int_equal(said, 3);
        assert_int_equal(drained, 0);
        assert_int_equal(plane_end(&b.f, 1), 0);
        assert_int_equal(plane_count(&b.f, 1, "drain"), 1);
        for (uint32_t i = 0; i < GPUS; i++)
                assert_failed(&b, i, RMX_E_LOST, -1, "is being replaced");
        plane_start(&b.f, 1);
        both_wait(&b, count(&b, 1, "comm_attach", alone.comm, " ranks=1 code=0") == 2);
        for (uint32_t i = 0; i < GPUS; i++)
                assert_false(client_has_event(b.clients[i], FAILED));
        finish(&b);
}

/* ---- a successor of railmuxd ------------------------------------------------------------------------------------- */
static void succeed(struct both *b) {
        fixture_start(&b->f);
        for (uint32_t i = 0; i < 2; i++) {
                both_wait(b, client_has_event(b->clients[i], RAILMUX__SESSION__EVENT__BODY_RESUMED));
                client_drop(b->clients[i], client_event(b->clients[i], RAILMUX__SESSION__EVENT__BODY_RESUMED));
        }
}

/* Executors go on with it until somebody tells them; its ranks hear of it only when all have ended it, also of the
 * successor's successor. What is on this node alone goes on. */
static void test_railmuxd_is_restarted(void **state) {
        uint32_t handles[GPUS];
        char expected[128], text[1024];
        bool early = false, shown;
        uint64_t number, pair;
        struct both b;

        both_managed = true;
        set_up(&b, false);
        number = number_of(&b);
        pair = make_comm(b.clients, 2, handles);
        fixture_kill(&b.f);
        both_wait(&b, b.n.lost);
        for (unsigned int restart = 0; restart < 2; restart++) {
                if (restart > 0)
                        fixture_kill(&b.f);
                plane_hang(&b.f, 1, "slow_detach"); /* each of them gives it the time anew */
                succeed(&b);
                for (uint32_t i = 0; i < GPUS; i++)
                        both_wait(&b, count(&b, i, "comm_detach", number, "") >= 1 || plane_is_late(&b.f, 1));
                for (uint32_t i = 0; i < GPUS; i++)
                        early |= client_has_event(b.clients[i], FAILED);
                if (plane_is_late(&b.f, 1))
                        break;
        }
        shown = fixture_ctl_says(&b.f, "--json", "comms", "another node");
        if (!plane_go(&b.f, 1, "slow_detach")) {
                abandon(&b);
                test_railmuxd_is_restarted(state);
                return;
        }
        assert_false(early);
        assert_true(shown);
        for (uint32_t i = 0; i < GPUS; i++) {
                assert_failed(&b, i, RMX_E_LOST, -1, "restarted");
                snprintf(expected, sizeof(expected), " ranks=%u code=%u rank=-1", RANKS, RMX_E_LOST);
                both_wait(&b, count(&b, i, "comm_attach", number, expected) > 0);
                plane_text(&b.f, i, "comm_attach ", text, sizeof(text));
                assert_non_null(strstr(text, i == 0 ? " gone gone +0@0 1@0 " : " gone gone 0@0 +1@0 "));
                assert_int_equal(count(&b, i, "comm_detach", pair, ""), 0);
        }
        for (uint32_t i = 0; i < GPUS; i++)
                leave(&b, i);
        for (uint32_t i = 0; i < GPUS; i++)
                both_wait(&b, count(&b, i, "comm_detach", number, "") >= 2);
        both_wait(&b, staging_used(&b, plane_staging_bytes(2)));
        finish(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_made_first, tear_down),
                cmocka_unit_test_teardown(test_made_follower, tear_down),
                cmocka_unit_test_teardown(test_rails, tear_down),
                cmocka_unit_test_teardown(test_says_that_it_has_gpus, tear_down),
                cmocka_unit_test_teardown(test_too_many, tear_down),
                cmocka_unit_test_teardown(test_mixed, tear_down),
                cmocka_unit_test_teardown(test_busy, tear_down),
                cmocka_unit_test_teardown(test_far_failure, tear_down),
                cmocka_unit_test_teardown(test_far_node_lost, tear_down),
                cmocka_unit_test_teardown(test_far_rank_leaves, tear_down),
                cmocka_unit_test_teardown(test_stall, tear_down),
                cmocka_unit_test_teardown(test_executor_dies, tear_down),
                cmocka_unit_test_teardown(test_rank_dies, tear_down),
                cmocka_unit_test_teardown(test_all_ranks_die, tear_down),
                cmocka_unit_test_teardown(test_executor_is_replaced, tear_down),
                cmocka_unit_test_teardown(test_replacement_waits, tear_down),
                cmocka_unit_test_teardown(test_railmuxd_is_restarted, tear_down),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
