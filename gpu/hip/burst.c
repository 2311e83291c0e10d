/* SPDX-License-Identifier: MIT */
/*
 * Launching bursts
 *
 * A worker writes a burst's number into a word of host memory (table_report.burst); this thread sees it and launches
 * the kernel. It does nothing else, since what it needs from word to first instruction (9 us measured on an H200) is
 * what the request waits for. Launches do not wait for the resident kernel: the module is loaded beforehand, and what
 * streams need has been allocated.
 *
 * Streams. Bursts of different communicators may run side by side, so they go on several streams in turn; all of the
 * highest priority, so that their blocks go before those of other kernels of this process, and, where the system
 * honours that between processes, before clients'.
 *
 * When to look. As long as there are bursts, and for SPIN_NS after the last one, which covers the gaps between the
 * requests of a prefill, all the time; then every NAP_NS, and after IDLE_NS every DOZE_NS: the first large request
 * after a silence is late by that.
 *
 * Numbers come one after another, and at most TABLE_BURSTS of them have something to do. What the worker has taken back
 * meanwhile is launched all the same, and ends at once; if its place has been used again before this thread looked, it
 * is passed over.
 */
#include "gpu/hip/burst.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "gpu/hip/error.h"
#include "gpu/hip/hip.h"
#include "util/clock.h"

#define SPIN_NS UINT64_C(2000000)
#define IDLE_NS UINT64_C(1000000000)
#define NAP_NS  20000
#define DOZE_NS 1000000
#define LATE_NS 1000ul /* that a nap may be longer */

#define SLICES_MAX 4u

/* Of a request of so many KiB. More blocks have more loads under way; below some size each has nothing to do, and to
 * launch and to end more of them takes longer. */
static uint32_t slices_of(const struct burst *burst, uint32_t kib) {
        const uint32_t slices = kib >= 8192 ? 4 : kib >= 1024 ? 2 : 1;

        return slices < burst->most ? slices : burst->most;
}

/* Launches what there is. True: there was something. */
static bool burst_look(struct burst *burst) {
        const uint64_t *cell = &burst->report->burst[burst->next % TABLE_BURSTS];
        /* Partner: the worker's fence before its store. The job is in memory. */
        const uint64_t word = __atomic_load_n(cell, __ATOMIC_ACQUIRE);
        const uint32_t number = burst->next, seen = (uint32_t)(word >> 32);
        int r = 0;

        if (!seen || (int32_t)(seen - number) < 0)
                return false;
        burst->next = number + 1 ? number + 1 : 1;
        if (seen != number) /* taken back and posted anew, before anybody looked */
                return true;
        r = kernel_burst_launch(burst->streams[number % BURST_STREAMS], burst->queue, number,
                                kernel_burst_blocks(slices_of(burst, (uint32_t)word)));
        if (r)
                atomic_store_explicit(&burst->failed, r, memory_order_relaxed);
        atomic_fetch_add_explicit(&burst->launched, 1, memory_order_relaxed);
        return true;
}

static void burst_rest(uint64_t silence_ns) {
        const struct timespec nap = {.tv_nsec = silence_ns < IDLE_NS ? NAP_NS : DOZE_NS};

        if (silence_ns >= SPIN_NS)
                nanosleep(&nap, NULL);
}

static void *burst_main(void *data) {
        struct burst *burst = data;
        uint64_t last_ns = 0, now_ns;

        (void)prctl(PR_SET_NAME, "rmx-burst");
        (void)prctl(PR_SET_TIMERSLACK, LATE_NS); /* else naps are longer, and all is right */
        if (hipSetDevice((int)burst->device) != hipSuccess)
                atomic_store_explicit(&burst->failed, -1, memory_order_relaxed);
        while (!atomic_load_explicit(&burst->stop, memory_order_relaxed)) {
                now_ns = clock_now_ns();
                if (burst_look(burst))
                        last_ns = now_ns;
                else
                        burst_rest(now_ns - last_ns);
        }
        return NULL;
}

static int burst_start(struct burst *burst, char *error) {
        sigset_t all, before;
        int r;

        sigfillset(&all); /* signals are the control thread's */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        r = -pthread_create(&burst->thread, NULL, burst_main, burst);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        burst->running = !r;
        return r ? error_set(r, error, "making a thread for bursts: %s", strerror(-r)) : 0;
}

int burst_open(struct burst *burst, struct plane *plane, uint32_t most_blocks, char *error) {
        int least = 0, greatest = 0, r;

        burst->report = plane->tables.report;
        burst->device = plane->device;
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
                r = tables_bursts(&plane->tables, burst->queue, error);
        if (!r)
                r = runtime_check(hipDeviceSynchronize(), "clearing bursts", error);
        return r ? r : burst_start(burst, error);
}

void burst_close(struct burst *burst, bool lost) {
        if (burst->running) {
                atomic_store_explicit(&burst->stop, true, memory_order_relaxed);
                pthread_join(burst->thread, NULL);
                burst->running = false;
        }
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

        return failed ? error_set(-EIO, error, "launching a burst: %s",
                                  failed < 0 ? "no such device" : hipGetErrorString((hipError_t)failed))
                      : 0;
}
