/* SPDX-License-Identifier: MIT */
/* How the oracle executes phases: operation by operation. See oracle.c. */
#include "oracle_world.h"

/* What a step needs to know. */
struct scene {
        struct world *w;
        uint32_t rank, p;
        struct actor *actor;
        const struct plan *plan;
        const struct plan_case *c;
        const struct plan_phase *phase;
        struct buffers *b;
        uint64_t part;
        uint32_t k;
};

static struct fifo *fifo_of(const struct scene *s, uint32_t region, uint32_t from, uint32_t to) {
        return &s->w->fifos[(region * s->w->n + from) * s->w->n + to];
}
static struct fifo *fifo_out(const struct scene *s, uint32_t peer) {
        return fifo_of(s, s->phase->region_out, s->rank, peer);
}
static struct fifo *fifo_in(const struct scene *s, uint32_t peer) {
        return fifo_of(s, s->phase->region_in, peer, s->rank);
}

static bool fifo_has_room(const struct scene *s, const struct fifo *f) {
        return world_mutated(s->w, VERIFY_MUTATION_NO_CREDIT, s->rank, s->p) ||
               ((f->sent - f->credit) & s->w->mask) < s->w->slots;
}

static bool fifo_has_chunk(const struct scene *s, const struct fifo *f) {
        uint32_t due = (s->w->options->counter_first + f->got + 1) & s->w->mask;

        if (world_mutated(s->w, VERIFY_MUTATION_NO_CHUNK, s->rank, s->p))
                return true;
        if (world_mutated(s->w, VERIFY_MUTATION_STALE_CHUNK, s->rank, s->p) && f->got >= s->w->slots)
                return true;
        return f->slots[f->got % s->w->slots].flag == due;
}

static void fifo_post(const struct scene *s, struct fifo *f) {
        f->slots[f->sent % s->w->slots].flag = (s->w->options->counter_first + f->sent + 1) & s->w->mask;
}

static struct plan_span span_of(const struct scene *s, uint32_t range, uint32_t peer, uint64_t limit) {
        uint32_t me = s->rank;
        struct plan_span span;

        if (world_mutated(s->w, VERIFY_MUTATION_SWAP, s->rank, s->p)) {
                me = (me + 1) % s->w->n;
                peer = (peer + 1) % s->w->n;
        }
        span = plan_span(range, s->plan, &s->c->geometry, s->c->count, s->c->element_bytes, me, peer, s->part);
        if (span.length > 0 && world_mutated(s->w, VERIFY_MUTATION_SHORT, s->rank, s->p))
                span.length--;
        if (span.length > 0 && world_mutated(s->w, VERIFY_MUTATION_SHIFT, s->rank, s->p))
                span.offset++;
        if (span.length > s->w->slot_words || span.offset > limit || span.length > limit - span.offset) {
                world_harm(s->w, ORACLE_OUTSIDE);
                span = (struct plan_span){0};
        }
        return span;
}

/* The half of a span that operation `half` (0 or 1) moves. */
static uint64_t half_begin(const struct plan_span *span, uint32_t half) {
        return half == 0 ? 0 : span->length / 2;
}
static uint64_t half_end(const struct plan_span *span, uint32_t half) {
        return half == 0 ? span->length / 2 : span->length;
}

static bool after_done(const struct scene *s) {
        const struct actor *before;
        uint64_t need;

        if (s->phase->after < 0)
                return true;
        before = &s->w->actors[s->rank][s->phase->after];
        if (actor_done(before, s->actor->lap))
                return true;
        if (before->lap < s->actor->lap)
                return false;
        need = s->part + 1;
        if (world_mutated(s->w, VERIFY_MUTATION_EARLY_AFTER, s->rank, s->p))
                need--;
        return before->step >= need * before->n_peers;
}

/* Each of these does one operation: false if it has to wait. It ends the step by returning with op = 0. */
static bool do_push(const struct scene *s, uint32_t peer) {
        static const uint8_t usual[] = {0, 1, 2, 3}, early[] = {0, 3, 1, 2};
        bool flag_first = world_mutated(s->w, VERIFY_MUTATION_EARLY_FLAG, s->rank, s->p);
        struct fifo *f = fifo_out(s, peer);
        struct plan_span in = {0};
        uint32_t op = (flag_first ? early : usual)[s->actor->op];

        if (s->phase->kind == PLAN_PUSH)
                in = span_of(s, s->phase->in_range, peer, s->b->n_in);
        switch (op) {
        case 0:
                if (!fifo_has_room(s, f))
                        return false;
                break;
        case 1:
        case 2:
                for (uint64_t i = half_begin(&in, op - 1); i < half_end(&in, op - 1); i++)
                        f->slots[f->sent % s->w->slots].data[i] = s->b->words[s->b->in_at + in.offset + i];
                break;
        default:
                fifo_post(s, f);
                break;
        }
        if (++s->actor->op == 4) {
                s->actor->op = 0;
                f->sent++;
        }
        return true;
}

static bool do_copy(const struct scene *s, uint32_t peer) {
        static const uint8_t usual[] = {0, 1, 2, 3}, early[] = {0, 3, 1, 2};
        bool release_first = world_mutated(s->w, VERIFY_MUTATION_EARLY_RELEASE, s->rank, s->p);
        struct fifo *f = fifo_in(s, peer);
        struct plan_span out = {0};
        uint32_t op = (release_first ? early : usual)[s->actor->op];

        if (s->phase->kind == PLAN_COPY)
                out = span_of(s, s->phase->out_range, peer, s->b->n_out);
        switch (op) {
        case 0:
                if (!fifo_has_chunk(s, f))
                        return false;
                break;
        case 1:
        case 2:
                for (uint64_t i = half_begin(&out, op - 1); i < half_end(&out, op - 1); i++)
                        s->b->words[s->b->out_at + out.offset + i] = f->slots[f->got % s->w->slots].data[i];
                break;
        default:
                f->credit++;
                break;
        }
        if (++s->actor->op == 4) {
                s->actor->op = 0;
                f->got++;
        }
        return true;
}

static bool do_copy_self(const struct scene *s) {
        struct plan_span in = span_of(s, s->phase->in_range, s->rank, s->b->n_in);
        struct plan_span out = span_of(s, s->phase->out_range, s->rank, s->b->n_out);

        if (in.length != out.length)
                world_harm(s->w, ORACLE_WRONG);
        else if (s->b->in_at + in.offset != s->b->out_at + out.offset)
                for (uint64_t i = half_begin(&in, s->actor->op); i < half_end(&in, s->actor->op); i++)
                        s->b->words[s->b->out_at + out.offset + i] = s->b->words[s->b->in_at + in.offset + i];
        s->actor->op = (s->actor->op + 1) % 2;
        return true;
}

static uint64_t reduced_word(const struct scene *s, struct plan_span in, uint64_t i) {
        uint32_t n = s->w->n, first = world_mutated(s->w, VERIFY_MUTATION_REDUCE_ORDER, s->rank, s->p) ? s->rank : 0;
        bool drop = world_mutated(s->w, VERIFY_MUTATION_REDUCE_DROP, s->rank, s->p);
        bool twice = world_mutated(s->w, VERIFY_MUTATION_REDUCE_TWICE, s->rank, s->p);
        uint32_t arg = s->w->options->mutation.arg;
        uint64_t sum = 0;
        bool any = false;

        for (uint32_t r = 0; r < n; r++) {
                uint32_t from = (first + r) % n;
                struct fifo *f = fifo_in(s, from);
                uint64_t term = from == s->rank ? s->b->words[s->b->in_at + in.offset + i]
                                                : f->slots[f->got % s->w->slots].data[i];

                if (drop && from == arg)
                        continue;
                sum = any ? world_reduce_word(sum, term) : term;
                any = true;
                if (twice && from == arg)
                        sum = world_reduce_word(sum, term);
        }
        return sum;
}

static bool reduce_ready(const struct scene *s) {
        for (uint32_t peer = 0; peer < s->w->n; peer++)
                if (peer != s->rank && (!fifo_has_chunk(s, fifo_in(s, peer)) ||
                                        (s->phase->forward && !fifo_has_room(s, fifo_out(s, peer)))))
                        return false;
        return true;
}

/* Operations: ready, two halves, then per peer data and flag (if it forwards), then per peer release. */
static bool do_reduce(const struct scene *s) {
        uint32_t n = s->w->n, forwards = s->phase->forward ? 2 * n : 0, op = s->actor->op, peer;
        bool release_first = world_mutated(s->w, VERIFY_MUTATION_EARLY_RELEASE, s->rank, s->p);
        struct plan_span in = span_of(s, s->phase->in_range, s->rank, s->b->n_in);
        struct plan_span out = span_of(s, s->phase->out_range, s->rank, s->b->n_out);
        uint32_t releases_at = release_first ? 1 : 3 + forwards, work_at = release_first ? 1 + n : 1;
        struct fifo *f;

        if (in.length != out.length)
                world_harm(s->w, ORACLE_WRONG);
        if (op == 0) {
                if (!reduce_ready(s))
                        return false;
        } else if (op >= releases_at && op < releases_at + n) {
                peer = op - releases_at;
                if (peer != s->rank)
                        fifo_in(s, peer)->credit++;
        } else if (op - work_at < 2) {
                uint64_t block[256], begin = half_begin(&out, op - work_at), end = half_end(&out, op - work_at);

                for (uint64_t i = begin; i < end && in.length == out.length; i++)
                        block[i - begin] = reduced_word(s, in, i);
                for (uint64_t i = begin; i < end && in.length == out.length; i++)
                        s->b->words[s->b->out_at + out.offset + i] = block[i - begin];
        } else {
                bool flag = (op - work_at - 2) % 2 == 1;

                if (world_mutated(s->w, VERIFY_MUTATION_EARLY_FLAG, s->rank, s->p))
                        flag = !flag;
                peer = (op - work_at - 2) / 2;
                f = fifo_out(s, peer);
                if (peer != s->rank && flag) {
                        fifo_post(s, f);
                } else if (peer != s->rank && world_mutated(s->w, VERIFY_MUTATION_FORWARD_INPUT, s->rank, s->p)) {
                        for (uint64_t i = 0; i < in.length; i++)
                                f->slots[f->sent % s->w->slots].data[i] =
                                        world_input_word(s->actor->lap, s->rank, in.offset + i);
                } else if (peer != s->rank) {
                        for (uint64_t i = 0; i < out.length; i++)
                                f->slots[f->sent % s->w->slots].data[i] = s->b->words[s->b->out_at + out.offset + i];
                }
                if (peer != s->rank && (op - work_at - 2) % 2 == 1)
                        f->sent++;
        }
        if (++s->actor->op < 3 + forwards + n)
                return true;
        s->actor->op = 0;
        for (peer = 0; peer < n; peer++)
                if (peer != s->rank)
                        fifo_in(s, peer)->got++;
        return true;
}

void actor_begin(struct world *w, uint32_t rank, uint32_t p) {
        struct actor *a = &w->actors[rank][p];
        const struct oracle_request *request = &w->requests[a->lap];
        const struct plan_phase *phase = &request->plan->phases[p];

        a->step = a->n_steps = 0;
        a->n_peers = 1;
        if (p >= request->plan->n_phases || !plan_phase_mine(phase, rank, request->pcase.root))
                return;
        if (phase->kind != PLAN_REDUCE)
                a->n_peers = plan_phase_peers(request->plan, phase, rank, request->pcase.root);
        a->n_steps = a->n_peers * plan_phase_parts(request->plan, phase, &request->pcase.geometry, request->pcase.count,
                                                   request->pcase.element_bytes);
}

static bool step_skipped(const struct scene *s) {
        uint32_t arg = s->w->options->mutation.arg;

        return (world_mutated(s->w, VERIFY_MUTATION_SKIP_PEER, s->rank, s->p) && s->k == arg) ||
               (world_mutated(s->w, VERIFY_MUTATION_SKIP_PART, s->rank, s->p) && s->part == arg);
}

bool actor_moves(struct world *w, uint32_t rank, uint32_t p) {
        struct actor *a = &w->actors[rank][p];
        struct scene s = {.w = w, .rank = rank, .p = p, .actor = a};
        uint32_t peer;
        bool moved;

        if (a->step == a->n_steps && a->lap < w->done[rank] && a->lap + 1 < w->n_requests) {
                a->lap++;
                actor_begin(w, rank, p);
                return true;
        }
        if (a->step == a->n_steps || w->rung[rank] <= a->lap)
                return false;
        s.plan = w->requests[a->lap].plan;
        s.c = &w->requests[a->lap].pcase;
        s.phase = &s.plan->phases[p];
        s.b = &w->buffers[a->lap][rank];
        s.part = a->step / a->n_peers;
        s.k = (uint32_t)(a->step % a->n_peers);
        if (a->op == 0 && !after_done(&s))
                return false;
        peer = plan_phase_peer(s.plan, s.phase, rank, s.c->root, s.k);
        if (a->op == 0 && step_skipped(&s))
                moved = true;
        else if (s.phase->kind == PLAN_REDUCE)
                moved = do_reduce(&s);
        else if (s.phase->peers == PLAN_PEERS_SELF)
                moved = do_copy_self(&s);
        else if (s.phase->kind == PLAN_PUSH || s.phase->kind == PLAN_SIGNAL)
                moved = do_push(&s, peer);
        else
                moved = do_copy(&s, peer);
        if (moved && a->op == 0)
                a->step++;
        return moved;
}
