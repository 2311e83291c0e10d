/* SPDX-License-Identifier: MIT */
/*
 * Ranges and their parts. All arithmetic is in elements and cannot wrap for requests that plan_request_elements()
 * accepts; beyond those it saturates, so that whoever checks a span against a buffer sees it outside.
 */
#include "plan/plan.h"
#include "plan/span.h"

uint64_t plan_shard_elements(uint64_t count, uint32_t n_shards, uint32_t element_bytes) {
        return span_shard_elements(count, n_shards, element_bytes);
}

/* The whole range, before it is cut into parts. */
static struct plan_span range_span(uint32_t range, const struct plan *plan, const struct plan_shape *shape,
                                   uint32_t rank, uint32_t index) {
        return span_whole(range, plan->n_shards, shape->element_bytes, shape->count, shape->vector, rank, index);
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
        return span_part(range_span(range, plan, shape, rank, index), plan_part_elements(plan, geometry, shape), part);
}
