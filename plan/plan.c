/* SPDX-License-Identifier: MIT */
/*
 * What a plan means.
 *
 * Every rank runs the phases that are its own (`who`). Each phase has a cursor that walks its steps in a fixed order
 * and never goes back; phases of one request are tried independently, so a phase that waits holds up nobody but itself
 * and those that name it in `after`.
 *
 *   PUSH, SIGNAL  steps (part, k): part-major, then the peers in order. A step needs credit on the channel to its peer.
 *   COPY, WAIT    steps (part, k): likewise. A step needs the next chunk of the channel from its peer, and releases it.
 *   REDUCE        steps (part): needs the next chunk of every other rank, and, if it forwards, credit on every channel
 * out. COPY of SELF  steps (part): needs nothing. `after`       step (part, k) of this phase needs all steps of part
 * `part` of the named phase done.
 *
 * A request of a rank is done when all its phases are. Only then the rank starts its next one. Different ranks may be
 * at different requests; the channels, being FIFOs, carry chunks of the next request behind those of the former one.
 *
 * Spans. All ranks count the same parts for a phase, that of the largest span; on a ragged or empty shard the last
 * parts are short or empty, and an empty part still moves an (empty) chunk. So both ends of a channel always agree on
 * the number of chunks without looking at lengths.
 */
#include "plan/plan.h"

#include "ring/ring.h"

static const char *const operation_names[RING_OP_COUNT] = {
        [RING_OP_NONE] = "none",
        [RING_OP_ALL_REDUCE] = "all_reduce",
        [RING_OP_REDUCE] = "reduce",
        [RING_OP_BROADCAST] = "broadcast",
        [RING_OP_ALL_GATHER] = "all_gather",
        [RING_OP_REDUCE_SCATTER] = "reduce_scatter",
        [RING_OP_ALL_TO_ALL] = "all_to_all",
        [RING_OP_ALL_TO_ALL_V] = "all_to_all_v",
        [RING_OP_GATHER] = "gather",
        [RING_OP_SCATTER] = "scatter",
        [RING_OP_SEND] = "send",
        [RING_OP_RECV] = "recv",
        [RING_OP_BARRIER] = "barrier",
};

static const char *const algorithm_names[PLAN_ALGORITHM_COUNT] = {
        [PLAN_ALGORITHM_NONE] = "none",
        [PLAN_ONE_SHOT] = "one_shot",
        [PLAN_TWO_SHOT] = "two_shot",
        [PLAN_DIRECT] = "direct",
};

const char *plan_operation_name(uint32_t operation) {
        return operation < RING_OP_COUNT ? operation_names[operation] : "?";
}

const char *plan_algorithm_name(uint32_t algorithm) {
        return algorithm < PLAN_ALGORITHM_COUNT ? algorithm_names[algorithm] : "?";
}

bool plan_operation_reduces(uint32_t operation) {
        return operation == RING_OP_ALL_REDUCE || operation == RING_OP_REDUCE || operation == RING_OP_REDUCE_SCATTER;
}

bool plan_operation_rooted(uint32_t operation) {
        return operation == RING_OP_BROADCAST || operation == RING_OP_REDUCE || operation == RING_OP_GATHER ||
               operation == RING_OP_SCATTER;
}

int plan_request_elements(uint32_t operation, uint32_t n_ranks, uint64_t count, bool is_root, uint64_t *ret_in,
                          uint64_t *ret_out) {
        uint64_t all;

        if (__builtin_mul_overflow(count, (uint64_t)n_ranks, &all))
                return PLAN_E_INVALID;
        switch (operation) {
        case RING_OP_ALL_REDUCE:
                *ret_in = count, *ret_out = count;
                return PLAN_OK;
        case RING_OP_ALL_GATHER:
                *ret_in = count, *ret_out = all;
                return PLAN_OK;
        case RING_OP_REDUCE_SCATTER:
                *ret_in = all, *ret_out = count;
                return PLAN_OK;
        case RING_OP_BROADCAST:
                *ret_in = is_root ? count : 0, *ret_out = count;
                return PLAN_OK;
        case RING_OP_BARRIER:
                *ret_in = 0, *ret_out = 0;
                return PLAN_OK;
        default:
                return PLAN_E_INVALID;
        }
}

uint64_t plan_shard_elements(uint64_t count, uint32_t n_ranks, uint32_t element_bytes) {
        uint64_t shard = count / n_ranks + (count % n_ranks ? 1 : 0);
        uint64_t granule = element_bytes && element_bytes < 16 ? 16 / element_bytes : 1;

        return shard > UINT64_MAX - granule ? shard : (shard + granule - 1) / granule * granule;
}

/* The elements a range covers for (me, peer): offset and length. */
static struct plan_span range_span(uint32_t range, uint32_t n_ranks, uint64_t count, uint32_t element_bytes,
                                   uint32_t me, uint32_t peer) {
        uint64_t shard, offset;

        switch (range) {
        case PLAN_RANGE_WHOLE:
                return (struct plan_span){0, count};
        case PLAN_RANGE_SHARD_ME:
        case PLAN_RANGE_SHARD_PEER:
                shard = plan_shard_elements(count, n_ranks, element_bytes);
                if (__builtin_mul_overflow(shard, (uint64_t)(range == PLAN_RANGE_SHARD_ME ? me : peer), &offset) ||
                    offset > count)
                        offset = count;
                return (struct plan_span){offset, count - offset < shard ? count - offset : shard};
        case PLAN_RANGE_BLOCK_ME:
                return (struct plan_span){count * me, count};
        case PLAN_RANGE_BLOCK_PEER:
                return (struct plan_span){count * peer, count};
        default:
                return (struct plan_span){0, 0};
        }
}

static uint64_t part_elements(const struct plan_geometry *geometry, uint32_t element_bytes) {
        return geometry->part_bytes / element_bytes;
}

uint64_t plan_phase_parts(const struct plan *plan, const struct plan_phase *phase, const struct plan_geometry *geometry,
                          uint64_t count, uint32_t element_bytes) {
        uint64_t elements = part_elements(geometry, element_bytes), longest;
        uint32_t range;

        switch (phase->kind) {
        case PLAN_SIGNAL:
        case PLAN_WAIT:
                return 1;
        case PLAN_COPY:
                range = phase->peers == PLAN_PEERS_SELF ? phase->in_range : phase->out_range;
                break;
        default:
                range = phase->in_range;
                break;
        }
        longest = range_span(range, plan->n_ranks, count, element_bytes, 0, 0)
                          .length; /* shard and block 0 are the longest */
        return longest / elements + (longest % elements ? 1 : 0);
}

struct plan_span plan_span(uint32_t range, const struct plan *plan, const struct plan_geometry *geometry,
                           uint64_t count, uint32_t element_bytes, uint32_t me, uint32_t peer, uint64_t part) {
        struct plan_span span = range_span(range, plan->n_ranks, count, element_bytes, me, peer);
        uint64_t elements = part_elements(geometry, element_bytes), skip;

        if (__builtin_mul_overflow(elements, part, &skip) || skip > span.length)
                skip = span.length;
        span.offset += skip;
        span.length -= skip;
        if (span.length > elements)
                span.length = elements;
        return span;
}

bool plan_phase_mine(const struct plan_phase *phase, uint32_t me, uint32_t root) {
        return phase->who == PLAN_WHO_ALL || (phase->who == PLAN_WHO_ROOT) == (me == root);
}

uint32_t plan_phase_peers(const struct plan *plan, const struct plan_phase *phase, uint32_t me, uint32_t root) {
        (void)me;
        (void)root;
        return phase->peers == PLAN_PEERS_OTHERS ? plan->n_ranks - 1 : 1;
}

uint32_t plan_phase_peer(const struct plan *plan, const struct plan_phase *phase, uint32_t me, uint32_t root,
                         uint32_t k) {
        uint32_t n = plan->n_ranks;

        if (phase->peers == PLAN_PEERS_SELF)
                return me;
        if (phase->peers == PLAN_PEERS_ROOT)
                return root;
        /* Everybody starts with another peer; what I send first is what that peer receives first. */
        return phase->kind == PLAN_PUSH || phase->kind == PLAN_SIGNAL ? (me + 1 + k) % n : (me + 2 * n - 1 - k) % n;
}
