/* SPDX-License-Identifier: MIT */
/*
 * Blocks are short-lived, mostly one unit (a factor) and come back in any order. So: one bit per unit, and the search
 * for room begins where the last one ended; when it comes round without success, the space is full. In an empty space
 * it begins at the beginning, so that blocks which fit into it together do fit, one after another.
 */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "client/argument.h"
#include "ring/ring.h"

int argument_space_init(struct argument_space *space, uint32_t bytes) {
        *space = (struct argument_space){.n_units = bytes / RING_ARGUMENT_ALIGN, .next = 1};
        if (!space->n_units)
                return 0;
        space->used = calloc((space->n_units + 63) / 64, sizeof(*space->used));
        return space->used ? 0 : -ENOMEM;
}

void argument_space_deinit(struct argument_space *space) {
        free(space->used);
        *space = (struct argument_space){0};
}

uint32_t argument_space_largest(const struct argument_space *space) {
        return space->n_units ? (space->n_units - 1) * RING_ARGUMENT_ALIGN : 0;
}

bool argument_space_empty(const struct argument_space *space) {
        return !space->n_used;
}

static uint32_t units_of(uint32_t bytes) {
        return bytes / RING_ARGUMENT_ALIGN + (bytes % RING_ARGUMENT_ALIGN != 0);
}

static bool unit_used(const struct argument_space *space, uint32_t unit) {
        return space->used[unit / 64] >> (unit % 64) & 1;
}

static void units_mark(struct argument_space *space, uint32_t first, uint32_t n, bool used) {
        space->n_used = used ? space->n_used + n : space->n_used - n;
        for (uint32_t unit = first; unit < first + n; unit++) {
                assert(unit_used(space, unit) != used);
                space->used[unit / 64] ^= UINT64_C(1) << (unit % 64);
        }
}

/* The first n free units in a row that begin in [from, to). 0: none. */
static uint32_t units_find(const struct argument_space *space, uint32_t from, uint32_t to, uint32_t n) {
        uint32_t run = 0;

        for (uint32_t unit = from; unit < space->n_units; unit++) {
                if (!run && unit >= to)
                        return 0;
                run = unit_used(space, unit) ? 0 : run + 1;
                if (run == n)
                        return unit + 1 - n;
        }
        return 0;
}

int argument_take(struct argument_space *space, uint32_t bytes, uint32_t *ret_offset) {
        uint32_t n = units_of(bytes), unit;

        if (space->n_units < 2 || n > space->n_units - 1)
                return ARGUMENT_E_FULL;
        unit = units_find(space, space->next, space->n_units, n);
        if (!unit)
                unit = units_find(space, 1, space->next, n);
        if (!unit)
                return ARGUMENT_E_FULL;
        units_mark(space, unit, n, true);
        space->next = unit + n < space->n_units ? unit + n : 1;
        *ret_offset = unit * RING_ARGUMENT_ALIGN;
        return 0;
}

void argument_give(struct argument_space *space, uint32_t offset, uint32_t bytes) {
        units_mark(space, offset / RING_ARGUMENT_ALIGN, units_of(bytes), false);
        if (argument_space_empty(space))
                space->next = 1;
}
