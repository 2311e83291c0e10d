/* SPDX-License-Identifier: MIT */
#pragma once
/* Cost model and the choice of plans. Every rank of a communicator runs what this table says; railmuxd makes it once.
 */
#include "plan/plan.h"

struct plan_constants {
        double hop_ns;             /* one chunk from push to visible */
        double ns_per_chunk;       /* either end of one chunk, without its bytes */
        double ns_per_byte_link;   /* one stream through one channel */
        double ns_per_byte_reduce; /* per input byte */
        double ns_per_phase;       /* scheduling a phase */
        uint32_t parallel;         /* how many ranks make progress at once (GPUs: all; host backend: worker threads) */
};

/* Shipped constants for the host backend; measured ones replace them later. */
void plan_constants_host(struct plan_constants *constants, uint32_t n_workers);
/* Predicted nanoseconds from the last bell to the last completion. */
double plan_cost_ns(const struct plan *plan, const struct plan_constants *constants, uint64_t count,
                    uint32_t element_bytes);

struct plan_choice {
        uint32_t operation;
        uint32_t algorithm;
        uint64_t max_bytes; /* of the request's count * element size; the last choice of an operation has UINT64_MAX */
};
#define PLAN_CHOICES_MAX 64u

/* Staging for n ranks: part size and slots that keep a communicator below ~32 MiB; bytes it takes in all. */
void plan_geometry_choose(uint32_t n_ranks, struct plan_geometry *ret_geometry);
uint64_t plan_staging_bytes(const struct plan_geometry *geometry, uint32_t n_ranks);
/* The table for a communicator: for each operation, ascending max_bytes. Returns the number of entries. */
uint32_t plan_choose(const struct plan_constants *constants, uint32_t n_ranks,
                     struct plan_choice choices[PLAN_CHOICES_MAX]);
/* Looks an operation and size up; NULL if the operation is not in the table. */
const struct plan_choice *plan_choice_find(const struct plan_choice *choices, uint32_t n_choices, uint32_t operation,
                                           uint64_t bytes);
