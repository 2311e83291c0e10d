/* SPDX-License-Identifier: MIT */
/*
 * The processor's instruction takes eight bytes every three cycles, since each one waits for the one before: about 7
 * GB/s, and every byte on a plain connection is looked at twice, which was more than a quarter of what a rail's thread
 * did. So long messages are folded: a CRC is a remainder of polynomials over one bit, in which 16 bytes that stand D
 * bytes before others may be replaced by a product that is added to those (each half of the 16 times x^(8D) or
 * x^(8D + 64), modulo the polynomial; with the bits reversed, as the CRC has them, the factors are x^(8D - 33) and
 * x^(8D + 31)). Four sums, of 16 bytes or of 64 where the processor multiplies as much at once, take turns, so none
 * waits for another. What is left at the end, 16 bytes, has the remainder of the whole, and the instruction says which
 * it is.
 */
#include "fabric/crc.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Of the four low bits; the table for a byte would be 1 KiB to save a step that only old machines take. */
static const uint32_t crc_nibble[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
        0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

uint32_t crc32c_table(uint32_t crc, const void *bytes, size_t size) {
        const unsigned char *p = bytes;

        crc = ~crc;
        for (size_t i = 0; i < size; i++) {
                crc ^= p[i];
                crc = crc >> 4 ^ crc_nibble[crc & 15];
                crc = crc >> 4 ^ crc_nibble[crc & 15];
        }
        return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse(uint32_t crc, const void *bytes, size_t size) {
        const unsigned char *p = bytes;
        uint64_t sum = ~crc, word;

        for (; size >= 8; p += 8, size -= 8) {
                memcpy(&word, p, 8);
                sum = __builtin_ia32_crc32di(sum, word);
        }
        for (; size; p++, size--)
                sum = __builtin_ia32_crc32qi((uint32_t)sum, *p);
        return ~(uint32_t)sum;
}

/* ---- folding ----------------------------------------------------------------------------------------------------- */
#define FOLDED __attribute__((target("sse4.2,pclmul"))) static
#define WIDE   __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq"))) static

#define FOLD_LEAST 256u /* bytes; below the instruction alone is as fast */

/* To carry 16 bytes so many bytes on. */
#define FOLD_16  _mm_set_epi64x(0x493c7d27, (long long)0xf20c0dfe)
#define FOLD_64  _mm_set_epi64x((long long)0x9e4addf8, 0x740eef02)
#define FOLD_256 _mm_set_epi64x((long long)0xb9e02b86, (long long)0xdcb17aa4)

FOLDED __m128i fold(__m128i sum, __m128i by, __m128i next) {
        return _mm_xor_si128(next,
                             _mm_xor_si128(_mm_clmulepi64_si128(sum, by, 0x00), _mm_clmulepi64_si128(sum, by, 0x11)));
}

/* Four sums, of which each is a quarter of the bytes so far, and what has been left over. */
FOLDED uint32_t fold_end(const __m128i sum[4], const unsigned char *p, size_t size) {
        __m128i all = fold(fold(fold(sum[0], FOLD_16, sum[1]), FOLD_16, sum[2]), FOLD_16, sum[3]);
        uint64_t words[2], crc;

        for (; size >= 16; p += 16, size -= 16)
                all = fold(all, FOLD_16, _mm_loadu_si128((const __m128i *)(const void *)p));
        _mm_storeu_si128((__m128i *)(void *)words, all);
        crc = __builtin_ia32_crc32di(__builtin_ia32_crc32di(0, words[0]), words[1]);
        return crc32c_sse(~(uint32_t)crc, p, size);
}

FOLDED uint32_t crc32c_fold(uint32_t crc, const void *bytes, size_t size) {
        const unsigned char *p = bytes;
        __m128i sum[4];

        for (uint32_t i = 0; i < 4; i++)
                sum[i] = _mm_loadu_si128((const __m128i *)(const void *)p + i);
        sum[0] = _mm_xor_si128(sum[0], _mm_cvtsi32_si128((int)~crc));
        for (p += 64, size -= 64; size >= 64; p += 64, size -= 64)
                for (uint32_t i = 0; i < 4; i++)
                        sum[i] = fold(sum[i], FOLD_64, _mm_loadu_si128((const __m128i *)(const void *)p + i));
        return fold_end(sum, p, size);
}

WIDE __m512i fold_wide(__m512i sum, __m128i by, __m512i next) {
        const __m512i each = _mm512_broadcast_i32x4(by);

        return _mm512_xor_si512(next, _mm512_xor_si512(_mm512_clmulepi64_epi128(sum, each, 0x00),
                                                       _mm512_clmulepi64_epi128(sum, each, 0x11)));
}

WIDE uint32_t crc32c_wide(uint32_t crc, const void *bytes, size_t size) {
        const unsigned char *p = bytes;
        __m512i sum[4], all;
        __m128i quarter[4];

        for (uint32_t i = 0; i < 4; i++)
                sum[i] = _mm512_loadu_si512(p + 64 * i);
        sum[0] = _mm512_xor_si512(sum[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
        for (p += 256, size -= 256; size >= 256; p += 256, size -= 256)
                for (uint32_t i = 0; i < 4; i++)
                        sum[i] = fold_wide(sum[i], FOLD_256, _mm512_loadu_si512(p + 64 * i));
        all = fold_wide(fold_wide(fold_wide(sum[0], FOLD_64, sum[1]), FOLD_64, sum[2]), FOLD_64, sum[3]);
        for (; size >= 64; p += 64, size -= 64)
                all = fold_wide(all, FOLD_64, _mm512_loadu_si512(p));
        _mm512_storeu_si512(quarter, all);
        return fold_end(quarter, p, size);
}

uint32_t crc32c_by(enum crc_way way, uint32_t crc, const void *bytes, size_t size) {
        switch (way) {
        case CRC_WIDE:
                if (size >= FOLD_LEAST && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
                        return crc32c_wide(crc, bytes, size);
                __attribute__((fallthrough));
        case CRC_FOLD:
                if (size >= FOLD_LEAST && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2"))
                        return crc32c_fold(crc, bytes, size);
                __attribute__((fallthrough));
        case CRC_INSTRUCTION:
                if (__builtin_cpu_supports("sse4.2"))
                        return crc32c_sse(crc, bytes, size);
                __attribute__((fallthrough));
        default:
                return crc32c_table(crc, bytes, size);
        }
}
#else
uint32_t crc32c_by(enum crc_way way, uint32_t crc, const void *bytes, size_t size) {
        (void)way;
        return crc32c_table(crc, bytes, size);
}
#endif

uint32_t crc32c(uint32_t crc, const void *bytes, size_t size) {
        return crc32c_by(CRC_WIDE, crc, bytes, size);
}
