/* SPDX-License-Identifier: MIT */
/* The verifier accepts every plan and rejects every change of a plan that the oracle finds harmful. */
#include "tests/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/verify.h"
#include "ring/ring.h"

static const uint32_t all_plans[][2] = {
        {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT},   {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT}, {RING_OP_ALL_GATHER, PLAN_DIRECT},
        {RING_OP_REDUCE_SCATTER, PLAN_DIRECT}, {RING_OP_BROADCAST, PLAN_DIRECT},    {RING_OP_BARRIER, PLAN_DIRECT},
};
#define N_PLANS (sizeof(all_plans) / sizeof(all_plans[0]))

static struct plan build(unsigned int i, uint32_t n_ranks) {
        struct plan plan;

        assert_int_equal(plan_build(all_plans[i][0], all_plans[i][1], n_ranks, &plan), PLAN_OK);
        return plan;
}

static void accepts_all(void **state) {
        static const uint32_t ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 24, 33, 63, 64};
        unsigned int accepted = 0;

        (void)state;
        for (unsigned int k = 0; k < sizeof(ranks) / sizeof(ranks[0]); k++) {
                struct plan peers[N_PLANS];
                struct plan_geometry geometry;

                plan_geometry_choose(ranks[k], &geometry);
                for (unsigned int i = 0; i < N_PLANS; i++)
                        peers[i] = build(i, ranks[k]);
                for (unsigned int i = 0; i < N_PLANS; i++) {
                        struct plan_verdict verdict = {0};

                        if (plan_verify_all(&peers[i], &geometry, peers, N_PLANS, &verdict))
                                fail_msg("%s %s of %u ranks refused: %s", plan_operation_name(peers[i].operation),
                                         plan_algorithm_name(peers[i].algorithm), ranks[k], verdict.text);
                        accepted++;
                }
        }
        print_message("%u plans accepted\n", accepted);
}

static struct plan_case case_of(const struct plan *plan, uint32_t variant) {
        static const uint64_t counts[] = {23, 1, 12, 40, 7};
        struct plan_case c = {
                .geometry = {.part_bytes = 32, .slots = 2},
                .count = counts[variant % 5],
                .element_bytes = 16,
                .root = plan_operation_rooted(plan->operation) ? variant % plan->n_ranks : 0,
                .in_place = variant & 1,
        };

        if (plan->operation == RING_OP_BARRIER)
                c.count = 0;
        return c;
}

/* Does any of many schedules show the plan to be wrong? */
static bool oracle_condemns(const struct plan *plan, enum oracle_mutation mutation) {
        for (unsigned int seed = 1; seed <= 60; seed++) {
                struct plan_case c = case_of(plan, seed);

                if (!oracle_run(plan, &c, 4, mutation, seed))
                        return true;
        }
        return false;
}

static bool verifier_rejects(const struct plan *plan, const struct plan *peers) {
        const struct plan_geometry geometry = {4096, 2};
        struct plan_verdict verdict = {0};

        return plan_verify_all(plan, &geometry, peers, N_PLANS, &verdict) != 0;
}

static void oracle_accepts_plans(void **state) {
        (void)state;
        for (uint32_t n = 1; n <= 5; n++)
                for (unsigned int i = 0; i < N_PLANS; i++) {
                        struct plan plan = build(i, n);

                        assert_false(oracle_condemns(&plan, ORACLE_NONE));
                }
}

/* The oracle itself can see: changed executions that no field of a plan expresses must come out wrong somewhere. */
static void oracle_is_not_blind(void **state) {
        (void)state;
        for (enum oracle_mutation m = ORACLE_NO_CREDIT; m < ORACLE_MUTATION_COUNT; m++) {
                unsigned int condemned = 0;

                for (unsigned int i = 0; i < N_PLANS; i++) {
                        struct plan plan = build(i, 3);

                        condemned += oracle_condemns(&plan, m);
                }
                assert_true(condemned >= 4);
        }
}

struct tally {
        unsigned int mutants, harmful, rejected, equivalent, strict;
};

static void judge(const struct plan *mutant, const struct plan *peers, const char *what, struct tally *tally) {
        bool harmful = oracle_condemns(mutant, ORACLE_NONE), rejected = verifier_rejects(mutant, peers);

        tally->mutants++;
        tally->harmful += harmful;
        tally->rejected += rejected;
        tally->equivalent += !harmful && !rejected;
        tally->strict += !harmful && rejected;
        if (harmful && !rejected)
                fail_msg("harmful mutant accepted: %s of %s %s, %u ranks", what, plan_operation_name(mutant->operation),
                         plan_algorithm_name(mutant->algorithm), mutant->n_ranks);
        if (!harmful && !rejected)
                print_message("  equivalent: %s of %s %s, %u ranks\n", what, plan_operation_name(mutant->operation),
                              plan_algorithm_name(mutant->algorithm), mutant->n_ranks);
}

static void drop_phase(struct plan *plan, uint32_t p) {
        memmove(&plan->phases[p], &plan->phases[p + 1], (plan->n_phases - p - 1) * sizeof(plan->phases[0]));
        plan->n_phases--;
        for (uint32_t i = 0; i < plan->n_phases; i++)
                if (plan->phases[i].after > (int)p)
                        plan->phases[i].after--;
                else if (plan->phases[i].after == (int)p)
                        plan->phases[i].after = -1;
}

/* Every single-field change of every phase, phases dropped, doubled and swapped. */
static void mutate_all(const struct plan *plan, const struct plan *peers, struct tally *tally) {
        struct plan mutant;
        char what[96];

        for (uint32_t p = 0; p < plan->n_phases; p++) {
                static const struct {
                        const char *name;
                        size_t offset;
                        int8_t low, high;
                } fields[] = {
                        {"kind", offsetof(struct plan_phase, kind), PLAN_PUSH, PLAN_WAIT},
                        {"who", offsetof(struct plan_phase, who), PLAN_WHO_ALL, PLAN_WHO_OTHERS},
                        {"peers", offsetof(struct plan_phase, peers), PLAN_PEERS_SELF, PLAN_PEERS_ROOT},
                        {"in_range", offsetof(struct plan_phase, in_range), PLAN_RANGE_NONE, PLAN_RANGE_BLOCK_PEER},
                        {"out_range", offsetof(struct plan_phase, out_range), PLAN_RANGE_NONE, PLAN_RANGE_BLOCK_PEER},
                        {"region_in", offsetof(struct plan_phase, region_in), 0, 1},
                        {"region_out", offsetof(struct plan_phase, region_out), 0, 1},
                        {"forward", offsetof(struct plan_phase, forward), 0, 1},
                        {"after", offsetof(struct plan_phase, after), -1, 2},
                };

                for (unsigned int f = 0; f < sizeof(fields) / sizeof(fields[0]); f++)
                        for (int v = fields[f].low; v <= fields[f].high; v++) {
                                int8_t *field;

                                mutant = *plan;
                                field = (int8_t *)&mutant.phases[p] + fields[f].offset;
                                if (*field == v || (fields[f].offset == offsetof(struct plan_phase, after) &&
                                                    (v == (int)p || v >= (int)plan->n_phases)))
                                        continue;
                                snprintf(what, sizeof(what), "phase %u: %s %d -> %d", p, fields[f].name, *field, v);
                                *field = (int8_t)v;
                                /* The oracle would read past its tables; the verifier must see it without help. */
                                if (mutant.phases[p].region_in >= plan->n_regions ||
                                    mutant.phases[p].region_out >= plan->n_regions) {
                                        assert_true(verifier_rejects(&mutant, peers));
                                        continue;
                                }
                                judge(&mutant, peers, what, tally);
                        }
                mutant = *plan;
                snprintf(what, sizeof(what), "phase %u dropped", p);
                drop_phase(&mutant, p);
                if (mutant.n_phases)
                        judge(&mutant, peers, what, tally);
                mutant = *plan;
                snprintf(what, sizeof(what), "phase %u doubled", p);
                mutant.phases[mutant.n_phases++] = plan->phases[p];
                judge(&mutant, peers, what, tally);
                for (uint32_t q = p + 1; q < plan->n_phases; q++) {
                        mutant = *plan;
                        snprintf(what, sizeof(what), "phases %u and %u swapped", p, q);
                        mutant.phases[p] = plan->phases[q];
                        mutant.phases[q] = plan->phases[p];
                        for (uint32_t i = 0; i < plan->n_phases; i++) {
                                int8_t *after = &mutant.phases[i].after;

                                *after = *after == (int)p ? (int8_t)q : *after == (int)q ? (int8_t)p : *after;
                        }
                        judge(&mutant, peers, what, tally);
                }
        }
}

static void rejects_mutants(void **state) {
        struct tally tally = {0};

        (void)state;
        for (uint32_t n = 2; n <= 4; n++)
                for (unsigned int i = 0; i < N_PLANS; i++) {
                        struct plan peers[N_PLANS];

                        for (unsigned int k = 0; k < N_PLANS; k++)
                                peers[k] = build(k, n);
                        mutate_all(&peers[i], peers, &tally);
                }
        print_message("%u mutants: %u harmful, %u rejected, %u equivalent, %u rejected though no schedule failed\n",
                      tally.mutants, tally.harmful, tally.rejected, tally.equivalent, tally.strict);
        assert_true(tally.harmful > 200);
}

static void random_plans(void **state) {
        unsigned int seed = 11, rejected = 0;

        (void)state;
        for (int round = 0; round < 20000; round++) {
                struct plan plan;
                const struct plan_geometry geometry = {4096, 1 + (uint32_t)rand_r(&seed) % 3};
                struct plan_verdict verdict;

                for (size_t i = 0; i < sizeof(plan); i++)
                        ((unsigned char *)&plan)[i] = (unsigned char)(rand_r(&seed) % 3);
                plan.n_ranks = (uint32_t)rand_r(&seed) % 5;
                plan.operation = (uint32_t)rand_r(&seed) % 14;
                plan.n_phases = (uint32_t)rand_r(&seed) % 10;
                plan.n_regions = (uint32_t)rand_r(&seed) % 4;
                plan.tree = (uint32_t)rand_r(&seed) % 3;
                rejected += plan_verify_all(&plan, &geometry, NULL, 0, &verdict) != 0;
        }
        assert_true(rejected > 19000);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(accepts_all),         cmocka_unit_test(oracle_accepts_plans),
                cmocka_unit_test(oracle_is_not_blind), cmocka_unit_test(rejects_mutants),
                cmocka_unit_test(random_plans),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
