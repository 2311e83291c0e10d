/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What the fake plane does for a communicator over several nodes: each rank here says something to each rank elsewhere
 * over its wire, once, in packets and in bulk, and the plane's real proxy code (gpu/hip/wires.c) carries it. Like a
 * rank it must not do so before the communicator has been made: the other node may not have its area yet. One thread.
 */
#include "gpu/plane.h"
#include <stdbool.h>
#include <stdint.h>

struct fake_net;

/* Of a communicator with ranks elsewhere. NULL: its area is none for it. */
struct fake_net *fake_net_new(const struct plane_comm *comm);
struct fake_net *fake_net_free(struct fake_net *net);
/* Lets all ranks here say it, the first time. */
void fake_net_say(struct fake_net *net);
/* Carries on. True: all that a rank elsewhere says to one here has come since, whole; once for each two. */
bool fake_net_step(struct fake_net *net, uint32_t *ret_rank, uint32_t *ret_peer);
