/* SPDX-License-Identifier: MIT */
#pragma once
/* Tables of choices as railmuxd makes them where `peer.stripe` is as it comes (daemon/comm_plan.c). */
#include "plan/cost.h"
#include "plan/nodes.h"

/* n nodes with as many ranks each, one after another. PLAN_E_INVALID. */
int tables_nodes(uint32_t n_nodes, uint32_t n_gpus, struct plan_nodes *ret_nodes);
/* Of over everything is given but net, which is filled in, as geometry is, if these are several nodes. Both return the
 * number of choices, 0: memory is short. */
uint32_t tables_host(struct plan_over *over, uint32_t n_rails, struct plan_net *ret_net,
                     struct plan_geometry *ret_geometry, struct plan_choice choices[PLAN_CHOICES_MAX]);
uint32_t tables_device(const struct plan_nodes *nodes, uint32_t n_ranks, uint32_t n_rails, struct plan_net *ret_net,
                       struct plan_choice choices[PLAN_CHOICES_MAX]);
