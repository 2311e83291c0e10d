/* SPDX-License-Identifier: MIT */
/* How the oracle executes steps: operation by operation. See oracle.c. */
#include <stdlib.h>

#include "oracle_world.h"
#include "plan/nodes.h"

/* Where a thread is. */
struct scene {
        struct world *w;
        uint32_t rank, p;
        struct actor *a;
        const struct plan *plan;
        const struct plan_case *c;
        const struct plan_phase *phase;
        struct plan_step *step;
        uint64_t part;
        uint32_t k;
};

static bool mutated(const struct scene *s, enum verify_mutation_kind kind) {
        return world_mutated(s->w, kind, s->rank, s->p);
}

static struct buffers *buffers_of(const struct scene *s, uint32_t rank) {
        return &s->w->buffers[s->a->lap][rank];
}

/* ---- channels ---------------------------------------------------------------------------------------------------- */
static struct fifo *fifo_of(const struct scene *s, uint32_t region, uint32_t from, uint32_t to) {
        struct fifo *f = &s->w->fifos[(region * s->w->n + from) * s->w->n + to];

        if (!f->slots) {
                f->n_slots = s->c->geometry.slots;
                if (from == to && f->n_slots < s->w->n) /* a part of each shard */
                        f->n_slots = s->w->n;
                f->slots = calloc(f->n_slots, sizeof(*f->slots));
                if (!f->slots)
                        abort();
                for (uint32_t i = 0; i < f->n_slots; i++)
                        f->slots[i].flag = s->w->options->counter_first & s->w->mask;
        }
        return f;
}
static struct fifo *fifo_in(const struct scene *s, uint32_t i) {
        return fifo_of(s, s->phase->region_in, s->step->source[i].rank, s->rank);
}
static struct fifo *fifo_out(const struct scene *s, uint32_t i) {
        return fifo_of(s, s->phase->region_out, s->rank, s->step->target[i]);
}
static struct slot *slot_in(const struct scene *s, uint32_t i) {
        struct fifo *f = fifo_in(s, i);

        return &f->slots[s->a->source_chunk[i] % f->n_slots];
}
static struct slot *slot_out(const struct scene *s, uint32_t i) {
        struct fifo *f = fifo_out(s, i);

        return &f->slots[s->a->target_chunk[i] % f->n_slots];
}

static uint32_t flag_of(const struct scene *s, uint32_t chunk) {
        return (s->w->options->counter_first + chunk + 1) & s->w->mask;
}

static bool fifo_has_room(const struct scene *s, const struct fifo *f) {
        return mutated(s, VERIFY_MUTATION_NO_CREDIT) || ((f->sent - f->credit) & s->w->mask) < f->n_slots;
}

static bool fifo_has_chunk(const struct scene *s, const struct fifo *f) {
        if (mutated(s, VERIFY_MUTATION_NO_CHUNK) || (mutated(s, VERIFY_MUTATION_STALE_CHUNK) && f->got >= f->n_slots))
                return true;
        return f->slots[f->got % f->n_slots].flag == flag_of(s, f->got);
}

/* ---- what a step is ---------------------------------------------------------------------------------------------- */
static bool ranks_exist(const struct scene *s) {
        const struct plan_step *step = s->step;
        uint32_t n = s->w->n;

        if (step->n_sources > n || step->n_outputs > n || step->n_targets > n || step->length > ORACLE_LENGTH_MAX)
                return false;
        for (uint32_t i = 0; i < step->n_sources; i++)
                if (step->source[i].rank >= n || step->source[i].index >= n)
                        return false;
        for (uint32_t i = 0; i < step->n_outputs; i++)
                if (step->output[i].rank >= n || step->output[i].index >= n)
                        return false;
        for (uint32_t i = 0; i < step->n_targets; i++)
                if (step->target[i] >= n)
                        return false;
        return true;
}

/* The word of a rank's memory where a span begins. */
static uint64_t place_of(const struct scene *s, uint32_t rank, uint32_t index, bool output, bool out_range) {
        const struct buffers *b = buffers_of(s, rank);
        uint64_t offset, limit = output ? b->n_out : b->n_in;
        uint32_t from = rank;

        if (mutated(s, VERIFY_MUTATION_SWAP)) {
                from = (from + 1) % s->w->n;
                index = (index + 1) % s->w->n;
        }
        offset = plan_span(out_range ? s->phase->out_range : s->phase->in_range, s->plan, &s->c->geometry, &b->shape,
                           from, index, s->part)
                         .offset;
        if (mutated(s, VERIFY_MUTATION_SHIFT))
                offset++;
        if (s->step->length > 0 && (offset > limit || s->step->length > limit - offset)) {
                world_harm(s->w, ORACLE_OUTSIDE);
                return 0;
        }
        return (output ? b->out_at : b->in_at) + offset;
}

static void slots_fit(const struct scene *s) {
        const struct plan_step *step = s->step;
        const struct plan_shape *shape = &buffers_of(s, s->rank)->shape;
        uint32_t in = s->phase->region_in < PLAN_REGIONS_DATA ? s->c->geometry.part_bytes : PLAN_SIGNAL_BYTES;
        uint32_t out = s->phase->region_out < PLAN_REGIONS_DATA ? s->c->geometry.part_bytes : PLAN_SIGNAL_BYTES;
        bool takes = false;

        for (uint32_t i = 0; i < step->n_sources; i++)
                takes = takes || step->source[i].kind == PLAN_SOURCE_CHUNK;
        if ((takes && step->length * (step->partial_in ? shape->partial_bytes : shape->element_bytes) > in) ||
            (step->n_targets > 0 &&
             step->length * (step->partial_out ? shape->partial_bytes : shape->element_bytes) > out))
                world_harm(s->w, ORACLE_OUTSIDE);
}

/* False: it is nothing, or cannot be. */
static bool step_prepare(struct scene *s) {
        struct plan_step *step = s->step;
        struct actor *a = s->a;

        if (!plan_step(s->plan, s->phase, &s->c->geometry, &buffers_of(s, s->rank)->shape, s->rank, s->part, s->k,
                       step))
                return false;
        if (mutated(s, VERIFY_MUTATION_SHORT) && step->length > 0)
                step->length--;
        if (mutated(s, VERIFY_MUTATION_NO_FINISH))
                step->finish = false;
        if (mutated(s, VERIFY_MUTATION_TWICE_FINISH) && step->reduce)
                step->finish = true;
        if (mutated(s, VERIFY_MUTATION_PARTIAL) && step->reduce)
                step->partial_out = !step->partial_out;
        if (!ranks_exist(s)) {
                world_harm(s->w, ORACLE_OUTSIDE);
                return false;
        }
        if (!step->data)
                step->length = 0;
        slots_fit(s);
        for (uint32_t i = 0; i < step->n_sources; i++)
                if (step->source[i].kind != PLAN_SOURCE_CHUNK)
                        a->source_at[i] = place_of(s, step->source[i].rank, step->source[i].index,
                                                   step->source[i].kind == PLAN_SOURCE_OUTPUT,
                                                   step->source[i].kind == PLAN_SOURCE_OUTPUT);
        for (uint32_t i = 0; i < step->n_outputs; i++) {
                a->output_at[i] = place_of(s, step->output[i].rank, step->output[i].index, true, true);
                a->output_stays[i] = !step->reduce && step->n_sources == 1 &&
                                     step->source[0].kind != PLAN_SOURCE_CHUNK &&
                                     step->source[0].rank == step->output[i].rank && a->source_at[0] == a->output_at[i];
        }
        return s->w->harm == ORACLE_FINE;
}

static bool step_ready(struct scene *s) {
        const struct plan_step *step = s->step;

        for (uint32_t i = 0; i < step->n_sources; i++)
                if (step->source[i].kind == PLAN_SOURCE_CHUNK && !fifo_has_chunk(s, fifo_in(s, i)))
                        return false;
        for (uint32_t i = 0; i < step->n_targets; i++)
                if (!fifo_has_room(s, fifo_out(s, i)))
                        return false;
        for (uint32_t i = 0; i < step->n_sources; i++)
                if (step->source[i].kind == PLAN_SOURCE_CHUNK)
                        s->a->source_chunk[i] = fifo_in(s, i)->got;
        for (uint32_t i = 0; i < step->n_targets; i++)
                s->a->target_chunk[i] = fifo_out(s, i)->sent;
        return true;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */
/* Elements [begin, end) of the step. */
struct half {
        uint64_t begin, end;
};

/* Nobody uses memory of a rank that has not rung, or that was told that it is done, or that is on another node. */
static uint64_t *memory_at(const struct scene *s, uint32_t rank, uint64_t at) {
        if (s->w->rung[rank] <= s->a->lap || s->w->done[rank] > s->a->lap)
                world_harm(s->w, ORACLE_LATE);
        if (s->plan->nodes && s->plan->nodes->node[rank] != s->plan->nodes->node[s->rank])
                world_harm(s->w, ORACLE_FAR);
        return buffers_of(s, rank)->words + at;
}

static void read_source(struct scene *s, uint32_t i, struct half half) {
        const struct plan_source *source = &s->step->source[i];
        const uint64_t *words = source->kind == PLAN_SOURCE_CHUNK ? slot_in(s, i)->words
                                                                  : memory_at(s, source->rank, s->a->source_at[i]);

        for (uint64_t e = half.begin; e < half.end; e++) {
                uint64_t *term = &s->a->terms[i][e];

                if (source->kind == PLAN_SOURCE_CHUNK)
                        *term = value_load(words[e], s->step->partial_in);
                else if (source->kind == PLAN_SOURCE_INPUT && s->step->reduce)
                        *term = value_contribution(source->rank, words[e]);
                else
                        *term = words[e];
        }
}

static void combine(struct scene *s, struct half half) {
        uint32_t n = s->step->n_sources, arg = s->w->options->mutation.arg;
        bool drop = n > 1 && mutated(s, VERIFY_MUTATION_REDUCE_DROP);
        bool twice = n > 1 && mutated(s, VERIFY_MUTATION_REDUCE_TWICE);
        uint32_t turn = n > 1 && mutated(s, VERIFY_MUTATION_REDUCE_ORDER);

        for (uint64_t e = half.begin; e < half.end; e++) {
                uint64_t sum = 0;
                bool any = false;

                for (uint32_t i = 0; i < n; i++) {
                        uint64_t term = s->a->terms[(i + turn) % n][e];

                        if (drop && i == arg)
                                continue;
                        sum = any ? value_combine(sum, term) : term;
                        any = true;
                        if (twice && i == arg)
                                sum = value_combine(sum, term);
                }
                s->a->result[e] = s->step->finish ? value_finish(sum) : sum;
        }
}

static void write_output(struct scene *s, uint32_t i, struct half half) {
        uint64_t *words;

        if (s->a->output_stays[i])
                return;
        words = memory_at(s, s->step->output[i].rank, s->a->output_at[i]);
        for (uint64_t e = half.begin; e < half.end; e++)
                words[e] = value_store(s->a->result[e], false);
}

static void write_chunk(struct scene *s, uint32_t i, struct half half) {
        const uint64_t *values = s->a->result;
        struct slot *slot = slot_out(s, i);

        if (mutated(s, VERIFY_MUTATION_FORWARD_INPUT))
                for (uint32_t k = s->step->n_sources; k-- > 0;)
                        if (s->step->source[k].kind == PLAN_SOURCE_INPUT)
                                values = s->a->terms[k];
        for (uint64_t e = half.begin; e < half.end; e++)
                slot->words[e] = value_store(values[e], s->step->partial_out);
}

/* Operation number `op` of one half: each source, then each output, then each chunk. */
static void move_half(struct scene *s, uint32_t op, uint32_t which) {
        const struct plan_step *step = s->step;
        struct half half = {which * (step->length / 2), which || step->length < 2 ? step->length : step->length / 2};

        if (op < step->n_sources) {
                read_source(s, op, half);
                if (op + 1 == step->n_sources)
                        combine(s, half);
        } else if (op < step->n_sources + step->n_outputs) {
                write_output(s, op - step->n_sources, half);
        } else {
                write_chunk(s, op - step->n_sources - step->n_outputs, half);
        }
}

static void post(struct scene *s, uint32_t i) {
        slot_out(s, i)->flag = flag_of(s, s->a->target_chunk[i]);
}

static void release(struct scene *s, uint32_t i) {
        if (s->step->source[i].kind == PLAN_SOURCE_CHUNK)
                fifo_in(s, i)->credit = s->a->source_chunk[i] + 1;
}

static void step_end(struct scene *s) {
        for (uint32_t i = 0; i < s->step->n_targets; i++)
                fifo_out(s, i)->sent = s->a->target_chunk[i] + 1;
        for (uint32_t i = 0; i < s->step->n_sources; i++)
                if (s->step->source[i].kind == PLAN_SOURCE_CHUNK)
                        fifo_in(s, i)->got = s->a->source_chunk[i] + 1;
        s->a->op = 0;
        s->a->ready = false;
        s->a->at++;
}

/* Operations behind readiness: both halves, flags, releases; early ones come first. False: that was the last. */
static bool step_operate(struct scene *s) {
        const struct plan_step *step = s->step;
        uint32_t n_move = step->n_sources + step->n_outputs + step->n_targets, op = s->a->op - 1;
        uint32_t n_moves = n_move * (uint32_t)(step->length < 2 ? step->length : 2);
        uint32_t early_release = mutated(s, VERIFY_MUTATION_EARLY_RELEASE) ? step->n_sources : 0;
        uint32_t early_flag = mutated(s, VERIFY_MUTATION_EARLY_FLAG) ? step->n_targets : 0;

        if (op == n_moves + step->n_targets + step->n_sources)
                return false;
        s->a->op++;
        if (op < early_release) {
                release(s, op);
                return true;
        }
        op -= early_release;
        if (op < early_flag) {
                post(s, op);
                return true;
        }
        op -= early_flag;
        if (op < n_moves) {
                move_half(s, op % n_move, op / n_move);
                return true;
        }
        op -= n_moves;
        if (early_flag == 0 && op < step->n_targets) {
                post(s, op);
                return true;
        }
        release(s, early_flag == 0 ? op - step->n_targets : op);
        return true;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */
static bool after_done(const struct scene *s) {
        const struct actor *before;
        uint64_t n_parts, need;

        if (s->phase->after < 0)
                return true;
        before = world_actor(s->w, s->rank, (uint32_t)s->phase->after);
        if (before->lap != s->a->lap)
                return before->lap > s->a->lap;
        if (before->n_steps == 0)
                return true;
        n_parts = before->n_steps / before->steps;
        need = s->phase->after_whole || s->part >= n_parts ? n_parts : s->part + 1;
        if (mutated(s, VERIFY_MUTATION_EARLY_AFTER))
                need--;
        return before->at >= need * before->steps;
}

void actor_begin(struct world *w, uint32_t rank, uint32_t p) {
        struct actor *a = world_actor(w, rank, p);
        const struct oracle_request *request = &w->requests[a->lap];
        const struct plan_shape *shape = &w->buffers[a->lap][rank].shape;
        const struct plan_phase *phase = &request->plan->phases[p];

        a->at = a->n_steps = 0;
        a->steps = 1;
        a->op = 0;
        a->ready = false;
        if (p >= request->plan->n_phases)
                return;
        a->steps = plan_phase_steps(request->plan, phase, shape, rank);
        a->n_steps = a->steps * plan_phase_parts(request->plan, phase, &request->pcase.geometry, shape, rank);
        if (a->steps == 0)
                a->steps = 1;
}

static bool step_skipped(const struct scene *s) {
        uint32_t arg = s->w->options->mutation.arg;

        return (mutated(s, VERIFY_MUTATION_SKIP_PEER) && s->k == arg) ||
               (mutated(s, VERIFY_MUTATION_SKIP_PART) && s->part == arg);
}

/* The thread's next step becomes ready, or is found to be nothing. */
static bool step_begins(struct scene *s) {
        struct actor *a = s->a;

        if (step_skipped(s)) {
                if (!after_done(s))
                        return false;
                a->at++;
                return true;
        }
        if (!a->ready) {
                a->ready = step_prepare(s);
                if (!a->ready) {
                        if (s->w->harm != ORACLE_FINE)
                                return true;
                        if (s->w->empty_waits && !after_done(s))
                                return false;
                        a->at++;
                        return true;
                }
        }
        if (!after_done(s) || !step_ready(s))
                return false;
        a->op = 1;
        return true;
}

bool actor_moves(struct world *w, uint32_t rank, uint32_t p) {
        struct actor *a = world_actor(w, rank, p);
        struct scene s = {.w = w, .rank = rank, .p = p, .a = a, .step = &a->step};

        if (a->at == a->n_steps && a->lap < w->done[rank] && a->lap + 1 < w->n_requests) {
                a->lap++;
                actor_begin(w, rank, p);
                return true;
        }
        if (a->at == a->n_steps || w->rung[rank] <= a->lap)
                return false;
        s.plan = w->requests[a->lap].plan;
        s.c = &w->requests[a->lap].pcase;
        s.phase = &s.plan->phases[p];
        s.part = a->at / a->steps;
        s.k = (uint32_t)(a->at % a->steps);
        if (a->op == 0)
                return step_begins(&s);
        for (uint32_t i = 0; i < w->grain && w->harm == ORACLE_FINE; i++)
                if (!step_operate(&s)) {
                        step_end(&s);
                        break;
                }
        return true;
}
