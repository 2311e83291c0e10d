/* SPDX-License-Identifier: MIT */
/*
 * One step, on symbols: what plan_step() says, in the order that plan.h says. Nothing here knows a kind of phase, a
 * schedule or an algorithm.
 */
#include <errno.h>
#include <string.h>

#include "plan/verify_machine.h"

struct step {
        struct verify_machine *m;
        struct verify_place at;
        const struct verify_request *request;
        const struct plan_phase *phase;
        int16_t *clock;
        struct plan_step what;
        struct verify_window windows[PLAN_RANKS_MAX]; /* of sources in memory */
        struct verify_value own;                      /* the first of them, for FORWARD_INPUT */
        bool has_own;
};

static bool mutated(const struct step *s, enum verify_mutation_kind kind) {
        return machine_mutated(s->m, kind, s->at.rank, s->at.phase);
}

static int step_fault(const struct step *s, enum plan_fault fault, const char *text) {
        return verify_fault(s->m->verdict, fault, &s->at, "phase %u of rank %u %s", s->at.phase, s->at.rank, text);
}

/* ---- before the step --------------------------------------------------------------------------------------------- */
/* Has the phase that this one names in `after` done its part? Then *ret_clock (NULL: none) is that part's clock, no
 * later one. */
static bool after_done(const struct step *s, const int16_t **ret_clock) {
        const struct verify_thread *before;
        uint64_t part;

        *ret_clock = NULL;
        if (s->phase->after < 0)
                return true;
        before = machine_thread(s->m, s->at.rank, (uint32_t)s->phase->after);
        if (before->end == 0)
                return true;
        part = s->phase->after_whole || s->at.part >= before->parts ? before->parts - 1 : s->at.part;
        if (mutated(s, VERIFY_MUTATION_EARLY_AFTER) && part-- == 0)
                return true;
        if (before->step < (part + 1) * before->steps)
                return false;
        *ret_clock = before->part_clocks + part * s->m->width;
        return true;
}

static bool step_left_out(const struct step *s, uint32_t k) {
        uint32_t arg = s->m->options->mutation.arg;

        return (mutated(s, VERIFY_MUTATION_SKIP_PEER) && k == arg) ||
               (mutated(s, VERIFY_MUTATION_SKIP_PART) && s->at.part == arg);
}

static void step_mutate(struct step *s) {
        if (mutated(s, VERIFY_MUTATION_SHORT) && s->what.length > 0)
                s->what.length--;
        if (mutated(s, VERIFY_MUTATION_NO_FINISH))
                s->what.finish = false;
        if (mutated(s, VERIFY_MUTATION_TWICE_FINISH) && s->what.reduce)
                s->what.finish = true;
        if (mutated(s, VERIFY_MUTATION_PARTIAL) && s->what.reduce)
                s->what.partial_out = !s->what.partial_out;
}

/* Ranks that exist: the rest of the machine relies on it. */
static bool step_sane(const struct step *s) {
        const struct plan_step *what = &s->what;
        uint32_t n = s->m->n_ranks;

        if (what->n_sources > PLAN_RANKS_MAX || what->n_outputs > PLAN_RANKS_MAX || what->n_targets > PLAN_RANKS_MAX)
                return false;
        for (uint32_t i = 0; i < what->n_sources; i++)
                if (what->source[i].kind < PLAN_SOURCE_INPUT || what->source[i].kind > PLAN_SOURCE_CHUNK ||
                    what->source[i].rank >= n || what->source[i].index >= n)
                        return false;
        for (uint32_t i = 0; i < what->n_outputs; i++)
                if (what->output[i].rank >= n || what->output[i].index >= n)
                        return false;
        for (uint32_t i = 0; i < what->n_targets; i++)
                if (what->target[i] >= n)
                        return false;
        return true;
}

static struct verify_channel_id channel_in(const struct step *s, uint32_t i) {
        return (struct verify_channel_id){s->phase->region_in, s->what.source[i].rank, s->at.rank};
}

static struct verify_channel_id channel_out(const struct step *s, uint32_t i) {
        return (struct verify_channel_id){s->phase->region_out, s->at.rank, s->what.target[i]};
}

static bool step_ready(const struct step *s) {
        for (uint32_t i = 0; i < s->what.n_sources; i++)
                if (s->what.source[i].kind == PLAN_SOURCE_CHUNK &&
                    !verify_channel_has_chunk(s->m, channel_in(s, i), &s->at))
                        return false;
        for (uint32_t i = 0; i < s->what.n_targets; i++)
                if (!verify_channel_has_room(s->m, channel_out(s, i), &s->at))
                        return false;
        return true;
}

/* The step begins: its clock joins what it has waited for, and then ticks. */
static int step_begin(struct step *s, const int16_t *after) {
        struct verify_machine *m = s->m;
        int r = 0;

        if (after)
                clock_join(s->clock, after, m->width);
        for (uint32_t i = 0; !r && i < s->what.n_sources; i++)
                if (s->what.source[i].kind == PLAN_SOURCE_CHUNK)
                        r = verify_channel_chunk_seen(m, channel_in(s, i), &s->at);
        for (uint32_t i = 0; !r && i < s->what.n_targets; i++)
                r = verify_channel_room_seen(m, channel_out(s, i), &s->at);
        if (mutated(s, VERIFY_MUTATION_EARLY_FLAG) || mutated(s, VERIFY_MUTATION_EARLY_RELEASE))
                memcpy(m->early_clock, s->clock, m->width * sizeof(*s->clock));
        s->clock[machine_thread_number(m, s->at.rank, s->at.phase)]++;
        return r;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */
/* A span in a rank's memory, seen from that rank; it has as many elements as the step. */
static int step_window(const struct step *s, uint32_t rank, uint32_t index, bool output, bool out_range,
                       struct verify_window *ret_window) {
        const struct verify_machine *m = s->m;
        uint32_t from = rank;
        struct plan_span span;

        if (mutated(s, VERIFY_MUTATION_SWAP)) {
                from = (from + 1) % m->n_ranks;
                index = (index + 1) % m->n_ranks;
        }
        span = plan_span(out_range ? s->phase->out_range : s->phase->in_range, s->request->plan,
                         &s->request->pcase->geometry, machine_shape(m, m->current[s->at.rank], rank), from, index,
                         s->at.part);
        if (span.length > 0 && mutated(s, VERIFY_MUTATION_SHORT))
                span.length--;
        if (span.length > 0 && mutated(s, VERIFY_MUTATION_SHIFT))
                span.offset++;
        if (span.length != s->what.length)
                return step_fault(s, PLAN_FAULT_VALUE, "has spans of different lengths in one step");
        *ret_window = (struct verify_window){rank, output, span};
        return 0;
}

static int step_read(struct step *s, uint32_t i, struct verify_value *ret_value) {
        const struct plan_source *source = &s->what.source[i];
        bool partial, output = source->kind == PLAN_SOURCE_OUTPUT;
        int r;

        if (source->kind == PLAN_SOURCE_CHUNK) {
                r = verify_channel_read(s->m, channel_in(s, i), &s->at, ret_value, &partial);
                if (r)
                        return r;
                if (ret_value->length != s->what.length)
                        return verify_fault(s->m->verdict, PLAN_FAULT_VALUE, &s->at,
                                            "phase %u of rank %u gets %llu elements where %llu are due", s->at.phase,
                                            s->at.rank, (unsigned long long)ret_value->length,
                                            (unsigned long long)s->what.length);
                if (ret_value->length > 0 && partial != s->what.partial_in)
                        return step_fault(s, PLAN_FAULT_VALUE, "takes accumulators for elements, or the reverse");
                return 0;
        }
        r = step_window(s, source->rank, source->index, output, output, &s->windows[i]);
        if (!r)
                r = verify_memory_read(s->m, &s->at, &s->windows[i], ret_value);
        if (r)
                return r;
        /* Whoever reads a contribution multiplies it, so it must be one. */
        if (!output && s->what.reduce && ret_value->length > 0 && ret_value->node != verify_leaf(source->rank))
                return step_fault(s, PLAN_FAULT_VALUE, "takes for an input what is none any more");
        if (!output && !s->has_own) {
                s->own = *ret_value;
                s->has_own = true;
        }
        return 0;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */
/* *sum + term, or just the first term. */
static int step_add(struct step *s, const struct verify_value *term, bool first, struct verify_value *sum) {
        if (first) {
                *sum = *term;
                return 0;
        }
        if (sum->length == 0)
                return 0;
        if (!s->what.reduce)
                return step_fault(s, PLAN_FAULT_VALUE, "combines what the operation does not reduce");
        if ((sum->node | term->node) & VERIFY_FINISHED)
                return step_fault(s, PLAN_FAULT_VALUE, "adds what is finished");
        if (sum->element != term->element)
                return step_fault(s, PLAN_FAULT_VALUE, "adds different elements");
        sum->node = verify_tree_pair(s->m, sum->node, term->node);
        return sum->node == 0 ? -ENOMEM : 0;
}

static int step_combine(struct step *s, struct verify_value *ret_value) {
        uint32_t n = s->what.n_sources, arg = s->m->options->mutation.arg;
        uint32_t turn = n > 1 && mutated(s, VERIFY_MUTATION_REDUCE_ORDER);
        struct verify_value terms[PLAN_RANKS_MAX];
        bool first = true;
        int r = 0;

        for (uint32_t i = 0; !r && i < n; i++)
                r = step_read(s, i, &terms[i]);
        for (uint32_t i = 0; !r && i < n; i++) {
                bool named = n > 1 && i == arg;

                if (named && mutated(s, VERIFY_MUTATION_REDUCE_DROP))
                        continue;
                r = step_add(s, &terms[(i + turn) % n], first, ret_value);
                if (!r && named && mutated(s, VERIFY_MUTATION_REDUCE_TWICE))
                        r = step_add(s, &terms[i], false, ret_value);
                first = false;
        }
        if (r || !s->what.finish || ret_value->length == 0)
                return r;
        if (!s->what.reduce || ret_value->node & VERIFY_FINISHED)
                return step_fault(s, PLAN_FAULT_VALUE, "finishes what is finished");
        ret_value->node |= VERIFY_FINISHED;
        return 0;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */
/* An element that would be copied onto itself is left alone: others may be reading it. */
static int step_write(struct step *s, uint32_t i, const struct verify_value *value) {
        struct verify_window window;
        int r = step_window(s, s->what.output[i].rank, s->what.output[i].index, true, true, &window);

        if (r)
                return r;
        for (uint32_t k = 0; k < s->what.n_sources; k++) {
                enum verify_overlap overlap = VERIFY_APART;

                if (s->what.source[k].kind != PLAN_SOURCE_CHUNK)
                        overlap = verify_memory_overlap(s->m, &s->at, &s->windows[k], &window);
                if (overlap == VERIFY_OVERLAP)
                        return step_fault(s, PLAN_FAULT_RACE, "reads and writes elements that overlap");
                if (overlap == VERIFY_SAME && s->what.n_sources == 1 && !s->what.reduce)
                        return 0;
        }
        if (s->what.reduce && value->length > 0 && !(value->node & VERIFY_FINISHED))
                return step_fault(s, PLAN_FAULT_VALUE, "writes to an output what is not finished");
        return verify_memory_write(s->m, &s->at, &window, value);
}

/* May the value travel in this form, and does it fit the slot? */
static int step_form(const struct step *s, const struct verify_value *value) {
        const struct plan_shape *shape = machine_shape(s->m, s->m->current[s->at.rank], s->at.rank);
        uint32_t slot = plan_slot_bytes(&s->request->pcase->geometry, s->phase->region_out);

        if (value->length > slot / (s->what.partial_out ? shape->partial_bytes : shape->element_bytes))
                return verify_fault(s->m->verdict, PLAN_FAULT_BOUNDS, &s->at,
                                    "phase %u of rank %u: %llu elements in a slot", s->at.phase, s->at.rank,
                                    (unsigned long long)value->length);
        if (value->length == 0)
                return 0;
        if (s->what.partial_out && (!s->what.reduce || value->node & VERIFY_FINISHED))
                return step_fault(s, PLAN_FAULT_VALUE, "sends accumulators of what is finished");
        if (s->what.reduce && !s->what.partial_out && !(value->node & VERIFY_FINISHED) &&
            verify_tree_is_pair(s->m, value->node))
                return step_fault(s, PLAN_FAULT_VALUE, "rounds what is not finished");
        return 0;
}

static int step_results(struct step *s, const struct verify_value *result) {
        bool early_flag = mutated(s, VERIFY_MUTATION_EARLY_FLAG), early = mutated(s, VERIFY_MUTATION_EARLY_RELEASE);
        const struct verify_value *value = result;
        struct verify_machine *m = s->m;
        int r = 0;

        for (uint32_t i = 0; !r && s->what.data && i < s->what.n_outputs; i++)
                r = step_write(s, i, result);
        if (s->has_own && mutated(s, VERIFY_MUTATION_FORWARD_INPUT))
                value = &s->own;
        if (!r && s->what.n_targets > 0)
                r = step_form(s, value);
        for (uint32_t i = 0; !r && i < s->what.n_targets; i++)
                r = verify_channel_push(m, channel_out(s, i), &s->at, value, s->what.partial_out,
                                        early_flag ? m->early_clock : s->clock);
        for (uint32_t i = 0; !r && i < s->what.n_sources; i++)
                if (s->what.source[i].kind == PLAN_SOURCE_CHUNK)
                        verify_channel_release(m, channel_in(s, i), &s->at, early ? m->early_clock : s->clock);
        return r;
}

int verify_step_run(struct verify_machine *m, uint32_t rank, uint32_t p) {
        const struct verify_request *request = machine_request(m, rank);
        struct verify_thread *thread = machine_thread(m, rank, p);
        uint32_t k = thread->step % thread->steps;
        struct verify_value value = {0};
        const int16_t *after;
        struct step s;
        int r;

        s.m = m;
        s.at = (struct verify_place){.rank = rank, .phase = p, .part = thread->step / thread->steps};
        s.request = request;
        s.phase = &request->plan->phases[p];
        s.clock = machine_clock(m, rank, p);
        s.has_own = false;
        if (!after_done(&s, &after))
                return STEP_WAITS;
        if (step_left_out(&s, k))
                return STEP_DONE;
        /* An executor may or may not wait for `after` before a step that is nothing: here it waits, and learns nothing.
         */
        if (!plan_step(request->plan, s.phase, &request->pcase->geometry, machine_shape(m, m->current[rank], rank),
                       rank, s.at.part, k, &s.what))
                return STEP_DONE;
        step_mutate(&s);
        if (!step_sane(&s))
                return step_fault(&s, PLAN_FAULT_MALFORMED, "talks to a rank that does not exist");
        if (!step_ready(&s))
                return STEP_WAITS;
        r = step_begin(&s, after);
        if (!r)
                r = step_combine(&s, &value);
        return r ? r : step_results(&s, &value);
}
