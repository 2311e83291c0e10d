/* SPDX-License-Identifier: MIT */
/* Joins that are given up, from another thread or by their time, and aborts that nobody answers. */
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/session.h"
#include "proto/session.pb-c.h"
#include "tests/client/crew.h"

#define BODY(name)              RAILMUX__SESSION__MESSAGE__BODY_##name
#define assert_error_says(text) assert_non_null(strstr(rmx_last_error(), text))

/* A thread that joins as rank 0, or splits. */
struct joiner {
        pthread_t thread;
        uint32_t n_ranks;
        struct rmx_session *session;
        struct rmx_comm *parent; /* NULL: joins */
        struct rmx_id id;
        struct rmx_cancel *cancel;
        struct rmx_comm *comm;
        int result;
};

static void *join_main(void *userdata) {
        struct joiner *j = userdata;
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0, .cancel = j->cancel};

        j->result = j->parent ? rmx_comm_split(j->parent, 0, 0, &options, &j->comm)
                              : rmx_comm_create(j->session, &j->id, j->n_ranks, 0, &options, &j->comm);
        return NULL;
}

/* Returns when the daemon has the call. */
static void join_start_of(struct joiner *j, uint32_t n_ranks, struct fake *fake, struct rmx_session *session,
                          struct rmx_comm *parent) {
        uint32_t body = parent ? BODY(COMM_SPLIT) : BODY(COMM_CREATE), n = fake_calls(fake, body);

        *j = (struct joiner){.n_ranks = n_ranks, .session = session, .parent = parent, .result = -1};
        if (!parent)
                assert_int_equal(rmx_get_id(session, &j->id), RMX_OK);
        assert_int_equal(rmx_cancel_new(&j->cancel), RMX_OK);
        must(!pthread_create(&j->thread, NULL, join_main, j));
        fake_wait_calls(fake, body, n + 1);
}

static void join_start(struct joiner *j, struct fake *fake, struct rmx_session *session, struct rmx_comm *parent) {
        join_start_of(j, 2, fake, session, parent);
}

static void join_end(struct joiner *j, int expected) {
        pthread_join(j->thread, NULL);
        assert_int_equal(j->result, expected);
        assert_true((j->comm == NULL) == (expected != RMX_OK));
        rmx_cancel_free(j->cancel);
}

/* Whoever of several is given up, the others wait on: the thread that reads for all, and those behind it. */
static void test_one_of_several(void **state) {
        enum { JOINERS = 4 };
        struct joiner joiners[JOINERS];
        struct crew crew;

        (void)state;
        for (uint32_t first = 0; first < JOINERS; first++) {
                crew_start(&crew, 1, 64);
                crew.fake.cancels = true;
                for (uint32_t i = 0; i < JOINERS; i++)
                        join_start(&joiners[i], &crew.fake, crew.session, NULL);
                for (uint32_t i = 0; i < JOINERS - 1; i++) {
                        struct joiner *j = &joiners[(first + i) % JOINERS];

                        rmx_cancel_set(j->cancel);
                        join_end(j, RMX_E_ABORTED);
                        fake_wait_calls(&crew.fake, BODY(COMM_ABORT), i + 1);
                }
                {
                        struct joiner *last = &joiners[(first + JOINERS - 1) % JOINERS];
                        struct rmx_comm *other = NULL;

                        assert_int_equal(rmx_comm_create(crew.session, &last->id, 2, 1, NULL, &other), RMX_OK);
                        join_end(last, RMX_OK);
                        rmx_cancel_set(NULL);
                        assert_int_equal(rmx_comm_destroy(last->comm), RMX_OK);
                        assert_int_equal(rmx_comm_destroy(other), RMX_OK);
                }
                crew_stop(&crew);
        }
}

/* It was said before the call: that returns at once, and the other ranks hear of it all the same. Afterwards it means
 * nothing. */
static void test_early_and_late(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_comm *comm = NULL;
        struct joiner j;
        struct crew crew;

        (void)state;
        crew_start(&crew, 3, 64);
        crew.fake.cancels = true;
        assert_int_equal(rmx_cancel_new(NULL), RMX_E_INVALID);
        assert_int_equal(rmx_cancel_new(&options.cancel), RMX_OK);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, &options, &comm), RMX_OK);
        rmx_cancel_set(options.cancel);
        rmx_cancel_set(options.cancel);
        assert_int_equal(rmx_barrier(comm, NULL), RMX_OK);
        assert_int_equal(rmx_comm_destroy(comm), RMX_OK);
        comm = NULL;
        assert_int_equal(fake_calls(&crew.fake, BODY(COMM_ABORT)), 0);
        for (int splits = 0; splits < 2; splits++) {
                join_start_of(&j, 3, &crew.fake, crew.session, splits ? crew.comm[0] : NULL);
                if (splits)
                        assert_int_equal(rmx_comm_split(crew.comm[1], 0, 0, &options, &comm), RMX_E_ABORTED);
                else
                        assert_int_equal(rmx_comm_create(crew.session, &j.id, 3, 1, &options, &comm), RMX_E_ABORTED);
                assert_error_says("given up");
                assert_null(comm);
                join_end(&j, RMX_E_ABORTED); /* rank 2 has not come either */
        }
        rmx_cancel_free(options.cancel);
        rmx_cancel_free(NULL);
        crew_stop(&crew);
}

/* A daemon that is there and does nothing cannot keep a thread; when it goes on, it hears of it. */
static void test_silent_daemon(void **state) {
        struct joiner j;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        crew.fake.cancels = true;
        join_start(&j, &crew.fake, crew.session, NULL);
        fake_deafen(&crew.fake, true);
        rmx_cancel_set(j.cancel);
        join_end(&j, RMX_E_ABORTED);
        fake_deafen(&crew.fake, false);
        fake_wait_calls(&crew.fake, BODY(COMM_ABORT), 1);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        crew_stop(&crew);
}

/* Nor one that has made the communicator, and not the ring. */
static void test_no_ring(void **state) {
        struct rmx_session *other;
        struct rmx_comm *comm;
        struct joiner j;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        other = fake_session(&crew.fake);
        fake_drop(&crew.fake, BODY(RING_OPEN), UINT32_MAX);
        join_start_of(&j, 1, &crew.fake, other, NULL);
        fake_wait_calls(&crew.fake, BODY(RING_OPEN), 2);
        fake_mute(&crew.fake, true);
        rmx_cancel_set(j.cancel);
        join_end(&j, RMX_E_ABORTED);
        fake_mute(&crew.fake, false);
        fake_drop(&crew.fake, 0, 0);
        assert_int_equal(rmx_get_id(other, &crew.id), RMX_OK);
        assert_true(fake_calls(&crew.fake, BODY(COMM_DESTROY)) > 0);
        assert_int_equal(rmx_comm_create(other, &crew.id, 1, 0, NULL, &comm), RMX_OK);
        assert_int_equal(rmx_comm_destroy(comm), RMX_OK);
        rmx_session_close(other);
        crew_stop(&crew);
}

/* Other ranks hear that one has given up, whether by a word or by its time. */
static void test_others_hear(void **state) {
        struct rmx_comm_options soon = {.size = sizeof(soon), .gpu = 0, .timeout_ms = 20};
        struct rmx_comm *comm = NULL;
        struct rmx_session *other;
        struct joiner j;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        crew.fake.cancels = true;
        other = fake_session(&crew.fake);
        join_start_of(&j, 3, &crew.fake, crew.session, NULL);
        /* Rank 2 never comes; this one gives up for itself and for the first. */
        assert_int_equal(rmx_comm_create(other, &j.id, 3, 1, &soon, &comm), RMX_E_TIMEOUT);
        assert_error_says("not all ranks have joined within 20 ms");
        join_end(&j, RMX_E_ABORTED);
        assert_null(comm);
        rmx_session_close(other);
        crew_stop(&crew);
}

/* A daemon that does not know the message refuses it, and all else is as it was. */
static void test_old_daemon(void **state) {
        struct rmx_comm *comm = NULL;
        struct rmx_session *other;
        struct joiner j;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        other = fake_session(&crew.fake);
        join_start(&j, &crew.fake, crew.session, NULL);
        rmx_cancel_set(j.cancel);
        join_end(&j, RMX_E_ABORTED);
        fake_wait_calls(&crew.fake, BODY(COMM_ABORT), 1);
        assert_int_equal(rmx_comm_create(other, &j.id, 2, 1, NULL, &comm), RMX_OK);
        assert_int_equal(rmx_comm_error(crew.comm[0]), RMX_OK); /* finds the answer of the join, and leaves */
        fake_wait_calls(&crew.fake, BODY(COMM_DESTROY), 1);
        rmx_session_close(other);
        crew_stop(&crew);
}

static void test_split(void **state) {
        struct rmx_comm *child[2] = {NULL};
        struct joiner j;
        struct crew crew;

        (void)state;
        crew_start(&crew, 2, 64);
        crew.fake.cancels = true;
        join_start(&j, &crew.fake, crew.session, crew.comm[0]);
        rmx_cancel_set(j.cancel);
        join_end(&j, RMX_E_ABORTED);
        fake_wait_calls(&crew.fake, BODY(COMM_ABORT), 1);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK); /* the fake has done it */
        join_start(&j, &crew.fake, crew.session, crew.comm[1]);
        assert_int_equal(rmx_comm_split(crew.comm[0], 0, 0, NULL, &child[0]), RMX_OK);
        join_end(&j, RMX_OK);
        assert_int_equal(rmx_comm_size(child[0]), 2);
        assert_int_equal(rmx_comm_destroy(child[0]), RMX_OK);
        assert_int_equal(rmx_comm_destroy(j.comm), RMX_OK);
        crew_stop(&crew);
}

/* A program that was compiled before there was a cancel. */
static void test_first_options(void **state) {
        struct rmx_comm_options options = {.size = offsetof(struct rmx_comm_options, cancel), .gpu = 0};
        struct rmx_comm *comm = NULL;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        options.cancel = (struct rmx_cancel *)(uintptr_t)0xdead; /* behind its end */
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, &options, &comm), RMX_OK);
        assert_int_equal(rmx_comm_destroy(comm), RMX_OK);
        options.size--;
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, &options, &comm), RMX_E_INVALID);
        crew_stop(&crew);
}

static bool calls(struct rmx_session *session) {
        struct pollfd p = {.fd = session->rpc.wake_fd, .events = POLLIN};

        return poll(&p, 1, 0) != 0;
}

/* A child has a copy, with which it reaches nobody. */
static void test_child(void **state) {
        struct joiner j;
        struct crew crew;
        pid_t child;
        int status;

        (void)state;
        crew_start(&crew, 1, 64);
        crew.fake.cancels = true;
        join_start(&j, &crew.fake, crew.session, NULL);
        for (bool polling = false; !polling; sched_yield()) {
                pthread_mutex_lock(&crew.session->rpc.mutex);
                polling = crew.session->rpc.polling;
                pthread_mutex_unlock(&crew.session->rpc.mutex);
        }
        child = fork();
        assert_true(child >= 0);
        if (!child) {
                rmx_cancel_set(j.cancel);
                rmx_cancel_free(j.cancel);
                _exit(calls(crew.session)); /* which the joining thread would see as well */
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        rmx_cancel_set(j.cancel);
        join_end(&j, RMX_E_ABORTED);
        crew_stop(&crew);
}

/* Threads that poll do not look again for ever for what none of them was called with. */
static void test_called_for_nobody(void **state) {
        const uint64_t two = 2;
        struct joiner j;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        crew.fake.cancels = true;
        join_start(&j, &crew.fake, crew.session, NULL);
        assert_int_equal(write(crew.session->rpc.wake_fd, &two, sizeof(two)), sizeof(two));
        while (calls(crew.session))
                sched_yield();
        rmx_cancel_set(j.cancel);
        join_end(&j, RMX_E_ABORTED);
        crew_stop(&crew);
}

/* ---- aborts ------------------------------------------------------------------------------------------------------ */
static int abort_or_wait(struct crew *crew, uint32_t rank) {
        int r;

        if (rank == 0)
                return rmx_comm_abort(crew->comm[0]);
        if (rank == 1) {
                r = rmx_barrier(crew->comm[0], NULL); /* of the rank that aborts; rank 2 never comes */
                fake_deafen(&crew->fake, false);
                return r;
        }
        return RMX_OK;
}

/* The waiting thread is let go before the daemon has heard anything; the abort goes on until it has. */
static void test_abort_unanswered(void **state) {
        struct rmx_request left[2];
        struct crew crew;
        int done = 0;

        (void)state;
        crew_start(&crew, 3, 64);
        crew_run(&crew, abort_or_wait); /* answered: whatever was called ended with it */
        assert_int_equal(crew.result[0], RMX_OK);
        assert_int_equal(crew.result[1], RMX_E_ABORTED);
        crew_stop(&crew);

        crew_start(&crew, 3, 64);
        assert_int_equal(rmx_barrier_start(crew.comm[0], NULL, &left[0]), RMX_OK);
        assert_int_equal(rmx_barrier_start(crew.comm[1], NULL, &left[1]), RMX_OK);
        fake_deafen(&crew.fake, true);
        crew_run(&crew, abort_or_wait);
        assert_int_equal(crew.result[0], RMX_OK);
        assert_int_equal(crew.result[1], RMX_E_ABORTED);
        assert_int_equal(rmx_test(&left[0], &done), RMX_E_ABORTED);
        assert_int_equal(rmx_wait(&left[1], NULL), RMX_E_ABORTED);
        assert_int_equal(rmx_comm_failed_rank(crew.comm[1]), 0);
        crew_stop(&crew);
}

static void await_call(struct rmx_session *session) {
        for (bool any = false; !any; sched_yield()) {
                pthread_mutex_lock(&session->rpc.mutex);
                any = session->rpc.calls != NULL;
                pthread_mutex_unlock(&session->rpc.mutex);
        }
}

/* Rank 0's, which needs shared memory that only the daemon can make. */
static int ask_for_memory(struct crew *crew, bool grouped) {
        int32_t in[4] = {1}, out[4];
        int r;

        if (!grouped)
                return rmx_all_reduce(crew->comm[0], in, out, 4, RMX_INT32, RMX_SUM, NULL);
        r = rmx_group_start();
        if (!r)
                r = rmx_send(crew->comm[0], in, 4, RMX_INT32, 1, NULL);
        if (!r)
                r = rmx_recv(crew->comm[0], out, 4, RMX_INT32, 1, NULL);
        return r ? r : rmx_group_end();
}

static int ask_or_abort(struct crew *crew, uint32_t rank, bool grouped) {
        int r;

        if (rank == 0) {
                r = ask_for_memory(crew, grouped);
                fake_deafen(&crew->fake, false);
                return r;
        }
        await_call(crew->session);
        return rmx_comm_abort(crew->comm[0]);
}

static int ask_or_abort_call(struct crew *crew, uint32_t rank) {
        return ask_or_abort(crew, rank, false);
}

static int ask_or_abort_group(struct crew *crew, uint32_t rank) {
        return ask_or_abort(crew, rank, true);
}

/* A thread that has not come as far as its request is let go as well, and leaves no memory with the daemon. */
static void test_abort_unasked(void **state) {
        int (*const ways[])(struct crew * crew, uint32_t rank) = {ask_or_abort_call, ask_or_abort_group};
        struct crew crew;

        (void)state;
        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
                crew_start(&crew, 2, 64);
                fake_deafen(&crew.fake, true);
                crew_run(&crew, ways[i]); /* rank 1 waits until rank 0 is back */
                assert_int_equal(crew.result[0], RMX_E_ABORTED);
                assert_int_equal(crew.result[1], RMX_OK);
                assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK); /* the daemon has read all before */
                assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 1);
                assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_DESTROY)), 1);
                pthread_mutex_lock(&crew.fake.mutex);
                assert_null(crew.fake.sessions->buffers);
                pthread_mutex_unlock(&crew.fake.mutex);
                assert_int_equal(ask_for_memory(&crew, i == 1), RMX_E_ABORTED); /* and later ones */
                assert_error_says("aborted");
                crew_stop(&crew);
        }
}

/* The daemon does not read, so the socket is full, and stays so while joins are given up: it hears of each all the
 * same, and in order. */
static void test_full_socket(void **state) {
        enum { JOINS = 500 }; /* twice as many messages as there is room for, or more */
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_comm *comm = NULL;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        crew.fake.cancels = true;
        assert_int_equal(rmx_cancel_new(&options.cancel), RMX_OK);
        rmx_cancel_set(options.cancel);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        fake_deafen(&crew.fake, true);
        for (int i = 0; i < JOINS; i++)
                assert_int_equal(rmx_comm_create(crew.session, &crew.id, 2, 0, &options, &comm), RMX_E_ABORTED);
        assert_non_null(crew.session->rpc.posts); /* or this shows nothing */
        fake_deafen(&crew.fake, false);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        assert_null(crew.session->rpc.posts);
        assert_int_equal(fake_calls(&crew.fake, BODY(COMM_CREATE)), 1 + JOINS);
        assert_int_equal(fake_calls(&crew.fake, BODY(COMM_ABORT)), JOINS);
        pthread_mutex_lock(&crew.fake.mutex);
        assert_ptr_equal(crew.fake.comms->next, NULL); /* none waits for its second rank */
        pthread_mutex_unlock(&crew.fake.mutex);
        /* What is left when the session ends is nobody's. */
        fake_deafen(&crew.fake, true);
        for (int i = 0; i < JOINS; i++)
                assert_int_equal(rmx_comm_create(crew.session, &crew.id, 2, 0, &options, &comm), RMX_E_ABORTED);
        rmx_cancel_free(options.cancel);
        crew.n = 0;
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_one_of_several),
                cmocka_unit_test(test_early_and_late),
                cmocka_unit_test(test_silent_daemon),
                cmocka_unit_test(test_no_ring),
                cmocka_unit_test(test_others_hear),
                cmocka_unit_test(test_old_daemon),
                cmocka_unit_test(test_split),
                cmocka_unit_test(test_first_options),
                cmocka_unit_test(test_child),
                cmocka_unit_test(test_called_for_nobody),
                cmocka_unit_test(test_abort_unanswered),
                cmocka_unit_test(test_abort_unasked),
                cmocka_unit_test(test_full_socket),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
