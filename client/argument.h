/* SPDX-License-Identifier: MIT */
#pragma once
/* Who holds which part of a ring's argument space. Not thread-safe: the ring's mutex guards it. */
#include <stdbool.h>
#include <stdint.h>

struct argument_space {
        uint64_t *used;   /* a bit for each unit of RING_ARGUMENT_ALIGN bytes */
        uint32_t n_units; /* all of them; unit 0 is never given out, for offset 0 means no block */
        uint32_t n_used;  /* of them */
        uint32_t next;    /* where to look first */
};

enum {
        _ARGUMENT_E_SUCCESS,
        ARGUMENT_E_FULL, /* no room at the moment, or never */
};

/* 0 or -ENOMEM. */
int argument_space_init(struct argument_space *space, uint32_t bytes);
void argument_space_deinit(struct argument_space *space);
/* The largest block there can be, in bytes. */
uint32_t argument_space_largest(const struct argument_space *space);
bool argument_space_empty(const struct argument_space *space);
/* 0 or ARGUMENT_E_FULL. bytes > 0. Blocks that are taken one after another from an empty space fit if their sizes, each
 * rounded up to RING_ARGUMENT_ALIGN, are together no more than the largest. */
int argument_take(struct argument_space *space, uint32_t bytes, uint32_t *ret_offset);
void argument_give(struct argument_space *space, uint32_t offset, uint32_t bytes);
