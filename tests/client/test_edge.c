/* SPDX-License-Identifier: MIT */
/*
 * Edges in captured graphs that say nothing new (client/hip/edge.c) against a runtime of this file's, without a GPU. It
 * knows of a graph what each node is behind, so an edge that says something new is seen.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define EDGES 1
#include "client/hip/edge.c"

#define STREAMS 8u
#define NODES   4096u

struct fake_graph {
        unsigned long long id;
        size_t nodes;
        bool invalid;
};

struct fake_node {
        unsigned long long graph, stream; /* their ids */
        uint32_t place;                   /* among those of the stream */
};

struct fake_stream {
        unsigned long long id;
        struct fake_graph *graph;         /* NULL: it is in no capture */
        const struct fake_node *began_at; /* of another stream, that this one is behind */
        hipGraphNode_t last[4];           /* what comes next is behind these */
        size_t n_last;
        uint32_t nodes;
};

static struct {
        struct fake_graph graph[STREAMS];
        struct fake_stream stream[STREAMS];
        struct fake_node node[NODES];
        uint32_t graphs, streams, ids, nodes, edges;
        hipGraphNode_t edge; /* the last one leads to it */
        hipError_t answer;   /* of adding */
} fake;

/* ---- the runtime ------------------------------------------------------------------------------------------------- */
hipError_t hipGetLastError(void) {
        return hipSuccess;
}

hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus *status, unsigned long long *id,
                                      hipGraph_t *graph, const hipGraphNode_t **dependencies, size_t *n_dependencies) {
        assert_ptr_not_equal(stream, hipStreamPerThread);
        *status = !stream->graph           ? hipStreamCaptureStatusNone
                  : stream->graph->invalid ? hipStreamCaptureStatusInvalidated
                                           : hipStreamCaptureStatusActive;
        if (*status == hipStreamCaptureStatusActive) {
                *id = stream->graph->id;
                *graph = stream->graph;
                *dependencies = stream->n_last ? stream->last : NULL;
                *n_dependencies = stream->n_last;
        }
        return hipSuccess;
}

hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *n_nodes) {
        assert_null(nodes);
        *n_nodes = graph->nodes;
        return hipSuccess;
}

/* Is what comes next on the stream behind this node in any case? */
static bool is_behind(const struct fake_stream *stream, const struct fake_node *node) {
        const struct fake_node *from = stream->began_at;

        assert_int_equal(node->graph, stream->graph->id);
        return node->stream == stream->id || (from && node->stream == from->stream && node->place <= from->place);
}

hipError_t hipStreamUpdateCaptureDependencies(hipStream_t stream, hipGraphNode_t *nodes, size_t n, unsigned int flags) {
        assert_int_equal(flags, hipStreamAddCaptureDependencies);
        assert_int_equal(n, 1);
        assert_true(is_behind(stream, nodes[0]));
        for (size_t i = 0; i < stream->n_last; i++)
                assert_ptr_not_equal(stream->last[i], nodes[0]);
        if (fake.answer != hipSuccess)
                return fake.answer;
        assert_true(stream->n_last < 4);
        stream->last[stream->n_last++] = fake.edge = nodes[0];
        fake.edges++;
        return hipSuccess;
}

/* ---- captures ---------------------------------------------------------------------------------------------------- */
static struct fake_stream *begin(void) {
        struct fake_stream *stream = &fake.stream[fake.streams++];
        struct fake_graph *graph = &fake.graph[fake.graphs++];

        assert_true(fake.streams <= STREAMS && fake.graphs <= STREAMS);
        *graph = (struct fake_graph){.id = 100 + fake.graphs};
        stream->graph = graph;
        stream->id = ++fake.ids;
        return stream;
}

/* Another stream of the capture, behind what is on this one. */
static struct fake_stream *branch(const struct fake_stream *from) {
        struct fake_stream *stream = &fake.stream[fake.streams++];

        assert_true(fake.streams <= STREAMS);
        stream->graph = from->graph;
        stream->id = ++fake.ids;
        stream->began_at = stream->last[0] = from->last[0];
        stream->n_last = 1;
        return stream;
}

static void kernels(struct fake_stream *stream, size_t n) {
        for (size_t i = 0; i < n; i++) {
                struct fake_node *node = &fake.node[fake.nodes++];

                assert_true(fake.nodes <= NODES);
                *node = (struct fake_node){.graph = stream->graph->id, .stream = stream->id, .place = stream->nodes++};
                stream->graph->nodes++;
                stream->last[0] = node;
                stream->n_last = 1;
        }
}

/* So many kernels of the program, and one call of the library. How many edges came of it. */
static uint32_t kernels_and_call(struct client_gpu *gpu, struct fake_stream *stream, size_t n) {
        const uint32_t before = fake.edges;

        kernels(stream, n);
        gpu_edge(gpu, stream);
        kernels(stream, 1);
        return fake.edges - before;
}

static int setup(void **state) {
        static struct client_gpu gpu;

        memset(&fake, 0, sizeof(fake));
        memset(&gpu, 0, sizeof(gpu));
        pthread_mutex_init(&gpu.edge.mutex, NULL);
        *state = &gpu;
        return 0;
}

static int teardown(void **state) {
        struct client_gpu *gpu = *state;

        pthread_mutex_destroy(&gpu->edge.mutex);
        return 0;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
static void test_nodes(void **state) {
        struct client_gpu *gpu = *state;

        for (uint32_t i = 0; i < 3; i++) { /* each capture counts anew */
                struct fake_stream *stream = begin();

                assert_int_equal(kernels_and_call(gpu, stream, 1), 0); /* the first has no place to be put behind */
                for (uint32_t k = 0; k < EDGE_NODES - 1; k++)          /* one after another: none, */
                        assert_int_equal(kernels_and_call(gpu, stream, 0), 0);
                assert_int_equal(kernels_and_call(gpu, stream, 0), 1); /* or one in so many */
                assert_int_equal(kernels_and_call(gpu, stream, EDGE_NODES - 2), 0);
                assert_int_equal(kernels_and_call(gpu, stream, 0), 1);
                assert_int_equal(kernels_and_call(gpu, stream, EDGE_NODES - 1), 1);
                assert_int_equal(kernels_and_call(gpu, stream, 1000), 1);
                assert_int_equal(kernels_and_call(gpu, stream, 0), 0);
        }
}

/* A capture that begins with a call. */
static void test_nothing_before(void **state) {
        struct client_gpu *gpu = *state;
        struct fake_stream *stream = begin();

        assert_int_equal(kernels_and_call(gpu, stream, 0), 0);
        assert_int_equal(kernels_and_call(gpu, stream, EDGE_NODES), 0);
        assert_int_equal(kernels_and_call(gpu, stream, EDGE_NODES), 1);
}

static void test_no_capture(void **state) {
        struct client_gpu *gpu = *state;
        struct fake_stream *stream = &fake.stream[fake.streams++];

        gpu_edge(gpu, stream);
        assert_int_equal(fake.edges, 0);
}

/* Captures at the same time: a place is never of another one's graph. */
static void test_two(void **state) {
        struct client_gpu *gpu = *state;
        struct fake_stream *a = begin(), *b = begin();

        for (uint32_t i = 0; i < 4; i++) {
                assert_int_equal(kernels_and_call(gpu, a, EDGE_NODES), 0);
                assert_int_equal(kernels_and_call(gpu, b, EDGE_NODES), 0);
        }
        assert_int_equal(kernels_and_call(gpu, b, EDGE_NODES), 1);
}

/* Streams of one capture: none is put behind what stands beside it. */
static void test_branches(void **state) {
        struct client_gpu *gpu = *state;
        struct fake_stream *a = begin(), *beside;

        assert_int_equal(kernels_and_call(gpu, a, EDGE_NODES), 0);
        beside = branch(a);
        for (uint32_t i = 0; i < 4; i++) {
                assert_int_equal(kernels_and_call(gpu, beside, EDGE_NODES), 0);
                assert_int_equal(kernels_and_call(gpu, a, EDGE_NODES), 0);
        }
        assert_int_equal(kernels_and_call(gpu, a, EDGE_NODES), 1);
        gpu_edge(gpu, hipStreamPerThread); /* which is not asked for */
}

/* A stream that is used in one capture after the other, with another graph at the same address. */
static void test_again(void **state) {
        struct client_gpu *gpu = *state;
        struct fake_stream *a = begin();

        for (uint32_t i = 0; i < 4; i++)
                assert_int_equal(kernels_and_call(gpu, a, EDGE_NODES), i > 0);
        *a->graph = (struct fake_graph){.id = 1000};
        a->n_last = a->nodes = 0;
        assert_int_equal(kernels_and_call(gpu, a, 8 * EDGE_NODES), 0);
        assert_int_equal(kernels_and_call(gpu, a, EDGE_NODES), 1);
}

/* Each edge leads to where the last call stood that had one, or would have had. */
static void test_place(void **state) {
        struct client_gpu *gpu = *state;
        struct fake_stream *a = begin(), *beside;
        hipGraphNode_t place, before = NULL;

        kernels(a, 1);
        for (uint32_t i = 0; i < 4; i++) {
                place = a->last[0];
                gpu_edge(gpu, a);
                assert_int_equal(fake.edges, i);
                if (i > 0)
                        assert_ptr_equal(fake.edge, before);
                before = place;
                kernels(a, EDGE_NODES);
        }
        beside = branch(a); /* nodes elsewhere do not move it: it is behind that place as it is */
        kernels(beside, EDGE_NODES);
        gpu_edge(gpu, a);
        kernels(beside, EDGE_NODES);
        fake.edges = 0;
        gpu_edge(gpu, a);
        assert_int_equal(fake.edges, 0);
}

static void test_invalid(void **state) {
        struct client_gpu *gpu = *state;
        struct fake_stream *a = begin(), *b = begin();

        assert_int_equal(kernels_and_call(gpu, a, EDGE_NODES), 0);
        a->graph->invalid = true;
        assert_int_equal(kernels_and_call(gpu, a, EDGE_NODES), 0);
        assert_int_equal(kernels_and_call(gpu, b, EDGE_NODES), 0);
        assert_int_equal(kernels_and_call(gpu, b, EDGE_NODES), 1);
}

/* A call does not fail for it. */
static void test_refused(void **state) {
        struct client_gpu *gpu = *state;
        struct fake_stream *a = begin();

        assert_int_equal(kernels_and_call(gpu, a, EDGE_NODES), 0);
        fake.answer = hipErrorOutOfMemory;
        assert_int_equal(kernels_and_call(gpu, a, EDGE_NODES), 0);
        fake.answer = hipSuccess;
        assert_int_equal(kernels_and_call(gpu, a, EDGE_NODES), 1);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_nodes, setup, teardown),
                cmocka_unit_test_setup_teardown(test_nothing_before, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_capture, setup, teardown),
                cmocka_unit_test_setup_teardown(test_two, setup, teardown),
                cmocka_unit_test_setup_teardown(test_branches, setup, teardown),
                cmocka_unit_test_setup_teardown(test_again, setup, teardown),
                cmocka_unit_test_setup_teardown(test_place, setup, teardown),
                cmocka_unit_test_setup_teardown(test_invalid, setup, teardown),
                cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
