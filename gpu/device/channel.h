/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Where the words and chunks of a channel are: in the staging of the rank that looks at them, or, between nodes, in the
 * wire to the other rank. The fast paths (quick.h, hot.h, reach.h) know staging only; requests of communicators over
 * nodes do not go there (take_quick).
 */
#include "gpu/device/task.h"
#include "gpu/device/wire.h"

/* The ranks of other nodes, a bit each. peer[] of such a rank is the wire to it. */
DEVICE uint64_t channel_far(const struct worker_shared *s) {
        return s->rank.far;
}

/* What p has given back of my chunks. */
DEVICE const uint32_t *channel_room(const struct worker_shared *s, uint32_t transport, uint32_t region, uint32_t lane,
                                    uint32_t p) {
        if (s->rank.far >> p & 1)
                return (const uint32_t *)wire_room(s->rank.peer[p], staging_channel(transport, region, lane));
        return (const uint32_t *)(s->rank.peer[s->rank.rank] + staging_credit(&s->layout, transport, region, lane)) + p;
}

/* That a channel to or from p has. */
DEVICE uint32_t channel_slots(const struct worker_shared *s, uint32_t p) {
        return s->rank.far >> p & 1 ? WIRE_SLOTS : STAGING_SLOTS;
}

/* My chunk to p, after so many others. */
DEVICE uint64_t channel_to(const struct worker_shared *s, uint32_t transport, uint32_t region, uint32_t lane,
                           uint32_t pushed, uint32_t p) {
        if (s->rank.far >> p & 1)
                return wire_out(s->rank.peer[p], staging_channel(transport, region, lane), pushed % WIRE_SLOTS);
        return s->rank.peer[p] +
               staging_chunk(&s->layout, transport, region, lane, pushed % STAGING_SLOTS, s->rank.rank);
}

/* p's chunk to me, after so many others. */
DEVICE uint64_t channel_from(const struct worker_shared *s, uint32_t transport, uint32_t region, uint32_t lane,
                             uint32_t taken, uint32_t p) {
        if (s->rank.far >> p & 1)
                return wire_in(s->rank.peer[p], staging_channel(transport, region, lane), taken % WIRE_SLOTS);
        return s->rank.peer[s->rank.rank] +
               staging_chunk(&s->layout, transport, region, lane, taken % STAGING_SLOTS, p);
}

/* The word that says which chunk of p's lies in the slot of the one after so many. There is none for packets of ranks
 * on this node. */
DEVICE const uint32_t *channel_come(const struct worker_shared *s, uint32_t transport, uint32_t region, uint32_t lane,
                                    uint32_t taken, uint32_t p) {
        if (s->rank.far >> p & 1)
                return (const uint32_t *)wire_come(s->rank.peer[p], staging_channel(transport, region, lane),
                                                   taken % WIRE_SLOTS);
        return (const uint32_t *)(s->rank.peer[s->rank.rank] +
                                  staging_flag(&s->layout, region, lane, taken % STAGING_SLOTS)) +
               p;
}

/* One thread, after its warp's release where one is due: chunk number `number` to p is there. */
DEVICE void channel_push(const struct worker_shared *s, uint32_t transport, uint32_t region, uint32_t lane, uint32_t p,
                         uint32_t number) {
        if (s->rank.far >> p & 1)
                word_store((uint32_t *)wire_pushed(s->rank.peer[p], staging_channel(transport, region, lane)), number);
        else if (transport == STAGING_BULK)
                word_store((uint32_t *)(s->rank.peer[p] +
                                        staging_flag(&s->layout, region, lane, (number - 1) % STAGING_SLOTS)) +
                                   s->rank.rank,
                           number);
}

/* One thread: `taken` chunks of p's have been given back. */
DEVICE void channel_give(const struct worker_shared *s, uint32_t transport, uint32_t region, uint32_t lane, uint32_t p,
                         uint32_t taken) {
        uint32_t *to = s->rank.far >> p & 1
                               ? (uint32_t *)wire_given(s->rank.peer[p], staging_channel(transport, region, lane))
                               : (uint32_t *)(s->rank.peer[p] + staging_credit(&s->layout, transport, region, lane)) +
                                         s->rank.rank;

        word_store(to, taken);
}

/* One thread, before the release: how long bulk chunk `number` to p, of another node, is. */
DEVICE void channel_size(const struct worker_shared *s, uint32_t region, uint32_t lane, uint32_t p, uint32_t number,
                         uint32_t bytes) {
        word_store((uint32_t *)wire_bytes(s->rank.peer[p], staging_channel(STAGING_BULK, region, lane),
                                          (number - 1) % WIRE_SLOTS),
                   bytes);
}
