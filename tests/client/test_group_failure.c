/* SPDX-License-Identifier: MIT */
/* Groups in which something fails, groups that are not waited for at once, and what becomes of them. */
#include <stdlib.h>
#include <string.h>

#include "client/session.h"
#include "tests/client/crew.h"

#define assert_error_says(text) assert_non_null(strstr(rmx_last_error(), text))

/* A wrong argument is told at once, and once more at the end, where nothing is issued. */
static void test_spoiled(void **state) {
        static const char *const texts[] = {"rmx_send: peer 5 is out of range", "rmx_all_to_all_v: send_counts is NULL",
                                            "rmx_recv_start: not possible inside a group",
                                            "rmx_all_to_all_v_start: not possible inside a group"};
        const size_t one[2] = {1, 1}, at[2] = {0, 1};
        int32_t x[2] = {1, 2}, y[2];
        struct rmx_request request;
        struct crew crew;

        (void)state;
        crew_start(&crew, 2, 64);
        for (int round = 0; round < 4; round++) {
                int r;

                assert_int_equal(rmx_group_start(), RMX_OK);
                assert_int_equal(rmx_all_to_all_v(crew.comm[0], x, one, at, y, one, at, RMX_INT32, NULL), RMX_OK);
                switch (round) {
                case 0:
                        r = rmx_send(crew.comm[0], x, 1, RMX_INT32, 5, NULL);
                        break;
                case 1:
                        r = rmx_all_to_all_v(crew.comm[0], x, NULL, at, y, one, at, RMX_INT32, NULL);
                        break;
                case 2:
                        r = rmx_recv_start(crew.comm[0], x, 1, RMX_INT32, 1, NULL, &request);
                        break;
                default:
                        r = rmx_all_to_all_v_start(crew.comm[0], x, one, at, y, one, at, RMX_INT32, NULL, &request);
                        break;
                }
                assert_int_equal(r, RMX_E_INVALID);
                assert_int_equal(rmx_barrier(NULL, NULL), RMX_E_INVALID); /* not the first */
                assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_OK);
                assert_int_equal(round % 2 ? rmx_group_end() : rmx_group_end_start(&request), RMX_E_INVALID);
                assert_error_says(texts[round]);
        }
        /* It was issued by none of these: the first collective has sequence 1. */
        assert_int_equal(rmx_barrier_start(crew.comm[0], NULL, &request), RMX_OK);
        assert_int_equal(rmx_barrier(crew.comm[1], NULL), RMX_OK);
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        crew_stop(&crew);
}

/* Wrong only when it is issued: memory that runs over the end. Nothing of the group goes out, regions come back. */
static void test_refused(void **state) {
        static const char *const texts[] = {"rmx_recv: out: 8 bytes", "rmx_recv: out: ", "rmx_broadcast: out: 8 bytes"};
        struct rmx_request request;
        struct crew crew;
        int32_t x = 1;
        void *shared;
        char *end;

        (void)state;
        crew_start(&crew, 2, 64);
        assert_int_equal(rmx_mem_alloc(crew.session, 100, &shared), RMX_OK);
        end = (char *)shared + 96;
        for (int round = 0; round < 3; round++) {
                assert_int_equal(rmx_group_start(), RMX_OK);
                assert_int_equal(rmx_all_reduce(crew.comm[0], &x, &x, 1, RMX_INT32, RMX_SUM, NULL), RMX_OK);
                assert_int_equal(rmx_send(crew.comm[0], &x, 1, RMX_INT32, 1, NULL), RMX_OK);
                if (round == 0)
                        assert_int_equal(rmx_recv(crew.comm[0], end, 2, RMX_INT32, 1, NULL), RMX_OK);
                else if (round == 1)
                        assert_int_equal(rmx_recv(crew.comm[0], end - 6, 2, RMX_INT32, 1, NULL), RMX_OK);
                else
                        assert_int_equal(rmx_broadcast(crew.comm[0], NULL, end, 2, RMX_INT32, 1, NULL), RMX_OK);
                assert_int_equal(rmx_group_end_start(&request), RMX_E_INVALID);
                assert_error_says(texts[round]);
                assert_error_says(round == 1 ? "not aligned to the 4 bytes of type 2" : "run over the end of memory");
        }
        assert_int_equal(rmx_barrier_start(crew.comm[0], NULL, &request), RMX_OK);
        assert_int_equal(rmx_barrier(crew.comm[1], NULL), RMX_OK);
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        crew_stop(&crew);
}

/* The tenant's limit stands in the way of a group's region: again nothing is issued. */
static void test_no_region(void **state) {
        static char big[1 << 20];
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        pthread_mutex_lock(&crew.fake.mutex);
        crew.fake.max_bytes = 65536;
        pthread_mutex_unlock(&crew.fake.mutex);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_all_reduce(crew.comm[0], big, big, 1, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(rmx_send(crew.comm[0], big, 1000, RMX_INT8, 0, NULL), RMX_OK);
        assert_int_equal(rmx_recv(crew.comm[0], big, 1000, RMX_INT8, 0, NULL), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_E_LIMIT);
        assert_error_says("rmx_group_end: ");
        assert_int_equal(rmx_all_reduce(crew.comm[0], big, big, 1, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        crew_stop(&crew);
}

/* One communicator of a group has failed: the other one is not touched. */
static void test_failed_comm(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_comm *other = NULL;
        struct crew crew;

        (void)state;
        crew_start(&crew, 2, 64);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, &options, &other), RMX_OK);
        assert_int_equal(rmx_comm_abort(crew.comm[1]), RMX_OK);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_barrier(other, NULL), RMX_OK);
        assert_int_equal(rmx_barrier(crew.comm[1], NULL), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_E_ABORTED);
        assert_error_says("rank 1 has aborted");
        assert_int_equal(rmx_barrier(other, NULL), RMX_OK);
        assert_int_equal(fake_lines(&crew.fake), 1);
        assert_int_equal(rmx_comm_destroy(other), RMX_OK);
        crew_stop(&crew);
}

static void both_fail(struct crew *crew, bool started) {
        struct rmx_request request;
        int32_t x = 1;
        int r;

        pthread_mutex_lock(&crew->fake.mutex);
        crew->fake.force_status = RMX_E_LOST;
        crew->fake.force_later = RMX_E_NO_MEMORY;
        pthread_mutex_unlock(&crew->fake.mutex);
        assert_int_equal(rmx_group_start(), RMX_OK);
        for (int i = 0; i < 2; i++)
                assert_int_equal(rmx_all_reduce(crew->comm[0], &x, &x, 1, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        if (started)
                assert_int_equal(rmx_group_end_start(&request), RMX_OK);
        r = started ? rmx_wait(&request, NULL) : rmx_group_end();
        assert_int_equal(r, RMX_E_LOST);
        assert_error_says("rmx_all_reduce: the executor died");
        assert_int_equal(x, 1);
}

/* The result is the first error in the order of issue; what went well is copied all the same. */
static void test_first_error(void **state) {
        int32_t x[2] = {3, 4}, y[2] = {-1, -1};
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        fake_force(&crew.fake, RMX_E_LOST);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_all_reduce(crew.comm[0], &x[0], &y[0], 1, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(rmx_all_reduce(crew.comm[0], &x[1], &y[1], 1, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_E_LOST);
        assert_error_says("rmx_all_reduce: the executor died");
        assert_int_equal(y[0], -1);
        assert_int_equal(y[1], 4);
        /* Both fail. */
        for (int started = 0; started < 2; started++)
                both_fail(&crew, started);
        /* A group of sends and receives that is lost copies nothing. */
        fake_force(&crew.fake, RMX_E_LOST);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_send(crew.comm[0], &x[0], 1, RMX_INT32, 0, NULL), RMX_OK);
        assert_int_equal(rmx_recv(crew.comm[0], &y[0], 1, RMX_INT32, 0, NULL), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_E_LOST);
        assert_error_says("rmx_group_end: the executor died");
        assert_int_equal(y[0], -1);
        assert_int_equal(rmx_comm_error(crew.comm[0]), RMX_OK);
        crew_stop(&crew);
}

/* Rank 0's half of a group of two requests. */
static void start_half(struct crew *crew, int32_t *in, int32_t *out, struct rmx_request *ret_request) {
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_recv(crew->comm[0], &out[0], 1, RMX_INT32, 1, NULL), RMX_OK);
        assert_int_equal(rmx_send(crew->comm[0], &in[0], 1, RMX_INT32, 1, NULL), RMX_OK);
        assert_int_equal(rmx_all_reduce(crew->comm[0], &in[1], &out[1], 1, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(rmx_group_end_start(ret_request), RMX_OK);
}

static int other_half(struct crew *crew, int32_t *in, int32_t *out) {
        int r;

        r = rmx_group_start();
        if (!r)
                r = rmx_send(crew->comm[1], &in[0], 1, RMX_INT32, 0, NULL);
        if (!r)
                r = rmx_recv(crew->comm[1], &out[0], 1, RMX_INT32, 0, NULL);
        return r ? r : rmx_group_end();
}

/* All ways to wait, with one request done and the other not. */
static void test_waiting(void **state) {
        for (int way = 0; way < 3; way++) {
                int32_t in[2] = {10, 20}, out[2] = {-1, -1}, theirs[2] = {1, 2}, got = 0;
                struct rmx_request request, copy;
                struct crew crew;
                int done = -1, r;

                (void)state;
                crew_start(&crew, 2, 64);
                start_half(&crew, in, out, &request);
                assert_int_equal(rmx_test(&request, &done), RMX_OK);
                assert_int_equal(done, 0);
                assert_int_equal(rmx_all_reduce(crew.comm[1], &theirs[1], &theirs[1], 1, RMX_INT32, RMX_SUM, NULL),
                                 RMX_OK);
                assert_int_equal(rmx_wait_for(&request, 1), RMX_E_TIMEOUT);
                assert_error_says("rmx_wait_for: not done within 1 ms; the request goes on");
                assert_int_equal(out[1], 22); /* this half is done */
                assert_int_equal(out[0], -1);
                assert_int_equal(other_half(&crew, theirs, &got), RMX_OK);
                assert_int_equal(got, 10);
                copy = request;
                switch (way) {
                case 0:
                        r = rmx_wait(&request, NULL);
                        break;
                case 1:
                        r = rmx_wait_for(&request, 60000);
                        break;
                default:
                        do
                                r = rmx_test(&request, &done);
                        while (!r && !done);
                        break;
                }
                assert_int_equal(r, RMX_OK);
                assert_int_equal(out[0], 1);
                assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
                assert_error_says("each is waited for once");
                assert_int_equal(rmx_wait(&copy, NULL), RMX_E_INVALID);
                assert_error_says("waited for already");
                crew_stop(&crew);
        }
}

/* Destroy waits for the group's requests and writes no memory of the caller. The rest of the group is still there. */
static void test_destroy(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        int32_t x = 5, y = -1, z = -1;
        struct rmx_comm *other = NULL;
        struct rmx_request request;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, &options, &other), RMX_OK);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_send(other, &x, 1, RMX_INT32, 0, NULL), RMX_OK);
        assert_int_equal(rmx_recv(other, &y, 1, RMX_INT32, 0, NULL), RMX_OK);
        assert_int_equal(rmx_all_reduce(crew.comm[0], &x, &z, 1, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(rmx_group_end_start(&request), RMX_OK);
        assert_int_equal(rmx_comm_destroy(other), RMX_OK);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
        assert_error_says("or its comm destroyed");
        assert_int_equal(y, -1);
        assert_int_equal(z, 5);
        crew_stop(&crew);
}

/* Each session may be closed by itself, so no request stands for calls of two; waiting for them is fine. */
static void test_sessions(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_session *session;
        struct rmx_comm *other = NULL;
        struct rmx_request request;
        struct crew crew;
        struct rmx_id id;

        (void)state;
        crew_start(&crew, 1, 64);
        session = fake_session(&crew.fake);
        assert_int_equal(rmx_get_id(session, &id), RMX_OK);
        assert_int_equal(rmx_comm_create(session, &id, 1, 0, &options, &other), RMX_OK);
        for (int started = 1; started >= 0; started--) {
                assert_int_equal(rmx_group_start(), RMX_OK);
                assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_OK);
                assert_int_equal(rmx_barrier(other, NULL), RMX_OK);
                assert_int_equal(started ? rmx_group_end_start(&request) : rmx_group_end(),
                                 started ? RMX_E_INVALID : RMX_OK);
                if (started)
                        assert_error_says("one session");
                assert_int_equal(fake_lines(&crew.fake), started ? 0 : 2);
        }
        assert_int_equal(rmx_comm_destroy(other), RMX_OK);
        rmx_session_close(session);
        crew_stop(&crew);
}

/* A failed comm is not waited for; slots, blocks and regions of its group come free when it completes. */
static void test_destroy_failed(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        int32_t in[2] = {1, 2}, out[2] = {-1, -1};
        struct rmx_comm *comm = NULL;
        struct rmx_request request;
        struct crew crew;

        (void)state;
        crew_start(&crew, 2, 4);
        for (int i = 0; i < 2; i++)
                start_half(&crew, in, out, &request);
        fake_comm_failed(&crew.fake, RMX_E_PEER_LOST, 1);
        assert_int_equal(rmx_comm_destroy(crew.comm[0]), RMX_OK);
        crew.comm[0] = NULL;
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, &options, &comm), RMX_OK);
        assert_int_equal(rmx_barrier(comm, NULL), RMX_E_BUSY);
        pthread_mutex_lock(&crew.fake.mutex);
        fake_comm_end(crew.fake.comms->next, ring_status(RMX_E_PEER_LOST, 1));
        pthread_mutex_unlock(&crew.fake.mutex);
        for (int i = 0; i < 10; i++)
                assert_int_equal(rmx_barrier(comm, NULL), RMX_OK);
        assert_int_equal(out[0], -1);
        assert_int_equal(rmx_comm_destroy(comm), RMX_OK);
        crew_stop(&crew);
}

static int abort_or_exchange(struct crew *crew, uint32_t rank) {
        int32_t x[2] = {0};
        int r;

        if (rank == 2)
                return rmx_comm_abort(crew->comm[2]);
        r = rmx_group_start();
        if (!r)
                r = rmx_send(crew->comm[rank], &x[0], 1, RMX_INT32, 2, NULL);
        if (!r)
                r = rmx_recv(crew->comm[rank], &x[1], 1, RMX_INT32, 2, NULL);
        return r ? r : rmx_group_end();
}

static void test_abort(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, 3, 64);
        crew_run(&crew, abort_or_exchange);
        assert_int_equal(crew.result[0], RMX_E_ABORTED);
        assert_int_equal(crew.result[1], RMX_E_ABORTED);
        assert_int_equal(crew.result[2], RMX_OK);
        crew_stop(&crew);
}

/* The session goes while a group is open, and with a group that nobody waited for. */
static void test_close(void **state) {
        struct rmx_request request;
        int32_t in[2] = {1, 2}, out[2];
        struct crew crew;

        (void)state;
        crew_start(&crew, 2, 64);
        start_half(&crew, in, out, &request);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_OK);
        rmx_session_close(crew.session);
        assert_int_equal(rmx_group_end(), RMX_E_INVALID);
        assert_error_says("rmx_session_close: a group has calls of this session");
        fake_stop(&crew.fake);
        /* A group that has nothing of it does not care. */
        assert_int_equal(rmx_group_start(), RMX_OK);
        crew_start(&crew, 0, 64);
        crew_stop(&crew);
        assert_int_equal(rmx_group_end(), RMX_OK);
}

/* Daemon and executor are gone: a group that waits is told, one that ends is told at once. */
static void test_all_gone(void **state) {
        int32_t in[2] = {1, 2}, out[2] = {-1, -1};
        struct rmx_request request;
        struct crew crew;

        (void)state;
        crew_start(&crew, 2, 64);
        fake_pause(&crew.fake, true);
        start_half(&crew, in, out, &request);
        fake_hang_up(&crew.fake);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_DAEMON_LOST);
        assert_error_says("open a new session");
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_barrier(crew.comm[1], NULL), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_E_DAEMON_LOST);
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_spoiled),        cmocka_unit_test(test_refused),
                cmocka_unit_test(test_no_region),      cmocka_unit_test(test_failed_comm),
                cmocka_unit_test(test_first_error),    cmocka_unit_test(test_waiting),
                cmocka_unit_test(test_destroy),        cmocka_unit_test(test_sessions),
                cmocka_unit_test(test_destroy_failed), cmocka_unit_test(test_abort),
                cmocka_unit_test(test_close),          cmocka_unit_test(test_all_gone),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
