/* SPDX-License-Identifier: MIT */
#pragma once
/* Ranks of a communicator over several nodes, on GPUs that are not there. */
#include "client/comm.h"
#include "client/device.h"
#include "client/device_nodes.h"
#include "client/session.h"
#include "ring/line.h"
#include "tests/client/exchange_rig.h"

#define BYTES 49152u /* more than is inlined, also a half of it */

static uint32_t group(uint32_t handle) {
        return fake_comm_of(&rig.crew.fake, handle);
}

/* nodes: a digit for each rank. */
static inline void nodes_open(const char *nodes) {
        rig_open((uint32_t)strlen(nodes));
        rig.crew.fake.exchange_min = 1;
        rig.crew.fake.tells_aborts = true;
        rig.gpu->group = group;
        for (uint32_t rank = 0; rank < rig.crew.n; rank++)
                rig.crew.fake.node[rank] = (uint8_t)(nodes[rank] - '0');
}

static int join_on_four(struct crew *crew, uint32_t rank) {
        struct rmx_comm_options options = rig.options;

        options.gpu = (int32_t)(rank % FAKE_GPUS);
        return rmx_comm_create(crew->session, &crew->id, crew->n, rank, &options, &crew->comm[rank]);
}

static inline void nodes_join(void) {
        crew_run(&rig.crew, join_on_four);
        rig_joined();
}

static inline void nodes_start(const char *nodes) {
        nodes_open(nodes);
        nodes_join();
}

/* Calls are this one's from now on, and the memory is on its GPU. */
static inline void as_rank(uint32_t rank) {
        rig.comm = rig.crew.comm[rank];
        for (uint32_t i = 0; i < rig.gpu->n_blocks; i++)
                if (rig.gpu->block[i].base == (uintptr_t)rig.memory)
                        rig.gpu->block[i].device = rig.comm->device->number;
}

static inline const struct device_nodes *nodes_of(uint32_t rank) {
        return rig.crew.comm[rank]->nodes;
}

static inline void check_part(const struct rmx_comm *part, uint32_t rank, uint32_t n_ranks) {
        assert_non_null(part);
        assert_int_equal(part->rank, rank);
        assert_int_equal(part->n_ranks, n_ranks);
}

static inline const struct client_gpu_bell *bell(uint32_t i, uint32_t kind, const void *stream, uint32_t op,
                                                 size_t in_bytes, size_t out_bytes, size_t count) {
        const struct client_gpu_bell *found = &launched(i, kind, stream)->bell;

        assert_int_equal(found->word[RING_W_HEAD] >> 16 & 0xff, op);
        assert_int_equal(found->in_bytes, in_bytes);
        assert_int_equal(found->out_bytes, out_bytes);
        assert_int_equal(found->word[RING_W_COUNT_LO], count);
        assert_int_equal(found->number, 0);
        return found;
}

static inline void check_words(const struct client_gpu_bell *found, uint32_t handle, size_t in, size_t out) {
        assert_int_equal(found->word[RING_W_COMM], handle);
        assert_int_not_equal(found->word[RING_W_IN_BUFFER], 0);
        assert_int_equal(found->word[RING_W_IN_BUFFER], found->word[RING_W_OUT_BUFFER]);
        assert_int_equal(found->word[RING_W_IN_LO], in);
        assert_int_equal(found->word[RING_W_OUT_LO], out);
}
