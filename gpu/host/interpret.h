/* SPDX-License-Identifier: MIT */
#pragma once
/* Runs plans: one rank's cursors through the phases of its request. See interpret.c for the essay. */
#include "gpu/gpu.h"
#include "gpu/host/channel.h"
#include "gpu/host/reduce.h"
#include "plan/plan.h"

/* How far a phase has come. Parts before `part` are done for all peers, part `part` for the first `peer` ones. */
struct interpret_cursor {
        uint64_t part;
        uint64_t n_parts;
        uint32_t peer;
        uint32_t n_peers;
};

/* One rank of a communicator. Used by one thread at a time: start by the control thread, run by the rank's worker. */
struct interpret_rank {
        _Alignas(CHANNEL_LINE) const struct channel_set *set;
        uint32_t me;

        struct gpu_request request;
        bool active;
        uint32_t element_bytes;
        uint32_t turn; /* phase to try first */
        reduce_fn reduce;
        struct interpret_cursor cursor[PLAN_PHASES_MAX];

        /* Ends of the channels to and from each rank; they live from request to request. */
        struct channel_end to[PLAN_REGIONS_MAX][PLAN_RANKS_MAX];
        struct channel_end from[PLAN_REGIONS_MAX][PLAN_RANKS_MAX];
};

/* start: where the channels count from. */
void interpret_rank_init(struct interpret_rank *rank, const struct channel_set *set, uint32_t me, uint32_t start);
void interpret_rank_start(struct interpret_rank *rank, const struct gpu_request *request,
                          const struct plan_geometry *geometry);
/* GPU_DONE once per start, GPU_PROGRESS or GPU_IDLE. */
int interpret_rank_run(struct interpret_rank *rank, const struct plan_geometry *geometry, uint64_t max_bytes);
