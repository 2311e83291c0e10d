/* SPDX-License-Identifier: MIT */
#pragma once
/* The node that ranks are placed on: rank r on GPU r of a topology. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/topology.h"

#define NODE_PATH_MAX 16u /* through two trees of PCI switches and from one processor to another */

struct node_way {
        uint32_t n_links; /* 0: no way is known */
        uint32_t links[NODE_PATH_MAX];
};

/* hwloc XML if the file begins with '<', else JSON. 0, or -EINVAL with a sentence in ret_error
 * that names the file, -ENOMEM. */
int node_load(const char *path, struct topology **ret_topology, char *ret_error, size_t error_size);
/* From every rank to every other, one search for each: ways[from * n_ranks + to]. -ENOMEM. Free with free(). */
int node_ways(const struct topology *topology, uint32_t n_ranks, struct node_way **ret_ways);
/* What people call it: its name, or, if it has none, its kind and index. */
#define NODE_LABEL_MAX 80u
const char *node_label(const struct topology *topology, uint32_t position, char out[NODE_LABEL_MAX]);
/* Are its GPUs devices, and not emulated by threads of a host? */
bool node_has_devices(const struct topology *topology);
/* Of each link: is it NVLink from a GPU to another one through a switch? Each of these may have all that the GPU has,
 * and together they have no more. -ENOMEM. Free with free(). */
int node_links_shared(const struct topology *topology, bool **ret_shared);
