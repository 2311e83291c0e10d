/* SPDX-License-Identifier: MIT */
/*
 * How a plan is proved.
 *
 * The order of events in a plan does not depend on luck: which chunk a step waits for, which credit it needs and which
 * step comes before it on its own rank are fixed by the plan. So one execution in any allowed order shows all there is,
 * if it keeps track of what is ordered and what merely happened so. verify_run.c executes all phases of all ranks over
 * symbolic values and gives every (rank, phase) a component of a vector clock; clocks are joined only where the plan
 * promises order: along a phase's own cursor, `after`, a chunk's flag (push before its use), a credit (release of a
 * slot before it is written again), and the end of a rank's request before the beginning of its next one. Then
 *
 *   deadlock   nothing can move and something is unfinished
 *   race       two conflicting accesses to a rank's memory whose clocks are not ordered; in place, input and output are
 * one memory. Slots need no check of their own: flag and credit are the only way to reach them. value      every output
 * element is the declared one: a reduction of the right element of every rank, each once, in rank order, or the right
 * rank's input. What may not be written is poison or input and shows up the same way. bounds     no access outside
 * input, output or slot unconsumed pushes and consumptions of each channel are equal in each plan by itself, so that
 * FIFOs compose
 *
 * A request is verified alone and followed by another one that uses the same channels, ranks running ahead of each
 * other as far as the credits let them: clocks cover that too.
 *
 * Cases. A plan is the same program for every size; only the number of parts and the ragged ends change.
 * plan_verify_all scales parts down to one or two elements and takes part counts up to more than two laps of the slots,
 * ragged and empty shards, all interesting roots, in and out of place. From two laps on, each further part repeats the
 * state of the one `slots` parts before it. The arithmetic of spans with the real geometry is checked by itself: the
 * parts of each range tile it without gap or overlap, and fit their slot.
 *
 * Chunk numbers. Flags hold the exact number of the chunk; a slot is rewritten every lap, so the only other value it
 * can hold is `slots` less, also when the 32-bit number wraps. Equality is therefore enough, for any counter wider than
 * the number of slots.
 */
#include "plan/verify.h"

#include <errno.h>
#include <stdlib.h>

#include "plan/verify_run.h"
#include "ring/ring.h"

static int malformed(struct plan_verdict *verdict, uint32_t phase, const char *text) {
        return verdict_set(verdict, PLAN_FAULT_MALFORMED, 0, phase, 0, "phase %u: %s", phase, text);
}

static bool in_range_known(const struct plan_phase *phase) {
        bool peer_range = phase->in_range == PLAN_RANGE_SHARD_PEER || phase->in_range == PLAN_RANGE_BLOCK_PEER;

        return phase->in_range > PLAN_RANGE_NONE && phase->in_range <= PLAN_RANGE_BLOCK_PEER &&
               (phase->kind == PLAN_PUSH || !peer_range);
}

static bool out_range_known(const struct plan_phase *phase) {
        bool peer_range = phase->out_range == PLAN_RANGE_SHARD_PEER || phase->out_range == PLAN_RANGE_BLOCK_PEER;

        return phase->out_range > PLAN_RANGE_NONE && phase->out_range <= PLAN_RANGE_BLOCK_PEER &&
               (phase->kind == PLAN_COPY || !peer_range);
}

/* Fields that mean something for the kind are in their enums. */
static int check_phase(const struct plan *plan, uint32_t p, struct plan_verdict *verdict) {
        const struct plan_phase *phase = &plan->phases[p];

        if (phase->kind < PLAN_PUSH || phase->kind > PLAN_WAIT)
                return malformed(verdict, p, "a kind that is not executed yet");
        if (phase->who > PLAN_WHO_OTHERS || phase->peers > PLAN_PEERS_ROOT || phase->forward > 1)
                return malformed(verdict, p, "an unknown role or set of peers");
        if (phase->who != PLAN_WHO_ALL && !plan_operation_rooted(plan->operation))
                return malformed(verdict, p, "a role in an operation without root");
        if (phase->peers == PLAN_PEERS_ROOT && phase->who != PLAN_WHO_OTHERS)
                return malformed(verdict, p, "the root as its own peer");
        if (phase->peers == PLAN_PEERS_SELF && phase->kind != PLAN_COPY)
                return malformed(verdict, p, "only COPY works on oneself");
        if (phase->kind == PLAN_REDUCE && (phase->peers != PLAN_PEERS_OTHERS || phase->who != PLAN_WHO_ALL))
                return malformed(verdict, p, "REDUCE takes all other ranks, on all ranks");
        if (phase->region_in >= plan->n_regions || phase->region_out >= plan->n_regions)
                return malformed(verdict, p, "an unknown region");
        if ((phase->kind == PLAN_PUSH || phase->kind == PLAN_REDUCE) && !in_range_known(phase))
                return malformed(verdict, p, "an unknown input range");
        if ((phase->kind == PLAN_COPY || phase->kind == PLAN_REDUCE) && !out_range_known(phase))
                return malformed(verdict, p, "an unknown output range");
        if (phase->kind == PLAN_COPY && phase->peers == PLAN_PEERS_SELF && !in_range_known(phase))
                return malformed(verdict, p, "an unknown input range");
        if (phase->forward && phase->kind != PLAN_REDUCE)
                return malformed(verdict, p, "only REDUCE forwards");
        if (phase->after < -1 || phase->after >= (int)plan->n_phases || phase->after == (int)p)
                return malformed(verdict, p, "`after` names no other phase");
        if (phase->after >= 0 && plan->phases[phase->after].who != PLAN_WHO_ALL &&
            plan->phases[phase->after].who != phase->who)
                return malformed(verdict, p, "`after` names a phase that this rank does not run");
        for (uint32_t i = 0; i < sizeof(phase->reserved); i++)
                if (phase->reserved[i])
                        return malformed(verdict, p, "reserved bytes are not zero");
        return 0;
}

static bool phase_writes(const struct plan_phase *phase) {
        return phase->kind == PLAN_PUSH || phase->kind == PLAN_SIGNAL || (phase->kind == PLAN_REDUCE && phase->forward);
}

static bool phase_reads(const struct plan_phase *phase) {
        return phase->kind == PLAN_REDUCE || phase->kind == PLAN_WAIT ||
               (phase->kind == PLAN_COPY && phase->peers != PLAN_PEERS_SELF);
}

/* A FIFO has one writer and one reader, or its order would be a matter of luck. */
static int check_channels(const struct plan *plan, struct plan_verdict *verdict) {
        for (uint32_t p = 0; p < plan->n_phases; p++)
                for (uint32_t q = p + 1; q < plan->n_phases; q++) {
                        const struct plan_phase *a = &plan->phases[p], *b = &plan->phases[q];
                        bool apart = a->who != PLAN_WHO_ALL && b->who != PLAN_WHO_ALL && a->who != b->who;

                        if (!apart && phase_writes(a) && phase_writes(b) && a->region_out == b->region_out)
                                return verdict_set(verdict, PLAN_FAULT_RACE, 0, q, 0,
                                                   "phases %u and %u write the same channels", p, q);
                        if (!apart && phase_reads(a) && phase_reads(b) && a->region_in == b->region_in)
                                return verdict_set(verdict, PLAN_FAULT_RACE, 0, q, 0,
                                                   "phases %u and %u read the same channels", p, q);
                }
        return 0;
}

static int check_form(const struct plan *plan, struct plan_verdict *verdict) {
        int r;

        if (!plan->n_ranks || plan->n_ranks > PLAN_RANKS_MAX || !plan->n_phases || plan->n_phases > PLAN_PHASES_MAX ||
            !plan->n_regions || plan->n_regions > PLAN_REGIONS_MAX)
                return malformed(verdict, 0, "ranks, phases or regions out of bounds");
        if (plan->tree != (plan_operation_reduces(plan->operation) ? (uint32_t)PLAN_TREE_RANK_ORDER : PLAN_TREE_NONE))
                return malformed(verdict, 0, "the declared tree does not fit the operation");
        for (uint32_t p = 0; p < plan->n_phases; p++) {
                r = check_phase(plan, p, verdict);
                if (r)
                        return r;
        }
        return check_channels(plan, verdict);
}

/* Pushed and consumed chunks per channel, counted from the plan alone. */
static int check_balance(const struct plan *plan, const struct plan_case *c, struct plan_verdict *verdict) {
        size_t n = plan->n_ranks, cells = PLAN_REGIONS_MAX * n * n;
        int64_t *balance = calloc(cells, sizeof(*balance));
        int r = 0;

        if (!balance)
                return -ENOMEM;
        for (uint32_t p = 0; p < plan->n_phases; p++)
                for (uint32_t me = 0; me < n; me++) {
                        const struct plan_phase *phase = &plan->phases[p];
                        int64_t parts =
                                (int64_t)plan_phase_parts(plan, phase, &c->geometry, c->count, c->element_bytes);

                        if (!plan_phase_mine(phase, me, c->root) || phase->peers == PLAN_PEERS_SELF)
                                continue;
                        for (uint32_t k = 0; k < plan_phase_peers(plan, phase, me, c->root); k++) {
                                uint32_t peer = plan_phase_peer(plan, phase, me, c->root, k);

                                if (phase_writes(phase))
                                        balance[(phase->region_out * n + me) * n + peer] += parts;
                                if (phase_reads(phase))
                                        balance[(phase->region_in * n + peer) * n + me] -= parts;
                        }
                }
        for (size_t i = 0; i < cells && !r; i++)
                if (balance[i])
                        r = verdict_set(verdict, PLAN_FAULT_UNCONSUMED, (uint32_t)(i / n % n), 0, 0,
                                        "rank %u sends rank %u %lld chunks too %s", (uint32_t)(i / n % n),
                                        (uint32_t)(i % n), (long long)(balance[i] < 0 ? -balance[i] : balance[i]),
                                        balance[i] < 0 ? "few" : "many");
        free(balance);
        return r;
}

static int check_case(const struct plan *plan, const struct plan_case *c, struct plan_verdict *verdict) {
        if (!c->geometry.slots || !c->element_bytes || c->geometry.part_bytes < c->element_bytes ||
            c->root >= plan->n_ranks)
                return malformed(verdict, 0, "the case is out of bounds");
        return check_balance(plan, c, verdict);
}

int plan_verify(const struct plan *plan, const struct plan_case *pcase, const struct plan *next,
                const struct plan_case *next_case, struct plan_verdict *ret_verdict) {
        const struct verify_request requests[2] = {{plan, pcase}, {next, next_case}};
        struct plan_verdict verdict = {0};
        int r;

        r = check_form(plan, &verdict);
        if (!r)
                r = check_case(plan, pcase, &verdict);
        if (!r && next)
                r = check_form(next, &verdict);
        if (!r && next &&
            (next->n_ranks != plan->n_ranks || next_case->geometry.slots != pcase->geometry.slots ||
             next_case->geometry.part_bytes / next_case->element_bytes !=
                     pcase->geometry.part_bytes / pcase->element_bytes))
                r = malformed(&verdict, 0, "the next plan does not share the channels");
        if (!r && next)
                r = check_case(next, next_case, &verdict);
        if (!r)
                r = verify_run(requests, next ? 2 : 1, &verdict);
        if (r > 0)
                *ret_verdict = verdict;
        return r;
}

/* ---- all cases of a plan
 * ------------------------------------------------------------------------------------------------ */

/* Spans with the real geometry: parts tile every range, shards tile the whole, everything fits a slot. */
static int check_spans(const struct plan *plan, const struct plan_geometry *geometry, struct plan_verdict *verdict) {
        static const uint64_t counts[] = {0, 1, 2, 3, 7, 63, 64, 65, 1000, 4095, 4097, 65521, 262147};
        static const uint32_t sizes[] = {1, 2, 4, 8};

        for (unsigned int c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
                for (unsigned int z = 0; z < sizeof(sizes) / sizeof(sizes[0]); z++)
                        for (uint32_t range = PLAN_RANGE_WHOLE; range <= PLAN_RANGE_SHARD_ME; range++) {
                                uint32_t last = range == PLAN_RANGE_WHOLE ? 0 : plan->n_ranks - 1;
                                struct plan_phase phase = {.kind = PLAN_PUSH, .in_range = (uint8_t)range};
                                uint64_t parts = plan_phase_parts(plan, &phase, geometry, counts[c], sizes[z]), at = 0;

                                for (uint32_t me = 0; me <= last; me++)
                                        for (uint64_t i = 0; i < parts; i++) {
                                                struct plan_span s =
                                                        plan_span(range, plan, geometry, counts[c], sizes[z], me, 0, i);

                                                if ((s.length && s.offset != at) ||
                                                    s.length * sizes[z] > geometry->part_bytes)
                                                        return verdict_set(verdict, PLAN_FAULT_BOUNDS, me, 0, i,
                                                                           "parts do not tile the range");
                                                at += s.length;
                                        }
                                if (at != counts[c])
                                        return verdict_set(verdict, PLAN_FAULT_BOUNDS, 0, 0, 0,
                                                           "parts do not cover the range");
                        }
        return 0;
}

static bool plan_shards(const struct plan *plan) {
        for (uint32_t p = 0; p < plan->n_phases; p++)
                if (plan->phases[p].in_range == PLAN_RANGE_SHARD_ME ||
                    plan->phases[p].in_range == PLAN_RANGE_SHARD_PEER)
                        return true;
        return false;
}

/* A count that gives `parts` parts of `elements` elements, the last one ragged, and with shards a ragged and an empty
 * one. */
static uint64_t count_for(const struct plan *plan, uint64_t parts, uint64_t elements) {
        uint64_t span = parts * elements, ragged = elements > 1 && span ? 1 : 0;

        if (plan->operation == RING_OP_BARRIER)
                return 0;
        if (!plan_shards(plan))
                return span - ragged;
        return span * plan->n_ranks > span + ragged && plan->n_ranks > 2 ? span * (plan->n_ranks - 1) - ragged
                                                                         : span * plan->n_ranks - ragged;
}

#define CASE_ELEMENT_BYTES 16u /* shards are rounded to 16 bytes: with such elements to one element */

static struct plan_case case_for(const struct plan *plan, uint64_t parts, uint32_t elements, uint32_t slots,
                                 uint32_t root, bool in_place) {
        return (struct plan_case){
                .geometry = {.part_bytes = elements * CASE_ELEMENT_BYTES, .slots = slots},
                .count = count_for(plan, parts, elements),
                .element_bytes = CASE_ELEMENT_BYTES,
                .root = plan_operation_rooted(plan->operation) ? root : 0,
                .in_place = in_place,
        };
}

/* One case, followed by the same plan with another root and by a plan of `peers`. */
static int verify_case(const struct plan *plan, const struct plan_case *c, const struct plan *next, uint64_t next_parts,
                       struct plan_verdict *verdict) {
        uint32_t elements = c->geometry.part_bytes / CASE_ELEMENT_BYTES;
        struct plan_case n = case_for(next, next_parts, elements, c->geometry.slots,
                                      c->root + 1 < plan->n_ranks ? c->root + 1 : 0, !c->in_place);

        return plan_verify(plan, c, next, &n, verdict);
}

int plan_verify_all(const struct plan *plan, const struct plan_geometry *geometry, const struct plan *peers,
                    uint32_t n_peers, struct plan_verdict *ret_verdict) {
        uint32_t slots = geometry->slots, many = plan ? (plan->n_ranks > 16) : 0, i = 0;
        const uint64_t parts[] = {0, 1, slots + 1, 2 * slots + 1};
        struct plan_verdict verdict = {0};
        int r;

        if (!geometry->slots || geometry->part_bytes < 64) {
                verdict_set(ret_verdict, PLAN_FAULT_MALFORMED, 0, 0, 0, "the geometry is out of bounds");
                return PLAN_E_INVALID;
        }
        r = check_form(plan, &verdict);
        if (!r)
                r = check_spans(plan, geometry, &verdict);
        for (uint32_t p = many ? 2 : 0; !r && p < (many ? 3 : 4); p++)
                for (uint32_t in_place = 0; !r && in_place < 2; in_place++)
                        for (uint32_t elements = 1; !r && elements <= (many ? 1 : 2); elements++) {
                                const uint32_t roots[] = {0, plan->n_ranks - 1, plan->n_ranks / 2};

                                for (uint32_t k = 0;
                                     !r && k < (plan_operation_rooted(plan->operation) && !many ? 3 : 1); k++) {
                                        struct plan_case c =
                                                case_for(plan, parts[p], elements, slots, roots[k], in_place);

                                        r = verify_case(plan, &c, plan, parts[(p + 1) % 4], &verdict);
                                        if (!r && n_peers)
                                                r = verify_case(plan, &c, &peers[i++ % n_peers], parts[3 - p],
                                                                &verdict);
                                }
                        }
        if (r > 0)
                *ret_verdict = verdict;
        return r;
}
