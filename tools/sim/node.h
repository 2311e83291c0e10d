/* SPDX-License-Identifier: MIT */
#pragma once
/* The node that ranks are placed on: rank r on GPU r of a topology. */
#include <stddef.h>

#include "topology/topology.h"

#define NODE_PATH_MAX 8u

/* hwloc XML if the file begins with '<', else JSON. 0, or -EINVAL with a sentence in ret_error
 * that names the file, -ENOMEM. */
int node_load(const char *path, struct topology **ret_topology, char *ret_error, size_t error_size);
/* Links from rank `from` to rank `to`; 0: no way is known. */
uint32_t node_path(const struct topology *topology, uint32_t from, uint32_t to, uint32_t links[NODE_PATH_MAX]);
