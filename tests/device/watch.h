/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Stands between the device code and memory: emulator.cc includes this after gpu/device/order.h and before the rest, so
 * that every load and store of shared memory by the interpreter goes through here.
 *
 * Turns: a worker lets others go on once in each look at the tables. Jitter: between any two accesses, too, now and
 * then, so that chunks and lines are seen half written and orders change.
 *
 * Watch: staging is a row of channels (source, destination, region, lane, transport), each a FIFO of slots. Two things
 * must hold whatever the schedule:
 *   - a chunk is written only into a slot whose last chunk has been given back: checked at each store, against the
 *     credit word itself, which only rises;
 *   - nothing is read from a chunk that has been given back: it is poisoned just before the credit is stored, so late
 *     readers see wrong data or flags that never were.
 * What comes of other nodes is put down by the rank itself (gpu/device/pass.h): of that the first is checked against
 * the credit in the wire, and the second is not, as nobody else reads there.
 */
#include <stdio.h>
#include <stdlib.h>

#include "gpu/device/order.h"
#include "gpu/device/staging.h"
#include "gpu/device/wire.h"
#include "tests/device/fiber.h"

#define WATCH_STAGINGS 64u

struct watch_staging {
        uint64_t base;
        const struct staging_layout *layout;
        uint32_t comm, rank;
        bool distrusted;                       /* its clients may write nonsense: what happens here is not looked at */
        uint64_t credit_of[STAGING_RANKS_MAX]; /* where rank p's staging begins: its credits are there; of a rank of
                                                  another node, the wire */
        uint64_t far;                          /* those ranks, a bit each */
        uint32_t *published;                   /* [region][lane][source]: bulk chunks with their flag set */
};

/* Of a worker. */
struct watch_thread {
        uint64_t random;     /* 0: no jitter */
        const void *version; /* looked at once a round */
        const uint32_t *hold;
        const uint32_t *stop;
};

/* One emulator at a time; filled before workers can see the communicator. */
static struct {
        uint64_t begin, stride;
        uint32_t n;
        bool on;
        uint64_t stores;           /* of all workers: whether anything moves */
        struct watch_thread *self; /* NULL: the caller of the emulator */
        struct watch_staging staging[WATCH_STAGINGS];
} watch;

static inline void watch_yield(void) {
        struct watch_thread *self = watch.self;

        do
                fiber_yield();
        while (self && *self->hold && !*self->stop);
        watch.self = self;
}

static inline void watch_jitter(uint32_t one_in) {
        struct watch_thread *t = watch.self;

        if (!t || !t->random)
                return;
        t->random ^= t->random << 13;
        t->random ^= t->random >> 7;
        t->random ^= t->random << 17;
        if ((t->random >> 20) % one_in == 0)
                watch_yield();
}

[[noreturn]] static void watch_fail(const struct watch_staging *s, const char *what, uint32_t region, uint32_t lane,
                                    uint32_t slot, uint32_t source, uint32_t number) {
        fprintf(stderr, "staging of communicator %u: %s: region %u lane %u slot %u, from rank %u to %u, chunk %u\n",
                s->comm, what, region, lane, slot, source, s->rank, number);
        abort();
}

static inline struct watch_staging *watch_find(const void *at) {
        uint64_t offset = (uint64_t)at - watch.begin;
        struct watch_staging *s;

        if (!watch.on || (uint64_t)at < watch.begin || offset >= watch.stride * watch.n)
                return NULL;
        s = &watch.staging[offset / watch.stride];
        return s->distrusted ? NULL : s;
}

static inline uint32_t *watch_published(struct watch_staging *s, uint32_t region, uint32_t lane, uint32_t source) {
        return &s->published[(region * STAGING_LANES + lane) * STAGING_RANKS_MAX + source];
}

/* Which chunk lies at an offset. False: none, it is a credit or a flag. */
static inline bool watch_chunk(const struct staging_layout *l, uint64_t offset, uint32_t *ret_transport,
                               uint32_t *ret_region, uint32_t *ret_lane, uint32_t *ret_slot, uint32_t *ret_source) {
        uint32_t transport = offset >= l->bulk[0] ? STAGING_BULK : STAGING_PACKET, region = STAGING_REGIONS - 1;
        const uint64_t *begin = transport == STAGING_BULK ? l->bulk : l->packet;
        uint64_t index;

        if (offset < l->packet[0])
                return false;
        while (begin[region] > offset)
                region--;
        index = (offset - begin[region]) / (transport == STAGING_BULK ? STAGING_BULK_CHUNK : STAGING_PACKET_CHUNK * 2);
        *ret_transport = transport;
        *ret_region = region;
        *ret_source = (uint32_t)(index % l->n_ranks);
        *ret_slot = (uint32_t)(index / l->n_ranks % STAGING_SLOTS);
        *ret_lane = (uint32_t)(index / l->n_ranks / STAGING_SLOTS);
        return true;
}

static inline void watch_chunk_store(struct watch_staging *s, const void *to, bool packet, uint32_t flag) {
        uint32_t transport, region, lane, slot, source, credit, number;

        if (!watch_chunk(s->layout, (uint64_t)to - s->base, &transport, &region, &lane, &slot, &source))
                watch_fail(s, "data where counters are", 0, 0, 0, 0, 0);
        if (packet != (transport == STAGING_PACKET))
                watch_fail(s, "the wrong transport", region, lane, slot, source, 0);
        number = packet ? flag - 1 : *watch_published(s, region, lane, source);
        if (s->far >> source & 1) { /* put down by the rank itself, as its next one */
                if (number != word_load((const uint32_t *)wire_given(s->credit_of[source],
                                                                     staging_channel(transport, region, lane))))
                        watch_fail(s, "put down when it was not the next", region, lane, slot, source, number);
        } else {
                credit = word_load(
                        (const uint32_t *)(s->credit_of[source] + staging_credit(s->layout, transport, region, lane)) +
                        s->rank);
                if ((int32_t)(number - credit) >= (int32_t)STAGING_SLOTS)
                        watch_fail(s, "overwritten before it was given back", region, lane, slot, source, number);
        }
        if (number % STAGING_SLOTS != slot)
                watch_fail(s, "another slot's chunk", region, lane, slot, source, number);
}

/* `to` in s, the staging of `source`: a credit that rank `by` gives for the channel from source to by. */
static inline void watch_credit_store(struct watch_staging *s, uint64_t offset, uint32_t value) {
        uint64_t index = offset / 4;
        uint32_t by = (uint32_t)(index % STAGING_RANKS_MAX), lane, region, transport;
        const struct staging_layout *l = s->layout;
        struct quad *chunk;

        index /= STAGING_RANKS_MAX;
        lane = (uint32_t)(index % STAGING_LANES);
        region = (uint32_t)(index / STAGING_LANES % STAGING_REGIONS);
        transport = (uint32_t)(index / STAGING_LANES / STAGING_REGIONS);
        if (by >= l->n_ranks || (transport == STAGING_BULK && region == STAGING_REGION_CHECK))
                watch_fail(s, "a credit that does not exist", region, lane, 0, by, value);
        if (value != word_load((const uint32_t *)(s->base + offset)) + 1)
                watch_fail(s, "credits do not count up", region, lane, 0, by, value);
        chunk = (struct quad *)(s->credit_of[by] +
                                staging_chunk(l, transport, region, lane, (value - 1) % STAGING_SLOTS, s->rank));
        for (uint32_t i = 0; i < (transport == STAGING_BULK ? STAGING_BULK_CHUNK / 16 : STAGING_PACKET_CHUNK / 8); i++)
                quad_store(&chunk[i], {0x5a5a5a5au, value ^ 0x40000000u, 0x5a5a5a5au, value ^ 0x40000000u});
}

static inline void watch_flag_store(struct watch_staging *s, uint64_t offset, uint32_t value) {
        uint64_t index = (offset - s->layout->flag) / 4;
        uint32_t source = (uint32_t)(index % STAGING_RANKS_MAX), lane, region, *published;

        index /= STAGING_RANKS_MAX;
        lane = (uint32_t)(index / STAGING_SLOTS % STAGING_LANES);
        region = (uint32_t)(index / STAGING_SLOTS / STAGING_LANES);
        published = watch_published(s, region, lane, source);
        if (value != *published + 1)
                watch_fail(s, "flags do not count up", region, lane, 0, source, value);
        *published = value;
}

/* ---- what the device code calls instead ----------------------------------------------------------------------------
 */
static inline void watch_word_store(uint32_t *to, uint32_t value) {
        struct watch_staging *s = watch_find(to);

        watch_jitter(16);
        watch.stores++;
        if (s) {
                uint64_t offset = (uint64_t)to - s->base;

                if (offset < s->layout->flag)
                        watch_credit_store(s, offset, value);
                else if (offset < s->layout->packet[0])
                        watch_flag_store(s, offset, value);
                else
                        watch_fail(s, "a counter where data is", 0, 0, 0, 0, value);
        }
        word_store(to, value);
}

static inline void watch_quad_store(struct quad *to, struct quad v) {
        struct watch_staging *s = watch_find(to);

        watch_jitter(64);
        watch.stores++;
        if (s)
                watch_chunk_store(s, to, false, 0);
        quad_store(to, v);
}

static inline void watch_packet_store(struct quad *to, uint64_t payload, uint32_t flag) {
        struct watch_staging *s = watch_find(to);
        const struct quad before = quad_load(to);

        watch_jitter(64);
        /* (Of a chunk that is too short, since ranks differ, what there is may be put down again and again.) */
        watch.stores += !packet_is(before, flag) || packet_payload(before) != payload;
        if (s)
                watch_chunk_store(s, to, true, flag);
        packet_store(to, payload, flag);
}

static inline void watch_cell_store(uint64_t *to, uint64_t value) {
        watch_jitter(16);
        watch.stores++;
        cell_store(to, value);
}

static inline uint32_t watch_word_load(const uint32_t *from) {
        watch_jitter(64);
        return word_load(from);
}

static inline uint64_t watch_cell_load(const uint64_t *from) {
        if (watch.self && (const void *)from == watch.self->version)
                watch_yield();
        else
                watch_jitter(64);
        return cell_load(from);
}

static inline struct quad watch_quad_load(const struct quad *from) {
        watch_jitter(64);
        return quad_load(from);
}

/* The round has a turn of its own. */
static inline void watch_pause(void) {}

#define word_load    watch_word_load
#define word_store   watch_word_store
#define cell_load    watch_cell_load
#define cell_store   watch_cell_store
#define quad_load    watch_quad_load
#define quad_store   watch_quad_store
#define packet_store watch_packet_store
#define poll_pause   watch_pause
#define BURST_PAUSE  watch_yield
