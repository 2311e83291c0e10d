/* SPDX-License-Identifier: MIT */
#pragma once
/* Threads that start what found no room, so that who looks never waits for the daemon. All of it under comm_lock. See
 * starter.c. */
#include <stdbool.h>

/* Has pendings_push run once from now on, and waits for its end, but for a moment only. Gives up comm_lock meanwhile.
 * False: there is no thread to be had. */
bool starter_call(void);
void starter_forked(void);
