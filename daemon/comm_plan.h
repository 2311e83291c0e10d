/* SPDX-License-Identifier: MIT */
#pragma once
/* Which plans a communicator over several nodes runs; asked once for it, by one node. */
#include "plan/cost.h"
#include <stdint.h>

struct manager;

/* node: of each rank, numbered without gaps from 0. The choices are those of communicators on one node if they all have
 * the same. 0, -EINVAL (node) or -ENOMEM. */
int comm_plan_nodes(const struct manager *manager, uint32_t n_ranks, const uint8_t *node,
                    struct plan_geometry *ret_geometry, struct plan_choice ret_choices[PLAN_CHOICES_MAX],
                    uint32_t *ret_n);
