/* SPDX-License-Identifier: MIT */
/*
 * Mutants of every plan, judged twice: by the oracle (execution under schedules that mean harm) and by the verifier.
 * Whatever the oracle finds harmful the verifier must reject. What it rejects although no schedule was found to do harm
 * is counted, and listed: a race that the memory here happens to survive, or a field that means nothing to the
 * execution. So is what both accept.
 *
 * Edits change a plan: one field of a plan or of one phase to every other value, two fields at once, phases dropped,
 * doubled and swapped. The verifier looks at the mutant in all its own cases.
 *
 * Executors execute one phase, of one rank or of all, otherwise than the plan says (enum verify_mutation_kind). They
 * are judged case by case: what does harm in two requests must be seen in these two.
 *
 * A sample is taken ($RAILMUX_SEED); RAILMUX_FULL=1 takes all.
 *
 * Compiled twice: for plans of one node, and (OVER_NODES) for those over several, whose mutants may also touch memory
 * of other nodes.
 */
#include <string.h>

#include "oracle_util.h"
#include "plans.h"
#include "worlds.h"

#define N_REQUESTS 3u
#ifndef SAMPLE
#define SAMPLE 8u /* one mutant in so many */
#endif
#define LONGER 20u /* times as many schedules, before what is rejected counts as harmless (RAILMUX_FULL) */

#define LISTED_RANKS 3u /* mutants of plans for so many ranks are listed */

static uint32_t n_schedules = 6;
static uint64_t seed, sampled;
static bool full;

static bool sample(void) {
        return oracle_random(&sampled) % SAMPLE == 0 || full;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */
/* One whose mutants are judged. */
struct subject {
        struct plan plan;
        uint32_t slots_min;
        char name[64];
};

static void subject_name(struct subject *subject, const char *where) {
        snprintf(subject->name, sizeof(subject->name), "%s %s%s%s", plan_operation_name(subject->plan.operation),
                 plan_algorithm_name(subject->plan.algorithm), where[0] ? " " : "", where);
}

#ifdef OVER_NODES
/* Number i; false: there are no more. What goes through channels alone is the same as on one node. */
static bool subject_at(uint32_t i, struct subject *ret_subject) {
        static struct plan_nodes nodes[N_WORLDS];

        for (uint32_t w = 0; w < N_WORLDS; w++) {
                uint32_t n;

                if (!worlds[w].small)
                        continue;
                n = world_nodes(worlds[w].nodes, &nodes[w]);
                for (uint32_t k = 0; world_plan(&nodes[w], n, k, &ret_subject->plan); k++) {
                        if (ret_subject->plan.algorithm < PLAN_HIERARCHICAL || i-- > 0)
                                continue;
                        ret_subject->slots_min = world_slots_min(&ret_subject->plan);
                        subject_name(ret_subject, worlds[w].nodes);
                        return true;
                }
        }
        return false;
}
#else
static bool subject_at(uint32_t i, struct subject *ret_subject) {
        static const uint32_t rank_counts[] = {2, 3, 4, 5};

        for (uint32_t number = 0; number < N_PLANS; number++)
                for (uint32_t k = 0; k < sizeof(rank_counts) / sizeof(rank_counts[0]); k++) {
                        if (!plans_build(number, rank_counts[k], &ret_subject->plan) || i-- > 0)
                                continue;
                        ret_subject->slots_min = plans_slots_min(number);
                        subject_name(ret_subject, "");
                        return true;
                }
        return false;
}
#endif

struct tally {
        uint32_t mutants, harmful, rejected, missed, equivalent, malformed, only_rejected;
        uint32_t by_harm[ORACLE_HARM_COUNT];
};

static void tally_print(const char *what, const struct tally *t) {
        print_message(
                "%-29s %5u mutants, %5u rejected; harmful %5u, equivalent %3u; no harm but malformed %4u, else %3u (",
                what, t->mutants, t->rejected, t->harmful, t->equivalent, t->malformed, t->only_rejected);
        for (uint32_t i = 1; i < ORACLE_HARM_COUNT; i++)
                print_message("%s%u %s", i > 1 ? ", " : "", t->by_harm[i], oracle_harm_names[i]);
        print_message(")\n");
}

static void tally_add(struct tally *into, const struct tally *t) {
        into->mutants += t->mutants;
        into->harmful += t->harmful;
        into->rejected += t->rejected;
        into->missed += t->missed;
        into->equivalent += t->equivalent;
        into->malformed += t->malformed;
        into->only_rejected += t->only_rejected;
        for (uint32_t i = 0; i < ORACLE_HARM_COUNT; i++)
                into->by_harm[i] += t->by_harm[i];
}

/* ---- edits ------------------------------------------------------------------------------------------------------- */
/* Case i, and other cases of the same plan behind it. */
static enum oracle_harm search_edit(const struct plan *plan, uint32_t slots, uint32_t i, uint32_t times) {
        const struct verify_options options = VERIFY_OPTIONS_NULL;
        struct oracle_request requests[N_REQUESTS];

        for (uint32_t r = 0; r < N_REQUESTS; r++) {
                requests[r] = (struct oracle_request){plan, oracle_case(plan, (i + 3 * r) % ORACLE_CASES)};
                requests[r].pcase.geometry.slots = slots;
        }
        return oracle_search(requests, N_REQUESTS, &options, seed + i * 1000, n_schedules * times);
}

/* A plan, and its edited copy. */
static void judge_edit(const struct subject *subject, const struct plan *mutant, const char *what,
                       struct tally *tally) {
        struct plan_geometry geometry = {64, subject->slots_min + (uint32_t)(oracle_random(&sampled) % 2)};
        struct plan_verdict verdict = {0};
        enum oracle_harm found = ORACLE_FINE;
        bool rejected, malformed;

        if (!sample())
                return;
        rejected = plan_verify_all(mutant, &geometry, NULL, 0, &verdict) != 0;
        malformed = verdict.condition == PLAN_FAULT_MALFORMED;
        tally->mutants++;
        for (uint32_t i = 0; oracle_executable(mutant) && found == ORACLE_FINE && i < ORACLE_CASES; i++) {
                found = search_edit(mutant, geometry.slots, i, 1);
                if (found != ORACLE_FINE && !rejected)
                        print_message("ACCEPTED, but %s in case %u: %s of %s %s, %u ranks, %u slots\n",
                                      oracle_harm_names[found], i, what, plan_operation_name(subject->plan.operation),
                                      plan_algorithm_name(subject->plan.algorithm), mutant->n_ranks, geometry.slots);
        }
        for (uint32_t i = 0; full && rejected && !malformed && found == ORACLE_FINE && i < ORACLE_CASES; i++)
                found = search_edit(mutant, geometry.slots, i, LONGER);
        tally->harmful += found != ORACLE_FINE;
        tally->by_harm[found]++;
        tally->rejected += rejected;
        tally->missed += found != ORACLE_FINE && !rejected;
        tally->equivalent += found == ORACLE_FINE && !rejected;
        tally->malformed += found == ORACLE_FINE && malformed;
        tally->only_rejected += found == ORACLE_FINE && rejected && !malformed;
        if (found == ORACLE_FINE && !malformed && mutant->n_ranks == LISTED_RANKS)
                print_message("  %s, no harm found: %s %s %s%s%s\n", rejected ? "rejected" : "accepted",
                              plan_operation_name(subject->plan.operation),
                              plan_algorithm_name(subject->plan.algorithm), what, rejected ? ": " : "",
                              rejected ? verdict.text : "");
}

static const struct {
        const char *name;
        size_t offset;
        int low, high;
} phase_fields[] = {
        {"kind", offsetof(struct plan_phase, kind), 0, PLAN_KIND_COUNT},
        {"who", offsetof(struct plan_phase, who), 0, PLAN_WHO_COUNT},
        {"peers", offsetof(struct plan_phase, peers), 0, PLAN_PEERS_COUNT},
        {"schedule", offsetof(struct plan_phase, schedule), 0, PLAN_SCHEDULE_COUNT},
        {"in_range", offsetof(struct plan_phase, in_range), 0, PLAN_RANGE_COUNT},
        {"out_range", offsetof(struct plan_phase, out_range), 0, PLAN_RANGE_COUNT},
        {"region_in", offsetof(struct plan_phase, region_in), 0, PLAN_REGIONS_MAX},
        {"region_out", offsetof(struct plan_phase, region_out), 0, PLAN_REGIONS_MAX},
        {"forward", offsetof(struct plan_phase, forward), 0, 2},
        {"after", offsetof(struct plan_phase, after), -2, PLAN_PHASES_MAX},
        {"after_whole", offsetof(struct plan_phase, after_whole), 0, 2},
        {"reserved", offsetof(struct plan_phase, reserved), 0, 1},
};
#define N_PHASE_FIELDS ((uint32_t)(sizeof(phase_fields) / sizeof(phase_fields[0])))

static void phase_set(struct plan *plan, uint32_t p, uint32_t field, int value) {
        *((signed char *)&plan->phases[p] + phase_fields[field].offset) = (signed char)value;
}

static void edit_phase_fields(const struct subject *subject, const struct plan *plan, uint32_t p, struct tally *tally) {
        char what[96];

        for (uint32_t f = 0; f < N_PHASE_FIELDS; f++)
                for (int value = phase_fields[f].low; value <= phase_fields[f].high; value++) {
                        struct plan mutant = *plan;

                        phase_set(&mutant, p, f, value);
                        if (memcmp(&mutant, plan, sizeof(mutant)) == 0)
                                continue;
                        mutant.n_regions = PLAN_REGIONS_MAX;
                        snprintf(what, sizeof(what), "phase %u, %s to %d", p, phase_fields[f].name, value);
                        judge_edit(subject, &mutant, what, tally);
                }
}

static void edit_plan_fields(const struct subject *subject, const struct plan *plan, struct tally *tally) {
        static const struct {
                const char *name;
                size_t offset;
                uint32_t high;
        } fields[] = {
                {"operation", offsetof(struct plan, operation), RING_OP_COUNT},
                {"tree", offsetof(struct plan, tree), PLAN_TREE_COUNT},
                {"n_shards", offsetof(struct plan, n_shards), 6},
                {"partials", offsetof(struct plan, partials), 2},
                {"n_regions", offsetof(struct plan, n_regions), PLAN_REGIONS_MAX + 1},
        };
        char what[96];

        for (uint32_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++)
                for (uint32_t value = 0; value <= fields[f].high; value++) {
                        struct plan mutant = *plan;

                        *(uint32_t *)((char *)&mutant + fields[f].offset) = value;
                        snprintf(what, sizeof(what), "%s to %u", fields[f].name, value);
                        if (memcmp(&mutant, plan, sizeof(mutant)) != 0)
                                judge_edit(subject, &mutant, what, tally);
                        if (fields[f].offset != offsetof(struct plan, operation))
                                continue;
                        for (uint32_t tree = 0; tree < PLAN_TREE_COUNT; tree++) { /* with a tree that fits */
                                mutant.tree = tree;
                                snprintf(what, sizeof(what), "operation to %u, tree to %u", value, tree);
                                if (mutant.operation != plan->operation && tree != plan->tree)
                                        judge_edit(subject, &mutant, what, tally);
                        }
                }
}

static void phase_drop(struct plan *plan, uint32_t p) {
        memmove(&plan->phases[p], &plan->phases[p + 1], (plan->n_phases - p - 1) * sizeof(plan->phases[0]));
        memset(&plan->phases[--plan->n_phases], 0, sizeof(plan->phases[0]));
        for (uint32_t i = 0; i < plan->n_phases; i++)
                if (plan->phases[i].after == (int)p) {
                        plan->phases[i].after = -1;
                        plan->phases[i].after_whole = 0;
                } else if (plan->phases[i].after > (int)p) {
                        plan->phases[i].after--;
                }
}

static void edit_phases(const struct subject *subject, const struct plan *plan, uint32_t p, struct tally *tally) {
        struct plan mutant = *plan;
        char what[96];

        if (plan->n_phases > 1) {
                phase_drop(&mutant, p);
                snprintf(what, sizeof(what), "phase %u dropped", p);
                judge_edit(subject, &mutant, what, tally);
        }
        mutant = *plan;
        mutant.phases[mutant.n_phases++] = plan->phases[p];
        snprintf(what, sizeof(what), "phase %u doubled", p);
        judge_edit(subject, &mutant, what, tally);
        mutant.phases[mutant.n_phases - 1].after = (int8_t)p;
        snprintf(what, sizeof(what), "phase %u doubled in order", p);
        judge_edit(subject, &mutant, what, tally);
        mutant.phases[mutant.n_phases - 1].after_whole = 1;
        snprintf(what, sizeof(what), "phase %u doubled, one whole after the other", p);
        judge_edit(subject, &mutant, what, tally);
        for (uint32_t q = p + 1; q < plan->n_phases; q++) {
                mutant = *plan;
                mutant.phases[p] = plan->phases[q];
                mutant.phases[q] = plan->phases[p];
                snprintf(what, sizeof(what), "phases %u and %u swapped, not their names", p, q);
                judge_edit(subject, &mutant, what, tally);
        }
}

/* Two random edits at once, of values that exist, so that few are malformed. */
static void edit_pairs(const struct subject *subject, const struct plan *plan, uint64_t *random, struct tally *tally) {
        char what[96];

        for (uint32_t i = 0; i < 120; i++) {
                struct plan mutant = *plan;
                uint32_t p[2], field[2];
                int value[2];

                for (uint32_t k = 0; k < 2; k++) {
                        p[k] = (uint32_t)(oracle_random(random) % plan->n_phases);
                        field[k] = (uint32_t)(oracle_random(random) % (N_PHASE_FIELDS - 1));
                        value[k] = (int)(oracle_random(random) % (uint32_t)phase_fields[field[k]].high);
                        if (phase_fields[field[k]].low < 0)
                                value[k] = value[k] % (int)(plan->n_phases + 1) - 1;
                        phase_set(&mutant, p[k], field[k], value[k]);
                        if (mutant.phases[p[k]].after < 0)
                                mutant.phases[p[k]].after_whole = 0;
                }
                if (memcmp(&mutant, plan, sizeof(mutant)) == 0)
                        continue;
                mutant.n_regions = PLAN_REGIONS_MAX;
                snprintf(what, sizeof(what), "phase %u, %s to %d and phase %u, %s to %d", p[0],
                         phase_fields[field[0]].name, value[0], p[1], phase_fields[field[1]].name, value[1]);
                judge_edit(subject, &mutant, what, tally);
        }
}

static void test_edits(void **state) {
        struct tally all = {0}, tally = {0};
        char last[64] = "";
        struct subject subject;
        uint64_t random = seed;
        uint32_t n_plans = 0;

        (void)state;
        sampled = seed;
        for (; subject_at(n_plans, &subject); n_plans++) {
                if (strcmp(last, subject.name) != 0) { /* the same for other numbers of ranks is added up */
                        if (n_plans > 0)
                                tally_print(last, &tally);
                        tally_add(&all, &tally);
                        tally = (struct tally){0};
                        memcpy(last, subject.name, sizeof(last));
                }
                for (uint32_t p = 0; p < subject.plan.n_phases; p++) {
                        edit_phase_fields(&subject, &subject.plan, p, &tally);
                        edit_phases(&subject, &subject.plan, p, &tally);
                }
                edit_plan_fields(&subject, &subject.plan, &tally);
                edit_pairs(&subject, &subject.plan, &random, &tally);
        }
        tally_print(last, &tally);
        tally_add(&all, &tally);
        tally_print("edits", &all);
        print_message("%u plans\n", n_plans);
        assert_int_equal(all.missed, 0);
        assert_true(all.harmful > 500);
#ifdef OVER_NODES
        assert_true(all.by_harm[ORACLE_FAR] > 0);
#endif
        assert_true(all.equivalent < all.mutants / 10);
        assert_true(all.only_rejected < all.mutants / 50);
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
        [VERIFY_MUTATION_NO_FINISH] = "no_finish",
        [VERIFY_MUTATION_TWICE_FINISH] = "twice_finish",
        [VERIFY_MUTATION_PARTIAL] = "partial",
};

static void judge_executor(const struct subject *subject, const struct plan *plan,
                           const struct verify_mutation *mutation, struct tally *tally, uint32_t *ret_cases) {
        const struct verify_options options = {.counter_bits = 32, .mutation = *mutation};
        bool any_harm = false, any_rejected = false, missed = false;
        enum oracle_harm first = ORACLE_FINE;

        for (uint32_t i = 0; i < ORACLE_CASES; i++) {
                struct plan_case c = oracle_case(plan, i), next = oracle_case(plan, (i + 3) % ORACLE_CASES);
                struct plan_verdict verdict = {0};
                enum oracle_harm found;
                bool rejected;

                if (c.geometry.slots < subject->slots_min)
                        c.geometry.slots = subject->slots_min;
                next.geometry = c.geometry;
                rejected = verify_pair(plan, &c, plan, &next, &options, &verdict) != 0;
                found = oracle_search((struct oracle_request[]){{plan, c}, {plan, next}}, 2, &options,
                                      seed + i * 1000 + 7, rejected && full ? n_schedules * LONGER : n_schedules);
                ++*ret_cases;
                if (found != ORACLE_FINE && !rejected) {
                        print_message("ACCEPTED, but %s in case %u: %s of phase %u, rank %d, arg %u in %s %s, %u "
                                      "ranks\n",
                                      oracle_harm_names[found], i, mutation_names[mutation->kind], mutation->phase,
                                      (int)mutation->rank, mutation->arg, plan_operation_name(plan->operation),
                                      plan_algorithm_name(plan->algorithm), plan->n_ranks);
                        missed = true;
                }
                if (!any_harm)
                        first = found;
                any_harm = any_harm || found != ORACLE_FINE;
                any_rejected = any_rejected || rejected;
        }
        tally->mutants++;
        tally->harmful += any_harm;
        tally->by_harm[first]++;
        tally->rejected += any_rejected;
        tally->missed += missed;
        tally->equivalent += !any_harm && !any_rejected;
        tally->only_rejected += !any_harm && any_rejected;
        if (!any_harm && any_rejected && plan->n_ranks == LISTED_RANKS && mutation->rank == VERIFY_EVERY_RANK)
                print_message("  rejected, no harm found: %s of phase %u, arg %u in %s %s\n",
                              mutation_names[mutation->kind], mutation->phase, mutation->arg,
                              plan_operation_name(plan->operation), plan_algorithm_name(plan->algorithm));
}

/* What the steps of a schedule do. */
static void look_at_schedule(const struct plan *plan, const struct plan_phase *phase, bool *sends, bool *takes,
                             bool *combines) {
        const struct plan_geometry geometry = {.part_bytes = 64, .slots = 2};
        const struct plan_shape shape = {.count = 64, .element_bytes = 4, .partial_bytes = 4};
        uint64_t ones[PLAN_RANKS_MAX] = {1, 1, 1, 1, 1, 1, 1, 1}, zeros[PLAN_RANKS_MAX] = {0};
        const struct plan_vector vector = {ones, zeros, ones, zeros};
        struct plan_shape with_vector = shape;

        with_vector.vector = &vector;
        for (uint32_t me = 0; me < plan->n_ranks; me++)
                for (uint32_t k = 0; k < plan_phase_steps(plan, phase, &shape, me); k++) {
                        struct plan_step step;

                        if (!plan_step(plan, phase, &geometry, &with_vector, me, 0, k, &step))
                                continue;
                        *sends = *sends || step.n_targets > 0;
                        *combines = *combines || (step.data && step.n_sources > 1);
                        for (uint32_t i = 0; i < step.n_sources; i++)
                                *takes = *takes || step.source[i].kind == PLAN_SOURCE_CHUNK;
                }
}

/* Has the mutation a meaning for this phase? */
static bool applies(const struct plan *plan, const struct plan_phase *phase, uint32_t kind) {
        bool from_others = phase->peers != PLAN_PEERS_SELF, pass = phase->kind == PLAN_PASS;
        bool sends = phase->kind == PLAN_PUSH || phase->kind == PLAN_SIGNAL || phase->forward;
        bool takes =
                phase->kind == PLAN_REDUCE || phase->kind == PLAN_WAIT || (phase->kind == PLAN_COPY && from_others);
        bool combines = phase->kind == PLAN_REDUCE || phase->kind == PLAN_FOLD;

        if (pass)
                look_at_schedule(plan, phase, &sends, &takes, &combines);
        combines = combines && plan_operation_reduces(plan->operation);
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
                return phase->in_range != PLAN_RANGE_NONE || phase->out_range != PLAN_RANGE_NONE;
        case VERIFY_MUTATION_EARLY_AFTER:
                return phase->after >= 0;
        case VERIFY_MUTATION_REDUCE_DROP:
        case VERIFY_MUTATION_REDUCE_TWICE:
        case VERIFY_MUTATION_REDUCE_ORDER:
        case VERIFY_MUTATION_NO_FINISH:
                return combines;
        case VERIFY_MUTATION_TWICE_FINISH:
                return plan_operation_reduces(plan->operation) && !(phase->kind == PLAN_FOLD);
        case VERIFY_MUTATION_PARTIAL:
                return sends && plan_operation_reduces(plan->operation) && phase->kind != PLAN_SIGNAL;
        case VERIFY_MUTATION_FORWARD_INPUT:
                return (pass && sends) || phase->forward;
        default:
                return true;
        }
}

static void executors_of_phase(const struct subject *subject, uint32_t p, uint32_t kind, uint32_t n_args,
                               struct tally *tally, uint32_t *ret_cases) {
        const struct plan *plan = &subject->plan;
        uint32_t n = plan->n_ranks;

        for (uint32_t rank = 0; applies(plan, &plan->phases[p], kind) && rank <= n; rank++)
                for (uint32_t arg = 0; arg < n_args; arg++) {
                        struct verify_mutation mutation = {kind, rank == n ? VERIFY_EVERY_RANK : rank, p, arg};

                        if (sample())
                                judge_executor(subject, plan, &mutation, tally, ret_cases);
                }
}

static void test_executors(void **state) {
        struct tally all = {0};
        struct subject subject;
        uint32_t n_cases = 0;

        (void)state;
        sampled = seed;
        for (uint32_t kind = 1; kind < VERIFY_MUTATION_COUNT; kind++) {
                bool args = kind == VERIFY_MUTATION_SKIP_PEER || kind == VERIFY_MUTATION_SKIP_PART ||
                            kind == VERIFY_MUTATION_REDUCE_DROP || kind == VERIFY_MUTATION_REDUCE_TWICE;
                struct tally tally = {0};

                for (uint32_t i = 0; subject_at(i, &subject); i++)
                        for (uint32_t p = 0; p < subject.plan.n_phases; p++)
                                executors_of_phase(&subject, p, kind, args ? 2 : 1, &tally, &n_cases);
                tally_print(mutation_names[kind], &tally);
                assert_true(tally.mutants > 0 && tally.harmful > 0); /* the oracle is not blind to this kind */
                tally_add(&all, &tally);
        }
        tally_print("executors", &all);
        print_message("%u cases\n", n_cases);
        assert_int_equal(all.missed, 0);
}

static int setup(void **state) {
        (void)state;
        seed = oracle_seed();
        full = oracle_full();
        print_message("%s; %u schedules of each case\n", full ? "all mutants" : "a sample of the mutants", n_schedules);
        return 0;
}

int main(int argc, char **argv) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_edits),
                cmocka_unit_test(test_executors),
        };

        if (argc > 1 && parse_u32(argv[1], &n_schedules))
                return 2;
        return cmocka_run_group_tests(tests, setup, NULL);
}
