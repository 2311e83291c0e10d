/* SPDX-License-Identifier: MIT */
#pragma once
/* Runs plans: one rank's cursors through the phases of what it has started. See interpret.c for the essay. */
#include "gpu/gpu.h"
#include "gpu/host/channel.h"
#include "gpu/host/net.h"
#include "gpu/host/reduce.h"
#include "plan/plan.h"

/* How far a phase has come. Parts before `part` are done, and of part `part` the first k steps. */
struct interpret_cursor {
        uint64_t part;
        uint64_t n_parts;
        uint64_t done; /* of the current step, if it is done in pieces; see step.c */
        uint32_t k;    /* the current step */
        uint32_t n_steps;
        uint32_t ready; /* conditions of the current step that are known to hold */
        bool planned;   /* the rank's step[] has the current step */
};

/* What the signal of a sender says: where the data lies. */
struct interpret_offer {
        const void *in;
        uint64_t bytes;
};
_Static_assert(sizeof(struct interpret_offer) <= CHANNEL_SMALL_BYTES, "an offer fits beside its flag");

/* A running request. */
struct interpret_work {
        _Alignas(CHANNEL_LINE) struct gpu_request *request;
        const struct plan *plan; /* the request's, or that of sends between nodes */
        uint64_t part_elements;  /* plan_part_elements */
        uint64_t shard_elements; /* plan_shard_elements */
        uint32_t element_bytes;
        uint32_t partial_bytes;
        reduce_fn reduce;   /* NULL if the operation does not reduce */
        uint32_t signature; /* between nodes; all_to_all_v: each pair has another one */
        bool scaled;        /* inputs are multiplied by their rank's scalar */
        bool stream;        /* outputs are larger than the caches */
        uint32_t turn;      /* phase to try first */
        uint32_t n_left;    /* phases that are not done */
        uint32_t n_queued;  /* requests of the same lane that wait for this one */
        struct interpret_offer offer;
        struct interpret_cursor cursor[PLAN_PHASES_MAX];
};

/* What other ranks read of a collective while it runs. */
struct interpret_shared {
        const void *in;
        void *out;
        const struct plan_vector *vector;
        uint64_t scalar;
};

/* Kernels by type and reduction, looked up once. */
struct interpret_kernels {
        reduce_fn fn[RMX_TYPE_COUNT][RMX_REDOP_COUNT];
};

#define INTERPRET_LANES_MAX (2u * PLAN_RANKS_MAX)

/* One rank of a communicator. Used by one thread at a time: start by the control thread, run by the rank's worker. */
struct interpret_rank {
        _Alignas(CHANNEL_LINE) const struct channel_set *set;
        const struct plan_geometry *geometry;
        const struct interpret_kernels *kernels;
        const struct interpret_rank *ranks; /* all of the communicator */
        const struct host_net *net;         /* NULL: all ranks are on this node */
        uint64_t away;                      /* of ranks on other nodes, a bit each */
        uint32_t me;
        uint32_t blamed; /* 1 + rank of another node that has called something else; 0: none */
        bool posted;     /* and nobody has looked whether the fabric sleeps since */
        bool woke;       /* it was woken in this call */

        struct gpu_request *requests;
        uint32_t n_requests;
        uint32_t n_active;
        uint32_t turn;                       /* place in `active` to try first */
        uint8_t active[INTERPRET_LANES_MAX]; /* lanes with a running request */
        struct interpret_work *work;         /* [2 * n_ranks], by lane */

        /* Ends of the channels to and from each rank; they live from request to request. */
        struct channel_end to[PLAN_REGIONS_MAX][PLAN_RANKS_MAX];
        struct channel_end from[PLAN_REGIONS_MAX][PLAN_RANKS_MAX];

        struct plan_step step[PLAN_PHASES_MAX]; /* collectives: the phases' current steps, where they are planned */

        _Alignas(CHANNEL_LINE) struct interpret_shared shared;
};

/* Before the first start; set, geometry, kernels, ranks, net, away, me and work are filled in. start: where channels
 * count from. */
void interpret_rank_init(struct interpret_rank *rank, uint32_t start);
/* See gpu_ops.start. */
void interpret_rank_start(struct interpret_rank *rank, struct gpu_request *requests, uint32_t n_requests);
/* GPU_DONE once per start, GPU_PROGRESS, GPU_IDLE, or from then on GPU_MISMATCH (`blamed`). */
int interpret_rank_run(struct interpret_rank *rank, uint64_t max_bytes);
