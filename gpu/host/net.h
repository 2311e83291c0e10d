/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Channels between ranks of different nodes: their staging lies in a net area (ring/net.h), which railmuxd makes and
 * its fabric mirrors. See net.c for the essay.
 */
#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"
#include "gpu/host/channel.h"
#include "plan/plan.h"
#include "ring/net.h"

/*
 * How large the net area of a communicator of n_ranks is: descriptors in its queue (a power of two, the bound of
 * ring/net.h for any placement of the ranks) and bytes of staging. The same on all nodes. What railmuxd then makes:
 *
 *   memfd of net_area_bytes(capacity, memory_bytes), rounded up to pages; net_area_init(area, capacity, memory_bytes)
 *
 * The staging must be zero when the first executor attaches, and is for one executor only: it is not taken over. Pages
 * of it are touched where chunks pass, so a sparse file stays small. 0, -EINVAL (ranks or geometry out of bounds) or
 * -EOVERFLOW; outputs are written on success only. Any thread of any process.
 */
int host_net_size(uint32_t n_ranks, const struct plan_geometry *geometry, uint32_t *ret_capacity,
                  uint64_t *ret_memory_bytes);

/* ---- inside of the backend --------------------------------------------------------------------------------------- */
/* What the ranks of a communicator on this node share. Does not change while any of them runs. */
struct host_net {
        struct net_area *area;
        int doorbell_fd;       /* -1: nobody to wake */
        uint64_t away;         /* a bit for each rank of another node */
        struct plan send_plan; /* for sends and receives between nodes, in place of the request's plan */
};

/* Checks the area against what a communicator of that size needs; 0, -EINVAL or -EOVERFLOW. */
int host_net_init(struct host_net *net, uint32_t n_ranks, const struct plan_geometry *geometry,
                  const struct gpu_net *where);

/* What both sides of a channel must agree on, in 32 bits. count: of the request; all_to_all_v: of the pair. */
uint32_t host_net_signature(const struct plan *plan, const struct gpu_request *request, uint64_t count);

/* Makes the chunk visible here and asks the fabric to make it visible there. data: where its data lies if that is not
 * in the slot's line, and then data_bytes > 0 of it. */
void host_net_push(const struct host_net *net, const struct channel_set *set, struct channel_id id,
                   struct channel_end *end, uint32_t signature, const void *data, uint64_t data_bytes);
/* Gives the slot back, here and there. */
void host_net_release(const struct host_net *net, const struct channel_set *set, struct channel_id id,
                      struct channel_end *end);
/* After pushes and releases: wakes the fabric if it sleeps. Returns whether it had to. */
bool host_net_wake(const struct host_net *net);
