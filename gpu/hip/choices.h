/* SPDX-License-Identifier: MIT */
#pragma once
/* Which plans are in the kernels' tables, and which communicators' choices. No GPU runtime. Control thread only. */
#include <stdbool.h>
#include <stdint.h>

#include "gpu/hip/shadow.h"
#include "plan/cost.h"

#define CHOICES_TABLES (sizeof(((struct table *)0)->choices) / sizeof(((struct table *)0)->choices[0]))

struct choices {
        struct choices_plan {
                uint32_t operation, algorithm, n_ranks;
                uint32_t references; /* tables of choices that name it */
                bool verified[STAGING_TRANSPORTS];
        } plans[TABLE_PLANS]; /* operation 0: never used */
        uint32_t references[CHOICES_TABLES];
};

/* The index of a table that says what `choices` says, written if there was none. far: some ranks are on other nodes.
 * -EINVAL: the verifier refuses a plan; -ENOSPC: too many different ones. Algorithms that kernels cannot run are left
 * out. */
int choices_take(struct choices *choices, struct shadow *shadow, uint32_t n_ranks, bool far,
                 const struct plan_choice *wanted, uint32_t n_wanted, uint32_t *ret_index, char *error);
/* No worker uses it any more. */
void choices_drop(struct choices *choices, const struct shadow *shadow, uint32_t index);
