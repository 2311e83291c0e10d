/* SPDX-License-Identifier: MIT */
#pragma once
/* Plans that this executor has expanded and verified, shared by all comms of the same shape. Control thread only. */
#include "plan/nodes.h"
#include "plan/plan.h"
#include "plan/verify.h"

struct plans_entry;

struct plans {
        struct plans_entry *entries; /* uthash by shape */
        uint32_t n_entries;
};

enum { PLANS_OK = 0, PLANS_E_REFUSED = 1 }; /* refused: does not exist, or the verifier found a fault */

void plans_init(struct plans *plans);
void plans_deinit(struct plans *plans);
/* *ret_plan lives as long as `plans`. nodes: how the ranks lie on nodes, copied; NULL: all on one. -ENOMEM;
 * PLANS_E_REFUSED with the verdict's text. */
int plans_get(struct plans *plans, uint32_t operation, uint32_t algorithm, uint32_t n_ranks,
              const struct plan_geometry *geometry, const struct plan_nodes *nodes, const struct plan **ret_plan,
              struct plan_verdict *ret_verdict);
