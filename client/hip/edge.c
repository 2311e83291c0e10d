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
 * So a call is put behind the place of the last one on its stream, once more: one edge, no node, no stream. Forks made
 * calls slower that stand one after another, and what mattered was how many nodes stood from one to the next; so a call
 * has an edge if EDGE_NODES have been captured since the last one.
 *
 * The place is that of a stream in a capture, which what comes later on this stream is behind in any case. So it counts
 * for no other stream, or a branch would be put behind what has nothing to do with it, and ranks that capture in
 * different orders would wait for each other for ever. One place is remembered for the device: calls that take turns on
 * several streams of a capture have no such edge. (A thread's default stream has the same name in all threads, so no
 * place of it is remembered. A stream that is made, in a capture, at the address of one that was destroyed in the same
 * capture is taken for that one; the runtime numbers streams, but asking for the number in a capture has not been
 * tried.)
 *
 * How many nodes a graph has is asked of the graph. The runtime's manual calls graphs unsafe for several threads, and
 * does not say whether that is meant of such a question, too; so far all captures that were tried were one thread's.
 *
 * There is no MPS on AMD's GPUs, so nothing is done there.
 */
#include "client/hip/private.h"

#define EDGE_NODES 16u

#ifndef EDGES /* tests */
#ifdef RAILMUX_CUDA
#define EDGES 1
#else
#define EDGES 0
#endif
#endif

#if EDGES
/* What comes next on the stream, in the capture that it is in: which one that is, how many nodes it has, and which of
 * them this is behind. 0: none, one that has become invalid, or one whose dependencies are of another kind. */
static unsigned long long edge_capture(hipStream_t stream, size_t *ret_nodes, const hipGraphNode_t **ret_behind,
                                       size_t *ret_n) {
        hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
        unsigned long long id = 0;
        hipGraph_t graph = NULL;

        if (hipStreamGetCaptureInfo_v2(stream, &status, &id, &graph, ret_behind, ret_n) != hipSuccess ||
            status != hipStreamCaptureStatusActive || !graph ||
            hipGraphGetNodes(graph, NULL, ret_nodes) != hipSuccess) {
                (void)hipGetLastError();
                return 0;
        }
        return id;
}

/* Nothing depends on this edge, so whatever the runtime says to it is no reason for a call to fail. */
static void edge_add(hipStream_t stream, hipGraphNode_t place, const hipGraphNode_t *behind, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (behind[i] == place)
                        return;
        if (hipStreamUpdateCaptureDependencies(stream, &place, 1, hipStreamAddCaptureDependencies) != hipSuccess)
                (void)hipGetLastError();
}

void gpu_edge(struct client_gpu *gpu, void *stream) {
        const hipGraphNode_t *behind = NULL;
        struct edge *edge = &gpu->edge;
        unsigned long long capture;
        size_t nodes = 0, n = 0;
        hipGraphNode_t place;
        bool known;

        if (stream == hipStreamPerThread)
                return;
        pthread_mutex_lock(&edge->mutex);
        capture = edge_capture(stream, &nodes, &behind, &n);
        if (capture && n) {
                known = capture == edge->capture && stream == edge->stream;
                place = behind[0];
                if (known && nodes >= edge->nodes + EDGE_NODES)
                        edge_add(stream, edge->place, behind, n);
                if (!known || nodes >= edge->nodes + EDGE_NODES) {
                        edge->capture = capture;
                        edge->stream = stream;
                        edge->nodes = nodes;
                        edge->place = place;
                }
        }
        pthread_mutex_unlock(&edge->mutex);
}
#else
void gpu_edge(struct client_gpu *gpu, void *stream) {
        (void)gpu;
        (void)stream;
}
#endif
