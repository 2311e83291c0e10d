/* SPDX-License-Identifier: MIT */
/* What each kind of phase does in one step, on symbols. See plan.c for the same in words. */
#include <string.h>

#include "plan/verify_machine.h"

struct step {
        struct verify_machine *m;
        struct verify_place at;
        const struct plan_phase *phase;
        int16_t *clock;
};

static void step_tick(struct step *s) {
        struct verify_machine *m = s->m;

        if (machine_mutated(m, VERIFY_MUTATION_EARLY_FLAG, s->at.rank, s->at.phase) ||
            machine_mutated(m, VERIFY_MUTATION_EARLY_RELEASE, s->at.rank, s->at.phase))
                memcpy(m->early_clock, s->clock, m->width * sizeof(*s->clock));
        s->clock[s->at.rank * m->n_phases + s->at.phase]++;
}

static int step_post(struct step *s, struct verify_channel_id id, const struct verify_value *value) {
        bool early = machine_mutated(s->m, VERIFY_MUTATION_EARLY_FLAG, s->at.rank, s->at.phase);

        return verify_channel_push(s->m, id, &s->at, value, early ? s->m->early_clock : s->clock);
}

static int step_release(struct step *s, struct verify_channel_id id) {
        bool early = machine_mutated(s->m, VERIFY_MUTATION_EARLY_RELEASE, s->at.rank, s->at.phase);

        return verify_channel_release(s->m, id, &s->at, early ? s->m->early_clock : s->clock);
}

static struct plan_span step_span(const struct step *s, uint32_t range, uint32_t peer) {
        const struct verify_machine *m = s->m;
        const struct verify_place *at = &s->at;
        const struct verify_request *r = machine_request(m, at->rank);
        uint32_t me = at->rank;
        struct plan_span span;

        if (machine_mutated(m, VERIFY_MUTATION_SWAP, at->rank, at->phase)) {
                me = (me + 1) % m->n_ranks;
                peer = (peer + 1) % m->n_ranks;
        }
        span = plan_span(range, r->plan, &r->pcase->geometry, r->pcase->count, r->pcase->element_bytes, me, peer,
                         at->part);
        if (span.length > 0 && machine_mutated(m, VERIFY_MUTATION_SHORT, at->rank, at->phase))
                span.length--;
        if (span.length > 0 && machine_mutated(m, VERIFY_MUTATION_SHIFT, at->rank, at->phase))
                span.offset++;
        return span;
}

/* A chunk carries at most what its slot holds. */
static int step_fits(const struct step *s, uint64_t length) {
        const struct plan_case *c = machine_request(s->m, s->at.rank)->pcase;

        if (length <= c->geometry.part_bytes / c->element_bytes)
                return 0;
        return verify_fault(s->m->verdict, PLAN_FAULT_BOUNDS, &s->at, "phase %u of rank %u: %llu elements in a slot",
                            s->at.phase, s->at.rank, (unsigned long long)length);
}

static int step_push(struct step *s, uint32_t peer) {
        struct verify_channel_id id = {s->phase->region_out, s->at.rank, peer};
        struct verify_value value = {0};
        struct plan_span span;
        int r;

        if (!verify_channel_has_room(s->m, id, &s->at))
                return STEP_WAITS;
        r = verify_channel_room_seen(s->m, id, &s->at);
        if (r)
                return r;
        step_tick(s);
        if (s->phase->kind == PLAN_PUSH) {
                span = step_span(s, s->phase->in_range, peer);
                r = step_fits(s, span.length);
                if (!r)
                        r = verify_memory_read(s->m, &s->at, span, &value);
                if (r)
                        return r;
        }
        return step_post(s, id, &value);
}

static int step_copy(struct step *s, uint32_t peer) {
        struct verify_channel_id id = {s->phase->region_in, peer, s->at.rank};
        struct plan_span none = {0};
        struct verify_value value;
        int r;

        if (!verify_channel_has_chunk(s->m, id, &s->at))
                return STEP_WAITS;
        r = verify_channel_chunk_seen(s->m, id, &s->at);
        if (r)
                return r;
        step_tick(s);
        r = verify_channel_read(s->m, id, &s->at, &value);
        if (!r)
                r = verify_memory_write(s->m, &s->at,
                                        s->phase->kind == PLAN_COPY ? step_span(s, s->phase->out_range, peer) : none,
                                        &value);
        if (r)
                return r;
        return step_release(s, id);
}

static int step_copy_self(struct step *s) {
        struct plan_span in = step_span(s, s->phase->in_range, s->at.rank);
        struct plan_span out = step_span(s, s->phase->out_range, s->at.rank);
        const struct verify_memory *memory = machine_memory(s->m, s->at.rank);
        struct verify_value value;
        int r;

        step_tick(s);
        r = verify_memory_overlap(s->m, &s->at, in, out);
        if (r || (in.length == out.length && memory->in_base + in.offset == memory->out_base + out.offset))
                return r; /* in place nothing moves */
        r = verify_memory_read(s->m, &s->at, in, &value);
        return r ? r : verify_memory_write(s->m, &s->at, out, &value);
}

static bool reduce_ready(const struct step *s) {
        for (uint32_t peer = 0; peer < s->m->n_ranks; peer++) {
                struct verify_channel_id in = {s->phase->region_in, peer, s->at.rank};
                struct verify_channel_id out = {s->phase->region_out, s->at.rank, peer};

                if (peer == s->at.rank)
                        continue;
                if (!verify_channel_has_chunk(s->m, in, &s->at) ||
                    (s->phase->forward && !verify_channel_has_room(s->m, out, &s->at)))
                        return false;
        }
        return true;
}

/* The ranks in the order in which they are added; returns how many. */
static uint32_t reduce_order(const struct step *s, uint32_t order[PLAN_RANKS_MAX + 1]) {
        const struct verify_machine *m = s->m;
        uint32_t first = 0, n = 0;

        if (machine_mutated(m, VERIFY_MUTATION_REDUCE_ORDER, s->at.rank, s->at.phase))
                first = s->at.rank;
        for (uint32_t i = 0; i < m->n_ranks; i++) {
                uint32_t rank = (first + i) % m->n_ranks;
                bool named = rank == m->options->mutation.arg;

                if (named && machine_mutated(m, VERIFY_MUTATION_REDUCE_DROP, s->at.rank, s->at.phase))
                        continue;
                order[n++] = rank;
                if (named && machine_mutated(m, VERIFY_MUTATION_REDUCE_TWICE, s->at.rank, s->at.phase))
                        order[n++] = rank;
        }
        return n;
}

/* The sum of own input and the chunks, if it is one that the operation promises: the same element of each rank's input,
 * each rank once, in rank order. */
static int reduce_values(struct step *s, const struct verify_value *own, struct verify_value *ret_sum) {
        struct verify_machine *m = s->m;
        uint32_t order[PLAN_RANKS_MAX + 1], n = reduce_order(s, order);
        struct verify_value term = {0};
        int r;

        for (uint32_t i = 0; i < n; i++) {
                struct verify_channel_id id = {s->phase->region_in, order[i], s->at.rank};

                term = *own;
                if (order[i] != s->at.rank) {
                        r = verify_channel_read(m, id, &s->at, &term);
                        if (r)
                                return r;
                }
                if (order[i] != i || term.length != own->length ||
                    (own->length > 0 &&
                     (term.origin != VERIFY_INPUT || term.rank != i || term.element != own->element)))
                        return verify_fault(m->verdict, PLAN_FAULT_VALUE, &s->at,
                                            "phase %u of rank %u: term %u of the reduction is not rank %u's",
                                            s->at.phase, s->at.rank, i, i);
        }
        if (n != m->n_ranks)
                return verify_fault(m->verdict, PLAN_FAULT_VALUE, &s->at, "phase %u of rank %u reduces %u terms of %u",
                                    s->at.phase, s->at.rank, n, m->n_ranks);
        *ret_sum = (struct verify_value){VERIFY_REDUCED, 0, own->element, own->length};
        return 0;
}

static int step_reduce(struct step *s) {
        struct verify_machine *m = s->m;
        uint32_t n = m->n_ranks, me = s->at.rank;
        struct plan_span in = step_span(s, s->phase->in_range, me);
        struct plan_span out = step_span(s, s->phase->out_range, me);
        struct verify_value own, sum;
        int r = 0;

        if (!reduce_ready(s))
                return STEP_WAITS;
        for (uint32_t i = 1; !r && i < n; i++) {
                uint32_t peer = (me + i) % n;

                r = verify_channel_chunk_seen(m, (struct verify_channel_id){s->phase->region_in, peer, me}, &s->at);
                if (!r && s->phase->forward)
                        r = verify_channel_room_seen(m, (struct verify_channel_id){s->phase->region_out, me, peer},
                                                     &s->at);
        }
        if (r)
                return r;
        step_tick(s);
        r = step_fits(s, in.length);
        if (!r)
                r = verify_memory_overlap(m, &s->at, in, out);
        if (!r)
                r = verify_memory_read(m, &s->at, in, &own);
        if (!r)
                r = reduce_values(s, &own, &sum);
        if (!r)
                r = verify_memory_write(m, &s->at, out, &sum);
        if (machine_mutated(m, VERIFY_MUTATION_FORWARD_INPUT, me, s->at.phase))
                sum = own;
        for (uint32_t i = 1; !r && s->phase->forward && i < n; i++)
                r = step_post(s, (struct verify_channel_id){s->phase->region_out, me, (me + i) % n}, &sum);
        for (uint32_t i = 1; !r && i < n; i++)
                r = step_release(s, (struct verify_channel_id){s->phase->region_in, (me + n - i) % n, me});
        return r;
}

/* Has the phase that this one names in `after` done its part? Then that part's clock, no later one, is ordered before
 * us. */
static bool after_done(struct step *s) {
        struct verify_machine *m = s->m;
        const struct verify_thread *before;
        uint64_t part = s->at.part;

        if (s->phase->after < 0)
                return true;
        before = machine_thread(m, s->at.rank, (uint32_t)s->phase->after);
        if (before->end == 0)
                return true;
        if (machine_mutated(m, VERIFY_MUTATION_EARLY_AFTER, s->at.rank, s->at.phase) && part-- == 0)
                return true;
        if (part >= before->parts)
                part = before->parts - 1;
        if (before->step < (part + 1) * before->peers)
                return false;
        clock_join(s->clock, before->part_clocks + part * m->width, m->width);
        return true;
}

int verify_step_run(struct verify_machine *m, uint32_t rank, uint32_t p) {
        const struct verify_request *request = machine_request(m, rank);
        struct verify_thread *thread = machine_thread(m, rank, p);
        uint32_t k = thread->step % thread->peers, peer;
        struct step s = {
                .m = m,
                .at = {.rank = rank, .phase = p, .part = thread->step / thread->peers},
                .phase = &request->plan->phases[p],
                .clock = machine_clock(m, rank, p),
        };

        if (!after_done(&s))
                return STEP_WAITS;
        if (m->options->mutation.kind != VERIFY_MUTATION_NONE) {
                if (machine_mutated(m, VERIFY_MUTATION_SKIP_PEER, rank, p) && k == m->options->mutation.arg)
                        return STEP_DONE;
                if (machine_mutated(m, VERIFY_MUTATION_SKIP_PART, rank, p) && s.at.part == m->options->mutation.arg)
                        return STEP_DONE;
        }
        if (s.phase->kind == PLAN_REDUCE)
                return step_reduce(&s);
        if (s.phase->peers == PLAN_PEERS_SELF)
                return step_copy_self(&s);
        peer = plan_phase_peer(request->plan, s.phase, rank, request->pcase->root, k);
        if (s.phase->kind == PLAN_PUSH || s.phase->kind == PLAN_SIGNAL)
                return step_push(&s, peer);
        return step_copy(&s, peer);
}
