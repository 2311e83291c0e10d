/* SPDX-License-Identifier: MIT */
#pragma once
/* Staging of one communicator: a FIFO of slots from each rank to each other, per region. See channel.c for the essay.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"

#define CHANNEL_LINE 64u

/* In front of each slot's data, in the same page. */
struct channel_slot {
        _Alignas(CHANNEL_LINE) _Atomic uint32_t flag; /* number of the chunk in the slot; written by the source */
};

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
        size_t slot_offset; /* the credits come first, then the slots */
        size_t slot_stride; /* bytes from slot to slot */
        uint32_t n_ranks;
        uint32_t n_slots;
        uint32_t part_bytes;
};
#define CHANNEL_SET_NULL                                                                                               \
        { 0 }

/* The name of a channel. */
struct channel_id {
        uint32_t region;
        uint32_t source;
        uint32_t destination;
};

/* 0, -EINVAL, -EOVERFLOW or -ENOMEM. Takes address space; memory only for what is used. */
int channel_set_init(struct channel_set *set, uint32_t n_ranks, const struct plan_geometry *geometry);
void channel_set_deinit(struct channel_set *set);
/* For tests: every counter of a set never used before starts at `start`; the ends must have the same count and `seen`.
 */
void channel_set_restart(struct channel_set *set, uint32_t start);

static inline size_t channel_index(const struct channel_set *set, struct channel_id id) {
        return ((size_t)id.region * set->n_ranks + id.destination) * set->n_ranks + id.source;
}

static inline struct channel_credit *channel_credit(const struct channel_set *set, struct channel_id id) {
        return (struct channel_credit *)(void *)set->memory + channel_index(set, id);
}

static inline struct channel_slot *channel_slot(const struct channel_set *set, struct channel_id id, uint32_t slot) {
        size_t index = channel_index(set, id) * set->n_slots + slot;

        return (struct channel_slot *)(void *)(set->memory + set->slot_offset + index * set->slot_stride);
}

/* ---- source ------------------------------------------------------------------------------------------------------ */
/* Is there room for a chunk? */
bool channel_may_push(const struct channel_set *set, struct channel_id id, struct channel_end *end);
/* Where its data goes: part_bytes. */
void *channel_push_data(const struct channel_set *set, struct channel_id id, const struct channel_end *end);
/* Makes it visible, with what has been written to the data. */
void channel_push(const struct channel_set *set, struct channel_id id, struct channel_end *end);

/* ---- destination ------------------------------------------------------------------------------------------------- */
/* Has the next chunk arrived? */
bool channel_has_chunk(const struct channel_set *set, struct channel_id id, const struct channel_end *end);
const void *channel_chunk_data(const struct channel_set *set, struct channel_id id, const struct channel_end *end);
/* Gives its slot back to the source. */
void channel_release(const struct channel_set *set, struct channel_id id, struct channel_end *end);
