/* SPDX-License-Identifier: MIT */
/*
 * Forks in captured graphs
 *
 * Beside MPS a graph of many small kernels takes longer, on NVIDIA's driver, than without: a token of a decoder 100 us
 * of 800, whether anything of ours is in the graph or not. NCCL's calls in the graph take half of that away, and of all
 * that they have one thing does: each is launched on a stream of NCCL's own, which is put behind the caller's by an
 * event, and the caller's behind it by another. A fork and join with nothing between them, which adds no node to the
 * graph, does the same. (Measured, not understood: docs/performance.md, 20 and 45.) It costs what stands there 0.7 us,
 * and it is the number of nodes from one to the next that matters. So a call gets one before it if FORK_NODES have been
 * captured since the last one; calls one after another, as benchmarks have them, get none.
 *
 * The stream for it is used for nothing else. It remembers all that it was put behind, and hands that on to whoever is
 * put behind it: so only one of a capture's streams has forks, for which all of that comes before anyway. Another one
 * would be put behind what has nothing to do with it, and ranks that capture in different orders would wait for each
 * other for ever. (A thread's default stream has the same name in all threads, and so has none.) It belongs to a
 * capture until that one ends, so of captures that are under way at the same time only one has forks: with the stream
 * of another capture in it one would be invalid.
 *
 * There is no MPS on AMD's GPUs, so nothing is done there.
 */
#include "client/hip/private.h"

#define FORK_NODES 16u

#ifndef FORKS /* tests */
#ifdef RAILMUX_CUDA
#define FORKS true
#else
#define FORKS false
#endif
#endif

hipError_t gpu_fork_init(struct client_gpu *gpu) {
        hipError_t r = hipSuccess;

        if (FORKS)
                r = hipStreamCreateWithFlags(&gpu->fork.stream, hipStreamNonBlocking);
        for (uint32_t i = 0; i < 2 && FORKS && r == hipSuccess; i++)
                r = hipEventCreateWithFlags(&gpu->fork.event[i], hipEventDisableTiming);
        return r;
}

void gpu_fork_free(struct client_gpu *gpu) {
        for (uint32_t i = 0; i < 2; i++)
                if (gpu->fork.event[i])
                        (void)hipEventDestroy(gpu->fork.event[i]);
        if (gpu->fork.stream)
                (void)hipStreamDestroy(gpu->fork.stream);
}

/* The capture that a stream is in, and how many nodes it has; 0: none, or one that has become invalid. */
static unsigned long long fork_capture(hipStream_t stream, size_t *ret_nodes) {
        hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
        unsigned long long id = 0;
        hipGraph_t graph = NULL;

        *ret_nodes = 0;
        if (hipStreamGetCaptureInfo_v2(stream, &status, &id, &graph, NULL, NULL) != hipSuccess ||
            status == hipStreamCaptureStatusNone || !graph || hipGraphGetNodes(graph, NULL, ret_nodes) != hipSuccess) {
                (void)hipGetLastError();
                return 0;
        }
        return id;
}

/* Of the stream for forks: a capture that has become invalid still has it. */
static bool fork_free(const struct fork *fork) {
        hipStreamCaptureStatus status = hipStreamCaptureStatusNone;

        return hipStreamIsCapturing(fork->stream, &status) == hipSuccess && status == hipStreamCaptureStatusNone;
}

static hipError_t fork_and_join(struct fork *fork, hipStream_t stream) {
        hipError_t r;

        r = hipEventRecord(fork->event[0], stream);
        if (r == hipSuccess)
                r = hipStreamWaitEvent(fork->stream, fork->event[0], 0);
        if (r == hipSuccess)
                r = hipEventRecord(fork->event[1], fork->stream);
        if (r == hipSuccess)
                r = hipStreamWaitEvent(stream, fork->event[1], 0);
        return r;
}

hipError_t gpu_fork(struct client_gpu *gpu, void *stream) {
        struct fork *fork = &gpu->fork;
        unsigned long long capture;
        hipError_t r = hipSuccess;
        size_t nodes;

        if (!FORKS || stream == hipStreamPerThread)
                return hipSuccess;
        pthread_mutex_lock(&fork->mutex);
        capture = fork_capture(stream, &nodes);
        if (capture && capture != fork->capture && fork_free(fork)) {
                fork->capture = capture;
                fork->caller = stream;
                fork->nodes = 0;
        }
        if (capture && capture == fork->capture && stream == fork->caller && nodes >= fork->nodes + FORK_NODES) {
                fork->nodes = nodes;
                r = fork_and_join(fork, stream);
        }
        pthread_mutex_unlock(&fork->mutex);
        return r;
}
