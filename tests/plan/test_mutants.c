/* SPDX-License-Identifier: MIT */
/*
 * Mutants of every plan, judged twice: by the oracle (execution under schedules that mean harm) and by the verifier.
 * Whatever the oracle finds harmful the verifier must reject. What it rejects although no schedule was found to do harm
 * is counted and listed: a race that the memory here happens to survive, or a field that means nothing to the
 * execution.
 *
 *   edits      one field of one phase set to every other value, phases dropped, doubled and swapped, the tree, the
 * operation executors  one phase, of one rank or all, executed otherwise than the plan says (enum verify_mutation_kind)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "plan/verify.h"
#include "plans.h"
#include "tests/cmocka_all.h"
#include "util/parse.h"

#define N_CASES    8u
#define N_REQUESTS 3u

/* More with an argument. */
static uint32_t n_schedules = 6;

static const uint32_t rank_counts[] = {2, 3, 4};

struct tally {
        uint32_t mutants, harmful, rejected, equivalent, malformed, only_rejected;
        uint32_t by_harm[ORACLE_HARM_COUNT];
};

static void tally_print(const char *what, const struct tally *t) {
        print_message(
                "%-20s %4u mutants, %4u rejected; harmful %4u, equivalent %3u; no harm but malformed %4u, else %2u (",
                what, t->mutants, t->rejected, t->harmful, t->equivalent, t->malformed, t->only_rejected);
        for (uint32_t i = 1; i < ORACLE_HARM_COUNT; i++)
                print_message("%s%u %s", i > 1 ? ", " : "", t->by_harm[i], oracle_harm_names[i]);
        print_message(")\n");
}

static void tally_add(struct tally *into, const struct tally *t) {
        into->mutants += t->mutants;
        into->harmful += t->harmful;
        into->rejected += t->rejected;
        into->equivalent += t->equivalent;
        into->malformed += t->malformed;
        into->only_rejected += t->only_rejected;
        for (uint32_t i = 0; i < ORACLE_HARM_COUNT; i++)
                into->by_harm[i] += t->by_harm[i];
}

/* Small geometries, so that few elements fill many parts and slots. */
static struct plan_case case_of(const struct plan *plan, uint32_t i) {
        static const struct {
                uint32_t part_bytes, slots, element_bytes;
                uint64_t count;
        } shapes[N_CASES] = {
                {64, 2, 16, 23}, {64, 1, 16, 1}, {64, 2, 16, 12}, {64, 3, 8, 95},
                {64, 1, 16, 41}, {64, 2, 16, 4}, {64, 2, 8, 9},   {64, 1, 16, 17},
        };

        return (struct plan_case){
                .geometry = {shapes[i].part_bytes, shapes[i].slots},
                .count = plan->operation == RING_OP_BARRIER ? 0 : shapes[i].count,
                .element_bytes = shapes[i].element_bytes,
                .root = plan_operation_rooted(plan->operation) ? i % plan->n_ranks : 0,
                .in_place = i % 2 == 0,
        };
}

static enum oracle_harm judge_case(const struct plan *plan, const struct plan_case *c,
                                   const struct verify_options *options, uint32_t n_requests, uint64_t seed) {
        struct oracle_request requests[N_REQUESTS];

        for (uint32_t i = 0; i < n_requests; i++)
                requests[i] = (struct oracle_request){plan, *c};
        return oracle_search(requests, n_requests, options, seed, n_schedules);
}

/* ---- edits ------------------------------------------------------------------------------------------------------- */
/* Can it be executed at all, that is, does the oracle know what to do? */
static bool executable(const struct plan *plan) {
        for (uint32_t p = 0; p < plan->n_phases; p++) {
                const struct plan_phase *phase = &plan->phases[p];

                if (phase->kind < PLAN_PUSH || phase->kind > PLAN_WAIT || phase->region_in >= PLAN_REGIONS_MAX ||
                    phase->region_out >= PLAN_REGIONS_MAX || phase->after >= (int)plan->n_phases)
                        return false;
        }
        return true;
}

static void judge_edit(const struct plan *mutant, const char *what, struct tally *tally) {
        const struct verify_options options = VERIFY_OPTIONS_NULL;
        const struct plan_geometry geometry = {64, 2};
        struct plan_verdict verdict = {0};
        enum oracle_harm found = ORACLE_FINE;
        bool rejected = plan_verify_all(mutant, &geometry, NULL, 0, &verdict) != 0;
        bool malformed = verdict.condition == PLAN_FAULT_MALFORMED;

        tally->mutants++;
        for (uint32_t i = 0; executable(mutant) && found == ORACLE_FINE && i < N_CASES; i++) {
                struct plan_case c = case_of(mutant, i);

                found = judge_case(mutant, &c, &options, N_REQUESTS, i * 1000 + 1);
                if (found != ORACLE_FINE && !rejected)
                        fail_msg("accepted, but %s in case %u: %s of %s %s, %u ranks", oracle_harm_names[found], i,
                                 what, plan_operation_name(mutant->operation), plan_algorithm_name(mutant->algorithm),
                                 mutant->n_ranks);
        }
        tally->harmful += found != ORACLE_FINE;
        tally->by_harm[found]++;
        tally->rejected += rejected;
        tally->equivalent += found == ORACLE_FINE && !rejected;
        tally->malformed += found == ORACLE_FINE && malformed;
        tally->only_rejected += found == ORACLE_FINE && rejected && !malformed;
        if (found == ORACLE_FINE && !malformed && mutant->n_ranks == rank_counts[1])
                print_message("  %s, no harm found: %s %s %s%s%s\n", rejected ? "rejected" : "accepted",
                              plan_operation_name(mutant->operation), plan_algorithm_name(mutant->algorithm), what,
                              rejected ? ": " : "", rejected ? verdict.text : "");
}

static void phase_drop(struct plan *plan, uint32_t p) {
        memmove(&plan->phases[p], &plan->phases[p + 1], (plan->n_phases - p - 1) * sizeof(plan->phases[0]));
        memset(&plan->phases[--plan->n_phases], 0, sizeof(plan->phases[0]));
        for (uint32_t i = 0; i < plan->n_phases; i++)
                if (plan->phases[i].after == (int)p)
                        plan->phases[i].after = -1;
                else if (plan->phases[i].after > (int)p)
                        plan->phases[i].after--;
}

static void edit_fields(const struct plan *plan, uint32_t p, struct tally *tally) {
        static const struct {
                const char *name;
                size_t offset;
                int low, high;
        } fields[] = {
                {"kind", offsetof(struct plan_phase, kind), 0, PLAN_DEQUANTISE},
                {"who", offsetof(struct plan_phase, who), 0, 3},
                {"peers", offsetof(struct plan_phase, peers), 0, 3},
                {"in_range", offsetof(struct plan_phase, in_range), 0, 6},
                {"out_range", offsetof(struct plan_phase, out_range), 0, 6},
                {"region_in", offsetof(struct plan_phase, region_in), 0, 2},
                {"region_out", offsetof(struct plan_phase, region_out), 0, 2},
                {"forward", offsetof(struct plan_phase, forward), 0, 2},
                {"after", offsetof(struct plan_phase, after), -1, 3},
                {"reserved", offsetof(struct plan_phase, reserved), 0, 1},
        };
        char what[96];

        for (uint32_t regions = plan->n_regions; regions <= PLAN_REGIONS_MAX; regions++)
                for (uint32_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++)
                        for (int value = fields[f].low; value <= fields[f].high; value++) {
                                struct plan mutant = *plan;
                                signed char *field = (signed char *)&mutant.phases[p] + fields[f].offset;

                                if (*field == value)
                                        continue;
                                mutant.n_regions = regions;
                                snprintf(what, sizeof(what), "phase %u, %s %d to %d", p, fields[f].name, *field, value);
                                *field = (signed char)value;
                                judge_edit(&mutant, what, tally);
                        }
}

static void edit_phases(const struct plan *plan, uint32_t p, struct tally *tally) {
        struct plan mutant = *plan;
        char what[96];

        if (plan->n_phases > 1) {
                phase_drop(&mutant, p);
                snprintf(what, sizeof(what), "phase %u dropped", p);
                judge_edit(&mutant, what, tally);
        }
        mutant = *plan;
        mutant.phases[mutant.n_phases++] = plan->phases[p];
        snprintf(what, sizeof(what), "phase %u doubled", p);
        judge_edit(&mutant, what, tally);
        mutant.phases[mutant.n_phases - 1].after = (int8_t)p;
        snprintf(what, sizeof(what), "phase %u doubled in order", p);
        judge_edit(&mutant, what, tally);
        for (uint32_t q = p + 1; q < plan->n_phases; q++) {
                mutant = *plan;
                mutant.phases[p] = plan->phases[q];
                mutant.phases[q] = plan->phases[p];
                snprintf(what, sizeof(what), "phases %u and %u swapped, not their names", p, q);
                judge_edit(&mutant, what, tally);
        }
}

static void edit_pairs(const struct plan *plan, uint64_t *random, struct tally *tally) {
        char what[96];

        for (uint32_t i = 0; i < 60; i++) { /* two random edits at once */
                struct plan mutant = *plan;

                for (uint32_t k = 0; k < 2; k++) {
                        struct plan_phase *phase = &mutant.phases[oracle_random(random) % plan->n_phases];

                        switch (oracle_random(random) % 7) {
                        case 0:
                                phase->kind = (uint8_t)(1 + oracle_random(random) % 5);
                                break;
                        case 1:
                                phase->peers = (uint8_t)(oracle_random(random) % 2);
                                break;
                        case 2:
                                phase->in_range = (uint8_t)(oracle_random(random) % 6);
                                break;
                        case 3:
                                phase->out_range = (uint8_t)(oracle_random(random) % 6);
                                break;
                        case 4:
                                phase->region_in = phase->region_out = (uint8_t)(oracle_random(random) % 2);
                                break;
                        case 5:
                                phase->forward ^= 1;
                                break;
                        default:
                                phase->after = (int8_t)((int)(oracle_random(random) % (plan->n_phases + 1)) - 1);
                                break;
                        }
                }
                if (memcmp(&mutant, plan, sizeof(mutant)) == 0)
                        continue;
                mutant.n_regions = PLAN_REGIONS_MAX;
                snprintf(what, sizeof(what), "two edits, number %u", i);
                judge_edit(&mutant, what, tally);
        }
}

static void test_edits(void **state) {
        struct tally all = {0};
        uint64_t random = 3;

        (void)state;
        for (uint32_t i = 0; i < N_PLANS; i++) {
                struct tally tally = {0};
                char name[32];

                for (uint32_t k = 0; k < sizeof(rank_counts) / sizeof(rank_counts[0]); k++) {
                        struct plan plan, mutant;

                        assert_int_equal(plan_build(plans[i].operation, plans[i].algorithm, rank_counts[k], &plan), 0);
                        for (uint32_t p = 0; p < plan.n_phases; p++) {
                                edit_fields(&plan, p, &tally);
                                edit_phases(&plan, p, &tally);
                        }
                        for (uint32_t j = 0; j < N_PLANS; j++) /* another operation's phases */
                                if (plans[j].operation != plan.operation) {
                                        mutant = plan;
                                        mutant.operation = plans[j].operation;
                                        mutant.tree = plan_operation_reduces(mutant.operation) ? PLAN_TREE_RANK_ORDER
                                                                                               : PLAN_TREE_NONE;
                                        judge_edit(&mutant, "operation", &tally);
                                }
                        edit_pairs(&plan, &random, &tally);
                }
                snprintf(name, sizeof(name), "%s %s", plan_operation_name(plans[i].operation),
                         plans[i].algorithm == PLAN_DIRECT ? "" : plan_algorithm_name(plans[i].algorithm));
                tally_print(name, &tally);
                tally_add(&all, &tally);
        }
        tally_print("edits", &all);
        assert_true(all.harmful > 500);
        assert_true(all.equivalent < all.mutants / 10);
        assert_true(all.only_rejected < all.mutants / 100);
}

/* ---- executors --------------------------------------------------------------------------------------------------- */
static const char *const mutation_names[VERIFY_MUTATION_COUNT] = {
        [VERIFY_MUTATION_NO_CREDIT] = "no_credit",
        [VERIFY_MUTATION_NO_CHUNK] = "no_chunk",
        [VERIFY_MUTATION_STALE_CHUNK] = "stale_chunk",
        [VERIFY_MUTATION_EARLY_FLAG] = "early_flag",
        [VERIFY_MUTATION_EARLY_RELEASE] = "early_release",
        [VERIFY_MUTATION_SKIP_PEER] = "skip_peer",
        [VERIFY_MUTATION_SKIP_PART] = "skip_part",
        [VERIFY_MUTATION_SHORT] = "short",
        [VERIFY_MUTATION_SHIFT] = "shift",
        [VERIFY_MUTATION_SWAP] = "swap",
        [VERIFY_MUTATION_EARLY_AFTER] = "early_after",
        [VERIFY_MUTATION_REDUCE_DROP] = "reduce_drop",
        [VERIFY_MUTATION_REDUCE_TWICE] = "reduce_twice",
        [VERIFY_MUTATION_REDUCE_ORDER] = "reduce_order",
        [VERIFY_MUTATION_FORWARD_INPUT] = "forward_input",
        [VERIFY_MUTATION_EARLY_END] = "early_end",
};

/* Judged case by case: what does harm in two requests must be seen in these two. */
static void judge_executor(const struct plan *plan, const struct verify_mutation *mutation, struct tally *tally,
                           uint32_t *ret_cases) {
        const struct verify_options options = {.counter_bits = 32, .mutation = *mutation};
        bool any_harm = false, any_rejected = false;
        enum oracle_harm first = ORACLE_FINE;

        for (uint32_t i = 0; i < N_CASES; i++) {
                struct plan_case c = case_of(plan, i);
                struct plan_verdict verdict = {0};
                bool rejected = verify_pair(plan, &c, plan, &c, &options, &verdict) != 0;
                enum oracle_harm found = judge_case(plan, &c, &options, 2, i * 1000 + 7);

                ++*ret_cases;
                if (found != ORACLE_FINE && !rejected)
                        fail_msg("accepted, but %s in case %u: %s of phase %u, rank %d, arg %u in %s %s, %u ranks",
                                 oracle_harm_names[found], i, mutation_names[mutation->kind], mutation->phase,
                                 (int)mutation->rank, mutation->arg, plan_operation_name(plan->operation),
                                 plan_algorithm_name(plan->algorithm), plan->n_ranks);
                if (!any_harm)
                        first = found;
                any_harm = any_harm || found != ORACLE_FINE;
                any_rejected = any_rejected || rejected;
        }
        tally->mutants++;
        tally->harmful += any_harm;
        tally->by_harm[first]++;
        tally->rejected += any_rejected;
        tally->equivalent += !any_harm && !any_rejected;
        tally->only_rejected += !any_harm && any_rejected;
        if (!any_harm && any_rejected && plan->n_ranks == rank_counts[1] && mutation->rank == VERIFY_EVERY_RANK)
                print_message("  rejected, no harm found: %s of phase %u, arg %u in %s %s\n",
                              mutation_names[mutation->kind], mutation->phase, mutation->arg,
                              plan_operation_name(plan->operation), plan_algorithm_name(plan->algorithm));
}

/* Has the mutation a meaning for this phase? */
static bool applies(const struct plan_phase *phase, uint32_t kind) {
        bool sends = phase->kind == PLAN_PUSH || phase->kind == PLAN_SIGNAL || phase->forward;
        bool takes = phase->kind == PLAN_REDUCE || phase->kind == PLAN_WAIT ||
                     (phase->kind == PLAN_COPY && phase->peers != PLAN_PEERS_SELF);

        switch (kind) {
        case VERIFY_MUTATION_NO_CREDIT:
        case VERIFY_MUTATION_EARLY_FLAG:
                return sends;
        case VERIFY_MUTATION_NO_CHUNK:
        case VERIFY_MUTATION_STALE_CHUNK:
        case VERIFY_MUTATION_EARLY_RELEASE:
                return takes;
        case VERIFY_MUTATION_SHORT:
        case VERIFY_MUTATION_SHIFT:
        case VERIFY_MUTATION_SWAP:
                return phase->kind != PLAN_SIGNAL && phase->kind != PLAN_WAIT;
        case VERIFY_MUTATION_EARLY_AFTER:
                return phase->after >= 0;
        case VERIFY_MUTATION_REDUCE_DROP:
        case VERIFY_MUTATION_REDUCE_TWICE:
        case VERIFY_MUTATION_REDUCE_ORDER:
                return phase->kind == PLAN_REDUCE;
        case VERIFY_MUTATION_FORWARD_INPUT:
                return phase->forward;
        default:
                return true;
        }
}

static void test_executors(void **state) {
        struct tally all = {0};
        uint32_t n_cases = 0;

        (void)state;
        for (uint32_t kind = 1; kind < VERIFY_MUTATION_COUNT; kind++) {
                bool args = kind == VERIFY_MUTATION_SKIP_PEER || kind == VERIFY_MUTATION_SKIP_PART ||
                            kind == VERIFY_MUTATION_REDUCE_DROP || kind == VERIFY_MUTATION_REDUCE_TWICE;
                struct tally tally = {0};

                for (uint32_t i = 0; i < N_PLANS * sizeof(rank_counts) / sizeof(rank_counts[0]); i++) {
                        uint32_t n = rank_counts[i / N_PLANS];
                        struct plan plan;

                        assert_int_equal(
                                plan_build(plans[i % N_PLANS].operation, plans[i % N_PLANS].algorithm, n, &plan), 0);
                        for (uint32_t p = 0; p < plan.n_phases; p++)
                                for (uint32_t rank = 0; applies(&plan.phases[p], kind) && rank <= n; rank++)
                                        for (uint32_t arg = 0; arg < (args ? 2u : 1u); arg++) {
                                                struct verify_mutation mutation = {
                                                        kind, rank == n ? VERIFY_EVERY_RANK : rank, p, arg};

                                                judge_executor(&plan, &mutation, &tally, &n_cases);
                                        }
                }
                tally_print(mutation_names[kind], &tally);
                assert_true(tally.mutants > 0 && tally.harmful > 0); /* the oracle is not blind to this kind */
                tally_add(&all, &tally);
        }
        tally_print("executors", &all);
        print_message("%u cases\n", n_cases);
}

/* ---- the plans themselves ---------------------------------------------------------------------------------------- */
/* No schedule does harm to a plan as it is; sequences of different plans, wrapping counters. */
static void test_plans(void **state) {
        uint32_t n_runs = 0, n_plans = 0;
        uint64_t random = 5;

        (void)state;
        for (uint32_t n = 1; n <= 6; n++)
                for (uint32_t i = 0; i < N_PLANS; i++, n_plans++)
                        for (uint32_t k = 0; k < 24; k++, n_runs++) {
                                struct verify_options options = {.counter_bits = k % 3 == 0 ? 3 : 32,
                                                                 .counter_first = k % 2 ? 0xfffffffeu : 0};
                                struct oracle_request requests[N_REQUESTS];
                                struct plan others[N_REQUESTS];
                                enum oracle_harm found;

                                for (uint32_t r = 0; r < N_REQUESTS; r++) {
                                        uint32_t j = r == 0 ? i : (uint32_t)(oracle_random(&random) % N_PLANS);

                                        assert_int_equal(
                                                plan_build(plans[j].operation, plans[j].algorithm, n, &others[r]), 0);
                                        requests[r] = (struct oracle_request){
                                                &others[r],
                                                case_of(&others[r], (uint32_t)(oracle_random(&random) % N_CASES))};
                                        requests[r].pcase.geometry = (struct plan_geometry){64, 1 + k % 3};
                                        requests[r].pcase.element_bytes = 16;
                                }
                                found = oracle_search(requests, N_REQUESTS, &options, oracle_random(&random), 3);
                                if (found != ORACLE_FINE)
                                        fail_msg("%s: %s %s first, %u ranks", oracle_harm_names[found],
                                                 plan_operation_name(plans[i].operation),
                                                 plan_algorithm_name(plans[i].algorithm), n);
                        }
        print_message("%u plans, %u sequences of %u requests, 3 schedules each: no harm\n", n_plans, n_runs,
                      N_REQUESTS);
}

int main(int argc, char **argv) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_plans),
                cmocka_unit_test(test_edits),
                cmocka_unit_test(test_executors),
        };

        if (argc > 1 && parse_u32(argv[1], &n_schedules))
                return 2;
        return cmocka_run_group_tests(tests, NULL, NULL);
}
