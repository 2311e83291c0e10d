/* SPDX-License-Identifier: MIT */
#pragma once
/* Which plans are in the kernels' tables, and which communicators' choices. No GPU runtime. Control thread only. */
#include <stdbool.h>
#include <stdint.h>

#include "gpu/hip/shadow.h"
#include "plan/cost.h"

#define CHOICES_TABLES (sizeof(((struct table *)0)->choices) / sizeof(((struct table *)0)->choices[0]))

struct plan_nodes;

struct choices {
        struct choices_plan {
                uint32_t operation, algorithm, n_ranks;
                uint64_t here;             /* with programs: of which ranks, */
                uint32_t first, n_entries; /*   and where they are in the table */
                uint8_t node[STAGING_RANKS_MAX];
                uint32_t references; /* tables of choices that name it */
                bool verified[STAGING_TRANSPORTS];
        } plans[TABLE_PLANS]; /* operation 0: never used */
        uint32_t references[CHOICES_TABLES];
};

/* Where a communicator's ranks are. */
struct choices_where {
        uint32_t n_ranks;
        uint64_t here;                  /* those on this GPU, a bit each */
        const struct plan_nodes *nodes; /* NULL: all on one node */
};

/* The index of a table that says what `choices` says, written if there was none. -EINVAL: the verifier refuses a plan,
 * or one for several nodes does not exist for these; -ENOSPC: too many different ones. Of other algorithms those that
 * kernels cannot run are left out. */
int choices_take(struct choices *choices, struct shadow *shadow, const struct choices_where *where,
                 const struct plan_choice *wanted, uint32_t n_wanted, uint32_t *ret_index, char *error);
/* No worker uses it any more. */
void choices_drop(struct choices *choices, const struct shadow *shadow, uint32_t index);
