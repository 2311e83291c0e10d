/* SPDX-License-Identifier: MIT */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define STAND_IN_ID_BYTE 0x5a
#define STAND_IN_TIME    21.0f /* of a call */
#define STAND_IN_COLOUR  99    /* with which a split fails */

struct stand_in_counts {
        int ids, inits, grows, grouped_inits, destroys, aborts, collectives, grouped_collectives, groups, depth,
                simulations, max_blocks, derived, dead_asked;
        uintptr_t stream;
};

const struct stand_in_counts *stand_in_counts(void);
/* A collective with the count 0 waits until its communicator is aborted. How many do so now. */
int stand_in_waiting(void);
/* Destroys wait as long as that is so, and count as waiting. */
void stand_in_hold(bool hold);
/* What was split, shrunk or grown without blocking is made, and stored, now. */
void stand_in_make(void);
