/* SPDX-License-Identifier: MIT */
/* What the verifier finds in plans that are broken, and in executors that do not keep to them. */
#include <string.h>

#include "plan/verify.h"
#include "plan/verify_machine.h"
#include "ring/ring.h"
#include "tests/cmocka_all.h"
#include "verify_util.h"

/* ---- one plan for each fault ------------------------------------------------------------------------------------- */
static const struct plan_case small = {.geometry = {64, 2}, .count = 90, .element_bytes = 4, .in_place = true};

static void expect_verdict(int r, const struct plan *plan, const struct plan_verdict *verdict, enum plan_fault fault) {
        if (r != PLAN_E_INVALID || verdict->condition != fault)
                fail_msg("%s %s: %d, fault %u instead of %u: %s", plan_operation_name(plan->operation),
                         plan_algorithm_name(plan->algorithm), r, verdict->condition, fault, verdict->text);
        assert_true(verdict->text[0] != 0 && memchr(verdict->text, 0, sizeof(verdict->text)));
        assert_true(verdict->rank < plan->n_ranks && verdict->phase < PLAN_PHASES_MAX);
}

static void expect_fault(const struct plan *plan, const struct plan_case *c, enum plan_fault fault) {
        struct plan_verdict verdict = {0};

        expect_verdict(plan_verify(plan, c, NULL, NULL, &verdict), plan, &verdict, fault);
        expect_verdict(plan_verify(plan, c, plan, c, &verdict), plan, &verdict, fault);
}

static void test_names_the_fault(void **state) {
        struct plan_case c = small;
        struct plan plan;

        (void)state;
        plan = build(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 4); /* in place, REDUCE overwrites what PUSH has not sent */
        plan.phases[1].after = -1;
        expect_fault(&plan, &c, PLAN_FAULT_RACE);
        c.in_place = false; /* harmless out of place */
        assert_int_equal(plan_verify(&plan, &c, NULL, NULL, &(struct plan_verdict){0}), 0);
        c.in_place = true;

        plan = build(RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, 4); /* two phases that wait for each other */
        plan.phases[0].after = 2;
        expect_fault(&plan, &c, PLAN_FAULT_DEADLOCK);

        plan = build(RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, 4); /* what is forwarded gets in front of what PUSH sends */
        plan.phases[1].region_out = 0;
        plan.phases[2].region_in = 0;
        expect_fault(&plan, &c, PLAN_FAULT_VALUE);

        plan = build(RING_OP_ALL_GATHER, PLAN_DIRECT, 4); /* blocks that are not there */
        plan.phases[0].in_range = PLAN_RANGE_BLOCK_ME;
        expect_fault(&plan, &c, PLAN_FAULT_BOUNDS);

        plan = build(RING_OP_ALL_GATHER, PLAN_DIRECT, 4); /* own block twice, others never */
        c.in_place = false;
        plan.phases[2].out_range = PLAN_RANGE_BLOCK_ME;
        expect_fault(&plan, &c, PLAN_FAULT_RACE);
        plan.phases[2].after = 1;
        expect_fault(&plan, &c, PLAN_FAULT_VALUE);

        plan = build(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 4); /* a PUSH that nobody takes, and that fits the slots */
        c.count = 5;
        plan.n_regions = 2;
        plan.phases[2] = plan.phases[0];
        plan.phases[2].region_out = 1;
        plan.n_phases = 3;
        {
                struct plan_verdict verdict = {0};

                expect_verdict(plan_verify(&plan, &c, NULL, NULL, &verdict), &plan, &verdict, PLAN_FAULT_UNCONSUMED);
        }

        plan = build(RING_OP_BARRIER, PLAN_DIRECT, 4); /* a barrier whose ranks wait for no one */
        plan.n_phases = 1;
        c.count = 0;
        expect_fault(&plan, &c, PLAN_FAULT_VALUE);
        plan = build(RING_OP_BARRIER, PLAN_RECURSIVE_DOUBLING, 4); /* the other one, with too few ranks in mind */
        plan.phases[0] = build(RING_OP_BARRIER, PLAN_DIRECT, 4).phases[0];
        expect_fault(&plan, &c, PLAN_FAULT_VALUE);
}

/* Each algorithm with each tree that is not its own. Five ranks have four different trees. */
static void test_wrong_trees(void **state) {
        struct plan all[PLANS_MAX];
        uint32_t n_all = build_all(5, all), n_wrong = 0;

        (void)state;
        for (uint32_t k = 0; k < n_all; k++)
                for (uint32_t tree = 1; tree < PLAN_TREE_COUNT; tree++) {
                        bool none = (tree == PLAN_TREE_BINARY && all[k].operation == RING_OP_REDUCE_SCATTER) ||
                                    tree >= PLAN_TREE_NODE_ORDER;
                        struct plan_case c = small;
                        struct plan plan = all[k];

                        if (!plan_operation_reduces(plan.operation) || tree == plan.tree)
                                continue;
                        c.root = plan.operation == RING_OP_REDUCE ? 2 : 0;
                        plan.tree = tree;
                        expect_fault(&plan, &c, none ? PLAN_FAULT_MALFORMED : PLAN_FAULT_VALUE);
                        n_wrong++;
                }
        assert_true(n_wrong > 30);
}

/* The output is used, or not there yet, when its rank ends. */
static void expect_late(const struct plan *plan, const struct plan_case *c) {
        struct plan_verdict verdict = {0};
        int r = plan_verify(plan, c, NULL, NULL, &verdict);

        expect_verdict(r, plan, &verdict, verdict.condition == PLAN_FAULT_VALUE ? PLAN_FAULT_VALUE : PLAN_FAULT_RACE);
}

/* Memory of others that is used too early, or too late. */
static void test_memory_of_others(void **state) {
        struct plan all[PLANS_MAX];
        uint32_t n_all = build_all(4, all), n_broken = 0;

        (void)state;
        for (uint32_t k = 0; k < n_all; k++) {
                uint32_t work = 0, last = 0; /* the READ or FOLD, and the signal that it is done */
                struct plan_case c = small;
                struct plan plan;

                if (all[k].algorithm != PLAN_ZERO_COPY)
                        continue;
                c.in_place = false;
                c.peer = plan_operation_p2p(all[k].operation) ? 3 : 0;
                for (uint32_t p = 0; p < all[k].n_phases; p++) {
                        if (all[k].phases[p].kind == PLAN_READ || all[k].phases[p].kind == PLAN_FOLD)
                                work = p;
                        if (all[k].phases[p].after_whole)
                                last = p;
                }
                assert_true(work > 0 && last > work && all[k].phases[last + 1].kind == PLAN_WAIT);
                plan = all[k];
                plan.phases[work].after = -1; /* does not wait for the others to begin */
                expect_fault(&plan, &c, PLAN_FAULT_RACE);
                plan = all[k];
                plan.phases[work].after = 0; /* waits for its own signal only, or for nothing */
                expect_fault(&plan, &c, PLAN_FAULT_RACE);
                plan = all[k];
                plan.phases[last].after_whole = 0; /* signals after the first part */
                c.count = 900;
                expect_late(&plan, &c);
                c.count = 90;
                plan.phases[last].after = -1; /* signals before it is done */
                expect_late(&plan, &c);
                plan = all[k]; /* nobody waits for that signal */
                plan.phases[last + 1] = plan.phases[plan.n_phases - 1];
                plan.n_phases--;
                expect_late(&plan, &c);
                n_broken++;
        }
        assert_true(n_broken >= 8);
}

/* A rank that fills its channel to itself before it takes anything out. */
/* A rank's channel to itself has a slot for each rank, whatever the others have; and one phase at each end. */
static void test_self_channel(void **state) {
        struct plan plan = build(RING_OP_ALL_REDUCE, PLAN_HALVING_DOUBLING, 9);
        struct plan_case c = {.geometry = {64, 1}, .count = 9 * 16, .element_bytes = 4};
        struct plan_verdict verdict = {0};

        (void)state;
        expect_ok(plan_verify(&plan, &c, &plan, &c, &verdict), &plan, &verdict); /* it keeps eight parts there */
        plan = build(RING_OP_SEND, PLAN_ZERO_COPY, 3);
        c = (struct plan_case){.geometry = {64, 2}, .element_bytes = 4, .root = 1, .peer = 1};
        for (uint32_t n = 1; n <= 3; n++) { /* n signals to itself one after another, then n waits */
                for (uint32_t i = 0; i < n; i++) {
                        plan.phases[i] = build(RING_OP_SEND, PLAN_ZERO_COPY, 3).phases[0];
                        plan.phases[i].after = (int8_t)(i - 1);
                        plan.phases[n + i] = build(RING_OP_SEND, PLAN_ZERO_COPY, 3).phases[1];
                        plan.phases[n + i].after = (int8_t)(n + i - 1);
                }
                plan.n_phases = 2 * n;
                if (n == 1)
                        expect_ok(plan_verify(&plan, &c, &plan, &c, &verdict), &plan, &verdict);
                else
                        expect_fault(&plan, &c, PLAN_FAULT_RACE);
        }
}

static void test_malformed(void **state) {
        static const struct {
                uint32_t operation, algorithm, phase;
                size_t offset;
                uint8_t value;
        } edits[] = {
#define EDIT(operation, algorithm, phase, field, value)                                                                \
        {RING_OP_##operation, PLAN_##algorithm, phase, offsetof(struct plan_phase, field), value}
                EDIT(BARRIER, DIRECT, 0, kind, PLAN_NET_PUT),
                EDIT(BARRIER, DIRECT, 0, kind, PLAN_KIND_COUNT),
                EDIT(BARRIER, DIRECT, 0, who, PLAN_WHO_COUNT),
                EDIT(BARRIER, DIRECT, 0, who, PLAN_WHO_PEER),
                EDIT(BARRIER, DIRECT, 0, peers, PLAN_PEERS_SELF),
                EDIT(BARRIER, DIRECT, 0, in_range, PLAN_RANGE_WHOLE),
                EDIT(BARRIER, DIRECT, 0, schedule, PLAN_RING_ALL_REDUCE),
                EDIT(BARRIER, DIRECT, 0, after, 0),
                EDIT(BARRIER, DIRECT, 0, after_whole, 1),
                EDIT(BARRIER, DIRECT, 0, reserved, 1),
                EDIT(BARRIER, DIRECT, 0, region_out, PLAN_REGIONS_DATA),
                EDIT(SEND, ZERO_COPY, 0, region_out, 0),
                EDIT(SEND, ZERO_COPY, 1, peers, PLAN_PEERS_OTHERS),
                EDIT(SEND, ZERO_COPY, 2, kind, PLAN_PUSH),
                EDIT(ALL_GATHER, RING, 0, schedule, PLAN_SCHEDULE_COUNT),
                EDIT(ALL_GATHER, RING, 0, schedule, PLAN_RING_ALL_REDUCE),
                EDIT(ALL_GATHER, RING, 0, who, PLAN_WHO_ROOT),
                EDIT(ALL_GATHER, DIRECT, 0, in_range, PLAN_RANGE_VECTOR_SEND),
                EDIT(ALL_TO_ALL_V, DIRECT, 0, in_range, PLAN_RANGE_WHOLE),
                EDIT(ALL_REDUCE, ONE_SHOT, 0, forward, 1),
                EDIT(REDUCE_SCATTER, RING, 0, schedule, PLAN_HALVING_REDUCE_SCATTER), /* six ranks */
#undef EDIT
        };
        struct plan_case c = {.geometry = {64, 2}, .count = 90, .element_bytes = 4};
        struct plan plan;

        (void)state;
        for (uint32_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
                plan = build(edits[i].operation, edits[i].algorithm, 6);
                plan.n_regions = PLAN_REGIONS_MAX;
                ((uint8_t *)&plan.phases[edits[i].phase])[edits[i].offset] = edits[i].value;
                expect_fault(&plan, &c, PLAN_FAULT_MALFORMED);
        }
        for (uint32_t i = 0; i < 6; i++) {
                plan = build(RING_OP_ALL_REDUCE, i % 2 ? PLAN_RING : PLAN_TWO_SHOT, 6);
                plan.n_shards = i == 0 ? 0 : i == 1 ? 7 : plan.n_shards;
                plan.partials = i == 2 ? 1 : i == 3 ? 0 : plan.partials;
                plan.tree = i == 4 ? PLAN_TREE_NONE : i == 5 ? PLAN_TREE_COUNT : plan.tree;
                expect_fault(&plan, &c, PLAN_FAULT_MALFORMED);
        }
        plan = build(RING_OP_ALL_GATHER, PLAN_DIRECT, 6);
        plan.tree = PLAN_TREE_RANK_ORDER;
        expect_fault(&plan, &c, PLAN_FAULT_MALFORMED);
}

/* ---- one plan or executor for each check ------------------------------------------------------------------------- */
/* Found by the check with this text, before any other check can see what comes of it. */
static void expect_text(const struct plan *plan, const struct plan_case *c, uint32_t mutation, uint32_t rank,
                        uint32_t phase, const char *text) {
        struct verify_options options = {.counter_bits = 32, .mutation = {mutation, rank, phase, 0}};
        struct plan_verdict verdict = {0};
        int r = verify_pair(plan, c, plan, c, &options, &verdict);

        if (r != PLAN_E_INVALID || !strstr(verdict.text, text))
                fail_msg("%s %s: \"%s\" instead of \"%s\"", plan_operation_name(plan->operation),
                         plan_algorithm_name(plan->algorithm), verdict.text, text);
}

static void expect_plan(const struct plan *plan, const struct plan_case *c, const char *text) {
        expect_text(plan, c, VERIFY_MUTATION_NONE, 0, 0, text);
}

static void test_checks_of_values(void **state) {
        const uint32_t every = VERIFY_EVERY_RANK;
        struct plan_case c = small, wide = small;
        struct plan plan;

        (void)state;
        wide.partial_bytes = 8;
        c.count = wide.count = 96;
        plan = build(RING_OP_ALL_REDUCE, PLAN_RECURSIVE_DOUBLING, 3); /* rank 2 hands a contribution to rank 0 */
        expect_text(&plan, &c, VERIFY_MUTATION_PARTIAL, 2, 0, "takes accumulators for elements");
        plan = build(RING_OP_REDUCE, PLAN_RING, 3); /* rank 2 a sum to the root */
        expect_text(&plan, &c, VERIFY_MUTATION_PARTIAL, 2, 0, "rounds what is not finished");
        plan = build(RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, 3);
        expect_text(&plan, &c, VERIFY_MUTATION_PARTIAL, every, 1, "sends accumulators of what is finished");
        expect_text(&plan, &c, VERIFY_MUTATION_SWAP, every, 0, "adds different elements");
        expect_text(&plan, &c, VERIFY_MUTATION_FORWARD_INPUT, every, 1, "writes to an output what is not finished");
        expect_text(&plan, &c, VERIFY_MUTATION_NO_FINISH, every, 1, "writes to an output what is not finished");
        plan = build(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 3);
        expect_text(&plan, &c, VERIFY_MUTATION_TWICE_FINISH, 1, 0, "adds what is finished");
        expect_text(&plan, &wide, VERIFY_MUTATION_PARTIAL, 1, 0, "elements in a slot");
        plan.phases[1].out_range = PLAN_RANGE_SHARD_ME;
        wide.in_place = false;
        expect_plan(&plan, &wide, "spans of different lengths");
        plan = build(RING_OP_ALL_REDUCE, PLAN_TREE, 3);
        expect_text(&plan, &c, VERIFY_MUTATION_TWICE_FINISH, 0, 1, "finishes what is finished");
        plan = build(RING_OP_ALL_REDUCE, PLAN_TREE, 1); /* the step down reads what the step up has written */
        expect_text(&plan, &c, VERIFY_MUTATION_SHORT, 0, 0, "partly overwritten");
        plan = build(RING_OP_ALL_REDUCE, PLAN_TREE, 3); /* and before that there is nothing to read */
        plan.phases[0] = plan.phases[1];
        plan.phases[0].after = -1;
        plan.phases[1] = build(RING_OP_ALL_REDUCE, PLAN_TREE, 3).phases[0];
        c.in_place = false;
        expect_plan(&plan, &c, "reads what nobody wrote");
        c.in_place = true;
        plan = build(RING_OP_ALL_REDUCE, PLAN_ZERO_COPY, 3); /* everything is added up again, in order */
        plan.phases[5] = plan.phases[4];
        plan.phases[4] = plan.phases[3];
        plan.phases[3] = plan.phases[2];
        plan.phases[3].after = 2;
        plan.phases[4].after = 3;
        plan.n_phases = 6;
        expect_plan(&plan, &c, "takes for an input what is none any more");
        plan = build(RING_OP_REDUCE, PLAN_DIRECT, 3);
        plan.operation = RING_OP_GATHER;
        plan.tree = PLAN_TREE_NONE;
        expect_plan(&plan, &c, "combines what the operation does not reduce");
        c.in_place = false;
        plan = build(RING_OP_BROADCAST, PLAN_DIRECT, 3);
        expect_text(&plan, &c, VERIFY_MUTATION_SHORT, 0, 0, "elements where");
        plan = build(RING_OP_ALL_TO_ALL, PLAN_DIRECT, 3);
        expect_text(&plan, &c, VERIFY_MUTATION_SWAP, 1, 0, "is not what all_to_all promises");
}

/* Each rank first copies its own piece to a place where it may cover gaps, and then does what it should. */
static void test_gaps(void **state) {
        struct plan_case c = {.geometry = {64, 2}, .count = 40, .element_bytes = 4};
        struct plan plan = build(RING_OP_ALL_TO_ALL_V, PLAN_DIRECT, 3);
        uint32_t n_right = 0, n_gaps = 0;

        (void)state;
        plan.phases[3] = plan.phases[1];
        plan.phases[3].out_range = PLAN_RANGE_VECTOR_SEND;
        plan.phases[1].after = plan.phases[2].after = 3;
        plan.phases[1].after_whole = plan.phases[2].after_whole = 1;
        plan.n_phases = 4;
        for (c.vector = 0; c.vector < 400; c.vector++) {
                struct plan_verdict verdict = {0};
                int r = plan_verify(&plan, &c, NULL, NULL, &verdict);

                n_right += r == 0;
                n_gaps += r && strstr(verdict.text, "is not what all_to_all_v promises") != NULL;
        }
        print_message("%u times right, %u times in a gap\n", n_right, n_gaps);
        assert_true(n_right > 0 && n_gaps > 0);
}

static void test_checks_of_order(void **state) {
        struct plan_case c = small;
        struct plan plan;

        (void)state;
        plan = build(RING_OP_ALL_GATHER, PLAN_DIRECT, 3); /* the own block is overwritten before it is sent */
        plan.phases[1] = plan.phases[0];
        plan.phases[0] = plan.phases[2];
        plan.phases[0].out_range = PLAN_RANGE_BLOCK_ME;
        plan.n_phases = 2;
        expect_plan(&plan, &c, "write and read rank");
        plan = build(RING_OP_BARRIER, PLAN_DIRECT, 3);
        plan.phases[2] = plan.phases[0];
        plan.phases[3] = plan.phases[1];
        plan.n_phases = 4;
        expect_plan(&plan, &c, "write to the same channel in any order");
        plan.phases[2].after = 0; /* an order, but not of all chunks: an end belongs to one phase */
        expect_plan(&plan, &c, "write to the same channel in any order");
        plan = build(RING_OP_ALL_GATHER, PLAN_DIRECT, 2);
        plan.phases[3] = plan.phases[2]; /* takes the second part away from the other */
        plan.phases[2].after = 3;
        plan.n_phases = 4;
        c = (struct plan_case){.geometry = {64, 1}, .count = 32, .element_bytes = 4};
        expect_plan(&plan, &c, "read from the same channel in any order");
        c = small;
        plan = build(RING_OP_BROADCAST, PLAN_DIRECT, 3);
        expect_text(&plan, &c, VERIFY_MUTATION_EARLY_END, 1, 2, "may complete the request before its phase 2 is done");
}

/* ---- executors that do not keep to the plan ---------------------------------------------------------------------- */
/* Every mutation of every phase: each kind is found in many plans, and those of values as what they are. */
static void test_finds_mutations(void **state) {
        struct plan all[PLANS_MAX];
        uint32_t n_all = build_all(4, all), n_found[VERIFY_MUTATION_COUNT] = {0};

        (void)state;
        for (uint32_t kind = 1; kind < VERIFY_MUTATION_COUNT; kind++) {
                bool value = kind == VERIFY_MUTATION_NO_FINISH || kind == VERIFY_MUTATION_TWICE_FINISH ||
                             kind == VERIFY_MUTATION_PARTIAL || kind == VERIFY_MUTATION_REDUCE_ORDER ||
                             kind == VERIFY_MUTATION_REDUCE_DROP || kind == VERIFY_MUTATION_REDUCE_TWICE;

                for (uint32_t k = 0; k < n_all * PLAN_PHASES_MAX; k++) {
                        const struct plan *plan = &all[k / PLAN_PHASES_MAX];
                        struct plan_case c = small;
                        struct verify_options options = {
                                .counter_bits = 32,
                                .mutation = {kind, VERIFY_EVERY_RANK, k % PLAN_PHASES_MAX, 0},
                        };
                        struct plan_verdict verdict = {0};

                        c.in_place = plan_case_in_place(plan->operation);
                        c.partial_bytes = 8; /* parts of 8 elements for accumulators: elements for them would fit */
                        if (!verify_pair(plan, &c, plan, &c, &options, &verdict))
                                continue;
                        assert_true(k % PLAN_PHASES_MAX < plan->n_phases);
                        if (value)
                                assert_true(verdict.condition == PLAN_FAULT_VALUE ||
                                            verdict.condition == PLAN_FAULT_BOUNDS);
                        n_found[kind]++;
                }
                print_message("%s%u", kind == 1 ? "plans in which mutation 1, 2, ... was found: " : ", ",
                              n_found[kind]);
                assert_true(n_found[kind] >= 3);
        }
        print_message("\n");
}

/* Plans of any bytes: a verdict, and nothing else. */
static void test_garbage(void **state) {
        uint64_t random = 11;
        uint32_t n_accepted = 0;

        (void)state;
        for (uint32_t i = 0; i < 6000; i++) {
                uint32_t n = 1 + (uint32_t)(random_next(&random) % 6);
                struct plan_geometry geometry = {64, 1 + (uint32_t)(random_next(&random) % 3)};
                struct plan_verdict verdict = {0};
                struct plan all[PLANS_MAX], *plan = &all[random_next(&random) % build_all(n, all)];
                struct plan_case c;
                int r;

                for (uint64_t k = random_next(&random) % 3; k > 0; k--)
                        ((uint8_t *)plan->phases)[random_next(&random) % (sizeof(plan->phases[0]) * plan->n_phases)] =
                                (uint8_t)(random_next(&random) % 16 - 1);
                if (random_next(&random) % 8 == 0)
                        plan->operation = (uint32_t)(random_next(&random) % RING_OP_COUNT);
                if (random_next(&random) % 8 == 0)
                        plan->n_ranks = (uint32_t)(random_next(&random) % 8);
                c = random_case(&random, &all[0], &geometry);
                c.root = (uint32_t)(random_next(&random) % n);
                r = plan_verify(plan, &c, plan, &c, &verdict);
                n_accepted += r == 0;
                assert_true(r == 0 || (r == PLAN_E_INVALID && verdict.condition != PLAN_FAULT_NONE));
        }
        print_message("%u of 6000 plans with up to two wrong bytes are right\n", n_accepted);
}

static void test_refuses_cases(void **state) {
        struct plan_geometry geometry = {4096, 2};
        struct plan_verdict verdict = {0};
        struct plan plan = build(RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 4), next = build(RING_OP_ALL_REDUCE, PLAN_RING, 5);
        struct plan_case c = small, other;

        (void)state;
        assert_int_equal(plan_verify(&plan, &c, &next, &c, &verdict), PLAN_E_INVALID); /* other communicator */
        other = c;
        other.geometry.slots++;
        assert_int_equal(plan_verify(&plan, &c, &plan, &other, &verdict), PLAN_E_INVALID); /* other channels */
        for (uint32_t i = 0; i < 6; i++) {
                other = c;
                other.element_bytes = i == 0 ? 0 : i == 1 ? 65 : 4;
                other.partial_bytes = i == 2 ? 65 : 0;
                other.geometry.slots = i == 3 ? 0 : 2;
                other.root = i == 4 ? 4 : 0;
                other.peer = i == 5; /* nobody is called */
                assert_int_equal(plan_verify(&plan, &other, NULL, NULL, &verdict), PLAN_E_INVALID);
        }
        for (unsigned int shift = 20; shift < 64; shift++) { /* too large to execute, up to where spans overflow */
                other = c;
                other.count = UINT64_C(1) << shift;
                assert_int_equal(plan_verify(&plan, &other, NULL, NULL, &verdict), PLAN_E_INVALID);
                assert_int_equal(verdict.condition, PLAN_FAULT_MALFORMED);
        }
        for (uint32_t bytes = 0; bytes < 64; bytes++) {
                geometry.part_bytes = bytes;
                assert_int_equal(plan_verify_all(&plan, &geometry, NULL, 0, &verdict), PLAN_E_INVALID);
        }
        geometry.part_bytes = 4096 + 32;
        assert_int_equal(plan_verify_all(&plan, &geometry, NULL, 0, &verdict), PLAN_E_INVALID);
        geometry = (struct plan_geometry){4096, 0};
        assert_int_equal(plan_verify_all(&plan, &geometry, NULL, 0, &verdict), PLAN_E_INVALID);
        geometry.slots = UINT32_MAX;
        assert_int_equal(plan_verify_all(&plan, &geometry, NULL, 0, &verdict), PLAN_E_INVALID);
        plan = build(RING_OP_ALL_TO_ALL, PLAN_DIRECT, 4); /* never in place */
        assert_int_equal(plan_verify(&plan, &c, NULL, NULL, &verdict), PLAN_E_INVALID);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_names_the_fault),  cmocka_unit_test(test_wrong_trees),
                cmocka_unit_test(test_memory_of_others), cmocka_unit_test(test_self_channel),
                cmocka_unit_test(test_malformed),        cmocka_unit_test(test_finds_mutations),
                cmocka_unit_test(test_checks_of_values), cmocka_unit_test(test_gaps),
                cmocka_unit_test(test_checks_of_order),  cmocka_unit_test(test_garbage),
                cmocka_unit_test(test_refuses_cases),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
