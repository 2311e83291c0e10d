/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Staging of one rank of a communicator on its GPU: where its peers put chunks, and where it brings in those of ranks
 * of other nodes (pass.h), each in its source's place. C and device code.
 *
 * Lanes. A communicator's work is divided over STAGING_LANES lanes. Part p of a phase belongs to lane 1 + p % data
 * lanes, and each lane has channels of its own (plan/plan.h: FIFO of slots per region, source and destination, numbered
 * chunks, credit). A lane is run by one warp at a time, of whatever block; so nothing in the exchange depends on how
 * many blocks are resident on which GPU, and no block-wide barrier stands between ranks. There are a few more than 128
 * data lanes, since sizes are powers of two: with fewer, most would have one part and a few a second one, and all would
 * wait for those. A communicator whose executors have fewer workers is told of fewer lanes, and requests that are small
 * enough then have larger parts, one for each worker; which lanes those belong to stays as it is.
 *
 * Transports. PACKET: each 8 bytes of payload carry the chunk's number as their flag (no fence; half the bandwidth).
 * BULK: payload as it is, a flag beside it after a fence. They never share memory, since bulk bytes could look like
 * flags. BULK has no memory in region 1: with a fence for each of two hops it is slower than packets at any size.
 *
 * Lane 0 carries no data: there the ranks tell each other what they have called, beside the data, so that a mismatch is
 * found before anybody is told that a request is done, at no cost in time.
 *
 * Regions as in plans: 0 and 1 data, 2 for sends and receives (any part of region 0 may be waiting for another rank), 3
 * what was called.
 * Layout of the memory of one rank: credits, flags, packet chunks, bulk chunks.
 */
#include <stddef.h>
#include <stdint.h>

#include "gpu/device/bell.h"

#define STAGING_LANES      BELL_LANES /* lane 0 included */
#define STAGING_DATA_LANES (STAGING_LANES - 1u)
#define STAGING_P2P_LANES  32u
#define STAGING_SLOTS      2u
#define STAGING_RANKS_MAX  64u /* ranks of a communicator on GPUs: a bit each in a word */
#define STAGING_REGIONS    4u

#define STAGING_RANKS_NARROW 32u /* with more than these it takes workers with more room (task.h) */

#define STAGING_REGION_P2P   2u
#define STAGING_REGION_CHECK 3u

#define STAGING_PACKET_CHUNK 1024u /* payload bytes; twice that in memory */
#define STAGING_BULK_CHUNK   2048u /* payload bytes */

/* Channels to one peer: those of packets first, lane 0's last among them. */
#define STAGING_PACKET_CHANNELS (2u * STAGING_LANES + STAGING_P2P_LANES + 1u)
#define STAGING_CHANNELS        (STAGING_PACKET_CHANNELS + STAGING_LANES + STAGING_P2P_LANES)

enum staging_transport { STAGING_PACKET = 0, STAGING_BULK = 1, STAGING_TRANSPORTS = 2 };

struct staging_layout {
        uint32_t n_ranks;
        uint32_t zero;
        uint64_t
                credit; /* u32 [transport][region][lane][STAGING_RANKS_MAX]: chunks the peer gave back, written by it */
        uint64_t flag;  /* u32 [region][lane][slot][STAGING_RANKS_MAX]: bulk chunk in the slot, written by the source */
        uint64_t packet[STAGING_REGIONS]; /* [lane][slot][source] chunks */
        uint64_t bulk[STAGING_REGIONS];
        uint64_t bytes; /* rounded to 64 KiB */
};

#if defined(__HIP__) || defined(__CUDACC__)
#define STAGING_INLINE static inline __attribute__((host)) __attribute__((device))
#else
#define STAGING_INLINE static inline
#endif

STAGING_INLINE uint32_t staging_lanes(uint32_t region) {
        return region == STAGING_REGION_P2P ? STAGING_P2P_LANES : region == STAGING_REGION_CHECK ? 1 : STAGING_LANES;
}

/* Is there one? */
STAGING_INLINE int staging_has(uint32_t transport, uint32_t region, uint32_t lane) {
        return lane < staging_lanes(region) &&
               (transport == STAGING_PACKET || region == 0 || region == STAGING_REGION_P2P);
}

/* Of the regions that there are for a transport. */
STAGING_INLINE uint32_t staging_channel(uint32_t transport, uint32_t region, uint32_t lane) {
        if (transport == STAGING_BULK)
                return STAGING_PACKET_CHANNELS + (region ? STAGING_LANES : 0) + lane;
        return region < STAGING_REGION_CHECK ? region * STAGING_LANES + lane : STAGING_PACKET_CHANNELS - 1;
}

STAGING_INLINE void staging_layout_init(struct staging_layout *l, uint32_t n_ranks) {
        uint64_t at = 0;

        l->n_ranks = n_ranks;
        l->zero = 0;
        l->credit = at;
        at += (uint64_t)STAGING_TRANSPORTS * STAGING_REGIONS * STAGING_LANES * STAGING_RANKS_MAX * 4;
        l->flag = at;
        at += (uint64_t)STAGING_REGIONS * STAGING_LANES * STAGING_SLOTS * STAGING_RANKS_MAX * 4;
        for (uint32_t r = 0; r < STAGING_REGIONS; r++) {
                l->packet[r] = at;
                at += (uint64_t)staging_lanes(r) * STAGING_SLOTS * n_ranks * STAGING_PACKET_CHUNK * 2;
        }
        for (uint32_t r = 0; r < STAGING_REGIONS; r++) {
                l->bulk[r] = at;
                at += r == STAGING_REGION_CHECK || r == 1
                              ? 0
                              : (uint64_t)staging_lanes(r) * STAGING_SLOTS * n_ranks * STAGING_BULK_CHUNK;
        }
        l->bytes = (at + 65535) / 65536 * 65536;
}

STAGING_INLINE uint64_t staging_credit(const struct staging_layout *l, uint32_t transport, uint32_t region,
                                       uint32_t lane) {
        return l->credit +
               (((uint64_t)transport * STAGING_REGIONS + region) * STAGING_LANES + lane) * STAGING_RANKS_MAX * 4;
}
STAGING_INLINE uint64_t staging_flag(const struct staging_layout *l, uint32_t region, uint32_t lane, uint32_t slot) {
        return l->flag + (((uint64_t)region * STAGING_LANES + lane) * STAGING_SLOTS + slot) * STAGING_RANKS_MAX * 4;
}
STAGING_INLINE uint64_t staging_chunk(const struct staging_layout *l, uint32_t transport, uint32_t region,
                                      uint32_t lane, uint32_t slot, uint32_t source) {
        uint64_t index = ((uint64_t)lane * STAGING_SLOTS + slot) * l->n_ranks + source;

        return transport == STAGING_PACKET ? l->packet[region] + index * STAGING_PACKET_CHUNK * 2
                                           : l->bulk[region] + index * STAGING_BULK_CHUNK;
}
