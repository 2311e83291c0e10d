/* SPDX-License-Identifier: MIT */
/*
 * A daemon that is replaced while calls for memory are given up. What it has read and not done is lost with it, and
 * nobody waits for an answer any more; all the same it must not keep a buffer that no one has.
 */
#include <pthread.h>
#include <sched.h>

#include "client/buffer.h"
#include "client/session.h"
#include "proto/session.pb-c.h"
#include "tests/client/crew.h"

#define BODY(name) RAILMUX__SESSION__MESSAGE__BODY_##name

enum { BYTES = 65536 };

/* A thread that makes a buffer, or destroys it. */
struct asker {
        pthread_t thread;
        struct rmx_session *session;
        struct rmx_cancel *cancel;
        bool destroys;
        struct buffer buffer;
        int result;
};

static void *ask_main(void *userdata) {
        struct asker *a = userdata;

        a->result = a->destroys ? buffer_destroy(a->session, "test", a->cancel, &a->buffer)
                                : buffer_create(a->session, "test", BYTES, a->cancel, &a->buffer);
        return NULL;
}

static void ask_start(struct asker *a, struct rmx_session *session, bool destroys) {
        a->session = session;
        a->destroys = destroys;
        assert_int_equal(rmx_cancel_new(&a->cancel), RMX_OK);
        must(!pthread_create(&a->thread, NULL, ask_main, a));
}

static void ask_give_up(struct asker *a) {
        rmx_cancel_set(a->cancel);
        must(!pthread_join(a->thread, NULL));
        assert_int_equal(a->result, RMX_E_ABORTED);
        rmx_cancel_free(a->cancel);
}

static void await_sent(struct rmx_session *session, bool sent) {
        for (bool is = !sent; is != sent; sched_yield()) {
                pthread_mutex_lock(&session->rpc.mutex);
                is = session->rpc.calls ? session->rpc.calls->sent : !sent;
                pthread_mutex_unlock(&session->rpc.mutex);
        }
}

static void mute(struct fake *fake, bool is) {
        pthread_mutex_lock(&fake->mutex);
        fake->mute = is;
        pthread_mutex_unlock(&fake->mutex);
}

/* The daemon has nothing, and the library does not say it any more. */
static void assert_nothing_left(struct crew *crew) {
        assert_int_equal(rmx_get_id(crew->session, &crew->id), RMX_OK); /* hears RESUMED, if it was said */
        assert_int_equal(rmx_get_id(crew->session, &crew->id), RMX_OK); /* and is answered after all that */
        pthread_mutex_lock(&crew->fake.mutex);
        assert_null(crew->fake.sessions->buffers);
        pthread_mutex_unlock(&crew->fake.mutex);
        assert_null(crew->session->rpc.posts);
}

/* It was made, and taken back, which the daemon has read when it dies. */
static void test_taken_back(void **state) {
        struct asker a = {.result = -1};
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        mute(&crew.fake, true);
        fake_drop(&crew.fake, BODY(BUFFER_DESTROY), 1);
        ask_start(&a, crew.session, false);
        fake_wait_calls(&crew.fake, BODY(BUFFER_CREATE), 1);
        ask_give_up(&a);
        mute(&crew.fake, false);
        assert_nothing_left(&crew);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_DESTROY)), 2);
        crew_stop(&crew);
}

/* It is destroyed by a call that is given up; the daemon has read that one. */
static void test_destroyed(void **state) {
        struct asker a = {.result = -1};
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        assert_int_equal(buffer_create(crew.session, "test", BYTES, NULL, &a.buffer), RMX_OK);
        fake_deafen(&crew.fake, true);
        ask_start(&a, crew.session, true);
        await_sent(crew.session, true);
        ask_give_up(&a);
        fake_drop(&crew.fake, BODY(BUFFER_DESTROY), 1);
        fake_deafen(&crew.fake, false);
        assert_nothing_left(&crew);
        crew_stop(&crew);
}

/* It was made. Then the call was to be sent again, and found no room before it was given up. */
static void test_not_sent_again(void **state) {
        enum { JOINS = 500 }; /* twice as many messages as there is room for, or more */
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct asker a = {.result = -1};
        struct rmx_comm *comm = NULL;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        crew.fake.cancels = true;
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        assert_int_equal(rmx_cancel_new(&options.cancel), RMX_OK);
        rmx_cancel_set(options.cancel);
        mute(&crew.fake, true);
        ask_start(&a, crew.session, false);
        fake_wait_calls(&crew.fake, BODY(BUFFER_CREATE), 1);
        await_sent(crew.session, true);
        fake_deafen(&crew.fake, true);
        for (int i = 0; i < JOINS; i++)
                assert_int_equal(rmx_comm_create(crew.session, &crew.id, 2, 0, &options, &comm), RMX_E_ABORTED);
        assert_non_null(crew.session->rpc.posts);
        fake_resume(&crew.fake);
        await_sent(crew.session, false);
        ask_give_up(&a);
        mute(&crew.fake, false);
        fake_deafen(&crew.fake, false);
        assert_nothing_left(&crew);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 1);
        rmx_cancel_free(options.cancel);
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_taken_back),
                cmocka_unit_test(test_destroyed),
                cmocka_unit_test(test_not_sent_again),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
