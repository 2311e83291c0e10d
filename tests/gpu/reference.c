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

/* ---- fp8: codes are decoded by the book; a number becomes the nearest one, the even one of two -------------- */
struct fp8 {
        int mantissa, bias;
        uint8_t beyond; /* the code behind the largest finite one: what overflow gives */
        uint8_t nan;    /* the canonical one */
        bool infinite;  /* beyond is infinity */
};

static const struct fp8 fp8_e4m3 = {3, 7, 0x7f, 0x7f, false};
static const struct fp8 fp8_e5m2 = {2, 15, 0x7c, 0x7e, true};

/* As if the highest exponent were an ordinary one. */
static double fp8_magnitude(const struct fp8 *format, int code) {
        int exponent = code >> format->mantissa;
        int fraction = code & ((1 << format->mantissa) - 1);

        if (exponent == 0)
                return ldexp(fraction, 1 - format->bias - format->mantissa);
        return ldexp((1 << format->mantissa) + fraction, exponent - format->bias - format->mantissa);
}

static double fp8_decode(const struct fp8 *format, uint8_t bits) {
        int code = bits & 0x7f;
        double sign = bits & 0x80 ? -1.0 : 1.0;

        if (code == format->beyond && format->infinite)
                return sign * INFINITY;
        return code >= format->beyond ? (double)NAN : sign * fp8_magnitude(format, code);
}

static uint8_t fp8_encode(const struct fp8 *format, double value) {
        int below = 0, above = format->beyond;
        double down, up;

        if (isnan(value))
                return format->nan;
        while (above - below > 1) {
                int middle = (below + above) / 2;

                if (fp8_magnitude(format, middle) <= fabs(value))
                        below = middle;
                else
                        above = middle;
        }
        down = fabs(value) - fp8_magnitude(format, below);
        up = fp8_magnitude(format, above) - fabs(value);
        if (up < down || (up == down && above % 2 == 0))
                below = above;
        if (below == format->beyond && !format->infinite)
                return format->nan;
        return (uint8_t)(below | (signbit(value) ? 0x80 : 0));
}

static double load_float(uint32_t type, const void *memory, size_t index) {
        const unsigned char *p = (const unsigned char *)memory + index * type_size(type);
        uint16_t h;
        float f;
        double d;

        switch (type) {
        case RMX_FLOAT8_E4M3:
                return fp8_decode(&fp8_e4m3, *p);
        case RMX_FLOAT8_E5M2:
                return fp8_decode(&fp8_e5m2, *p);
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

void reference_round(uint32_t type, double d, void *out) {
        unsigned char *byte = out;
        uint16_t h;
        float f;

        if (isnan(d))
                d = fabs((double)NAN);
        switch (type) {
        case RMX_FLOAT8_E4M3:
                *byte = fp8_encode(&fp8_e4m3, d);
                break;
        case RMX_FLOAT8_E5M2:
                *byte = fp8_encode(&fp8_e5m2, d);
                break;
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

/* The element of a rank; what its scalar makes of it is an element again. */
static double load_scaled_float(uint32_t type, const void *memory, size_t index, const uint64_t *scalar) {
        double x = load_float(type, memory, index), factor;
        unsigned char element[8];
        uint32_t low;
        float f;

        if (!scalar)
                return x;
        if (type == RMX_FLOAT64) {
                memcpy(&factor, scalar, 8);
                return x * factor;
        }
        low = (uint32_t)*scalar;
        memcpy(&f, &low, 4);
        reference_round(type, (double)(float)(x * (double)f), element);
        return load_float(type, element, 0);
}

static void reduce_float(const struct reference_call *call, size_t index, void *out) {
        uint32_t type = call->type, redop = call->redop, n = call->n;
        double acc = 0;

        for (uint32_t r = 0; r < n; r++) {
                double x = load_scaled_float(type, call->source[r], index,
                                             call->scaled >> r & 1 ? &call->scalar[r] : NULL);

                acc = r == 0 ? x : apply_float(redop, acc, x);
                if (type != RMX_FLOAT64)
                        acc = (double)(float)acc;
        }
        if (redop == RMX_AVG) {
                acc = acc / n;
                if (type != RMX_FLOAT64)
                        acc = (double)(float)acc;
        }
        reference_round(type, acc, out);
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

static void reduce_integer(const struct reference_call *call, size_t index, void *out) {
        uint32_t type = call->type, redop = call->redop, n = call->n;
        __int128 acc = 0;
        uint64_t bits;

        for (uint32_t r = 0; r < n; r++) {
                __int128 b = load_integer(type, call->source[r], index);

                if (call->scaled >> r & 1) {
                        bits = (uint64_t)b * call->scalar[r];
                        b = load_integer(type, &bits, 0);
                }
                if (r == 0)
                        acc = b;
                else if (redop == RMX_MAX)
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

void reference_reduce_call(const struct reference_call *call, size_t index, void *out) {
        if (call->type >= RMX_FLOAT16)
                reduce_float(call, index, out);
        else
                reduce_integer(call, index, out);
}

void reference_reduce(uint32_t type, uint32_t redop, const void *const *source, uint32_t n, size_t index, void *out) {
        struct reference_call call = {.type = type, .redop = redop, .source = source, .n = n};

        reference_reduce_call(&call, index, out);
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */
static double exact_value(uint32_t type, uint32_t redop, uint64_t random, uint32_t rank, size_t index) {
        if (redop == RMX_PROD) /* one rank in 16 doubles: at most 2^4 from 64 ranks */
                return (rank + index) % 16 == 0 ? 2.0 : random & 1 ? -1.0 : 1.0;
        if (type_size(type) == 1 && (rank + index) % 16 != 0) /* fp8 e5m2 counts to 8 without a gap */
                return 0.0;
        return (double)(random % 5) - 2.0; /* 64 ranks: at most 128 */
}

void reference_fill(void *memory, uint32_t type, uint32_t redop, enum reference_style style, uint64_t seed,
                    uint32_t rank, size_t n) {
        size_t size = type_size(type);

        for (size_t i = 0; i < n; i++) {
                uint64_t random = reference_mix(seed, rank, i);
                unsigned char *p = (unsigned char *)memory + i * size;

                if (style == REFERENCE_WILD || type < RMX_FLOAT16)
                        memcpy(p, &random, size);
                else if (style == REFERENCE_EXACT)
                        reference_round(type, exact_value(type, redop, random, rank, i), p);
                else
                        reference_round(
                                type,
                                ldexp((double)(int64_t)(random | 1), redop == RMX_PROD ? -62 : (int)(random % 13) - 69),
                                p);
        }
}
