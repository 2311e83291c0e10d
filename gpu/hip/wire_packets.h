/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Packets (gpu/device/staging.h) without their flags and with them: what the proxy does with each byte of a small or a
 * forwarded chunk. In memory a packet is two halves of eight bytes, each four of payload and the chunk's number.
 *
 * Two packets at a time where the processor has registers of 16 bytes. Reading needs no order: all of the chunk was
 * there before the counter that was acquired. Written is each packet at once, aligned, so that a kernel that looks at
 * halves sees whole ones.
 */
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "gpu/device/staging.h"

#define WIRE_PACKETS (STAGING_PACKET_CHUNK / 8u)

typedef uint32_t wire_quad __attribute__((vector_size(16), may_alias));

/* The payload of the packets at the beginning of `from`, a chunk, that have the number; its bytes. */
__attribute__((no_sanitize_thread)) static inline uint32_t wire_packets_open(const unsigned char *from, uint32_t number,
                                                                             unsigned char *to) {
        const volatile wire_quad *packet = (const volatile wire_quad *)(const void *)from;
        uint32_t n = 0;

#if defined(__SSE2__)
        for (; n < WIRE_PACKETS; n += 2) {
                const wire_quad a = packet[n], b = packet[n + 1];
                const wire_quad payload = __builtin_shufflevector(a, b, 0, 2, 4, 6);
                const __m128i same = (__m128i)(__builtin_shufflevector(a, b, 1, 3, 5, 7) == number);

                if (_mm_movemask_epi8(same) != 0xffff)
                        break;
                memcpy(to + 8 * (size_t)n, &payload, sizeof(payload));
        }
#endif
        for (; n < WIRE_PACKETS; n++) {
                const wire_quad a = packet[n];
                const uint32_t payload[2] = {a[0], a[2]};

                if (a[1] != number || a[3] != number)
                        break;
                memcpy(to + 8 * (size_t)n, payload, sizeof(payload));
        }
        return 8 * n;
}

/* The other way round; bytes: a multiple of 8, at most STAGING_PACKET_CHUNK. */
__attribute__((no_sanitize_thread)) static inline void wire_packets_close(unsigned char *to, uint32_t number,
                                                                          const unsigned char *from, uint32_t bytes) {
        uint32_t n = 0;

#if defined(__SSE2__)
        volatile wire_quad *packet = (volatile wire_quad *)(void *)to;
        const wire_quad flags = {number, number, number, number};

        for (; n + 2 <= bytes / 8; n += 2) {
                wire_quad payload;

                memcpy(&payload, from + 8 * (size_t)n, sizeof(payload));
                packet[n] = __builtin_shufflevector(payload, flags, 0, 4, 1, 5);
                packet[n + 1] = __builtin_shufflevector(payload, flags, 2, 6, 3, 7);
        }
#endif
        for (; n < bytes / 8; n++) {
                uint64_t *half = (uint64_t *)(void *)to + 2 * (size_t)n, payload;

                memcpy(&payload, from + 8 * (size_t)n, 8);
                /* relaxed: each half is whole, and says so itself; the kernel waits for both */
                __atomic_store_n(&half[0], (uint64_t)number << 32 | (uint32_t)payload, __ATOMIC_RELAXED);
                __atomic_store_n(&half[1], (uint64_t)number << 32 | payload >> 32, __ATOMIC_RELAXED);
        }
}
