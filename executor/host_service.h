/* SPDX-License-Identifier: MIT */
#pragma once
/* The host executor as what a link serves. */
#include "executor/link.h"
#include "plan/plan.h"

struct executor;

struct host_service {
        struct link_service service;
        struct executor *executor;
        Railmux__Executor__Gpu gpus[PLAN_RANKS_MAX], *pointers[PLAN_RANKS_MAX]; /* of the last HELLO */
        char names[PLAN_RANKS_MAX][64];
};

void host_service_init(struct host_service *host, struct executor *executor);
