/* SPDX-License-Identifier: MIT */
#pragma once
/* Staging of one communicator: a FIFO of slots from each rank to each, per region. See channel.c for the essay. */
#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"

#define CHANNEL_LINE        64u
#define CHANNEL_SMALL_BYTES 56u /* chunks up to this size may lie beside their flag */

/* What both ends look at; the slot's larger place for data is elsewhere. */
struct channel_slot {
        _Alignas(CHANNEL_LINE) _Atomic uint32_t flag; /* number of the chunk in the slot; written by the source */
        uint32_t signature; /* between nodes: of the call that the chunk belongs to; see net.c */
        _Alignas(8) unsigned char small[CHANNEL_SMALL_BYTES];
};
_Static_assert(sizeof(struct channel_slot) == CHANNEL_LINE, "a flag and a small chunk share a line");

struct channel_credit {
        _Alignas(CHANNEL_LINE) _Atomic uint32_t released; /* chunks given back so far; written by the destination */
};

/* One end of a channel, private to the rank at that end. */
struct channel_end {
        uint32_t count; /* chunks pushed / released so far; wraps */
        uint32_t slot;  /* where the next one lies */
        uint32_t seen;  /* source only: `released` when last read */
};

struct channel_set {
        unsigned char *memory;
        size_t size;
        bool borrowed;                        /* the memory is somebody else's */
        size_t slot_offset;                   /* the credits come first, then all slots */
        size_t data_offset[PLAN_REGIONS_MAX]; /* then each region's data */
        size_t data_stride[PLAN_REGIONS_MAX]; /* bytes from slot to slot */
        uint32_t slot_bytes[PLAN_REGIONS_MAX];
        uint32_t n_ranks;
        uint32_t n_slots;      /* of a channel between two ranks */
        uint32_t n_self_slots; /* of a rank's channel to itself */
        uint32_t n_rank_slots; /* of all channels of a region to one rank */
};
#define CHANNEL_SET_NULL                                                                                               \
        { 0 }

/* The name of a channel. */
struct channel_id {
        uint32_t region;
        uint32_t source;
        uint32_t destination;
};

/* Over several nodes: the region that carries the data of sends, where elsewhere it has signals only. */
#define CHANNEL_REGION_SENDS PLAN_REGIONS_DATA

/* 0, -EINVAL, -EOVERFLOW or -ENOMEM. Takes address space; memory only for what is used. */
int channel_set_init(struct channel_set *set, uint32_t n_ranks, const struct plan_geometry *geometry);
/* The same over several nodes, in zeroed memory of the caller's, aligned to a line, of exactly channel_set_net_bytes().
 * All nodes have the same offsets. 0, -EINVAL, -EOVERFLOW. */
int channel_set_init_net(struct channel_set *set, uint32_t n_ranks, const struct plan_geometry *geometry, void *memory,
                         size_t size);
int channel_set_net_bytes(uint32_t n_ranks, const struct plan_geometry *geometry, size_t *ret_size);
void channel_set_deinit(struct channel_set *set);
/* For tests: every counter of a set never used before starts at `start`; the ends must have the same count and `seen`.
 */
void channel_set_restart(struct channel_set *set, uint32_t start);

static inline struct channel_credit *channel_credit(const struct channel_set *set, struct channel_id id) {
        size_t index = ((size_t)id.region * set->n_ranks + id.destination) * set->n_ranks + id.source;

        return (struct channel_credit *)(void *)set->memory + index;
}

static inline uint32_t channel_slots(const struct channel_set *set, struct channel_id id) {
        return id.source == id.destination ? set->n_self_slots : set->n_slots;
}

/* Among the region's slots. A destination's channels lie in a row, and the one to itself is longer than the others. */
static inline size_t channel_slot_index(const struct channel_set *set, struct channel_id id, uint32_t slot) {
        size_t index = (size_t)id.destination * set->n_rank_slots + id.source * set->n_slots + slot;

        return id.source > id.destination ? index + set->n_self_slots - set->n_slots : index;
}

static inline struct channel_slot *channel_slot(const struct channel_set *set, struct channel_id id, uint32_t slot) {
        size_t index = (size_t)id.region * set->n_rank_slots * set->n_ranks + channel_slot_index(set, id, slot);

        return (struct channel_slot *)(void *)(set->memory + set->slot_offset) + index;
}

/* Where the data of the next chunk lies: up to slot_bytes[region], aligned to a line; or, if both ends say `small`, up
 * to CHANNEL_SMALL_BYTES beside the flag, aligned to eight bytes. */
static inline void *channel_data(const struct channel_set *set, struct channel_id id, const struct channel_end *end,
                                 bool small) {
        if (small)
                return channel_slot(set, id, end->slot)->small;
        return set->memory + set->data_offset[id.region] +
               channel_slot_index(set, id, end->slot) * set->data_stride[id.region];
}

static inline void channel_end_advance(const struct channel_set *set, struct channel_id id, struct channel_end *end) {
        end->count++;
        if (++end->slot == channel_slots(set, id))
                end->slot = 0;
}

/* ---- source ------------------------------------------------------------------------------------------------------ */
/* Is there room for a chunk? */
static inline bool channel_may_push(const struct channel_set *set, struct channel_id id, struct channel_end *end) {
        uint32_t n_slots = channel_slots(set, id);

        if ((uint32_t)(end->count - end->seen) < n_slots)
                return true;
        /* Acquire; partner: the release store in channel_release. The destination's reads of the slot come before our
         * writes. */
        end->seen = atomic_load_explicit(&channel_credit(set, id)->released, memory_order_acquire);
        return (uint32_t)(end->count - end->seen) < n_slots;
}

/* Makes the chunk visible, with what has been written to its data. */
static inline void channel_push(const struct channel_set *set, struct channel_id id, struct channel_end *end) {
        struct channel_slot *slot = channel_slot(set, id, end->slot);

        assert((uint32_t)(end->count - end->seen) < channel_slots(set, id));
        channel_end_advance(set, id, end);
        /* Release; partner: the acquire load in channel_has_chunk. The data is there when the flag is. */
        atomic_store_explicit(&slot->flag, end->count, memory_order_release);
}

/* ---- destination ------------------------------------------------------------------------------------------------- */
/* Has the next chunk arrived? */
static inline bool channel_has_chunk(const struct channel_set *set, struct channel_id id,
                                     const struct channel_end *end) {
        /* Acquire; partner: the release store in channel_push. */
        return atomic_load_explicit(&channel_slot(set, id, end->slot)->flag, memory_order_acquire) == end->count + 1u;
}

/* Gives its slot back to the source. */
static inline void channel_release(const struct channel_set *set, struct channel_id id, struct channel_end *end) {
        channel_end_advance(set, id, end);
        /* Release; partner: the acquire load in channel_may_push. Our reads of the slot are done. */
        atomic_store_explicit(&channel_credit(set, id)->released, end->count, memory_order_release);
}
