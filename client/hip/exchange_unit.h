/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What chunks of collectives (exchange_bulk.h), lines (exchange_line.h) and transfers (exchange_pair.h) have in common:
 * units of sixteen bytes; and which warps act for a block that goes on together. Also compiled for the host.
 */
#include "client/hip/exchange_run.h"

/* Which warp tells the other ranks, and which waits for them. */
#define UNIT_TELLS 0u
#define UNIT_WAITS 1u
static_assert(EXCHANGE_THREADS > UNIT_WAITS * WARP_THREADS, "two warps");

/* Sixteen bytes, or what is left of them, from any address; as exchange_load_part. */
DEVICE struct quad unit_load_any(const char *from, uint64_t left) {
        const uint32_t odd = (uint32_t)((uintptr_t)from % 8), bytes = left < 16 ? (uint32_t)left : 16;
        const uint64_t *word = (const uint64_t *)(const void *)(from - odd);
        const uint64_t x = word[0], y = odd + bytes > 8 ? word[1] : 0, z = odd + bytes > 16 ? word[2] : 0;
        uint64_t low = odd ? x >> (8 * odd) | y << (64 - 8 * odd) : x;
        uint64_t high = odd ? y >> (8 * odd) | z << (64 - 8 * odd) : y;

        if (bytes <= 8)
                high = 0;
        else if (bytes < 16)
                high &= (UINT64_C(1) << (8 * bytes - 64)) - 1;
        if (bytes < 8)
                low &= (UINT64_C(1) << (8 * bytes)) - 1;
        return {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)};
}

/* The same as a function of its own: registers are few. */
[[maybe_unused]] DEVICE_OUTLINE struct quad unit_load_part(const char *from, uint64_t left) {
        return unit_load_any(from, left);
}

/* Stores have the width that the address allows, and the last ones that of an element. */
DEVICE_OUTLINE void unit_store_part(char *to, uint64_t left, struct quad v, uint32_t element_bytes) {
        const uint64_t low = (uint64_t)v.y << 32 | v.x, high = (uint64_t)v.w << 32 | v.z;

        if (left < 16 || (uintptr_t)to % 2) {
                exchange_store_part(to, left, low, element_bytes);
                if (left > 8)
                        exchange_store_part(to + 8, left - 8, high, element_bytes);
        } else if ((uintptr_t)to % 8 == 0) {
                output_store(to, low, 8);
                output_store(to + 8, high, 8);
        } else if ((uintptr_t)to % 4 == 0) {
                UNROLL
                for (uint32_t i = 0; i < 8; i += 4) {
                        output_store(to + i, low >> (8 * i), 4);
                        output_store(to + 8 + i, high >> (8 * i), 4);
                }
        } else {
                UNROLL
                for (uint32_t i = 0; i < 8; i += 2) {
                        output_store(to + i, low >> (8 * i), 2);
                        output_store(to + 8 + i, high >> (8 * i), 2);
                }
        }
}

/* What is the rank's own goes into a premultiplied sum as a multiple of it. */
template <uint32_t KIND, uint32_t U> DEVICE void unit_scale(const struct exchange_arguments *a, struct quad (&x)[U]) {
        if constexpr (KIND == EXCHANGE_OTHER) {
                if (a->redop != RMX_PREMUL_SUM)
                        return;
                UNROLL
                for (uint32_t u = 0; u < U; u++) {
                        const uint64_t low = reduce_scale(a->type, a->scalar, (uint64_t)x[u].y << 32 | x[u].x);
                        const uint64_t high = reduce_scale(a->type, a->scalar, (uint64_t)x[u].w << 32 | x[u].z);

                        x[u] = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)};
                }
        }
}

/* Of what all ranks have, in rank order. */
template <uint32_t N, uint32_t KIND, uint32_t U>
DEVICE void unit_sum(const struct exchange_arguments *a, const struct quad (&x)[N][U], struct quad (&sum)[U]) {
        UNROLL
        for (uint32_t u = 0; u < U; u++) {
                uint64_t y[N], low, high;

                UNROLL
                for (uint32_t r = 0; r < N; r++)
                        y[r] = (uint64_t)x[r][u].y << 32 | x[r][u].x;
                low = exchange_sum<N, KIND>(a, y);
                UNROLL
                for (uint32_t r = 0; r < N; r++)
                        y[r] = (uint64_t)x[r][u].w << 32 | x[r][u].z;
                high = exchange_sum<N, KIND>(a, y);
                sum[u] = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)};
        }
}
