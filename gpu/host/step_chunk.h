/* SPDX-License-Identifier: MIT */
#pragma once
/* A step in hand and its chunks, to and from ranks of this node and of others. For step.c. */
#include <assert.h>

#include "gpu/host/interpret.h"
#include "gpu/host/net.h"

struct step {
        struct interpret_rank *rank;
        struct interpret_work *work;
        const struct plan *plan;
        const struct plan_phase *phase;
        struct interpret_cursor *cursor;
        uint32_t p;
};

/* The channel to a peer, and from it, and our ends. */
static inline struct channel_id chunk_id_to(const struct step *step, uint32_t peer) {
        return (struct channel_id){step->phase->region_out, step->rank->me, peer};
}

static inline struct channel_id chunk_id_from(const struct step *step, uint32_t peer) {
        return (struct channel_id){step->phase->region_in, peer, step->rank->me};
}

static inline struct channel_end *chunk_end_to(const struct step *step, uint32_t peer) {
        return &step->rank->to[step->phase->region_out][peer];
}

static inline struct channel_end *chunk_end_from(const struct step *step, uint32_t peer) {
        return &step->rank->from[step->phase->region_in][peer];
}

static inline bool chunk_is_away(const struct step *step, uint32_t peer) {
        return step->rank->away >> peer & 1;
}

/* Does a chunk of so many bytes lie beside its flag? */
static inline bool chunk_is_small(uint64_t size, bool partial) {
        return size <= CHANNEL_SMALL_BYTES && !partial;
}

static inline void *chunk_to(const struct step *step, uint32_t peer, uint64_t size, bool partial) {
        assert(size <= step->rank->set->slot_bytes[step->phase->region_out]);
        return channel_data(step->rank->set, chunk_id_to(step, peer), chunk_end_to(step, peer),
                            chunk_is_small(size, partial));
}

static inline const void *chunk_from(const struct step *step, uint32_t peer, uint64_t size, bool partial) {
        assert(size <= step->rank->set->slot_bytes[step->phase->region_in]);
        return channel_data(step->rank->set, chunk_id_from(step, peer), chunk_end_from(step, peer),
                            chunk_is_small(size, partial));
}

static inline bool chunk_may_push(const struct step *step, uint32_t peer) {
        return channel_may_push(step->rank->set, chunk_id_to(step, peer), chunk_end_to(step, peer));
}

/* What a chunk between two ranks of different nodes must say. */
static inline uint32_t chunk_signature(const struct step *step, uint32_t peer, bool sends) {
        const struct interpret_work *work = step->work;
        const struct plan_vector *vector = work->request->shape.vector;

        if (!vector)
                return work->signature;
        return host_net_signature(step->plan, work->request,
                                  sends ? vector->send_count[peer] : vector->recv_count[peer]);
}

/* Makes a chunk of so many bytes visible. */
static inline void chunk_push(const struct step *step, uint32_t peer, uint64_t size, bool partial) {
        const struct channel_set *set = step->rank->set;
        struct channel_end *end = chunk_end_to(step, peer);

        if (!chunk_is_away(step, peer)) {
                channel_push(set, chunk_id_to(step, peer), end);
                return;
        }
        host_net_push(step->rank->net, set, chunk_id_to(step, peer), end, chunk_signature(step, peer, true),
                      channel_data(set, chunk_id_to(step, peer), end, false), chunk_is_small(size, partial) ? 0 : size);
        step->rank->posted = true;
}

/* Has the next chunk come? One of another call is not used; the rank remembers whose it was, and stops. */
static inline bool chunk_arrived(const struct step *step, uint32_t peer) {
        const struct channel_end *end = chunk_end_from(step, peer);

        if (!channel_has_chunk(step->rank->set, chunk_id_from(step, peer), end))
                return false;
        if (!chunk_is_away(step, peer) ||
            channel_slot(step->rank->set, chunk_id_from(step, peer), end->slot)->signature ==
                    chunk_signature(step, peer, false))
                return true;
        step->rank->blamed = 1 + peer;
        return false;
}

static inline void chunk_release(const struct step *step, uint32_t peer) {
        if (!chunk_is_away(step, peer)) {
                channel_release(step->rank->set, chunk_id_from(step, peer), chunk_end_from(step, peer));
                return;
        }
        host_net_release(step->rank->net, step->rank->set, chunk_id_from(step, peer), chunk_end_from(step, peer));
        step->rank->posted = true;
}
