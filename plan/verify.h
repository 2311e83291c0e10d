/* SPDX-License-Identifier: MIT */
#pragma once
/* Proof that a plan is right before it runs. See verify.c for the method. */
#include "plan/plan.h"

struct plan_verdict {
        uint32_t condition; /* enum plan_fault */
        uint32_t rank;      /* where */
        uint32_t phase;
        uint64_t part;
        char text[160]; /* a sentence for the log */
};

enum plan_fault {
        PLAN_FAULT_NONE = 0,
        PLAN_FAULT_MALFORMED,  /* fields out of their enums, region or phase index out of bounds */
        PLAN_FAULT_BOUNDS,     /* access outside input, output or slot */
        PLAN_FAULT_RACE,       /* two conflicting accesses without order (in place included) */
        PLAN_FAULT_DEADLOCK,   /* cyclic wait, credits included */
        PLAN_FAULT_VALUE,      /* an output element is not made of the right contributions in the declared tree */
        PLAN_FAULT_UNCONSUMED, /* chunks pushed and consumed differ on a channel */
};

struct plan_case {
        struct plan_geometry geometry;
        uint64_t count;
        uint32_t element_bytes;
        uint32_t root;
        bool in_place;
};

/* 0 if `plan`, followed by `next` (may be NULL; its own case) on the same channels, is right for these cases; otherwise
 * PLAN_E_INVALID and the verdict. Pure; allocates and frees its own memory; -ENOMEM. */
int plan_verify(const struct plan *plan, const struct plan_case *pcase, const struct plan *next,
                const struct plan_case *next_case, struct plan_verdict *ret_verdict);
/* Verifies a plan for the shapes that matter for a geometry: 0, 1, ragged, several laps of slots, in and out of place,
 * roots, followed by itself and by every operation's plan in `peers` (n_peers, may be 0). */
int plan_verify_all(const struct plan *plan, const struct plan_geometry *geometry, const struct plan *peers,
                    uint32_t n_peers, struct plan_verdict *ret_verdict);
