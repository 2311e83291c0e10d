/* SPDX-License-Identifier: MIT */
/* What becomes of communicators when an executor of a GPU ends. */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "gpu/plane.h"
#include "railmux/railmux.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GPUS 4u

struct set { /* a fixture, four clients, a comm of all and one of the first two */
        struct fixture fixture;
        struct client *clients[GPUS];
        uint64_t all, pair;
        uint32_t all_handles[GPUS], pair_handles[2];
};

static int setup(void **state) {
        struct set *set = malloc(sizeof(*set));

        fixture_setup_planes(&set->fixture, GPUS, false);
        for (uint32_t i = 0; i < GPUS; i++)
                set->clients[i] = client_open(&set->fixture);
        set->all = make_comm(set->clients, GPUS, set->all_handles);
        set->pair = make_comm(set->clients, 2, set->pair_handles);
        *state = set;
        return 0;
}

static int setup_reaching(void **state) {
        fixture_reaches = UINT64_MAX;
        return setup(state);
}

static int teardown(void **state) {
        struct set *set = *state;

        fixture_teardown(&set->fixture);
        fixture_reaches = 0;
        free(set);
        return 0;
}

static uint32_t failure_of(struct client *client, uint32_t handle, char *ret_text, size_t size) {
        struct inbox_message *event = client_event(client, RAILMUX__SESSION__EVENT__BODY_COMM_FAILED);
        uint32_t code = event->message->event->comm_failed->code;

        assert_int_equal(event->message->event->comm_failed->handle, handle);
        if (ret_text)
                snprintf(ret_text, size, "%s", event->message->event->comm_failed->message);
        client_drop(client, event);
        return code;
}

static const char *line(char *text, size_t size, const char *what, uint64_t comm) {
        snprintf(text, size, "%s %" PRIu64, what, comm);
        return text;
}

/* The others' comms go on, those with the GPU fail everywhere; with a new executor new ones can be made. */
static void test_killed(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint32_t handles[GPUS];
        char text[96], why[160];
        uint64_t fresh;

        plane_kill(f, 3);
        assert_int_equal(failure_of(set->clients[3], set->all_handles[3], why, sizeof(why)), RMX_E_DEVICE_LOST);
        assert_non_null(strstr(why, "executor of GPU 3 has died"));
        for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(failure_of(set->clients[i], set->all_handles[i], NULL, 0), RMX_E_LOST);
                snprintf(text, sizeof(text), "comm_abort %" PRIu64 " code=%u rank=-1", set->all, RMX_E_LOST);
                assert_int_equal(plane_count(f, i, text), 1);
                assert_int_equal(plane_count(f, i, line(text, sizeof(text), "comm_abort", set->pair)), 0);
        }
        plane_start(f, 3);
        plane_wait_ready(f, GPUS);
        for (uint32_t i = 0; i < 3; i++) {
                /* The dead pool is let go of before the new one comes, and the comm keeps its error. */
                fixture_wait(f, plane_count(f, i, "peer_add 3") == 2);
                fixture_wait(f, plane_count(f, i, line(text, sizeof(text), "comm_attach", set->all)) == 2);
                assert_int_equal(plane_count(f, i, line(text, sizeof(text), "comm_detach", set->all)), 1);
                assert_true(plane_line(f, i, text) < plane_line(f, i, "peer_add 3"));
                snprintf(text, sizeof(text), "comm_attach %" PRIu64 " ranks=4 code=%u", set->all, RMX_E_LOST);
                assert_int_equal(plane_count(f, i, text), 1);
                assert_int_equal(plane_count(f, i, line(text, sizeof(text), "comm_detach", set->pair)), 0);
        }
        snprintf(text, sizeof(text), "comm_attach %" PRIu64 " ranks=4 code=%u", set->all, RMX_E_DEVICE_LOST);
        fixture_wait(f, plane_count(f, 3, text) == 1);
        fresh = make_comm(set->clients, GPUS, handles);
        for (uint32_t i = 0; i < GPUS; i++) {
                snprintf(text, sizeof(text), "comm_attach %" PRIu64 " ranks=4 code=0", fresh);
                assert_int_equal(plane_count(f, i, text), 1);
        }
        for (uint32_t r = 0; r < GPUS; r++)
                assert_int_equal(
                        take_ack(set->clients[r], send_comm_destroy(set->clients[r], set->all_handles[r], 0), NULL, 0),
                        0);
        for (uint32_t i = 0; i < GPUS; i++)
                fixture_wait(f,
                             plane_count(f, i, line(text, sizeof(text), "comm_detach", set->all)) == (i == 3 ? 1 : 2));
}

/* A context that is lost ends the executor by itself. */
static void test_context_lost(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        int status = 0;

        plane_write(f, 1, "lost", "");
        assert_int_equal(waitpid(f->planes[1], &status, 0), f->planes[1]);
        f->planes[1] = 0;
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        assert_int_equal(plane_count(f, 1, "close"), 0); /* closing could wait for ever */
        plane_write(f, 1, "lost", NULL);
        for (uint32_t r = 0; r < 2; r++) { /* both comms had a rank there, in whatever order they are gone through */
                for (unsigned int i = 0; i < 2; i++) {
                        struct inbox_message *event =
                                client_event(set->clients[r], RAILMUX__SESSION__EVENT__BODY_COMM_FAILED);

                        assert_int_equal(event->message->event->comm_failed->code,
                                         r == 1 ? RMX_E_DEVICE_LOST : RMX_E_LOST);
                        client_drop(set->clients[r], event);
                }
        }
        assert_int_equal(failure_of(set->clients[2], set->all_handles[2], NULL, 0), RMX_E_LOST);
}

/* A planned end ends the kernels first, even if a comm cannot be brought to a stand. */
static void test_stopped(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        char why[160];

        plane_write(f, 2, "unsettled", "");
        assert_int_equal(plane_stop(f, 2), 0);
        assert_true(plane_line(f, 2, "drain") > 0 && plane_line(f, 2, "close") > plane_line(f, 2, "drain"));
        assert_int_equal(failure_of(set->clients[2], set->all_handles[2], why, sizeof(why)), RMX_E_DEVICE_LOST);
        assert_non_null(strstr(why, "executor of GPU 2 was stopped"));
}

/* One whose requests do not come to an end is not waited for without bound; its kernels are ended. */
static void test_stopped_busy(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        plane_write(f, 2, "busy", "");
        assert_int_equal(plane_stop(f, 2), 0);
        assert_int_equal(plane_count(f, 2, "close"), 1);
}

/* A comm that is being made waits for an executor that is missing. */
static void test_made_meanwhile(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint64_t calls[GPUS];
        uint8_t id[COMM_ID_BYTES];

        plane_kill(f, 0);
        for (uint32_t r = 2; r < GPUS; r++)
                failure_of(set->clients[r], set->all_handles[r], NULL, 0);
        call_id_create(set->clients[0], id);
        for (uint32_t r = 0; r < GPUS; r++)
                calls[r] = send_comm_create(set->clients[r], id, GPUS, r);
        call_id_create(set->clients[3], id); /* answered after the call before it was handled */
        assert_null(client_find(set->clients[3], calls[3]));
        plane_start(f, 0);
        for (uint32_t r = 0; r < GPUS; r++)
                assert_int_equal(take_comm(set->clients[r], calls[r]).code, 0);
}

/* Two die at once, and come back one after the other. */
static void test_two_killed(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint32_t handles[GPUS];
        char text[96];

        kill(f->planes[2], SIGSTOP); /* so that neither hears of the other */
        plane_kill(f, 3);
        plane_kill(f, 2);
        for (uint32_t r = 0; r < 2; r++)
                assert_int_equal(failure_of(set->clients[r], set->all_handles[r], NULL, 0), RMX_E_LOST);
        plane_start(f, 3);
        plane_wait_ready(f, 3);
        plane_start(f, 2);
        plane_wait_ready(f, GPUS);
        make_comm(set->clients, GPUS, handles);
        for (uint32_t i = 0; i < GPUS; i++)
                fixture_wait(f, plane_count(f, i, line(text, sizeof(text), "comm_attach", set->all)) == 2);
        assert_int_equal(failure_of(set->clients[2], set->all_handles[2], NULL, 0), RMX_E_LOST);
        assert_int_equal(failure_of(set->clients[3], set->all_handles[3], NULL, 0), RMX_E_DEVICE_LOST);
}

/* One that does not end what it should end is killed, and counts as dead then. */
static void test_hangs(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint64_t call;

        plane_write(f, 2, "hang", "");
        call = send_comm_abort(set->clients[0], set->all_handles[0]);
        assert_int_equal(take_ack(set->clients[0], call, NULL, 0), 0);
        assert_int_equal(waitpid(f->planes[2], NULL, 0), f->planes[2]);
        f->planes[2] = 0;
        for (uint32_t r = 0; r < GPUS; r++)
                assert_int_equal(failure_of(set->clients[r], set->all_handles[r], NULL, 0), RMX_E_ABORTED);
}

/* Memory that a new executor cannot have: its owner is out on this GPU until it brings other memory. */
static void test_memory_lost(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        struct client *client = set->clients[3];
        uint32_t handles[GPUS];
        uint8_t id[COMM_ID_BYTES];

        expect_reply(client, send_ring_open_device(client, 3, "old", 0));
        expect_reply(client, send_buffer_create_device(client, 1, 4096, 3, "old"));
        plane_kill(f, 3);
        assert_int_equal(failure_of(client, set->all_handles[3], NULL, 0), RMX_E_DEVICE_LOST);
        plane_write(f, 3, "fail", "ring_attach 5");
        plane_start(f, 3);
        fixture_wait(f, plane_count(f, 3, "ring_attach") == 2);
        plane_wait_ready(f, GPUS);
        call_id_create(client, id);
        assert_int_equal(take_comm(client, send_comm_create_on(client, id, GPUS, 3, 3)).code, RMX_E_DEVICE_LOST);
        plane_write(f, 3, "fail", NULL);
        expect_reply(client, send_ring_open_device(client, 3, "new", 0));
        assert_int_equal(plane_count(f, 3, "ring_attach"), 3);
        make_comm(set->clients, GPUS, handles);
        assert_int_equal(plane_count(f, 3, "buffer_import"), 2);
        assert_int_equal(take_ack(client, send_buffer_destroy(client, 1), NULL, 0), 0);
}

/* One that could not map the staging of another is asked again when somebody needs it. */
static void test_peer_refused(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint32_t handles[GPUS];

        for (uint32_t i = 0; i < GPUS; i++)
                assert_int_equal(
                        take_ack(set->clients[i], send_comm_destroy(set->clients[i], set->all_handles[i], 0), NULL, 0),
                        0);
        for (uint32_t i = 0; i < GPUS; i++)
                fixture_wait(f, plane_count(f, i, "comm_detach 1") == 1);
        plane_write(f, 2, "fail", "peer_add 12");
        plane_kill(f, 3);
        plane_start(f, 3);
        fixture_wait(f, plane_count(f, 2, "peer_add 3 ") == 2);
        plane_wait_ready(f, GPUS);
        /* Its answers come in order: that to peer_add has been heard. */
        client_drop(set->clients[2],
                    client_answer(set->clients[2], send_buffer_create_device(set->clients[2], 77, 5000, 2, "buffer")));
        plane_write(f, 2, "fail", NULL);
        make_comm(set->clients, GPUS, handles);
        assert_int_equal(plane_count(f, 2, "peer_add 3 "), 3);
        assert_int_equal(plane_count(f, 1, "peer_add 3 "), 2);
        make_comm(set->clients, GPUS, handles);
        assert_int_equal(plane_count(f, 2, "peer_add 3 "), 3);
}

/* A successor is there before another executor has ended what it shared with the one before: that keeps its pool until
 * then (or the plug-in says WRONG), and nothing that needs both is made. */
static void test_early_successor(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint32_t handles[GPUS];
        unsigned int attached;
        uint64_t calls[2];
        uint8_t id[COMM_ID_BYTES];
        char text[96];

        plane_hang(f, 1, NULL);
        plane_kill(f, 0);
        plane_start(f, 0);
        fixture_wait(f, plane_count(f, 0, "peer_add 2 ") == 2);
        call_id_create(set->clients[0], id);
        for (uint32_t r = 0; r < 2; r++)
                calls[r] = send_comm_create(set->clients[r], id, 2, r);
        (void)take_ack(set->clients[1], send_buffer_destroy(set->clients[1], 77), NULL, 0); /* it has been heard */
        attached = plane_count(f, 0, "comm_attach ");
        if (!plane_go(f, 1, NULL)) {
                teardown(state);
                setup_reaching(state);
                test_early_successor(state);
                return;
        }
        assert_int_equal(attached, 2); /* of the one that was killed */
        for (uint32_t r = 0; r < 2; r++)
                assert_int_equal(take_comm(set->clients[r], calls[r]).code, 0);
        for (uint32_t i = 0; i < GPUS; i++)
                fixture_wait(f, plane_count(f, i, line(text, sizeof(text), "comm_attach", set->all)) == 2);
        assert_int_equal(failure_of(set->clients[1], set->all_handles[1], NULL, 0), RMX_E_LOST);
        make_comm(set->clients, GPUS, handles);
        assert_int_equal(plane_count(f, 1, "peer_add 0 "), 2);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
                cmocka_unit_test_setup_teardown(test_context_lost, setup, teardown),
                cmocka_unit_test_setup_teardown(test_stopped, setup, teardown),
                cmocka_unit_test_setup_teardown(test_stopped_busy, setup, teardown),
                cmocka_unit_test_setup_teardown(test_made_meanwhile, setup, teardown),
                cmocka_unit_test_setup_teardown(test_two_killed, setup, teardown),
                cmocka_unit_test_setup_teardown(test_hangs, setup, teardown),
                cmocka_unit_test_setup_teardown(test_memory_lost, setup, teardown),
                cmocka_unit_test_setup_teardown(test_peer_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(test_early_successor, setup_reaching, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
