/* SPDX-License-Identifier: MIT */
#pragma once
/* What tests of the verifier share. */
#include "plan/verify.h"
#include "ring/ring.h"
#include "tests/cmocka_all.h"

#define PLANS_MAX 64u

/* All plans that exist for a number of ranks. */
static inline uint32_t build_all(uint32_t n_ranks, struct plan ret_plans[PLANS_MAX]) {
        uint32_t n = 0;

        for (uint32_t operation = 0; operation < RING_OP_COUNT; operation++) {
                uint32_t algorithm;

                for (uint32_t k = 0; (algorithm = plan_algorithm_at(operation, n_ranks, k)) != 0; k++) {
                        assert_true(n < PLANS_MAX);
                        assert_int_equal(plan_build(operation, algorithm, n_ranks, &ret_plans[n++]), PLAN_OK);
                }
        }
        return n;
}

static inline struct plan build(uint32_t operation, uint32_t algorithm, uint32_t n_ranks) {
        struct plan plan;

        assert_int_equal(plan_build(operation, algorithm, n_ranks, &plan), PLAN_OK);
        return plan;
}

static inline void expect_ok(int r, const struct plan *plan, const struct plan_verdict *verdict) {
        if (r)
                fail_msg("%s %s, %u ranks: %d, %s", plan_operation_name(plan->operation),
                         plan_algorithm_name(plan->algorithm), plan->n_ranks, r, verdict->text);
}

static inline uint64_t random_next(uint64_t *state) {
        uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

        x = (x ^ x >> 31) * UINT64_C(0xd6e8feb86659fd93);
        x = (x ^ x >> 29) * UINT64_C(0xd6e8feb86659fd93);
        return x ^ x >> 32;
}

static inline struct plan_case random_case(uint64_t *random, const struct plan *plan,
                                           const struct plan_geometry *geometry) {
        static const uint8_t element_bytes[] = {1, 2, 4, 8};
        uint32_t n = plan->n_ranks;
        struct plan_case c = {
                .geometry = *geometry,
                .element_bytes = element_bytes[random_next(random) % 4],
                .partial_bytes = random_next(random) % 3 == 0 ? 0 : 8,
                .vector = (uint32_t)random_next(random),
                .in_place = random_next(random) % 2 && plan_case_in_place(plan->operation),
        };

        if (plan_operation_rooted(plan->operation) || plan_operation_p2p(plan->operation))
                c.root = (uint32_t)(random_next(random) % n);
        if (plan_operation_p2p(plan->operation))
                c.peer = (uint32_t)(random_next(random) % n);
        c.count = random_next(random) % (geometry->part_bytes / c.element_bytes * (1 + random_next(random) % 9) *
                                                 (random_next(random) % 2 ? n : 1) +
                                         1);
        return c;
}
