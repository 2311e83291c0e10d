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

struct waits waits_now(void);
/* Was any under way then? */
static inline bool waits_any(struct waits waits) {
        return waits.begun != waits.over;
}
void waits_forked(void);
