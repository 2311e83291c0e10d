/* SPDX-License-Identifier: MIT */
#pragma once
/* Which plans are in the kernels' tables, and which communicators' choices. No GPU runtime. Control thread only. */
#include <stdbool.h>
#include <stdint.h>

#include "gpu/hip/shadow.h"
#include "plan/cost.h"
#include "plan/plans.h"

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
        struct plans verified; /* what is known of plans, those included that are in no table */
};

/* Where a communicator's ranks are. */
struct choices_where {
        uint32_t n_ranks;
        uint64_t here;                  /* those on this GPU, a bit each */
        const struct plan_nodes *nodes; /* NULL: all on one node */
};

/* told_fd: an eventfd that is written when there is more for choices_ready(); -1: none. The caller's. */
void choices_init(struct choices *choices, int told_fd);
void choices_deinit(struct choices *choices);
/* May choices_take() be called without its taking long? If not, a thread verifies what it needs. */
bool choices_ready(struct choices *choices, const struct choices_where *where, const struct plan_choice *wanted,
                   uint32_t n_wanted);
/* Whoever still waits asks again now (plans_round). */
void choices_round(struct choices *choices);
/* The index of a table that says what `choices` says, written if there was none. -EINVAL: the verifier refuses a plan,
 * or one for several nodes does not exist for these; -ENOSPC: too many different ones. Of other algorithms those that
 * kernels cannot run are left out. */
int choices_take(struct choices *choices, struct shadow *shadow, const struct choices_where *where,
                 const struct plan_choice *wanted, uint32_t n_wanted, uint32_t *ret_index, char *error);
/* No worker uses it any more. */
void choices_drop(struct choices *choices, const struct shadow *shadow, uint32_t index);
