/* SPDX-License-Identifier: MIT */
#pragma once
/* A plane over the runtime of fake.c, and a communicator of four ranks over two nodes. */
#include "fixture.h"
#include "gpu/mirror.h"
#include "ring/net.h"

#define N   4u
#define FAR 2u /* the rank on the other node */
/* Both of strand 0. */
#define BULK staging_channel(STAGING_BULK, 0, 19)
#define PACK staging_channel(STAGING_PACKET, 1, 5)

/* Ranks 0 and 3 are here, 1 on another GPU of this node. */
struct world {
        struct fixture f;
        struct plane_comm_member members[N];
        struct plane_comm comm;
        struct plane_net net;
        struct plane_memory other;
        unsigned char *other_pool;
        struct client a, b;
        size_t area_bytes;
        struct wire_mirror *mirror;
        uint32_t position;
};

/* For so many ranks, `n_here` of them on one node and the others on another one. */
struct net_area *area_new(uint32_t n_ranks, uint32_t n_here, size_t *ret_bytes);
/* For cmocka; *state is the world. */
int world_setup(void **state);
int world_teardown(void **state);
int world_teardown_broken(void **state); /* after a fault the plane leaves behind what the context had */
void world_attach(struct world *w);
/* Of the session's rank. */
struct wire *world_wire(const struct world *w, uint64_t session);
