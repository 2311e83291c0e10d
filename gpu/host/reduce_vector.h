/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Vectors of the instruction set that this unit is compiled for, in fours, and the conversions of small floats. Like
 * all of the template (reduce_kernels.h) everything is static.
 *
 * Four vectors of accumulators are what a kernel holds at a time: enough independent chains of additions to hide their
 * latency, and few enough to stay in registers. Loops over them are written out, since compilers lose arrays of vectors
 * to memory.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512BW__)
#define REDUCE_BYTES 64
#elif defined(__AVX2__)
#define REDUCE_BYTES 32
#else
#define REDUCE_BYTES 16
#endif

#define REDUCE_INLINE static inline __attribute__((always_inline, unused))

/* Buffers are placed by clients, who may use any byte offset. */
#define REDUCE_PART(base, bytes)    base __attribute__((vector_size(bytes)))
#define REDUCE_PART_AT(base, bytes) base __attribute__((vector_size(bytes), aligned(1), may_alias))

/*
 * For one kind of accumulator: its vector, four of them, their way from and to memory, and the operations on a vector.
 * An operation takes what has been accumulated first and what is added second.
 */
#define REDUCE_KIND(kind, scalar, mask, a_is_nan)                                                                      \
        typedef scalar REDUCE_PART(reduce_##kind, REDUCE_BYTES);                                                       \
        typedef scalar REDUCE_PART_AT(reduce_##kind##_at, REDUCE_BYTES);                                               \
        typedef mask REDUCE_PART(reduce_##kind##_mask, REDUCE_BYTES);                                                  \
        struct reduce_##kind##_four {                                                                                  \
                reduce_##kind a, b, c, d;                                                                              \
        };                                                                                                             \
        REDUCE_INLINE struct reduce_##kind##_four reduce_##kind##_get(const void *from) {                              \
                const reduce_##kind##_at *p = from;                                                                    \
                                                                                                                       \
                return (struct reduce_##kind##_four){p[0], p[1], p[2], p[3]};                                          \
        }                                                                                                              \
        REDUCE_INLINE void reduce_##kind##_put(void *to, struct reduce_##kind##_four x) {                              \
                reduce_##kind##_at *p = to;                                                                            \
                                                                                                                       \
                p[0] = x.a;                                                                                            \
                p[1] = x.b;                                                                                            \
                p[2] = x.c;                                                                                            \
                p[3] = x.d;                                                                                            \
        }                                                                                                              \
        REDUCE_INLINE reduce_##kind reduce_##kind##_select(reduce_##kind##_mask m, reduce_##kind yes,                  \
                                                           reduce_##kind no) {                                         \
                return (reduce_##kind)((m & (reduce_##kind##_mask)yes) | (~m & (reduce_##kind##_mask)no));             \
        }                                                                                                              \
        REDUCE_INLINE reduce_##kind reduce_##kind##_sum(reduce_##kind a, reduce_##kind b) {                            \
                return a + b;                                                                                          \
        }                                                                                                              \
        REDUCE_INLINE reduce_##kind reduce_##kind##_prod(reduce_##kind a, reduce_##kind b) {                           \
                return a * b;                                                                                          \
        }                                                                                                              \
        REDUCE_INLINE reduce_##kind reduce_##kind##_max(reduce_##kind a, reduce_##kind b) {                            \
                return reduce_##kind##_select((reduce_##kind##_mask)(b > a) a_is_nan, b, a);                           \
        }                                                                                                              \
        REDUCE_INLINE reduce_##kind reduce_##kind##_min(reduce_##kind a, reduce_##kind b) {                            \
                return reduce_##kind##_select((reduce_##kind##_mask)(b < a) a_is_nan, b, a);                           \
        }

REDUCE_KIND(i8, int8_t, int8_t, )
REDUCE_KIND(u8, uint8_t, int8_t, )
REDUCE_KIND(i32, int32_t, int32_t, )
REDUCE_KIND(u32, uint32_t, int32_t, )
REDUCE_KIND(i64, int64_t, int64_t, )
REDUCE_KIND(u64, uint64_t, int64_t, )
REDUCE_KIND(f32, float, int32_t, | (a != a))
REDUCE_KIND(f64, double, int64_t, | (a != a))

/* The same function on each of four vectors. */
#define REDUCE_FOUR(result, function, x, ...)                                                                          \
        ((struct reduce_##result##_four){                                                                              \
                function((x).a __VA_OPT__(, ) __VA_ARGS__), function((x).b __VA_OPT__(, ) __VA_ARGS__),                \
                function((x).c __VA_OPT__(, ) __VA_ARGS__), function((x).d __VA_OPT__(, ) __VA_ARGS__)})

/* A NaN becomes the positive quiet one without payload. */
REDUCE_INLINE reduce_f32 reduce_f32_canonical(reduce_f32 x) {
        return reduce_f32_select(x != x, (reduce_f32)((reduce_u32){0} + 0x7fc00000u), x);
}

REDUCE_INLINE reduce_f64 reduce_f64_canonical(reduce_f64 x) {
        return reduce_f64_select(x != x, (reduce_f64)((reduce_u64){0} + 0x7ff8000000000000u), x);
}

/* ---- elements narrower than their accumulators --------------------------------------------------------------------
 */
/* As many elements as a vector of accumulators has lanes, as they lie in memory. */
#define REDUCE_NARROW(name, element, bytes)                                                                            \
        typedef element REDUCE_PART(reduce_##name, bytes);                                                             \
        typedef element REDUCE_PART_AT(reduce_##name##_at, bytes);

/* Averages of integers: to 64 bits, as unsigned numbers, and back. */
#define REDUCE_WIDE(name, element, wide, bytes)                                                                        \
        REDUCE_NARROW(name, element, bytes)                                                                            \
        REDUCE_INLINE struct reduce_u64_four reduce_##name##_get(const void *from) {                                   \
                const reduce_##name##_at *p = from;                                                                    \
                reduce_##name a = p[0], b = p[1], c = p[2], d = p[3];                                                  \
                                                                                                                       \
                return (struct reduce_u64_four){                                                                       \
                        (reduce_u64) __builtin_convertvector(a, wide), (reduce_u64) __builtin_convertvector(b, wide),  \
                        (reduce_u64) __builtin_convertvector(c, wide), (reduce_u64) __builtin_convertvector(d, wide)}; \
        }                                                                                                              \
        REDUCE_INLINE void reduce_##name##_put(void *to, struct reduce_u64_four x) {                                   \
                reduce_##name##_at *p = to;                                                                            \
                                                                                                                       \
                p[0] = __builtin_convertvector(x.a, reduce_##name);                                                    \
                p[1] = __builtin_convertvector(x.b, reduce_##name);                                                    \
                p[2] = __builtin_convertvector(x.c, reduce_##name);                                                    \
                p[3] = __builtin_convertvector(x.d, reduce_##name);                                                    \
        }

REDUCE_WIDE(wide_i8, int8_t, reduce_i64, REDUCE_BYTES / 8)
REDUCE_WIDE(wide_u8, uint8_t, reduce_u64, REDUCE_BYTES / 8)
REDUCE_WIDE(wide_i32, int32_t, reduce_i64, REDUCE_BYTES / 2)
REDUCE_WIDE(wide_u32, uint32_t, reduce_u64, REDUCE_BYTES / 2)

REDUCE_INLINE reduce_u64 reduce_i64_divide(reduce_u64 x, uint32_t n) {
        return (reduce_u64)((reduce_i64)x / (int64_t)n);
}

REDUCE_INLINE reduce_u64 reduce_u64_divide(reduce_u64 x, uint32_t n) {
        return x / (uint64_t)n;
}

REDUCE_NARROW(quarter, uint8_t, REDUCE_BYTES / 4)
REDUCE_NARROW(half, uint16_t, REDUCE_BYTES / 2)

/*
 * Codes of small floats, in lanes of the width that the conversions start from: 16 bits where the processor converts
 * fp16 itself, else 32. Widening and narrowing is spelled out: left to __builtin_convertvector, gcc takes lanes apart.
 */
#if REDUCE_BYTES == 16
typedef reduce_u32 reduce_code;
#else
typedef reduce_half reduce_code;
#endif
struct reduce_code_four {
        reduce_code a, b, c, d;
};

REDUCE_INLINE struct reduce_code_four reduce_get_16(const void *from) {
#if REDUCE_BYTES > 16
        const reduce_half_at *p = from;

        return (struct reduce_code_four){p[0], p[1], p[2], p[3]};
#elif defined(__SSE2__)
        const __m128i *p = from;
        __m128i ab = _mm_loadu_si128(p), cd = _mm_loadu_si128(p + 1), zero = _mm_setzero_si128();

        return (struct reduce_code_four){
                (reduce_u32)_mm_unpacklo_epi16(ab, zero), (reduce_u32)_mm_unpackhi_epi16(ab, zero),
                (reduce_u32)_mm_unpacklo_epi16(cd, zero), (reduce_u32)_mm_unpackhi_epi16(cd, zero)};
#else
        const reduce_half_at *p = from;
        reduce_half a = p[0], b = p[1], c = p[2], d = p[3];

        return (struct reduce_code_four){__builtin_convertvector(a, reduce_u32), __builtin_convertvector(b, reduce_u32),
                                         __builtin_convertvector(c, reduce_u32),
                                         __builtin_convertvector(d, reduce_u32)};
#endif
}

REDUCE_INLINE struct reduce_code_four reduce_get_8(const void *from) {
#if REDUCE_BYTES == 64
        const __m128i *p = from;

        return (struct reduce_code_four){(reduce_half)_mm256_cvtepu8_epi16(_mm_loadu_si128(p)),
                                         (reduce_half)_mm256_cvtepu8_epi16(_mm_loadu_si128(p + 1)),
                                         (reduce_half)_mm256_cvtepu8_epi16(_mm_loadu_si128(p + 2)),
                                         (reduce_half)_mm256_cvtepu8_epi16(_mm_loadu_si128(p + 3))};
#elif defined(__SSE2__)
        __m128i zero = _mm_setzero_si128();
#if REDUCE_BYTES == 32
        const __m128i *p = from;
        __m128i ab = _mm_loadu_si128(p), cd = _mm_loadu_si128(p + 1);

        return (struct reduce_code_four){
                (reduce_half)_mm_unpacklo_epi8(ab, zero), (reduce_half)_mm_unpackhi_epi8(ab, zero),
                (reduce_half)_mm_unpacklo_epi8(cd, zero), (reduce_half)_mm_unpackhi_epi8(cd, zero)};
#else
        __m128i all = _mm_loadu_si128(from);
        __m128i ab = _mm_unpacklo_epi8(all, zero), cd = _mm_unpackhi_epi8(all, zero);

        return (struct reduce_code_four){
                (reduce_u32)_mm_unpacklo_epi16(ab, zero), (reduce_u32)_mm_unpackhi_epi16(ab, zero),
                (reduce_u32)_mm_unpacklo_epi16(cd, zero), (reduce_u32)_mm_unpackhi_epi16(cd, zero)};
#endif
#else
        const reduce_quarter_at *p = from;
        reduce_quarter a = p[0], b = p[1], c = p[2], d = p[3];

        return (struct reduce_code_four){__builtin_convertvector(a, reduce_u32), __builtin_convertvector(b, reduce_u32),
                                         __builtin_convertvector(c, reduce_u32),
                                         __builtin_convertvector(d, reduce_u32)};
#endif
}

/* 32-bit lanes from codes, and codes from 32-bit lanes below 2^16. */
REDUCE_INLINE reduce_u32 reduce_code_widen(reduce_code x) {
#if REDUCE_BYTES == 64
        return (reduce_u32)_mm512_cvtepu16_epi32((__m256i)x);
#elif REDUCE_BYTES == 32
        return (reduce_u32)_mm256_cvtepu16_epi32((__m128i)x);
#else
        return x;
#endif
}

REDUCE_INLINE reduce_code reduce_code_narrow(reduce_u32 x) {
#if REDUCE_BYTES == 64
        return (reduce_code)_mm512_cvtepi32_epi16((__m512i)x);
#elif REDUCE_BYTES == 32
        return (reduce_code)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)x),
                                             _mm256_extracti128_si256((__m256i)x, 1));
#else
        return x;
#endif
}

/* Lanes below 2^16, or 2^8, to 16 or 8 bits each. */
REDUCE_INLINE void reduce_put_16(void *to, struct reduce_u32_four x) {
#if REDUCE_BYTES == 64
        __m256i *p = to;

        _mm256_storeu_si256(p, _mm512_cvtepi32_epi16((__m512i)x.a));
        _mm256_storeu_si256(p + 1, _mm512_cvtepi32_epi16((__m512i)x.b));
        _mm256_storeu_si256(p + 2, _mm512_cvtepi32_epi16((__m512i)x.c));
        _mm256_storeu_si256(p + 3, _mm512_cvtepi32_epi16((__m512i)x.d));
#elif REDUCE_BYTES == 32
        __m256i ab = _mm256_packus_epi32((__m256i)x.a, (__m256i)x.b);
        __m256i cd = _mm256_packus_epi32((__m256i)x.c, (__m256i)x.d);
        __m256i *p = to;

        _mm256_storeu_si256(p, _mm256_permute4x64_epi64(ab, 0xd8));
        _mm256_storeu_si256(p + 1, _mm256_permute4x64_epi64(cd, 0xd8));
#elif defined(__SSE2__)
        /* This one saturates signed numbers, so let bit 15 be a sign. */
        reduce_i32 a = (reduce_i32)(x.a << 16) >> 16, b = (reduce_i32)(x.b << 16) >> 16;
        reduce_i32 c = (reduce_i32)(x.c << 16) >> 16, d = (reduce_i32)(x.d << 16) >> 16;
        __m128i *p = to;

        _mm_storeu_si128(p, _mm_packs_epi32((__m128i)a, (__m128i)b));
        _mm_storeu_si128(p + 1, _mm_packs_epi32((__m128i)c, (__m128i)d));
#else
        reduce_half_at *p = to;

        p[0] = __builtin_convertvector(x.a, reduce_half);
        p[1] = __builtin_convertvector(x.b, reduce_half);
        p[2] = __builtin_convertvector(x.c, reduce_half);
        p[3] = __builtin_convertvector(x.d, reduce_half);
#endif
}

REDUCE_INLINE void reduce_put_8(void *to, struct reduce_u32_four x) {
#if REDUCE_BYTES == 64
        __m128i *p = to;

        _mm_storeu_si128(p, _mm512_cvtepi32_epi8((__m512i)x.a));
        _mm_storeu_si128(p + 1, _mm512_cvtepi32_epi8((__m512i)x.b));
        _mm_storeu_si128(p + 2, _mm512_cvtepi32_epi8((__m512i)x.c));
        _mm_storeu_si128(p + 3, _mm512_cvtepi32_epi8((__m512i)x.d));
#elif REDUCE_BYTES == 32
        __m256i ab = _mm256_packus_epi32((__m256i)x.a, (__m256i)x.b);
        __m256i cd = _mm256_packus_epi32((__m256i)x.c, (__m256i)x.d);
        __m256i lanes = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);

        _mm256_storeu_si256(to, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(ab, cd), lanes));
#elif defined(__SSE2__)
        __m128i ab = _mm_packs_epi32((__m128i)x.a, (__m128i)x.b), cd = _mm_packs_epi32((__m128i)x.c, (__m128i)x.d);

        _mm_storeu_si128(to, _mm_packus_epi16(ab, cd));
#else
        reduce_quarter_at *p = to;

        p[0] = __builtin_convertvector(x.a, reduce_quarter);
        p[1] = __builtin_convertvector(x.b, reduce_quarter);
        p[2] = __builtin_convertvector(x.c, reduce_quarter);
        p[3] = __builtin_convertvector(x.d, reduce_quarter);
#endif
}

/* ---- stores past the caches -------------------------------------------------------------------------------------- */
/* Copies without reading the destination into the caches first. reduce_stream_end() orders such stores before later
 * ones. */
static inline __attribute__((unused)) void reduce_stream(void *to, const void *from, size_t bytes) {
#if defined(__SSE2__)
        unsigned char *d = to;
        const unsigned char *s = from;
        size_t head = -(uintptr_t)d & 63;

        if (head > bytes)
                head = bytes;
        memcpy(d, s, head);
        for (d += head, s += head, bytes -= head; bytes >= 64; d += 64, s += 64, bytes -= 64) {
#if REDUCE_BYTES == 64
                _mm512_stream_si512((void *)d, _mm512_loadu_si512(s));
#elif REDUCE_BYTES == 32
                _mm256_stream_si256((void *)d, _mm256_loadu_si256((const void *)s));
                _mm256_stream_si256((void *)(d + 32), _mm256_loadu_si256((const void *)(s + 32)));
#else
                for (int k = 0; k < 64; k += 16)
                        _mm_stream_si128((void *)(d + k), _mm_loadu_si128((const void *)(s + k)));
#endif
        }
        memcpy(d, s, bytes);
#else
        memcpy(to, from, bytes);
#endif
}

REDUCE_INLINE void reduce_stream_end(void) {
#if defined(__SSE2__)
        _mm_sfence();
#endif
}
