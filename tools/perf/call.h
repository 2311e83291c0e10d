/* SPDX-License-Identifier: MIT */
#pragma once
/* One call of a rank process: its memory, its data, issued and verified. */
#include <railmux/railmux.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/perf/area.h"
#include "tools/perf/bench.h"
#include "tools/perf/gpu.h"
#include "tools/perf/pattern.h"

struct runner {
        const struct bench *bench;
        struct crew *crew;
        struct bench_shared *shared;
        uint64_t *samples; /* this rank's */
        uint32_t rank;
        struct rmx_session *session;
        struct rmx_comm *comm;
        struct area in, out;
        const struct gpu_ops *ops; /* GPU memory only, and the next one, too */
        struct gpu *gpu;
        void *stream;
        uint64_t iteration; /* numbers the verified calls, the same on all ranks */
        uint32_t redop;     /* of the calls: of the case, or made from the rank's factor */
        struct pattern pattern;
};

/* One case at one place, resolved to addresses. */
struct call {
        const struct perf_case *c;
        bool in_place;
        size_t unit;
        char *in, *out; /* arguments of the call, as they are here */
        size_t in_elements, out_elements;
        size_t send_count[PATTERN_RANKS_MAX], send_offset[PATTERN_RANKS_MAX]; /* all_to_all_v */
        size_t recv_count[PATTERN_RANKS_MAX], recv_offset[PATTERN_RANKS_MAX];
        char *whole_base; /* in place: the one buffer, which in and out lie in */
        size_t whole_elements;
};

enum { GRAPH_ONE, GRAPH_MANY }; /* captured graphs: of one call, of as many as -G says */

/* Ends the process unless all is right. */
void runner_must(const struct runner *r, int code);
void runner_must_gpu(const struct runner *r, int result, const char *error);
/* Buffers large enough for all cases. */
void runner_areas_new(struct runner *r);
void runner_areas_free(struct runner *r);
/* On GPUs: until the stream has run out of work. */
void runner_wait(const struct runner *r);

struct call call_make(const struct runner *r, const struct perf_case *c, bool in_place);
/* On GPUs: n calls as a graph. */
void call_capture(const struct runner *r, const struct call *call, uint32_t graph, uint32_t n);
/* Fills the input and poisons the output, and waits until all ranks have; looks at both afterwards. */
void call_prepare(const struct runner *r, const struct call *call);
/* Between the two, right before the call. late: this rank is the one that keeps the others waiting. */
void call_arrive(const struct runner *r, bool late);
void call_verify(const struct runner *r, const struct call *call);
/* What is measured: a call, or a graph of several. */
void call_issue(const struct runner *r, const struct call *call, uint32_t graph);
void call_run_verified(struct runner *r, const struct call *call);
