/* SPDX-License-Identifier: MIT */
#pragma once
/* This node's rails, as the configuration says, and those of them that wait until they can be opened. Loop thread. */
#include "daemon/cluster.h"
#include "daemon/rails.h"

/* One that waits: not the fabric's yet. */
struct cluster_rail {
        struct cluster_rail *next, *prev; /* cluster->waiting */
        struct rail_spec spec;
        char why[CLUSTER_TEXT_MAX]; /* as it was when it was tried last */
};

/* When the fabric is there. As cluster_new(). */
int cluster_rails_new(struct cluster *cluster, char error[CLUSTER_TEXT_MAX]);
/* NULL: no rail of that name waits. */
const struct cluster_rail *cluster_rail_waiting(const struct cluster *cluster, const char *name);
/* After which none waits. Half-made is fine. */
void cluster_rails_free(struct cluster *cluster);
