/* SPDX-License-Identifier: MIT */
/* SIGKILL of railmuxd, with executors of GPUs that outlive it or do not. */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "gpu/plane.h"
#include "railmux/railmux.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GPUS    4u
#define RESUMED RAILMUX__SESSION__EVENT__BODY_RESUMED
#define FAILED  RAILMUX__SESSION__EVENT__BODY_COMM_FAILED

struct set {
        struct fixture fixture;
        struct client *clients[GPUS];
        uint64_t comm;
        uint32_t handles[GPUS];
};

static int setup(void **state) {
        struct set *set = malloc(sizeof(*set));

        fixture_setup_planes(&set->fixture, GPUS, true);
        for (uint32_t i = 0; i < GPUS; i++) {
                struct client *client = client_open(&set->fixture);

                set->clients[i] = client;
                client_drop(client, client_answer(client, send_ring_open_device(client, i, "area", 0)));
                client_drop(client, client_answer(client, send_buffer_create_device(client, 9, 5000, i, "buffer")));
        }
        set->comm = make_comm(set->clients, GPUS, set->handles);
        *state = set;
        return 0;
}

static int teardown(void **state) {
        struct set *set = *state;

        fixture_teardown(&set->fixture);
        free(set);
        return 0;
}

static void succeed(struct set *set) {
        fixture_start(&set->fixture);
        for (uint32_t r = 0; r < GPUS; r++)
                client_drop(set->clients[r], client_event(set->clients[r], RESUMED));
}

static unsigned int count(struct set *set, uint32_t gpu, const char *what, uint64_t number) {
        char text[96];

        snprintf(text, sizeof(text), "%s %" PRIu64, what, number);
        return plane_count(&set->fixture, gpu, text);
}

static uint32_t failure_of(struct client *client) {
        struct inbox_message *event = client_event(client, FAILED);
        uint32_t code = event->message->event->comm_failed->code;

        client_drop(client, event);
        return code;
}

/* Where a rank's staging lies. */
static uint64_t staging_of(struct set *set, uint64_t comm) {
        char begin[64], text[1024];

        snprintf(begin, sizeof(begin), "comm_attach %" PRIu64 " ", comm);
        plane_text(&set->fixture, 0, begin, text, sizeof(text));
        assert_non_null(strchr(text, '@'));
        return strtoull(strchr(text, '@') + 1, NULL, 10);
}

/* Nothing is said twice to an executor that outlived railmuxd, and staging in use stays in use. */
static void test_executors_survive(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint32_t handles[GPUS];
        uint64_t fresh;

        fixture_kill(f);
        succeed(set);
        plane_wait_ready(f, GPUS);
        fresh = make_comm(set->clients, GPUS, handles);
        assert_int_equal(staging_of(set, set->comm), 0);
        assert_int_equal(staging_of(set, fresh), plane_staging_bytes(GPUS));
        for (uint32_t i = 0; i < GPUS; i++) {
                assert_int_equal(plane_count(f, i, "open"), 1);
                assert_int_equal(plane_count(f, i, "ring_attach"), 1);
                assert_int_equal(plane_count(f, i, "buffer_import"), 1);
                assert_int_equal(plane_count(f, i, "peer_add"), GPUS);
                assert_int_equal(count(set, i, "comm_attach", set->comm), 1);
                assert_false(client_has_event(set->clients[i], FAILED));
        }
        /* What was adopted goes as it would have, and its staging is free again. */
        for (uint32_t r = 0; r < GPUS; r++) {
                assert_int_equal(
                        take_ack(set->clients[r], send_comm_destroy(set->clients[r], set->handles[r], 0), NULL, 0), 0);
                assert_int_equal(take_ack(set->clients[r], send_buffer_destroy(set->clients[r], 9), NULL, 0), 0);
                assert_int_equal(plane_count(f, r, "buffer_retire"), 1);
        }
        for (uint32_t i = 0; i < GPUS; i++)
                fixture_wait(f, count(set, i, "comm_detach", set->comm) == 1);
        assert_int_equal(staging_of(set, make_comm(set->clients, GPUS, handles)), 0);
}

/* The latch of a GPU is that which its executor, which goes on, has. */
static void test_latch_survives(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        int32_t *latch = client_latch(client_open(f), 0), *again;

        *latch = 7;
        fixture_kill(f);
        succeed(set);
        plane_wait_ready(f, GPUS);
        again = client_latch(client_open(f), 0);
        assert_int_equal(*again, 7);
        assert_int_equal(plane_count(f, 0, "latch"), 1);
        munmap(again, plane_latch_bytes());
        munmap(latch, plane_latch_bytes());
}

/* One dies while nobody sees it; its successor is there first, or later. */
static void died_meanwhile(struct set *set, bool first) {
        struct fixture *f = &set->fixture;
        uint32_t handles[GPUS];

        fixture_kill(f);
        plane_kill(f, 2);
        if (first)
                plane_start(f, 2);
        succeed(set);
        if (!first) {
                plane_wait_ready(f, GPUS - 1);
                plane_start(f, 2);
        }
        for (uint32_t r = 0; r < GPUS; r++)
                assert_int_equal(failure_of(set->clients[r]), r == 2 ? RMX_E_DEVICE_LOST : RMX_E_LOST);
        plane_wait_ready(f, GPUS);
        make_comm(set->clients, GPUS, handles);
        fixture_wait(f, plane_count(f, 2, "ring_attach") == 2 && plane_count(f, 2, "buffer_import") == 2);
        for (uint32_t i = 0; i < GPUS; i++)
                fixture_wait(f, count(set, i, "comm_attach", set->comm) == 2);
}

static void test_died_before(void **state) {
        died_meanwhile(*state, true);
}

static void test_died_after(void **state) {
        died_meanwhile(*state, false);
}

/* A comm that failed before stays so, with the errors that its ranks were told. */
static void test_failure_stays(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        char text[96];

        plane_kill(f, 1);
        for (uint32_t r = 0; r < GPUS; r++)
                assert_int_equal(failure_of(set->clients[r]), r == 1 ? RMX_E_DEVICE_LOST : RMX_E_LOST);
        fixture_kill(f);
        succeed(set);
        plane_start(f, 1);
        plane_wait_ready(f, GPUS);
        for (uint32_t i = 0; i < GPUS; i++) {
                snprintf(text, sizeof(text), "comm_attach %" PRIu64 " ranks=4 code=%u", set->comm,
                         i == 1 ? RMX_E_DEVICE_LOST : RMX_E_LOST);
                fixture_wait(f, plane_count(f, i, text) == 1);
        }
}

/* A client that ends while railmuxd is away. */
static void test_client_gone(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        fixture_kill(f);
        client_close(set->clients[3]);
        fixture_start(f);
        for (uint32_t r = 0; r < 3; r++) {
                client_drop(set->clients[r], client_event(set->clients[r], RESUMED));
                assert_int_equal(failure_of(set->clients[r]), RMX_E_PEER_LOST);
        }
        for (uint32_t i = 0; i < GPUS; i++)
                fixture_wait(f, count(set, i, "comm_abort", set->comm) == 1);
        fixture_wait(f, plane_count(f, 3, "ring_detach") == 1 && plane_count(f, 3, "buffer_retire") == 1);
}

/* What the predecessor had begun and nobody was told of: executors have a comm that the successor does not know. Its
 * staging is dealt out again only when they have let go of it. */
static void test_unknown_comm(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint64_t calls[GPUS];
        uint8_t id[COMM_ID_BYTES];
        struct comm_answer answer;

        call_id_create(set->clients[0], id);
        f->kill_at = 2; /* the marks are stored, then the comm is recorded: dead before that */
        for (uint32_t r = 0; r < GPUS; r++)
                calls[r] = send_comm_create(set->clients[r], id, GPUS, r);
        fixture_wait(f, f->daemon == 0);
        succeed(set);
        for (uint32_t r = 0; r < GPUS; r++) {
                if (!client_find(set->clients[r], calls[r]))
                        calls[r] = send_comm_create(set->clients[r], id, GPUS, r);
        }
        for (uint32_t r = 0; r < GPUS; r++) {
                answer = take_comm(set->clients[r], calls[r]);
                assert_int_equal(answer.code, 0);
        }
        assert_int_equal(staging_of(set, answer.comm), plane_staging_bytes(GPUS));
}

/* A store of emulated GPUs is of no use to real ones. */
static void test_other_backend(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        fixture_kill(f);
        f->gpu_option = "host:8";
        fixture_start(f);
        for (uint32_t r = 0; r < GPUS; r++)
                client_wait_eof(set->clients[r]);
        f->gpus = 8;
        client_open(f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_executors_survive, setup, teardown),
                cmocka_unit_test_setup_teardown(test_latch_survives, setup, teardown),
                cmocka_unit_test_setup_teardown(test_died_before, setup, teardown),
                cmocka_unit_test_setup_teardown(test_died_after, setup, teardown),
                cmocka_unit_test_setup_teardown(test_failure_stays, setup, teardown),
                cmocka_unit_test_setup_teardown(test_client_gone, setup, teardown),
                cmocka_unit_test_setup_teardown(test_unknown_comm, setup, teardown),
                cmocka_unit_test_setup_teardown(test_other_backend, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
