/* SPDX-License-Identifier: MIT */
/*
 * Communicators over the GPUs of two real railmuxd, with real executors that have planes in place of GPUs: what ranks
 * say to each other over their wires goes through the executors' net areas and the fabric, over TCP; and what ends on
 * one node is heard on the other.
 */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"
#include "tests/time_scale.h"

#include "gpu/plane.h"
#include "railmux/railmux.h"
#include "util/clock.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES  2u
#define GPUS   2u /* of each, and as many ranks */
#define RANKS  (NODES * GPUS)
#define FAILED RAILMUX__SESSION__EVENT__BODY_COMM_FAILED
#define CONFIG                                                                                                         \
        "peer:\n"                                                                                                      \
        "  listen: '127.0.0.1:0'\n"                                                                                    \
        "  cluster: test\n"                                                                                            \
        "  rails: 'r0=127.0.0.1 r1=127.0.0.1'\n"                                                                       \
        "  stripe: off\n"

#define SENT(rail) "railmux_rail_sent_chunks_total{rail=\"" rail "\"}"

/* A rank, by its number. */
struct two {
        struct fixture f[NODES];
        struct client *clients[RANKS];
        uint32_t handles[RANKS];
        uint64_t comm[NODES]; /* its number there */
};

static struct fixture *node_of(struct two *t, uint32_t rank) {
        return &t->f[rank / GPUS];
}

/* ---- the nodes --------------------------------------------------------------------------------------------------- */
static int set_up(void **state) {
        struct two *t = calloc(1, sizeof(*t));

        assert_non_null(t);
        fixture_planes_config = CONFIG;
        for (uint32_t i = 0; i < NODES; i++)
                fixture_setup_planes(&t->f[i], GPUS, false);
        for (uint32_t r = 0; r < RANKS; r++)
                t->clients[r] = client_open(node_of(t, r));
        *state = t;
        return 0;
}

static int tear_down(void **state) {
        struct two *t = *state;

        for (uint32_t i = 0; i < NODES; i++)
                fixture_teardown(&t->f[i]);
        free(t);
        return 0;
}

static void make(struct two *t) {
        uint8_t id[COMM_ID_BYTES];
        uint64_t calls[RANKS];

        call_id_create(t->clients[0], id);
        for (uint32_t r = 0; r < RANKS; r++)
                calls[r] = send_comm_create(t->clients[r], id, RANKS, r);
        for (uint32_t r = 0; r < RANKS; r++) {
                struct comm_answer answer = take_comm(t->clients[r], calls[r]);

                if (answer.code)
                        fail_msg("rank %u: %u: %s", r, answer.code, answer.text);
                t->handles[r] = answer.handle;
                t->comm[r / GPUS] = answer.comm;
        }
}

static unsigned int count(struct two *t, uint32_t node, uint32_t gpu, const char *what, const char *more) {
        char text[96];

        snprintf(text, sizeof(text), "%s %" PRIu64 "%s", what, t->comm[node], more);
        return plane_count(&t->f[node], gpu, text);
}

/* On all executors. */
static void wait_for(struct two *t, const char *what) {
        for (uint32_t node = 0; node < NODES; node++)
                for (uint32_t gpu = 0; gpu < GPUS; gpu++)
                        fixture_wait(&t->f[node], count(t, node, gpu, what, "") == 1);
}

static void speak(struct two *t, const char *text) {
        for (uint32_t node = 0; node < NODES; node++)
                for (uint32_t gpu = 0; gpu < GPUS; gpu++)
                        plane_write(&t->f[node], gpu, "speaks", text);
}

/* Every rank hears every rank of the other node, to the last byte. */
static void wait_for_words(struct two *t) {
        char text[64];

        speak(t, "");
        for (uint32_t rank = 0; rank < RANKS; rank++)
                for (uint32_t from = 0; from < RANKS; from++) {
                        if (rank / GPUS == from / GPUS)
                                continue;
                        snprintf(text, sizeof(text), " rank=%u from=%u", rank, from);
                        fixture_wait(node_of(t, rank), count(t, rank / GPUS, rank % GPUS, "net", text) == 1);
                }
        speak(t, NULL);
}

static void leave(struct two *t, uint32_t rank) {
        assert_int_equal(take_ack(t->clients[rank], send_comm_destroy(t->clients[rank], t->handles[rank], 0), NULL, 0),
                         0);
}

static void assert_failed(struct two *t, uint32_t rank, uint32_t code, int32_t blamed) {
        struct inbox_message *event = client_event(t->clients[rank], FAILED);
        const Railmux__Session__CommFailed *failed = event->message->event->comm_failed;

        assert_int_equal(failed->handle, t->handles[rank]);
        assert_int_equal(failed->code, code);
        assert_int_equal(failed->rank, blamed);
        client_drop(t->clients[rank], event);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
/* From the first word to the last; and again, over the connections that there are, with areas of the same size. */
static void test_words(void **state) {
        struct two *t = *state;

        for (unsigned int round = 0; round < 3; round++) {
                make(t);
                wait_for_words(t);
                for (uint32_t r = 0; r < RANKS; r++)
                        leave(t, (r + round) % RANKS);
                wait_for(t, "comm_detach");
                for (uint32_t r = 0; r < RANKS; r++)
                        assert_false(client_has_event(t->clients[r], FAILED));
        }
}

static void test_far_ranks_leave(void **state) {
        struct two *t = *state;

        make(t);
        wait_for_words(t);
        for (uint32_t r = GPUS; r < RANKS; r++)
                leave(t, r);
        for (uint32_t gpu = 0; gpu < GPUS; gpu++) {
                fixture_wait(&t->f[0], count(t, 0, gpu, "rank_leave", " rank=2 ") == 1 &&
                                               count(t, 0, gpu, "rank_leave", " rank=3 ") == 1);
                /* What its ranks had sent may be on its way. */
                assert_int_equal(count(t, 1, gpu, "comm_detach", ""), 0);
        }
        for (uint32_t r = 0; r < GPUS; r++)
                leave(t, r);
        wait_for(t, "comm_detach");
}

/* All of them anew, and each node for itself. */
static void test_split(void **state) {
        struct two *t = *state;
        uint64_t calls[RANKS];

        make(t);
        for (uint32_t number = 1; number <= 2; number++) {
                for (uint32_t r = 0; r < RANKS; r++)
                        calls[r] = send_comm_split(t->clients[r], t->handles[r], number,
                                                   number == 1 ? (int32_t)(r / GPUS) : 0, 0);
                for (uint32_t r = 0; r < RANKS; r++) {
                        struct comm_answer answer = take_comm(t->clients[r], calls[r]);

                        assert_int_equal(answer.code, 0);
                        assert_int_equal(answer.n_ranks, number == 1 ? GPUS : RANKS);
                        assert_int_equal(answer.rank, number == 1 ? r % GPUS : r);
                        t->comm[r / GPUS] = answer.comm;
                }
                for (uint32_t node = 0; node < NODES; node++)
                        for (uint32_t gpu = 0; gpu < GPUS; gpu++)
                                assert_int_equal(count(t, node, gpu, "comm_attach",
                                                       number == 1 ? " ranks=2 code=0" : " ranks=4 code=0"),
                                                 1);
        }
        wait_for_words(t);
}

/* Of a communicator of the second GPUs, its ranks are the first on their nodes. */
static void test_rails_are_those_of_gpus(void **state) {
        struct two *t = *state;
        uint8_t id[COMM_ID_BYTES];
        uint64_t calls[NODES];

        call_id_create(t->clients[1], id);
        for (uint32_t node = 0; node < NODES; node++)
                calls[node] = send_comm_create_on(t->clients[node * GPUS + 1], id, NODES, node, 1);
        for (uint32_t node = 0; node < NODES; node++) {
                struct comm_answer answer = take_comm(t->clients[node * GPUS + 1], calls[node]);

                assert_int_equal(answer.code, 0);
                t->comm[node] = answer.comm;
        }
        speak(t, "");
        for (uint32_t node = 0; node < NODES; node++) {
                fixture_wait(&t->f[node], count(t, node, 1, "net", node ? " rank=1 from=0" : " rank=0 from=1") == 1);
                fixture_wait(&t->f[node], fixture_metric(&t->f[node], SENT("r1")) > 0);
                assert_true(fixture_metric(&t->f[node], SENT("r0")) == 0);
                assert_true(fixture_ctl_says(&t->f[node], "--json", "rails", "\"gpus\": [\n        1\n      ]"));
        }
}

static void test_rank_dies(void **state) {
        struct two *t = *state;

        make(t);
        client_close(t->clients[1]);
        for (uint32_t r = 0; r < RANKS; r++)
                if (r != 1)
                        assert_failed(t, r, RMX_E_PEER_LOST, 1);
        wait_for(t, "comm_abort");
}

static void test_rank_aborts(void **state) {
        struct two *t = *state;

        make(t);
        assert_int_equal(take_ack(t->clients[3], send_comm_abort(t->clients[3], t->handles[3]), NULL, 0), 0);
        for (uint32_t r = 0; r < RANKS; r++)
                assert_failed(t, r, RMX_E_ABORTED, 3);
        wait_for(t, "comm_abort");
        make(t);
        wait_for_words(t);
}

static void test_executor_dies(void **state) {
        struct two *t = *state;

        make(t);
        plane_kill(&t->f[1], 0);
        for (uint32_t r = 0; r < RANKS; r++)
                assert_failed(t, r, r == 2 ? RMX_E_DEVICE_LOST : RMX_E_LOST, -1);
        plane_start(&t->f[1], 0);
        plane_wait_ready(&t->f[1], GPUS);
        make(t);
        wait_for_words(t);
}

/* How long until all ranks here know that the other railmuxd has died, as it did `n` times before; it comes back. */
static uint64_t lose_railmuxd(struct two *t, unsigned int n) {
        uint32_t handles[GPUS];
        uint64_t start_ns, took_ns;
        unsigned int before[GPUS];

        make(t);
        wait_for_words(t);
        for (uint32_t gpu = 0; gpu < GPUS; gpu++)
                before[gpu] = count(t, 0, gpu, "comm_abort", "");
        start_ns = clock_now_ns();
        fixture_kill(&t->f[1]);
        for (uint32_t r = 0; r < GPUS; r++)
                assert_failed(t, r, RMX_E_PEER_LOST, (int32_t)GPUS);
        took_ns = clock_now_ns() - start_ns;
        for (uint32_t gpu = 0; gpu < GPUS; gpu++)
                assert_int_equal(count(t, 0, gpu, "comm_abort", ""), before[gpu] + 1);
        fixture_start(&t->f[1]);
        plane_wait_ready(&t->f[1], GPUS);
        for (uint32_t r = GPUS; r < RANKS; r++) { /* nobody kept their sessions */
                client_wait_eof(t->clients[r]);
                client_close(t->clients[r]);
                t->clients[r] = client_open(node_of(t, r));
        }
        for (unsigned int i = 0; i <= n; i++) /* it counts from 1 again, and logs have those numbers */
                make_comm(&t->clients[GPUS], GPUS, handles);
        return took_ns;
}

/* Within a second, however slow an executor here is to end it. */
static void test_railmuxd_dies(void **state) {
        const uint64_t bound_ns = UINT64_C(1000000000) * time_scale();
        struct two *t = *state;
        uint64_t best_ns = UINT64_MAX;

        for (unsigned int i = 0; i < 5 && best_ns >= bound_ns; i++) { /* a busy machine is not always as slow */
                const uint64_t took_ns = lose_railmuxd(t, i);

                best_ns = took_ns < best_ns ? took_ns : best_ns;
        }
        assert_true(best_ns < bound_ns);
        make(t);
        wait_for_words(t);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_words, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_far_ranks_leave, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_split, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_rails_are_those_of_gpus, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_rank_dies, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_rank_aborts, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_executor_dies, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_railmuxd_dies, set_up, tear_down),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
