/* SPDX-License-Identifier: MIT */
/* Exchange: what ranks agree on when they join, and how a join ends that cannot be finished. */
#include <sched.h>

#include "client/comm.h"
#include "client/device.h"
#include "client/session.h"
#include "tests/client/exchange_rig.h"

static void *join_main(void *userdata) {
        (void)userdata;
        crew_run(&rig.crew, rig_join_rank);
        return NULL;
}

/* Until so many kernels of joins are on streams. */
static void wait_launches(uint32_t n) {
        uint32_t launched = 0;

        while (launched < n) {
                (void)sched_yield();
                pthread_mutex_lock(&rig.gpu->mutex);
                launched = rig.gpu->n_launches;
                pthread_mutex_unlock(&rig.gpu->mutex);
        }
}

static void rig_close(void) {
        rmx_session_close(rig.crew.session);
        fake_stop(&rig.crew.fake);
}

static void assert_exchanges(bool expected) {
        assert_int_equal(reduce(MIN, STREAM(1)), RMX_OK);
        launched(0, expected ? FAKE_GPU_EXCHANGE : FAKE_GPU_CALL, STREAM(1));
}

/* ---- agreement --------------------------------------------------------------------------------------------------- */
static void test_agreed(void **state) {
        (void)state;
        rig_start();
        assert_int_equal(rig.gpu->exchanges, 2);
        assert_int_equal(rig.gpu->connected, 2);
        assert_int_equal(rig.gpu->gathers, 2);
        assert_int_equal(rig.first, 4);
        assert_exchanges(true);
        /* Two requests of the communicator's own count for the daemon, exchanges do not. */
        assert_int_equal(reduce(8, NULL), RMX_OK);
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        assert_int_equal(rig.crew.fake.last_sequence, 3);
        assert_int_equal(rmx_comm_destroy(rig.crew.comm[1]), RMX_OK);
        assert_int_equal(rig.crew.fake.last_sequence, 2);
        assert_int_equal(rig.gpu->reusable, 2);
        assert_int_equal(rig.gpu->kept, 0);
        rig_close();
}

static void test_streams(void **state) {
        const void *stream[2];

        (void)state;
        rig_start();
        for (uint32_t i = 0; i < 2; i++) {
                const struct fake_gpu_launch *launch = fake_gpu_launched(rig.gpu, i);

                assert_int_equal(launch->kind, FAKE_GPU_CALL);
                assert_int_equal(launch->bell.in_bytes, CLIENT_GPU_OFFER_BYTES);
                assert_int_equal(launch->bell.number, 1);
                stream[i] = launch->stream;
        }
        assert_ptr_not_equal(stream[0], stream[1]);
        /* They are not counted among those that the communicator is used on. */
        assert_int_equal(rig.comm->streams.n, 0);
        crew_stop(&rig.crew);
}

static void test_not_granted(void **state) {
        (void)state;
        rig_open(2);
        rig.crew.fake.exchange_min = rig.crew.fake.exchange_max = 0;
        rig_join();
        assert_int_equal(rig.first, 0);
        assert_int_equal(rig.gpu->exchanges, 0);
        assert_int_equal(reduce(MIN, NULL), RMX_OK);
        launched(0, FAKE_GPU_CALL, NULL);
        crew_stop(&rig.crew);
}

static void test_cannot(void **state) {
        (void)state;
        for (uint32_t rank = 0; rank < 2; rank++) {
                rig_open(2);
                rig.gpu->cannot_open = 1u << rank;
                rig_join();
                assert_int_equal(rig.gpu->exchanges, 1);
                assert_int_equal(rig.gpu->connected, 0);
                assert_int_equal(rig.gpu->reusable, 1); /* at once */
                assert_exchanges(false);
                crew_stop(&rig.crew);

                rig_open(2);
                rig.gpu->cannot_connect = 1u << rank;
                rig_join();
                assert_int_equal(rig.gpu->gathers, 2);
                assert_int_equal(rig.gpu->connected, 1);
                assert_int_equal(rig.gpu->reusable, 2);
                assert_exchanges(false);
                crew_stop(&rig.crew);
                assert_int_equal(rig.gpu->reusable + rig.gpu->kept, 2);
        }
}

static int split(struct crew *crew, uint32_t rank) {
        const struct rmx_comm_options options = {.size = sizeof(options), .gpu = (int32_t)rank};

        return rmx_comm_split(crew->comm[rank], 0, (int32_t)rank, &options, &crew->comm[rank + 2]);
}

static void test_split(void **state) {
        (void)state;
        rig_start();
        crew_run(&rig.crew, split);
        for (uint32_t i = 0; i < 2; i++)
                assert_int_equal(rig.crew.result[i], RMX_OK);
        assert_int_equal(rig.gpu->gathers, 4);
        rig.comm = rig.crew.comm[2];
        rig.first = rig.gpu->n_launches;
        assert_exchanges(true);
        for (uint32_t i = 2; i < 4; i++)
                assert_int_equal(rmx_comm_destroy(rig.crew.comm[i]), RMX_OK);
        assert_int_equal(rig.gpu->reusable, 2);
        crew_stop(&rig.crew);
        assert_int_equal(rig.gpu->reusable, 4);
}

static void test_nonsense(void **state) {
        (void)state;
        rig_open(1);
        crew_run(&rig.crew, rig_join_rank);
        assert_int_equal(rig.crew.result[0], RMX_E_INTERNAL);
        rig_close();

        rig_open(2);
        rig.gpu->no_streams = true;
        crew_run(&rig.crew, rig_join_rank);
        for (uint32_t i = 0; i < 2; i++)
                assert_int_equal(rig.crew.result[i], RMX_E_NO_MEMORY);
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(COMM_DESTROY)), 2);
        assert_int_equal(rig.gpu->n_launches, 0);
        rig_close();
}

/* ---- in the middle ----------------------------------------------------------------------------------------------- */
/* The n-th gather stands still. */
static void join_until(uint32_t n, pthread_t *ret_thread) {
        rig.gpu->stuck_gather = n;
        assert_int_equal(pthread_create(ret_thread, NULL, join_main, NULL), 0);
        wait_launches(2 * n);
}

static void join_ended(pthread_t thread, int expected) {
        pthread_join(thread, NULL);
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(rig.crew.result[i], expected);
                /* Its place is given back, unless nobody knows whether its kernel has ended. */
                assert_int_equal(device_ranks(atomic_load(&rig.crew.session->devices[i])), rig.gpu->lost);
        }
        /* Another rank may have been further, and about to write. */
        assert_int_equal(rig.gpu->kept, 2);
        assert_int_equal(rig.gpu->reusable, 0);
        rig_close();
        assert_int_equal(rig.gpu->opened, rig.gpu->closed);
}

static void test_fails(void **state) {
        pthread_t thread;

        (void)state;
        for (uint32_t n = 1; n <= 2; n++) {
                rig_open(2);
                join_until(n, &thread);
                fake_comm_failed(&rig.crew.fake, RMX_E_PEER_LOST, 1);
                join_ended(thread, RMX_E_PEER_LOST);
        }
}

static void test_timeout(void **state) {
        pthread_t thread;

        (void)state;
        rig_open(2);
        rig.options.timeout_ms = 1000;
        join_until(1, &thread);
        fake_wait_calls(&rig.crew.fake, BODY(COMM_ABORT), 2);
        fake_comm_failed(&rig.crew.fake, RMX_E_ABORTED, 1);
        join_ended(thread, RMX_E_TIMEOUT);
}

static void test_cancel(void **state) {
        pthread_t thread;

        (void)state;
        rig_open(2);
        assert_int_equal(rmx_cancel_new(&rig.options.cancel), RMX_OK);
        join_until(1, &thread);
        rmx_cancel_set(rig.options.cancel);
        fake_wait_calls(&rig.crew.fake, BODY(COMM_ABORT), 2);
        fake_comm_failed(&rig.crew.fake, RMX_E_ABORTED, 1);
        join_ended(thread, RMX_E_ABORTED);
        rmx_cancel_free(rig.options.cancel);
}

/* A daemon that does not answer keeps nobody; it hears of all when it goes on, also if it could not read meanwhile. */
static void test_cancel_unanswered(void **state) {
        pthread_t thread;
        struct rmx_id id;

        (void)state;
        for (uint32_t deaf = 0; deaf < 2; deaf++) {
                rig_open(2);
                assert_int_equal(rmx_cancel_new(&rig.options.cancel), RMX_OK);
                join_until(1, &thread);
                fake_mute(&rig.crew.fake, !deaf);
                fake_deafen(&rig.crew.fake, deaf);
                rmx_cancel_set(rig.options.cancel);
                pthread_join(thread, NULL);
                for (uint32_t i = 0; i < 2; i++)
                        assert_int_equal(rig.crew.result[i], RMX_E_ABORTED);
                fake_mute(&rig.crew.fake, false);
                fake_deafen(&rig.crew.fake, false);
                assert_int_equal(rmx_get_id(rig.crew.session, &id), RMX_OK);
                assert_true(fake_calls(&rig.crew.fake, BODY(COMM_ABORT)) >= 2);
                assert_int_equal(fake_calls(&rig.crew.fake, BODY(COMM_DESTROY)), 2);
                rmx_cancel_free(rig.options.cancel);
                rig_close();
                assert_int_equal(rig.gpu->opened, rig.gpu->closed);
        }
}

static void test_context_lost(void **state) {
        pthread_t thread;

        (void)state;
        rig_open(2);
        join_until(1, &thread);
        pthread_mutex_lock(&rig.gpu->mutex);
        rig.gpu->lost = true;
        pthread_mutex_unlock(&rig.gpu->mutex);
        join_ended(thread, RMX_E_DEVICE_LOST);
}

/* A kernel's own error, which does not end a communicator, ends this join, and with it that of the others. */
static void test_kernel_fails(void **state) {
        pthread_t thread;
        uint32_t failed;

        (void)state;
        rig_open(2);
        rig.gpu->status = RMX_E_LOST; /* of whichever rank comes first */
        assert_int_equal(pthread_create(&thread, NULL, join_main, NULL), 0);
        fake_wait_calls(&rig.crew.fake, BODY(COMM_DESTROY), 1);
        fake_comm_failed(&rig.crew.fake, RMX_E_PEER_LOST, 0);
        pthread_join(thread, NULL);
        failed = rig.crew.result[1] == RMX_E_LOST;
        assert_int_equal(rig.crew.result[failed], RMX_E_LOST);
        assert_int_equal(rig.crew.result[!failed], RMX_E_PEER_LOST);
        assert_int_equal(rig.gpu->kept, 2);
        rig_close();
}

static void test_launch_fails(void **state) {
        pthread_t thread;

        (void)state;
        rig_open(2);
        rig.gpu->fail = RMX_E_NO_MEMORY;
        assert_int_equal(pthread_create(&thread, NULL, join_main, NULL), 0);
        fake_wait_calls(&rig.crew.fake, BODY(COMM_DESTROY), 1);
        fake_comm_failed(&rig.crew.fake, RMX_E_PEER_LOST, 0);
        pthread_join(thread, NULL);
        assert_int_equal(rig.crew.result[0] + rig.crew.result[1], RMX_E_NO_MEMORY + RMX_E_PEER_LOST);
        rig_close();
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_agreed),       cmocka_unit_test(test_streams),
                cmocka_unit_test(test_not_granted),  cmocka_unit_test(test_cannot),
                cmocka_unit_test(test_split),        cmocka_unit_test(test_nonsense),
                cmocka_unit_test(test_fails),        cmocka_unit_test(test_timeout),
                cmocka_unit_test(test_cancel),       cmocka_unit_test(test_cancel_unanswered),
                cmocka_unit_test(test_context_lost), cmocka_unit_test(test_kernel_fails),
                cmocka_unit_test(test_launch_fails),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
