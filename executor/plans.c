/* SPDX-License-Identifier: MIT */
/*
 * Verified plans.
 *
 * railmuxd says which algorithm each size class of a comm uses; the executor builds the plan itself and runs nothing
 * that its own verifier refuses, so a wrong or hostile control plane cannot make it run a plan that loses data.
 * Verifying costs milliseconds, so the result is kept per shape (operation, algorithm, ranks, how they lie on nodes,
 * geometry): the second comm of a shape is free.
 */
#include "executor/plans.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

struct plans_key {
        uint32_t operation, algorithm, n_ranks, part_bytes, slots;
        uint32_t n_nodes; /* 0: one */
        uint8_t node[PLAN_RANKS_MAX];
};

struct plans_entry {
        struct plans_key key;
        struct plan plan;
        struct plan_nodes nodes; /* what the plan points to, if there are several */
        UT_hash_handle hh;
};

void plans_init(struct plans *plans) {
        *plans = (struct plans){0};
}

void plans_deinit(struct plans *plans) {
        struct plans_entry *entry, *next;

        HASH_ITER(hh, plans->entries, entry, next) {
                HASH_DEL(plans->entries, entry);
                free(entry);
        }
        *plans = (struct plans){0};
}

int plans_get(struct plans *plans, uint32_t operation, uint32_t algorithm, uint32_t n_ranks,
              const struct plan_geometry *geometry, const struct plan_nodes *nodes, const struct plan **ret_plan,
              struct plan_verdict *ret_verdict) {
        struct plans_entry *entry;
        struct plans_key key;
        int r;

        memset(&key, 0, sizeof(key));
        key = (struct plans_key){
                .operation = operation,
                .algorithm = algorithm,
                .n_ranks = n_ranks,
                .part_bytes = geometry->part_bytes,
                .slots = geometry->slots,
        };
        if (nodes) {
                key.n_nodes = nodes->n_nodes;
                memcpy(key.node, nodes->node, n_ranks);
        }
        HASH_FIND(hh, plans->entries, &key, sizeof(key), entry);
        if (!entry) {
                entry = calloc(1, sizeof(*entry));
                if (!entry)
                        return -ENOMEM;
                entry->key = key;
                *ret_verdict = (struct plan_verdict){.condition = PLAN_FAULT_MALFORMED, .text = "no such plan"};
                if (nodes)
                        entry->nodes = *nodes;
                r = nodes ? plan_build_nodes(operation, algorithm, n_ranks, &entry->nodes, &entry->plan)
                          : plan_build(operation, algorithm, n_ranks, &entry->plan);
                if (!r)
                        r = plan_verify_all(&entry->plan, geometry, NULL, 0, ret_verdict);
                if (r) {
                        free(entry);
                        return r < 0 ? r : PLANS_E_REFUSED;
                }
                HASH_ADD(hh, plans->entries, key, sizeof(entry->key), entry);
                if (!entry->hh.tbl) {
                        free(entry);
                        return -ENOMEM;
                }
                plans->n_entries++;
        }
        *ret_plan = &entry->plan;
        return 0;
}
