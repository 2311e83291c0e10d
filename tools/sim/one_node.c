/* SPDX-License-Identifier: MIT */
/*
 * GPUs of one node
 *
 *   time = hops * hop + factor * bytes of the busiest link / its speed
 *
 * The cost model (plan/cost_model.c) does not say what these take: it has a rank's work done by one engine, step by
 * step, and on a GPU hundreds of warps do it at once, as fast as links carry it. What is left are exchanges, each of
 * which everybody waits for, and links. So two constants for each kind of GPU, from two measurements of an all_reduce
 * of eight in two shots; tests/sim/test_one_node.c compares all others. Nothing chooses by them.
 *
 *   NVLink  H200: MSCCL++ of 256 KiB, and symmetric memory of torch, its best way, of 64 MiB.
 *   xGMI    MI300X: RCCL's direct kernels ("DDA") of 128 KiB and 256 MiB.
 */
#include "tools/sim/one_node.h"

#include <string.h>

static const struct one_node nodes[] = {
        {.of = "h200", .hop_ns = 4154, .factor = 1.562, .source = "all_reduce of 8 H200, 256 KiB and 64 MiB"},
        {.of = "mi300x", .hop_ns = 3833, .factor = 1.218, .source = "all_reduce of 8 MI300X, 128 KiB and 256 MiB"},
};

const struct one_node *one_node_named(const char *kind) {
        for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
                if (strcmp(nodes[i].of, kind) == 0)
                        return &nodes[i];
        return NULL;
}

const struct one_node *one_node_of(const struct topology *topology) {
        const struct one_node *found = NULL;

        if (!topology_full_mesh(topology)) /* something else is between some of them */
                return NULL;
        for (uint32_t i = 0; i < topology->n_links; i++) {
                const struct topology_link *link = &topology->links[i];

                if (topology->nodes[link->a].kind != TOPOLOGY_GPU || topology->nodes[link->b].kind != TOPOLOGY_GPU)
                        continue;
                if (link->bytes_per_second == 0) /* then bytes would cost nothing */
                        return NULL;
                if (link->kind == TOPOLOGY_LINK_NVLINK)
                        found = one_node_named("h200");
                else if (link->kind == TOPOLOGY_LINK_XGMI)
                        found = one_node_named("mi300x");
        }
        return found;
}
