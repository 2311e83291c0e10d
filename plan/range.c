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

uint64_t plan_shard_elements(uint64_t count, uint32_t n_shards, uint32_t element_bytes) {
        uint64_t shard = count / n_shards + (count % n_shards != 0);
        uint64_t granule =
                element_bytes > 0 && element_bytes < SHARD_ALIGN_BYTES ? SHARD_ALIGN_BYTES / element_bytes : 1;
        uint64_t rest = shard % granule;

        if (rest == 0)
                return shard;
        return shard > UINT64_MAX - (granule - rest) ? shard : shard + (granule - rest);
}

/* The whole range, before it is cut into parts. */
static struct plan_span range_span(uint32_t range, const struct plan *plan, const struct plan_shape *shape,
                                   uint32_t rank, uint32_t index) {
        const struct plan_vector *vector = shape->vector;
        uint64_t count = shape->count, shard;
        struct plan_span span = {0};

        switch (range) {
        case PLAN_RANGE_WHOLE:
                span.length = count;
                break;
        case PLAN_RANGE_SHARD_ME:
        case PLAN_RANGE_SHARD_PEER:
                shard = plan_shard_elements(count, plan->n_shards, shape->element_bytes);
                span.offset = saturating_mul(shard, range == PLAN_RANGE_SHARD_ME ? rank : index);
                if (span.offset > count)
                        span.offset = count;
                span.length = count - span.offset < shard ? count - span.offset : shard;
                break;
        case PLAN_RANGE_BLOCK_ME:
        case PLAN_RANGE_BLOCK_PEER:
                span.offset = saturating_mul(count, range == PLAN_RANGE_BLOCK_ME ? rank : index);
                span.length = count;
                break;
        case PLAN_RANGE_VECTOR_SEND:
                if (vector)
                        span = (struct plan_span){vector->send_offset[index], vector->send_count[index]};
                break;
        case PLAN_RANGE_VECTOR_RECV:
                if (vector)
                        span = (struct plan_span){vector->recv_offset[index], vector->recv_count[index]};
                break;
        default:
                break;
        }
        return span;
}

uint64_t plan_part_elements(const struct plan *plan, const struct plan_geometry *geometry,
                            const struct plan_shape *shape) {
        uint32_t bytes = plan->partials && shape->partial_bytes > shape->element_bytes ? shape->partial_bytes
                                                                                       : shape->element_bytes;
        uint64_t elements = bytes > 0 ? geometry->part_bytes / bytes : 0;

        return elements > 0 ? elements : 1;
}

/* The longest that any rank has. */
static uint64_t range_longest(uint32_t range, const struct plan *plan, const struct plan_shape *shape, uint32_t me) {
        uint64_t longest = 0;

        if (range != PLAN_RANGE_VECTOR_SEND && range != PLAN_RANGE_VECTOR_RECV)
                return range_span(range, plan, shape, 0, 0).length; /* rank 0's is never shorter than another's */
        for (uint32_t i = 0; i < plan->n_ranks; i++) {
                uint64_t length = range_span(range, plan, shape, me, i).length;

                longest = length > longest ? length : longest;
        }
        return longest;
}

uint64_t plan_phase_parts(const struct plan *plan, const struct plan_phase *phase, const struct plan_geometry *geometry,
                          const struct plan_shape *shape, uint32_t me) {
        uint64_t elements = plan_part_elements(plan, geometry, shape);
        uint64_t in, out, longest;

        if (phase->in_range == PLAN_RANGE_NONE && phase->out_range == PLAN_RANGE_NONE)
                return 1;
        in = range_longest(phase->in_range, plan, shape, me);
        out = range_longest(phase->out_range, plan, shape, me);
        longest = in > out ? in : out;
        return longest / elements + (longest % elements != 0);
}

struct plan_span plan_span(uint32_t range, const struct plan *plan, const struct plan_geometry *geometry,
                           const struct plan_shape *shape, uint32_t rank, uint32_t index, uint64_t part) {
        struct plan_span span = range_span(range, plan, shape, rank, index);
        uint64_t elements = plan_part_elements(plan, geometry, shape);
        uint64_t skip = saturating_mul(elements, part);

        if (skip > span.length)
                skip = span.length;
        span.offset = span.offset > UINT64_MAX - skip ? UINT64_MAX : span.offset + skip;
        span.length -= skip;
        if (span.length > elements)
                span.length = elements;
        return span;
}
