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
        PLAN_FAULT_MALFORMED, /* fields out of their enums, region or phase index out of bounds */
        PLAN_FAULT_BOUNDS,    /* access outside input, output or slot */
        PLAN_FAULT_RACE, /* two conflicting accesses without order (in place, and a rank's begin and end included) */
        PLAN_FAULT_DEADLOCK,   /* cyclic wait, credits included */
        PLAN_FAULT_VALUE,      /* an output element is not made of the right contributions in the declared tree */
        PLAN_FAULT_UNCONSUMED, /* chunks pushed and consumed differ on a channel */
        PLAN_FAULT_FAR,        /* memory of a rank of another node, in place */
        PLAN_FAULT_COUNT,
};

struct plan_case {
        struct plan_geometry geometry;
        uint64_t count; /* all_to_all_v: the longest piece that a pair exchanges */
        uint32_t element_bytes;
        uint32_t partial_bytes; /* of an accumulator; 0: as an element */
        uint32_t root;          /* point to point: the sender */
        uint32_t peer;          /* point to point: the receiver; else 0 */
        uint32_t vector;        /* all_to_all_v: seed of plan_case_vector() */
        bool in_place;
};

/* What `rank` sends and gets in an all_to_all_v, made up from the seed: pieces of no, one, some or `count` elements,
 * with gaps between them. `storage` has room for 4 * n_ranks numbers. */
void plan_case_vector(const struct plan_case *pcase, uint32_t n_ranks, uint32_t rank, uint64_t *storage,
                      struct plan_vector *ret_vector);
/* The request of a rank; `vector` is NULL unless all_to_all_v. */
void plan_case_shape(const struct plan_case *pcase, const struct plan_vector *vector, struct plan_shape *ret_shape);
/* May the output be where the input is? all_reduce, reduce, broadcast: the same memory. all_gather, gather: the input
 * is the own block of the output. reduce_scatter, scatter: the output is the own block of the input. */
bool plan_case_in_place(uint32_t operation);

/* 0 if `plan`, followed by `next` (may be NULL; its own case) on the same channels, is right for these cases; otherwise
 * PLAN_E_INVALID and the verdict. Pure; allocates and frees its own memory; -ENOMEM. */
int plan_verify(const struct plan *plan, const struct plan_case *pcase, const struct plan *next,
                const struct plan_case *next_case, struct plan_verdict *ret_verdict);
/* Verifies a plan for the shapes that matter for a geometry: 0, 1, ragged, several laps of slots, in and out of place,
 * roots and peers, accumulators as large as elements and larger, followed by itself and by every operation's plan in
 * `peers` (n_peers, may be 0). */
int plan_verify_all(const struct plan *plan, const struct plan_geometry *geometry, const struct plan *peers,
                    uint32_t n_peers, struct plan_verdict *ret_verdict);
/* The same, but for executors in which a rank's channel to itself has no more slots than others have. */
int plan_verify_alike(const struct plan *plan, const struct plan_geometry *geometry, struct plan_verdict *ret_verdict);
