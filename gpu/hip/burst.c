/* SPDX-License-Identifier: MIT */
/*
 * Launching bursts
 *
 * A worker writes a burst's number into a word of host memory (table_report.burst); a thread (watch.c) sees it and
 * launches the kernel, at once, since what it needs from word to first instruction (9 us measured on an H200) is what
 * the request waits for. Launches do not wait for the resident kernel: the module is loaded beforehand, and what
 * streams need has been allocated.
 *
 * Streams. Bursts of different communicators may run side by side, so they go on several streams in turn; all of the
 * highest priority, so that their blocks go before those of other kernels of this process, and, where the system
 * honours that between processes, before clients'.
 *
 * Numbers come one after another, and at most TABLE_BURSTS of them have something to do. What the worker has taken back
 * meanwhile is launched all the same, and ends at once; if its place has been used again before the thread looked, it
 * is passed over.
 *
 * Copies (gpu/device/copies.h). A word that says so asks for no kernel: what is to be moved stands beside it, and goes
 * to the copy engines, on the same streams, with a write of the job's state behind it. Neither allocates anything or
 * waits for anybody, but the first of each may load what it needs; so each stream has had one before there is a
 * resident kernel. What is beyond what a stream holds would wait here for copies before it, and for nothing else.
 */
#include "gpu/hip/burst.h"

#include <errno.h>
#include <string.h>

#include "gpu/hip/copies.h"
#include "gpu/hip/error.h"
#include "gpu/hip/hip.h"

#define SLICES_MAX 4u

/* Of a request of so many KiB. More blocks have more loads under way; below some size each has nothing to do, and to
 * launch and to end more of them takes longer. */
static uint32_t slices_of(const struct burst *burst, uint32_t kib) {
        const uint32_t slices = kib >= 8192 ? 4 : kib >= 1024 ? 2 : 1;

        return slices < burst->most ? slices : burst->most;
}

/* Says in the job that it is done, when all is that the stream has been given. */
static hipError_t copies_end(const struct burst *burst, hipStream_t stream, uint32_t number) {
        return hipStreamWriteValue32(stream, kernel_burst_state(burst->queue, number), kernel_burst_done(number), 0);
}

/* The runtime's error, as kernel_burst_launch; 0 also if they have been taken back. */
static int copies_launch(struct burst *burst, hipStream_t stream, uint32_t number) {
        const struct table_copies *copies = &burst->report->copies[number % TABLE_BURSTS];
        hipError_t r = hipSuccess;

        if (!copies_begin(burst->report, number))
                return 0;
        for (uint32_t i = 0; i < copies->n && i < TABLE_COPIES && r == hipSuccess; i++)
                if (copies->piece[i].bytes)
                        r = hipMemcpyAsync((void *)(uintptr_t)copies->piece[i].to,
                                           (const void *)(uintptr_t)copies->piece[i].from, copies->piece[i].bytes,
                                           hipMemcpyDeviceToDevice, stream);
        return (int)(r == hipSuccess ? copies_end(burst, stream, number) : r);
}

/* Before the first kernel: one of each that copies need, within the queue, where all is zero. (No job has number 0.) */
static int copies_try(const struct burst *burst, hipStream_t stream, char *error) {
        const size_t half = kernel_burst_bytes() / 2 & ~(size_t)15;
        int r = runtime_check(
                hipMemcpyAsync(burst->queue, (const char *)burst->queue + half, half, hipMemcpyDeviceToDevice, stream),
                "trying copies", error);

        return r ? r
                 : runtime_check(hipStreamWriteValue32(stream, kernel_burst_state(burst->queue, 0), 0, 0),
                                 "trying writes behind copies", error);
}

bool burst_look(struct burst *burst, uint32_t *ret_kib) {
        const uint64_t *cell = &burst->report->burst[burst->next % TABLE_BURSTS];
        /* Partner: the worker's fence before its store. The job is in memory. */
        const uint64_t word = __atomic_load_n(cell, __ATOMIC_ACQUIRE);
        const uint32_t number = burst->next, seen = (uint32_t)(word >> 32);
        const uint32_t kib = (uint32_t)word & ~TABLE_BURST_COPIES;
        hipStream_t stream = burst->streams[number % BURST_STREAMS];
        int r;

        if (!seen || (int32_t)(seen - number) < 0)
                return false;
        burst->next = number + 1 ? number + 1 : 1;
        if (seen != number) /* taken back and posted anew, before anybody looked */
                return true;
        if ((uint32_t)word & TABLE_BURST_COPIES)
                r = copies_launch(burst, stream, number);
        else
                r = kernel_burst_launch(stream, burst->queue, number, kernel_burst_blocks(slices_of(burst, kib)));
        if (r)
                atomic_store_explicit(&burst->failed, r, memory_order_relaxed);
        atomic_fetch_add_explicit(&burst->launched, 1, memory_order_release); /* (tests look at what it did) */
        *ret_kib = kib;
        return true;
}

int burst_open(struct burst *burst, struct plane *plane, uint32_t most_blocks, uint64_t copies, char *error) {
        int least = 0, greatest = 0, r;

        burst->report = plane->tables.report;
        burst->next = 1;
        burst->most = most_blocks ? most_blocks / kernel_burst_blocks(1) : SLICES_MAX;
        burst->most = burst->most ? burst->most : 1;
        r = runtime_check((hipError_t)kernel_burst_preload(), "loading the kernel of bursts", error);
        if (!r)
                r = runtime_alloc_shared(kernel_burst_bytes(), &burst->queue, "allocating bursts", error);
        if (!r)
                r = runtime_check(hipMemset(burst->queue, 0, kernel_burst_bytes()), "clearing bursts", error);
        if (!r)
                r = runtime_check(hipDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities", error);
        for (uint32_t i = 0; i < BURST_STREAMS && !r; i++)
                r = runtime_check(hipStreamCreateWithPriority(&burst->streams[i], hipStreamNonBlocking, greatest),
                                  "making a stream", error);
        if (!r)
                r = tables_bursts(&plane->tables, burst->queue, copies, error);
        if (!r)
                r = runtime_check(hipDeviceSynchronize(), "clearing bursts", error);
        for (uint32_t i = 0; i < BURST_STREAMS && !r && copies; i++)
                r = copies_try(burst, burst->streams[i], error);
        if (!r && copies)
                r = runtime_check(hipDeviceSynchronize(), "trying copies", error);
        return r;
}

void burst_close(struct burst *burst, bool lost) {
        if (lost)
                return;
        for (uint32_t i = 0; i < BURST_STREAMS; i++)
                if (burst->streams[i])
                        (void)hipStreamDestroy(burst->streams[i]);
        if (burst->queue)
                (void)hipFree(burst->queue); /* waits for what was taken back and comes to nothing */
        memset(burst->streams, 0, sizeof(burst->streams));
        burst->queue = NULL;
}

int burst_check(const struct burst *burst, char *error) {
        const int failed = atomic_load_explicit(&burst->failed, memory_order_relaxed);

        return failed ? error_set(-EIO, error, "launching a burst: %s", hipGetErrorString((hipError_t)failed)) : 0;
}
