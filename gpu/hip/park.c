/* SPDX-License-Identifier: MIT */
/*
 * A kernel that does not end, and things that wait for its end
 *
 * The kernel is launched once and polls for as long as there is something to expect. Meanwhile the runtime does not get
 * round to anything that waits for all kernels of the context: closing IPC handles, freeing memory, loading modules. So
 * the module is loaded, and everything allocated, before the first launch; and from time to time the kernel is stopped
 * for a moment, a park window, and what was queued is done.
 *
 * Stopping loses nothing. Lines stay in the rings, workers keep their positions and unfinished tasks in memory that
 * outlives the kernel, and peers wait. The number of workers never changes, since each has its own share of the lanes;
 * how many of them a block has may (kernel.h).
 *
 * Queued. A launch after a silence takes the host 40 to 60 us, of which the kernel itself needs none, and before that
 * somebody has to notice that it is needed. So while there is nothing to do the next kernel is in the stream already,
 * behind a wait for a word (hipStreamWaitValue32) which the GPU's front end looks at: the latch. Whoever has to wake
 * lifts it, a client's bell kernel or its host before that, and the kernel runs 9 to 11 us later, whatever the silence
 * (H200, docs/performance.md). It costs clients' kernels nothing.
 *
 * So it may begin at any time, and we hear of it later: by wake words, which clients write besides, or because its
 * workers have said what version of the tables they have read (park_begun). Therefore whatever changes the tables has
 * it let go first and goes on as with any kernel that runs (tables_commit); and whoever wants it to end asks it to and
 * lets it go. It counts as work for everything that waits for all kernels of the context, so before that it is ended;
 * and nothing else may be in the stream. What is let go only to end has to find room, which clients' kernels may not
 * leave for long, as it is with every launch.
 *
 * Only on NVIDIA's GPUs, not with RAILMUX_GPU_QUEUE=0 in the environment, and not while somebody misuses the latch
 * (latch.c).
 *
 * Half of it. Clients' kernels may leave room for some blocks only. Were these told to end, they would be gone, and
 * whoever changes the tables would wait for acknowledgements that do not come, or for the end, which the others keep
 * off (tables_commit). So a kernel is told to end when all of it has begun, and not before; until then it works like
 * any other. (Blocks that have room do not lose it again, so then it does end.)
 *
 * The kernel's stream has the highest priority, for two reasons: blocks of an other process's kernel should not go
 * first, and streams of different priority never share a hardware queue, so that the control stream's copies cannot
 * end up behind a kernel that waits for them.
 */
#include "gpu/hip/park.h"

#include <errno.h>

#include "gpu/hip/error.h"
#include "gpu/hip/table.h"
#include "util/clock.h"

_Static_assert((uint32_t)PARK_WHEN_SERVED == TABLE_STOP_SERVED, "what workers know");

int park_open(struct park *park, uint32_t n_blocks, struct tables *tables, char *error) {
        int least = 0, greatest = 0, n_workers, r;

        *park = (struct park){.n_blocks = n_blocks, .tables = tables};
        r = runtime_check((hipError_t)kernel_preload(n_blocks), "loading the kernel", error);
        if (r)
                return r;
        n_workers = kernel_workers(n_blocks);
        if (n_workers <= 0 || n_workers > (int)TABLE_WORKERS_MAX)
                return error_set(-EINVAL, error, "%u blocks make %d workers; at most %u can be", n_blocks, n_workers,
                                 TABLE_WORKERS_MAX);
        park->n_workers = (uint32_t)n_workers;
        r = runtime_check(hipDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities", error);
        if (!r)
                r = runtime_check(hipStreamCreateWithPriority(&park->stream, hipStreamNonBlocking, greatest),
                                  "making a stream", error);
        if (!r)
                r = runtime_alloc_shared(kernel_scratch_bytes(n_blocks), &park->arguments.scratch, "allocating scratch",
                                         error);
        if (!r)
                r = runtime_check(hipMemset(park->arguments.scratch, 0, kernel_scratch_bytes(n_blocks)),
                                  "clearing scratch", error);
        if (!r)
                r = runtime_check(hipDeviceSynchronize(), "clearing scratch", error);
        if (r) {
                park_close(park);
                return r;
        }
        park->arguments.table = tables->device;
        park->arguments.report = tables->report_device;
        park->arguments.n_workers_expected = park->n_workers;
        return 0;
}

void park_close(struct park *park) {
        if (park->arguments.scratch)
                (void)hipFree(park->arguments.scratch);
        if (park->stream)
                (void)hipStreamDestroy(park->stream);
        latch_close(&park->latch);
        *park = (struct park){0};
}

int park_ready(struct park *park, struct tables *tables, char *error) {
        return park->running || tables->shadow.table->stop == PARK_RUN ? 0 : tables_stop(tables, PARK_RUN, error);
}

bool park_begun(const struct park *park) {
        for (uint32_t i = 0; i < park->n_workers; i++) /* relaxed: who wants to know more asks tables_commit */
                if (__atomic_load_n(&park->tables->report->acknowledged[i], __ATOMIC_RELAXED))
                        return true;
        return false;
}

bool park_has_room(const struct park *park) {
        for (uint32_t i = 0; park->running && i < park->n_workers; i++)
                if (!__atomic_load_n(&park->tables->report->acknowledged[i], __ATOMIC_RELAXED))
                        return false;
        return true;
}

void park_insist(struct park *park) {
        if (park->running && !park_begun(park))
                latch_insist(&park->latch);
}

/* What is queued begins, to do what it has been asked for. */
static void let_go(struct park *park, uint32_t asked) {
        latch_lift(&park->latch);
        park->queued = false;
        park->asked = asked;
        park->running = true;
}

void park_let_go(struct park *park) {
        if (park->queued)
                let_go(park, PARK_RUN);
}

int park_launch(struct park *park, struct tables *tables, char *error) {
        int r;

        if (park->running)
                return 0;
        if (park->queued) {
                let_go(park, PARK_RUN);
                return 0;
        }
        park->latch.lifted = false;
        tables_forget(tables);
        r = park_ready(park, tables, error);
        if (!r)
                r = runtime_check((hipError_t)kernel_launch(park->stream, park->n_blocks, park->wide, &park->arguments),
                                  "launching the kernel", error);
        if (r)
                return r;
        park->asked = PARK_RUN;
        park->running = true;
        park->launched_wide = park->wide;
        return 0;
}

int park_queue(struct park *park, struct tables *tables, char *error) {
        int r;

        if (park->running || park->queued)
                return 0;
        r = park_ready(park, tables, error);
        if (r || !latch_usable(&park->latch) || !latch_wait(&park->latch, park->stream))
                return r;
        tables_forget(tables);
        r = runtime_check((hipError_t)kernel_launch(park->stream, park->n_blocks, park->wide, &park->arguments),
                          "launching the kernel", error);
        park->queued = !r; /* (A failure is a fault.) */
        park->launched_wide = park->wide;
        return r;
}

/* It runs. Tells it what it has been asked for, if it does not know. */
static int tell(const struct park *park, struct tables *tables, char *error) {
        if (tables->shadow.table->stop == park->asked || !park_has_room(park))
                return 0;
        return tables_stop(tables, park->asked, error);
}

int park_ask(struct park *park, struct tables *tables, uint32_t stop, char *error) {
        if (park->queued)
                let_go(park, stop);
        else if (park->running)
                park->asked = stop;
        return park->running ? tell(park, tables, error) : 0;
}

int park_ended(struct park *park, bool *ret_ended, char *error) {
        bool done = true;
        int r;

        if (park->running) {
                park_insist(park);
                r = tell(park, park->tables, error);
                if (!r)
                        r = runtime_done(park->stream, &done, "the resident kernel", error);
                if (r)
                        return r;
                if (done)
                        park->running = false;
                if (done && park->asked == PARK_RUN)
                        return error_set(-EIO, error, "the resident kernel ended by itself");
        }
        *ret_ended = done;
        return 0;
}

int park_stop(struct park *park, struct tables *tables, uint32_t stop, uint32_t timeout_ms, char *error) {
        uint64_t end = clock_now_ns() + timeout_ms * UINT64_C(1000000);
        bool ended;
        int r = park_ask(park, tables, stop, error);

        while (!r) {
                r = park_ended(park, &ended, error);
                if (r || ended)
                        break;
                if (clock_now_ns() > end)
                        r = error_set(-ETIMEDOUT, error, "the resident kernel did not end within %u ms", timeout_ms);
                else
                        runtime_pause();
        }
        return r;
}

uint64_t park_kept(const struct park *park, const struct tables *tables) {
        uint64_t kept = 0;

        for (uint32_t i = 0; i < park->n_workers; i++)
                kept += __atomic_load_n(&tables->report->kept[i], __ATOMIC_RELAXED); /* the kernel's end orders it */
        return kept;
}

bool park_saw(const struct park *park, const struct tables *tables, uint32_t ring, uint32_t counter) {
        const uint32_t next = bell_sequence_next(counter);

        for (uint32_t i = 0; i < park->n_workers; i++) /* relaxed as above */
                if (__atomic_load_n(&tables->report->next[i][ring], __ATOMIC_RELAXED) != next)
                        return false;
        return true;
}

uint32_t park_next(const struct tables *tables, uint32_t ring) {
        return __atomic_load_n(&tables->report->next[0][ring], __ATOMIC_RELAXED); /* as above */
}

void park_forget_ring(const struct park *park, const struct tables *tables, uint32_t ring) {
        for (uint32_t i = 0; i < park->n_workers; i++) /* workers write it only when they end, and then what is true */
                __atomic_store_n(&tables->report->next[i][ring], 0, __ATOMIC_RELAXED);
}

uint32_t park_kept_rings(const struct park *park, const struct tables *tables) {
        const struct table_report *report = tables->report;
        uint32_t rings = 0;

        for (uint32_t i = 0; i < park->n_workers; i++) /* relaxed as above */
                if (__atomic_load_n(&report->kept[i], __ATOMIC_RELAXED))
                        rings |= __atomic_load_n(&report->kept_rings[i], __ATOMIC_RELAXED);
        return rings;
}
