/* SPDX-License-Identifier: MIT */
#pragma once
/* What hwloc knows of a machine as a graph. See machine.c. */
#include <stddef.h>
#include <stdint.h>

struct hwloc_topology;
struct topology;

/* Into an empty graph. `root` is where sysfs is looked for ("": here), NULL: the machine is not this one. With
 * `emulated` GPUs real ones are left out. TOPOLOGY_E_INVALID, -errno. */
int machine_read(struct hwloc_topology *hwloc, const char *root, uint32_t emulated, struct topology *topology);
/* A machine that hwloc has written down. TOPOLOGY_E_INVALID: it cannot read it, or dies of it; -errno. `text` has a NUL
 * behind it. It forks, and is for programs with one thread only. */
int machine_read_xml(const char *text, size_t size, struct topology **ret_topology);
