/* SPDX-License-Identifier: MIT */
/* What becomes of requests when something fails: completions with errors, aborts, events, the end of daemon and
 * executor. */
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "client/comm.h"
#include "client/request.h"
#include "client/session.h"
#include "proto/session.pb-c.h"
#include "tests/client/crew.h"
#include "util/clock.h"

#define BODY(name)              RAILMUX__SESSION__MESSAGE__BODY_##name
#define assert_error_says(text) assert_non_null(strstr(rmx_last_error(), text))

static int reduce(struct crew *crew, uint32_t rank) {
        int32_t in = 1, out = -1;
        int r;

        r = rmx_all_reduce(crew->comm[rank], &in, &out, 1, RMX_INT32, RMX_SUM, NULL);
        if (r)
                return out == -1 ? r : -1; /* undefined in theory; a failure must not copy out */
        return out == (int32_t)crew->n ? RMX_OK : -2;
}

/* The text belongs to the thread. */
static int reduce_says_over(struct crew *crew, uint32_t rank) {
        int r = reduce(crew, rank);

        return strstr(rmx_last_error(), "the communicator is over, on every rank") ? r : -3;
}

static void check_all(struct crew *crew, int expected) {
        crew_run(crew, reduce);
        for (uint32_t i = 0; i < crew->n; i++)
                assert_int_equal(crew->result[i], expected);
}

/* The executor died with the request in flight: every rank hears it, and goes on. */
static void test_lost_request(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, 3, 64);
        check_all(&crew, RMX_OK);
        fake_force(&crew.fake, RMX_E_LOST);
        check_all(&crew, RMX_E_LOST);
        assert_int_equal(rmx_comm_error(crew.comm[1]), RMX_OK);
        check_all(&crew, RMX_OK);
        /* What the backend cannot do for one rank ends the comm: the others wait for it. */
        fake_force(&crew.fake, RMX_E_UNSUPPORTED);
        check_all(&crew, RMX_E_UNSUPPORTED);
        check_all(&crew, RMX_E_UNSUPPORTED);
        crew_stop(&crew);
}

static void check_sticky(uint32_t code, const char *text) {
        uint32_t latched;
        struct crew crew;

        crew_start(&crew, 3, 64);
        check_all(&crew, RMX_OK);
        fake_force(&crew.fake, ring_status(code, 2));
        check_all(&crew, (int)code);
        for (uint32_t i = 0; i < crew.n; i++) {
                assert_int_equal(rmx_comm_error(crew.comm[i]), code);
                assert_error_says(text);
                assert_int_equal(rmx_comm_failed_rank(crew.comm[i]), 2);
        }
        latched = crew.fake.sessions->rings[0].consumer.next;
        check_all(&crew, (int)code);
        assert_int_equal(crew.fake.sessions->rings[0].consumer.next, latched); /* nobody rang */
        crew_stop(&crew);
}

static void test_sticky(void **state) {
        (void)state;
        check_sticky(RMX_E_PEER_LOST, "rank 2 has died");
        check_sticky(RMX_E_ABORTED, "rank 2 has aborted");
        check_sticky(RMX_E_MISMATCH, "rank 2 called another operation");
        check_sticky(RMX_E_INVALID, "refused the request of rank 2");
        check_sticky(RMX_E_DEVICE_LOST, "context of GPU 0 is lost");
}

/* Over several nodes nothing goes on after it, also where the daemon has not said so yet. */
static void test_nodes(void **state) {
        struct crew crew;

        (void)state;
        crew_start_nodes(&crew, 2, 64);
        check_all(&crew, RMX_OK);
        fake_force(&crew.fake, RMX_E_LOST);
        crew_run(&crew, reduce_says_over);
        for (uint32_t i = 0; i < crew.n; i++)
                assert_int_equal(crew.result[i], RMX_E_LOST);
        fake_comm_failed(&crew.fake, RMX_E_LOST, -1);
        assert_int_equal(rmx_comm_error(crew.comm[0]), RMX_E_LOST);
        assert_error_says("the communicator is over, on every rank");
        crew_stop(&crew);
        crew_start_nodes(&crew, 2, 64);
        fake_comm_failed(&crew.fake, RMX_E_PEER_LOST, 1);
        assert_int_equal(rmx_comm_error(crew.comm[0]), RMX_E_PEER_LOST);
        assert_error_says("rank 1 has died or left the communicator, or its node was lost");
        crew_stop(&crew);
}

static int differ(struct crew *crew, uint32_t rank) {
        int32_t in[4] = {0}, out[4];

        return rmx_all_reduce(crew->comm[rank], in, out, rank == 1 ? 2 : 1, RMX_INT32, RMX_SUM, NULL);
}

static void test_mismatch(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, 3, 64);
        crew_run(&crew, differ);
        for (uint32_t i = 0; i < crew.n; i++) {
                assert_int_equal(crew.result[i], RMX_E_MISMATCH);
                assert_int_equal(rmx_comm_failed_rank(crew.comm[i]), 1);
        }
        crew_stop(&crew);
}

static int abort_or_wait(struct crew *crew, uint32_t rank) {
        if (rank)
                return rmx_barrier(crew->comm[rank], NULL);
        return rmx_comm_abort(crew->comm[0]);
}

static void test_abort(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, 3, 64);
        crew_run(&crew, abort_or_wait);
        assert_int_equal(crew.result[0], RMX_OK);
        assert_int_equal(crew.result[1], RMX_E_ABORTED);
        assert_int_equal(crew.result[2], RMX_E_ABORTED);
        for (uint32_t i = 0; i < crew.n; i++) {
                assert_int_equal(rmx_barrier(crew.comm[i], NULL), RMX_E_ABORTED);
                assert_int_equal(rmx_comm_failed_rank(crew.comm[i]), 0);
        }
        crew_stop(&crew);
}

/* A process that dies with its session: its partner's request ends. */
static void test_peer(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_comm *mine = NULL;
        struct rmx_request request;
        struct rmx_session *other;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        other = fake_session(&crew.fake);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        {
                struct rmx_comm_options soon = {.size = sizeof(soon), .gpu = 0, .timeout_ms = 1};
                struct rmx_comm *theirs;
                struct rmx_id id = crew.id;

                /* It joins, does not wait to see it succeed, and goes. */
                assert_int_equal(rmx_comm_create(other, &id, 2, 1, &soon, &theirs), RMX_E_TIMEOUT);
        }
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 2, 0, &options, &mine), RMX_OK);
        assert_int_equal(rmx_barrier_start(mine, NULL, &request), RMX_OK);
        assert_int_equal(rmx_wait_for(&request, 1), RMX_E_TIMEOUT);
        rmx_session_close(other);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_PEER_LOST);
        assert_int_equal(rmx_comm_failed_rank(mine), 1);
        assert_int_equal(rmx_comm_destroy(mine), RMX_OK);
        crew_stop(&crew);
}

/* An event alone makes the error sticky, also for a comm that is doing nothing. */
static void test_event(void **state) {
        struct rmx_comm *comm;
        struct crew crew;

        (void)state;
        crew_start(&crew, 2, 64);
        fake_comm_failed(&crew.fake, RMX_E_PEER_LOST, 1);
        assert_int_equal(rmx_comm_error(crew.comm[0]), RMX_E_PEER_LOST);
        assert_int_equal(rmx_comm_failed_rank(crew.comm[0]), 1);
        assert_int_equal(rmx_barrier(crew.comm[1], NULL), RMX_E_PEER_LOST);
        assert_int_equal(rmx_comm_split(crew.comm[1], 0, 0, NULL, &comm), RMX_E_PEER_LOST);
        fake_comm_failed(&crew.fake, RMX_E_ABORTED, 0);
        assert_int_equal(rmx_comm_error(crew.comm[0]), RMX_E_PEER_LOST); /* the first one stays */
        crew_stop(&crew);
}

/* Destroy waits for what is outstanding, and copies nothing: the caller's memory may be gone. */
static void test_destroy_outstanding(void **state) {
        struct rmx_request request[2];
        int32_t x[2] = {1, 1};
        struct crew crew;

        (void)state;
        crew_start(&crew, 2, 4);
        for (uint32_t rank = 0; rank < 2; rank++)
                assert_int_equal(rmx_all_reduce_start(crew.comm[rank], &x[rank], &x[rank], 1, RMX_INT32, RMX_SUM, NULL,
                                                      &request[rank]),
                                 RMX_OK);
        assert_int_equal(rmx_comm_destroy(crew.comm[0]), RMX_OK);
        crew.comm[0] = NULL;
        assert_int_equal(x[0], 1);
        assert_int_equal(rmx_wait(&request[0], NULL), RMX_E_INVALID);
        assert_int_equal(rmx_wait(&request[1], NULL), RMX_OK);
        assert_int_equal(x[1], 2);
        crew_stop(&crew);
}

struct ender {
        struct fake *fake;
        pid_t id; /* of the thread that is blocked */
        _Atomic bool begun, over;
};

static void *ender_main(void *userdata) {
        struct ender *ender = userdata;

        while (!ender->over && !(ender->begun && thread_sleeps(ender->id)))
                sched_yield();
        pthread_mutex_lock(&ender->fake->mutex);
        for (struct fake_comm *c = ender->fake->comms; c; c = c->next) {
                if (c->n_ranks == 2)
                        fake_comm_end(c, ring_status(RMX_E_PEER_LOST, 1));
        }
        pthread_mutex_unlock(&ender->fake->mutex);
        return NULL;
}

/* A failed comm is not waited for. What it left in the ring comes free when it completes, for which a blocking call
 * waits, also one of the thread that has started it. */
static void test_destroy_failed(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_request request[4];
        struct rmx_comm *comm = NULL;
        struct ender ender;
        struct crew crew;
        pthread_t thread;
        int r;

        (void)state;
        crew_start(&crew, 2, 4);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, &options, &comm), RMX_OK);
        for (int i = 0; i < 4; i++) {
                int32_t x = 0;

                assert_int_equal(rmx_all_reduce_start(crew.comm[0], &x, &x, 1, RMX_INT32, RMX_SUM, NULL, &request[i]),
                                 RMX_OK);
        }
        fake_comm_failed(&crew.fake, RMX_E_PEER_LOST, 1);
        assert_int_equal(rmx_comm_destroy(crew.comm[0]), RMX_OK); /* it does not hang */
        crew.comm[0] = NULL;
        assert_int_equal(rmx_barrier_start(comm, NULL, &request[0]), RMX_E_PEER_LOST); /* the event named all comms */
        assert_int_equal(rmx_comm_destroy(comm), RMX_OK);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, &options, &comm), RMX_OK);
        assert_int_equal(rmx_barrier_start(comm, NULL, &request[0]), RMX_E_BUSY);
        ender = (struct ender){.fake = &crew.fake, .id = gettid()};
        must(!pthread_create(&thread, NULL, ender_main, &ender));
        ender.begun = true;
        r = rmx_barrier(comm, NULL);
        ender.over = true;
        pthread_join(thread, NULL);
        assert_int_equal(r, RMX_OK);
        for (int i = 0; i < 10; i++)
                assert_int_equal(rmx_barrier(comm, NULL), RMX_OK);
        assert_int_equal(rmx_comm_destroy(comm), RMX_OK);
        crew_stop(&crew);
}

static void *hang_up(void *userdata) {
        struct crew *crew = userdata;
        bool rung = false;

        /* The executor latches nothing, so the line itself is what to look for. */
        while (!rung) {
                struct ring_request request;

                pthread_mutex_lock(&crew->fake.mutex);
                rung = ring_consumer_peek(&crew->fake.sessions->rings[0].consumer, &request) == RING_OK;
                pthread_mutex_unlock(&crew->fake.mutex);
        }
        fake_hang_up(&crew->fake);
        return NULL;
}

/* Daemon and executor go while a rank waits: it is told within two looks, and later calls at once. */
static void test_all_gone(void **state) {
        unsigned int fds = count_fds();
        struct rmx_request started;
        pthread_t thread;
        struct crew crew;
        int done = 0, r;

        (void)state;
        crew_start(&crew, 2, 64);
        fake_pause(&crew.fake, true);
        assert_int_equal(rmx_barrier_start(crew.comm[1], NULL, &started), RMX_OK);
        must(!pthread_create(&thread, NULL, hang_up, &crew));
        assert_int_equal(reduce(&crew, 0), RMX_E_DAEMON_LOST);
        assert_error_says("open a new session");
        pthread_join(thread, NULL);
        assert_int_equal(reduce(&crew, 0), RMX_E_DAEMON_LOST);
        do
                r = rmx_test(&started, &done);
        while (!done);
        assert_int_equal(r, RMX_E_DAEMON_LOST);
        assert_int_equal(rmx_comm_destroy(crew.comm[0]), RMX_E_DAEMON_LOST);
        crew.comm[0] = NULL;
        crew_stop(&crew);
        assert_int_equal(count_fds(), fds);
}

/* Short waits find out as well. */
static void test_all_gone_short_waits(void **state) {
        struct rmx_request request;
        struct crew crew;
        int r;

        (void)state;
        crew_start(&crew, 1, 64);
        fake_pause(&crew.fake, true);
        assert_int_equal(rmx_barrier_start(crew.comm[0], NULL, &request), RMX_OK);
        fake_hang_up(&crew.fake);
        do
                r = rmx_wait_for(&request, 1);
        while (r == RMX_E_TIMEOUT);
        assert_int_equal(r, RMX_E_DAEMON_LOST);
        crew_stop(&crew);
}

/* Only railmuxd ended for good; its executor goes on, and so do comms. */
static void test_daemon_gone_executor_alive(void **state) {
        struct rmx_id id;
        struct crew crew;

        (void)state;
        crew_start(&crew, 3, 64);
        check_all(&crew, RMX_OK); /* regions are there */
        fake_hang_up(&crew.fake);
        assert_int_equal(rmx_get_id(crew.session, &id), RMX_E_DAEMON_LOST);
        for (int i = 0; i < 50; i++)
                check_all(&crew, RMX_OK);
        crew_stop(&crew);
}

/* Nobody waits for anything: the comm's error tells, for each rank, and stays. */
static void test_all_gone_idle(void **state) {
        struct crew crew;
        int r;

        (void)state;
        crew_start(&crew, 2, 4);
        check_all(&crew, RMX_OK);
        fake_pause(&crew.fake, true);
        assert_int_equal(rmx_comm_error(crew.comm[0]), RMX_OK); /* an executor that is away is replaced */
        fake_hang_up(&crew.fake);
        do
                r = rmx_comm_error(crew.comm[0]);
        while (r == RMX_OK);
        assert_int_equal(r, RMX_E_DAEMON_LOST);
        assert_error_says("open a new session");
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(rmx_comm_error(crew.comm[i]), RMX_E_DAEMON_LOST);
                assert_int_equal(rmx_comm_failed_rank(crew.comm[i]), -1);
        }
        assert_int_equal(reduce(&crew, 0), RMX_E_DAEMON_LOST);
        crew_stop(&crew);
}

/* The executor cannot be asked, since the next place is that of a request that is not over. */
static void test_all_gone_full(void **state) {
        struct rmx_request request;
        struct crew crew;
        int r;

        (void)state;
        crew_start(&crew, 1, 4);
        fake_pause(&crew.fake, true);
        for (int i = 0; i < 4; i++)
                assert_int_equal(rmx_barrier_start(crew.comm[0], NULL, &request), RMX_OK);
        assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_E_BUSY);
        fake_hang_up(&crew.fake);
        do
                r = rmx_comm_error(crew.comm[0]);
        while (r == RMX_OK);
        assert_int_equal(r, RMX_E_DAEMON_LOST);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_DAEMON_LOST);
        crew_stop(&crew);
}

static int look_and_reduce(struct crew *crew, uint32_t rank) {
        for (int i = 0; i < 40; i++) {
                int r = rmx_comm_error(crew->comm[rank]);

                if (!r)
                        r = reduce(crew, rank);
                if (r)
                        return r;
        }
        return RMX_OK;
}

/* Longer than it would take until it is given up. False: it was, as its thread got no processor for so long; requests
 * are not waited for much longer than SESSION_LOOK_NS. */
static bool goes_on(struct crew *crew) {
        const uint64_t begin = clock_now_ns();

        fake_executor_pause_ns(&crew->fake);
        while (clock_now_ns() - begin < 12 * (uint64_t)SESSION_LOOK_NS) {
                crew_run(crew, look_and_reduce);
                for (uint32_t i = 0; i < crew->n; i++) {
                        if (crew->result[i] == RMX_E_DAEMON_LOST &&
                            fake_executor_pause_ns(&crew->fake) > SESSION_LOOK_NS / 2)
                                return false;
                        assert_int_equal(crew->result[i], RMX_OK);
                }
        }
        return true;
}

/* The executor goes on without railmuxd, and says so as often as it is asked, between requests and with a ring that is
 * full of them. */
static void test_daemon_gone_asked(void **state) {
        struct rmx_request request[4];
        unsigned int n_slow = 0;
        struct crew crew;

        (void)state;
        for (;;) {
                crew_start(&crew, 2, 4);
                check_all(&crew, RMX_OK);
                fake_hang_up(&crew.fake);
                if (goes_on(&crew))
                        break;
                crew_stop(&crew);
                assert_true(++n_slow < 5);
        }
        for (int i = 0; i < 4; i++)
                while (rmx_barrier_start(crew.comm[0], NULL, &request[i]) == RMX_E_BUSY)
                        assert_int_equal(rmx_comm_error(crew.comm[0]), RMX_OK);
        assert_int_equal(rmx_comm_error(crew.comm[0]), RMX_OK);
        for (int i = 0; i < 4; i++)
                (void)rmx_wait(&request[i], NULL);
        crew_stop(&crew);
}

/* A thread that waits for what another one has waited for. Before it looks the ring has come round, so that the place
 * of its completion is another's. */
static void test_waited_elsewhere(void **state) {
        enum { DEPTH = 4 };
        struct request request = {.what = "test"};
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, DEPTH);
        request.ring = crew.comm[0]->ring;
        request.sequence = request.ring->producer.next;
        for (int i = 0; i < 2 * DEPTH; i++)
                assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_OK);
        assert_int_equal(request_complete(&request), RMX_E_INVALID);
        assert_error_says("test: this request was waited for already");
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_lost_request),
                cmocka_unit_test(test_waited_elsewhere),
                cmocka_unit_test(test_sticky),
                cmocka_unit_test(test_nodes),
                cmocka_unit_test(test_mismatch),
                cmocka_unit_test(test_abort),
                cmocka_unit_test(test_peer),
                cmocka_unit_test(test_event),
                cmocka_unit_test(test_destroy_outstanding),
                cmocka_unit_test(test_destroy_failed),
                cmocka_unit_test(test_all_gone),
                cmocka_unit_test(test_all_gone_short_waits),
                cmocka_unit_test(test_daemon_gone_executor_alive),
                cmocka_unit_test(test_all_gone_idle),
                cmocka_unit_test(test_all_gone_full),
                cmocka_unit_test(test_daemon_gone_asked),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
