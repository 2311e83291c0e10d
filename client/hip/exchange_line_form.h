/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * How a warp's units become lines, and lines units: what is different on NVIDIA's GPUs and AMD's (exchange_line.h says
 * why). Also compiled for the host, where it is as on AMD's, and one test has it as on NVIDIA's.
 */
#include "client/hip/exchange_unit.h"

#ifndef LINE_ONE_FLAG
#define LINE_ONE_FLAG TARGET_NVIDIA /* a line of 128 bytes arrives whole */
#endif

/* Units of a thread, as they go and of data. */
#define LINE_RAW(n_ranks)   EXCHANGE_LINE_UNITS(n_ranks)
#define LINE_DATA(n_ranks)  (LINE_ONE_FLAG ? LINE_RAW(n_ranks) : LINE_RAW(n_ranks) / 4u * 3u)  /* at most */
#define LINE_BYTES(n_ranks) (EXCHANGE_LINE_BYTES(n_ranks) / (EXCHANGE_THREADS / WARP_THREADS)) /* of a warp's tile */

/* (Of structs compilers choose the address, for which they have to have one.) */
DEVICE struct quad line_either(bool first, struct quad a, struct quad b) {
        return {first ? a.x : b.x, first ? a.y : b.y, first ? a.z : b.z, first ? a.w : b.w};
}

#if LINE_ONE_FLAG
#define LINE_THREADS 8u

DEVICE bool line_is_last(uint32_t thread) {
        return thread % LINE_THREADS == LINE_THREADS - 1;
}

/* Byte offset, in the warp's tile, of a thread's k-th unit; of those that the eighth thread does not have, of the one
 * before. */
DEVICE uint32_t line_offset(uint32_t thread, uint32_t k) {
        const uint32_t t = thread % WARP_THREADS, two = k / 2 * (15 * WARP_THREADS / LINE_THREADS);

        return (k % 2 == 0 || line_is_last(t) ? two + t : two + WARP_THREADS + t - t / LINE_THREADS) * 16;
}

DEVICE bool line_has(uint32_t thread, uint32_t k) {
        return k % 2 == 0 || !line_is_last(thread);
}

/* The eighth thread's units, from how they lie in memory to how they go: halves. */
template <uint32_t U> DEVICE void line_part(uint32_t thread, struct quad (&x)[U]) {
        UNROLL
        for (uint32_t k = 0; k + 1 < U; k += 2) {
                x[k + 1].x = line_is_last(thread) ? x[k].z : x[k + 1].x;
                x[k + 1].y = line_is_last(thread) ? x[k].w : x[k + 1].y;
        }
}

/* And back. */
template <uint32_t U> DEVICE struct quad line_join(uint32_t thread, uint32_t k, const struct quad (&x)[U]) {
        struct quad v = x[k];

        if (k % 2 == 0) {
                v.z = line_is_last(thread) ? x[k + 1].x : v.z;
                v.w = line_is_last(thread) ? x[k + 1].y : v.w;
        }
        return v;
}

template <uint32_t U>
DEVICE void line_put(struct quad *place, uint32_t thread, uint32_t number, const struct quad (&x)[U]) {
        UNROLL
        for (uint32_t k = 0; k < U; k++) {
                struct quad v = x[k];

                v.z = line_is_last(thread) ? number : v.z;
                v.w = line_is_last(thread) ? number : v.w;
                quad_store(place + k * WARP_THREADS, v);
        }
}

template <uint32_t U> DEVICE void line_get(const struct quad *place, struct quad (&raw)[U]) {
        UNROLL
        for (uint32_t k = 0; k < U; k++)
                raw[k] = quad_load(place + k * WARP_THREADS);
}

template <uint32_t U> DEVICE bool line_is(uint32_t thread, uint32_t number, const struct quad (&raw)[U]) {
        bool is = true;

        UNROLL
        for (uint32_t k = 0; k < U; k++)
                is &= (!line_is_last(thread)) | ((raw[k].z == number) & (raw[k].w == number));
        return is;
}

template <uint32_t U> DEVICE struct quad line_data(const struct quad (&raw)[U], uint32_t k) {
        return raw[k];
}
#else
DEVICE uint32_t line_offset(uint32_t thread, uint32_t k) {
        return (k * WARP_THREADS + thread % WARP_THREADS) * 16;
}

DEVICE bool line_has(uint32_t thread, uint32_t k) {
        (void)thread, (void)k;
        return true;
}

template <uint32_t P> DEVICE void line_part(uint32_t thread, struct quad (&x)[P]) {
        (void)thread, (void)x;
}

template <uint32_t P> DEVICE struct quad line_join(uint32_t thread, uint32_t k, const struct quad (&x)[P]) {
        (void)thread;
        return x[k];
}

/* What stands above 48 bits of data. */
DEVICE uint64_t line_flag(uint32_t number) {
        return (uint64_t)(number % 65535 + 1) << 48;
}
#define LINE_LOW ((UINT64_C(1) << 48) - 1)

/* Cells of eight bytes: six of data, whose upper two bytes go in two more, three of each. */
template <uint32_t P>
DEVICE void line_put(struct quad *place, uint32_t thread, uint32_t number, const struct quad (&x)[P]) {
        const uint64_t flag = line_flag(number);
        uint64_t high[2] = {flag, flag};

        (void)thread;
        static_assert(P == 3, "of three units four");
        UNROLL
        for (uint32_t k = 0; k < P; k++) {
                const uint64_t a = (uint64_t)x[k].y << 32 | x[k].x, b = (uint64_t)x[k].w << 32 | x[k].z;
                const uint64_t low = (a & LINE_LOW) | flag, next = (b & LINE_LOW) | flag;

                high[0] |= a >> 48 << 16 * k;
                high[1] |= b >> 48 << 16 * k;
                quad_store(place + k * WARP_THREADS,
                           {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)next, (uint32_t)(next >> 32)});
                EXCHANGE_STEP();
        }
        quad_store(place + P * WARP_THREADS,
                   {(uint32_t)high[0], (uint32_t)(high[0] >> 32), (uint32_t)high[1], (uint32_t)(high[1] >> 32)});
}

template <uint32_t U> DEVICE void line_get(const struct quad *place, struct quad (&raw)[U]) {
        UNROLL
        for (uint32_t k = 0; k < U; k++)
                raw[k] = quad_load(place + k * WARP_THREADS);
}

template <uint32_t U> DEVICE bool line_is(uint32_t thread, uint32_t number, const struct quad (&raw)[U]) {
        const uint32_t flag = (uint32_t)(line_flag(number) >> 48);
        bool is = true;

        (void)thread;
        UNROLL
        for (uint32_t k = 0; k < U; k++)
                is &= (raw[k].y >> 16 == flag) & (raw[k].w >> 16 == flag);
        return is;
}

template <uint32_t U> DEVICE struct quad line_data(const struct quad (&raw)[U], uint32_t k) {
        const uint64_t high[2] = {(uint64_t)raw[3].y << 32 | raw[3].x, (uint64_t)raw[3].w << 32 | raw[3].z};

        static_assert(U == 4, "of three units four");
        return {raw[k].x, (raw[k].y & 0xffff) | (uint32_t)(high[0] >> 16 * k << 16), raw[k].z,
                (raw[k].w & 0xffff) | (uint32_t)(high[1] >> 16 * k << 16)};
}
#endif
