/* SPDX-License-Identifier: MIT */
#pragma once
/* What each rank process does: join, call, measure, verify. Results appear in memory shared with the parent. */
#include <railmux/railmux.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/perf/crew.h"
#include "tools/perf/options.h"

#define BENCH_SAMPLES_MAX 65536u /* per line; a longer run keeps the last ones */

struct bench_result {
        uint64_t calls; /* 0: not measured (an operation without this place, or -n 0) */
        double time_us, p50_us, p99_us;
        double algbw_gbs, busbw_gbs;
        uint64_t wrong;         /* elements, over the verified calls of all ranks; barrier: ranks not waited for */
        uint64_t out_of_bounds; /* bytes or elements changed that were not the output's */
        uint32_t present;       /* the line was run */
};

struct bench_comms {
        uint32_t n;
        double p50_us, p99_us;
};

/* Everything that ranks and parent share. Written by the ranks between barriers, read by the parent after their end. */
struct bench_shared {
        struct rmx_id id;
        uint32_t go_on; /* rank 0: another round of this line */
        uint64_t start_ns;
        struct {
                uint64_t wrong, out_of_bounds, elapsed_ns;
                _Atomic uint64_t arrived; /* the verified barrier that this rank has come to; see call_arrive */
        } slot[CREW_RANKS_MAX];
        struct bench_comms comms;
        struct bench_result result[]; /* 2 * case + in_place; the samples follow */
};

struct bench {
        const struct options *options;
        const struct perf_case *cases;
        size_t n_cases;
        uint32_t samples; /* per rank */
        /* Called in rank 0. */
        void (*on_line)(const struct bench *bench, size_t index, const struct bench_result *out_of_place,
                        const struct bench_result *in_place);
        void (*on_progress)(const struct bench *bench, size_t index, uint32_t in_place);
};

uint32_t bench_samples(const struct options *options);
size_t bench_shared_bytes(const struct bench *bench);
/* A crew_rank_fn; argument: struct bench. */
void bench_rank(struct crew *crew, uint32_t rank, void *argument);
