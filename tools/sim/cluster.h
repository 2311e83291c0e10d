/* SPDX-License-Identifier: MIT */
#pragma once
/* Many equal nodes: what they are made of. See cluster.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/closed.h"

#define CLUSTER_NODES_MAX 65536u
#define CLUSTER_GPUS_MAX  128u /* of a node */

/* What other numbers of nodes and GPUs would change. */
struct cluster_form {
        bool own_rails; /* each GPU has a rail, however many there are */
        bool boxes;     /* n_rails is the cut of one fabric, with just these nodes */
        bool host;      /* ranks are processes, and no GPUs */
        bool graph;     /* there is a file with the topology of one node, or of what joins the boxes */
};

/*
 * NAME:NxG, N nodes with G GPUs each, of a kind that is built in (h200, a100, mi300x, host); pcie:NAME, two boxes of a
 * PCIe fabric (tools/sim/cut.h); FILE.json:NAME, the same from a file; or an XML or JSON file of one node's topology.
 * What is there as a file is one, also if its path has a colon. The text has to live as long as the cluster, whose name
 * it is. -EINVAL with a sentence in ret_error, -ENOMEM.
 */
int cluster_load(const char *text, struct cluster *ret_cluster, struct cluster_form *ret_form, char *ret_error,
                 size_t error_size);
/* So many GPUs on each node, and what each then has to the others. */
void cluster_gpus(struct cluster *cluster, uint32_t n_gpus);
/* Does a word of the command line look like one? */
bool cluster_named(const char *text);
