/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The plan: how one collective runs on one communicator, as a short list of retriable phases. See plan.c for the essay.
 *
 * Channels. All data between ranks moves through channels. A channel (region, source, destination) is a FIFO of
 * `slots` staging slots of `part_bytes` in the destination's memory. Each slot has a flag: the number of the chunk it
 * holds (32-bit, counts up for ever per channel). The consumer publishes how many chunks it has released (the credit).
 * A chunk may be written when pushed - released < slots. Because every plan consumes exactly what it pushes, FIFOs
 * compose over consecutive plans without any reset.
 *
 * Parts. A phase works on its ranges part by part (part_bytes at most). A part that is not ready is retried later; each
 * phase of a rank has its own cursor (part, peer) and phases of one request are attempted independently of each other,
 * except where `after` orders them.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAN_RANKS_MAX   64u
#define PLAN_PHASES_MAX  8u
#define PLAN_REGIONS_MAX 2u

enum plan_kind {
        PLAN_PUSH = 1,    /* own input range -> a chunk in each peer's channel */
        PLAN_REDUCE = 2,  /* own input range + one chunk of every other rank, in rank order -> own output, and, if
                             `forward`, the result as a chunk to every other rank */
        PLAN_COPY = 3,    /* peers' chunks -> own output; with peers SELF: own input -> own output (no-op when equal) */
        PLAN_SIGNAL = 4,  /* an empty chunk to each peer */
        PLAN_WAIT = 5,    /* an empty chunk from each peer */
        PLAN_NET_PUT = 6, /* reserved: fabric */
        PLAN_NET_WAIT = 7,   /* reserved: fabric */
        PLAN_QUANTISE = 8,   /* reserved */
        PLAN_DEQUANTISE = 9, /* reserved */
};

/* Which elements of the input or output a phase touches. count is the request's count, n the number of ranks. */
enum plan_range {
        PLAN_RANGE_NONE = 0,
        PLAN_RANGE_WHOLE = 1, /* [0, count) */
        PLAN_RANGE_SHARD_ME =
                2, /* shard `me` of [0, count): size plan_shard_elements() each, the tail ragged or empty */
        PLAN_RANGE_SHARD_PEER = 3, /* shard `peer` of [0, count) */
        PLAN_RANGE_BLOCK_ME = 4,   /* [me * count, (me + 1) * count) */
        PLAN_RANGE_BLOCK_PEER = 5, /* [peer * count, (peer + 1) * count) */
};

enum plan_peers {
        PLAN_PEERS_SELF = 0,
        PLAN_PEERS_OTHERS = 1, /* all but me, starting at (me + 1) % n for sends, (me - 1) % n for receives */
        PLAN_PEERS_ROOT = 2,   /* the root (the phase is run by non-roots only) */
};

enum plan_who { PLAN_WHO_ALL = 0, PLAN_WHO_ROOT = 1, PLAN_WHO_OTHERS = 2 };

enum plan_algorithm {
        PLAN_ALGORITHM_NONE = 0,
        PLAN_ONE_SHOT = 1, /* everybody sends everything to everybody */
        PLAN_TWO_SHOT = 2, /* reduce-scatter, then all-gather of the reduced shards, fused */
        PLAN_DIRECT = 3,   /* one exchange, nothing to reduce or one block to reduce (all_gather, reduce_scatter,
                              broadcast, barrier) */
        PLAN_ALGORITHM_COUNT = 4,
};

/* The declared reduction tree; plans with equal trees give equal bits. */
enum plan_tree {
        PLAN_TREE_NONE = 0,
        PLAN_TREE_RANK_ORDER = 1, /* ((x0 + x1) + x2) + ... in the accumulation type, rounded once */
};

struct plan_phase {
        uint8_t kind;       /* enum plan_kind */
        uint8_t who;        /* enum plan_who */
        uint8_t peers;      /* enum plan_peers */
        uint8_t in_range;   /* enum plan_range on the input (PUSH, REDUCE, COPY from SELF) */
        uint8_t out_range;  /* enum plan_range on the output (REDUCE, COPY) */
        uint8_t region_in;  /* channels read (REDUCE, COPY, WAIT) */
        uint8_t region_out; /* channels written (PUSH, SIGNAL, REDUCE with forward) */
        uint8_t forward;    /* REDUCE: send the result on */
        int8_t after;       /* part i only after phase `after` has done its part i for all peers; -1: none */
        uint8_t reserved[3];
};

struct plan {
        uint32_t operation; /* RING_OP_* */
        uint32_t algorithm; /* enum plan_algorithm */
        uint32_t n_ranks;
        uint32_t tree; /* enum plan_tree */
        uint32_t n_regions;
        uint32_t n_phases;
        struct plan_phase phases[PLAN_PHASES_MAX];
};

/* Staging geometry, fixed per communicator. */
struct plan_geometry {
        uint32_t part_bytes; /* multiple of 64 */
        uint32_t slots;      /* per channel, >= 1 */
};

enum { PLAN_OK = 0, PLAN_E_UNSUPPORTED = 1, PLAN_E_INVALID = 2 };

/* Elements of a request's input / output buffer for overflow-checked bounds. PLAN_E_INVALID on overflow of 64 bit. */
int plan_request_elements(uint32_t operation, uint32_t n_ranks, uint64_t count, bool is_root, uint64_t *ret_in,
                          uint64_t *ret_out);
/* Does the operation read its input / write its output on this rank, has it a root, does it reduce? */
bool plan_operation_reduces(uint32_t operation);
bool plan_operation_rooted(uint32_t operation);
const char *plan_operation_name(uint32_t operation); /* "all_reduce"; "?" if unknown */
const char *plan_algorithm_name(uint32_t algorithm); /* "two_shot" */

/* ceil(count / n) rounded up to 16 bytes' worth of elements. */
uint64_t plan_shard_elements(uint64_t count, uint32_t n_ranks, uint32_t element_bytes);

/* Number of parts that every rank counts for this phase (equal on all ranks, empty parts included; SIGNAL/WAIT: 1). */
uint64_t plan_phase_parts(const struct plan *plan, const struct plan_phase *phase, const struct plan_geometry *geometry,
                          uint64_t count, uint32_t element_bytes);
struct plan_span {
        uint64_t offset; /* elements from the start of the buffer */
        uint64_t length; /* elements, may be 0 */
};
/* The elements of part `part` of a range. */
struct plan_span plan_span(uint32_t range, const struct plan *plan, const struct plan_geometry *geometry,
                           uint64_t count, uint32_t element_bytes, uint32_t me, uint32_t peer, uint64_t part);
/* Does `me` run this phase; the number of its peers; the k-th peer of the phase in the order of its cursor. */
bool plan_phase_mine(const struct plan_phase *phase, uint32_t me, uint32_t root);
uint32_t plan_phase_peers(const struct plan *plan, const struct plan_phase *phase, uint32_t me, uint32_t root);
uint32_t plan_phase_peer(const struct plan *plan, const struct plan_phase *phase, uint32_t me, uint32_t root,
                         uint32_t k);

/* Planners: fill *ret_plan for an operation. PLAN_E_UNSUPPORTED for a combination that does not exist. */
int plan_build(uint32_t operation, uint32_t algorithm, uint32_t n_ranks, struct plan *ret_plan);
