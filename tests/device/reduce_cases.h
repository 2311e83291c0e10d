/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Reductions of the device code against the host backend: the same inputs on CPU threads (test_reduce.cc) and on a GPU
 * (reduce_on_gpu.hip). Whoever includes this says how payloads are evaluated; the rest is here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "gpu/host/reduce.h"
}
#include "gpu/device/reduce.h"

#define CASE_SOURCES 9u
#define CASE_UNITS   16384u /* payloads of one source */

enum case_way {
        CASE_FOLD,  /* contribution by contribution */
        CASE_SUM,   /* reduce_sum */
        CASE_ROUND, /* a payload is two fp32 numbers, which become two elements, and a pair where there are pairs */
};

struct reduce_case {
        enum case_way way;
        uint32_t type, redop, n;
        uint32_t units;
        uint64_t scalar[CASE_SOURCES];
};

/* out[u] from in[r][u], u < units. False: it could not be done. */
typedef bool case_evaluate(const struct reduce_case *c, const uint64_t *in, uint64_t *out);

/* ---- what is tested ---------------------------------------------------------------------------------------------- */
template <uint32_t TYPE>
DEVICE uint64_t case_source(const struct reduce_case &c, const uint64_t *in, uint32_t r, uint32_t u) {
        uint64_t x = in[r * c.units + u];

        return c.redop == RMX_PREMUL_SUM ? reduce_scale(TYPE, c.scalar[r], x) : x;
}

template <uint32_t TYPE> DEVICE uint64_t case_fold(const struct reduce_case &c, const uint64_t *in, uint32_t u) {
        reduce_accumulator<TYPE> a;

        reduce_begin<TYPE>(a, c.redop, case_source<TYPE>(c, in, 0, u));
        for (uint32_t r = 1; r < c.n; r++)
                reduce_add<TYPE>(a, c.redop, case_source<TYPE>(c, in, r, u));
        return reduce_finish<TYPE>(a, c.redop, c.n);
}

template <uint32_t N, uint32_t TYPE>
DEVICE uint64_t case_sum(const struct reduce_case &c, const uint64_t *in, uint32_t u) {
        uint64_t x[N];

        if constexpr (N > 1)
                if (c.n < N)
                        return case_sum<N - 1, TYPE>(c, in, u);
        UNROLL
        for (uint32_t r = 0; r < N; r++)
                x[r] = in[r * c.units + u];
        return reduce_sum<N, TYPE>(x);
}

template <uint32_t TYPE> DEVICE uint64_t case_round(uint64_t x) {
        float low = f32_from((uint32_t)x), high = f32_from((uint32_t)(x >> 32));
        uint64_t result = reduce_element<TYPE>::write(low) | reduce_element<TYPE>::write(high) << 16;

        if constexpr (TYPE == RMX_FLOAT16 || TYPE == RMX_BFLOAT16)
                result |= (uint64_t)pair_encode<TYPE>({low, high}) << 32;
        return result;
}

template <uint32_t TYPE> DEVICE uint64_t case_unit_of(const struct reduce_case &c, const uint64_t *in, uint32_t u) {
        constexpr bool small = reduce_element<TYPE>::bits < 32 && TYPE >= RMX_FLOAT16;

        if constexpr (TYPE == RMX_FLOAT32 || TYPE == RMX_FLOAT16 || TYPE == RMX_BFLOAT16)
                if (c.way == CASE_SUM)
                        return case_sum<CASE_SOURCES, TYPE>(c, in, u);
        if constexpr (small)
                if (c.way == CASE_ROUND)
                        return case_round<TYPE>(in[u]);
        return case_fold<TYPE>(c, in, u);
}

DEVICE uint64_t case_unit(const struct reduce_case &c, const uint64_t *in, uint32_t u) {
        switch (c.type) {
        case RMX_INT8:
                return case_unit_of<RMX_INT8>(c, in, u);
        case RMX_UINT8:
                return case_unit_of<RMX_UINT8>(c, in, u);
        case RMX_INT32:
                return case_unit_of<RMX_INT32>(c, in, u);
        case RMX_UINT32:
                return case_unit_of<RMX_UINT32>(c, in, u);
        case RMX_INT64:
                return case_unit_of<RMX_INT64>(c, in, u);
        case RMX_UINT64:
                return case_unit_of<RMX_UINT64>(c, in, u);
        case RMX_FLOAT16:
                return case_unit_of<RMX_FLOAT16>(c, in, u);
        case RMX_FLOAT32:
                return case_unit_of<RMX_FLOAT32>(c, in, u);
        case RMX_FLOAT64:
                return case_unit_of<RMX_FLOAT64>(c, in, u);
        case RMX_BFLOAT16:
                return case_unit_of<RMX_BFLOAT16>(c, in, u);
        case RMX_FLOAT8_E4M3:
                return case_unit_of<RMX_FLOAT8_E4M3>(c, in, u);
        default:
                return case_unit_of<RMX_FLOAT8_E5M2>(c, in, u);
        }
}

/* ---- what it must be --------------------------------------------------------------------------------------------- */
struct case_format {
        uint32_t bits;
        uint32_t mantissa; /* explicit bits; 0: an integer */
};
static const struct case_format case_formats[RMX_TYPE_COUNT] = {
        {8, 0}, {8, 0}, {32, 0}, {32, 0}, {64, 0}, {64, 0}, {16, 10}, {32, 23}, {64, 52}, {16, 7}, {8, 3}, {8, 2},
};

static uint64_t case_in[CASE_SOURCES * CASE_UNITS] __attribute__((aligned(64)));
static uint64_t case_out[CASE_UNITS], case_want[CASE_UNITS];

static inline void case_expect(const struct reduce_case *c, const uint64_t *in, uint64_t *want) {
        uint32_t bytes = case_formats[c->type].bits / 8;
        const void *source[CASE_SOURCES];
        static unsigned char element[2 * 2 * CASE_UNITS];
        void *out = c->way == CASE_ROUND ? (void *)element : (void *)want;
        struct reduce_call call;

        for (uint32_t r = 0; r < c->n; r++)
                source[r] = in + r * c->units;
        memset(&call, 0, sizeof(call));
        call.out = &out;
        call.n_out = 1;
        call.source = source;
        call.n = c->n;
        call.n_ranks = c->n;
        call.finish = true;
        call.scalar = c->scalar;
        call.scaled = c->redop == RMX_PREMUL_SUM ? (1u << c->n) - 1 : 0;
        call.partials = c->way == CASE_ROUND;
        call.length = c->way == CASE_ROUND ? 2 * c->units : 8 / bytes * c->units;
        reduce_find(c->type, c->redop)(&call);
        if (c->way != CASE_ROUND)
                return;
        for (uint32_t u = 0; u < c->units; u++) {
                const unsigned char *e = element + 2 * u * bytes;

                if (bytes == 1)
                        want[u] = e[0] | (uint64_t)e[1] << 16;
                else
                        want[u] = (e[0] | (uint64_t)e[1] << 8 | (uint64_t)e[2] << 16 | (uint64_t)e[3] << 24) *
                                  0x100000001u;
        }
}

/* Evaluates case_in both ways. False, and a line for the first payloads that differ. */
static inline bool case_check(const struct reduce_case *c, case_evaluate *evaluate) {
        uint32_t wrong = 0;

        memset(case_out, 0xad, sizeof(case_out));
        memset(case_want, 0x5a, sizeof(case_want));
        case_expect(c, case_in, case_want);
        if (!evaluate(c, case_in, case_out))
                return false;
        for (uint32_t u = 0; u < c->units; u++) {
                if (case_out[u] == case_want[u] || wrong++ >= 4)
                        continue;
                printf("way %u type %u redop %u, payload %u: %016llx, not %016llx, of", (unsigned int)c->way, c->type,
                       c->redop, u, (unsigned long long)case_out[u], (unsigned long long)case_want[u]);
                for (uint32_t r = 0; r < c->n; r++) {
                        printf(" %016llx", (unsigned long long)case_in[r * c->units + u]);
                        if (c->redop == RMX_PREMUL_SUM)
                                printf(" * %llx", (unsigned long long)c->scalar[r]);
                }
                printf("\n");
        }
        return wrong == 0;
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */
static inline uint64_t case_mix(uint64_t a, uint64_t b, uint64_t c) {
        uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xc2b2ae3d27d4eb4fu + c * 0x165667b19e3779f9u + 0x27d4eb2f165667c5u;

        x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 32)) * 0x94d049bb133111ebu;
        return x ^ (x >> 31);
}

enum case_style {
        CASE_BITS,  /* any */
        CASE_EDGES, /* zeros, subnormals, the ends of the range, infinities, NaNs of all kinds */
        CASE_TIES,  /* short numbers of a few binades: their sums often lie half way between two elements */
        CASE_ZEROS, /* mostly -0, which must survive being added up */
        CASE_STYLES,
};

/* One element, in the low bits. */
static inline uint64_t case_element(struct case_format format, enum case_style style, uint64_t random) {
        const uint64_t one = 1, all = ~(uint64_t)0 >> (64 - format.bits), sign = one << (format.bits - 1);
        uint64_t pick = random >> 8, last, fraction, exponent, infinity, middle;

        if (style == CASE_BITS)
                return random & all;
        if (style == CASE_ZEROS)
                return pick % 8 < 6 ? sign : pick % 8 == 6 ? 0 : random >> 16 & all;
        if (format.mantissa == 0) {
                const uint64_t edges[] = {0, 1, 2, all, all - 1, sign, sign - 1, sign + 1, random >> 16 & all};

                return style == CASE_TIES ? random % 19 - 9 + (random & sign) : edges[pick % 9];
        }
        last = (one << format.mantissa) - 1;
        infinity = all >> 1 >> format.mantissa; /* the highest exponent, also of e4m3, which has numbers there */
        middle = infinity / 2;
        if (style == CASE_TIES) {
                exponent = middle + pick % (format.mantissa + 4);
                if (exponent > infinity)
                        exponent = infinity;
                fraction = (random >> 20) << (format.mantissa > 3 ? format.mantissa - 3 : 0) & last;
        } else {
                const uint64_t exponents[] = {
                        0, 1, 2, middle, middle + 1, infinity - 1, infinity, random >> 40 & infinity};
                const uint64_t half = (last + 1) / 2;
                const uint64_t fractions[] = {0, 1, last, last - 1, half, half - 1, half + 1, random >> 20 & last};

                exponent = exponents[pick % 8];
                fraction = fractions[pick / 8 % 8];
        }
        return (random & 1 ? sign : 0) | exponent << format.mantissa | fraction;
}

static inline void case_fill(const struct reduce_case *c, enum case_style style, uint64_t seed) {
        struct case_format format = case_formats[c->type];

        for (uint32_t r = 0; r < c->n; r++)
                for (uint32_t u = 0; u < c->units; u++) {
                        uint64_t x = 0;

                        for (uint32_t i = 0; i < 64; i += format.bits)
                                x |= (case_element(format, style, case_mix(seed, r, u * 64 + i)) &
                                      ~(uint64_t)0 >> (64 - format.bits))
                                     << i;
                        case_in[r * c->units + u] = x;
                }
}

/* A factor for each rank, of the form that the type's factors have. */
static inline void case_scale(struct reduce_case *c, enum case_style style, uint64_t seed) {
        struct case_format format = case_formats[c->type];

        if (format.mantissa && c->type != RMX_FLOAT64)
                format = case_formats[RMX_FLOAT32];
        for (uint32_t r = 0; r < CASE_SOURCES; r++)
                c->scalar[r] = case_element(format, style, case_mix(seed, r, 4711));
}

/* ---- the cases --------------------------------------------------------------------------------------------------- */
/* Every type, reduction and number of sources, with all kinds of inputs. */
static inline bool cases_of_all_kinds(case_evaluate *evaluate) {
        bool good = true;

        for (uint32_t type = 0; type < RMX_TYPE_COUNT; type++)
                for (uint32_t redop = 0; redop < RMX_REDOP_COUNT; redop++)
                        for (uint32_t n = 1; n <= CASE_SOURCES; n++)
                                for (uint32_t style = 0; style < CASE_STYLES; style++) {
                                        struct reduce_case c = {CASE_FOLD, type, redop, n, 200, {0}};
                                        uint64_t seed = type * 1000 + redop * 100 + n * 10 + style;

                                        case_fill(&c, (enum case_style)style, seed);
                                        case_scale(&c, (enum case_style)style, seed);
                                        good = case_check(&c, evaluate) && good;
                                        c.way = CASE_SUM;
                                        if (redop == RMX_SUM)
                                                good = case_check(&c, evaluate) && good;
                                }
        return good;
}

/* Every 16-bit float alone, and with a few others, before and behind it; all reductions. */
static inline bool cases_of_16_bits(case_evaluate *evaluate) {
        static const uint32_t types[] = {RMX_FLOAT16, RMX_BFLOAT16};
        const uint32_t others = 16;
        bool good = true;

        for (uint32_t t = 0; t < 2; t++)
                for (uint32_t k = 0; k <= others; k++) {
                        struct reduce_case c = {CASE_FOLD, types[t], 0, k ? 2u : 1u, 65536 / 4, {0}};
                        uint64_t *codes = case_in + (k % 2 ? c.units : 0), *other = case_in + (k % 2 ? 0 : c.units);
                        uint64_t random = case_mix(types[t], k, 1);

                        if (k == 1)
                                codes = case_in, other = case_in + c.units;
                        for (uint32_t u = 0; u < c.units; u++) {
                                codes[u] = (u * 4ull) * 0x0001000100010001ull + 0x0003000200010000ull;
                                if (k)
                                        other[u] = case_element(case_formats[c.type], CASE_EDGES, random) *
                                                   0x0001000100010001ull;
                        }
                        case_scale(&c, k % 4 ? CASE_TIES : CASE_EDGES, random);
                        for (c.redop = 0; c.redop < RMX_REDOP_COUNT; c.redop++)
                                good = case_check(&c, evaluate) && good;
                        c.way = CASE_SUM;
                        c.redop = RMX_SUM;
                        good = case_check(&c, evaluate) && good;
                }
        return good;
}

/* Every fp8 alone, and every pair; all reductions. */
static inline bool cases_of_8_bits(case_evaluate *evaluate) {
        static const uint32_t types[] = {RMX_FLOAT8_E4M3, RMX_FLOAT8_E5M2};
        bool good = true;

        for (uint32_t t = 0; t < 2; t++)
                for (uint32_t n = 1; n <= 2; n++) {
                        struct reduce_case c = {CASE_FOLD, types[t], 0, n, 65536 / 8, {0}};

                        for (uint32_t u = 0; u < c.units; u++) {
                                case_in[u] = (u * 8 % 256) * 0x0101010101010101ull + 0x0706050403020100ull;
                                case_in[c.units + u] = (u * 8 / 256) * 0x0101010101010101ull;
                        }
                        for (uint32_t k = 0; k < 8; k++) {
                                case_scale(&c, k % 2 ? CASE_TIES : CASE_EDGES, k);
                                for (c.redop = k ? RMX_PREMUL_SUM : RMX_SUM; c.redop < RMX_REDOP_COUNT; c.redop++)
                                        good = case_check(&c, evaluate) && good;
                        }
                }
        return good;
}

/* fp32 numbers to all small types: those whose low 11 bits are 0, which are all elements of the types and all ties
 * between two of them, and their neighbours. */
static inline bool cases_of_rounding(case_evaluate *evaluate) {
        static const uint32_t types[] = {RMX_FLOAT16, RMX_BFLOAT16, RMX_FLOAT8_E4M3, RMX_FLOAT8_E5M2};
        const uint32_t units = 3 << 12, step = 2 * units / 3; /* numbers in the middle of one case */
        bool good = true;

        for (uint32_t t = 0; t < 4; t++)
                for (uint32_t from = 0; from < 1u << 21; from += step) {
                        struct reduce_case c = {CASE_ROUND, types[t], RMX_SUM, 1, units, {0}};

                        for (uint32_t i = 0; i < 2 * units; i++) {
                                uint32_t bits = ((from + i / 3) << 11) + i % 3 - 1;

                                if (i % 2 == 0)
                                        case_in[i / 2] = bits;
                                else
                                        case_in[i / 2] |= (uint64_t)bits << 32;
                        }
                        good = case_check(&c, evaluate) && good;
                }
        return good;
}
