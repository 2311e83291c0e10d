/* SPDX-License-Identifier: MIT */
#pragma once
/* Cost model and the choice of plans. Every rank of a communicator runs what this table says; railmuxd makes it once.
 * See cost.c for what is predicted, cost_model.c for how, choice.c for the table. */
#include "plan/plan.h"
#include "plan/rails.h"

/* What things take, in nanoseconds. All of them >= 0; a prediction grows with each and is linear in all together. */
struct plan_constants {
        double request_ns;         /* one request, whatever its plan: the way there and back */
        double hop_ns;             /* one chunk, from flag set to seen by another rank */
        double ns_per_phase;       /* beginning a phase */
        double ns_per_chunk;       /* either end of a chunk with data, without its bytes */
        double ns_per_signal;      /* either end of an empty chunk */
        double ns_per_byte_copy;   /* per byte written to an output or a chunk, reading it included */
        double ns_per_byte_reduce; /* per input byte of a reduction from chunks */
        double ns_per_byte_fold;   /* per input byte of a reduction from the ranks' own memory */
        double ns_per_turn;        /* a look at a rank that waits, by a worker that serves several */
        uint32_t parallel;         /* how many ranks make progress at once (GPUs: all; host backend: worker threads) */
};

/* Shipped constants for the host backend; fitted ones (railmux-sim fit) can take their place. */
void plan_constants_host(struct plan_constants *constants, uint32_t n_workers);
/* The same for kernels on GPUs, of plans by channels. */
void plan_constants_device(struct plan_constants *constants);

/* A prediction and what it is made of. */
struct plan_cost {
        double ns;          /* from the last bell to the last completion: request_ns + the largest of */
        double critical_ns; /*   the longest chain in which each thing waits for the one before, */
        double busiest_ns;  /*   the work of the busiest rank, */
        double shared_ns;   /*   all work (of the node that has most), divided by `parallel`, */
        double wire_ns;     /*   and, over nodes, the chain without data and then all that goes over the busiest rail */
        double hops;        /* on the chain that has most of them */
};

/* A plan with constants, ready to predict any size. */
#define PLAN_MODEL_LANES 4u
#define PLAN_MODEL_RAILS 64u
struct plan_model {
        uint32_t n_ranks;
        uint32_t n_shards; /* the plan's ranges are shards of so many; 1: they are not */
        uint32_t element_bytes;
        uint32_t parallel;
        uint64_t part_elements;
        double request_ns;
        double ns_per_turn;
        uint32_t laps;                        /* parts that fill a channel's slots, at least 2 */
        double critical_ns[PLAN_MODEL_LANES]; /* without data, and for one, `laps` and twice as many full parts */
        double hops[PLAN_MODEL_LANES - 1];    /* for one, `laps` and twice as many parts */
        struct plan_work {                    /* of a rank: once, per part, per element of its longest range */
                double fixed, part, element;
        } work[PLAN_RANKS_MAX];
        uint32_t n_nodes; /* 1: none of the following */
        uint8_t node[PLAN_RANKS_MAX];
        uint32_t n_rails;
        struct plan_work rail[PLAN_MODEL_RAILS]; /* out or in, of those rails that can be the busiest */
};
/* geometry NULL: the one of plan_geometry_choose. partial_bytes: of an accumulator. PLAN_E_INVALID for a plan that gets
 * stuck, -ENOMEM. */
int plan_model_init(struct plan_model *model, const struct plan *plan, const struct plan_constants *constants,
                    const struct plan_geometry *geometry, uint32_t element_bytes, uint32_t partial_bytes);
/* The same for a plan that has nodes. `parallel` is of each node. */
int plan_model_init_net(struct plan_model *model, const struct plan *plan, const struct plan_constants *constants,
                        const struct plan_net *net, const struct plan_geometry *geometry, uint32_t element_bytes,
                        uint32_t partial_bytes);
/* count: as in a request; vectors: elements for each peer. */
void plan_model_predict(const struct plan_model *model, uint64_t count, struct plan_cost *ret_cost);
/* Both at once, with accumulators of at least four bytes; INFINITY if there is no model. */
double plan_cost_ns(const struct plan *plan, const struct plan_constants *constants, uint64_t count,
                    uint32_t element_bytes);
/* Hops on the chain that has most of them, for a single part; -1 if there is no model. */
int plan_cost_hops(const struct plan *plan);

/* ---- staging (cost.c) -------------------------------------------------------------------------------------------- */
/* Staging for n ranks: part size and slots that keep a communicator below ~32 MiB; bytes it takes in all. */
void plan_geometry_choose(uint32_t n_ranks, struct plan_geometry *ret_geometry);
/*
 * The same for ranks on several nodes. What finds its channel full waits for a credit, which comes two hops after the
 * chunk has gone, and between nodes a hop is long; so a channel holds all that an all_reduce of 2 MiB puts through it
 * between equal nodes, in parts small enough to follow one another. About 4 MiB for each rank, on each node.
 */
void plan_geometry_choose_nodes(uint32_t n_ranks, struct plan_geometry *ret_geometry);
uint64_t plan_staging_bytes(const struct plan_geometry *geometry, uint32_t n_ranks);

/* ---- choice (choice.c) ------------------------------------------------------------------------------------------- */
struct plan_choice {
        uint32_t operation;
        uint32_t algorithm;
        uint64_t max_bytes; /* of the request's count * element size; the last choice of an operation has UINT64_MAX */
        uint32_t widening;  /* partial sums are so many times as long as elements; 0: however long they are */
};
#define PLAN_CHOICES_MAX  112u
#define PLAN_WIDENING_MAX 8u

/* The table for a communicator: for each operation and widening, ascending max_bytes; an operation has one widening, 0,
 * or all of them. Returns the number of entries, 0 if n_ranks is out of bounds or memory is short. */
uint32_t plan_choose(const struct plan_constants *constants, uint32_t n_ranks,
                     struct plan_choice choices[PLAN_CHOICES_MAX]);
/* The same, but `operation` (RING_OP_NONE: every one) runs `algorithm` at all sizes where that exists. */
uint32_t plan_choose_restricted(const struct plan_constants *constants, uint32_t n_ranks, uint32_t operation,
                                uint32_t algorithm, struct plan_choice choices[PLAN_CHOICES_MAX]);
/* For ranks on GPUs, whose kernels move data through staging only: one exchange while that is small, else as little
 * data as can be. Operations without such a plan are left out. */
uint32_t plan_choose_device(uint32_t n_ranks, struct plan_choice choices[PLAN_CHOICES_MAX]);
/* The same for ranks on GPUs of several nodes (net: plan_net_device, with their rails): hierarchical plans by channels,
 * and others where they are cheaper. Reductions have one tree for all sizes, node_order, or rank_order if no node has
 * two ranks. 0 if the nodes are not for so many ranks. */
uint32_t plan_choose_device_nodes(const struct plan_nodes *nodes, uint32_t n_ranks, const struct plan_net *net,
                                  struct plan_choice choices[PLAN_CHOICES_MAX]);
/*
 * For ranks on several nodes (nodes->n_nodes >= 2): hierarchical plans, and those of one node that need channels only.
 * `operation` and `algorithm` as in plan_choose_restricted (RING_OP_NONE, PLAN_ALGORITHM_NONE: nothing is restricted).
 * A reduction has one tree for all sizes, node_order, so its bits depend on the ranks and their nodes alone; with
 * any_tree the fastest is taken. railmuxd asks once, on the root's node, and tells the others.
 */
struct plan_over {
        const struct plan_constants *constants;
        const struct plan_net *net;
        const struct plan_nodes *nodes;
        uint32_t n_ranks;
        uint32_t operation, algorithm;
        bool any_tree;
        bool any_widening;   /* for executors that do not know widenings: all have the choices of 1, and they say 0 */
        uint32_t algorithms; /* only those of smaller numbers, for executors that know no other; 0: all */
};
uint32_t plan_choose_nodes(const struct plan_over *over, struct plan_choice choices[PLAN_CHOICES_MAX]);
/* What all know that are to execute a table. */
struct plan_known {
        bool widenings;
        uint32_t algorithms; /* those of smaller numbers */
};
void plan_known_all(struct plan_known *ret_known);
/* ... and one more, which knows this; algorithms 0: it says nothing of them, and has those that were there before
 * anybody did. */
void plan_known_meet(struct plan_known *known, bool widens, uint32_t algorithms);
/* Of a request: 1, 2, 4 or PLAN_WIDENING_MAX. All ranks of a call have the same, by its type and reduction. */
uint32_t plan_widening(uint32_t element_bytes, uint32_t partial_bytes);
/* Looks an operation, widening and size up; NULL if the operation is not in the table. */
const struct plan_choice *plan_choice_find(const struct plan_choice *choices, uint32_t n_choices, uint32_t operation,
                                           uint32_t widening, uint64_t bytes);
