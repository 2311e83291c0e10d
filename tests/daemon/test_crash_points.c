/* SPDX-License-Identifier: MIT */
/*
 * railmuxd is killed at every notification that it sends to the service manager during a short life of three clients,
 * one run per notification: these are the points between which it stores things. Clients do what the library does: they
 * repeat unanswered calls after RESUMED, and open a new session if theirs was not answered yet. The end must always be
 * the same.
 */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "railmux/railmux.h"
#include <string.h>
#include <unistd.h>

#define CLIENTS 3u
#define RESUMED RAILMUX__SESSION__EVENT__BODY_RESUMED

struct scenario {
        struct fixture f;
        bool planes; /* with real executors of GPUs in place of the played one */
        struct client *clients[CLIENTS];
        uint8_t id[COMM_ID_BYTES];
        uint32_t handles[CLIENTS], children[CLIENTS];
        struct life_ends life[CLIENTS];
        unsigned int deaths;
};

/* Sends the call of one client's step; id of the call. */
typedef uint64_t (*step_send)(struct scenario *s, uint32_t r);

static void revive(struct scenario *s) {
        if (s->f.daemon != 0)
                return;
        s->deaths++;
        fixture_start(&s->f);
        if (!s->planes)
                executor_connect(&s->f, false);
}

static uint64_t step_hello(struct scenario *s, uint32_t r) {
        return send_hello(s->clients[r]);
}

/* One call per client, all at once, until each has its answer (left in the inbox). */
static void step(struct scenario *s, step_send send, uint64_t ids[CLIENTS]) {
        uint64_t end = fixture_deadline();

        for (uint32_t r = 0; r < CLIENTS; r++)
                ids[r] = send(s, r);
        for (;;) {
                bool all = true;

                revive(s);
                for (uint32_t r = 0; r < CLIENTS; r++) {
                        struct client *client = s->clients[r];

                        if (client_has_event(client, RESUMED)) {
                                client_drop(client, client_event(client, RESUMED));
                                if (!client_find(client, ids[r]))
                                        ids[r] = send(s, r);
                        }
                        if (client->eof) { /* only a session that was never answered may be lost */
                                assert_true(send == step_hello);
                                client_close(client);
                                s->clients[r] = client = client_connect(&s->f);
                                ids[r] = send(s, r);
                        }
                        all = all && client_find(client, ids[r]);
                }
                if (all)
                        return;
                fixture_turn_until(&s->f, end, "all answers", __FILE__, __LINE__);
        }
}

static uint64_t step_ring(struct scenario *s, uint32_t r) {
        return s->planes ? send_ring_open_device(s->clients[r], r, "area", 0) : send_ring_open(s->clients[r], r);
}

static uint64_t step_life(struct scenario *s, uint32_t r) {
        return send_life_open(s->clients[r]);
}

static uint64_t step_buffer(struct scenario *s, uint32_t r) {
        return s->planes ? send_buffer_create_device(s->clients[r], 1, 4096, r, "buffer")
                         : send_buffer_create(s->clients[r], 1, 4096);
}

static uint64_t step_create(struct scenario *s, uint32_t r) {
        return send_comm_create(s->clients[r], s->id, CLIENTS, r);
}

static uint64_t step_split(struct scenario *s, uint32_t r) {
        return send_comm_split(s->clients[r], s->handles[r], 1, r == 2 ? -1 : 0, 0);
}

static uint64_t step_leave_parent(struct scenario *s, uint32_t r) {
        return send_comm_destroy(s->clients[r], s->handles[r], 0);
}

static uint64_t step_abort_child(struct scenario *s, uint32_t r) {
        return r == 2 ? send_buffer_destroy(s->clients[r], 1) : send_comm_abort(s->clients[r], s->children[r]);
}

static uint64_t step_destroy(struct scenario *s, uint32_t r) {
        return r == 2 ? send_buffer_destroy(s->clients[r], 1) : send_comm_destroy(s->clients[r], s->children[r], 0);
}

static void expect_body(struct scenario *s, const uint64_t ids[CLIENTS], uint32_t body_case) {
        for (uint32_t r = 0; r < CLIENTS; r++) {
                struct inbox_message *answer = client_find(s->clients[r], ids[r]);

                assert_int_equal(answer->message->body_case, body_case);
                client_drop(s->clients[r], answer);
        }
}

/* Nothing is left at the executors. */
static bool all_gone(struct scenario *s) {
        if (!s->planes)
                return s->f.executor.n_sessions == 0 && s->f.executor.n_comms == 0 && s->f.executor.n_buffers == 0;
        for (uint32_t i = 0; i < CLIENTS; i++) {
                if (plane_count(&s->f, i, "ring_attach") != plane_count(&s->f, i, "ring_detach") ||
                    plane_count(&s->f, i, "buffer_import") != plane_count(&s->f, i, "buffer_retire") ||
                    plane_count(&s->f, i, "comm_attach") != plane_count(&s->f, i, "comm_detach"))
                        return false;
        }
        return true;
}

/* Returns how many notifications a life takes. */
static unsigned int live(unsigned int kill_at, bool planes) {
        struct scenario s;
        uint64_t ids[CLIENTS];
        unsigned int before;

        memset(&s, 0, sizeof(s));
        fixture_reaches = UINT64_MAX; /* so that they have more to be told */
        if (planes)
                fixture_setup_planes(&s.f, CLIENTS, true);
        else
                fixture_setup(&s.f, NULL, true);
        s.planes = planes;
        before = s.f.n_notified;
        s.f.kill_at = kill_at;
        for (uint32_t r = 0; r < CLIENTS; r++)
                s.clients[r] = client_connect(&s.f);
        step(&s, step_hello, ids);
        expect_body(&s, ids, RAILMUX__SESSION__MESSAGE__BODY_HELLO_REPLY);
        step(&s, step_life, ids);
        for (uint32_t r = 0; r < CLIENTS; r++)
                s.life[r] = take_life(s.clients[r], ids[r], true);
        step(&s, step_ring, ids);
        expect_body(&s, ids, RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY);
        step(&s, step_buffer, ids);
        expect_body(&s, ids, RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY);
        revive(&s);
        call_id_create(s.clients[0], s.id);
        step(&s, step_create, ids);
        for (uint32_t r = 0; r < CLIENTS; r++) {
                struct comm_answer answer = take_comm(s.clients[r], ids[r]);

                assert_int_equal(answer.code, 0);
                assert_int_equal(answer.rank, r);
                s.handles[r] = answer.handle;
        }
        step(&s, step_split, ids);
        for (uint32_t r = 0; r < CLIENTS; r++) {
                struct comm_answer answer = take_comm(s.clients[r], ids[r]);

                assert_int_equal(answer.code, 0);
                assert_int_equal(answer.n_ranks, r == 2 ? 0 : 2);
                s.children[r] = answer.handle;
        }
        step(&s, step_leave_parent, ids);
        expect_body(&s, ids, RAILMUX__SESSION__MESSAGE__BODY_ACK);
        step(&s, step_abort_child, ids);
        expect_body(&s, ids, RAILMUX__SESSION__MESSAGE__BODY_ACK);
        step(&s, step_destroy, ids);
        expect_body(&s, ids, RAILMUX__SESSION__MESSAGE__BODY_ACK);
        for (uint32_t r = 0; r < CLIENTS; r++) {
                client_close(s.clients[r]);
                life_ends_close(&s.life[r]);
        }
        fixture_wait(&s.f, (revive(&s), all_gone(&s)));
        /* at most: railmuxd may have held a socket for a notification when they were counted */
        fixture_wait(&s.f, (revive(&s), fixture_daemon_fds(&s.f) <= s.f.idle_fds));
        /* State and three listening sockets; GPUs' latches. */
        fixture_wait(&s.f, (revive(&s), s.f.n_store == 4u + (planes ? CLIENTS : 0)));
        before = s.f.n_notified - before;
        assert_true(s.deaths == (kill_at > 0));
        fixture_teardown(&s.f);
        return before;
}

static void every_point(bool planes) {
        unsigned int n = live(0, planes);

        assert_true(n > (planes ? 30 : 40)); /* buffers on GPUs have no descriptors */
        print_message("%u points\n", n);
        /* the last few come when all has been closed, in an order that is not fixed */
        for (unsigned int k = 1; k + 4 < n; k++)
                live(k, planes);
}

static void test_every_point(void **unused) {
        (void)unused;
        every_point(false);
}

static void test_every_point_planes(void **unused) {
        (void)unused;
        every_point(true);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_point),
                                           cmocka_unit_test(test_every_point_planes)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
