/* SPDX-License-Identifier: MIT */
/*
 * Test data.
 *
 * Operations that only move data carry arbitrary bits, NaNs included: they must arrive unchanged. Operations that
 * reduce carry numbers whose reduction is exact in the type in any order, so a right result is right in every bit
 * whatever plan produced it.
 *
 *   sum, avg        value = common(i, iteration) + weight(rank, (i + iteration) mod 251)
 *   max, min        the same
 *   premul sum      the same, and each rank has a factor of 1, -1 or 2
 *   prod            value = sign(i, iteration) * weight(rank, ...), weight a small power of two or its negative
 *
 * The common part tells positions and iterations apart (a shifted or stale output differs), the weights tell ranks
 * apart (a dropped or doubled rank differs). Because the weights have a period, their reduction over all ranks is a
 * table, and checking an element costs the same for 64 ranks as for one.
 *
 * Exactness. A floating type holds the integers up to its limit (number.c), and the common parts and weights of all
 * ranks together, factors included, stay below it. Where that leaves less than one for each rank (8 bits, many ranks)
 * there is no common part, and only some ranks, other ones for each position, have a weight. Integers wrap. An average
 * is the exact sum, divided as the interface defines it. No value of a product is zero, hence no negative zero.
 */
#include "tools/perf/pattern.h"

#include <railmux/railmux.h>
#include <string.h>

#include "tools/perf/number.h"

static uint32_t mix(uint64_t x) {
        x ^= x >> 31;
        x *= 0x9e3779b97f4a7c15u;
        x ^= x >> 29;
        x *= 0xd6e8feb86659fd93u;
        return (uint32_t)(x >> 32);
}

/* An integer in [low, high]. */
static int64_t spread(uint32_t hash, int64_t low, int64_t high) {
        return low + (int64_t)(((unsigned __int128)hash * (uint64_t)(high - low + 1)) >> 32);
}

bool pattern_op_reduces(uint32_t op) {
        return op == PATTERN_ALL_REDUCE || op == PATTERN_REDUCE_SCATTER || op == PATTERN_REDUCE;
}

bool pattern_op_rooted(uint32_t op) {
        return op == PATTERN_BROADCAST || op == PATTERN_REDUCE || op == PATTERN_GATHER || op == PATTERN_SCATTER;
}

bool pattern_op_in_place(uint32_t op) {
        return op != PATTERN_BARRIER && op != PATTERN_ALL_TO_ALL && op != PATTERN_ALL_TO_ALL_V &&
               op != PATTERN_SENDRECV;
}

/* In place sums become sums of sums. The largest of what is the largest already stays, and what is moved finds itself.
 */
bool pattern_repeats(const struct pattern *p, bool in_place) {
        return !in_place || !pattern_op_reduces(p->op) || p->redop == RMX_MAX || p->redop == RMX_MIN;
}

size_t pattern_blocks(uint32_t op, uint32_t n_ranks) {
        switch (op) {
        case PATTERN_BARRIER:
                return 0;
        case PATTERN_ALL_GATHER:
        case PATTERN_REDUCE_SCATTER:
        case PATTERN_ALL_TO_ALL:
        case PATTERN_ALL_TO_ALL_V:
        case PATTERN_GATHER:
        case PATTERN_SCATTER:
                return n_ranks;
        default:
                return 1;
        }
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */
static int64_t magnitude(int64_t x) {
        return x < 0 ? -x : x;
}

static int64_t combine(uint32_t redop, int64_t a, int64_t b) {
        switch (redop) {
        case RMX_PROD:
                return (int64_t)((uint64_t)a * (uint64_t)b);
        case RMX_MAX:
                return a > b ? a : b;
        case RMX_MIN:
                return a < b ? a : b;
        default:
                return a + b;
        }
}

/* Weights of all ranks at one place of the period. `most`: each may be so large; 0: only `budget` of them are +-1. */
static void weights_at(struct pattern *p, uint32_t k, int64_t most, int64_t budget) {
        int factors = number_exponent_limit(p->type);
        uint32_t first = mix(k + 77u) % p->n_ranks;

        for (uint32_t i = 0; i < p->n_ranks; i++) {
                uint32_t r = (first + i) % p->n_ranks, hash = mix((uint64_t)(r + 1) << 32 | (k + 1));
                int64_t w;

                if (p->redop == RMX_PROD) {
                        w = (hash & 1u) && factors-- > 0 ? 2 : 1;
                        w = (hash & 2u) ? -w : w;
                } else if (most > 0) {
                        w = spread(hash, p->low < 0 ? -most : 0, most);
                } else {
                        w = budget < magnitude(p->factor[r]) ? 0 : (hash & 1u) ? 1 : -1;
                        budget -= w ? magnitude(p->factor[r]) : 0;
                }
                p->weight[r][k] = w;
        }
        p->reduced[k] = p->weight[0][k] * p->factor[0];
        for (uint32_t r = 1; r < p->n_ranks; r++)
                p->reduced[k] = combine(p->redop, p->reduced[k], p->weight[r][k] * p->factor[r]);
}

static void weights_init(struct pattern *p) {
        bool adds = p->redop == RMX_SUM || p->redop == RMX_AVG || p->redop == RMX_PREMUL_SUM;
        int64_t limit = number_limit(p->type), shares = 0, most;

        p->scale = 0;
        for (uint32_t r = 0; r < p->n_ranks; r++) {
                uint32_t hash = mix(r + 1000u) % 4;

                p->factor[r] = p->redop != RMX_PREMUL_SUM ? 1 : hash == 0 ? -1 : hash == 1 ? 2 : 1;
                p->scale += p->factor[r];
                shares += magnitude(p->factor[r]);
        }
        if (!adds)
                p->scale = 1;
        /* A sum of floats shares the limit among the ranks; half of it is for the common part. Integers wrap. */
        most = adds && number_is_float(p->type) ? limit / 2 / shares : limit / 4;
        p->common = most;
        p->low = number_is_unsigned(p->type) ? 0 : -most;
        if (most == 0 && p->n_ranks <= (uint32_t)limit && shares <= limit)
                most = 1; /* no room for a common part, but for the weights */
        if (number_is_unsigned(p->type) == false)
                p->low = p->common ? -p->common : -1;
        for (uint32_t k = 0; k < PATTERN_PERIOD; k++)
                weights_at(p, k, most, limit);
        if (p->common == 0)
                p->low = 0;
}

int pattern_init(struct pattern *p, uint32_t op, uint32_t type, uint32_t redop, uint32_t n_ranks, uint32_t root) {
        if (op >= PATTERN_OP_COUNT || rmx_type_size(type) == 0 || n_ranks == 0 || n_ranks > PATTERN_RANKS_MAX ||
            root >= n_ranks || (pattern_op_reduces(op) && redop >= RMX_REDOP_COUNT))
                return PATTERN_E_UNSUPPORTED;
        *p = (struct pattern){.op = op, .type = type, .redop = redop, .n_ranks = n_ranks, .root = root};
        if (pattern_op_reduces(op))
                weights_init(p);
        return PATTERN_OK;
}

void pattern_factor(const struct pattern *p, uint32_t rank, void *ret_element) {
        uint64_t bits = number_encode(p->type, p->factor[rank]);

        memcpy(ret_element, &bits, rmx_type_size(p->type));
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */
size_t pattern_vector_count(const struct pattern *p, uint32_t from, uint32_t to, size_t count) {
        return p->equal ? count : count * ((from * 5u + to * 3u + 2u) % 7u) / 6u; /* from nothing to a whole block */
}

static size_t vector_elements(const struct pattern *p, uint32_t rank, bool sends, uint32_t before, size_t count) {
        size_t sum = 0;

        for (uint32_t r = 0; r < before; r++)
                sum += sends ? pattern_vector_count(p, rank, r, count) : pattern_vector_count(p, r, rank, count);
        return sum;
}

size_t pattern_input_elements(const struct pattern *p, uint32_t rank, size_t count) {
        switch (p->op) {
        case PATTERN_BARRIER:
                return 0;
        case PATTERN_REDUCE_SCATTER:
        case PATTERN_ALL_TO_ALL:
                return count * p->n_ranks;
        case PATTERN_ALL_TO_ALL_V:
                return vector_elements(p, rank, true, p->n_ranks, count);
        case PATTERN_SCATTER:
                return rank == p->root ? count * p->n_ranks : 0;
        default:
                return count;
        }
}

size_t pattern_output_elements(const struct pattern *p, uint32_t rank, size_t count) {
        switch (p->op) {
        case PATTERN_BARRIER:
                return 0;
        case PATTERN_ALL_GATHER:
        case PATTERN_ALL_TO_ALL:
                return count * p->n_ranks;
        case PATTERN_ALL_TO_ALL_V:
                return vector_elements(p, rank, false, p->n_ranks, count);
        case PATTERN_REDUCE:
                return rank == p->root ? count : 0;
        case PATTERN_GATHER:
                return rank == p->root ? count * p->n_ranks : 0;
        default:
                return count;
        }
}

size_t pattern_in_place_offset(const struct pattern *p, uint32_t rank, size_t count) {
        switch (p->op) {
        case PATTERN_ALL_GATHER:
        case PATTERN_REDUCE_SCATTER:
                return rank * count;
        case PATTERN_GATHER:
        case PATTERN_SCATTER:
                return rank == p->root ? rank * count : 0;
        default:
                return 0;
        }
}

/* ---- values ------------------------------------------------------------------------------------------------------ */
static uint64_t number_bits(const struct pattern *p, const int64_t *weight, bool reduced, uint64_t iteration,
                            size_t i) {
        uint32_t hash = mix((uint64_t)i * 2654435761u + iteration * 0x632be59bd9b4e019u + 1u);
        int64_t w = weight[(i + iteration) % PATTERN_PERIOD], sum;

        if (p->redop == RMX_PROD) /* all ranks share the sign, so it stays only in a product of oddly many */
                return number_encode(p->type, (hash & (reduced ? p->n_ranks : 1u) & 1u) ? -w : w);
        sum = spread(hash, p->low, p->common) * (reduced ? p->scale : 1) + w;
        return reduced && p->redop == RMX_AVG ? number_encode_average(p->type, sum, p->n_ranks)
                                              : number_encode(p->type, sum);
}

static uint64_t raw_bits(const struct pattern *p, uint32_t rank, uint64_t iteration, size_t i) {
        uint64_t hash = mix((uint64_t)i * 0x9e3779b1u + (iteration << 7) + rank + 1u);

        switch (rmx_type_size(p->type)) {
        case 1:
                return hash & 0xffu;
        case 2:
                return hash & 0xffffu;
        case 8:
                return hash << 32 | mix(hash + rank);
        default:
                return hash;
        }
}

/* What element i of a rank's input or output of an all_to_all_v is: the peer, and the place in the piece. */
static size_t vector_place(const struct pattern *p, uint32_t rank, bool sends, size_t count, size_t i,
                           uint32_t *ret_peer) {
        uint32_t peer = 0;

        for (;; peer++) {
                size_t n =
                        sends ? pattern_vector_count(p, rank, peer, count) : pattern_vector_count(p, peer, rank, count);

                if (i < n)
                        break;
                i -= n;
        }
        *ret_peer = peer;
        return i;
}

static uint64_t input_bits(const struct pattern *p, uint32_t rank, uint64_t iteration, size_t count, size_t i) {
        uint32_t peer;

        if (pattern_op_reduces(p->op))
                return number_bits(p, p->weight[rank], false, iteration, i);
        if (p->op == PATTERN_ALL_TO_ALL_V) {
                i = vector_place(p, rank, true, count, i, &peer);
                i += peer * count;
        }
        return raw_bits(p, rank, iteration, i);
}

static uint64_t output_bits(const struct pattern *p, uint32_t rank, uint64_t iteration, size_t count, size_t i) {
        uint32_t peer;

        switch (p->op) {
        case PATTERN_ALL_REDUCE:
        case PATTERN_REDUCE:
                return number_bits(p, p->reduced, true, iteration, i);
        case PATTERN_REDUCE_SCATTER:
                return number_bits(p, p->reduced, true, iteration, rank * count + i);
        case PATTERN_ALL_GATHER:
        case PATTERN_GATHER:
                return raw_bits(p, (uint32_t)(i / count), iteration, i % count);
        case PATTERN_ALL_TO_ALL:
                return raw_bits(p, (uint32_t)(i / count), iteration, rank * count + i % count);
        case PATTERN_ALL_TO_ALL_V:
                i = vector_place(p, rank, false, count, i, &peer);
                return raw_bits(p, peer, iteration, rank * count + i);
        case PATTERN_SCATTER:
                return raw_bits(p, p->root, iteration, rank * count + i);
        case PATTERN_SENDRECV:
                return raw_bits(p, (rank + p->n_ranks - 1) % p->n_ranks, iteration, i);
        default:
                return raw_bits(p, p->root, iteration, i);
        }
}

static uint64_t load(const struct pattern *p, const void *base, size_t i) {
        size_t unit = rmx_type_size(p->type);
        uint64_t bits = 0;

        memcpy(&bits, (const char *)base + i * unit, unit);
        return bits;
}

void pattern_fill(const struct pattern *p, uint32_t rank, uint64_t iteration, size_t count, void *ret_input) {
        size_t elements = pattern_input_elements(p, rank, count), unit = rmx_type_size(p->type);

        for (size_t i = 0; i < elements; i++) {
                uint64_t bits = input_bits(p, rank, iteration, count, i);

                memcpy((char *)ret_input + i * unit, &bits, unit);
        }
}

void pattern_expect(const struct pattern *p, uint32_t rank, uint64_t iteration, size_t count, void *ret_output) {
        size_t elements = pattern_output_elements(p, rank, count), unit = rmx_type_size(p->type);

        for (size_t i = 0; i < elements; i++) {
                uint64_t bits = output_bits(p, rank, iteration, count, i);

                memcpy((char *)ret_output + i * unit, &bits, unit);
        }
}

size_t pattern_wrong_output(const struct pattern *p, uint32_t rank, uint64_t iteration, size_t count,
                            const void *output) {
        size_t elements = pattern_output_elements(p, rank, count), wrong = 0;

        for (size_t i = 0; i < elements; i++)
                wrong += load(p, output, i) != output_bits(p, rank, iteration, count, i);
        return wrong;
}

size_t pattern_wrong_input(const struct pattern *p, uint32_t rank, uint64_t iteration, size_t count, const void *input,
                           size_t skip_first, size_t skip_count) {
        size_t elements = pattern_input_elements(p, rank, count), wrong = 0;

        for (size_t i = 0; i < elements; i++) {
                if (i >= skip_first && i - skip_first < skip_count)
                        continue;
                wrong += load(p, input, i) != input_bits(p, rank, iteration, count, i);
        }
        return wrong;
}
