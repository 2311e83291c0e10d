/* SPDX-License-Identifier: MIT */
#pragma once
/* All plans that exist, for tests to go through. */
#include <stdint.h>

#include "plan/plan.h"
#include "ring/ring.h"

static const struct {
        uint32_t operation;
        uint32_t algorithm;
} plans[] = {
        {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT},   {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT}, {RING_OP_ALL_GATHER, PLAN_DIRECT},
        {RING_OP_REDUCE_SCATTER, PLAN_DIRECT}, {RING_OP_BROADCAST, PLAN_DIRECT},    {RING_OP_BARRIER, PLAN_DIRECT},
};
#define N_PLANS ((uint32_t)(sizeof(plans) / sizeof(plans[0])))
