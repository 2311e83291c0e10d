/* SPDX-License-Identifier: MIT */
#pragma once
/* The arithmetic of ranges, for range.c and for device code, which is compiled from the same lines. See range.c. */
#include "plan/plan.h"

#if defined(__HIP__) || defined(__CUDACC__)
#define SPAN_INLINE static inline __attribute__((host)) __attribute__((device))
#else
#define SPAN_INLINE static inline
#endif

#define SPAN_SHARD_ALIGN_BYTES 16u

SPAN_INLINE uint64_t span_multiply(uint64_t a, uint64_t b) {
#if defined(__HIP__) || defined(__CUDACC__)
        return a * b; /* device code has bounded its counts */
#else
        uint64_t product;

        return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
#endif
}

SPAN_INLINE uint64_t span_shard_elements(uint64_t count, uint32_t n_shards, uint32_t element_bytes) {
        uint64_t shard = count / n_shards + (count % n_shards != 0);
        uint64_t granule = element_bytes > 0 && element_bytes < SPAN_SHARD_ALIGN_BYTES
                                   ? SPAN_SHARD_ALIGN_BYTES / element_bytes
                                   : 1;
        uint64_t rest = shard % granule;

        if (rest == 0)
                return shard;
        return shard > UINT64_MAX - (granule - rest) ? shard : shard + (granule - rest);
}

/* The whole range, before it is cut into parts. */
SPAN_INLINE struct plan_span span_whole(uint32_t range, uint32_t n_shards, uint32_t element_bytes, uint64_t count,
                                        const struct plan_vector *vector, uint32_t rank, uint32_t index) {
        struct plan_span span = {0, 0};
        uint64_t shard;

        switch (range) {
        case PLAN_RANGE_WHOLE:
                span.length = count;
                break;
        case PLAN_RANGE_SHARD_ME:
        case PLAN_RANGE_SHARD_PEER:
                shard = span_shard_elements(count, n_shards, element_bytes);
                span.offset = span_multiply(shard, range == PLAN_RANGE_SHARD_ME ? rank : index);
                if (span.offset > count)
                        span.offset = count;
                span.length = count - span.offset < shard ? count - span.offset : shard;
                break;
        case PLAN_RANGE_BLOCK_ME:
        case PLAN_RANGE_BLOCK_PEER:
                span.offset = span_multiply(count, range == PLAN_RANGE_BLOCK_ME ? rank : index);
                span.length = count;
                break;
        case PLAN_RANGE_VECTOR_SEND:
                if (vector) {
                        span.offset = vector->send_offset[index];
                        span.length = vector->send_count[index];
                }
                break;
        case PLAN_RANGE_VECTOR_RECV:
                if (vector) {
                        span.offset = vector->recv_offset[index];
                        span.length = vector->recv_count[index];
                }
                break;
        default:
                break;
        }
        return span;
}

/* Part `part` of a range that is cut into pieces of `elements`. */
SPAN_INLINE struct plan_span span_part(struct plan_span span, uint64_t elements, uint64_t part) {
        uint64_t skip = span_multiply(elements, part);

        if (skip > span.length)
                skip = span.length;
        span.offset = span.offset > UINT64_MAX - skip ? UINT64_MAX : span.offset + skip;
        span.length -= skip;
        if (span.length > elements)
                span.length = elements;
        return span;
}
