/* SPDX-License-Identifier: MIT */
#pragma once
/* The staging pool of a GPU's executor: what of it has been dealt out to communicators. See pool.c. */
#include <stdint.h>

enum {
        _POOL_E_SUCCESS,
        POOL_E_FULL,  /* no gap is large enough */
        POOL_E_TAKEN, /* a range that is to be taken again overlaps another */
};

struct pool_range {
        struct pool_range *next, *prev; /* by offset */
        uint64_t offset, bytes;
        uint64_t comm;
};

struct pool {
        uint64_t bytes; /* in all; 0: not known yet */
        uint64_t used;
        struct pool_range *ranges; /* utlist */
};

void pool_deinit(struct pool *pool);
/* The first gap of so many bytes. 0, POOL_E_FULL or -ENOMEM. */
int pool_take(struct pool *pool, uint64_t bytes, uint64_t comm, uint64_t *ret_offset);
/* A range that a predecessor dealt out. 0, POOL_E_TAKEN or -ENOMEM. */
int pool_take_at(struct pool *pool, uint64_t offset, uint64_t bytes, uint64_t comm);
/* Everything of a communicator; nothing is fine. */
void pool_give(struct pool *pool, uint64_t comm);
