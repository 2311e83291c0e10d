/* SPDX-License-Identifier: MIT */
/*
 * Test data.
 *
 * Operations that only move data carry arbitrary bits, NaNs included: they must arrive unchanged. Operations that
 * reduce carry numbers whose reduction is exact in the type in any order, so a right result is right in every bit
 * whatever plan produced it.
 *
 *   sum, max, min   value = common(i, iteration) + weight(rank, (i + iteration) mod 251)
 *   prod            value = sign(i, iteration) * weight(rank, ...), weight a small power of two or its negative
 *
 * The common part tells positions and iterations apart (a shifted or stale output differs), the weights tell ranks
 * apart (a dropped or doubled rank differs). Because the weights have a period, their reduction over all ranks is a
 * table, and checking an element costs the same for 64 ranks as for one.
 *
 * Exactness: bf16 holds the integers up to 256, so for sums each value is at most 256 / n_ranks; fp32 and int32 stay
 * below 2^24. Products have at most 24 factors that are not +-1. No value of a product is zero, hence no negative zero.
 */
#include "tools/perf/pattern.h"

#include <railmux/railmux.h>
#include <string.h>

#define PROD_FACTORS_MAX 24

static uint32_t mix(uint64_t x) {
        x ^= x >> 31;
        x *= 0x9e3779b97f4a7c15u;
        x ^= x >> 29;
        x *= 0xd6e8feb86659fd93u;
        return (uint32_t)(x >> 32);
}

/* An integer in [-range, range]. */
static int32_t spread(uint32_t hash, int32_t range) {
        return (int32_t)((uint64_t)hash * (2u * (uint32_t)range + 1u) >> 32) - range;
}

static int reduces(uint32_t op) {
        return op == PATTERN_ALL_REDUCE || op == PATTERN_REDUCE_SCATTER;
}

static void weights_init(struct pattern *p, int32_t range) {
        for (uint32_t k = 0; k < PATTERN_PERIOD; k++) {
                int32_t sum = 0, max = INT32_MIN, min = INT32_MAX, prod = 1;
                int factors = 0;

                for (uint32_t r = 0; r < p->n_ranks; r++) {
                        uint32_t hash = mix((uint64_t)(r + 1) << 32 | (k + 1));
                        int32_t w;

                        if (p->redop == RMX_PROD) {
                                w = (hash & 1u) && factors < PROD_FACTORS_MAX ? 2 : 1;
                                factors += w == 2;
                                w = (hash & 2u) ? -w : w;
                                prod *= w;
                        } else {
                                w = spread(hash, range);
                                sum += w;
                                max = w > max ? w : max;
                                min = w < min ? w : min;
                        }
                        p->weight[r][k] = w;
                }
                p->reduced[k] = p->redop == RMX_SUM    ? sum
                                : p->redop == RMX_PROD ? prod
                                : p->redop == RMX_MAX  ? max
                                                       : min;
        }
}

int pattern_init(struct pattern *p, uint32_t op, uint32_t type, uint32_t redop, uint32_t n_ranks, uint32_t root) {
        int32_t limit;

        if (type != RMX_FLOAT32 && type != RMX_BFLOAT16 && type != RMX_INT32)
                return PATTERN_E_UNSUPPORTED;
        if (n_ranks == 0 || n_ranks > PATTERN_RANKS_MAX)
                return PATTERN_E_UNSUPPORTED;
        if (reduces(op) && redop > RMX_MIN)
                return PATTERN_E_UNSUPPORTED;

        *p = (struct pattern){.op = op, .type = type, .redop = redop, .n_ranks = n_ranks, .root = root};
        if (!reduces(op))
                return PATTERN_OK;
        limit = type == RMX_BFLOAT16 ? 256 : 1 << 24;
        if (redop == RMX_SUM)
                limit /= (int32_t)n_ranks;
        p->range = limit / 2;
        weights_init(p, limit / 2);
        return PATTERN_OK;
}

size_t pattern_input_elements(const struct pattern *p, size_t count) {
        return p->op == PATTERN_BARRIER ? 0 : p->op == PATTERN_REDUCE_SCATTER ? count * p->n_ranks : count;
}

size_t pattern_output_elements(const struct pattern *p, size_t count) {
        return p->op == PATTERN_BARRIER ? 0 : p->op == PATTERN_ALL_GATHER ? count * p->n_ranks : count;
}

size_t pattern_in_place_offset(const struct pattern *p, uint32_t rank, size_t count) {
        return p->op == PATTERN_ALL_GATHER || p->op == PATTERN_REDUCE_SCATTER ? rank * count : 0;
}

/* The bits of an exact integer in the pattern's type. */
static uint32_t encode(uint32_t type, int32_t value) {
        float f = (float)value;
        uint32_t bits;

        if (type == RMX_INT32)
                return (uint32_t)value;
        memcpy(&bits, &f, sizeof(bits));
        return type == RMX_BFLOAT16 ? bits >> 16 : bits;
}

/* Bits of element i. One rank's own value: its weights and ranks = 1; the reduced one: the reduced weights and all
 * ranks. */
static uint32_t number_bits(const struct pattern *p, const int32_t *weight, uint32_t ranks, uint64_t iteration,
                            size_t i) {
        uint32_t hash = mix((uint64_t)i * 2654435761u + iteration * 0x632be59bd9b4e019u + 1u);
        int32_t w = weight[(i + iteration) % PATTERN_PERIOD];

        if (p->redop == RMX_PROD) /* all ranks share the sign, so it stays only in a product of oddly many */
                return encode(p->type, (hash & ranks & 1u) ? -w : w);
        return encode(p->type, spread(hash, p->range) * (int32_t)(p->redop == RMX_SUM ? ranks : 1u) + w);
}

static uint32_t raw_bits(const struct pattern *p, uint32_t rank, uint64_t iteration, size_t i) {
        uint32_t hash = mix((uint64_t)i * 0x9e3779b1u + (iteration << 7) + rank + 1u);

        return p->type == RMX_BFLOAT16 ? hash & 0xffffu : hash;
}

static uint32_t input_bits(const struct pattern *p, uint32_t rank, uint64_t iteration, size_t i) {
        return reduces(p->op) ? number_bits(p, p->weight[rank], 1, iteration, i) : raw_bits(p, rank, iteration, i);
}

static uint32_t output_bits(const struct pattern *p, uint32_t rank, uint64_t iteration, size_t count, size_t i) {
        switch (p->op) {
        case PATTERN_ALL_REDUCE:
                return number_bits(p, p->reduced, p->n_ranks, iteration, i);
        case PATTERN_REDUCE_SCATTER:
                return number_bits(p, p->reduced, p->n_ranks, iteration, rank * count + i);
        case PATTERN_ALL_GATHER:
                return raw_bits(p, (uint32_t)(i / count), iteration, i % count);
        default:
                return raw_bits(p, p->root, iteration, i);
        }
}

static uint32_t load(const struct pattern *p, const void *base, size_t i) {
        uint32_t wide;
        uint16_t narrow;

        if (p->type == RMX_BFLOAT16) {
                memcpy(&narrow, (const char *)base + i * sizeof(narrow), sizeof(narrow));
                return narrow;
        }
        memcpy(&wide, (const char *)base + i * sizeof(wide), sizeof(wide));
        return wide;
}

void pattern_fill(const struct pattern *p, uint32_t rank, uint64_t iteration, size_t count, void *ret_input) {
        size_t elements = pattern_input_elements(p, count);

        for (size_t i = 0; i < elements; i++) {
                uint32_t bits = input_bits(p, rank, iteration, i);

                if (p->type == RMX_BFLOAT16)
                        ((uint16_t *)ret_input)[i] = (uint16_t)bits;
                else
                        ((uint32_t *)ret_input)[i] = bits;
        }
}

size_t pattern_wrong_output(const struct pattern *p, uint32_t rank, uint64_t iteration, size_t count,
                            const void *output) {
        size_t elements = pattern_output_elements(p, count), wrong = 0;

        for (size_t i = 0; i < elements; i++)
                wrong += load(p, output, i) != output_bits(p, rank, iteration, count, i);
        return wrong;
}

size_t pattern_wrong_input(const struct pattern *p, uint32_t rank, uint64_t iteration, size_t count, const void *input,
                           size_t skip_first, size_t skip_count) {
        size_t elements = pattern_input_elements(p, count), wrong = 0;

        for (size_t i = 0; i < elements; i++) {
                if (i >= skip_first && i - skip_first < skip_count)
                        continue;
                wrong += load(p, input, i) != input_bits(p, rank, iteration, i);
        }
        return wrong;
}
