/* SPDX-License-Identifier: MIT */
/* Executors of GPUs that are replaced as planned: communicators stand still, and go on. */
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

#define GPUS   4u
#define FAILED RAILMUX__SESSION__EVENT__BODY_COMM_FAILED

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

static int teardown(void **state) {
        struct set *set = *state;

        fixture_teardown(&set->fixture);
        free(set);
        return 0;
}

/* How many lines of this kind about this comm. */
static unsigned int count(struct set *set, uint32_t gpu, const char *what, uint64_t comm, const char *more) {
        char text[96];

        snprintf(text, sizeof(text), "%s %" PRIu64 "%s", what, comm, more);
        return plane_count(&set->fixture, gpu, text);
}

static void assert_told_nothing(struct set *set) {
        uint8_t id[COMM_ID_BYTES];

        for (uint32_t i = 0; i < GPUS; i++) {
                call_id_create(set->clients[i], id); /* events come before the answer */
                assert_false(client_has_event(set->clients[i], FAILED));
                assert_false(client_has_event(set->clients[i], RAILMUX__SESSION__EVENT__BODY_EPOCH_CHANGED));
        }
}

/* One is replaced: the comm of all goes on where it was, the others' is not touched, and nobody is told anything. */
static void test_replaced(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint32_t handles[GPUS];

        client_drop(set->clients[3], client_answer(set->clients[3], send_ring_open_device(set->clients[3], 3, "a", 0)));
        for (uint32_t i = 0; i < GPUS; i++)
                plane_write(f, i, "taken", i == 1 ? "42" : "41");
        assert_int_equal(plane_stop(f, 3), 0);
        for (uint32_t i = 0; i < GPUS; i++) {
                assert_true(count(set, i, "comm_hold", set->all, " upto=-1") >= 1);
                assert_int_equal(count(set, i, "comm_hold", set->pair, ""), 0);
                assert_int_equal(count(set, i, "comm_abort", set->all, ""), 0);
        }
        assert_true(count(set, 3, "comm_hold", set->all, " upto=42") >= 1);
        assert_int_equal(plane_count(f, 3, "close"), 1);
        assert_told_nothing(set);
        plane_start(f, 3);
        plane_wait_ready(f, GPUS);
        fixture_wait(f, plane_count(f, 3, "ring_attach") == 2);
        for (uint32_t i = 0; i < 3; i++) {
                fixture_wait(f, count(set, i, "comm_release", set->all, "") == 1);
                assert_int_equal(count(set, i, "comm_move", set->all, " first=43"), 1);
                assert_int_equal(plane_count(f, i, "peer_add 3"), 2);
                assert_true(plane_line(f, i, "peer_add 3") < plane_line(f, i, "comm_move"));
                assert_int_equal(count(set, i, "comm_detach", set->all, ""), 0);
                assert_int_equal(count(set, i, "comm_attach", set->all, ""), 1);
        }
        assert_int_equal(count(set, 3, "comm_first", set->all, " 43"), 1);
        assert_true(plane_line(f, 3, "comm_attach") < plane_line(f, 3, "ring_attach"));
        assert_told_nothing(set);
        make_comm(set->clients, GPUS, handles);
        for (uint32_t r = 0; r < GPUS; r++)
                assert_int_equal(
                        take_ack(set->clients[r], send_comm_destroy(set->clients[r], set->all_handles[r], 44), NULL, 0),
                        0);
}

/* What a rank that has left rang last may stand in the others' staging: they get as far as it was. */
static void test_one_has_left(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        assert_int_equal(
                take_ack(set->clients[0], send_comm_destroy(set->clients[0], set->all_handles[0], 42), NULL, 0), 0);
        for (uint32_t i = 1; i < GPUS; i++)
                plane_write(f, i, "taken", "41");
        assert_int_equal(plane_stop(f, 3), 0);
        for (uint32_t i = 1; i < GPUS; i++)
                assert_true(count(set, i, "comm_hold", set->all, " upto=42") >= 1);
        plane_start(f, 3);
        for (uint32_t i = 0; i < 3; i++)
                fixture_wait(f, count(set, i, "comm_release", set->all, "") == 1);
        assert_int_equal(count(set, 1, "comm_move", set->all, " first=43"), 1);
        assert_int_equal(count(set, 3, "comm_first", set->all, " 43"), 1);
        assert_told_nothing(set);
}

/* The same if it leaves when the others have said how far they are. (On a slow machine that may be too late: lost.) */
static void test_one_leaves(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        bool lost;

        for (uint32_t i = 0; i < GPUS; i++)
                plane_write(f, i, "taken", "41");
        plane_write(f, 0, "unsettled", "");
        plane_term(f, 3);
        for (uint32_t i = 0; i < GPUS; i++)
                fixture_wait(f, count(set, i, "comm_hold", set->all, " upto=-1") >= 1);
        assert_int_equal(
                take_ack(set->clients[0], send_comm_destroy(set->clients[0], set->all_handles[0], 42), NULL, 0), 0);
        for (uint32_t i = 1; i < GPUS; i++)
                fixture_wait(f, (lost = client_has_event(set->clients[1], FAILED)) ||
                                        count(set, i, "comm_hold", set->all, " upto=42") >= 1);
        assert_int_equal(plane_end(f, 3), 0);
        plane_start(f, 3);
        fixture_wait(f, lost || (lost = client_has_event(set->clients[1], FAILED)) ||
                                count(set, 1, "comm_release", set->all, "") == 1);
        if (!lost)
                assert_int_equal(count(set, 1, "comm_move", set->all, " first=43"), 1);
}

/* A rank waits for one that does not ring: the wait has a bound. */
static void test_unsettled(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        plane_write(f, 1, "unsettled", "");
        assert_int_equal(plane_stop(f, 3), 0);
        for (uint32_t i = 0; i < GPUS; i++)
                assert_int_equal(take_failure(set->clients[i], set->all_handles[i]),
                                 i == 3 ? RMX_E_DEVICE_LOST : RMX_E_LOST);
        assert_int_equal(count(set, 0, "comm_abort", set->all, ""), 1);
        assert_int_equal(count(set, 0, "comm_release", set->all, ""), 0);
}

/* What was sent and not received would be lost. */
static void test_unreceived(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        plane_write(f, 1, "pushed", "");
        assert_int_equal(plane_stop(f, 3), 0);
        for (uint32_t i = 0; i < GPUS; i++)
                assert_int_equal(take_failure(set->clients[i], set->all_handles[i]),
                                 i == 3 ? RMX_E_DEVICE_LOST : RMX_E_LOST);
}

/* All at once, as an upgrade does it. */
static void test_all_replaced(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        pid_t pid;

        for (uint32_t i = 0; i < GPUS; i++)
                client_drop(set->clients[i],
                            client_answer(set->clients[i], send_ring_open_device(set->clients[i], i, "a", 0)));
        for (uint32_t i = 0; i < GPUS; i++)
                plane_write(f, i, "taken", "7");
        for (uint32_t i = 0; i < GPUS; i++)
                plane_term(f, i);
        for (uint32_t i = 0; i < GPUS; i++) {
                fixture_wait(f, (pid = waitpid(f->planes[i], NULL, WNOHANG)) != 0);
                f->planes[i] = 0;
        }
        for (uint32_t i = 0; i < GPUS; i++)
                plane_start(f, GPUS - 1 - i);
        plane_wait_ready(f, GPUS);
        for (uint32_t i = 0; i < GPUS; i++) {
                fixture_wait(f, plane_count(f, i, "ring_attach") == 2);
                assert_int_equal(count(set, i, "comm_first", set->all, " 8"), 1);
                assert_int_equal(count(set, i, "comm_first", set->pair, " 8"), i < 2);
                assert_true(plane_line(f, i, "comm_attach") < plane_line(f, i, "ring_attach"));
        }
        assert_told_nothing(set);
}

/* Another one dies while a communicator stands. */
static void test_another_dies(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint32_t handles[GPUS];

        client_drop(set->clients[3], client_answer(set->clients[3], send_ring_open_device(set->clients[3], 3, "a", 0)));
        assert_int_equal(plane_stop(f, 3), 0);
        plane_kill(f, 2);
        for (uint32_t i = 0; i < GPUS; i++)
                assert_int_equal(take_failure(set->clients[i], set->all_handles[i]),
                                 i == 2 ? RMX_E_DEVICE_LOST : RMX_E_LOST);
        plane_start(f, 3);
        plane_start(f, 2);
        plane_wait_ready(f, GPUS);
        fixture_wait(f, plane_count(f, 3, "ring_attach") == 2);
        make_comm(set->clients, GPUS, handles);
}

/* A communicator that goes on with a new executor, beside one that the other executor has not ended yet: it hears of
 * the new one's pool, also when the other communicator has gone in the meantime. */
static void test_beside_an_abort(void **state) {
        struct client *clients[4];
        uint32_t handles[2];
        uint64_t calls[2], number;
        uint8_t id[COMM_ID_BYTES];
        struct fixture f;
        bool in_time;
        char text[64];

        fixture_reaches = UINT64_MAX;
        fixture_setup_planes(&f, 2, false);
        for (uint32_t i = 0; i < 4; i++)
                clients[i] = client_open(&f);
        number = make_comm(clients, 2, handles);
        call_id_create(clients[2], id);
        for (uint32_t r = 0; r < 2; r++)
                calls[r] = send_comm_create_on(clients[2 + r], id, 2, r, (int32_t)r);
        for (uint32_t r = 0; r < 2; r++)
                assert_int_equal(take_comm(clients[2 + r], calls[r]).code, 0);
        assert_int_equal(plane_stop(&f, 0), 0);
        plane_hang(&f, 1, NULL);
        client_close(clients[2]);
        plane_start(&f, 0);
        fixture_wait(&f, plane_count(&f, 0, "peer_add 1 ") == 2 || plane_is_late(&f, 1));
        client_close(clients[3]);
        fixture_wait(&f, !fixture_ctl_says(&f, "sessions", NULL, "  4  "));
        in_time = plane_go(&f, 1, NULL);
        if (in_time) {
                snprintf(text, sizeof(text), "comm_release %" PRIu64, number);
                fixture_wait(&f, plane_count(&f, 1, text) == 1);
                assert_int_equal(plane_count(&f, 1, "peer_add 0 "), 2);
                assert_true(plane_line(&f, 1, "peer_add 0 ") < plane_line(&f, 1, "comm_move"));
        }
        fixture_teardown(&f);
        fixture_reaches = 0;
        if (!in_time)
                test_beside_an_abort(state);
}

/* A rank's process ends meanwhile. */
static void test_client_dies(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        assert_int_equal(plane_stop(f, 3), 0);
        client_close(set->clients[1]);
        for (uint32_t i = 2; i < GPUS; i++)
                assert_int_equal(take_failure(set->clients[i], set->all_handles[i]), RMX_E_PEER_LOST);
        plane_start(f, 3);
        plane_wait_ready(f, GPUS);
}

/* Another one ends while the first is away, and once more later. */
static void test_one_after_the_other(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        for (uint32_t i = 0; i < GPUS; i++)
                plane_write(f, i, "taken", "5");
        assert_int_equal(plane_stop(f, 3), 0);
        assert_int_equal(plane_stop(f, 2), 0);
        plane_start(f, 3);
        fixture_wait(f, plane_count(f, 0, "peer_add 3") == 2);
        assert_int_equal(plane_count(f, 0, "comm_move"), 0); /* not before both are back */
        plane_start(f, 2);
        plane_wait_ready(f, GPUS);
        fixture_wait(f, plane_count(f, 0, "comm_release") == 1);
        for (uint32_t i = 0; i < GPUS; i++)
                plane_write(f, i, "taken", "6");
        assert_int_equal(plane_stop(f, 2), 0);
        plane_start(f, 2);
        fixture_wait(f, plane_count(f, 0, "comm_release") == 2);
        assert_int_equal(count(set, 3, "comm_move", set->all, " first=7"), 1);
        assert_int_equal(count(set, 2, "comm_first", set->all, " 6"), 1);
        assert_int_equal(count(set, 2, "comm_first", set->all, " 7"), 1);
        assert_told_nothing(set);
}

/* A new comm waits for the new executor. */
static void test_made_meanwhile(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint64_t calls[GPUS];
        uint8_t id[COMM_ID_BYTES];

        assert_int_equal(plane_stop(f, 0), 0);
        call_id_create(set->clients[0], id);
        for (uint32_t r = 0; r < GPUS; r++)
                calls[r] = send_comm_create(set->clients[r], id, GPUS, r);
        plane_start(f, 0);
        for (uint32_t r = 0; r < GPUS; r++)
                assert_int_equal(take_comm(set->clients[r], calls[r]).code, 0);
        assert_told_nothing(set);
}

/* An operator replaces one, and is told when all is well again. */
static void test_drained(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        char text[512], expected[96];
        pid_t ctl, before = f->planes[1];

        for (uint32_t i = 0; i < GPUS; i++)
                plane_write(f, i, "taken", "12");
        ctl = ctl_drain_start(f, "1");
        assert_int_equal(plane_end(f, 1), 0);
        assert_int_equal(waitpid(ctl, NULL, WNOHANG), 0);
        plane_start(f, 1);
        assert_int_equal(ctl_drain_end(f, ctl, text, sizeof(text)), 0);
        snprintf(expected, sizeof(expected), "executor 1: pid %d has taken the place of pid %d after ",
                 (int)f->planes[1], (int)before);
        assert_ptr_equal(strstr(text, expected), text);
        assert_non_null(strstr(text, "; 2 of 2 communicators go on\n"));
        assert_int_equal(count(set, 1, "comm_first", set->all, " 13"), 1);
        assert_int_equal(count(set, 1, "comm_first", set->pair, " 13"), 1);
        fixture_wait(f, count(set, 0, "comm_release", set->pair, "") == 1); /* told before the operator, done later */
        assert_told_nothing(set);
}

static void test_drained_and_lost(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        char text[512];
        pid_t ctl;

        plane_write(f, 3, "unsettled", "");
        ctl = ctl_drain_start(f, "0");
        assert_int_equal(plane_end(f, 0), 0);
        plane_start(f, 0);
        assert_int_equal(ctl_drain_end(f, ctl, text, sizeof(text)), 1);
        assert_non_null(strstr(text, "; 1 of 2 communicators go on\n")); /* the other is not in its way */
        assert_int_equal(count(set, 0, "comm_detach", set->pair, ""), 0);
        assert_int_equal(count(set, 1, "comm_move", set->pair, ""), 1);
        assert_int_equal(take_failure(set->clients[0], set->all_handles[0]), RMX_E_DEVICE_LOST);
        for (uint32_t i = 1; i < GPUS; i++)
                assert_int_equal(take_failure(set->clients[i], set->all_handles[i]), RMX_E_LOST);
        assert_told_nothing(set);
}

/* Those that it has cost count, also when nobody is left in them. */
static void test_drained_and_gone(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        char text[512];
        pid_t ctl;

        plane_write(f, 3, "unsettled", "");
        ctl = ctl_drain_start(f, "0");
        assert_int_equal(plane_end(f, 0), 0);
        assert_int_equal(take_failure(set->clients[3], set->all_handles[3]), RMX_E_LOST);
        for (uint32_t i = 0; i < GPUS; i++)
                client_close(set->clients[i]);
        fixture_wait(f, fixture_metric(f, "railmux_comms_freed_total") == 2);
        plane_start(f, 0);
        assert_int_equal(ctl_drain_end(f, ctl, text, sizeof(text)), 1);
        assert_non_null(strstr(text, "; 0 of 2 communicators go on\n"));
}

static void test_drain_refused(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        char text[512];

        assert_int_equal(ctl_drain_end(f, ctl_drain_start(f, "4"), text, sizeof(text)), 1);
        assert_string_equal(text, "railmuxctl: there is no executor '4'; status shows their names\n");
        plane_kill(f, 2);
        fixture_wait(f, fixture_ctl_says(f, "status", NULL, " gone "));
        assert_int_equal(ctl_drain_end(f, ctl_drain_start(f, "2"), text, sizeof(text)), 1);
        assert_string_equal(text, "railmuxctl: executor 2 is not there\n");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_replaced, setup, teardown),
                cmocka_unit_test_setup_teardown(test_one_has_left, setup, teardown),
                cmocka_unit_test_setup_teardown(test_one_leaves, setup, teardown),
                cmocka_unit_test_setup_teardown(test_unsettled, setup, teardown),
                cmocka_unit_test_setup_teardown(test_unreceived, setup, teardown),
                cmocka_unit_test_setup_teardown(test_all_replaced, setup, teardown),
                cmocka_unit_test_setup_teardown(test_another_dies, setup, teardown),
                cmocka_unit_test_setup_teardown(test_client_dies, setup, teardown),
                cmocka_unit_test(test_beside_an_abort),
                cmocka_unit_test_setup_teardown(test_one_after_the_other, setup, teardown),
                cmocka_unit_test_setup_teardown(test_made_meanwhile, setup, teardown),
                cmocka_unit_test_setup_teardown(test_drained, setup, teardown),
                cmocka_unit_test_setup_teardown(test_drained_and_lost, setup, teardown),
                cmocka_unit_test_setup_teardown(test_drained_and_gone, setup, teardown),
                cmocka_unit_test_setup_teardown(test_drain_refused, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
