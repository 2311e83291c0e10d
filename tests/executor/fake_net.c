/* SPDX-License-Identifier: MIT */
#include "tests/executor/fake_net.h"

#include "gpu/hip/wires.h"
#include <stdlib.h>
#include <string.h>

#define BULK_FIRST STAGING_PACKET_CHANNELS
#define BULK_LAST  (STAGING_CHANNELS - 1u)
#define N_PACKETS  (STAGING_PACKET_CHUNK / 8u)

struct fake_net {
        struct wires *wires[WIRE_STRANDS];
        bool said;
        bool *told; /* by end */
};

static uint64_t payload(uint32_t from, uint32_t to, uint32_t channel, uint32_t i) {
        return ((uint64_t)from << 56 | (uint64_t)to << 48 | (uint64_t)channel << 32) + i;
}

/* More than one batch takes, first packets. */
static void say(struct wire_end *end) {
        struct wire *wire = end->wire;

        for (uint32_t i = 0; i < N_PACKETS; i++) {
                uint64_t p = payload(end->rank, end->peer, 0, i), *half = (uint64_t *)(void *)wire->out[0][0] + 2 * i;

                half[0] = UINT64_C(1) << 32 | (uint32_t)p;
                half[1] = UINT64_C(1) << 32 | p >> 32;
        }
        wire->pushed[0] = 1;
        for (uint32_t c = BULK_FIRST; c <= BULK_LAST; c++) {
                uint64_t *words = (uint64_t *)(void *)wire->out[c][0];

                for (uint32_t i = 0; i < STAGING_BULK_CHUNK / 8; i++)
                        words[i] = payload(end->rank, end->peer, c, i);
                wire->bytes[c][0] = STAGING_BULK_CHUNK;
                wire->pushed[c] = 1;
        }
}

static bool heard(const struct wire_end *end) {
        const struct wire *wire = end->wire;

        for (uint32_t i = 0; i < N_PACKETS; i++) {
                const uint64_t *half = (const uint64_t *)(const void *)wire->in[0][0] + 2 * i;

                if (half[0] >> 32 != 1 || half[1] >> 32 != 1 ||
                    (half[1] << 32 | (uint32_t)half[0]) != payload(end->peer, end->rank, 0, i))
                        return false;
        }
        for (uint32_t c = BULK_FIRST; c <= BULK_LAST; c++) {
                const uint64_t *words = (const uint64_t *)(const void *)wire->in[c][0];

                if (wire->come[c][0] != 1)
                        return false;
                for (uint32_t i = 0; i < STAGING_BULK_CHUNK / 8; i++)
                        if (words[i] != payload(end->peer, end->rank, c, i))
                                return false;
        }
        return true;
}

struct fake_net *fake_net_free(struct fake_net *net) {
        for (uint32_t i = 0; net && net->wires[0] && i < net->wires[0]->n_ends; i++)
                free(net->wires[0]->end[i].wire);
        if (net) {
                for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                        wires_free(net->wires[k]);
                free(net->told);
        }
        free(net);
        return NULL;
}

struct fake_net *fake_net_new(const struct plane_comm *comm) {
        struct fake_net *net = calloc(1, sizeof(*net));
        uint8_t node[PLAN_RANKS_MAX];
        struct plan_nodes nodes;
        char error[PLANE_TEXT];
        uint32_t n = 0;

        for (uint32_t rank = 0; rank < comm->n_ranks; rank++)
                node[rank] = comm->members[rank].node;
        if (plan_nodes_init(&nodes, comm->n_ranks, node))
                return fake_net_free(net);
        for (uint32_t rank = 0; rank < comm->n_ranks; rank++)
                for (uint32_t peer = 0; peer < comm->n_ranks; peer++)
                        n += comm->members[rank].here && comm->members[peer].far;
        for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                if (!net || wires_new(comm->net, comm->n_ranks, &nodes, n, k, &net->wires[k], error))
                        return fake_net_free(net);
        net->told = calloc(n, sizeof(*net->told));
        n = 0;
        for (uint32_t rank = 0; rank < comm->n_ranks; rank++)
                for (uint32_t peer = 0; peer < comm->n_ranks; peer++) {
                        struct wire *wire;

                        if (!comm->members[rank].here || !comm->members[peer].far)
                                continue;
                        wire = aligned_alloc(64, (sizeof(*wire) + 63) / 64 * 64);
                        if (!wire || !net->told) {
                                free(wire);
                                return fake_net_free(net);
                        }
                        memset(wire, 0, sizeof(*wire));
                        for (uint32_t k = 0; k < WIRE_STRANDS; k++) {
                                struct wire_end *end = &net->wires[k]->end[n];

                                end->rank = rank;
                                end->peer = peer;
                                end->wire = wire;
                        }
                        n++;
                }
        return net;
}

void fake_net_say(struct fake_net *net) {
        for (uint32_t i = 0; !net->said && i < net->wires[0]->n_ends; i++)
                say(&net->wires[0]->end[i]);
        net->said = true;
}

bool fake_net_step(struct fake_net *net, uint32_t *ret_rank, uint32_t *ret_peer) {
        for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                while (wires_step(net->wires[k]))
                        ;
        for (uint32_t i = 0; i < net->wires[0]->n_ends; i++) {
                const struct wire_end *end = &net->wires[0]->end[i];

                if (net->told[i] || !heard(end))
                        continue;
                net->told[i] = true;
                *ret_rank = end->rank;
                *ret_peer = end->peer;
                return true;
        }
        return false;
}
