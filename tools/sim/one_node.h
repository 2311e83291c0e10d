/* SPDX-License-Identifier: MIT */
#pragma once
/* What collectives among the GPUs of one node take. See one_node.c. */
#include "topology/topology.h"

struct one_node {
        const char *of; /* kind of cluster */
        double hop_ns;  /* from all GPUs to all others, with all that ends there begins with */
        double factor;  /* how many times as long as their nominal speed says links take for bytes */
        const char *source;
};
/* NULL: nothing is known. */
const struct one_node *one_node_named(const char *kind);
/* By what joins the GPUs, each with each. */
const struct one_node *one_node_of(const struct topology *topology);
