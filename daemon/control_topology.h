/* SPDX-License-Identifier: MIT */
#pragma once
/* The graph of this node as operators get it. See control_topology.c. */
#include <stddef.h>

struct manager;

struct control_topology {
        char *text; /* NULL: not looked at yet */
        size_t length;
};

/* Looks unless that has been done. 0 or -errno, which is logged. */
int control_topology_look(struct control_topology *topology, struct manager *manager);
/* The next call looks again. */
void control_topology_deinit(struct control_topology *topology);
