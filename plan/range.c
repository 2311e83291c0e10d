/* SPDX-License-Identifier: MIT */
/*
 * Ranges and their parts. All arithmetic is in elements and cannot wrap for requests that plan_request_elements()
 * accepts; beyond those it saturates, so that whoever checks a span against a buffer sees it outside.
 */
#include "plan/plan.h"

#define SHARD_ALIGN_BYTES 16u

static uint64_t saturating_mul(uint64_t a, uint64_t b) {
        uint64_t product;

        return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

uint64_t plan_shard_elements(uint64_t count, uint32_t n_ranks, uint32_t element_bytes) {
        uint64_t shard = count / n_ranks + (count % n_ranks != 0);
        uint64_t granule =
                element_bytes > 0 && element_bytes < SHARD_ALIGN_BYTES ? SHARD_ALIGN_BYTES / element_bytes : 1;
        uint64_t rest = shard % granule;

        if (rest == 0)
                return shard;
        return shard > UINT64_MAX - (granule - rest) ? shard : shard + (granule - rest);
}

/* The whole range, before it is cut into parts. */
static struct plan_span range_span(uint32_t range, const struct plan *plan, uint64_t count, uint32_t element_bytes,
                                   uint32_t me, uint32_t peer) {
        struct plan_span span = {0};
        uint64_t shard;

        switch (range) {
        case PLAN_RANGE_WHOLE:
                span.length = count;
                break;
        case PLAN_RANGE_SHARD_ME:
        case PLAN_RANGE_SHARD_PEER:
                shard = plan_shard_elements(count, plan->n_ranks, element_bytes);
                span.offset = saturating_mul(shard, range == PLAN_RANGE_SHARD_ME ? me : peer);
                if (span.offset > count)
                        span.offset = count;
                span.length = count - span.offset < shard ? count - span.offset : shard;
                break;
        case PLAN_RANGE_BLOCK_ME:
        case PLAN_RANGE_BLOCK_PEER:
                span.offset = saturating_mul(count, range == PLAN_RANGE_BLOCK_ME ? me : peer);
                span.length = count;
                break;
        default:
                break;
        }
        return span;
}

static uint64_t part_elements(const struct plan_geometry *geometry, uint32_t element_bytes) {
        uint64_t elements = element_bytes > 0 ? geometry->part_bytes / element_bytes : 0;

        return elements > 0 ? elements : 1;
}

uint64_t plan_phase_parts(const struct plan *plan, const struct plan_phase *phase, const struct plan_geometry *geometry,
                          uint64_t count, uint32_t element_bytes) {
        uint64_t elements = part_elements(geometry, element_bytes);
        uint64_t in, out, longest;

        if (phase->kind == PLAN_SIGNAL || phase->kind == PLAN_WAIT)
                return 1;
        /* Rank 0's shard and block are never shorter than another's. */
        in = range_span(phase->in_range, plan, count, element_bytes, 0, 0).length;
        out = range_span(phase->out_range, plan, count, element_bytes, 0, 0).length;
        longest = in > out ? in : out;
        return longest / elements + (longest % elements != 0);
}

struct plan_span plan_span(uint32_t range, const struct plan *plan, const struct plan_geometry *geometry,
                           uint64_t count, uint32_t element_bytes, uint32_t me, uint32_t peer, uint64_t part) {
        struct plan_span span = range_span(range, plan, count, element_bytes, me, peer);
        uint64_t elements = part_elements(geometry, element_bytes);
        uint64_t skip = saturating_mul(elements, part);

        if (skip > span.length)
                skip = span.length;
        span.offset = span.offset > UINT64_MAX - skip ? UINT64_MAX : span.offset + skip;
        span.length -= skip;
        if (span.length > elements)
                span.length = elements;
        return span;
}
