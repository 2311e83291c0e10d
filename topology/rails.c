/* SPDX-License-Identifier: MIT */
/*
 * Which NIC is for which GPU
 *
 * Nothing sends by this: what carries data is what the configuration names, and GPUs have that in turn
 * (cluster_rail_of_gpu). It is for whoever writes the configuration, and for railmux-sim.
 *
 * 1. Which NICs are rails. Those with an ibverbs device if there are any, else those of the kernel's network, else all.
 *    A NIC with less than half the speed of the fastest is left out: it is there for management, and a collective is
 *    as slow as its slowest rail. A speed that nobody knows speaks against nothing. Rails are numbered as the NICs are.
 * 2. Each GPU has one rail. A rail gets at most its even share of the GPUs, rounded up. Within that nearness
 *    decides: below the same PCI switch (the fewer links the better), below the same host bridge, on the same NUMA
 *    node, elsewhere; NICs and GPUs without locality are elsewhere to all. All pairs of one nearness are dealt with
 *    before those of the next; GPUs choose in the order of their numbers, and each takes the rail that has the fewest
 *    GPUs, the first of these. So equal rails, and NICs without locality among them, are dealt out in turn.
 * 3. With more rails than GPUs the rails that got nothing in step 2 serve the GPU next to them, among equally near ones
 *    that with the fewest rails. They are further rails for it; it is mapped to its first one.
 *
 * The even share comes before nearness, as a GPU that crosses the sockets' link is faster than three that queue for one
 * NIC while another is idle.
 */
#include "topology/rails.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"

/* Nearness: a class in hundreds, and links within it. The fewer, the nearer. */
#define NEAR_SWITCH 0u
#define NEAR_ROOT   100u
#define NEAR_NUMA   200u
#define NEAR_NOT    300u
#define HOPS_MAX    16u
#define HOPS_NONE   UINT8_MAX

struct nearness {
        uint32_t of[TOPOLOGY_RAILS_MAX][TOPOLOGY_GPUS_MAX]; /* rail, place in the map of GPUs */
};

uint64_t topology_nic_speed(const struct topology *topology, uint32_t nic) {
        uint64_t speed = 0;

        for (uint32_t i = 0; i < topology->n_links; i++) {
                const struct topology_link *link = &topology->links[i];

                if (link->kind == TOPOLOGY_LINK_PORT && (link->a == nic || link->b == nic))
                        speed += link->bytes_per_second;
        }
        return speed;
}

/* Positions of a kind in the order of their numbers. */
static uint32_t by_index(const struct topology *topology, enum topology_node_kind kind, uint32_t *positions,
                         uint32_t max) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < topology->n_nodes && n < max; i++) {
                uint32_t at = n;

                if (topology->nodes[i].kind != kind)
                        continue;
                for (; at > 0 && topology->nodes[positions[at - 1]].index > topology->nodes[i].index; at--)
                        positions[at] = positions[at - 1];
                positions[at] = i;
                n++;
        }
        return n;
}

/* The better, the higher. */
static unsigned int use_of(const struct topology_node *nic) {
        return nic->rdma[0] ? 2 : nic->netdev[0] ? 1 : 0;
}

static void choose_nics(const struct topology *topology, struct topology_rails *rails) {
        uint32_t nics[TOPOLOGY_NODES_MAX / 4];
        uint32_t n = by_index(topology, TOPOLOGY_NIC, nics, sizeof(nics) / sizeof(nics[0]));
        unsigned int best = 0;
        uint64_t fastest = 0;

        for (uint32_t i = 0; i < n; i++)
                if (use_of(&topology->nodes[nics[i]]) > best)
                        best = use_of(&topology->nodes[nics[i]]);
        for (uint32_t i = 0; i < n; i++) {
                uint64_t speed = topology_nic_speed(topology, nics[i]);

                if (use_of(&topology->nodes[nics[i]]) == best && speed > fastest)
                        fastest = speed;
        }
        for (uint32_t i = 0; i < n && rails->n_rails < TOPOLOGY_RAILS_MAX; i++) {
                uint64_t speed = topology_nic_speed(topology, nics[i]);

                if (use_of(&topology->nodes[nics[i]]) < best || (speed > 0 && speed < fastest / 2))
                        continue;
                rails->rails[rails->n_rails].nic = nics[i];
                rails->rails[rails->n_rails++].bytes_per_second = speed;
        }
}

static bool is_inside(const struct topology *topology, uint32_t position, bool roots) {
        uint32_t kind = topology->nodes[position].kind;

        return kind == TOPOLOGY_SWITCH || (roots && kind == TOPOLOGY_ROOT);
}

/* Links of PCI from a NIC to everything that it reaches through switches, and through host bridges if `roots`. */
static void count_hops(const struct topology *topology, uint32_t nic, bool roots, uint8_t *hops) {
        bool more = true;

        memset(hops, HOPS_NONE, topology->n_nodes);
        hops[nic] = 0;
        for (uint8_t round = 1; more && round <= HOPS_MAX; round++) {
                more = false;
                for (uint32_t i = 0; i < topology->n_links; i++) {
                        const struct topology_link *link = &topology->links[i];

                        if (link->kind != TOPOLOGY_LINK_PCI && link->kind != TOPOLOGY_LINK_LOCAL)
                                continue;
                        for (int way = 0; way < 2; way++) {
                                uint32_t from = way ? link->b : link->a, to = way ? link->a : link->b;

                                if (hops[from] != round - 1 || hops[to] != HOPS_NONE ||
                                    (from != nic && !is_inside(topology, from, roots)))
                                        continue;
                                hops[to] = round;
                                more = true;
                        }
                }
        }
}

static int measure(const struct topology *topology, const struct topology_rails *rails, struct nearness *nearness) {
        _cleanup_free_ uint8_t *below = malloc(topology->n_nodes), *under = malloc(topology->n_nodes);

        if (!below || !under)
                return -ENOMEM;
        for (uint32_t rail = 0; rail < rails->n_rails; rail++) {
                uint32_t nic = rails->rails[rail].nic, numa = topology->nodes[nic].numa;

                count_hops(topology, nic, false, below);
                count_hops(topology, nic, true, under);
                for (uint32_t i = 0; i < rails->n_gpus; i++) {
                        uint32_t gpu = rails->map[i].gpu, *near = &nearness->of[rail][i];

                        if (below[gpu] != HOPS_NONE)
                                *near = NEAR_SWITCH + below[gpu];
                        else if (under[gpu] != HOPS_NONE)
                                *near = NEAR_ROOT + under[gpu];
                        else if (numa != TOPOLOGY_NONE && numa == topology->nodes[gpu].numa)
                                *near = NEAR_NUMA;
                        else
                                *near = NEAR_NOT;
                }
        }
        return 0;
}

/* The next nearness that occurs, from `least` on. */
static uint32_t next_near(const struct topology_rails *rails, const struct nearness *nearness, uint32_t least) {
        uint32_t next = UINT32_MAX;

        for (uint32_t rail = 0; rail < rails->n_rails; rail++)
                for (uint32_t i = 0; i < rails->n_gpus; i++)
                        if (nearness->of[rail][i] >= least && nearness->of[rail][i] < next)
                                next = nearness->of[rail][i];
        return next;
}

static void deal_out(struct topology_rails *rails, const struct nearness *nearness) {
        uint32_t share = (rails->n_gpus + rails->n_rails - 1) / rails->n_rails, load[TOPOLOGY_RAILS_MAX] = {0};

        for (uint32_t near = next_near(rails, nearness, 0); near != UINT32_MAX;
             near = next_near(rails, nearness, near + 1)) {
                for (uint32_t i = 0; i < rails->n_gpus; i++) {
                        uint32_t best = TOPOLOGY_NONE;

                        if (rails->map[i].rail != TOPOLOGY_NONE)
                                continue;
                        for (uint32_t rail = 0; rail < rails->n_rails; rail++)
                                if (nearness->of[rail][i] == near && load[rail] < share &&
                                    (best == TOPOLOGY_NONE || load[rail] < load[best]))
                                        best = rail;
                        rails->map[i].rail = best;
                        if (best != TOPOLOGY_NONE)
                                load[best]++;
                }
        }
        for (uint32_t i = 0; i < rails->n_gpus; i++) {
                struct topology_rail *rail = &rails->rails[rails->map[i].rail];

                rail->gpus[rail->n_gpus++] = rails->map[i].gpu;
        }
}

static void deal_rest(struct topology_rails *rails, const struct nearness *nearness) {
        uint32_t n_rails_of[TOPOLOGY_GPUS_MAX];

        for (uint32_t i = 0; i < rails->n_gpus; i++)
                n_rails_of[i] = 1;
        for (uint32_t rail = 0; rail < rails->n_rails; rail++) {
                const uint32_t *near = nearness->of[rail];
                uint32_t best = 0;

                if (rails->rails[rail].n_gpus > 0)
                        continue;
                for (uint32_t i = 1; i < rails->n_gpus; i++)
                        if (near[i] < near[best] || (near[i] == near[best] && n_rails_of[i] < n_rails_of[best]))
                                best = i;
                n_rails_of[best]++;
                rails->rails[rail].gpus[rails->rails[rail].n_gpus++] = rails->map[best].gpu;
        }
}

int topology_rails_new(const struct topology *topology, struct topology_rails **ret_rails) {
        _cleanup_free_ struct topology_rails *rails = calloc(1, sizeof(*rails));
        _cleanup_free_ struct nearness *nearness = calloc(1, sizeof(*nearness));
        uint32_t gpus[TOPOLOGY_GPUS_MAX];
        int r = 0;

        if (!rails || !nearness)
                return -ENOMEM;
        rails->n_gpus = by_index(topology, TOPOLOGY_GPU, gpus, TOPOLOGY_GPUS_MAX);
        for (uint32_t i = 0; i < rails->n_gpus; i++) {
                rails->map[i].gpu = gpus[i];
                rails->map[i].rail = TOPOLOGY_NONE;
        }
        choose_nics(topology, rails);
        if (rails->n_rails > 0 && rails->n_gpus > 0) {
                r = measure(topology, rails, nearness);
                if (!r) {
                        deal_out(rails, nearness);
                        deal_rest(rails, nearness);
                }
        }
        if (r)
                return r;
        *ret_rails = rails;
        rails = NULL;
        return 0;
}

bool topology_rails_in_turn(const struct topology_rails *rails, uint32_t order[TOPOLOGY_RAILS_MAX]) {
        uint32_t place[TOPOLOGY_RAILS_MAX], n = rails->n_rails; /* of each rail */

        if (n == 0 || rails->n_gpus == 0)
                return false;
        for (uint32_t i = 0; i < n; i++)
                place[i] = order[i] = TOPOLOGY_NONE;
        for (uint32_t i = 0; i < rails->n_gpus; i++) {
                uint32_t rail = rails->map[i].rail;

                if (place[rail] == TOPOLOGY_NONE && order[i % n] == TOPOLOGY_NONE) {
                        place[rail] = i % n;
                        order[i % n] = rail;
                }
                if (place[rail] != i % n)
                        return false;
        }
        /* Further rails of a GPU are to be further ones of it there, too, as long as it has places. */
        for (uint32_t i = 0; i < rails->n_gpus; i++) {
                for (uint32_t rail = 0, at = i + rails->n_gpus; at < n && rail < n; rail++) {
                        if (place[rail] != TOPOLOGY_NONE || rails->rails[rail].gpus[0] != rails->map[i].gpu)
                                continue;
                        place[rail] = at;
                        order[at] = rail;
                        at += rails->n_gpus;
                }
        }
        for (uint32_t rail = 0, at = 0; rail < n; rail++) {
                while (at < n && order[at] != TOPOLOGY_NONE)
                        at++;
                if (place[rail] == TOPOLOGY_NONE)
                        order[at] = rail;
        }
        return true;
}

uint32_t topology_rail_of(const struct topology_rails *rails, uint32_t gpu) {
        for (uint32_t i = 0; i < rails->n_gpus; i++)
                if (rails->map[i].gpu == gpu)
                        return rails->map[i].rail;
        return TOPOLOGY_NONE;
}
