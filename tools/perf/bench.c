/* SPDX-License-Identifier: MIT */
/*
 * One line of the table is measured like this, once out of place and once in place:
 *
 *   verified call - warm-up calls - barrier - measured calls, back to back - verified call
 *
 * The verified calls have their own inputs; their outputs are poisoned before, and outputs, inputs and the guard bytes
 * around both are looked at afterwards. With -c 2 every measured call is prepared and verified, outside the measured
 * time: it begins when all ranks have prepared theirs, or the first ones would wait for the others in the call. A
 * call's time is that of its slowest rank, so p50 and p99 say what a user of all ranks sees; the mean is the slowest
 * rank's time for all calls divided by their number.
 */
#include "tools/perf/bench.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/call.h"
#include "tools/perf/pattern.h"
#include "tools/perf/stats.h"
#include "util/clock.h"

uint32_t bench_samples(const struct options *o) {
        if (o->duration_s > 0 || o->iterations > BENCH_SAMPLES_MAX)
                return BENCH_SAMPLES_MAX;
        return o->iterations ? o->iterations : 1;
}

static size_t results_bytes(const struct bench *bench) {
        return (sizeof(struct bench_shared) + 2 * bench->n_cases * sizeof(struct bench_result) + 63u) & ~(size_t)63u;
}

size_t bench_shared_bytes(const struct bench *bench) {
        size_t samples = bench->samples > bench->options->comms ? bench->samples : bench->options->comms;

        return results_bytes(bench) + (size_t)bench->options->ranks * samples * sizeof(uint64_t);
}

static uint64_t *rank_samples(const struct runner *r, uint32_t rank) {
        const struct bench *bench = r->bench;
        size_t samples = bench->samples > bench->options->comms ? bench->samples : bench->options->comms;

        return (uint64_t *)((char *)r->shared + results_bytes(bench)) + rank * samples;
}

/* One round of measured calls; returns their number so far. */
static uint64_t measure_round(struct runner *r, const struct call *call, uint64_t calls, uint64_t *elapsed_ns) {
        bool all = r->bench->options->check == OPTIONS_CHECK_ALL;
        uint64_t inside = 0, start = clock_now_ns(), before, after = start;

        for (uint32_t i = 0; i < r->bench->options->iterations; i++) {
                if (all) {
                        r->iteration++;
                        call_prepare(r, call);
                        call_arrive(r, false);
                        after = clock_now_ns();
                }
                before = after;
                call_issue(r, call, GRAPH_MANY);
                after = clock_now_ns();
                inside += after - before;
                r->samples[(calls + i) % r->bench->samples] = after - before;
                if (all)
                        call_verify(r, call);
        }
        *elapsed_ns += all ? inside : after - start;
        return calls + r->bench->options->iterations;
}

/* The same on a stream. A sample is the time between two points in it, per call. */
static uint64_t measure_stream(struct runner *r, const struct call *call, uint64_t calls, uint64_t *elapsed_ns) {
        const struct options *o = r->bench->options;
        uint32_t per_issue = o->graphs ? o->graphs : 1, begin, n;
        bool all = o->check == OPTIONS_CHECK_ALL;
        char error[GPU_ERROR_MAX];
        uint64_t ns;

        for (begin = 0; begin < o->iterations; begin += n) {
                n = o->iterations - begin < GPU_MARKS - 1 ? o->iterations - begin : GPU_MARKS - 1;
                if (all) {
                        n = 1;
                        r->iteration++;
                        call_prepare(r, call);
                        call_arrive(r, false);
                }
                runner_must_gpu(r, r->ops->mark(r->gpu, 0, error), error);
                for (uint32_t i = 0; i < n; i++) {
                        call_issue(r, call, GRAPH_MANY);
                        runner_must_gpu(r, r->ops->mark(r->gpu, i + 1, error), error);
                }
                runner_wait(r);
                for (uint32_t i = 0; i < n; i++) {
                        runner_must_gpu(r, r->ops->elapsed(r->gpu, i, i + 1, &ns, error), error);
                        *elapsed_ns += ns;
                        r->samples[(calls / per_issue + begin + i) % r->bench->samples] = ns / per_issue;
                }
                if (all)
                        call_verify(r, call);
        }
        return calls + (uint64_t)o->iterations * per_issue;
}

static double bus_factor(uint32_t op, uint32_t ranks) {
        double n = ranks;

        switch (op) {
        case PATTERN_ALL_REDUCE:
                return 2 * (n - 1) / n;
        case PATTERN_ALL_GATHER:
        case PATTERN_REDUCE_SCATTER:
        case PATTERN_ALL_TO_ALL:
        case PATTERN_ALL_TO_ALL_V:
        case PATTERN_GATHER:
        case PATTERN_SCATTER:
                return (n - 1) / n;
        default:
                return 1;
        }
}

/* Rank 0, between barriers: everybody's numbers become one result. */
static void summarise(const struct runner *r, const struct perf_case *c, uint64_t calls, struct bench_result *result) {
        uint32_t ranks = r->bench->options->ranks, kept;
        uint64_t slowest = 0;

        *result = (struct bench_result){.calls = calls, .present = 1};
        for (uint32_t i = 0; i < ranks; i++) {
                result->wrong += r->shared->slot[i].wrong;
                result->out_of_bounds += r->shared->slot[i].out_of_bounds;
                if (r->shared->slot[i].elapsed_ns > slowest)
                        slowest = r->shared->slot[i].elapsed_ns;
        }
        if (calls == 0)
                return;
        if (r->bench->options->graphs)
                kept = (uint32_t)(calls / r->bench->options->graphs);
        else
                kept = calls < r->bench->samples ? (uint32_t)calls : r->bench->samples;
        kept = kept < r->bench->samples ? kept : r->bench->samples;
        for (uint32_t i = 1; i < ranks; i++)
                stats_keep_max(rank_samples(r, 0), rank_samples(r, i), kept);
        stats_sort(rank_samples(r, 0), kept);
        result->p50_us = (double)stats_percentile(rank_samples(r, 0), kept, 50) / 1e3;
        result->p99_us = (double)stats_percentile(rank_samples(r, 0), kept, 99) / 1e3;
        result->time_us = (double)slowest / 1e3 / (double)calls;
        result->algbw_gbs = (double)c->bytes / 1e3 / result->time_us;
        result->busbw_gbs = result->algbw_gbs * bus_factor(r->bench->options->op, ranks);
}

static void run_place(struct runner *r, size_t index, bool in_place) {
        const struct options *o = r->bench->options;
        const struct perf_case *c = &r->bench->cases[index];
        uint32_t places = o->place == OPTIONS_BOTH && pattern_op_in_place(o->op) ? 2 : 1;
        uint64_t calls = 0, elapsed_ns = 0;
        double share_ns = o->duration_s * 1e9 / (double)r->bench->n_cases / places;
        struct call call = call_make(r, c, in_place);

        r->shared->slot[r->rank].wrong = r->shared->slot[r->rank].out_of_bounds = 0;
        if (r->rank == 0 && r->bench->on_progress)
                r->bench->on_progress(r->bench, index, in_place);
        if (o->graphs) {
                call_capture(r, &call, GRAPH_ONE, 1);
                call_capture(r, &call, GRAPH_MANY, o->graphs);
        }
        if (o->check)
                call_run_verified(r, &call);
        for (uint32_t i = 0; i < o->warmup; i++)
                call_issue(r, &call, GRAPH_MANY);
        runner_wait(r);
        crew_barrier(r->crew);
        if (r->rank == 0)
                r->shared->start_ns = clock_now_ns();
        do {
                crew_barrier(r->crew);
                calls = r->gpu ? measure_stream(r, &call, calls, &elapsed_ns)
                               : measure_round(r, &call, calls, &elapsed_ns);
                if (o->duration_s > 0) {
                        if (r->rank == 0)
                                r->shared->go_on = (double)(clock_now_ns() - r->shared->start_ns) < share_ns;
                        crew_barrier(r->crew);
                }
        } while (o->duration_s > 0 && r->shared->go_on);
        if (o->check)
                call_run_verified(r, &call);
        r->shared->slot[r->rank].elapsed_ns = elapsed_ns;
        crew_barrier(r->crew);
        if (r->rank == 0)
                summarise(r, c, calls, &r->shared->result[2 * index + in_place]);
        crew_barrier(r->crew);
}

static void share_id(struct runner *r) {
        if (r->rank == 0)
                runner_must(r, rmx_get_id(r->session, &r->shared->id));
        crew_barrier(r->crew);
}

/* Times from before the id is made until the last rank has joined, so nothing that creation costs is left out. */
static void time_comms(struct runner *r) {
        const struct options *o = r->bench->options;
        struct rmx_comm_options comm_options = {.size = sizeof(comm_options), .gpu = -1};
        uint64_t *samples = rank_samples(r, r->rank);

        for (uint32_t i = 0; i < o->comms; i++) {
                struct rmx_comm *comm;

                crew_barrier(r->crew);
                if (r->rank == 0)
                        r->shared->start_ns = clock_now_ns();
                share_id(r);
                runner_must(r, rmx_comm_create(r->session, &r->shared->id, o->ranks, r->rank, NULL, &comm));
                samples[i] = clock_now_ns() - r->shared->start_ns;
                crew_barrier(r->crew);
                runner_must(r, rmx_comm_destroy(comm));
        }
        crew_barrier(r->crew);
        if (r->rank == 0 && o->comms > 0) {
                for (uint32_t i = 1; i < o->ranks; i++)
                        stats_keep_max(samples, rank_samples(r, i), o->comms);
                stats_sort(samples, o->comms);
                r->shared->comms =
                        (struct bench_comms){.n = o->comms,
                                             .p50_us = (double)stats_percentile(samples, o->comms, 50) / 1e3,
                                             .p99_us = (double)stats_percentile(samples, o->comms, 99) / 1e3};
        }
        crew_barrier(r->crew);
}

/* A pre-multiplied sum has a factor of its own on each rank; every other one reads it from memory at each call. */
static void redop_new(struct runner *r, const struct perf_case *c, size_t index) {
        static uint64_t factor; /* must stay while the reduction is used */

        r->redop = c->redop;
        if (!pattern_op_reduces(r->pattern.op) || c->redop != RMX_PREMUL_SUM)
                return;
        pattern_factor(&r->pattern, r->rank, &factor);
        runner_must(r, rmx_redop_create_premul_sum(r->comm, &factor, c->type,
                                                   index % 2 ? RMX_SCALAR_MEMORY : RMX_SCALAR_IMMEDIATE, &r->redop));
}

static void run_cases(struct runner *r) {
        const struct bench *bench = r->bench;
        const struct options *o = bench->options;

        for (size_t i = 0; i < bench->n_cases; i++) {
                const struct perf_case *c = &bench->cases[i];

                if (pattern_init(&r->pattern, o->op, c->type, c->redop, o->ranks, c->root) != PATTERN_OK)
                        crew_fail(r->crew, r->rank, "no test data for type %s, reduction %s",
                                  options_type_name(c->type), options_redop_name(c->redop));
                r->pattern.equal = o->equal;
                redop_new(r, c, i);
                if ((o->place & OPTIONS_OUT_OF_PLACE) || !pattern_op_in_place(o->op))
                        run_place(r, i, false);
                if ((o->place & OPTIONS_IN_PLACE) && pattern_op_in_place(o->op))
                        run_place(r, i, true);
                if (r->redop != c->redop)
                        runner_must(r, rmx_redop_destroy(r->comm, r->redop));
                if (r->rank == 0 && bench->on_line)
                        bench->on_line(bench, i, &r->shared->result[2 * i], &r->shared->result[2 * i + 1]);
        }
}

static void gpu_begin(struct runner *r, struct rmx_comm_options *options) {
        char error[GPU_ERROR_MAX];
        uint32_t n = rmx_session_gpu_count(r->session), gpu = r->rank % n;

        runner_must_gpu(r, gpu_load(rmx_session_backend(r->session), &r->ops, error), error);
        runner_must_gpu(r, r->ops->open(rmx_session_gpu_pci(r->session, gpu), &r->gpu, error), error);
        r->stream = r->ops->stream(r->gpu);
        options->gpu = (int32_t)gpu;
}

void bench_rank(struct crew *crew, uint32_t rank, void *argument) {
        const struct bench *bench = argument;
        struct runner r = {.bench = bench, .crew = crew, .shared = crew->data, .rank = rank};
        struct rmx_session_options options = {
                .size = sizeof(options), .socket = options_socket(bench->options, rank), .name = "railmux-perf"};
        /* (Both transfers of sendrecv are in one group, which is not started.) */
        struct rmx_comm_options comm_options = {.size = sizeof(comm_options),
                                                .gpu = -1,
                                                .name = "railmux-perf",
                                                .flags = RMX_COMM_ORDERED_TRANSFERS,
                                                .max_blocks = bench->options->max_blocks};

        r.samples = rank_samples(&r, rank);
        runner_must(&r, rmx_session_open(&options, &r.session));
        if (bench->options->memory == OPTIONS_MEMORY_GPU)
                gpu_begin(&r, &comm_options);
        share_id(&r);
        runner_must(&r, rmx_comm_create(r.session, &r.shared->id, bench->options->ranks, rank, &comm_options, &r.comm));
        runner_areas_new(&r);
        run_cases(&r);
        time_comms(&r);
        runner_must(&r, rmx_comm_destroy(r.comm));
        runner_areas_free(&r);
        rmx_session_close(r.session);
        if (r.gpu)
                r.ops->close(r.gpu);
}
