/* SPDX-License-Identifier: MIT */
#pragma once
/* Which communicators have requests that the ranks' own kernels exchange, and of which sizes. Loop thread. See
 * exchange.c. */
struct comm;

#define EXCHANGE_RANKS_MAX 8u /* that one kernel pushes to; the plug-ins have no code for more */

/* Decides exchange_min and exchange_max of a communicator all of whose ranks have joined. To be called once in its
 * life: its ranks must never hear anything else. */
void exchange_settle(struct comm *comm);
