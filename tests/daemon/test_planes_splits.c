/* SPDX-License-Identifier: MIT */
/*
 * Splits over two nodes whose ranks are on GPUs, of which something goes wrong between the first node's word and its
 * verdict: until that comes the new communicator is neither there nor gone, and railmuxd has to go on. The neighbour,
 * which the test plays, decides.
 */
#include "tests/daemon/comm_nodes_fixture.h"

#include "gpu/plane.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "railmux/railmux.h"
#include "tests/executor/fake_plane.h"
#include "util/clock.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS      3u
#define SPARE     1u        /* the communicator that is split has its ranks here on the GPUs 2 and 0 */
#define CHILD_KEY (KEY + 1) /* of the new one */
#define FAILED    RAILMUX__SESSION__EVENT__BODY_COMM_FAILED

static int tear_down(void **state) {
        (void)state;
        both_managed = false;
        return 0;
}

/* All ranks are in one communicator. */
static void say_form(struct both *b) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__SplitForm body = RAILMUX__PEER__SPLIT_FORM__INIT;
        Railmux__Peer__SplitPlace places[RANKS], *place_list[RANKS];
        Railmux__Peer__SplitChild child = RAILMUX__PEER__SPLIT_CHILD__INIT, *children[] = {&child};
        Railmux__Peer__Choice choice = RAILMUX__PEER__CHOICE__INIT, *choices[] = {&choice};
        struct plan_geometry geometry;

        for (uint32_t r = 0; r < RANKS; r++) {
                railmux__peer__split_place__init(&places[r]);
                place_list[r] = &places[r];
        }
        choice.operation = 1;
        choice.max_bytes = UINT64_MAX;
        plan_geometry_choose(RANKS, &geometry);
        child.key = CHILD_KEY;
        child.choices = choices;
        child.n_choices = 1;
        child.part_bytes = geometry.part_bytes;
        child.slots = geometry.slots;
        body.key = b->key;
        body.number = 1;
        body.places = place_list;
        body.n_places = RANKS;
        body.children = children;
        body.n_children = 1;
        message.body_case = SAYS(SPLIT_FORM);
        message.split_form = &body;
        say(b, &message);
}

static void set_up(struct both *b) {
        both_gpus = GPUS;
        setup_follower(b);
}

/* The first client's new rank is on the spare GPU, the second one's on GPU 0. */
static void begin_split(struct both *b, uint64_t ret_calls[2]) {
        for (uint32_t i = 0; i < 2; i++)
                ret_calls[i] = send_comm_split_on(b->clients[i], b->handles[i], 1, 0, 0, i == 0 ? (int32_t)SPARE : 0);
        for (uint32_t i = 0; i < 2; i++)
                (void)take(b, SAYS(SPLIT_JOIN));
        say_form(b);
}

static void assert_complains(struct both *b, uint32_t code, const char *word) {
        const Railmux__Peer__SplitFailed *failed = take(b, SAYS(SPLIT_FAILED))->split_failed;

        assert_true(failed->key == b->key && failed->number == 1 && !failed->verdict);
        assert_int_equal(failed->code, code);
        assert_non_null(strstr(failed->text, word));
}

static void assert_failed(struct both *b, uint32_t client, uint32_t handle, uint32_t code, const char *word) {
        const Railmux__Session__CommFailed *failed;
        struct inbox_message *event;

        both_wait(b, client_has_event(b->clients[client], FAILED));
        event = client_event(b->clients[client], FAILED);
        failed = event->message->event->comm_failed;
        assert_int_equal(failed->handle, handle);
        assert_int_equal(failed->code, code);
        assert_non_null(strstr(failed->message, word));
        client_drop(b->clients[client], event);
}

static unsigned int count(struct both *b, uint32_t gpu, const char *what, uint64_t comm, const char *more) {
        char text[128];

        snprintf(text, sizeof(text), "%s %" PRIu64 "%s", what, comm, more);
        return plane_count(&b->f, gpu, text);
}

/* ---- an executor dies -------------------------------------------------------------------------------------------- */
/* All nodes were ready, and the first one lets them go on: the ranks get it with its error, and the others hear. The
 * dead executor's successor may have come before. */
static void goes_on(bool replaced) {
        uint64_t calls[2], comm = 0;
        char text[64];
        struct both b;

        set_up(&b);
        begin_split(&b, calls);
        (void)take(&b, SAYS(SPLIT_READY));
        plane_kill(&b.f, SPARE);
        assert_complains(&b, RMX_E_DEVICE_LOST, "executor of GPU 1 has died");
        settle(&b);
        assert_unanswered(&b, calls);
        if (replaced) {
                plane_start(&b.f, SPARE);
                plane_wait_ready(&b.f, GPUS);
        }
        assert_false(has_heard(&b.n, SAYS(FAILED)));
        say_split_go(&b, 1);
        for (uint32_t i = 0; i < 2; i++) {
                struct comm_answer answer = take_split(&b, i, calls[i]);

                assert_int_equal(answer.code, 0);
                assert_failed(&b, i, answer.handle, i == 0 ? RMX_E_DEVICE_LOST : RMX_E_LOST, "GPU 1 has died");
                comm = answer.comm;
        }
        assert_true(take(&b, SAYS(FAILED))->failed->key == CHILD_KEY);
        assert_int_equal(count(&b, 0, "comm_abort", comm, ""), 1);
        if (!replaced) {
                plane_start(&b.f, SPARE);
                plane_wait_ready(&b.f, GPUS);
        }
        for (uint32_t i = 0; i < 2; i++) { /* they answer its requests with that */
                snprintf(text, sizeof(text), " ranks=4 code=%u", i == SPARE ? RMX_E_DEVICE_LOST : RMX_E_LOST);
                both_wait(&b, count(&b, i, "comm_attach", comm, text) == 1);
        }
        assert_false(client_has_event(b.clients[0], FAILED)); /* the one that was split goes on */
        finish(&b);
}

static void test_goes_on(void **unused) {
        (void)unused;
        goes_on(false);
}

static void test_goes_on_replaced(void **unused) {
        (void)unused;
        goes_on(true);
}

/* The neighbour need not wait until the executors here have ended it. */
static void test_goes_on_slowly(void **state) {
        struct comm_answer answers[2];
        uint64_t calls[2], key;
        bool early = false;
        struct both b;

        set_up(&b);
        begin_split(&b, calls);
        (void)take(&b, SAYS(SPLIT_READY));
        plane_hang(&b.f, 0, "hang");
        plane_kill(&b.f, SPARE);
        assert_complains(&b, RMX_E_DEVICE_LOST, "executor of GPU 1 has died");
        say_split_go(&b, 1);
        for (uint32_t i = 0; i < 2; i++)
                answers[i] = take_split(&b, i, calls[i]);
        key = take(&b, SAYS(FAILED))->failed->key;
        for (uint32_t i = 0; i < 2; i++)
                early |= client_has_event(b.clients[i], FAILED);
        if (!plane_go(&b.f, 0, "hang")) {
                abandon(&b);
                test_goes_on_slowly(state);
                return;
        }
        for (uint32_t i = 0; i < 2; i++)
                assert_int_equal(answers[i].code, 0);
        assert_true(key == CHILD_KEY);
        assert_false(early);
        for (uint32_t i = 0; i < 2; i++)
                assert_failed(&b, i, answers[i].handle, i == 0 ? RMX_E_DEVICE_LOST : RMX_E_LOST, "GPU 1 has died");
        plane_start(&b.f, SPARE);
        plane_wait_ready(&b.f, GPUS);
        finish(&b);
}

/* One executor has it, the other one not yet. */
static void test_not_ready(void **unused) {
        uint64_t calls[2];
        struct both b;

        (void)unused;
        set_up(&b);
        plane_write(&b.f, SPARE, "fail", "comm_attach 16"); /* EBUSY */
        begin_split(&b, calls);
        both_wait(&b, plane_count(&b.f, SPARE, "comm_attach ") >= 2 && plane_count(&b.f, 0, "comm_attach ") == 2);
        plane_kill(&b.f, SPARE);
        assert_complains(&b, RMX_E_DEVICE_LOST, "executor of GPU 1 has died");
        plane_write(&b.f, SPARE, "fail", NULL);
        plane_start(&b.f, SPARE);
        plane_wait_ready(&b.f, GPUS);
        assert_unanswered(&b, calls);
        assert_false(has_heard(&b.n, SAYS(SPLIT_READY)));
        say_split_failed(&b, 1, RMX_E_DEVICE_LOST, "it cannot be", true);
        assert_split_fails(&b, calls, RMX_E_DEVICE_LOST, "it cannot be");
        both_wait(&b, plane_count(&b.f, 0, "comm_detach ") == 2 && plane_count(&b.f, SPARE, "comm_detach ") == 1);
        finish(&b);
}

/* It is one of the communicator that is split, too: all is over, whatever the first node says. */
static void test_parent_lost(void **state) {
        uint64_t calls[2];
        struct both b;
        bool waits;

        set_up(&b);
        begin_split(&b, calls);
        (void)take(&b, SAYS(SPLIT_READY));
        plane_hang(&b.f, 2, "hang");
        plane_kill(&b.f, 0);
        assert_true(take(&b, SAYS(FAILED))->failed->key == b.key);
        waits = unanswered(&b, calls);
        if (!plane_go(&b.f, 2, "hang")) {
                abandon(&b);
                test_parent_lost(state);
                return;
        }
        assert_true(waits);
        assert_split_fails(&b, calls, RMX_E_LOST, "the parent communicator has failed");
        assert_true(take(&b, SAYS(FAILED))->failed->key == CHILD_KEY); /* they may have been told to go on */
        for (uint32_t i = 0; i < 2; i++)
                assert_failed(&b, i, b.handles[i], i == 1 ? RMX_E_DEVICE_LOST : RMX_E_LOST, "GPU 0 has died");
        say_split_go(&b, 1);
        settle(&b);
        plane_start(&b.f, 0);
        plane_wait_ready(&b.f, GPUS);
        finish(&b);
}

/* ---- no room ----------------------------------------------------------------------------------------------------- */
/* Until the verdict railmuxd may try again, and does whenever something has changed. */
static void test_pool_is_full(void **unused) {
        uint64_t calls[2], number = 0;
        struct comm_answer answer;
        uint8_t id[COMM_ID_BYTES];
        uint32_t handle = 0;
        struct both b;

        (void)unused;
        set_up(&b);
        do {
                uint64_t call;

                call_id_create(b.clients[0], id);
                call = send_comm_create_on(b.clients[0], id, 2, 0, (int32_t)SPARE);
                answer = take_comm(b.clients[0], send_comm_create_on(b.clients[0], id, 2, 1, (int32_t)SPARE));
                assert_int_equal(take_comm(b.clients[0], call).code, answer.code);
                if (!answer.code)
                        handle = answer.handle;
                assert_true(number++ < FAKE_PLANE_POOL / plane_staging_bytes(2));
        } while (!answer.code);
        assert_int_equal(answer.code, RMX_E_LIMIT);
        begin_split(&b, calls);
        assert_complains(&b, RMX_E_LIMIT, "GPU 1 has no staging left");
        assert_int_equal(take_ack(b.clients[0], send_comm_abort(b.clients[0], handle), NULL, 0), 0);
        assert_unanswered(&b, calls);
        assert_false(has_heard(&b.n, SAYS(SPLIT_READY)) || has_heard(&b.n, SAYS(SPLIT_FAILED)));
        say_split_failed(&b, 1, RMX_E_LIMIT, "no room", true);
        assert_split_fails(&b, calls, RMX_E_LIMIT, "no room");
        finish(&b);
}

/* ---- a successor of railmuxd ------------------------------------------------------------------------------------- */
#define BACK_NS (UINT64_C(4500) * 1000000u) /* more than an executor has for ending a communicator */
#define TICK_NS (UINT64_C(2100) * 1000000u) /* in that time railmuxd looks once for one that does not */

/* An executor that comes late has the time that others have to end what was lost with the predecessor. */
static void test_late_executor(void **state) {
        bool early = false;
        uint64_t since_ns;
        struct both b;

        both_managed = true;
        set_up(&b);
        kill(b.f.planes[0], SIGSTOP);
        fixture_kill(&b.f);
        both_wait(&b, b.n.lost);
        fixture_start(&b.f);
        since_ns = clock_now_ns();
        both_wait(&b, plane_count(&b.f, 2, "comm_detach ") == 1 && clock_now_ns() - since_ns > BACK_NS);
        plane_hang(&b.f, 0, "slow_detach");
        kill(b.f.planes[0], SIGCONT);
        both_wait(&b, plane_count(&b.f, 0, "comm_detach ") == 1 || plane_is_late(&b.f, 0));
        since_ns = clock_now_ns();
        both_wait(&b, clock_now_ns() - since_ns > TICK_NS);
        for (uint32_t i = 0; i < 2; i++)
                early |= client_has_event(b.clients[i], FAILED);
        if (!plane_go(&b.f, 0, "slow_detach")) {
                abandon(&b);
                test_late_executor(state);
                return;
        }
        assert_false(early);
        for (uint32_t i = 0; i < 2; i++)
                assert_failed(&b, i, b.handles[i], RMX_E_LOST, "railmuxd was restarted");
        assert_int_equal(plane_stop(&b.f, 0), 0); /* it is alive */
        plane_start(&b.f, 0);
        plane_wait_ready(&b.f, GPUS);
        finish(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_goes_on, tear_down),
                cmocka_unit_test_teardown(test_goes_on_replaced, tear_down),
                cmocka_unit_test_teardown(test_goes_on_slowly, tear_down),
                cmocka_unit_test_teardown(test_not_ready, tear_down),
                cmocka_unit_test_teardown(test_parent_lost, tear_down),
                cmocka_unit_test_teardown(test_pool_is_full, tear_down),
                cmocka_unit_test_teardown(test_late_executor, tear_down),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
