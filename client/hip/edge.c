/* SPDX-License-Identifier: MIT */
/*
 * Edges in captured graphs that say nothing new
 *
 * Beside MPS a graph of many small kernels takes longer, on NVIDIA's driver, than without: a token of a decoder 100 us
 * of 800, whether anything of ours is in the graph or not. NCCL's calls in the graph take half of that away, and of all
 * that they have one thing does: each is launched on a stream of NCCL's own, which is put behind the caller's by an
 * event, and the caller's behind it by another. Of that, in turn, what counts are dependencies that the graph has
 * already: NCCL's stream is behind its last call as well as behind the caller's, so from its second call on each node
 * has an edge from one before the last. A chain with such an edge now and then is no chain any more, and the driver
 * launches it in another way. (Measured, not understood: docs/performance.md, 20, 45 and 47.)
 *
 * So a call is put behind the place of the last one on its stream, once more: one edge, no node, no stream. Where calls
 * stand one after another it makes them slower, and what matters is how many nodes stand from one edge to the next; so
 * a call has one if EDGE_NODES have been captured since the last one.
 *
 * The place is that of a stream in a capture, which what comes later on this stream is behind in any case. So it counts
 * for no other stream, or a branch would be put behind what has nothing to do with it, and ranks that capture in
 * different orders would wait for each other for ever. One place is remembered for the device: calls that take turns on
 * several streams of a capture have no such edge. (A thread's default stream has the same name in all threads, so no
 * place of it is remembered.)
 *
 * There is no MPS on AMD's GPUs, so nothing is done there.
 */
#include "client/hip/private.h"

#define EDGE_NODES 16u

#ifndef EDGES /* tests */
#ifdef RAILMUX_CUDA
#define EDGES true
#else
#define EDGES false
#endif
#endif

/* The capture that a stream is in, how many nodes it has, and one that what comes next on the stream is behind (NULL:
 * it is behind none); 0: none, one that has become invalid, or one whose dependencies are of another kind. */
static unsigned long long edge_capture(hipStream_t stream, size_t *ret_nodes, hipGraphNode_t *ret_place) {
        const hipGraphNode_t *dependencies = NULL;
        hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
        unsigned long long id = 0;
        hipGraph_t graph = NULL;
        size_t n = 0;

        if (hipStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &dependencies, &n) != hipSuccess ||
            status != hipStreamCaptureStatusActive || !graph ||
            hipGraphGetNodes(graph, NULL, ret_nodes) != hipSuccess) {
                (void)hipGetLastError();
                return 0;
        }
        *ret_place = n ? dependencies[0] : NULL;
        return id;
}

hipError_t gpu_edge(struct client_gpu *gpu, void *stream) {
        struct edge *edge = &gpu->edge;
        hipGraphNode_t place = NULL;
        unsigned long long capture;
        hipError_t r = hipSuccess;
        size_t nodes = 0;
        bool known;

        if (!EDGES || stream == hipStreamPerThread)
                return hipSuccess;
        pthread_mutex_lock(&edge->mutex);
        capture = edge_capture(stream, &nodes, &place);
        known = capture && capture == edge->capture && stream == edge->stream;
        if (capture && place && (!known || nodes >= edge->nodes + EDGE_NODES)) {
                if (known && place != edge->place)
                        r = hipStreamUpdateCaptureDependencies(stream, &edge->place, 1,
                                                               hipStreamAddCaptureDependencies);
                edge->capture = capture;
                edge->stream = stream;
                edge->nodes = nodes;
                edge->place = place;
        }
        pthread_mutex_unlock(&edge->mutex);
        return r;
}
