/* SPDX-License-Identifier: MIT */
/* On GPUs: a stream whose work is over may be destroyed, and is not touched any more (the fake dies of it). */
#include <sched.h>

#include "client/comm.h"
#include "tests/client/device_rig.h"

#define STREAM(n) ((void *)(uintptr_t)(0x1000 + (n)))

static int call(struct rig *rig, void *stream) {
        return rmx_all_reduce(rig->comm, rig->a, rig->b, 16, RMX_INT32, RMX_SUM, stream);
}

static int start(struct rig *rig, void *stream, struct rmx_request *request) {
        return rmx_all_reduce_start(rig->comm, rig->a, rig->b, 16, RMX_INT32, RMX_SUM, stream, request);
}

static void gone(struct rig *rig, uint32_t stream) {
        fake_gpu_stream_destroy(rig->gpu, STREAM(stream));
}

static int destroy(struct rig *rig) {
        struct rmx_comm *comm = rig->comm;

        rig->comm = rig->crew.comm[0] = NULL;
        return rmx_comm_destroy(comm);
}

/* Another communicator of one rank on GPU 0. */
static struct rmx_comm *join(struct rig *rig) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_comm *comm;
        struct rmx_id id;

        assert_int_equal(rmx_get_id(rig->crew.session, &id), RMX_OK);
        assert_int_equal(rmx_comm_create(rig->crew.session, &id, 1, 0, &options, &comm), RMX_OK);
        return comm;
}

/* What waits until everything has ended runs in a thread. It asks again and again; when it has asked a few times and is
 * not back, it does wait. */
struct waiter {
        struct rig *rig;
        pthread_t thread;
        _Atomic bool back;
};

static void *destroy_waiting(void *userdata) {
        struct waiter *waiter = userdata;

        must(destroy(waiter->rig) == RMX_OK);
        atomic_store(&waiter->back, true);
        return NULL;
}

static uint32_t asked(struct rig *rig) {
        uint32_t n;

        pthread_mutex_lock(&rig->gpu->mutex);
        n = rig->gpu->asked;
        pthread_mutex_unlock(&rig->gpu->mutex);
        return n;
}

/* Destroys the communicator, which must wait for the calls; then they end, and it returns. */
static void destroy_stuck(struct rig *rig) {
        struct waiter waiter = {.rig = rig};
        uint32_t before = asked(rig);

        assert_int_equal(pthread_create(&waiter.thread, NULL, destroy_waiting, &waiter), 0);
        while (asked(rig) < before + 3 && !atomic_load(&waiter.back))
                sched_yield();
        assert_false(atomic_load(&waiter.back));
        pthread_mutex_lock(&rig->gpu->mutex);
        rig->gpu->stuck = rig->gpu->stuck_marks = false;
        pthread_mutex_unlock(&rig->gpu->mutex);
        pthread_join(waiter.thread, NULL);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */
static void test_destroy(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        for (uint32_t i = 0; i < 3; i++)
                assert_int_equal(call(&rig, STREAM(1)), RMX_OK);
        assert_int_equal(last(&rig)->bell.number, 3);
        gone(&rig, 1);
        assert_int_equal(destroy(&rig), RMX_OK);
        assert_int_equal(rig.crew.fake.last_sequence, 3);
        rig_stop(&rig);
}

static void test_close(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(call(&rig, STREAM(1)), RMX_OK);
        gone(&rig, 1);
        rmx_session_close(rig.crew.session);
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(COMM_DESTROY)), 2);
        fake_stop(&rig.crew.fake);
}

/* The handle lives, its work does not end: destroy waits for the number. */
static void test_destroy_waits(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(call(&rig, STREAM(1)), RMX_OK);
        assert_int_equal(call(&rig, STREAM(2)), RMX_OK);
        rig.gpu->stuck = true;
        assert_int_equal(call(&rig, STREAM(2)), RMX_OK);
        gone(&rig, 2); /* of which the program knows that it will end */
        destroy_stuck(&rig);
        rig_stop(&rig);
}

static void test_next_call(void **state) {
        struct rmx_request request;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        for (uint32_t i = 0; i < 8; i++) {
                assert_int_equal(call(&rig, STREAM(i)), RMX_OK);
                gone(&rig, i);
                assert_int_equal(rig.gpu->n_launches, i + 1);
        }
        assert_int_equal(start(&rig, STREAM(8), &request), RMX_OK);
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        gone(&rig, 8);
        assert_int_equal(start(&rig, STREAM(9), &request), RMX_OK);
        assert_int_equal(rmx_wait_stream(&request, STREAM(10)), RMX_OK);
        gone(&rig, 9);
        gone(&rig, 10);
        assert_int_equal(call(&rig, NULL), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 13);
        rig_stop(&rig);
}

/* A call that is not launched has no number, and what is captured has none. */
static void test_counted(void **state) {
        struct rmx_request request;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(call(&rig, STREAM(1)), RMX_OK);
        rig.gpu->fail = RMX_E_NO_MEMORY;
        assert_int_equal(call(&rig, STREAM(2)), RMX_E_NO_MEMORY);
        rig.gpu->fail = RMX_E_NO_MEMORY;
        assert_int_equal(start(&rig, STREAM(2), &request), RMX_E_NO_MEMORY);
        gone(&rig, 2);
        rig.gpu->capturing = STREAM(3);
        assert_int_equal(call(&rig, STREAM(3)), RMX_OK);
        assert_int_equal(start(&rig, STREAM(3), &request), RMX_OK);
        assert_int_equal(rmx_wait_stream(&request, STREAM(3)), RMX_OK);
        for (uint32_t i = 1; i < 4; i++)
                assert_int_equal(fake_gpu_launched(rig.gpu, i)->bell.number, 0);
        rig.gpu->capturing = NULL;
        gone(&rig, 3);
        gone(&rig, 1);
        assert_int_equal(start(&rig, STREAM(4), &request), RMX_OK);
        assert_int_equal(last(&rig)->bell.number, 2);
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        assert_int_equal(last(&rig)->bell.number, 0);
        gone(&rig, 4);
        rig_stop(&rig);
}

static void test_wrap(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(call(&rig, STREAM(1)), RMX_OK);
        rig.comm->number = UINT32_MAX - 1;
        assert_int_equal(call(&rig, STREAM(1)), RMX_OK);
        assert_int_equal(last(&rig)->bell.number, UINT32_MAX);
        gone(&rig, 1);
        rig.gpu->stuck = true;
        assert_int_equal(call(&rig, STREAM(2)), RMX_OK);
        assert_int_equal(last(&rig)->bell.number, 1);
        assert_int_equal(call(&rig, STREAM(3)), RMX_OK);
        assert_ptr_equal(at(&rig, rig.gpu->n_launches - 2, FAKE_GPU_ORDER)->from, STREAM(2));
        gone(&rig, 2);
        destroy_stuck(&rig);
        rig_stop(&rig);
}

/* Numbers of the communicator that had the slot before mean nothing. */
static void test_slot(void **state) {
        uint32_t slot;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        for (uint32_t i = 0; i < 3; i++)
                assert_int_equal(call(&rig, STREAM(1)), RMX_OK);
        slot = rig.comm->slot;
        assert_int_equal(destroy(&rig), RMX_OK);
        gone(&rig, 1);
        rig.comm = join(&rig);
        assert_int_equal(rig.comm->slot, slot);
        rig.gpu->stuck = true;
        for (uint32_t i = 1; i <= 3; i++) {
                assert_int_equal(call(&rig, STREAM(2)), RMX_OK);
                assert_int_equal(last(&rig)->bell.number, i);
        }
        gone(&rig, 2);
        destroy_stuck(&rig);
        rig.comm = join(&rig); /* unused ones leave at once */
        rig.gpu->stuck = true;
        assert_int_equal(destroy(&rig), RMX_OK);
        rig_stop(&rig);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */
/* The kernel that waits is on another stream; nobody asks that of the start. */
static void test_request(void **state) {
        struct rmx_request request[2];
        struct rig rig;
        int done;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(start(&rig, STREAM(1), &request[0]), RMX_OK);
        gone(&rig, 1);
        assert_int_equal(rmx_wait(&request[0], STREAM(2)), RMX_OK);
        assert_int_equal(start(&rig, STREAM(2), &request[0]), RMX_OK);
        assert_int_equal(start(&rig, STREAM(2), &request[1]), RMX_OK);
        rig.gpu->hold = true;
        assert_int_equal(rmx_test(&request[0], &done), RMX_OK);
        assert_int_equal(done, 0);
        assert_int_equal(rmx_wait_stream(&request[1], STREAM(3)), RMX_OK);
        gone(&rig, 2);
        gone(&rig, 3);
        assert_int_equal(rmx_wait_for(&request[0], 250), RMX_E_TIMEOUT); /* long enough to look after the context */
        rig.gpu->hold = false;
        assert_int_equal(rmx_wait(&request[0], NULL), RMX_OK);
        assert_int_equal(destroy(&rig), RMX_OK);
        rig_stop(&rig);
}

static void *let_end(void *userdata) {
        struct rig *rig = userdata;
        uint32_t before = asked(rig);

        while (asked(rig) < before + 3)
                sched_yield();
        pthread_mutex_lock(&rig->gpu->mutex);
        rig->gpu->hold = false;
        pthread_mutex_unlock(&rig->gpu->mutex);
        return NULL;
}

/* The ends of what was not waited for are put on its stream, which may be destroyed then. */
static void test_destroy_request(void **state) {
        struct rmx_request request;
        pthread_t thread;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(start(&rig, STREAM(1), &request), RMX_OK);
        rig.gpu->hold = true;
        assert_int_equal(rmx_wait_stream(&request, STREAM(1)), RMX_OK);
        gone(&rig, 1);
        assert_int_equal(pthread_create(&thread, NULL, let_end, &rig), 0);
        assert_int_equal(destroy(&rig), RMX_OK);
        assert_false(rig.gpu->hold); /* it has waited */
        pthread_join(thread, NULL);
        rig_stop(&rig);
}

static void test_context(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        rig.gpu->stuck = rig.gpu->lost = true;
        assert_int_equal(call(&rig, STREAM(1)), RMX_OK);
        gone(&rig, 1);
        assert_int_equal(destroy(&rig), RMX_OK); /* ends */
        rig.comm = join(&rig);
        assert_int_equal(rig.comm->slot, 1); /* the other is not known to be free */
        rig_stop(&rig);
}

/* That it was at rest once means nothing for what comes later, though nothing should. */
static void test_finished_before(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        assert_int_equal(rmx_comm_finish(rig.comm, 0), RMX_OK);
        rig.gpu->stuck = rig.gpu->lost = true;
        assert_int_equal(call(&rig, STREAM(1)), RMX_OK);
        assert_int_equal(destroy(&rig), RMX_OK);
        rig.comm = join(&rig);
        assert_int_equal(rig.comm->slot, 1);
        rig_stop(&rig);
}

/* Waiting and looking, again and again, comes to its end, too. The call had ended before; nothing tells that now. */
static void test_context_finish(void **state) {
        (void)state;
        for (uint32_t ms = 0; ms <= 50; ms += 50) {
                struct rig rig;

                rig_start(&rig, 1);
                rig.gpu->stuck = true;
                assert_int_equal(call(&rig, STREAM(1)), RMX_OK);
                gone(&rig, 1);
                assert_int_equal(rmx_comm_finish(rig.comm, ms), RMX_E_TIMEOUT);
                assert_int_equal(rmx_comm_error(rig.comm), RMX_OK);
                rig.gpu->lost = true;
                while (rmx_comm_finish(rig.comm, ms) == RMX_E_TIMEOUT)
                        sched_yield();
                assert_int_equal(rmx_comm_error(rig.comm), RMX_E_DEVICE_LOST);
                assert_error_says("context of GPU 0");
                assert_int_equal(rmx_comm_failed_rank(rig.comm), 0);
                assert_int_equal(rmx_comm_finish(rig.comm, ms), RMX_OK); /* again */
                assert_int_equal(destroy(&rig), RMX_OK);
                rig_stop(&rig);
        }
}

/* Nor is it missed that the communicator has failed, or that all is gone, by who only looks. */
static void test_gone_finish(void **state) {
        (void)state;
        for (uint32_t failed = 0; failed < 2; failed++) {
                struct rig rig;

                rig_start(&rig, 1);
                rig.gpu->stuck = true;
                assert_int_equal(call(&rig, STREAM(1)), RMX_OK);
                gone(&rig, 1);
                assert_int_equal(rmx_comm_finish(rig.comm, 0), RMX_E_TIMEOUT);
                if (failed)
                        fake_comm_failed(&rig.crew.fake, RMX_E_LOST, -1);
                else
                        fake_hang_up(&rig.crew.fake);
                while (rmx_comm_finish(rig.comm, 0) == RMX_E_TIMEOUT)
                        sched_yield();
                assert_int_equal(rmx_comm_error(rig.comm), failed ? RMX_E_LOST : RMX_E_DAEMON_LOST);
                crew_stop(&rig.crew);
        }
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */
static void group(struct rig *rig, uint32_t first, uint32_t second) {
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_recv(rig->comm, rig->b, 64, RMX_INT8, 1, STREAM(first)), RMX_OK);
        assert_int_equal(rmx_send(rig->comm, rig->a, 64, RMX_INT8, 1, STREAM(second)), RMX_OK);
        assert_int_equal(call(rig, STREAM(first)), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_OK);
}

static void test_group(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        group(&rig, 1, 2);
        assert_int_equal(rig.comm->number, 3); /* two starts and a call; waits have none */
        gone(&rig, 1);
        gone(&rig, 2);
        group(&rig, 3, 3);
        gone(&rig, 3);
        assert_int_equal(call(&rig, STREAM(4)), RMX_OK);
        assert_int_equal(last(&rig)->bell.number, 7);
        gone(&rig, 4);
        group(&rig, 5, 6);
        gone(&rig, 5);
        gone(&rig, 6);
        assert_int_equal(destroy(&rig), RMX_OK);
        rig_stop(&rig);
}

/* The call at the end of the group has ended, what was waited for before it has not: the next call is behind that. */
static void test_group_tail(void **state) {
        uint32_t n;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        rig.gpu->hold = true;
        group(&rig, 1, 1);
        n = rig.gpu->n_launches;
        assert_int_equal(call(&rig, STREAM(2)), RMX_OK);
        assert_ptr_equal(at(&rig, n, FAKE_GPU_ORDER)->from, STREAM(1));
        gone(&rig, 1);
        assert_int_equal(call(&rig, STREAM(3)), RMX_OK); /* behind the call before, and with that behind all */
        assert_int_equal(rig.gpu->n_launches, n + 3);
        rig.gpu->hold = false;
        group(&rig, 4, 4);
        gone(&rig, 4);
        n = rig.gpu->n_launches;
        assert_int_equal(call(&rig, STREAM(5)), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, n + 1);
        rig_stop(&rig);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */
static char secret[4 * BLOCK] __attribute__((aligned(256)));

static int copied(struct rmx_comm *comm, void *stream) {
        return rmx_all_reduce(comm, secret, secret + 2 * BLOCK, 8192, RMX_FLOAT32, rung(comm), stream);
}

static void rig_start_secret(struct rig *rig) {
        rig_start(rig, 1);
        fake_gpu_add(rig->gpu, secret, sizeof(secret), 6)->secret = true;
}

static void test_copies(void **state) {
        struct rig rig;

        (void)state;
        rig_start_secret(&rig);
        assert_int_equal(copied(rig.comm, STREAM(1)), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 4);
        assert_ptr_equal(at(&rig, 2, FAKE_GPU_COPY)->to, secret + 2 * BLOCK);
        assert_int_equal(at(&rig, 3, FAKE_GPU_MARK)->bell.number, 2);
        gone(&rig, 1);
        assert_int_equal(copied(rig.comm, STREAM(2)), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 8);
        gone(&rig, 2);
        assert_int_equal(destroy(&rig), RMX_OK);
        rig_stop(&rig);
}

/* The call has ended, the copy behind it has not. */
static void test_copy_under_way(void **state) {
        struct rig rig;
        uint32_t n;

        (void)state;
        rig_start_secret(&rig);
        rig.gpu->stuck_marks = true;
        assert_int_equal(copied(rig.comm, STREAM(1)), RMX_OK);
        n = rig.gpu->n_launches;
        assert_int_equal(copied(rig.comm, STREAM(2)), RMX_OK);
        assert_ptr_equal(at(&rig, n, FAKE_GPU_ORDER)->from, STREAM(1));
        gone(&rig, 1);
        gone(&rig, 2);
        destroy_stuck(&rig);
        rig_stop(&rig);
}

/* The stream of the last call, which is under way, is being captured by now, so none can be put behind it: not the call
 * alone waits for the number, but the copies before it, too, whose memory that one may still use. */
static void test_copies_wait(void **state) {
        struct rig rig;
        uint32_t n;

        (void)state;
        rig_start_secret(&rig);
        rig.gpu->stuck_marks = true;
        assert_int_equal(copied(rig.comm, STREAM(1)), RMX_OK);
        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
        n = rig.gpu->n_launches;
        assert_int_equal(copied(rig.comm, STREAM(2)), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, n + 5);
        assert_int_equal(at(&rig, n, FAKE_GPU_BEHIND)->bell.after, 2);
        assert_int_equal(at(&rig, n, FAKE_GPU_BEHIND)->bell.slot, rig.comm->slot);
        assert_ptr_equal(at(&rig, n, FAKE_GPU_BEHIND)->stream, STREAM(2));
        assert_ptr_equal(at(&rig, n + 1, FAKE_GPU_COPY)->from, secret);
        assert_int_equal(at(&rig, n + 2, FAKE_GPU_CALL)->bell.after, 0);
        n = rig.gpu->n_launches;
        rig.gpu->fail = RMX_E_NO_MEMORY; /* it cannot be: nothing is there */
        fake_gpu_capture(rig.gpu, STREAM(2), NULL);
        assert_int_equal(copied(rig.comm, STREAM(3)), RMX_E_NO_MEMORY);
        assert_int_equal(rig.gpu->n_launches, n);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        destroy_stuck(&rig);
        rig_stop(&rig);
}

/* Copies whose end nobody will tell keep their memory, and the place. */
static void test_copy_adrift(void **state) {
        const struct fake_gpu_launch *first;
        struct rmx_comm *other;
        struct rig rig;

        (void)state;
        rig_start_secret(&rig);
        rig.gpu->fail_mark = RMX_E_NO_MEMORY;
        assert_int_equal(copied(rig.comm, STREAM(1)), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 3);
        first = at(&rig, 0, FAKE_GPU_COPY);
        assert_int_equal(destroy(&rig), RMX_OK);
        other = join(&rig);
        assert_int_equal(other->slot, 1);
        assert_int_equal(copied(other, STREAM(1)), RMX_OK);
        assert_ptr_not_equal(at(&rig, 3, FAKE_GPU_COPY)->to, first->to);

        /* The call was not launched, its copy is there. */
        rig.gpu->fail = RMX_E_NO_MEMORY;
        rig.gpu->stuck = true;
        rig.comm = join(&rig);
        assert_int_equal(copied(rig.comm, STREAM(2)), RMX_E_NO_MEMORY);
        assert_int_equal(last(&rig)->kind, FAKE_GPU_MARK);
        assert_int_equal(last(&rig)->bell.number, 1);
        gone(&rig, 2);
        destroy_stuck(&rig);
        rig_stop(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_destroy),
                cmocka_unit_test(test_close),
                cmocka_unit_test(test_destroy_waits),
                cmocka_unit_test(test_next_call),
                cmocka_unit_test(test_counted),
                cmocka_unit_test(test_wrap),
                cmocka_unit_test(test_slot),
                cmocka_unit_test(test_request),
                cmocka_unit_test(test_destroy_request),
                cmocka_unit_test(test_context),
                cmocka_unit_test(test_finished_before),
                cmocka_unit_test(test_context_finish),
                cmocka_unit_test(test_gone_finish),
                cmocka_unit_test(test_group),
                cmocka_unit_test(test_group_tail),
                cmocka_unit_test(test_copies),
                cmocka_unit_test(test_copy_under_way),
                cmocka_unit_test(test_copies_wait),
                cmocka_unit_test(test_copy_adrift),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
