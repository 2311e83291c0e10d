/* SPDX-License-Identifier: MIT */
#include "plan/verify_run.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ring/ring.h"

#define RUN_CELLS_MAX (1u << 22) /* elements of memory in all: cases are small by construction */
#define RUN_STEPS_MAX 60000u     /* steps of one thread: clocks are 16 bit */

/* A symbolic value: what an element is made of. */
#define VALUE_NONE                 0u /* poison */
#define VALUE_INPUT(rank, element) (UINT64_C(1) << 62 | (uint64_t)(rank) << 48 | (element))
#define VALUE_REDUCED(element)     (UINT64_C(2) << 62 | (element)) /* that element of every rank once, in rank order */

/* One element of a rank's memory. */
struct cell {
        uint64_t value;
        uint16_t write_clock; /* of the last write; 0: none */
        uint8_t write_phase;
        uint16_t read_clock[PLAN_PHASES_MAX]; /* of the last read of each phase of this rank */
};

/* A rank's buffers in one request. In place both areas overlap. */
struct memory {
        struct cell *cells;
        uint64_t n_cells, in_base, out_base, in_elements, out_elements;
};

/* One phase of one rank. */
struct thread {
        uint64_t n_steps; /* over both requests */
        uint64_t step, end;
        uint64_t parts;
        uint32_t peers;
        uint16_t clock;    /* own component */
        uint16_t *part_vc; /* [parts][width]: clock when each part was done, kept for phases that others name in `after`
                            */
};

struct channel {
        uint32_t pushed, released;
        uint64_t *values;  /* [slots][part elements] */
        uint64_t *lengths; /* [slots] */
        uint16_t *push_vc; /* [slots][width] */
        uint16_t *free_vc; /* [slots][width] */
};

struct verify_run {
        const struct verify_request *requests;
        uint32_t n_requests;
        uint32_t n_ranks, slots, width; /* width: components of a clock, one per (rank, phase) */
        uint32_t n_phases;              /* most phases of the plans */
        uint64_t part_elements;
        uint32_t current[PLAN_RANKS_MAX]; /* request a rank is at */
        struct thread *threads;           /* [n_ranks][n_phases] of the current request */
        uint16_t *vc;                     /* [n_ranks][n_phases][width] */
        struct channel *channels;         /* [regions][source][destination] */
        struct memory *memory;            /* [n_requests][n_ranks] */
        uint16_t *base;                   /* [n_requests][n_ranks][n_phases]: own clocks when a rank began a request */
        struct plan_verdict *verdict;
};

int verdict_set(struct plan_verdict *verdict, enum plan_fault fault, uint32_t rank, uint32_t phase, uint64_t part,
                const char *format, ...) {
        va_list args;

        *verdict = (struct plan_verdict){.condition = fault, .rank = rank, .phase = phase, .part = part};
        va_start(args, format);
        vsnprintf(verdict->text, sizeof(verdict->text), format, args);
        va_end(args);
        return PLAN_E_INVALID;
}

static struct thread *thread_of(const struct verify_run *run, uint32_t rank, uint32_t phase) {
        return &run->threads[rank * run->n_phases + phase];
}

static uint16_t *vc_of(const struct verify_run *run, uint32_t rank, uint32_t phase) {
        return &run->vc[((size_t)rank * run->n_phases + phase) * run->width];
}

static struct channel *channel_of(const struct verify_run *run, uint32_t region, uint32_t source,
                                  uint32_t destination) {
        return &run->channels[((size_t)region * run->n_ranks + source) * run->n_ranks + destination];
}

static void vc_join(uint16_t *restrict into, const uint16_t *restrict from, uint32_t width) {
        for (uint32_t i = 0; i < width; i++)
                into[i] = into[i] > from[i] ? into[i] : from[i];
}

/* ---- set-up --------------------------------------------------------------------------------------------------------
 */

static int memory_init(struct memory *memory, const struct verify_request *request, uint32_t rank, uint64_t *total) {
        const struct plan *plan = request->plan;
        const struct plan_case *c = request->pcase;
        uint64_t block = c->count * rank;

        if (plan_request_elements(plan->operation, plan->n_ranks, c->count, rank == c->root, &memory->in_elements,
                                  &memory->out_elements))
                return PLAN_E_INVALID;
        memory->out_base = c->in_place ? 0 : memory->in_elements;
        if (c->in_place && plan->operation == RING_OP_ALL_GATHER)
                memory->in_base = block;
        if (c->in_place && plan->operation == RING_OP_REDUCE_SCATTER)
                memory->out_base = block;
        memory->n_cells = memory->in_base + memory->in_elements;
        if (memory->n_cells < memory->out_base + memory->out_elements)
                memory->n_cells = memory->out_base + memory->out_elements;
        *total += memory->n_cells;
        if (*total > RUN_CELLS_MAX)
                return PLAN_E_INVALID;
        memory->cells = calloc(memory->n_cells ? memory->n_cells : 1, sizeof(*memory->cells));
        if (!memory->cells)
                return -ENOMEM;
        for (uint64_t i = 0; i < memory->in_elements; i++)
                memory->cells[memory->in_base + i].value = VALUE_INPUT(rank, i);
        return 0;
}

static int channels_init(struct verify_run *run) {
        size_t n = (size_t)PLAN_REGIONS_MAX * run->n_ranks * run->n_ranks;

        run->channels = calloc(n, sizeof(*run->channels));
        return run->channels ? 0 : -ENOMEM;
}

/* Most channels of a plan are never used: memory is taken at the first push. */
static int channel_open(struct verify_run *run, struct channel *channel) {
        if (channel->values)
                return 0;
        channel->values = calloc((size_t)run->slots * run->part_elements, sizeof(*channel->values));
        channel->lengths = calloc(run->slots, sizeof(*channel->lengths));
        channel->push_vc = calloc((size_t)run->slots * run->width * 2, sizeof(*channel->push_vc));
        if (!channel->values || !channel->lengths || !channel->push_vc)
                return -ENOMEM;
        channel->free_vc = channel->push_vc + (size_t)run->slots * run->width;
        return 0;
}

static bool phase_is_named(const struct plan *plan, uint32_t p) {
        for (uint32_t i = 0; i < plan->n_phases; i++)
                if (plan->phases[i].after == (int)p)
                        return true;
        return false;
}

/* The threads of a rank for the request it is at. Its clocks start where the former request ended. */
static int rank_begin(struct verify_run *run, uint32_t rank) {
        const struct verify_request *request = &run->requests[run->current[rank]];
        const struct plan_case *c = request->pcase;

        for (uint32_t p = 1; p < run->n_phases; p++)
                vc_join(vc_of(run, rank, 0), vc_of(run, rank, p), run->width);
        for (uint32_t p = 0; p < run->n_phases; p++) {
                struct thread *thread = thread_of(run, rank, p);
                const struct plan_phase *phase = &request->plan->phases[p];

                if (p)
                        memcpy(vc_of(run, rank, p), vc_of(run, rank, 0), run->width * sizeof(uint16_t));
                thread->step = thread->end = 0;
                free(thread->part_vc);
                thread->part_vc = NULL;
                run->base[((size_t)run->current[rank] * run->n_ranks + rank) * run->n_phases + p] = thread->clock;
                if (p >= request->plan->n_phases || !plan_phase_mine(phase, rank, c->root))
                        continue;
                thread->parts = plan_phase_parts(request->plan, phase, &c->geometry, c->count, c->element_bytes);
                thread->peers = phase->kind == PLAN_REDUCE ? 1 : plan_phase_peers(request->plan, phase, rank, c->root);
                thread->end = thread->parts * thread->peers;
                thread->n_steps += thread->end;
                if (thread->n_steps > RUN_STEPS_MAX)
                        return verdict_set(run->verdict, PLAN_FAULT_MALFORMED, rank, p, 0,
                                           "the case is too large to verify");
                if (phase_is_named(request->plan, p)) {
                        thread->part_vc = calloc((size_t)thread->parts * run->width + 1, sizeof(*thread->part_vc));
                        if (!thread->part_vc)
                                return -ENOMEM;
                }
        }
        return 0;
}

/* ---- memory accesses ------------------------------------------------------------------------------------------------
 */

struct place {
        uint32_t rank, phase;
        uint64_t part;
};

static int race(struct verify_run *run, const struct place *at, uint32_t other, bool in_place) {
        return verdict_set(run->verdict, PLAN_FAULT_RACE, at->rank, at->phase, at->part,
                           "phase %u of rank %u is not ordered after a conflicting access of phase %u%s", at->phase,
                           at->rank, other, in_place ? " (in place)" : "");
}

static int access_cell(struct verify_run *run, const struct place *at, struct cell *cell, bool write) {
        const uint16_t *vc = vc_of(run, at->rank, at->phase);
        uint32_t base = at->rank * run->n_phases;
        bool in_place = run->requests[run->current[at->rank]].pcase->in_place;

        if (cell->write_clock && vc[base + cell->write_phase] < cell->write_clock)
                return race(run, at, cell->write_phase, in_place);
        if (write) {
                for (uint32_t p = 0; p < run->n_phases; p++)
                        if (vc[base + p] < cell->read_clock[p])
                                return race(run, at, p, in_place);
                cell->write_clock = vc[base + at->phase];
                cell->write_phase = (uint8_t)at->phase;
        } else {
                cell->read_clock[at->phase] = vc[base + at->phase];
        }
        return 0;
}

static int out_of_bounds(struct verify_run *run, const struct place *at, const struct plan_span *span,
                         const char *what) {
        return verdict_set(run->verdict, PLAN_FAULT_BOUNDS, at->rank, at->phase, at->part,
                           "elements %llu + %llu are outside of the %s", (unsigned long long)span->offset,
                           (unsigned long long)span->length, what);
}

static struct memory *memory_of(const struct verify_run *run, uint32_t rank) {
        return &run->memory[(size_t)run->current[rank] * run->n_ranks + rank];
}

static int read_input(struct verify_run *run, const struct place *at, const struct plan_span *span, uint64_t *values) {
        struct memory *memory = memory_of(run, at->rank);
        int r;

        if (span->length > run->part_elements || span->offset > memory->in_elements ||
            span->length > memory->in_elements - span->offset)
                return out_of_bounds(run, at, span, "input");
        for (uint64_t i = 0; i < span->length; i++) {
                struct cell *cell = &memory->cells[memory->in_base + span->offset + i];

                r = access_cell(run, at, cell, false);
                if (r)
                        return r;
                values[i] = cell->value;
        }
        return 0;
}

static int write_output(struct verify_run *run, const struct place *at, const struct plan_span *span,
                        const uint64_t *values) {
        struct memory *memory = memory_of(run, at->rank);
        int r;

        if (span->offset > memory->out_elements || span->length > memory->out_elements - span->offset)
                return out_of_bounds(run, at, span, "output");
        for (uint64_t i = 0; i < span->length; i++) {
                struct cell *cell = &memory->cells[memory->out_base + span->offset + i];

                r = access_cell(run, at, cell, true);
                if (r)
                        return r;
                cell->value = values[i];
        }
        return 0;
}

/* ---- channels -------------------------------------------------------------------------------------------------------
 */

static bool channel_has_room(const struct verify_run *run, const struct channel *channel) {
        return channel->pushed - channel->released < run->slots;
}

/* The slot's former chunk was released before this one is written: that order enters the clock. */
static void channel_credit(struct verify_run *run, const struct channel *channel, uint16_t *vc) {
        if (channel->pushed >= run->slots)
                vc_join(vc, &channel->free_vc[(size_t)(channel->pushed % run->slots) * run->width], run->width);
}

static int channel_push(struct verify_run *run, struct channel *channel, const uint16_t *vc, const uint64_t *values,
                        uint64_t length) {
        uint32_t slot = channel->pushed % run->slots;
        int r = channel_open(run, channel);

        if (r)
                return r;
        memcpy(&channel->values[slot * run->part_elements], values, length * sizeof(*values));
        channel->lengths[slot] = length;
        memcpy(&channel->push_vc[(size_t)slot * run->width], vc, run->width * sizeof(*vc));
        channel->pushed++;
        return 0;
}

static const uint64_t *channel_front(const struct verify_run *run, const struct channel *channel, uint16_t *vc,
                                     uint64_t *ret_length) {
        uint32_t slot = channel->released % run->slots;

        vc_join(vc, &channel->push_vc[(size_t)slot * run->width], run->width);
        *ret_length = channel->lengths[slot];
        return &channel->values[slot * run->part_elements];
}

static void channel_release(struct verify_run *run, struct channel *channel, const uint16_t *vc) {
        memcpy(&channel->free_vc[(size_t)(channel->released % run->slots) * run->width], vc, run->width * sizeof(*vc));
        channel->released++;
}

/* ---- steps
 * ------------------------------------------------------------------------------------------------------------ */

enum { STEP_DONE = 0, STEP_WAIT = 1 }; /* or -errno; faults are recorded in the verdict and returned as STEP_FAULT */
#define STEP_FAULT 2

static void tick(struct verify_run *run, const struct place *at) {
        vc_of(run, at->rank, at->phase)[at->rank * run->n_phases + at->phase] =
                ++thread_of(run, at->rank, at->phase)->clock;
}

static struct plan_span span_of(const struct verify_run *run, const struct place *at, uint32_t range, uint32_t peer) {
        const struct verify_request *request = &run->requests[run->current[at->rank]];

        return plan_span(range, request->plan, &request->pcase->geometry, request->pcase->count,
                         request->pcase->element_bytes, at->rank, peer, at->part);
}

static int step_push(struct verify_run *run, const struct place *at, const struct plan_phase *phase, uint32_t peer,
                     uint64_t *values) {
        struct channel *channel = channel_of(run, phase->region_out, at->rank, peer);
        struct plan_span span = {0, 0};
        int r;

        if (!channel_has_room(run, channel))
                return STEP_WAIT;
        tick(run, at);
        channel_credit(run, channel, vc_of(run, at->rank, at->phase));
        if (phase->kind == PLAN_PUSH) {
                span = span_of(run, at, phase->in_range, peer);
                r = read_input(run, at, &span, values);
                if (r)
                        return r < 0 ? r : STEP_FAULT;
        }
        return channel_push(run, channel, vc_of(run, at->rank, at->phase), values, span.length);
}

static int bad_value(struct verify_run *run, const struct place *at, const char *what) {
        verdict_set(run->verdict, PLAN_FAULT_VALUE, at->rank, at->phase, at->part, "%s", what);
        return STEP_FAULT;
}

static int step_copy(struct verify_run *run, const struct place *at, const struct plan_phase *phase, uint32_t peer,
                     uint64_t *values) {
        uint16_t *vc = vc_of(run, at->rank, at->phase);
        struct plan_span span = span_of(run, at, phase->out_range, peer), from;
        struct channel *channel;
        const uint64_t *chunk;
        uint64_t length;
        int r;

        if (phase->kind == PLAN_COPY && phase->peers == PLAN_PEERS_SELF) {
                struct memory *memory = memory_of(run, at->rank);

                tick(run, at);
                from = span_of(run, at, phase->in_range, peer);
                if (from.length != span.length)
                        return bad_value(run, at, "source and destination differ in length");
                if (from.offset > memory->in_elements || from.length > memory->in_elements - from.offset)
                        return out_of_bounds(run, at, &from, "input") ? STEP_FAULT : STEP_DONE;
                if (memory->in_base + from.offset == memory->out_base + span.offset)
                        return STEP_DONE; /* in place: nothing moves */
                r = read_input(run, at, &from, values);
                if (!r)
                        r = write_output(run, at, &span, values);
                return r > 0 ? STEP_FAULT : r;
        }
        channel = channel_of(run, phase->region_in, peer, at->rank);
        if (channel->pushed == channel->released)
                return STEP_WAIT;
        tick(run, at);
        chunk = channel_front(run, channel, vc, &length);
        if (length != span.length)
                return bad_value(run, at, "a chunk of another length than expected");
        if (phase->kind == PLAN_COPY) {
                r = write_output(run, at, &span, chunk);
                if (r)
                        return r < 0 ? r : STEP_FAULT;
        }
        channel_release(run, channel, vc);
        return STEP_DONE;
}

/* Adds up the rank's own element and one chunk of every other rank. Each must be the same element of its rank's input.
 */
static int reduce_values(struct verify_run *run, const struct place *at, const struct plan_phase *phase,
                         uint64_t length, uint64_t *values) {
        uint16_t *vc = vc_of(run, at->rank, at->phase);

        for (uint32_t s = 0; s < run->n_ranks; s++) {
                const uint64_t *chunk;
                uint64_t got;

                if (s == at->rank)
                        continue;
                chunk = channel_front(run, channel_of(run, phase->region_in, s, at->rank), vc, &got);
                if (got != length)
                        return bad_value(run, at, "a chunk of another length than expected");
                for (uint64_t i = 0; i < length; i++) {
                        uint64_t element = values[i] & ((UINT64_C(1) << 48) - 1);

                        if (values[i] != VALUE_INPUT(at->rank, element) || chunk[i] != VALUE_INPUT(s, element))
                                return bad_value(run, at,
                                                 "a sum of different elements, or of something that is no input");
                }
        }
        for (uint64_t i = 0; i < length; i++)
                values[i] = VALUE_REDUCED(values[i] & ((UINT64_C(1) << 48) - 1));
        return STEP_DONE;
}

static int step_reduce(struct verify_run *run, const struct place *at, const struct plan_phase *phase,
                       uint64_t *values) {
        struct plan_span in = span_of(run, at, phase->in_range, at->rank),
                         out = span_of(run, at, phase->out_range, at->rank);
        uint16_t *vc = vc_of(run, at->rank, at->phase);
        uint64_t length;
        int r;

        for (uint32_t s = 0; s < run->n_ranks; s++) {
                struct channel *in_channel = channel_of(run, phase->region_in, s, at->rank);

                if (s == at->rank)
                        continue;
                if (in_channel->pushed == in_channel->released)
                        return STEP_WAIT;
                if (phase->forward && !channel_has_room(run, channel_of(run, phase->region_out, at->rank, s)))
                        return STEP_WAIT;
        }
        tick(run, at);
        if (in.length != out.length)
                return bad_value(run, at, "source and destination differ in length");
        for (uint32_t s = 0; s < run->n_ranks; s++) {
                if (s == at->rank)
                        continue;
                channel_front(run, channel_of(run, phase->region_in, s, at->rank), vc, &length);
                if (phase->forward)
                        channel_credit(run, channel_of(run, phase->region_out, at->rank, s), vc);
        }
        r = read_input(run, at, &in, values);
        if (!r)
                r = reduce_values(run, at, phase, in.length, values);
        if (!r)
                r = write_output(run, at, &out, values);
        for (uint32_t s = 0; !r && s < run->n_ranks; s++) {
                if (s == at->rank)
                        continue;
                if (phase->forward)
                        r = channel_push(run, channel_of(run, phase->region_out, at->rank, s), vc, values, in.length);
                channel_release(run, channel_of(run, phase->region_in, s, at->rank), vc);
        }
        return r > 0 ? STEP_FAULT : r;
}

/* All steps of part `part` of the phase that this one names in `after`. */
static bool after_done(struct verify_run *run, const struct place *at, const struct plan_phase *phase) {
        struct thread *before;

        if (phase->after < 0)
                return true;
        before = thread_of(run, at->rank, (uint32_t)phase->after);
        if (before->step < before->end && before->step / before->peers <= at->part)
                return false;
        /* the clock of that part, not of where the other phase is by now: only that much is promised */
        if (before->end && at->part < before->parts)
                vc_join(vc_of(run, at->rank, at->phase), &before->part_vc[at->part * run->width], run->width);
        return true;
}

static int step(struct verify_run *run, uint32_t rank, uint32_t p, uint64_t *values) {
        const struct verify_request *request = &run->requests[run->current[rank]];
        const struct plan_phase *phase = &request->plan->phases[p];
        struct thread *thread = thread_of(run, rank, p);
        struct place at = {rank, p, thread->step / thread->peers};
        uint32_t peer;

        if (!after_done(run, &at, phase))
                return STEP_WAIT;
        if (phase->kind == PLAN_REDUCE)
                return step_reduce(run, &at, phase, values);
        peer = plan_phase_peer(request->plan, phase, rank, request->pcase->root,
                               (uint32_t)(thread->step % thread->peers));
        if (phase->kind == PLAN_PUSH || phase->kind == PLAN_SIGNAL)
                return step_push(run, &at, phase, peer, values);
        return step_copy(run, &at, phase, peer, values);
}

/* ---- results
 * ---------------------------------------------------------------------------------------------------------- */

static uint64_t expected_value(const struct verify_request *request, uint32_t rank, uint64_t element) {
        uint64_t count = request->pcase->count;

        switch (request->plan->operation) {
        case RING_OP_ALL_REDUCE:
                return VALUE_REDUCED(element);
        case RING_OP_REDUCE_SCATTER:
                return VALUE_REDUCED(count * rank + element);
        case RING_OP_ALL_GATHER:
                return VALUE_INPUT(element / count, element % count);
        default: /* broadcast */
                return VALUE_INPUT(request->pcase->root, element);
        }
}

/* A rank has done all its phases of a request: is its output right, has every rank begun where it must have? */
static int rank_end(struct verify_run *run, uint32_t rank) {
        const struct verify_request *request = &run->requests[run->current[rank]];
        const struct memory *memory = memory_of(run, rank);
        const uint16_t *base = &run->base[(size_t)run->current[rank] * run->n_ranks * run->n_phases];

        for (uint64_t i = 0; i < memory->out_elements; i++)
                if (memory->cells[memory->out_base + i].value != expected_value(request, rank, i))
                        return verdict_set(run->verdict, PLAN_FAULT_VALUE, rank, 0, 0,
                                           "element %llu of the output is not what %s promises", (unsigned long long)i,
                                           plan_operation_name(request->plan->operation));
        for (uint32_t s = 0; request->plan->operation == RING_OP_BARRIER && s < run->n_ranks; s++) {
                bool seen = s == rank;

                for (uint32_t p = 0; p < run->n_phases && !seen && run->current[s] >= run->current[rank]; p++)
                        for (uint32_t q = 0; q < run->n_phases; q++)
                                seen = seen || vc_of(run, rank, p)[s * run->n_phases + q] > base[s * run->n_phases + q];
                if (!seen)
                        return verdict_set(run->verdict, PLAN_FAULT_VALUE, rank, 0, 0,
                                           "the barrier lets rank %u pass before rank %u has come", rank, s);
        }
        return 0;
}

static int execute(struct verify_run *run, uint64_t *values) {
        bool moved = true;
        int r;

        while (moved) {
                moved = false;
                for (uint32_t rank = 0; rank < run->n_ranks; rank++) {
                        bool done = true;

                        if (run->current[rank] == run->n_requests)
                                continue;
                        for (uint32_t p = 0; p < run->n_phases; p++) {
                                struct thread *thread = thread_of(run, rank, p);

                                while (thread->step < thread->end) {
                                        r = step(run, rank, p, values);
                                        if (r == STEP_WAIT)
                                                break;
                                        if (r)
                                                return r < 0 ? r : PLAN_E_INVALID;
                                        thread->step++;
                                        if (thread->part_vc && thread->step % thread->peers == 0)
                                                memcpy(&thread->part_vc[(thread->step / thread->peers - 1) *
                                                                        run->width],
                                                       vc_of(run, rank, p), run->width * sizeof(uint16_t));
                                        moved = true;
                                }
                                done = done && thread->step == thread->end;
                        }
                        if (!done)
                                continue;
                        r = rank_end(run, rank);
                        if (r)
                                return r;
                        moved = true;
                        if (++run->current[rank] < run->n_requests) {
                                r = rank_begin(run, rank);
                                if (r)
                                        return r;
                        }
                }
        }
        for (uint32_t rank = 0; rank < run->n_ranks; rank++)
                for (uint32_t p = 0; run->current[rank] < run->n_requests && p < run->n_phases; p++) {
                        struct thread *thread = thread_of(run, rank, p);

                        if (thread->step < thread->end)
                                return verdict_set(run->verdict, PLAN_FAULT_DEADLOCK, rank, p,
                                                   thread->step / thread->peers, "phase %u of rank %u waits for ever",
                                                   p, rank);
                }
        for (uint32_t i = 0; i < PLAN_REGIONS_MAX * run->n_ranks * run->n_ranks; i++)
                if (run->channels[i].pushed != run->channels[i].released)
                        return verdict_set(run->verdict, PLAN_FAULT_UNCONSUMED, i / run->n_ranks % run->n_ranks, 0, 0,
                                           "rank %u is left with chunks of rank %u", i % run->n_ranks,
                                           i / run->n_ranks % run->n_ranks);
        return 0;
}

static void run_deinit(struct verify_run *run) {
        for (size_t i = 0; run->channels && i < (size_t)PLAN_REGIONS_MAX * run->n_ranks * run->n_ranks; i++) {
                free(run->channels[i].values);
                free(run->channels[i].lengths);
                free(run->channels[i].push_vc);
        }
        for (size_t i = 0; run->memory && i < (size_t)run->n_requests * run->n_ranks; i++)
                free(run->memory[i].cells);
        for (size_t i = 0; run->threads && i < (size_t)run->n_ranks * run->n_phases; i++)
                free(run->threads[i].part_vc);
        free(run->channels);
        free(run->memory);
        free(run->base);
        free(run->threads);
        free(run->vc);
}

int verify_run(const struct verify_request *requests, uint32_t n_requests, struct plan_verdict *ret_verdict) {
        const struct plan_case *c = requests[0].pcase;
        struct verify_run run = {
                .requests = requests,
                .n_requests = n_requests,
                .n_ranks = requests[0].plan->n_ranks,
                .slots = c->geometry.slots,
                .part_elements = c->geometry.part_bytes / c->element_bytes,
                .verdict = ret_verdict,
        };
        uint64_t *values = NULL, cells = 0;
        int r = -ENOMEM;

        for (uint32_t i = 0; i < n_requests; i++)
                if (run.n_phases < requests[i].plan->n_phases)
                        run.n_phases = requests[i].plan->n_phases;
        run.width = run.n_ranks * run.n_phases;
        run.threads = calloc((size_t)run.n_ranks * run.n_phases, sizeof(*run.threads));
        run.vc = calloc((size_t)run.width * run.width, sizeof(*run.vc));
        run.memory = calloc((size_t)n_requests * run.n_ranks, sizeof(*run.memory));
        run.base = calloc((size_t)n_requests * run.width, sizeof(*run.base));
        values = calloc(run.part_elements, sizeof(*values));
        if (!run.threads || !run.vc || !run.memory || !run.base || !values || channels_init(&run))
                goto out;
        for (uint32_t i = 0; i < n_requests; i++)
                for (uint32_t rank = 0; rank < run.n_ranks; rank++) {
                        r = memory_init(&run.memory[(size_t)i * run.n_ranks + rank], &requests[i], rank, &cells);
                        if (r > 0)
                                verdict_set(ret_verdict, PLAN_FAULT_MALFORMED, rank, 0, 0,
                                            "the case is too large to verify");
                        if (r)
                                goto out;
                }
        for (uint32_t rank = 0; rank < run.n_ranks; rank++) {
                r = rank_begin(&run, rank);
                if (r)
                        goto out;
        }
        r = execute(&run, values);
out:
        run_deinit(&run);
        free(values);
        return r;
}
