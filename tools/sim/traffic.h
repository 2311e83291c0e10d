/* SPDX-License-Identifier: MIT */
#pragma once
/* What a plan moves: counted from its steps, exactly. */
#include "plan/plan.h"

struct traffic_rank {
        uint64_t steps;
        uint64_t chunks_sent, chunks_taken;
        uint64_t signals_sent, signals_taken;
        uint64_t bytes_copied;  /* written to outputs and chunks by steps that combine nothing */
        uint64_t bytes_reduced; /* read by steps that combine */
        uint64_t bytes_output;  /* written to outputs, own and others' */
        uint64_t bytes_far;     /* of outputs written and inputs read: those in others' memory */
};

struct traffic_link { /* from one rank's memory to another's */
        uint64_t bytes;
        uint64_t chunks, signals;
};

struct traffic {
        uint32_t n_ranks;
        struct traffic_rank rank[PLAN_RANKS_MAX];
        struct traffic_link link[PLAN_RANKS_MAX][PLAN_RANKS_MAX]; /* [from][to] */
};

/* -ENOMEM. Free with free(). */
int traffic_new(const struct plan *plan, const struct plan_geometry *geometry, const struct plan_shape *shape,
                struct traffic **ret_traffic);
