/* SPDX-License-Identifier: MIT */
/*
 * Forks in captured graphs (client/hip/fork.c) against a runtime of this file's, without a GPU. It knows of captures
 * what can go wrong with them: a stream that waits for an event of a capture comes into it, one that is in another
 * capture makes both invalid, and a capture whose streams have not come back to the one that began it cannot end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FORKS true
#include "client/hip/fork.c"

#define STREAMS  8u
#define CAPTURES 16u

struct fake_graph {
        size_t nodes;
        bool invalid, ended;
        struct fake_stream *origin;
};

struct fake_stream {
        uint32_t capture; /* 0: none */
        bool joined;      /* what is on it is behind nothing that the origin does not wait for */
};

struct fake_event {
        uint32_t capture;
        struct fake_stream *stream;
        bool made;
};

static struct {
        struct fake_graph graph[CAPTURES];
        struct fake_stream stream[STREAMS];
        struct fake_event event[4];
        uint32_t captures, streams, events, alive, forks;
        uint32_t fail_at, calls; /* the n-th call that makes something */
} fake;

static hipError_t may_fail(void) {
        return ++fake.calls == fake.fail_at ? hipErrorOutOfMemory : hipSuccess;
}

/* ---- the runtime ------------------------------------------------------------------------------------------------- */
hipError_t hipGetLastError(void) {
        return hipSuccess;
}

hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned int flags) {
        assert_int_equal(flags, hipStreamNonBlocking);
        if (may_fail() != hipSuccess)
                return hipErrorOutOfMemory;
        fake.alive++;
        *stream = &fake.stream[fake.streams++];
        return hipSuccess;
}

hipError_t hipStreamDestroy(hipStream_t stream) {
        assert_non_null(stream);
        fake.alive--;
        return hipSuccess;
}

hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned int flags) {
        assert_int_equal(flags, hipEventDisableTiming);
        if (may_fail() != hipSuccess)
                return hipErrorOutOfMemory;
        fake.alive++;
        *event = &fake.event[fake.events++];
        return hipSuccess;
}

hipError_t hipEventDestroy(hipEvent_t event) {
        assert_non_null(event);
        fake.alive--;
        return hipSuccess;
}

static hipStreamCaptureStatus status_of(const struct fake_stream *stream) {
        if (!stream->capture)
                return hipStreamCaptureStatusNone;
        return fake.graph[stream->capture].invalid ? hipStreamCaptureStatusInvalidated : hipStreamCaptureStatusActive;
}

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status) {
        *status = status_of(stream);
        return hipSuccess;
}

hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus *status, unsigned long long *id,
                                      hipGraph_t *graph, const hipGraphNode_t **dependencies, size_t *n_dependencies) {
        assert_null(dependencies);
        assert_null(n_dependencies);
        *status = status_of(stream);
        if (*status == hipStreamCaptureStatusActive) {
                *id = stream->capture;
                *graph = &fake.graph[stream->capture];
        }
        return hipSuccess;
}

hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *n_nodes) {
        assert_null(nodes);
        *n_nodes = graph->nodes;
        return hipSuccess;
}

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
        if (status_of(stream) == hipStreamCaptureStatusInvalidated)
                return hipErrorInvalidValue;
        *event = (struct fake_event){.capture = stream->capture, .stream = stream, .made = true};
        return hipSuccess;
}

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags) {
        assert_int_equal(flags, 0);
        assert_true(event->made);
        if (stream->capture != event->capture && stream->capture) {
                fake.graph[stream->capture].invalid = fake.graph[event->capture].invalid = true;
                return hipErrorInvalidValue;
        }
        stream->capture = event->capture;
        stream->joined = stream == fake.graph[event->capture].origin;
        if (stream->joined) {
                event->stream->joined = true;
                fake.forks++;
        }
        return hipSuccess;
}

/* ---- captures ---------------------------------------------------------------------------------------------------- */
static struct fake_stream *begin(void) {
        struct fake_stream *stream = &fake.stream[fake.streams++];

        assert_true(fake.streams <= STREAMS && fake.captures + 1 < CAPTURES);
        stream->capture = ++fake.captures;
        stream->joined = true;
        fake.graph[stream->capture] = (struct fake_graph){.origin = stream};
        return stream;
}

static void end(struct fake_stream *origin) {
        const uint32_t capture = origin->capture;

        for (uint32_t i = 0; i < fake.streams; i++) {
                if (fake.stream[i].capture != capture)
                        continue;
                assert_true(fake.stream[i].joined || fake.graph[capture].invalid);
                fake.stream[i].capture = 0;
        }
}

/* So many kernels of the program, and one call of the library. How many forks came of it. */
static uint32_t kernels_and_call(struct client_gpu *gpu, struct fake_stream *stream, size_t kernels) {
        const uint32_t before = fake.forks;

        fake.graph[stream->capture].nodes += kernels;
        assert_int_equal(gpu_fork(gpu, stream), hipSuccess);
        fake.graph[stream->capture].nodes++;
        assert_false(fake.graph[stream->capture].invalid);
        return fake.forks - before;
}

static int setup(void **state) {
        struct client_gpu *gpu = calloc(1, sizeof(*gpu));

        memset(&fake, 0, sizeof(fake));
        pthread_mutex_init(&gpu->fork.mutex, NULL);
        assert_int_equal(gpu_fork_init(gpu), hipSuccess);
        *state = gpu;
        return 0;
}

static int teardown(void **state) {
        struct client_gpu *gpu = *state;

        gpu_fork_free(gpu);
        assert_int_equal(fake.alive, 0);
        pthread_mutex_destroy(&gpu->fork.mutex);
        free(gpu);
        return 0;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
static void test_nodes(void **state) {
        struct client_gpu *gpu = *state;

        for (uint32_t i = 0; i < 3; i++) { /* each capture counts anew */
                struct fake_stream *stream = begin();

                for (uint32_t k = 0; k < FORK_NODES; k++) /* one after another: none, */
                        assert_int_equal(kernels_and_call(gpu, stream, 0), 0);
                assert_int_equal(kernels_and_call(gpu, stream, 0), 1); /* or one in so many */
                assert_int_equal(kernels_and_call(gpu, stream, FORK_NODES - 2), 0);
                assert_int_equal(kernels_and_call(gpu, stream, 0), 1);
                assert_int_equal(kernels_and_call(gpu, stream, FORK_NODES - 1), 1);
                assert_int_equal(kernels_and_call(gpu, stream, 1000), 1);
                assert_int_equal(kernels_and_call(gpu, stream, 0), 0);
                end(stream);
        }
}

static void test_no_capture(void **state) {
        struct client_gpu *gpu = *state;
        struct fake_stream *stream = &fake.stream[fake.streams++];

        assert_int_equal(kernels_and_call(gpu, stream, 1000), 0);
}

/* Of captures at the same time one has forks, and the next one when that has ended. */
static void test_two(void **state) {
        struct client_gpu *gpu = *state;
        struct fake_stream *a = begin(), *b = begin();

        assert_int_equal(kernels_and_call(gpu, a, FORK_NODES), 1);
        assert_int_equal(kernels_and_call(gpu, b, FORK_NODES), 0);
        assert_int_equal(kernels_and_call(gpu, a, FORK_NODES), 1);
        end(a);
        assert_int_equal(kernels_and_call(gpu, b, FORK_NODES), 1);
        end(b);
}

/* One that is there, but has had no fork yet, keeps nobody from it, and gets none in between. */
static void test_two_small(void **state) {
        struct client_gpu *gpu = *state;
        struct fake_stream *a = begin(), *b = begin();

        assert_int_equal(kernels_and_call(gpu, a, 1), 0);
        assert_int_equal(kernels_and_call(gpu, b, FORK_NODES), 1);
        assert_int_equal(kernels_and_call(gpu, a, FORK_NODES), 0);
        assert_int_equal(kernels_and_call(gpu, b, FORK_NODES), 1);
        end(b);
        end(a);
}

/* Only one of a capture's streams: the others would be put behind what it has. */
static void test_branches(void **state) {
        struct client_gpu *gpu = *state;
        struct fake_stream *a = begin(), *branch = &fake.stream[fake.streams++];

        branch->capture = a->capture;
        branch->joined = true;
        assert_int_equal(kernels_and_call(gpu, a, FORK_NODES), 1);
        assert_int_equal(kernels_and_call(gpu, branch, FORK_NODES), 0);
        assert_int_equal(kernels_and_call(gpu, a, 0), 1);
        assert_int_equal(kernels_and_call(gpu, branch, 1000), 0);
        end(a);
        assert_int_equal(gpu_fork(gpu, hipStreamPerThread),
                         hipSuccess); /* which the runtime above could not be asked for */
}

/* What has become invalid keeps the stream until it is ended, and its calls do nothing more. */
static void test_invalid(void **state) {
        struct client_gpu *gpu = *state;
        struct fake_stream *a = begin(), *b = begin();

        assert_int_equal(kernels_and_call(gpu, a, FORK_NODES), 1);
        fake.graph[a->capture].invalid = true;
        assert_int_equal(gpu_fork(gpu, a), hipSuccess);
        assert_int_equal(kernels_and_call(gpu, b, FORK_NODES), 0);
        end(a);
        assert_int_equal(kernels_and_call(gpu, b, FORK_NODES), 1);
        end(b);
}

static void test_no_memory(void **state) {
        (void)state;
        for (uint32_t at = 1; at <= 3; at++) {
                struct client_gpu *gpu = calloc(1, sizeof(*gpu));

                memset(&fake, 0, sizeof(fake));
                fake.fail_at = at;
                assert_int_equal(gpu_fork_init(gpu), hipErrorOutOfMemory);
                gpu_fork_free(gpu);
                assert_int_equal(fake.alive, 0);
                free(gpu);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_nodes, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_capture, setup, teardown),
                cmocka_unit_test_setup_teardown(test_two, setup, teardown),
                cmocka_unit_test_setup_teardown(test_two_small, setup, teardown),
                cmocka_unit_test_setup_teardown(test_branches, setup, teardown),
                cmocka_unit_test_setup_teardown(test_invalid, setup, teardown),
                cmocka_unit_test(test_no_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
