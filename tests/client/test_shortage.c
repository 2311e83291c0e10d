/* SPDX-License-Identifier: MIT */
/* Sending to a daemon while the kernel has no memory for it: sendmsg(2) is wrapped, and fails as told. */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

#include "client/session.h"
#include "proto/session.pb-c.h"
#include "tests/client/crew.h"

#define BODY(name) RAILMUX__SESSION__MESSAGE__BODY_##name

static const int shortages[] = {ENOMEM, ENOBUFS};

static _Atomic int short_fd = -1; /* set before n_short, whose store orders it */
static _Atomic int short_errno;
static _Atomic unsigned int n_short; /* so many sends fail; partners: test threads and those of the library */

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags) {
        if (fd == short_fd && n_short) {
                n_short--; /* the library sends under its mutex */
                errno = short_errno;
                return -1;
        }
        return __real_sendmsg(fd, message, flags);
}

static void run_short(const struct crew *crew, int error, unsigned int n) {
        short_fd = crew->session->rpc.fd;
        short_errno = error;
        n_short = n;
}

/* A call is late, and the session as it was. */
static void test_call(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        for (size_t i = 0; i < sizeof(shortages) / sizeof(shortages[0]); i++) {
                run_short(&crew, shortages[i], 3);
                assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
                assert_int_equal(n_short, 0);
        }
        assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_OK);
        crew_stop(&crew);
}

/* It does not wait beyond its time, and does not end the session either. */
static void test_deadline(void **state) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__IdCreate body = RAILMUX__SESSION__ID_CREATE__INIT;
        struct rpc_call call = {.message = &message};
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        message.body_case = BODY(ID_CREATE);
        message.id_create = &body;
        run_short(&crew, ENOBUFS, UINT32_MAX);
        assert_int_equal(rpc_call(&crew.session->rpc, &call, session_deadline(20)), RPC_E_TIMEOUT);
        assert_false(call.ever_sent);
        n_short = 0;
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        crew_stop(&crew);
}

/* What nobody waits for is not lost, since other ranks wait for what it does: it goes before the next call. */
static void test_post(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_comm *comm = NULL;
        struct crew crew;

        (void)state;
        assert_int_equal(rmx_cancel_new(&options.cancel), RMX_OK);
        rmx_cancel_set(options.cancel);
        for (size_t i = 0; i < sizeof(shortages) / sizeof(shortages[0]); i++) {
                crew_start(&crew, 1, 64);
                crew.fake.cancels = true;
                assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
                run_short(&crew, shortages[i], 4);
                assert_int_equal(rmx_comm_create(crew.session, &crew.id, 2, 0, &options, &comm), RMX_E_ABORTED);
                assert_non_null(crew.session->rpc.posts);
                assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
                assert_int_equal(n_short, 0);
                assert_null(crew.session->rpc.posts);
                assert_int_equal(fake_calls(&crew.fake, BODY(COMM_ABORT)), 1);
                crew_stop(&crew);
        }
        rmx_cancel_free(options.cancel);
}

struct joiner {
        pthread_t thread;
        struct rmx_session *session;
        struct rmx_id id;
        struct rmx_cancel *cancel;
        int result;
};

static void *join_main(void *userdata) {
        struct joiner *j = userdata;
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0, .cancel = j->cancel};
        struct rmx_comm *comm = NULL;

        j->result = rmx_comm_create(j->session, &j->id, 2, 0, &options, &comm);
        return NULL;
}

static bool is_polling(struct rmx_session *session) {
        bool polling;

        pthread_mutex_lock(&session->rpc.mutex);
        polling = session->rpc.polling;
        pthread_mutex_unlock(&session->rpc.mutex);
        return polling;
}

/* The only thread that is in the library sleeps since before there was anything to send; nobody else comes. */
static void test_post_beside_sleeper(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_comm *comm = NULL;
        struct joiner j = {.result = -1};
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        crew.fake.cancels = true;
        j.session = crew.session;
        assert_int_equal(rmx_cancel_new(&j.cancel), RMX_OK);
        assert_int_equal(rmx_cancel_new(&options.cancel), RMX_OK);
        rmx_cancel_set(options.cancel);
        assert_int_equal(rmx_get_id(crew.session, &j.id), RMX_OK);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        must(!pthread_create(&j.thread, NULL, join_main, &j));
        fake_wait_calls(&crew.fake, BODY(COMM_CREATE), 2);
        while (!is_polling(crew.session))
                sched_yield();
        run_short(&crew, ENOBUFS, 2);
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 2, 0, &options, &comm), RMX_E_ABORTED);
        fake_wait_calls(&crew.fake, BODY(COMM_ABORT), 1);
        rmx_cancel_set(j.cancel);
        pthread_join(j.thread, NULL);
        assert_int_equal(j.result, RMX_E_ABORTED);
        rmx_cancel_free(j.cancel);
        rmx_cancel_free(options.cancel);
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_call),
                cmocka_unit_test(test_deadline),
                cmocka_unit_test(test_post),
                cmocka_unit_test(test_post_beside_sleeper),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
