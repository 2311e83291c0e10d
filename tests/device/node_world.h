/* SPDX-License-Identifier: MIT */
#pragma once
/* A communicator over several nodes, each rank on an emulated GPU of its own; for the tests that have one. */
#include "tests/device/collective_cases.h"
#include "tests/device/nodes.h"
#include "tests/device/traffic.h"

static uint64_t n_compared; /* requests, the same */
static uint64_t n_carried;  /* messages between nodes, in worlds that have ended */

struct placement {
        uint32_t n;
        uint8_t node[EMULATOR_RANKS_MAX];
        uint32_t crowd = 1; /* ranks on each GPU */
};

struct world;
struct rank_proxy {
        struct world *world;
        uint32_t rank;
};

struct world {
        struct emulator *e;
        struct nodes *nodes;
        uint32_t n, n_gpus, comm;
        uint32_t session[EMULATOR_RANKS_MAX];
        struct rank_proxy proxy[EMULATOR_RANKS_MAX];
};

static void *world_memory(void *data, uint64_t bytes) {
        return emulator_memory((struct emulator *)data, bytes);
}

static bool proxy_step(void *data) {
        const struct rank_proxy *p = (const struct rank_proxy *)data;

        return nodes_proxy(p->world->nodes, p->rank);
}

static bool fabric_step(void *data) {
        return nodes_fabric(((struct world *)data)->nodes);
}

static void world_init(struct world *w, const struct placement *p, uint32_t workers, uint32_t transport,
                       uint32_t chunks, uint32_t flags, uint64_t world_seed) {
        *w = {};
        w->n = p->n;
        w->n_gpus = (p->n + p->crowd - 1) / p->crowd;
        w->e = emulator_new(w->n_gpus, workers, flags | EMULATOR_WATCH, world_seed);
        for (uint32_t r = 0; r < p->n; r++)
                w->session[r] = emulator_session(w->e, r / p->crowd, 1);
        w->comm = emulator_comm(w->e, p->n, w->session, transport, 0, chunks);
        w->nodes = nodes_new(p->n, p->node, chunks, world_seed, world_memory, w->e);
        for (uint32_t r = 0; r < p->n; r++) {
                void *wire[NODES_RANKS_MAX];
                const uint64_t far = nodes_wires(w->nodes, r, wire);

                emulator_wire(w->e, w->comm, r, far, wire);
                w->proxy[r] = {w, r};
                emulator_helper(w->e, proxy_step, &w->proxy[r]);
        }
        emulator_helper(w->e, fabric_step, w);
}

static void world_deinit(struct world *w) {
        uint64_t bytes;

        n_carried += nodes_chunks(w->nodes, &bytes);
        emulator_free(w->e);
        nodes_free(w->nodes);
}

/* Rounds of `each` requests, which some ranks begin before others, with a kernel stopped and launched in the middle of
 * each; then everything must have been taken. Ends the world. */
static void world_sweep(struct world *w, struct traffic *t, uint32_t rounds, uint32_t each, uint64_t random) {
        for (uint32_t round = 0; round < rounds; round++) {
                for (uint32_t i = 0; i < 5; i++)
                        for (uint32_t r = 0; r < t->n; r++)
                                if (mix(round * 64 + i * 8 + r + random) % 2)
                                        traffic_ring(t, r);
                emulator_restart(w->e, (uint32_t)mix(round + random) % w->n_gpus);
                traffic_drain(t);
                traffic_run(t, each);
        }
        while (!nodes_quiet(w->nodes))
                emulator_turn(w->e, "the fabric keeps something");
        CHECK(emulator_empty(w->e, w->comm), "chunks that nobody took");
        n_compared += t->finished;
        traffic_deinit(t);
        world_deinit(w);
}
