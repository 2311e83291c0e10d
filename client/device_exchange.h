/* SPDX-License-Identifier: MIT */
#pragma once
/* Requests from some size on that the ranks' own kernels carry out. See device_exchange.c. */
#include <stdbool.h>
#include <stdint.h>

struct operation;
struct rmx_comm;
struct rmx_comm_options;

/* The end of a join, on all ranks or on none: maps the ranks' exchange areas, if the daemon has granted it
 * (comm->exchange_min and exchange_max, which are 0 afterwards if some rank cannot, or does not want it). max_blocks:
 * as in rmx_comm_options. Waits for the other ranks, until the deadline, or until the cancel is set (NULL is allowed).
 * RMX_*; text set; on an error kernels of the comm may be left on the device. */
int device_exchange_join(struct rmx_comm *comm, const char *what, bool wanted, const struct rmx_comm_options *options,
                         uint64_t deadline_ns);
/* Does this checked operation go that way? The same on all ranks. */
bool device_exchange_takes(const struct operation *o);
/* The comm has failed: its exchanges give up. In a thread that reads events, with rpc.mutex. */
void device_exchange_stop(struct rmx_comm *comm);
/* The comm goes away. over: nothing of this rank is on the device any more. Fine without an exchange. */
void device_exchange_part(struct rmx_comm *comm, bool over);
