/* SPDX-License-Identifier: MIT */
#include "reference.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "util/type.h"

uint64_t reference_mix(uint64_t a, uint64_t b, uint64_t c) {
        uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xc2b2ae3d27d4eb4fu + c * 0x165667b19e3779f9u + 0x27d4eb2f165667c5u;

        x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 32)) * 0x94d049bb133111ebu;
        return x ^ (x >> 31);
}

/* ---- small floats: `mantissa` explicit bits, exponent bias, sign at bit 15 --------------------------------------- */
static double decode16(uint16_t bits, int mantissa, int bias) {
        int exponent = (bits & 0x7fff) >> mantissa;
        int fraction = bits & ((1 << mantissa) - 1);
        int exponent_max = (0x7fff >> mantissa);
        double sign = bits & 0x8000 ? -1.0 : 1.0;

        if (exponent == exponent_max)
                return fraction ? (double)NAN : sign * INFINITY;
        if (exponent == 0)
                return sign * ldexp(fraction, 1 - bias - mantissa);
        return sign * ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
}

static uint16_t encode16(double value, int mantissa, int bias) {
        int infinity = (0x7fff >> mantissa) << mantissa;
        int sign = signbit(value) ? 0x8000 : 0;
        int exponent = 1 - bias;
        long bits;

        if (isnan(value))
                return (uint16_t)(infinity | 1 << (mantissa - 1));
        value = fabs(value);
        if (isinf(value))
                return (uint16_t)(sign | infinity);
        if (value > 0 && ilogb(value) > exponent)
                exponent = ilogb(value);
        /* In units of the last place, rounded to nearest even; carrying into the exponent is what it should do. */
        bits = lrint(ldexp(value, mantissa - exponent)) - (1L << mantissa) + ((long)(exponent + bias) << mantissa);
        return (uint16_t)(sign | (bits > infinity ? infinity : (int)bits));
}

static double load_float(uint32_t type, const void *memory, size_t index) {
        const unsigned char *p = (const unsigned char *)memory + index * type_size(type);
        uint16_t h;
        float f;
        double d;

        switch (type) {
        case RMX_FLOAT16:
                memcpy(&h, p, 2);
                return decode16(h, 10, 15);
        case RMX_BFLOAT16:
                memcpy(&h, p, 2);
                return decode16(h, 7, 127);
        case RMX_FLOAT32:
                memcpy(&f, p, 4);
                return (double)f;
        default:
                memcpy(&d, p, 8);
                return d;
        }
}

static void store_float(uint32_t type, void *out, double d) {
        uint16_t h;
        float f;

        if (isnan(d))
                d = fabs((double)NAN);
        switch (type) {
        case RMX_FLOAT16:
                h = encode16(d, 10, 15);
                memcpy(out, &h, 2);
                break;
        case RMX_BFLOAT16:
                h = encode16(d, 7, 127);
                memcpy(out, &h, 2);
                break;
        case RMX_FLOAT32:
                f = (float)d;
                memcpy(out, &f, 4);
                break;
        default:
                memcpy(out, &d, 8);
        }
}

/* One operation in double; exact enough that rounding the result to float equals doing it in float. */
static double apply_float(uint32_t redop, double a, double b) {
        switch (redop) {
        case RMX_PROD:
                return a * b;
        case RMX_MAX:
                return isnan(a) || b > a ? b : a;
        case RMX_MIN:
                return isnan(a) || b < a ? b : a;
        default:
                return a + b;
        }
}

static void reduce_float(uint32_t type, uint32_t redop, const void *const *source, uint32_t n, size_t index,
                         void *out) {
        double acc = load_float(type, source[0], index);

        for (uint32_t r = 1; r < n; r++) {
                acc = apply_float(redop, acc, load_float(type, source[r], index));
                if (type != RMX_FLOAT64)
                        acc = (double)(float)acc;
        }
        if (redop == RMX_AVG) {
                acc = acc / n;
                if (type != RMX_FLOAT64)
                        acc = (double)(float)acc;
        }
        store_float(type, out, acc);
}

/* ---- integers ---------------------------------------------------------------------------------------------------- */
static bool is_signed(uint32_t type) {
        return type == RMX_INT8 || type == RMX_INT32 || type == RMX_INT64;
}

static __int128 load_integer(uint32_t type, const void *memory, size_t index) {
        size_t size = type_size(type);
        unsigned int bits = 8 * (unsigned int)size;
        uint64_t u = 0;

        memcpy(&u, (const unsigned char *)memory + index * size, size);
        if (is_signed(type) && u >> (bits - 1))
                return (__int128)u - ((__int128)1 << bits);
        return (__int128)u;
}

static void reduce_integer(uint32_t type, uint32_t redop, const void *const *source, uint32_t n, size_t index,
                           void *out) {
        __int128 acc = load_integer(type, source[0], index);
        uint64_t bits;

        for (uint32_t r = 1; r < n; r++) {
                __int128 b = load_integer(type, source[r], index);

                if (redop == RMX_MAX)
                        acc = b > acc ? b : acc;
                else if (redop == RMX_MIN)
                        acc = b < acc ? b : acc;
                else if (redop == RMX_PROD)
                        acc = (__int128)((uint64_t)acc * (uint64_t)b);
                else
                        acc += b;
        }
        if (redop == RMX_AVG) {
                if (type == RMX_INT64)
                        acc = (int64_t)(uint64_t)acc;
                if (type == RMX_UINT64)
                        acc = (uint64_t)acc;
                acc /= n;
        }
        bits = (uint64_t)acc;
        memcpy(out, &bits, type_size(type));
}

void reference_reduce(uint32_t type, uint32_t redop, const void *const *source, uint32_t n, size_t index, void *out) {
        if (type >= RMX_FLOAT16)
                reduce_float(type, redop, source, n, index, out);
        else
                reduce_integer(type, redop, source, n, index, out);
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */
static double exact_value(uint32_t redop, uint64_t random, uint32_t rank, size_t index) {
        if (redop == RMX_PROD) /* one rank in 16 doubles: at most 2^4 from 64 ranks */
                return (rank + index) % 16 == 0 ? 2.0 : random & 1 ? -1.0 : 1.0;
        return (double)(random % 5) - 2.0; /* 64 ranks: at most 128 */
}

void reference_fill(void *memory, uint32_t type, uint32_t redop, enum reference_style style, uint64_t seed,
                    uint32_t rank, size_t n) {
        size_t size = type_size(type);

        for (size_t i = 0; i < n; i++) {
                uint64_t random = reference_mix(seed, rank, i);
                unsigned char *p = (unsigned char *)memory + i * size;

                if (style == REFERENCE_WILD || type < RMX_FLOAT16 || size == 1)
                        memcpy(p, &random, size);
                else if (style == REFERENCE_EXACT)
                        store_float(type, p, exact_value(redop, random, rank, i));
                else
                        store_float(type, p,
                                    ldexp((double)(int64_t)(random | 1),
                                          redop == RMX_PROD ? -62 : (int)(random % 13) - 69));
        }
}
