/* SPDX-License-Identifier: MIT */
#pragma once
/* Calls of this process that wait in librailmux, whosever they are: meanwhile they may have the room that others want.
 * See waits.c. */
#include <stdbool.h>
#include <stdint.h>

struct waits {
        uint64_t over, begun; /* so far */
};

void waits_begin(void);
void waits_end(void);
/* One of those that wait, in several steps, has made one. */
void waits_move(void);

struct waits waits_now(void);
/* Was any under way then? */
static inline bool waits_any(struct waits waits) {
        return waits.begun != waits.over;
}
/* Is any of another thread? */
bool waits_any_other(void);
void waits_forked(void);
