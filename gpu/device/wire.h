/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Channels between a rank here and one of another node. C and device code.
 *
 * To its lanes they are channels like those in staging (staging.h): slots, numbered chunks, credit given back. But what
 * is pushed into them no GPU takes, and so they do not lie in staging: a wire is a block of host memory, one for each
 * rank here and rank elsewhere, that the kernel works on from one side and the executor's proxies from the other
 * (gpu/hip/wires.c). Chunks that go out and chunks that come in have places of their own. Each word has one writer:
 *
 *   pushed  chunks written into `out` so far. The kernel stores it after a release, also where packets carry a flag of
 *           their own: proxies look at 473 words, not at 60000 packets.
 *   bytes   of the bulk chunk in each slot of `out`, before `pushed` (of packets those count that have the chunk's
 *           number)
 *   given   chunks of `in` that have been taken
 *   room    chunks of `out` that the other rank has taken
 *   come    number of the chunk in each slot of `in`, after it. Of packets, too, although each says by itself that it
 * is there: a look at a wire goes over the bus, and a look at this word is one of 4 bytes, not of kilobytes
 *
 * Proxies carry chunks to mirrors in the net area (gpu/mirror.h), whose counterparts on the other node the fabric
 * writes; those there bring them into the wire. Packets travel without their flags.
 */
#include "gpu/device/staging.h"

#define WIRE_WORDS ((STAGING_CHANNELS + 15u) / 16u * 16u) /* one for each channel, in whole lines */
#define WIRE_SLOTS 4u    /* of a channel: more than in staging, since credit is longer on its way */
#define WIRE_CHUNK 2048u /* a chunk of packets, flags and all, or a bulk chunk */

#if defined(__cplusplus)
static_assert(STAGING_BULK_CHUNK <= WIRE_CHUNK && 2 * STAGING_PACKET_CHUNK <= WIRE_CHUNK, "a chunk fits");
#else
_Static_assert(STAGING_BULK_CHUNK <= WIRE_CHUNK && 2 * STAGING_PACKET_CHUNK <= WIRE_CHUNK, "a chunk fits");
#endif

struct wire {
        /* the kernel's */
        uint32_t pushed[WIRE_WORDS];
        uint32_t given[WIRE_WORDS];
        uint32_t bytes[WIRE_WORDS][WIRE_SLOTS];
        /* the proxy's */
        uint32_t room[WIRE_WORDS];
        uint32_t come[WIRE_WORDS][WIRE_SLOTS];
        uint32_t pad[1024 - (3 + 2 * WIRE_SLOTS) * WIRE_WORDS % 1024]; /* chunks begin with a page */

        unsigned char out[STAGING_CHANNELS][WIRE_SLOTS][WIRE_CHUNK]; /* the kernel's */
        unsigned char in[STAGING_CHANNELS][WIRE_SLOTS][WIRE_CHUNK];  /* the proxy's */
};

STAGING_INLINE uint64_t wire_pushed(uint64_t wire, uint32_t channel) {
        return wire + offsetof(struct wire, pushed) + channel * 4;
}
STAGING_INLINE uint64_t wire_given(uint64_t wire, uint32_t channel) {
        return wire + offsetof(struct wire, given) + channel * 4;
}
STAGING_INLINE uint64_t wire_bytes(uint64_t wire, uint32_t channel, uint32_t slot) {
        return wire + offsetof(struct wire, bytes) + (channel * WIRE_SLOTS + slot) * 4;
}
STAGING_INLINE uint64_t wire_room(uint64_t wire, uint32_t channel) {
        return wire + offsetof(struct wire, room) + channel * 4;
}
STAGING_INLINE uint64_t wire_come(uint64_t wire, uint32_t channel, uint32_t slot) {
        return wire + offsetof(struct wire, come) + (channel * WIRE_SLOTS + slot) * 4;
}
STAGING_INLINE uint64_t wire_out(uint64_t wire, uint32_t channel, uint32_t slot) {
        return wire + offsetof(struct wire, out) + (channel * WIRE_SLOTS + slot) * WIRE_CHUNK;
}
STAGING_INLINE uint64_t wire_in(uint64_t wire, uint32_t channel, uint32_t slot) {
        return wire + offsetof(struct wire, in) + (channel * WIRE_SLOTS + slot) * WIRE_CHUNK;
}
