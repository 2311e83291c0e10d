/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The plan: how one collective runs on one communicator, as a short list of retriable phases. See plan.c for the essay.
 *
 * Channels. Data and signals between ranks move through channels. A channel (region, source, destination) is a FIFO of
 * staging slots in the destination's memory; a rank may have one to itself. Each slot has a flag: the number of the
 * chunk it holds (32-bit, counts up for ever per channel). The consumer publishes how many chunks it has released (the
 * credit). A chunk may be written when pushed - released < slots. Because every plan consumes exactly what it pushes,
 * FIFOs compose over consecutive plans without any reset.
 *
 * Parts and steps. A phase works part by part, and within a part through its steps. plan_step() says what a step does;
 * everything that executes plans (backends, verifier, oracle) executes these steps and knows no algorithm. A step that
 * is not ready is retried later; each phase of a rank has its own cursor (part, step), and phases of one request are
 * attempted independently of each other, except where `after` orders them.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plan_nodes;

#define PLAN_RANKS_MAX    64u
#define PLAN_PHASES_MAX   8u
#define PLAN_REGIONS_MAX  4u
#define PLAN_REGIONS_DATA 2u  /* regions 0 and 1 carry data, the others (point to point) only signals */
#define PLAN_SIGNAL_BYTES 64u /* size of a slot in a region without data */

enum plan_kind {
        PLAN_PUSH = 1,       /* own input range -> a chunk to each peer */
        PLAN_REDUCE = 2,     /* own input range and one chunk of every other rank, in rank order -> own output, and, if
                                `forward`, the result as a chunk to every other rank */
        PLAN_COPY = 3,       /* peers' chunks -> own output; with peers SELF: own input -> own output */
        PLAN_SIGNAL = 4,     /* an empty chunk to each peer */
        PLAN_WAIT = 5,       /* an empty chunk from each peer */
        PLAN_NET_PUT = 6,    /* reserved: fabric */
        PLAN_NET_WAIT = 7,   /* reserved: fabric */
        PLAN_QUANTISE = 8,   /* reserved */
        PLAN_DEQUANTISE = 9, /* reserved */
        PLAN_READ = 10,      /* peers' inputs, where they lie -> own output */
        PLAN_FOLD = 11, /* all ranks' inputs, where they lie, in rank order -> outputs of `peers` (OTHERS: of all) */
        PLAN_PASS = 12, /* receive, combine, write, send on, as `schedule` says */
        PLAN_KIND_COUNT = 13,
};

/* What a PASS does; see pass.c for each. */
enum plan_schedule {
        PLAN_SCHEDULE_NONE = 0,
        PLAN_RING_ALL_REDUCE = 1,
        PLAN_RING_REDUCE_SCATTER = 2,
        PLAN_RING_ALL_GATHER = 3,
        PLAN_CHAIN_REDUCE = 4,
        PLAN_CHAIN_BROADCAST = 5,
        PLAN_TREE_UP = 6,
        PLAN_TREE_DOWN = 7,
        PLAN_DOUBLING_ALL_REDUCE = 8,
        PLAN_DOUBLING_ALL_GATHER = 9,
        PLAN_DOUBLING_BARRIER = 10,
        PLAN_HALVING_ALL_REDUCE = 11,
        PLAN_HALVING_REDUCE_SCATTER = 12, /* powers of two only */
        /* Over nodes; see pass_node.c for each, and pass_double.c for DOUBLE. */
        PLAN_NODE_MEET = 13,             /* all ranks of the node have come */
        PLAN_NODE_BARRIER = 14,          /* a rank of each node: all nodes have come */
        PLAN_NODE_EXCHANGE = 15,         /* all_reduce: the node's sums -> all nodes; and back: */
        PLAN_NODE_REDUCE = 16,           /*   sums of all nodes -> outputs of the node */
        PLAN_NODE_SCATTER = 17,          /* the same in two exchanges: the node's sums -> the node whose they are, */
        PLAN_NODE_SCATTER_REDUCE = 18,   /*   sums of all nodes -> outputs of the node, results -> all nodes, */
        PLAN_NODE_SCATTER_GATHER = 19,   /*   results of other nodes -> outputs of the node */
        PLAN_NODE_DOUBLING = 20,         /* all_reduce: recursive doubling of the nodes' sums */
        PLAN_NODE_RING = 21,             /* all_reduce: they go around */
        PLAN_NODE_TREE_UP = 22,          /* all_reduce, reduce: up a binary tree of nodes */
        PLAN_NODE_TREE_DOWN = 23,        /* all_reduce, broadcast: down */
        PLAN_NODE_CHAIN_UP = 24,         /* reduce: node after node, the root's is last */
        PLAN_NODE_CHAIN_DOWN = 25,       /* broadcast: from the root's node from node to node */
        PLAN_NODE_STAR_UP = 26,          /* reduce: the node's sums -> the root's node, */
        PLAN_NODE_STAR_REDUCE = 27,      /*   which adds them into the root's output */
        PLAN_NODE_STAR_DOWN = 28,        /* broadcast: from the root's node to each other one */
        PLAN_NODE_DOUBLE_LEAF_UP = 29,   /* all_reduce, reduce: up two trees of nodes, where the node is a leaf */
        PLAN_NODE_DOUBLE_UP = 30,        /*   where it has children */
        PLAN_NODE_DOUBLE_DOWN = 31,      /* all_reduce, broadcast: down, where it has children */
        PLAN_NODE_DOUBLE_LEAF_DOWN = 32, /*   where it is a leaf */
        PLAN_NODE_BLOCKS = 33,           /* reduce_scatter: the node's sum of each block -> the block's rank, */
        PLAN_NODE_BLOCK_REDUCE = 34,     /*   which adds them */
        PLAN_NODE_SPREAD = 35,           /* all_gather: own block -> outputs of the node, a rank of each other node */
        PLAN_NODE_COLLECT = 36,          /*   blocks of other nodes -> outputs of the node */
        PLAN_NODE_GATHER_SEND = 37,      /* gather: own block -> the root's output, or a rank of the root's node */
        PLAN_NODE_GATHER_TAKE = 38,      /*   blocks of other nodes -> the root's output */
        PLAN_NODE_SCATTER_SEND = 39,     /* scatter: blocks of the root's input -> own output, ranks of other nodes */
        PLAN_NODE_SCATTER_TAKE = 40,     /*   the own block, from the root's node */
        PLAN_NODE_ALL_TO_ALL_READ = 41,  /* all_to_all, all_to_all_v: pieces of ranks of the node -> own output */
        PLAN_NODE_ALL_TO_ALL_SEND = 42,  /* all_to_all: pieces of ranks of the node -> their ranks on other nodes */
        PLAN_NODE_ALL_TO_ALL_TAKE = 43,
        PLAN_NODE_PAIR_SEND = 44, /* all_to_all, all_to_all_v: own pieces -> their ranks on other nodes */
        PLAN_NODE_PAIR_TAKE = 45,
        /* Over nodes by channels alone, inside a node as well; see pass_staged.c for each. */
        PLAN_STAGED_SHARDS = 46,       /* own input -> the carrier of each shard on the own node */
        PLAN_STAGED_SUM = 47,          /* all_reduce: the node's sums -> all nodes; and back: */
        PLAN_STAGED_REDUCE = 48,       /*   sums of all nodes -> own output, ranks of the node */
        PLAN_STAGED_COPY = 49,         /*   chunks of the node's carriers -> own output */
        PLAN_STAGED_PIECES = 50,       /* the same in two exchanges: own input -> carriers, piece by piece, */
        PLAN_STAGED_PIECE_SUM = 51,    /*   the node's sums -> the node whose they are, */
        PLAN_STAGED_PIECE_REDUCE = 52, /*   sums of all nodes -> carriers on all nodes, */
        PLAN_STAGED_PIECE_COPY = 53,   /*   results of all pieces -> own output, ranks of the node */
        PLAN_STAGED_ROOT_SUM = 54,     /* reduce: the node's sums -> the root's node, */
        PLAN_STAGED_ROOT_REDUCE = 55,  /*   sums of all nodes -> the root, */
        PLAN_STAGED_ROOT_COPY = 56,    /*   which writes them */
        PLAN_STAGED_DEAL = 57,         /* broadcast: the root's input -> carriers on its node, */
        PLAN_STAGED_CARRY = 58,        /*   from there -> all other nodes, ranks of the node, */
        PLAN_STAGED_RELAY = 59,        /*   which do the same among themselves */
        PLAN_STAGED_BLOCKS = 60,       /* reduce_scatter: own input -> who stands for each rank on the own node, */
        PLAN_STAGED_BLOCK_SUM = 61,    /*   the node's sum of each block -> the block's rank, which adds them */
        PLAN_STAGED_SPREAD = 62,       /* all_gather: own block -> ranks of the node, a rank of each other node, */
        PLAN_STAGED_NEAR = 63,         /*   blocks of the own node -> own output, */
        PLAN_STAGED_COLLECT = 64,      /*   blocks of other nodes -> own output, ranks of the node, */
        PLAN_STAGED_SHARE = 65,        /*   and from them -> own output */
        PLAN_SCHEDULE_COUNT = 66,
};
#define PLAN_SCHEDULE_NODES  PLAN_NODE_MEET           /* this one and those behind it are for several nodes */
#define PLAN_SCHEDULE_DOUBLE PLAN_NODE_DOUBLE_LEAF_UP /* this one and those behind it, up to the next */
#define PLAN_SCHEDULE_BLOCKS PLAN_NODE_BLOCKS   /* this one and those behind it: for blocks that belong to a rank */
#define PLAN_SCHEDULE_STAGED PLAN_STAGED_SHARDS /* this one and those behind it: by channels alone */

/*
 * Which elements of an input or output a step touches. A range is looked at from a rank with an index, which is another
 * rank, a shard or a block. count is the request's count.
 */
enum plan_range {
        PLAN_RANGE_NONE = 0,
        PLAN_RANGE_WHOLE = 1,       /* [0, count) */
        PLAN_RANGE_SHARD_ME = 2,    /* the rank's shard of [0, count): plan_shard_elements() each, the tail ragged */
        PLAN_RANGE_SHARD_PEER = 3,  /* shard `index` of [0, count) */
        PLAN_RANGE_BLOCK_ME = 4,    /* [rank * count, (rank + 1) * count) */
        PLAN_RANGE_BLOCK_PEER = 5,  /* [index * count, (index + 1) * count) */
        PLAN_RANGE_VECTOR_SEND = 6, /* what the rank's vector says that it sends to `index` */
        PLAN_RANGE_VECTOR_RECV = 7, /* what the rank's vector says that it gets from `index` */
        PLAN_RANGE_COUNT = 8,
};

enum plan_peers {
        PLAN_PEERS_SELF = 0,
        PLAN_PEERS_OTHERS = 1, /* all but me, starting at (me + 1) % n for sends, (me - 1) % n for receives */
        PLAN_PEERS_ROOT = 2,   /* the root (the phase is run by non-roots only); point to point: the sender */
        PLAN_PEERS_PEER = 3,   /* point to point: the receiver */
        PLAN_PEERS_COUNT = 4,
};

enum plan_who {
        PLAN_WHO_ALL = 0,
        PLAN_WHO_ROOT = 1, /* point to point: the sender */
        PLAN_WHO_OTHERS = 2,
        PLAN_WHO_PEER = 3, /* point to point: the receiver */
        PLAN_WHO_COUNT = 4,
};

enum plan_algorithm {
        PLAN_ALGORITHM_NONE = 0,
        PLAN_ONE_SHOT = 1,           /* everybody sends everything to everybody */
        PLAN_TWO_SHOT = 2,           /* reduce-scatter, then all-gather of the reduced shards, fused */
        PLAN_DIRECT = 3,             /* one exchange, nothing or one block to reduce */
        PLAN_ZERO_COPY = 4,          /* reads and writes the peers' buffers where they lie; only signals are staged */
        PLAN_RING = 5,               /* ring, or chain for rooted operations */
        PLAN_RECURSIVE_DOUBLING = 6, /* log2 n exchanges of everything (barrier, all_gather: of what there is so far) */
        PLAN_HALVING_DOUBLING = 7,   /* recursive halving, then recursive doubling */
        PLAN_TREE = 8,               /* a binary tree */
        /* Over nodes: in place inside a node, and between ranks of equal local index between nodes: */
        PLAN_HIERARCHICAL = 9,           /* everything to every node that needs it, at once */
        PLAN_HIERARCHICAL_SCATTER = 10,  /* all_reduce: reduce-scatter, then all-gather, each at once */
        PLAN_HIERARCHICAL_DOUBLING = 11, /* recursive doubling */
        PLAN_HIERARCHICAL_RING = 12,     /* ring, or chain for rooted operations */
        PLAN_HIERARCHICAL_TREE = 13,     /* a binary tree of nodes */
        PLAN_HIERARCHICAL_RAIL = 14,     /* all_to_all: what goes to a rank is sent by who is on its rail */
        /* The same between nodes, and inside a node by channels too, for GPUs: */
        PLAN_HIERARCHICAL_STAGED = 15,         /* as HIERARCHICAL */
        PLAN_HIERARCHICAL_STAGED_SCATTER = 16, /* as HIERARCHICAL_SCATTER */
        PLAN_HIERARCHICAL_DOUBLE_TREE = 17,    /* not staged: two binary trees of nodes, for half of the data each */
        PLAN_ALGORITHM_COUNT = 18,
};

/*
 * The declared reduction tree; plans with equal trees give equal bits. x_r is rank r's contribution, + the reduction in
 * the accumulation type; the result is rounded once, at the end.
 */
enum plan_tree {
        PLAN_TREE_NONE = 0,
        PLAN_TREE_RANK_ORDER = 1, /* ((x_0 + x_1) + x_2) + ... */
        PLAN_TREE_ROTATED = 2,  /* ((x_{o+1} + x_{o+2}) + ...) + x_o, ranks modulo n. o: the shard's or block's number,
                                   rooted: the root */
        PLAN_TREE_DOUBLING = 3, /* p = largest power of two <= n; y_r = x_r + x_{r+p} if r + p < n, else x_r; then
                                   neighbours: (y_0 + y_1), (y_2 + y_3), ..., then neighbours of those, ... */
        PLAN_TREE_BINARY = 4,   /* t_0 with t_v = (x_v + t_{2v+1}) + t_{2v+2}, absent ones left out; v counts ranks from
                                   the root upwards, modulo n; all_reduce: from rank 0 */
        /* Over N nodes. y_j = ((x_a + x_b) + x_c) + ..., where a < b < c < ... are the ranks of node j; then: */
        PLAN_TREE_NODE_ORDER = 5,    /* ((y_0 + y_1) + y_2) + ... */
        PLAN_TREE_NODE_ROTATED = 6,  /* ((y_{o+1} + y_{o+2}) + ...) + y_o, nodes modulo N. o: the shard's number modulo
                                        N, rooted: the root's node */
        PLAN_TREE_NODE_DOUBLING = 7, /* as DOUBLING, of y_j in place of x_r */
        PLAN_TREE_NODE_BINARY = 8,   /* as BINARY, of y_j in place of x_r; v counts nodes from the root's (all_reduce:
                                        from node 0) upwards, modulo N */
        PLAN_TREE_NODE_DOUBLE = 9,   /* shards with even numbers, all_reduce: NODE_BINARY; reduce: y_root + t_0, where v
                                        counts the N - 1 other nodes, from the one behind the root's upwards. Odd ones:
                                        the same, but v counts from the other end */
        PLAN_TREE_COUNT = 10,
};

struct plan_phase {
        uint8_t kind;        /* enum plan_kind */
        uint8_t who;         /* enum plan_who */
        uint8_t peers;       /* enum plan_peers; PASS: SELF */
        uint8_t schedule;    /* enum plan_schedule, PASS only */
        uint8_t in_range;    /* enum plan_range on inputs */
        uint8_t out_range;   /* enum plan_range on outputs */
        uint8_t region_in;   /* channels read */
        uint8_t region_out;  /* channels written */
        uint8_t forward;     /* REDUCE: send the result on */
        int8_t after;        /* part i only after phase `after` has done its part i; -1: none */
        uint8_t after_whole; /* only after phase `after` has done all its parts */
        uint8_t reserved;
};

struct plan {
        uint32_t operation; /* RING_OP_*; RING_OP_SEND stands for a send and the receive that matches it */
        uint32_t algorithm; /* enum plan_algorithm */
        uint32_t n_ranks;
        uint32_t tree;      /* enum plan_tree */
        uint32_t n_shards;  /* SHARD ranges divide [0, count) into so many */
        uint32_t partials;  /* 1: some chunks carry accumulators */
        uint32_t n_regions; /* regions used are below this */
        uint32_t n_phases;
        struct plan_phase phases[PLAN_PHASES_MAX];
        /* How the ranks lie on nodes (plan/nodes.h); NULL: all on one. Not owned, lives as long as the plan. Steps
         * touch memory of other ranks only where these are on the same node, and everything else goes through channels.
         */
        const struct plan_nodes *nodes;
};

/* Staging geometry, fixed per communicator. */
struct plan_geometry {
        uint32_t part_bytes; /* multiple of 64 */
        uint32_t slots;      /* per channel between two ranks, >= 1; rings need 2 */
};
/* Slots of a channel. A rank's channel to itself holds a part of each shard, so that it can keep partial results. */
static inline uint32_t plan_channel_slots(const struct plan_geometry *geometry, uint32_t n_ranks, bool self) {
        return self && geometry->slots < n_ranks ? n_ranks : geometry->slots;
}
static inline uint32_t plan_slot_bytes(const struct plan_geometry *geometry, uint32_t region) {
        return region < PLAN_REGIONS_DATA ? geometry->part_bytes : PLAN_SIGNAL_BYTES;
}

/* all_to_all_v: elements and where they begin, [n_ranks] each. send_count of a at b equals recv_count of b at a. */
struct plan_vector {
        const uint64_t *send_count;
        const uint64_t *send_offset;
        const uint64_t *recv_count;
        const uint64_t *recv_offset;
};

enum plan_role { PLAN_ROLE_ANY = 0, PLAN_ROLE_SENDER = 1, PLAN_ROLE_RECEIVER = 2 };

/* What a plan needs to know of one rank's request. All ranks have the same but for `vector` and `role`. */
struct plan_shape {
        uint64_t count;
        uint32_t element_bytes;
        uint32_t partial_bytes;           /* of an accumulator; anything > 0 if nothing reduces */
        uint32_t root;                    /* point to point: the sender */
        uint32_t peer;                    /* point to point: the receiver; else 0 */
        uint32_t role;                    /* enum plan_role: which half of a point-to-point plan this request is */
        const struct plan_vector *vector; /* all_to_all_v only */
};

enum { PLAN_OK = 0, PLAN_E_UNSUPPORTED = 1, PLAN_E_INVALID = 2 };

/* Elements of a request's input / output buffer for overflow-checked bounds. PLAN_E_INVALID on overflow of 64 bit.
 * (all_to_all_v: plan_vector_elements.) */
int plan_request_elements(uint32_t operation, uint32_t n_ranks, uint64_t count, bool is_root, uint64_t *ret_in,
                          uint64_t *ret_out);
/* The same from a vector: the ends of the furthest pieces. PLAN_E_INVALID on overflow. */
int plan_vector_elements(const struct plan_vector *vector, uint32_t n_ranks, uint64_t *ret_in, uint64_t *ret_out);
bool plan_operation_reduces(uint32_t operation);
bool plan_operation_rooted(uint32_t operation);
bool plan_operation_p2p(uint32_t operation);
const char *plan_operation_name(uint32_t operation); /* "all_reduce"; "?" if unknown */
const char *plan_algorithm_name(uint32_t algorithm); /* "two_shot" */
const char *plan_kind_name(uint32_t kind);           /* "push" */
const char *plan_tree_name(uint32_t tree);           /* "rank_order" */

/* ---- ranges (range.c) -------------------------------------------------------------------------------------------- */
struct plan_span {
        uint64_t offset; /* elements from the start of the buffer */
        uint64_t length; /* elements, may be 0 */
};
/* ceil(count / n) rounded up to 16 bytes' worth of elements. */
uint64_t plan_shard_elements(uint64_t count, uint32_t n_shards, uint32_t element_bytes);
/* Elements of one part: what fits a slot, as element or as accumulator. */
uint64_t plan_part_elements(const struct plan *plan, const struct plan_geometry *geometry,
                            const struct plan_shape *shape);
/* Number of parts of this phase on this rank (empty ones included; signals: 1). Equal on all ranks, except for vectors,
 * where it is equal for each pair that exchanges something: see plan_step. */
uint64_t plan_phase_parts(const struct plan *plan, const struct plan_phase *phase, const struct plan_geometry *geometry,
                          const struct plan_shape *shape, uint32_t me);
/* The elements of part `part` of a range, seen from `rank` (whose shape it is) with `index`. */
struct plan_span plan_span(uint32_t range, const struct plan *plan, const struct plan_geometry *geometry,
                           const struct plan_shape *shape, uint32_t rank, uint32_t index, uint64_t part);

/* ---- steps (step.c, pass.c) -------------------------------------------------------------------------------------- */
enum plan_source_kind {
        PLAN_SOURCE_INPUT = 1,  /* in_range of `rank`'s input at `index`; with rank != me: where it lies */
        PLAN_SOURCE_OUTPUT = 2, /* out_range of the own output at `index`: what this phase has written there before */
        PLAN_SOURCE_CHUNK = 3,  /* the next chunk of channel (region_in, rank, me) */
};
struct plan_source {
        uint8_t kind;
        uint8_t rank;
        uint8_t index;
};
struct plan_place { /* out_range of `rank`'s output at `index`; with rank != me: where it lies */
        uint8_t rank;
        uint8_t index;
};
/*
 * One step: combines its sources in their order and puts the result into all outputs and into a chunk for each target
 * (region_out). Ready when every CHUNK is there and every target has a free slot. Then, in this order: read, write
 * outputs and chunks, set the chunks' flags, release the chunks read.
 */
struct plan_step {
        uint32_t n_sources; /* 0, or sources without data: a signal */
        uint32_t n_outputs;
        uint32_t n_targets;
        bool data;        /* false: chunks are empty, nothing is read or written */
        bool reduce;      /* the operation reduces: inputs are contributions (pre-multiplied), and: */
        bool partial_in;  /*   chunks read are accumulators, not elements */
        bool partial_out; /*   chunks written are accumulators */
        bool finish;      /*   the value is complete: round (and divide) it */
        uint32_t index;   /* whose range gives the length */
        uint64_t length;  /* elements; of every source, output and target */
        struct plan_source source[PLAN_RANKS_MAX];
        struct plan_place output[PLAN_RANKS_MAX];
        uint8_t target[PLAN_RANKS_MAX];
};
/* Does `me` run this phase? */
bool plan_phase_mine(const struct plan_phase *phase, const struct plan_shape *shape, uint32_t me);
/* Steps of each part; 0: none (not mine, or nobody to talk to). */
uint32_t plan_phase_steps(const struct plan *plan, const struct plan_phase *phase, const struct plan_shape *shape,
                          uint32_t me);
/* Fills *ret_step. False: nothing to do in this step (a vector's pair that has fewer parts); go on to the next. */
bool plan_step(const struct plan *plan, const struct plan_phase *phase, const struct plan_geometry *geometry,
               const struct plan_shape *shape, uint32_t me, uint64_t part, uint32_t k, struct plan_step *ret_step);

/* ---- planners (planner.c, planner_node.c) ------------------------------------------------------------------------ */
/* Fill *ret_plan for an operation. PLAN_E_UNSUPPORTED for a combination that does not exist. */
int plan_build(uint32_t operation, uint32_t algorithm, uint32_t n_ranks, struct plan *ret_plan);
/* The k-th algorithm that exists for an operation and n_ranks; PLAN_ALGORITHM_NONE past the end. */
uint32_t plan_algorithm_at(uint32_t operation, uint32_t n_ranks, uint32_t k);
/*
 * The same for ranks on several nodes: plans that go through channels alone, and hierarchical ones. `nodes` (n_nodes >=
 * 2) has to live as long as the plan. PLAN_E_INVALID if it is not for n_ranks. What is special: a send reads in place
 * and is for a pair of one node; its plan has no `nodes`, and backends copy by themselves between two nodes.
 */
int plan_build_nodes(uint32_t operation, uint32_t algorithm, uint32_t n_ranks, const struct plan_nodes *nodes,
                     struct plan *ret_plan);
uint32_t plan_algorithm_at_nodes(uint32_t operation, uint32_t n_ranks, const struct plan_nodes *nodes, uint32_t k);
