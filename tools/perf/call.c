/* SPDX-License-Identifier: MIT */
#include "tools/perf/call.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"

#define LOOK_NS 10000000u
#define LATE_NS 1000000u

void runner_must(const struct runner *r, int code) {
        if (code != RMX_OK) /* the library's sentence names the call */
                crew_fail(r->crew, r->rank, "%s: %s", rmx_error_name(code), rmx_last_error());
}

void runner_must_gpu(const struct runner *r, int result, const char *error) {
        if (result)
                crew_fail(r->crew, r->rank, "%s", error);
}

static void area_new(const struct runner *r, struct area *area, size_t bytes) {
        char error[GPU_ERROR_MAX];
        void *address = NULL;

        area->bytes = bytes;
        if (r->bench->options->memory == OPTIONS_MEMORY_SHARED) {
                runner_must(r, rmx_mem_alloc(r->session, bytes, &address));
        } else {
                if (posix_memalign(&address, 4096, bytes) != 0)
                        crew_fail(r->crew, r->rank, "no memory for a buffer of %zu bytes", bytes);
                memset(address, 0, bytes);
        }
        area->here = area->there = address;
        if (r->gpu) {
                runner_must_gpu(r, r->ops->alloc(r->gpu, bytes, &address, error), error);
                area->there = address;
        }
}

static void area_free(const struct runner *r, struct area *area) {
        if (r->gpu)
                r->ops->free(r->gpu, area->there);
        if (r->bench->options->memory == OPTIONS_MEMORY_SHARED)
                runner_must(r, rmx_mem_free(r->session, area->here));
        else
                free(area->here);
}

void runner_areas_new(struct runner *r) {
        size_t in = 0, out = 0;

        for (size_t i = 0; i < r->bench->n_cases; i++) {
                const struct perf_case *c = &r->bench->cases[i];
                const struct options *o = r->bench->options;
                struct pattern shape = {.op = o->op, .n_ranks = o->ranks, .root = c->root, .equal = o->equal};
                size_t unit = rmx_type_size(c->type), lead = c->offset * unit;
                size_t in_need = lead + pattern_input_elements(&shape, r->rank, c->count) * unit;
                size_t out_need = lead + pattern_output_elements(&shape, r->rank, c->count) * unit;

                in = in_need > in ? in_need : in;
                out = out_need > out ? out_need : out;
        }
        area_new(r, &r->in, in + 2 * AREA_GUARD_BYTES);
        area_new(r, &r->out, (out > in ? out : in) + 2 * AREA_GUARD_BYTES); /* also the one buffer of calls in place */
}

void runner_areas_free(struct runner *r) {
        area_free(r, &r->in);
        area_free(r, &r->out);
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

struct call call_make(const struct runner *r, const struct perf_case *c, bool in_place) {
        struct call call = {.c = c, .in_place = in_place, .unit = rmx_type_size(c->type)};
        size_t lead = AREA_GUARD_BYTES + c->offset * call.unit, shift;

        call.in_elements = pattern_input_elements(&r->pattern, r->rank, c->count);
        call.out_elements = pattern_output_elements(&r->pattern, r->rank, c->count);
        call.whole_elements = call.in_elements > call.out_elements ? call.in_elements : call.out_elements;
        call.whole_base = call.out = r->out.here + lead;
        call.in = in_place ? call.out : r->in.here + lead;
        shift = in_place ? pattern_in_place_offset(&r->pattern, r->rank, c->count) * call.unit : 0;
        if (call.in_elements < call.out_elements)
                call.in += shift;
        else
                call.out += shift;
        if (r->pattern.op == PATTERN_ALL_TO_ALL_V)
                call_make_vectors(r, &call);
        return call;
}

static void *call_in(const struct runner *r, const struct call *call) {
        return area_there(call->in_place ? &r->out : &r->in, call->in);
}

static void *call_out(const struct runner *r, const struct call *call) {
        return area_there(&r->out, call->out);
}

static int call_sendrecv(const struct runner *r, const struct call *call) {
        const struct perf_case *c = call->c;
        uint32_t n = r->pattern.n_ranks;
        int code, sent, received;

        code = rmx_group_start();
        if (code)
                return code;
        sent = rmx_send(r->comm, call_in(r, call), c->count, c->type, (r->rank + 1) % n, r->stream);
        received = rmx_recv(r->comm, call_out(r, call), c->count, c->type, (r->rank + n - 1) % n, r->stream);
        code = rmx_group_end();
        return sent ? sent : received ? received : code;
}

static void call_run(const struct runner *r, const struct call *call) {
        const struct perf_case *c = call->c;
        int code;

        switch (r->bench->options->op) {
        case PATTERN_ALL_REDUCE:
                code = rmx_all_reduce(r->comm, call_in(r, call), call_out(r, call), c->count, c->type, r->redop,
                                      r->stream);
                break;
        case PATTERN_ALL_GATHER:
                code = rmx_all_gather(r->comm, call_in(r, call), call_out(r, call), c->count, c->type, r->stream);
                break;
        case PATTERN_REDUCE_SCATTER:
                code = rmx_reduce_scatter(r->comm, call_in(r, call), call_out(r, call), c->count, c->type, r->redop,
                                          r->stream);
                break;
        case PATTERN_BROADCAST:
                code = rmx_broadcast(r->comm, call_in(r, call), call_out(r, call), c->count, c->type, c->root,
                                     r->stream);
                break;
        case PATTERN_REDUCE:
                code = rmx_reduce(r->comm, call_in(r, call), call_out(r, call), c->count, c->type, r->redop, c->root,
                                  r->stream);
                break;
        case PATTERN_ALL_TO_ALL:
                code = rmx_all_to_all(r->comm, call_in(r, call), call_out(r, call), c->count, c->type, r->stream);
                break;
        case PATTERN_ALL_TO_ALL_V:
                code = rmx_all_to_all_v(r->comm, call_in(r, call), call->send_count, call->send_offset,
                                        call_out(r, call), call->recv_count, call->recv_offset, c->type, r->stream);
                break;
        case PATTERN_GATHER:
                code = rmx_gather(r->comm, call_in(r, call), call_out(r, call), c->count, c->type, c->root, r->stream);
                break;
        case PATTERN_SCATTER:
                code = rmx_scatter(r->comm, call_in(r, call), call_out(r, call), c->count, c->type, c->root, r->stream);
                break;
        case PATTERN_SENDRECV:
                code = call_sendrecv(r, call);
                break;
        default:
                code = rmx_barrier(r->comm, r->stream);
                break;
        }
        if (code != RMX_OK)
                crew_fail(r->crew, r->rank, "%s of %llu %s: %s: %s", options_op_name(r->bench->options->op),
                          (unsigned long long)c->count, options_type_name(c->type), rmx_error_name(code),
                          rmx_last_error());
}

/* GPU memory: the areas of a call from here to there, or back. */
static void call_copy(const struct runner *r, const struct call *call, bool back) {
        const struct area *areas[] = {&r->out, call->in_place ? NULL : &r->in};
        char error[GPU_ERROR_MAX];

        for (size_t i = 0; r->gpu && i < 2 && areas[i]; i++)
                runner_must_gpu(r,
                                r->ops->copy(r->gpu, back ? areas[i]->here : areas[i]->there,
                                             back ? areas[i]->there : areas[i]->here, areas[i]->bytes, error),
                                error);
}

void call_prepare(const struct runner *r, const struct call *call) {
        if (call->in_place) {
                area_prepare(&r->out, call->whole_base, call->whole_elements * call->unit);
        } else {
                area_prepare(&r->out, call->out, call->out_elements * call->unit);
                area_prepare(&r->in, call->in, call->in_elements * call->unit);
        }
        pattern_fill(&r->pattern, r->rank, r->iteration, call->c->count, call->in);
        call_copy(r, call, false);
        crew_barrier(r->crew);
}

/* A barrier has no output. What can be seen of it is that no rank leaves it before all have come, so each says when it
 * does. A late one comes when all others have, and then some: those that do not wait for it have left by then. */
void call_arrive(const struct runner *r, bool late) {
        uint64_t end_ns;

        if (r->pattern.op != PATTERN_BARRIER)
                return;
        for (uint32_t i = 0; late && i < r->pattern.n_ranks; i++)
                while (i != r->rank && /* partner: the store below */
                       atomic_load_explicit(&r->shared->slot[i].arrived, memory_order_acquire) < r->iteration)
                        sched_yield();
        end_ns = clock_now_ns() + LATE_NS;
        while (late && clock_now_ns() < end_ns)
                sched_yield();
        /* partner: the loads above and in wrong_barrier */
        atomic_store_explicit(&r->shared->slot[r->rank].arrived, r->iteration, memory_order_release);
}

/* Some may have come to the next one already. */
static uint32_t wrong_barrier(const struct runner *r) {
        uint32_t missing = 0;

        for (uint32_t i = 0; i < r->pattern.n_ranks; i++) /* partner: the store of call_arrive */
                missing += atomic_load_explicit(&r->shared->slot[i].arrived, memory_order_acquire) < r->iteration;
        return missing;
}

void call_verify(const struct runner *r, const struct call *call) {
        const struct pattern *p = &r->pattern;
        uint64_t *bounds = &r->shared->slot[r->rank].out_of_bounds;
        size_t count = call->c->count;

        if (p->op == PATTERN_BARRIER)
                r->shared->slot[r->rank].wrong += wrong_barrier(r);
        call_copy(r, call, true);
        r->shared->slot[r->rank].wrong += pattern_wrong_output(p, r->rank, r->iteration, count, call->out);
        if (call->in_place) {
                *bounds += area_broken(&r->out, call->whole_base, call->whole_elements * call->unit);
                if (call->in_elements > call->out_elements) /* the input's other blocks are not the call's to write */
                        *bounds += pattern_wrong_input(p, r->rank, r->iteration, count, call->in,
                                                       pattern_in_place_offset(p, r->rank, count), call->out_elements);
        } else {
                *bounds += area_broken(&r->out, call->out, call->out_elements * call->unit);
                *bounds += area_broken(&r->in, call->in, call->in_elements * call->unit);
                *bounds += pattern_wrong_input(p, r->rank, r->iteration, count, call->in, 0, 0);
        }
}

/* Until the stream has run out of work. A kernel's error is the communicator's, and while one waits for ever, asking
 * for it is what hears of the end of the daemon. */
void runner_wait(const struct runner *r) {
        uint64_t look_ns = clock_now_ns() + LOOK_NS;
        char error[GPU_ERROR_MAX];
        int idle;

        if (!r->gpu)
                return;
        while (!(idle = r->ops->idle(r->gpu, error))) {
                if (clock_now_ns() < look_ns)
                        continue;
                runner_must(r, rmx_comm_error(r->comm));
                look_ns = clock_now_ns() + LOOK_NS;
        }
        runner_must_gpu(r, idle < 0, error);
        runner_must(r, rmx_comm_error(r->comm));
}

void call_capture(const struct runner *r, const struct call *call, uint32_t graph, uint32_t n) {
        char error[GPU_ERROR_MAX];

        runner_must_gpu(r, r->ops->capture_begin(r->gpu, error), error);
        for (uint32_t i = 0; i < n; i++)
                call_run(r, call);
        runner_must_gpu(r, r->ops->capture_end(r->gpu, graph, error), error);
}

void call_issue(const struct runner *r, const struct call *call, uint32_t graph) {
        char error[GPU_ERROR_MAX];

        if (r->bench->options->graphs)
                runner_must_gpu(r, r->ops->replay(r->gpu, graph, error), error);
        else
                call_run(r, call);
}

void call_run_verified(struct runner *r, const struct call *call) {
        r->iteration++;
        call_prepare(r, call);
        call_arrive(r, r->iteration % r->pattern.n_ranks == r->rank);
        call_issue(r, call, pattern_repeats(&r->pattern, call->in_place) ? GRAPH_MANY : GRAPH_ONE);
        runner_wait(r);
        call_verify(r, call);
}
