/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The host's copy of the kernels' tables (gpu/device/tables.h), and what must be written to the device in which order.
 * No GPU runtime here. Control thread only.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/device/tables.h"

enum { SHADOW_KEY_TAKEN_OUT = 1, SHADOW_KEY_VALID = 2 };

struct shadow {
        struct table *table;
        /* Puts bytes [offset, offset + bytes) of the table onto the device, after everything put before. It may still
         * be reading them when it returns; nothing is changed here before `settle`. */
        int (*put)(void *context, size_t offset, size_t bytes);
        /* Returns when everything put has arrived. */
        int (*settle)(void *context);
        void *context;
        uint32_t uses; /* keys given out */
        bool unsettled;
        struct {
                uint32_t n_buffers; /* taken out or changed since the last version */
                uint32_t ring, id;  /* the first of them */
                bool reach;         /* entries of `reach` were taken out */
                bool more;          /* something else was changed that workers may have kept */
        } change;
};

/* Zeroes the table; its version is 1. The caller brings the whole of it onto the device. */
void shadow_init(struct shadow *shadow, struct table *table);

/* All: 0, or what `put` and `settle` return, or as said. Workers know of it after shadow_publish; what is added under a
 * new name they find after shadow_arrive. */
int shadow_ring_set(struct shadow *shadow, uint32_t index, uint64_t area, uint64_t session, uint32_t first);
int shadow_ring_clear(struct shadow *shadow, uint32_t index);
/* Lines from `limit` on stay, or none does. */
int shadow_ring_limit(struct shadow *shadow, uint32_t index, bool limited, uint32_t limit);
/* rank->key is ignored. */
int shadow_rank_set(struct shadow *shadow, uint32_t index, const struct table_rank *rank);
int shadow_rank_clear(struct shadow *shadow, uint32_t index);
int shadow_rank_hold(struct shadow *shadow, uint32_t index, bool held);
/* From now on (last: for requests after it) requests are answered with this status. */
int shadow_rank_abort(struct shadow *shadow, uint32_t index, uint32_t status);
/* Before an abort: requests whose memory peers may be reaching are not answered while this is on. */
int shadow_rank_freeze(struct shadow *shadow, uint32_t index, bool freeze);
int shadow_rank_leave(struct shadow *shadow, uint32_t index, uint32_t last, uint32_t status);
/* Rank `who` of its communicator makes no requests any more. */
int shadow_rank_left(struct shadow *shadow, uint32_t index, uint32_t who);
int shadow_choices_set(struct shadow *shadow, uint32_t index, const struct table_choices *choices);
int shadow_plan_set(struct shadow *shadow, uint32_t index, const struct plan *plan);
/* A plan's programs, row->first and so many behind it; before shadow_plan_set. No row: it has none. */
int shadow_programs_set(struct shadow *shadow, uint32_t index, const struct program_row *row,
                        const union program_entry *entries, uint32_t n);
/* -EEXIST; -ENOSPC: too many around its place. */
int shadow_handle_add(struct shadow *shadow, uint32_t ring, uint32_t handle, uint32_t rank);
int shadow_buffer_add(struct shadow *shadow, uint32_t ring, uint32_t id, uint64_t address, uint64_t bytes,
                      uint32_t *ret_index);
/* -ENOENT. */
int shadow_handle_remove(struct shadow *shadow, uint32_t ring, uint32_t handle);
int shadow_buffer_remove(struct shadow *shadow, uint32_t ring, uint32_t id, uint32_t *ret_index);
int shadow_buffer_gpus(struct shadow *shadow, uint32_t ring, uint32_t id, uint64_t gpus);
/* What the kernel's search would find: the index, TABLE_HANDLES or TABLE_BUFFERS if nothing. */
uint32_t shadow_handle_find(const struct shadow *shadow, uint32_t ring, uint32_t handle);
uint32_t shadow_buffer_find(const struct shadow *shadow, uint32_t ring, uint32_t id);
/* The same for memory of other GPUs' sessions. -EEXIST, -ENOSPC, -ENOENT; TABLE_REACH if nothing. */
int shadow_reach_add(struct shadow *shadow, uint64_t session, uint32_t id, uint64_t address, uint64_t bytes,
                     uint32_t *ret_index);
int shadow_reach_remove(struct shadow *shadow, uint64_t session, uint32_t id, uint32_t *ret_index);
uint32_t shadow_reach_find(const struct shadow *shadow, uint64_t session, uint32_t id);
/* Would there be a place? */
bool shadow_reach_fits(const struct shadow *shadow, uint64_t session, uint32_t id);

int shadow_stop(struct shadow *shadow, uint32_t stop);
/* Waits until everything has arrived. */
int shadow_arrive(struct shadow *shadow);
/* Raises the version (never 0) and waits until everything has arrived. */
int shadow_publish(struct shadow *shadow);
