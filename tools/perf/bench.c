/* SPDX-License-Identifier: MIT */
/*
 * One line of the table is measured like this, once out of place and once in place:
 *
 *   verified call - warm-up calls - barrier - measured calls, back to back - verified call
 *
 * The verified calls have their own inputs; their outputs are poisoned before, and outputs, inputs and the guard bytes
 * around both are looked at afterwards. With -c 2 every measured call is prepared and verified, outside the measured
 * time. A call's time is that of its slowest rank, so p50 and p99 say what a user of all ranks sees; the mean is the
 * slowest rank's time for all calls divided by their number.
 */
#include "tools/perf/bench.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/pattern.h"
#include "tools/perf/stats.h"
#include "util/clock.h"

#define GUARD_BYTES 64u
#define GUARD       0xa5
#define POISON      0x5a

struct runner {
        const struct bench *bench;
        struct crew *crew;
        struct bench_shared *shared;
        uint64_t *samples; /* this rank's */
        uint32_t rank;
        struct rmx_session *session;
        struct rmx_comm *comm;
        char *in_area, *out_area;
        size_t in_bytes, out_bytes;
        uint64_t iteration; /* numbers the verified calls, the same on all ranks */
        uint32_t redop;     /* of the calls: of the case, or made from the rank's factor */
        struct pattern pattern;
};

/* One case at one place, resolved to addresses. */
struct call {
        const struct perf_case *c;
        bool in_place;
        size_t unit;
        char *in, *out; /* arguments of the call */
        size_t in_elements, out_elements;
        size_t send_count[PATTERN_RANKS_MAX], send_offset[PATTERN_RANKS_MAX]; /* all_to_all_v */
        size_t recv_count[PATTERN_RANKS_MAX], recv_offset[PATTERN_RANKS_MAX];
        char *whole_base; /* in place: the one buffer, which in and out lie in */
        size_t whole_elements;
};

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

static void must(const struct runner *r, int code) {
        if (code != RMX_OK) /* the library's sentence names the call */
                crew_fail(r->crew, r->rank, "%s: %s", rmx_error_name(code), rmx_last_error());
}

static void *area_new(const struct runner *r, size_t bytes) {
        void *area = NULL;

        if (r->bench->options->malloc_memory) {
                if (posix_memalign(&area, 4096, bytes) != 0)
                        crew_fail(r->crew, r->rank, "no memory for a buffer of %zu bytes", bytes);
                memset(area, 0, bytes);
        } else {
                must(r, rmx_mem_alloc(r->session, bytes, &area));
        }
        return area;
}

static void area_free(const struct runner *r, void *area) {
        if (r->bench->options->malloc_memory)
                free(area);
        else
                must(r, rmx_mem_free(r->session, area));
}

static void areas_new(struct runner *r) {
        size_t in = 0, out = 0;

        for (size_t i = 0; i < r->bench->n_cases; i++) {
                const struct perf_case *c = &r->bench->cases[i];
                struct pattern shape = {
                        .op = r->bench->options->op, .n_ranks = r->bench->options->ranks, .root = c->root};
                size_t unit = rmx_type_size(c->type), lead = c->offset * unit;
                size_t in_need = lead + pattern_input_elements(&shape, r->rank, c->count) * unit;
                size_t out_need = lead + pattern_output_elements(&shape, r->rank, c->count) * unit;

                in = in_need > in ? in_need : in;
                out = out_need > out ? out_need : out;
        }
        r->in_bytes = in + 2 * GUARD_BYTES;
        r->out_bytes = (out > in ? out : in) + 2 * GUARD_BYTES; /* it also holds the one buffer of calls in place */
        r->in_area = area_new(r, r->in_bytes);
        r->out_area = area_new(r, r->out_bytes);
}

static void call_make_vectors(const struct runner *r, struct call *call) {
        size_t in = 0, out = 0;

        for (uint32_t i = 0; i < r->pattern.n_ranks; i++) {
                call->send_count[i] = pattern_vector_count(&r->pattern, r->rank, i, call->c->count);
                call->recv_count[i] = pattern_vector_count(&r->pattern, i, r->rank, call->c->count);
                call->send_offset[i] = in;
                call->recv_offset[i] = out;
                in += call->send_count[i];
                out += call->recv_count[i];
        }
}

static struct call call_make(const struct runner *r, const struct perf_case *c, bool in_place) {
        struct call call = {.c = c, .in_place = in_place, .unit = rmx_type_size(c->type)};
        size_t lead = GUARD_BYTES + c->offset * call.unit, shift;

        call.in_elements = pattern_input_elements(&r->pattern, r->rank, c->count);
        call.out_elements = pattern_output_elements(&r->pattern, r->rank, c->count);
        call.whole_elements = call.in_elements > call.out_elements ? call.in_elements : call.out_elements;
        call.whole_base = call.out = r->out_area + lead;
        call.in = in_place ? call.out : r->in_area + lead;
        shift = in_place ? pattern_in_place_offset(&r->pattern, r->rank, c->count) * call.unit : 0;
        if (call.in_elements < call.out_elements)
                call.in += shift;
        else
                call.out += shift;
        if (r->pattern.op == PATTERN_ALL_TO_ALL_V)
                call_make_vectors(r, &call);
        return call;
}

static int call_sendrecv(const struct runner *r, const struct call *call) {
        const struct perf_case *c = call->c;
        uint32_t n = r->pattern.n_ranks;
        int code, sent, received;

        code = rmx_group_start();
        if (code)
                return code;
        sent = rmx_send(r->comm, call->in, c->count, c->type, (r->rank + 1) % n, NULL);
        received = rmx_recv(r->comm, call->out, c->count, c->type, (r->rank + n - 1) % n, NULL);
        code = rmx_group_end();
        return sent ? sent : received ? received : code;
}

static void call_run(const struct runner *r, const struct call *call) {
        const struct perf_case *c = call->c;
        int code;

        switch (r->bench->options->op) {
        case PATTERN_ALL_REDUCE:
                code = rmx_all_reduce(r->comm, call->in, call->out, c->count, c->type, r->redop, NULL);
                break;
        case PATTERN_ALL_GATHER:
                code = rmx_all_gather(r->comm, call->in, call->out, c->count, c->type, NULL);
                break;
        case PATTERN_REDUCE_SCATTER:
                code = rmx_reduce_scatter(r->comm, call->in, call->out, c->count, c->type, r->redop, NULL);
                break;
        case PATTERN_BROADCAST:
                code = rmx_broadcast(r->comm, call->in, call->out, c->count, c->type, c->root, NULL);
                break;
        case PATTERN_REDUCE:
                code = rmx_reduce(r->comm, call->in, call->out, c->count, c->type, r->redop, c->root, NULL);
                break;
        case PATTERN_ALL_TO_ALL:
                code = rmx_all_to_all(r->comm, call->in, call->out, c->count, c->type, NULL);
                break;
        case PATTERN_ALL_TO_ALL_V:
                code = rmx_all_to_all_v(r->comm, call->in, call->send_count, call->send_offset, call->out,
                                        call->recv_count, call->recv_offset, c->type, NULL);
                break;
        case PATTERN_GATHER:
                code = rmx_gather(r->comm, call->in, call->out, c->count, c->type, c->root, NULL);
                break;
        case PATTERN_SCATTER:
                code = rmx_scatter(r->comm, call->in, call->out, c->count, c->type, c->root, NULL);
                break;
        case PATTERN_SENDRECV:
                code = call_sendrecv(r, call);
                break;
        default:
                code = rmx_barrier(r->comm, NULL);
                break;
        }
        if (code != RMX_OK)
                crew_fail(r->crew, r->rank, "%s of %llu %s: %s: %s", options_op_name(r->bench->options->op),
                          (unsigned long long)c->count, options_type_name(c->type), rmx_error_name(code),
                          rmx_last_error());
}

/* Guards before and after [first, first + size), poison in it. */
static void area_prepare(char *area, size_t area_bytes, char *first, size_t size) {
        size_t begin = (size_t)(first - area), end = begin + size;

        memset(area, GUARD, begin);
        memset(first, POISON, size);
        memset(area + end, GUARD, end + GUARD_BYTES <= area_bytes ? GUARD_BYTES : area_bytes - end);
}

static void call_prepare(const struct runner *r, const struct call *call) {
        if (call->in_place) {
                area_prepare(r->out_area, r->out_bytes, call->whole_base, call->whole_elements * call->unit);
        } else {
                area_prepare(r->out_area, r->out_bytes, call->out, call->out_elements * call->unit);
                area_prepare(r->in_area, r->in_bytes, call->in, call->in_elements * call->unit);
        }
        pattern_fill(&r->pattern, r->rank, r->iteration, call->c->count, call->in);
}

/* Bytes of the area outside [first, first + size) that are no longer what call_prepare wrote there. */
static uint64_t guard_broken(const char *area, size_t area_bytes, const char *first, size_t size) {
        size_t begin = (size_t)(first - area), end = begin + size, stop = end + GUARD_BYTES;
        uint64_t broken = 0;

        if (stop > area_bytes)
                stop = area_bytes;
        for (size_t i = 0; i < begin; i++)
                broken += (unsigned char)area[i] != GUARD;
        for (size_t i = end; i < stop; i++)
                broken += (unsigned char)area[i] != GUARD;
        return broken;
}

static void call_verify(const struct runner *r, const struct call *call) {
        const struct pattern *p = &r->pattern;
        uint64_t *bounds = &r->shared->slot[r->rank].out_of_bounds;
        size_t count = call->c->count;

        r->shared->slot[r->rank].wrong += pattern_wrong_output(p, r->rank, r->iteration, count, call->out);
        if (call->in_place) {
                *bounds += guard_broken(r->out_area, r->out_bytes, call->whole_base, call->whole_elements * call->unit);
                if (call->in_elements > call->out_elements) /* the input's other blocks are not the call's to write */
                        *bounds += pattern_wrong_input(p, r->rank, r->iteration, count, call->in,
                                                       pattern_in_place_offset(p, r->rank, count), call->out_elements);
        } else {
                *bounds += guard_broken(r->out_area, r->out_bytes, call->out, call->out_elements * call->unit);
                *bounds += guard_broken(r->in_area, r->in_bytes, call->in, call->in_elements * call->unit);
                *bounds += pattern_wrong_input(p, r->rank, r->iteration, count, call->in, 0, 0);
        }
}

static void call_run_verified(struct runner *r, const struct call *call) {
        r->iteration++;
        call_prepare(r, call);
        call_run(r, call);
        call_verify(r, call);
}

/* One round of measured calls; returns their number so far. */
static uint64_t measure_round(struct runner *r, const struct call *call, uint64_t calls, uint64_t *elapsed_ns) {
        bool all = r->bench->options->check == OPTIONS_CHECK_ALL;
        uint64_t inside = 0, start = clock_now_ns(), before, after = start;

        for (uint32_t i = 0; i < r->bench->options->iterations; i++) {
                if (all) {
                        r->iteration++;
                        call_prepare(r, call);
                        after = clock_now_ns();
                }
                before = after;
                call_run(r, call);
                after = clock_now_ns();
                inside += after - before;
                r->samples[(calls + i) % r->bench->samples] = after - before;
                if (all)
                        call_verify(r, call);
        }
        *elapsed_ns += all ? inside : after - start;
        return calls + r->bench->options->iterations;
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
        kept = calls < r->bench->samples ? (uint32_t)calls : r->bench->samples;
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
        if (o->check)
                call_run_verified(r, &call);
        for (uint32_t i = 0; i < o->warmup; i++)
                call_run(r, &call);
        crew_barrier(r->crew);
        if (r->rank == 0)
                r->shared->start_ns = clock_now_ns();
        do {
                crew_barrier(r->crew);
                calls = measure_round(r, &call, calls, &elapsed_ns);
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
                must(r, rmx_get_id(r->session, &r->shared->id));
        crew_barrier(r->crew);
}

/* Times from before the id is made until the last rank has joined, so nothing that creation costs is left out. */
static void time_comms(struct runner *r) {
        const struct options *o = r->bench->options;
        uint64_t *samples = rank_samples(r, r->rank);

        for (uint32_t i = 0; i < o->comms; i++) {
                struct rmx_comm *comm;

                crew_barrier(r->crew);
                if (r->rank == 0)
                        r->shared->start_ns = clock_now_ns();
                share_id(r);
                must(r, rmx_comm_create(r->session, &r->shared->id, o->ranks, r->rank, NULL, &comm));
                samples[i] = clock_now_ns() - r->shared->start_ns;
                crew_barrier(r->crew);
                must(r, rmx_comm_destroy(comm));
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
        must(r, rmx_redop_create_premul_sum(r->comm, &factor, c->type,
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
                redop_new(r, c, i);
                if ((o->place & OPTIONS_OUT_OF_PLACE) || !pattern_op_in_place(o->op))
                        run_place(r, i, false);
                if ((o->place & OPTIONS_IN_PLACE) && pattern_op_in_place(o->op))
                        run_place(r, i, true);
                if (r->redop != c->redop)
                        must(r, rmx_redop_destroy(r->comm, r->redop));
                if (r->rank == 0 && bench->on_line)
                        bench->on_line(bench, i, &r->shared->result[2 * i], &r->shared->result[2 * i + 1]);
        }
}

void bench_rank(struct crew *crew, uint32_t rank, void *argument) {
        const struct bench *bench = argument;
        struct runner r = {.bench = bench, .crew = crew, .shared = crew->data, .rank = rank};
        struct rmx_session_options options = {
                .size = sizeof(options), .socket = bench->options->socket, .name = "railmux-perf"};
        struct rmx_comm_options comm_options = {.size = sizeof(comm_options), .gpu = -1, .name = "railmux-perf"};

        r.samples = rank_samples(&r, rank);
        must(&r, rmx_session_open(&options, &r.session));
        share_id(&r);
        must(&r, rmx_comm_create(r.session, &r.shared->id, bench->options->ranks, rank, &comm_options, &r.comm));
        areas_new(&r);
        run_cases(&r);
        time_comms(&r);
        must(&r, rmx_comm_destroy(r.comm));
        area_free(&r, r.in_area);
        area_free(&r, r.out_area);
        rmx_session_close(r.session);
}
