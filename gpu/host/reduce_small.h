/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Small floats as vectors: fp16, bf16, fp8 e4m3 and fp8 e5m2, to fp32 and back. Part of the template.
 *
 * All of them are fp32 with a shorter exponent and mantissa. Reading: fp16 is shifted into place; e5m2 is the upper
 * byte of fp16; e4m3 is read as fp16, whose exponent has another bias, and multiplied by the difference. All are exact.
 * Writing rounds by adding half of a last place (one less if that place is even, which makes ties go to even) before
 * the low bits are cut off. What becomes subnormal is rounded by adding a power of two whose last place is the smallest
 * subnormal.
 */
#include "gpu/host/reduce_vector.h"

#define REDUCE_MAGNITUDE 0x7fffffffu

struct reduce_format {
        uint32_t drop;       /* bits of fp32's mantissa that the format lacks */
        uint32_t rebias;     /* what the exponents differ by, in the format's place */
        float subnormal;     /* a power of two with the last place of subnormals */
        uint32_t min_normal; /* magnitudes as fp32 bits: the smallest normal number, */
        uint32_t overflow;   /* the smallest that rounds to infinity, */
        uint32_t nan_above;  /* and the largest that is no NaN */
        uint32_t infinity, nan;
        uint32_t sign_shift;
};

static const struct reduce_format reduce_format_fp16 __attribute__((unused)) = {
        13, 112u << 10, 0x1p-1f, 0x38800000u, 0x477ff000u, 0x7f800000u, 0x7c00u, 0x7e00u, 16,
};
static const struct reduce_format reduce_format_e5m2 = {
        21, 112u << 2, 0x1p7f, 0x38800000u, 0x47700000u, 0x7f800000u, 0x7cu, 0x7eu, 24,
};
/* No infinity: more than 464, which is a tie with the even 448, is NaN. */
static const struct reduce_format reduce_format_e4m3 = {
        20, 120u << 3, 0x1p14f, 0x3c800000u, 0x43e80001u, 0x43e80000u, 0x7fu, 0x7fu, 24,
};

/* The formats are constants here, and what they are compared with is never negative as a signed number. */
REDUCE_INLINE reduce_u32 reduce_small_encode(reduce_f32 x, const struct reduce_format *format) {
        reduce_u32 u = (reduce_u32)x;
        reduce_u32 magnitude = u & REDUCE_MAGNITUDE;
        reduce_i32 size = (reduce_i32)magnitude;
        uint32_t half = (1u << (format->drop - 1)) - 1;
        reduce_u32 code = ((magnitude + half + ((magnitude >> format->drop) & 1u)) >> format->drop) - format->rebias;
        reduce_f32 shifted = (reduce_f32)magnitude + format->subnormal;
        reduce_f32 zero = (reduce_f32){0} + format->subnormal;

        code = reduce_u32_select(size < (int32_t)format->min_normal, (reduce_u32)shifted - (reduce_u32)zero, code);
        code = reduce_u32_select(size >= (int32_t)format->overflow, (reduce_u32){0} + format->infinity, code);
        code |= (u ^ magnitude) >> format->sign_shift;
        return reduce_u32_select(size > (int32_t)format->nan_above, (reduce_u32){0} + format->nan, code);
}

/* ---- fp16 -------------------------------------------------------------------------------------------------------- */
REDUCE_INLINE reduce_f32 reduce_fp16_decode(reduce_code h) {
#if REDUCE_BYTES == 64
        return (reduce_f32)_mm512_cvtph_ps((__m256i)h);
#elif REDUCE_BYTES == 32
        return (reduce_f32)_mm256_cvtph_ps((__m128i)h);
#else
        reduce_u32 magnitude = h & 0x7fffu;
        reduce_i32 size = (reduce_i32)magnitude;
        /* The highest exponent stands for infinity and NaN in both formats. */
        reduce_u32 normal = (magnitude << 13) + (112u << 23) + ((reduce_u32)(size >= 0x7c00) & (112u << 23));
        reduce_f32 subnormal = __builtin_convertvector(size, reduce_f32) * 0x1p-24f;

        return (reduce_f32)(reduce_u32_select(size < 0x400, (reduce_u32)subnormal, normal) | (h & 0x8000u) << 16);
#endif
}

/* The instructions that convert to fp16 agree with reduce_small_encode() in all but the bits of NaNs. */
REDUCE_INLINE reduce_code reduce_fp16_encode(reduce_f32 x) {
#if REDUCE_BYTES == 64
        return (reduce_code)_mm512_cvtps_ph((__m512)reduce_f32_canonical(x), _MM_FROUND_TO_NEAREST_INT);
#elif REDUCE_BYTES == 32
        return (reduce_code)_mm256_cvtps_ph((__m256)reduce_f32_canonical(x), _MM_FROUND_TO_NEAREST_INT);
#else
        return reduce_small_encode(x, &reduce_format_fp16);
#endif
}

REDUCE_INLINE struct reduce_f32_four reduce_fp16_get(const void *from) {
        struct reduce_code_four h = reduce_get_16(from);

        return REDUCE_FOUR(f32, reduce_fp16_decode, h);
}

REDUCE_INLINE void reduce_fp16_put(void *to, struct reduce_f32_four x) {
#if REDUCE_BYTES > 16
        reduce_half_at *p = to;

        p[0] = reduce_fp16_encode(x.a);
        p[1] = reduce_fp16_encode(x.b);
        p[2] = reduce_fp16_encode(x.c);
        p[3] = reduce_fp16_encode(x.d);
#else
        reduce_put_16(to, REDUCE_FOUR(u32, reduce_fp16_encode, x));
#endif
}

REDUCE_INLINE reduce_f32 reduce_fp16_round(reduce_f32 x) {
        return reduce_fp16_decode(reduce_fp16_encode(x));
}

/* ---- bf16 -------------------------------------------------------------------------------------------------------- */
REDUCE_INLINE reduce_f32 reduce_bf16_decode(reduce_code h) {
        return (reduce_f32)(reduce_code_widen(h) << 16);
}

/* The upper half of fp32, so no exponent differs and subnormals need no care. */
REDUCE_INLINE reduce_u32 reduce_bf16_encode(reduce_f32 x) {
        reduce_u32 u = (reduce_u32)x;
        reduce_u32 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;

        return reduce_u32_select(x != x, (reduce_u32){0} + 0x7fc0u, rounded);
}

REDUCE_INLINE struct reduce_f32_four reduce_bf16_get(const void *from) {
        struct reduce_code_four h = reduce_get_16(from);

        return REDUCE_FOUR(f32, reduce_bf16_decode, h);
}

REDUCE_INLINE void reduce_bf16_put(void *to, struct reduce_f32_four x) {
        reduce_put_16(to, REDUCE_FOUR(u32, reduce_bf16_encode, x));
}

REDUCE_INLINE reduce_f32 reduce_bf16_round(reduce_f32 x) {
        return (reduce_f32)(reduce_bf16_encode(x) << 16);
}

/* ---- fp8 --------------------------------------------------------------------------------------------------------- */
REDUCE_INLINE reduce_f32 reduce_e5m2_decode(reduce_code h) {
        return reduce_fp16_decode(h << 8);
}

REDUCE_INLINE reduce_f32 reduce_e4m3_decode(reduce_code h) {
        reduce_code magnitude = h & 0x7f;
        reduce_code nan = ((magnitude + 1) & 0x80) << 7; /* all bits set: complete fp16's highest exponent */

        return reduce_fp16_decode((h & 0x80) << 8 | magnitude << 7 | nan) * 0x1p8f;
}

#define REDUCE_FP8(name)                                                                                               \
        REDUCE_INLINE struct reduce_f32_four reduce_##name##_get(const void *from) {                                   \
                struct reduce_code_four h = reduce_get_8(from);                                                        \
                                                                                                                       \
                return REDUCE_FOUR(f32, reduce_##name##_decode, h);                                                    \
        }                                                                                                              \
        REDUCE_INLINE void reduce_##name##_put(void *to, struct reduce_f32_four x) {                                   \
                reduce_put_8(to, REDUCE_FOUR(u32, reduce_small_encode, x, &reduce_format_##name));                     \
        }                                                                                                              \
        REDUCE_INLINE reduce_f32 reduce_##name##_round(reduce_f32 x) {                                                 \
                return reduce_##name##_decode(reduce_code_narrow(reduce_small_encode(x, &reduce_format_##name)));      \
        }

REDUCE_FP8(e4m3)
REDUCE_FP8(e5m2)
