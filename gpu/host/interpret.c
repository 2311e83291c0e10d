/* SPDX-License-Identifier: MIT */
/*
 * The interpreter of retriable phases
 *
 * A rank's request is a plan, and a cursor (part, step) for each phase. Trying a cursor either does its step (step.c),
 * or finds that a chunk or a free slot is missing; then nothing has changed, and whoever calls us again retries it. So
 * a rank never waits inside a call, one thread can serve any number of ranks of any number of communicators, and no
 * order of calls can deadlock what the plan verifier has accepted. `after` is the only order between the phases of a
 * request. This file knows no algorithm and no kind of step.
 *
 * Lanes. A group of sends and receives is several requests at once. Those with the same sender and receiver share
 * channels, on which nothing but order tells them apart, so they run one after another. Hence a rank has a lane for
 * each rank that it sends to and for each that it receives from, and a running request belongs to a lane. There are
 * never more than 2 n, and starting a group of any size needs no memory. A collective runs alone, in lane 0. When a
 * lane's request is done, its next one is searched from there on in the array of requests; so a lane looks through the
 * array once. Active lanes are kept in a list without gaps, and calls go around it.
 *
 * Several nodes. Ranks of other nodes are never started here; channels to them are like others (net.c), but for a word
 * that says what call a chunk belongs to. A chunk of another call stops the rank for good. The fabric is woken, if it
 * sleeps, behind the first step of a call that has something for it, and once more at the end.
 *
 * Threads. Everything here is private to the rank but its channels, and `shared`, which other ranks read while a
 * collective that needs it runs (see step.c for why this is in order).
 *
 * Budget. A call stops after about max_bytes of data moved; every step counts at least STEP_BYTES, so empty chunks are
 * bounded too. A step or piece is never divided, so one call may exceed the budget by one. The next call begins with
 * the phase, and the lane, behind the one that ended this one: otherwise a small budget could be spent on PUSH alone
 * while chunks of others lie unread.
 */
#include "gpu/host/interpret.h"

#include <assert.h>

#include "gpu/host/step.h"
#include "ring/ring.h"
#include "util/type.h"

#define STEP_BYTES 256u

/*
 * Outputs of all ranks together beyond which they are written past the caches. Measured for all_reduce/zero_copy of 2,
 * 4 and 8 ranks on one core with 32 MiB of cache: at 8 MiB that costs a quarter, at 16 MiB it saves a fifth to a half.
 */
#define STREAM_BYTES (UINT64_C(12) << 20)

void interpret_rank_init(struct interpret_rank *rank, uint32_t start) {
        rank->n_active = 0;
        rank->blamed = 0;
        rank->posted = false;
        for (uint32_t region = 0; region < PLAN_REGIONS_MAX; region++)
                for (uint32_t peer = 0; peer < PLAN_RANKS_MAX; peer++) {
                        rank->to[region][peer] = (struct channel_end){.count = start, .seen = start};
                        rank->from[region][peer] = (struct channel_end){.count = start};
                }
}

/* ---- start ------------------------------------------------------------------------------------------------------- */
static bool cursor_done(const struct interpret_cursor *cursor) {
        return cursor->part == cursor->n_parts;
}

static void work_start_phases(struct interpret_rank *rank, struct interpret_work *work) {
        const struct plan *plan = work->plan;
        const struct plan_shape *shape = &work->request->shape;

        work->turn = 0;
        work->n_left = 0;
        for (uint32_t p = 0; p < plan->n_phases; p++) {
                const struct plan_phase *phase = &plan->phases[p];
                struct interpret_cursor *cursor = &work->cursor[p];

                *cursor = (struct interpret_cursor){.n_steps = plan_phase_steps(plan, phase, shape, rank->me)};
                if (cursor->n_steps > 0)
                        cursor->n_parts = plan_phase_parts(plan, phase, rank->geometry, shape, rank->me);
                work->n_left += !cursor_done(cursor);
        }
}

/* Bytes of all outputs that are written at about the same time. Whoever overflows here has no such memory. */
static uint64_t work_output_bytes(const struct interpret_work *work, uint32_t me) {
        const struct plan *plan = work->plan;
        const struct plan_shape *shape = &work->request->shape;
        uint64_t in, out;

        if (plan_operation_p2p(plan->operation))
                return shape->role == PLAN_ROLE_RECEIVER ? shape->count * work->element_bytes : 0;
        if (shape->vector
                    ? plan_vector_elements(shape->vector, plan->n_ranks, &in, &out)
                    : plan_request_elements(plan->operation, plan->n_ranks, shape->count, me == shape->root, &in, &out))
                return 0;
        if (plan->operation == RING_OP_REDUCE || plan->operation == RING_OP_GATHER)
                return out * work->element_bytes;
        return out * work->element_bytes * plan->n_ranks;
}

/* A send or receive with a rank of another node has its own plan. */
static const struct plan *request_plan(const struct interpret_rank *rank, const struct gpu_request *request) {
        const struct plan_shape *shape = &request->shape;

        if (!rank->away || !plan_operation_p2p(request->plan->operation) ||
            !(rank->away >> (shape->role == PLAN_ROLE_SENDER ? shape->peer : shape->root) & 1))
                return request->plan;
        return &rank->net->send_plan;
}

static void work_start(struct interpret_rank *rank, struct interpret_work *work, struct gpu_request *request) {
        const struct plan *plan = request_plan(rank, request);
        const struct plan_shape *shape = &request->shape;

        assert(plan->n_ranks == rank->set->n_ranks);
        assert(shape->element_bytes == type_size(request->type));
        work->request = request;
        work->plan = plan;
        work->element_bytes = shape->element_bytes;
        work->partial_bytes = shape->partial_bytes;
        work->part_elements = plan_part_elements(plan, rank->geometry, shape);
        work->shard_elements = plan_shard_elements(shape->count, plan->n_shards, shape->element_bytes);
        work->signature = rank->away ? host_net_signature(plan, request, shape->count) : 0;
        work->reduce = NULL;
        work->scaled = false;
        work->stream = work_output_bytes(work, rank->me) > STREAM_BYTES;
        work->offer = (struct interpret_offer){0};
        if (plan_operation_reduces(plan->operation)) {
                work->reduce = rank->kernels->fn[request->type][request->redop];
                work->scaled = request->redop == RMX_PREMUL_SUM;
                assert(work->reduce);
                assert(shape->partial_bytes == type_accumulator_size(request->type, request->redop));
        }
        work_start_phases(rank, work);
}

static uint32_t request_lane(const struct interpret_rank *rank, const struct gpu_request *request) {
        if (!plan_operation_p2p(request->plan->operation))
                return 0;
        assert(request->shape.role != PLAN_ROLE_ANY);
        return request->shape.role == PLAN_ROLE_SENDER ? request->shape.peer : rank->set->n_ranks + request->shape.root;
}

void interpret_rank_start(struct interpret_rank *rank, struct gpu_request *requests, uint32_t n_requests) {
        bool busy[INTERPRET_LANES_MAX] = {false};

        assert(rank->n_active == 0 && n_requests > 0);
        assert(n_requests == 1 || plan_operation_p2p(requests->plan->operation));
        rank->requests = requests;
        rank->n_requests = n_requests;
        rank->turn = 0;
        rank->shared = (struct interpret_shared){
                .in = requests->in,
                .out = requests->out,
                .vector = requests->shape.vector,
                .scalar = requests->scalar,
        };
        for (uint32_t i = 0; i < n_requests; i++) {
                uint32_t lane = request_lane(rank, &requests[i]);

                requests[i].done = false;
                if (busy[lane]) {
                        rank->work[lane].n_queued++;
                        continue;
                }
                busy[lane] = true;
                rank->active[rank->n_active++] = (uint8_t)lane;
                rank->work[lane].n_queued = 0;
                work_start(rank, &rank->work[lane], &requests[i]);
        }
}

/* ---- run --------------------------------------------------------------------------------------------------------- */
struct budget {
        uint64_t max_bytes;
        uint64_t spent;
        bool moved; /* anything at all: the first step is always allowed */
};

static bool budget_over(const struct budget *budget) {
        return budget->moved && budget->spent >= budget->max_bytes;
}

/* What `after` asks for. */
static bool phase_may_run(const struct interpret_work *work, const struct plan_phase *phase, uint32_t p) {
        const struct interpret_cursor *before;

        if (phase->after < 0)
                return true;
        before = &work->cursor[phase->after];
        return cursor_done(before) || (!phase->after_whole && before->part > work->cursor[p].part);
}

static void rank_wake(struct interpret_rank *rank) {
        if (!rank->posted)
                return;
        rank->woke |= host_net_wake(rank->net);
        rank->posted = false;
}

/* Until no phase can move, or the budget is spent. Returns whether anything moved. */
static bool work_run(struct interpret_rank *rank, struct interpret_work *work, struct budget *budget) {
        const struct plan *plan = work->plan;
        uint32_t n_phases = plan->n_phases, p = work->turn, n_idle = 0;
        bool moved = false;

        while (n_idle < n_phases && work->n_left > 0 && !budget_over(budget)) {
                const struct plan_phase *phase = &plan->phases[p];

                n_idle++;
                while (!cursor_done(&work->cursor[p]) && phase_may_run(work, phase, p) && !budget_over(budget)) {
                        uint64_t bytes = 0;

                        if (!step_run(rank, work, p, &bytes))
                                break;
                        if (!rank->woke)
                                rank_wake(rank);
                        budget->spent += bytes + STEP_BYTES;
                        budget->moved = moved = true;
                        n_idle = 0;
                }
                p = p + 1 < n_phases ? p + 1 : 0;
        }
        work->turn = p;
        return moved;
}

/* The request of active[turn] is done: its lane goes on with the next one, or is no longer active. */
static void lane_next(struct interpret_rank *rank) {
        uint32_t lane = rank->active[rank->turn];
        struct interpret_work *work = &rank->work[lane];
        struct gpu_request *request = work->request;

        request->done = true;
        if (work->n_queued == 0) {
                rank->active[rank->turn] = rank->active[--rank->n_active];
                return;
        }
        do
                request++;
        while (request_lane(rank, request) != lane);
        assert(request < rank->requests + rank->n_requests);
        work->n_queued--;
        work_start(rank, work, request);
}

int interpret_rank_run(struct interpret_rank *rank, uint64_t max_bytes) {
        struct budget budget = {.max_bytes = max_bytes};
        uint32_t n_idle = 0;

        if (rank->blamed)
                return GPU_MISMATCH;
        if (rank->n_active == 0)
                return GPU_IDLE;
        rank->woke = false;
        while (n_idle < rank->n_active && !budget_over(&budget) && !rank->blamed) {
                struct interpret_work *work = &rank->work[rank->active[rank->turn]];

                n_idle = work_run(rank, work, &budget) ? 0 : n_idle + 1;
                if (work->n_left == 0) {
                        budget.moved = true;
                        n_idle = 0;
                        lane_next(rank);
                } else {
                        rank->turn++;
                }
                if (rank->turn >= rank->n_active)
                        rank->turn = 0;
        }
        rank_wake(rank);
        if (rank->blamed)
                return GPU_MISMATCH;
        if (rank->n_active == 0)
                return GPU_DONE;
        return budget.moved ? GPU_PROGRESS : GPU_IDLE;
}
