/* SPDX-License-Identifier: MIT */
#pragma once
/* Which plans a communicator runs; over several nodes one of them asks, once. Loop thread. See comm_plan.c. */
#include "plan/cost.h"
#include <stdbool.h>
#include <stdint.h>

struct manager;

#define COMM_PLANS_MAX 128u /* kept at a time */

/* node: of each rank, numbered without gaps from 0; NULL: all are on one. device: they are on GPUs. known: over nodes,
 * what all nodes and executors of it know. rails: over nodes, the names of those that its tenant may take here, "" for
 * all. The choices are those of communicators on one node if all ranks have the same. 0, -EINVAL (node) or -ENOMEM. */
int comm_plan_nodes(struct manager *manager, bool device, const struct plan_known *known, uint32_t n_ranks,
                    const uint8_t *node, const char *rails, struct plan_geometry *ret_geometry,
                    struct plan_choice ret_choices[PLAN_CHOICES_MAX], uint32_t *ret_n);
/* The constants of the cost model are others now, or the manager ends. */
void comm_plan_forget(struct manager *manager);
