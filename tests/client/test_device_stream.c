/* SPDX-License-Identifier: MIT */
/* On GPUs: the order of streams, starting and waiting, errors that kernels meet, leaving. */
#include <sched.h>
#include <string.h>

#include "tests/client/crew.h"
#include "tests/client/fake_gpu.h"

#define BODY(name) RAILMUX__SESSION__MESSAGE__BODY_##name

#define assert_error_says(text) assert_non_null(strstr(rmx_last_error(), text))

#define STREAM(n) ((void *)(uintptr_t)(0x1000 + (n)))

struct rig {
        struct crew crew;
        struct fake_gpu *gpu;
        struct rmx_comm *comm; /* of rank 0 */
};

static char memory[4096];

static void rig_start(struct rig *rig, uint32_t n) {
        rig->gpu = fake_gpu_load();
        crew_start_gpus(&rig->crew, n);
        rig->comm = rig->crew.comm[0];
        fake_gpu_add(rig->gpu, memory, sizeof(memory), 1);
}

static int call(struct rmx_comm *comm, void *stream) {
        return rmx_all_reduce(comm, memory, memory, 16, RMX_INT32, RMX_SUM, stream);
}

static int start(struct rmx_comm *comm, void *stream, struct rmx_request *request) {
        return rmx_all_reduce_start(comm, memory, memory + 64, 16, RMX_INT32, RMX_SUM, stream, request);
}

static const struct fake_gpu_launch *launched(struct rig *rig, uint32_t i, uint32_t kind, const void *stream) {
        const struct fake_gpu_launch *launch = fake_gpu_launched(rig->gpu, i);

        assert_int_equal(launch->kind, kind);
        assert_ptr_equal(launch->stream, stream);
        return launch;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */
static void test_order(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        rig.gpu->stuck = true;
        assert_int_equal(call(rig.comm, STREAM(1)), RMX_OK);
        assert_int_equal(call(rig.comm, STREAM(1)), RMX_OK);
        assert_int_equal(call(rig.crew.comm[1], STREAM(2)), RMX_OK); /* another rank, its own order */
        assert_int_equal(rig.gpu->n_launches, 3);
        assert_int_equal(call(rig.comm, STREAM(2)), RMX_OK);
        assert_ptr_equal(launched(&rig, 3, FAKE_GPU_ORDER, STREAM(2))->from, STREAM(1));
        launched(&rig, 4, FAKE_GPU_CALL, STREAM(2));
        assert_int_equal(call(rig.comm, NULL), RMX_OK); /* the default stream is one, too */
        assert_ptr_equal(launched(&rig, 5, FAKE_GPU_ORDER, NULL)->from, STREAM(2));
        assert_int_equal(call(rig.comm, STREAM(3)), RMX_OK);
        assert_null(launched(&rig, 7, FAKE_GPU_ORDER, STREAM(3))->from);
        assert_int_equal(rig.gpu->n_launches, 9);

        /* Nothing is inserted into a capture, nor after a stream that is being captured: there the kernel waits. */
        rig.gpu->capturing = STREAM(4);
        assert_int_equal(call(rig.comm, STREAM(4)), RMX_OK);
        assert_int_equal(call(rig.comm, STREAM(3)), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 11);
        assert_int_equal(launched(&rig, 9, FAKE_GPU_CALL, STREAM(4))->bell.number, 0);
        assert_int_equal(launched(&rig, 10, FAKE_GPU_CALL, STREAM(3))->bell.number, 6);
        assert_int_equal(launched(&rig, 10, FAKE_GPU_CALL, STREAM(3))->bell.after, 0);
        rig.gpu->capturing = STREAM(3);
        assert_int_equal(call(rig.comm, STREAM(5)), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 12);
        assert_int_equal(launched(&rig, 11, FAKE_GPU_CALL, STREAM(5))->bell.number, 7);
        assert_int_equal(launched(&rig, 11, FAKE_GPU_CALL, STREAM(5))->bell.after, 6);
        rig.gpu->capturing = STREAM(5);
        rig.gpu->stuck = false; /* nothing is under way there any more */
        assert_int_equal(call(rig.comm, STREAM(1)), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 13);
        assert_int_equal(launched(&rig, 12, FAKE_GPU_CALL, STREAM(1))->bell.after, 0);
        rig.gpu->capturing = NULL;
        crew_stop(&rig.crew);
}

static void test_launch_fails(void **state) {
        struct rmx_request request;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        rig.gpu->fail = RMX_E_DEVICE_LOST;
        assert_int_equal(call(rig.comm, NULL), RMX_E_DEVICE_LOST);
        assert_error_says("rmx_all_reduce: launching failed");
        for (uint32_t i = 0; i < 2 * CLIENT_GPU_STARTED; i++) { /* takes up no place */
                rig.gpu->fail = RMX_E_NO_MEMORY;
                assert_int_equal(start(rig.comm, NULL, &request), RMX_E_NO_MEMORY);
        }
        assert_int_equal(start(rig.comm, NULL, &request), RMX_OK);
        rig.gpu->fail = RMX_E_NO_MEMORY;
        assert_int_equal(rmx_wait_stream(&request, NULL), RMX_E_NO_MEMORY);
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK); /* it is outstanding all the same */
        crew_stop(&rig.crew);
}

/* ---- start and wait ---------------------------------------------------------------------------------------------- */
static void test_wait(void **state) {
        struct rmx_request request, copy;
        const struct fake_gpu_launch *rung, *waiting;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(start(rig.comm, STREAM(1), &request), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 1);
        copy = request;
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        rung = launched(&rig, 0, FAKE_GPU_START, STREAM(1));
        waiting = launched(&rig, 1, FAKE_GPU_WAIT, STREAM(1));
        assert_int_equal(waiting->bell.cell, rung->bell.cell);
        assert_int_equal(waiting->bell.slot, rung->bell.slot);
        assert_ptr_equal(waiting->bell.out, memory + 64);
        assert_int_equal(waiting->bell.out_bytes, 64);
        assert_true(waiting->bell.inlined && waiting->bell.turn != 0);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
        assert_error_says("each is waited for once");
        assert_int_equal(rmx_wait(&copy, NULL), RMX_E_INVALID);
        assert_error_says("waited for already");
        assert_int_equal(rmx_wait_stream(&copy, STREAM(1)), RMX_E_INVALID);

        assert_int_equal(start(rig.comm, STREAM(1), &request), RMX_OK);
        assert_int_equal(rmx_wait(&request, STREAM(2)), RMX_OK); /* where the caller says */
        launched(&rig, 3, FAKE_GPU_WAIT, STREAM(2));
        assert_int_equal(rig.gpu->n_launches, 4);
        crew_stop(&rig.crew);
}

static void test_wait_stream(void **state) {
        struct rmx_request request, never = {{0}};
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(rmx_wait_stream(NULL, NULL), RMX_E_INVALID);
        assert_error_says("request is NULL");
        assert_int_equal(rmx_wait_stream(&never, NULL), RMX_E_INVALID);
        assert_error_says("no outstanding request");
        rig.gpu->hold = true;
        for (uint32_t i = 0; i < 3 * CLIENT_GPU_STARTED; i++) { /* does not wait, and frees the place for the next */
                assert_int_equal(start(rig.comm, STREAM(1), &request), RMX_OK);
                assert_int_equal(rmx_wait_stream(&request, STREAM(i % 3)), RMX_OK);
                launched(&rig, 2 * i, FAKE_GPU_START, STREAM(1));
                launched(&rig, 2 * i + 1, FAKE_GPU_WAIT, STREAM(i % 3));
                for (uint32_t k = 0; k < i; k++) /* cells of requests that may be under way are not used again */
                        assert_int_not_equal(fake_gpu_launched(rig.gpu, 2 * k)->bell.cell,
                                             fake_gpu_launched(rig.gpu, 2 * i)->bell.cell);
        }
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
        rig.gpu->hold = false;
        crew_stop(&rig.crew);
}

static void test_wait_for(void **state) {
        struct rmx_request request;
        struct rig rig;
        int done = 7;

        (void)state;
        rig_start(&rig, 2);
        rig.gpu->hold = true;
        assert_int_equal(start(rig.comm, STREAM(1), &request), RMX_OK);
        assert_int_equal(rmx_test(&request, &done), RMX_OK);
        assert_int_equal(done, 0);
        assert_int_equal(rmx_wait_for(&request, 3), RMX_E_TIMEOUT);
        assert_int_equal(rmx_test(&request, &done), RMX_OK);
        assert_int_equal(done, 0);
        assert_int_equal(rig.gpu->n_launches, 2); /* one kernel waits, however often is asked */
        launched(&rig, 1, FAKE_GPU_WAIT, STREAM(1));
        assert_int_equal(rmx_wait_stream(&request, STREAM(1)), RMX_E_INVALID);
        assert_error_says("waits for this request already");
        rig.gpu->hold = false;
        assert_int_equal(rmx_test(&request, &done), RMX_OK);
        assert_int_equal(done, 1);
        assert_int_equal(rmx_test(&request, &done), RMX_E_INVALID);
        crew_stop(&rig.crew);
}

/* Started requests hold places that calls need. */
static void test_started_too_many(void **state) {
        struct rmx_request request[CLIENT_GPU_STARTED], more;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        for (uint32_t i = 0; i < CLIENT_GPU_STARTED; i++)
                assert_int_equal(start(rig.comm, NULL, &request[i]), RMX_OK);
        assert_int_equal(start(rig.comm, NULL, &more), RMX_E_BUSY);
        assert_error_says("rmx_wait for the oldest");
        assert_int_equal(call(rig.comm, NULL), RMX_OK);
        assert_int_equal(rmx_wait(&request[7], NULL), RMX_OK);
        assert_int_equal(start(rig.comm, NULL, &more), RMX_OK);
        crew_stop(&rig.crew);
}

static void test_captured(void **state) {
        struct rmx_request request, outside;
        uint32_t cell;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(start(rig.comm, STREAM(1), &outside), RMX_OK);
        rig.gpu->capturing = STREAM(2);
        assert_int_equal(start(rig.comm, STREAM(2), &request), RMX_OK);
        cell = launched(&rig, 1, FAKE_GPU_START, STREAM(2))->bell.cell;
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
        assert_error_says("rmx_wait_stream");
        assert_int_equal(rmx_wait_stream(&request, STREAM(1)), RMX_E_INVALID);
        assert_error_says("the same capture");
        assert_int_equal(rmx_wait_stream(&outside, STREAM(2)), RMX_E_INVALID);
        assert_int_equal(rmx_wait_stream(&request, STREAM(2)), RMX_OK);
        assert_int_equal(launched(&rig, 2, FAKE_GPU_WAIT, STREAM(2))->bell.turn, 0);
        rig.gpu->capturing = NULL;
        assert_int_equal(rmx_wait(&outside, NULL), RMX_OK);
        rig.gpu->n_launches = 0;
        for (uint32_t i = 0; i < CLIENT_GPU_CELLS + 5; i++) { /* the graph keeps its cell */
                assert_int_equal(start(rig.comm, STREAM(1), &request), RMX_OK);
                assert_int_not_equal(launched(&rig, 0, FAKE_GPU_START, STREAM(1))->bell.cell, cell);
                assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
                rig.gpu->n_launches = 0;
        }
        crew_stop(&rig.crew);
}

/* The host's waits put nothing into a graph that the stream happens to be captured into by now. */
static void test_started_before_capture(void **state) {
        struct rmx_request request;
        struct rig rig;
        int done = -1;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(start(rig.comm, STREAM(1), &request), RMX_OK);
        rig.gpu->capturing = STREAM(1);
        assert_int_equal(rmx_test(&request, &done), RMX_E_INVALID);
        assert_error_says("is being captured");
        assert_int_equal(rmx_wait_for(&request, 10), RMX_E_INVALID);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
        assert_error_says("name another stream, or wait before");
        assert_int_equal(rig.gpu->n_launches, 1);
        assert_int_equal(rmx_wait(&request, STREAM(2)), RMX_OK);
        launched(&rig, 1, FAKE_GPU_WAIT, STREAM(2));
        assert_int_equal(start(rig.comm, STREAM(3), &request), RMX_OK);
        rig.gpu->capturing = STREAM(3);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
        rig.gpu->capturing = NULL;
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        crew_stop(&rig.crew);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */
static void test_sticky(void **state) {
        struct rmx_request request;
        struct rig rig;

        (void)state;
        rig_start(&rig, 3);
        rig.gpu->status = ring_status(RMX_E_PEER_LOST, 2);
        assert_int_equal(call(rig.comm, NULL), RMX_OK); /* it was launched */
        assert_int_equal(rmx_comm_error(rig.comm), RMX_E_PEER_LOST);
        assert_error_says("rank 2 has died");
        assert_int_equal(rmx_comm_failed_rank(rig.comm), 2);
        assert_int_equal(call(rig.comm, NULL), RMX_E_PEER_LOST);
        assert_int_equal(start(rig.comm, NULL, &request), RMX_E_PEER_LOST);
        assert_int_equal(rmx_comm_error(rig.comm), RMX_E_PEER_LOST);
        assert_int_equal(rmx_comm_error(rig.crew.comm[1]), RMX_OK);

        rig.gpu->status = ring_status(RMX_E_ABORTED, 0);
        assert_int_equal(start(rig.crew.comm[1], NULL, &request), RMX_OK);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_ABORTED);
        assert_error_says("rmx_all_reduce_start: rank 0 has aborted");
        assert_int_equal(call(rig.crew.comm[1], NULL), RMX_E_ABORTED); /* also without asking */
        assert_int_equal(rig.gpu->n_launches, 3);
        crew_stop(&rig.crew);
}

/* An executor's death is told once, and later requests work. */
static void test_lost(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        rig.gpu->status = RMX_E_LOST;
        assert_int_equal(call(rig.comm, NULL), RMX_OK);
        assert_int_equal(call(rig.comm, NULL), RMX_OK);
        assert_int_equal(rmx_comm_error(rig.comm), RMX_E_LOST);
        assert_int_equal(rmx_comm_error(rig.comm), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 2);
        crew_stop(&rig.crew);
}

static void test_event(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        fake_comm_failed(&rig.crew.fake, RMX_E_PEER_LOST, 1);
        while (rmx_comm_error(rig.comm) == RMX_OK) {
        }
        assert_int_equal(rmx_comm_error(rig.comm), RMX_E_PEER_LOST);
        assert_int_equal(call(rig.comm, NULL), RMX_E_PEER_LOST);
        crew_stop(&rig.crew);
}

/* The daemon says that nobody touches the comm any more: its kernels do not wait for an executor, others' do. */
static void test_event_ends_kernels(void **state) {
        struct rmx_request request;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        rig.gpu->hold = true;
        assert_int_equal(start(rig.comm, NULL, &request), RMX_OK);
        assert_int_equal(rmx_comm_error(rig.comm), RMX_OK);
        assert_int_equal(rig.gpu->ended, 0);
        fake_comm_failed(&rig.crew.fake, RMX_E_LOST, -1);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_LOST);
        assert_int_equal(rig.gpu->ended, 1);
        assert_int_equal(rig.gpu->released, 0);
        assert_int_equal(rmx_comm_error(rig.comm), RMX_E_LOST);
        assert_int_equal(call(rig.comm, NULL), RMX_E_LOST);
        crew_stop(&rig.crew);
        assert_int_equal(rig.gpu->ended, 1);
}

/* Nobody is left to answer kernels that wait: whoever finds out ends them. */
static void test_daemon_gone(void **state) {
        struct rmx_request request;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        rig.gpu->hold = true;
        assert_int_equal(start(rig.comm, NULL, &request), RMX_OK);
        fake_hang_up(&rig.crew.fake);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_DAEMON_LOST);
        assert_error_says("the daemon and its executor are gone");
        assert_int_equal(rig.gpu->released, 1);
        assert_int_equal(call(rig.comm, NULL), RMX_E_DAEMON_LOST);
        crew_stop(&rig.crew);
        assert_int_equal(rig.gpu->released, 1);
}

/* Also where nothing waits: whoever asks hears of it, and nothing is launched any more. */
static void test_daemon_gone_idle(void **state) {
        uint32_t n_launches;
        struct rig rig;
        int r;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(call(rig.comm, NULL), RMX_OK);
        assert_int_equal(rmx_comm_error(rig.comm), RMX_OK);
        fake_hang_up(&rig.crew.fake);
        while (!(r = rmx_comm_error(rig.comm)))
                sched_yield(); /* the test's time limit ends it */
        assert_int_equal(r, RMX_E_DAEMON_LOST);
        assert_int_equal(rig.gpu->released, 1);
        n_launches = rig.gpu->n_launches;
        assert_int_equal(call(rig.comm, NULL), RMX_E_DAEMON_LOST);
        assert_int_equal(call(rig.crew.comm[1], NULL), RMX_E_DAEMON_LOST);
        assert_int_equal(rmx_comm_error(rig.comm), RMX_E_DAEMON_LOST);
        assert_int_equal(rig.gpu->n_launches, n_launches);
        crew_stop(&rig.crew);
        assert_int_equal(rig.gpu->released, 1);
}

/* A program that does nothing but call. */
static void test_daemon_gone_calls(void **state) {
        struct rig rig;
        int r;

        (void)state;
        rig_start(&rig, 2);
        fake_hang_up(&rig.crew.fake);
        while (!(r = call(rig.comm, NULL)))
                sched_yield(); /* the test's time limit ends it */
        assert_int_equal(r, RMX_E_DAEMON_LOST);
        crew_stop(&rig.crew);
}

static void test_context_gone(void **state) {
        struct rmx_request request;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        rig.gpu->hold = rig.gpu->lost = true;
        assert_int_equal(start(rig.comm, NULL, &request), RMX_OK);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_DEVICE_LOST);
        assert_error_says("context of GPU 0");
        assert_int_equal(rmx_comm_error(rig.comm), RMX_E_DEVICE_LOST); /* sticky */
        crew_stop(&rig.crew);                                          /* ends */
}

/* What is launched next meets it first: the waiting kernel of a request, or a call. Of other errors nothing is lost. */
static void test_context_gone_launch(void **state) {
        (void)state;
        for (uint32_t waits = 0; waits < 2; waits++) {
                struct rmx_request request;
                struct rig rig;

                rig_start(&rig, 2);
                if (waits) {
                        assert_int_equal(start(rig.comm, NULL, &request), RMX_OK);
                        rig.gpu->fail = RMX_E_DEVICE_LOST;
                        assert_int_equal(rmx_wait(&request, NULL), RMX_E_DEVICE_LOST);
                        assert_int_equal(rmx_comm_error(rig.comm), RMX_OK); /* the context is there */
                }
                rig.gpu->lost = true;
                rig.gpu->fail = RMX_E_DEVICE_LOST;
                if (waits)
                        assert_int_equal(rmx_wait(&request, NULL), RMX_E_DEVICE_LOST);
                else
                        assert_int_equal(start(rig.comm, NULL, &request), RMX_E_DEVICE_LOST);
                assert_int_equal(rmx_comm_error(rig.comm), RMX_E_DEVICE_LOST);
                if (waits) {
                        assert_int_equal(rmx_wait(&request, NULL), RMX_E_INVALID);
                        assert_error_says("no outstanding request");
                }
                crew_stop(&rig.crew);
        }
}

/* A program that does nothing but ask whether its request is over hears of all that, too. */
static int ask(struct rig *rig, struct rmx_request *request, bool times_out) {
        int done = 0, r;

        do
                r = times_out ? rmx_wait_for(request, 0) : rmx_test(request, &done);
        while (r == (times_out ? RMX_E_TIMEOUT : RMX_OK) && !done); /* the test's time limit ends it */
        assert_int_equal(rmx_comm_error(rig->comm), r);
        return r;
}

static void test_asking(void **state) {
        (void)state;
        for (uint32_t i = 0; i < 6; i++) {
                static const int results[] = {RMX_E_DEVICE_LOST, RMX_E_LOST, RMX_E_DAEMON_LOST};
                struct rmx_request request;
                struct rig rig;
                int done;

                rig_start(&rig, 2);
                rig.gpu->hold = true;
                assert_int_equal(start(rig.comm, NULL, &request), RMX_OK);
                assert_int_equal(rmx_test(&request, &done), RMX_OK);
                assert_int_equal(done, 0);
                rig.gpu->lost = results[i / 2] == RMX_E_DEVICE_LOST;
                if (results[i / 2] == RMX_E_LOST)
                        fake_comm_failed(&rig.crew.fake, RMX_E_LOST, -1);
                if (results[i / 2] == RMX_E_DAEMON_LOST)
                        fake_hang_up(&rig.crew.fake);
                assert_int_equal(ask(&rig, &request, i % 2), results[i / 2]);
                crew_stop(&rig.crew);
        }
}

/* ---- leaving ----------------------------------------------------------------------------------------------------- */
static void test_destroy(void **state) {
        struct rmx_request request[3];
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        for (uint32_t i = 0; i < 5; i++)
                assert_int_equal(call(rig.comm, STREAM(1)), RMX_OK);
        assert_int_equal(start(rig.comm, STREAM(1), &request[0]), RMX_OK);
        assert_int_equal(start(rig.comm, STREAM(1), &request[1]), RMX_OK);
        assert_int_equal(start(rig.crew.comm[1], STREAM(2), &request[2]), RMX_OK);
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        assert_int_equal(rig.crew.fake.last_sequence, 7);
        assert_int_equal(rig.gpu->n_launches, 10); /* their ends were put on the stream */
        launched(&rig, 8, FAKE_GPU_WAIT, STREAM(1));
        launched(&rig, 9, FAKE_GPU_WAIT, STREAM(1));
        assert_int_equal(rmx_wait(&request[0], NULL), RMX_E_INVALID);
        assert_int_equal(rmx_wait(&request[2], NULL), RMX_OK);
        rig.crew.comm[0] = NULL;
        crew_stop(&rig.crew);
}

/* A stream that never comes to its end keeps destroy until the communicator fails. */
static int destroy(struct crew *crew, uint32_t rank) {
        struct rmx_comm *comm = crew->comm[rank];

        crew->comm[rank] = NULL;
        return rmx_comm_destroy(comm);
}

static void *fail_later(void *userdata) {
        struct fake *fake = userdata;

        fake_comm_failed(fake, RMX_E_PEER_LOST, 0);
        return NULL;
}

static void test_destroy_stuck(void **state) {
        pthread_t thread;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        rig.gpu->stuck = true;
        assert_int_equal(call(rig.comm, STREAM(1)), RMX_OK);
        assert_int_equal(pthread_create(&thread, NULL, fail_later, &rig.crew.fake), 0);
        assert_int_equal(destroy(&rig.crew, 0), RMX_OK);
        pthread_join(thread, NULL);
        crew_stop(&rig.crew);
}

/* The waiting of a destroy by itself, for so long, as often as one likes. */
static void test_finish(void **state) {
        struct rmx_request request;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(rmx_comm_finish(NULL, 0), RMX_E_INVALID);
        assert_int_equal(rmx_comm_finish(rig.comm, 0), RMX_OK); /* nothing has been called */
        rig.gpu->stuck = true;
        for (uint32_t i = 0; i < 2; i++)
                assert_int_equal(call(rig.comm, STREAM(1)), RMX_OK);
        assert_int_equal(start(rig.comm, STREAM(1), &request), RMX_OK);
        /* In a group one may look, if that has other calls. */
        for (uint32_t rank = 0; rank < 2; rank++) {
                assert_int_equal(rmx_group_start(), RMX_OK);
                assert_int_equal(call(rig.crew.comm[rank], STREAM(2)), RMX_OK);
                assert_int_equal(rmx_comm_finish(rig.comm, 0), rank ? RMX_E_TIMEOUT : RMX_E_INVALID);
                assert_int_equal(rmx_comm_finish(rig.comm, 1), RMX_E_INVALID);
                assert_int_equal(rmx_group_end(), RMX_OK);
        }
        for (uint32_t ms = 0; ms < 2; ms++) {
                assert_int_equal(rmx_comm_finish(rig.comm, ms), RMX_E_TIMEOUT);
                assert_error_says("are not over after");
        }
        rig.gpu->stuck = false;
        assert_int_equal(rmx_comm_finish(rig.comm, 10000), RMX_OK);
        assert_int_equal(destroy(&rig.crew, 0), RMX_OK);
        assert_int_equal(rig.crew.fake.last_sequence, 4);

        /* Another rank fails meanwhile: that ends it. */
        rig.gpu->stuck = true;
        assert_int_equal(call(rig.crew.comm[1], STREAM(1)), RMX_OK);
        assert_int_equal(rmx_comm_finish(rig.crew.comm[1], 0), RMX_E_TIMEOUT);
        fake_comm_failed(&rig.crew.fake, RMX_E_PEER_LOST, 0);
        assert_int_equal(rmx_comm_finish(rig.crew.comm[1], 10000), RMX_OK);
        assert_int_equal(destroy(&rig.crew, 1), RMX_OK);
        crew_stop(&rig.crew);
}

/* On the host there is nothing to wait for, and no waiting in a group. */
static void test_finish_on_host(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        assert_int_equal(rmx_comm_finish(crew.comm[0], 0), RMX_OK);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_comm_finish(crew.comm[0], 0), RMX_OK);
        assert_int_equal(rmx_comm_finish(crew.comm[0], 1), RMX_E_INVALID);
        assert_int_equal(rmx_group_end(), RMX_OK);
        crew_stop(&crew);
}

static void test_close(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_int_equal(call(rig.comm, STREAM(1)), RMX_OK);
        rmx_session_close(rig.crew.session);
        assert_int_equal(rig.gpu->closed, 1);
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(COMM_DESTROY)), 2);
        fake_stop(&rig.crew.fake);
}

/* A request on host memory has no stream to wait on. */
static void test_host_request(void **state) {
        struct rmx_request request;
        struct crew crew;
        int value = 1;

        (void)state;
        crew_start(&crew, 1, 64);
        assert_int_equal(rmx_all_reduce_start(crew.comm[0], &value, &value, 1, RMX_INT32, RMX_SUM, NULL, &request),
                         RMX_OK);
        assert_int_equal(rmx_wait_stream(&request, STREAM(1)), RMX_E_INVALID);
        assert_error_says("stream must be NULL for host memory");
        assert_int_equal(rmx_wait_stream(&request, NULL), RMX_OK); /* the same as rmx_wait */
        assert_int_equal(rmx_wait_stream(&request, NULL), RMX_E_INVALID);
        assert_int_equal(rmx_all_reduce(crew.comm[0], &value, &value, 1, RMX_INT32, RMX_SUM, STREAM(1)), RMX_E_INVALID);
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_order),
                cmocka_unit_test(test_launch_fails),
                cmocka_unit_test(test_wait),
                cmocka_unit_test(test_wait_stream),
                cmocka_unit_test(test_wait_for),
                cmocka_unit_test(test_started_too_many),
                cmocka_unit_test(test_started_before_capture),
                cmocka_unit_test(test_captured),
                cmocka_unit_test(test_sticky),
                cmocka_unit_test(test_lost),
                cmocka_unit_test(test_event),
                cmocka_unit_test(test_event_ends_kernels),
                cmocka_unit_test(test_daemon_gone),
                cmocka_unit_test(test_daemon_gone_idle),
                cmocka_unit_test(test_daemon_gone_calls),
                cmocka_unit_test(test_context_gone),
                cmocka_unit_test(test_context_gone_launch),
                cmocka_unit_test(test_asking),
                cmocka_unit_test(test_destroy),
                cmocka_unit_test(test_destroy_stuck),
                cmocka_unit_test(test_finish),
                cmocka_unit_test(test_finish_on_host),
                cmocka_unit_test(test_close),
                cmocka_unit_test(test_host_request),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
