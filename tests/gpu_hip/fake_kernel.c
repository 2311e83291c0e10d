/* SPDX-License-Identifier: MIT */
/* The resident kernel of the runtime in fake.c, a thread, and the kernels of bursts, which nobody executes. */
#include "tests/cmocka_all.h"

#include "fake.h"

#include <sched.h>
#include <stdlib.h>

#include "fake_parts.h"
#include "gpu/device/bell.h"
#include "gpu/device/tables.h"
#include "gpu/hip/kernel.h"

#define BLOCKS_MAX 64u

struct kernel_run {
        struct kernel_arguments arguments;
        uint32_t n_blocks;
        struct fake_stream *stream;
        const uint32_t *word; /* it waits for this value there; NULL: it does not */
        uint32_t value;
};

void kernel_shape(uint32_t n_blocks, bool wide, struct kernel_shape *ret_shape) {
        *ret_shape = (struct kernel_shape){.blocks = wide ? 2 * n_blocks : n_blocks,
                                           .threads = FAKE_WORKERS * (wide ? 16u : 32u)};
}

size_t kernel_scratch_bytes(uint32_t n_blocks) {
        return (size_t)n_blocks * 4096;
}

int kernel_workers(uint32_t n_blocks) {
        return (int)(n_blocks * FAKE_WORKERS);
}

int kernel_preload(uint32_t n_blocks) {
        (void)n_blocks;
        fake_must_be_parked();
        return 0;
}

/* Those before `first` have ended, and those from `n` on have not begun. */
static void acknowledge(const struct kernel_run *run, uint32_t first, uint32_t n, uint32_t version) {
        const struct table *table = run->arguments.table;

        /* Of the others one has work, and the first has ended. */
        if (!first && __atomic_load_n(&table->stop, __ATOMIC_RELAXED) == TABLE_STOP_SERVED)
                first = 1;
        for (uint32_t i = first; i < n; i++) {
                if (fake.at_level)
                        for (uint32_t ring = 0; ring < TABLE_RINGS; ring++)
                                if (__atomic_load_n(&table->rings[ring].limited, __ATOMIC_RELAXED))
                                        __atomic_store_n(&run->arguments.report->level[i][ring],
                                                         fake.at_level(i, ring,
                                                                       __atomic_load_n(&table->rings[ring].limit,
                                                                                       __ATOMIC_RELAXED)),
                                                         __ATOMIC_RELAXED);
                __atomic_store_n(&run->arguments.report->acknowledged[i], version, __ATOMIC_RELEASE);
        }
}

/* What ends it when it has nothing to do has seen all lines that there are. */
static void tell_seen(const struct kernel_run *run) {
        const struct table *table = run->arguments.table;
        const uint32_t n_rings = __atomic_load_n(&table->n_rings, __ATOMIC_RELAXED);

        for (uint32_t ring = 0; ring < n_rings; ring++) {
                const char *area = (const char *)(uintptr_t)__atomic_load_n(&table->rings[ring].area, __ATOMIC_RELAXED);
                const struct bell_header *header = (const void *)(area + BELL_OFFSET_HEADER);

                if (!__atomic_load_n(&table->rings[ring].key, __ATOMIC_RELAXED))
                        continue;
                for (uint32_t i = 0; i < run->n_blocks * FAKE_WORKERS; i++)
                        __atomic_store_n(&run->arguments.report->next[i][ring],
                                         bell_sequence_next(__atomic_load_n(&header->counter, __ATOMIC_RELAXED)),
                                         __ATOMIC_RELAXED);
        }
}

static bool stops(uint32_t stop) {
        return stop && !atomic_load(&fake.deaf_to_stop) && !(stop == TABLE_STOP_SERVED && atomic_load(&fake.has_work));
}

static void kernel_begins(void) {
        atomic_fetch_add(&fake.launches, 1);
        atomic_store(&fake.running, true); /* last: tests wait for it */
}

/* What the GPU's front end does. */
static void kernel_wait(const struct kernel_run *run) {
        if (!run->word)
                return;
        while (__atomic_load_n(run->word, __ATOMIC_ACQUIRE) != run->value && !atomic_load(&fake.dies))
                sched_yield();
        while (atomic_load(&fake.no_room) && !atomic_load(&fake.dies))
                sched_yield();
        if (!atomic_load(&fake.dies))
                kernel_begins();
        atomic_store(&fake.queued, false);
}

static void *kernel_main(void *argument) {
        struct kernel_run *run = argument;
        const struct table *table = run->arguments.table;
        const uint32_t last = run->n_blocks * FAKE_WORKERS - 1;
        uint32_t n_ended = 0, kept_rings;
        void (*at_stop)(void);

        kernel_wait(run);
        while (!atomic_load(&fake.dies)) {
                const uint32_t n = atomic_load(&fake.not_begun) ? FAKE_WORKERS : last + 1;
                uint32_t version = __atomic_load_n(&table->version, __ATOMIC_ACQUIRE);

                atomic_store(&fake.version, version);
                if (!atomic_load(&fake.deaf))
                        acknowledge(run, n_ended, n, version);
                if (stops(__atomic_load_n(&table->stop, __ATOMIC_ACQUIRE)))
                        n_ended = n;
                if (n_ended > last)
                        break;
                sched_yield();
        }
        if (!atomic_load(&fake.dies))
                tell_seen(run);
        at_stop = atomic_load(&fake.at_stop);
        if (at_stop)
                at_stop();
        kept_rings = atomic_load(&fake.kept_rings);
        __atomic_store_n(&run->arguments.report->kept[last], atomic_load(&fake.kept), __ATOMIC_RELAXED);
        __atomic_store_n(&run->arguments.report->kept_rings[last], kept_rings ? kept_rings : UINT32_MAX,
                         __ATOMIC_RELAXED);
        atomic_store(&run->stream->ended, true);
        atomic_store(&fake.ended, true);
        free(run);
        return NULL;
}

int kernel_launch(hipStream_t stream, uint32_t n_blocks, bool wide, const struct kernel_arguments *arguments) {
        struct kernel_run *run;

        if (atomic_load(&fake.refuse_launch))
                return hipErrorIllegalAddress;
        run = calloc(1, sizeof(*run));
        assert_non_null(run);
        assert_in_range(n_blocks, 1, BLOCKS_MAX);
        assert_int_equal(arguments->n_workers_expected, n_blocks * FAKE_WORKERS);
        assert_false(stream->launched);
        atomic_store(&fake.wide, wide);
        *run = (struct kernel_run){*arguments, n_blocks, stream, stream->word, stream->value};
        atomic_store(&stream->ended, false);
        atomic_store(&fake.ended, false);
        stream->launched = true;
        if (stream->word)
                atomic_store(&fake.queued, true);
        else
                kernel_begins();
        stream->word = NULL;
        return pthread_create(&stream->kernel, NULL, kernel_main, run) ? hipErrorOutOfMemory : 0;
}

/* Launched by a thread of the plane's, beside the kernel. */
size_t kernel_burst_bytes(void) {
        return 4096;
}

uint32_t kernel_burst_blocks(uint32_t slices) {
        return slices * FAKE_BURST_BLOCKS;
}

void *kernel_burst_state(void *queue, uint32_t number) {
        return (char *)queue + number % TABLE_BURSTS * 64;
}

uint32_t kernel_burst_done(uint32_t number) {
        return number * 8 + 5;
}

int kernel_burst_preload(void) {
        fake_must_be_parked();
        return 0;
}

int kernel_burst_launch(hipStream_t stream, void *queue, uint32_t number, uint32_t n_blocks) {
        const uint32_t n = atomic_load(&fake.bursts.n);

        assert_int_not_equal(fake_bytes_at(queue), 0);
        assert_false(fake_is_control());
        if (atomic_load(&fake.bursts.refuse))
                return hipErrorIllegalAddress;
        assert_in_range(n, 0, FAKE_BURSTS - 1);
        fake.bursts.launch[n] = (struct fake_burst){number, n_blocks, stream};
        atomic_store(&fake.bursts.n, n + 1);
        return 0;
}
