/* SPDX-License-Identifier: MIT */
#pragma once
/* What tests with the oracle share. */
#include <stdio.h>
#include <stdlib.h>

#include "oracle.h"
#include "tests/cmocka_all.h"
#include "util/parse.h"

/* $RAILMUX_SEED, or a fixed one; printed. */
static inline uint64_t oracle_seed(void) {
        const char *text = getenv("RAILMUX_SEED");
        uint64_t seed = 1;

        if (text && parse_u64(text, &seed))
                fail_msg("RAILMUX_SEED=%s is no number", text);
        print_message("RAILMUX_SEED=%llu\n", (unsigned long long)seed);
        return seed;
}

static inline bool oracle_full(void) {
        const char *text = getenv("RAILMUX_FULL");

        return text && text[0] == '1';
}

/* One in so many of the cases that a seed draws: under AddressSanitizer all is slow. */
#ifdef __SANITIZE_ADDRESS__
#define ORACLE_SPARSE 3u
#else
#define ORACLE_SPARSE 1u
#endif

/* Small geometries, so that few elements fill many parts and slots. */
#define ORACLE_CASES 10u
static inline struct plan_case oracle_case(const struct plan *plan, uint32_t i) {
        static const struct {
                uint32_t slots, element_bytes, partial_bytes;
                uint64_t count;
                uint32_t root, peer;
                bool in_place;
        } shapes[ORACLE_CASES] = {
                {2, 16, 16, 23, 0, 1, true}, {1, 16, 0, 1, 1, 2, false},  {2, 16, 32, 12, 1, 0, true},
                {3, 8, 16, 47, 2, 0, false}, {1, 16, 32, 21, 2, 1, true}, {2, 16, 64, 4, 0, 0, false},
                {2, 8, 8, 9, 3, 2, true},    {1, 16, 16, 17, 1, 1, true}, {1, 2, 4, 90, 0, 3, true},
                {1, 16, 16, 0, 0, 1, true},
        };
        uint32_t n = plan->n_ranks;
        struct plan_case c = {
                .geometry = {64, shapes[i].slots},
                .count = shapes[i].count,
                .element_bytes = shapes[i].element_bytes,
                .partial_bytes = shapes[i].partial_bytes,
                .vector = i + 1,
                .in_place = shapes[i].in_place && plan_case_in_place(plan->operation),
        };

        if (plan_operation_rooted(plan->operation) || plan_operation_p2p(plan->operation))
                c.root = shapes[i].root % n;
        if (plan_operation_p2p(plan->operation))
                c.peer = shapes[i].peer % n;
        return c;
}
