/* SPDX-License-Identifier: MIT */
#pragma once
/* PCIe fabrics that join boxes of GPUs through switches and a host, and how much can cross between boxes. See cut.c. */
#include <stddef.h>
#include <stdint.h>

#define CUT_BOXES_MAX   16u
#define CUT_DOMAINS_MAX 16u

/* Who is cabled to what. All links are alike. */
struct cut_fabric {
        uint32_t n_boxes, n_domains;
        uint32_t cards[CUT_BOXES_MAX][CUT_DOMAINS_MAX]; /* links from a box into a switch domain */
        uint32_t ports[CUT_DOMAINS_MAX];                /* links from a domain to the host, which joins all domains */
};

/* From a name: Ns-Mrp-std|split-cascade|flat. N switches, M root ports of the host; std: a box's cards are all in one
 * domain, split: spread over all of them; cascade: two cards for each box, flat: four. -EINVAL with a sentence. */
int cut_parse(const char *name, struct cut_fabric *ret_fabric, char *ret_error, size_t error_size);
/* From a JSON file with "topologies", the one of this name. -EINVAL with a sentence, -ENOMEM. */
int cut_load(const char *path, const char *name, struct cut_fabric *ret_fabric, char *ret_error, size_t error_size);
/* ret_links[k]: links in the smallest cut that parts any k boxes from the others, from 1 to n_boxes - 1. -ENOMEM. */
int cut_links(const struct cut_fabric *fabric, uint32_t ret_links[CUT_BOXES_MAX]);

struct topology;
/* What joins the boxes of a node. */
struct cut_graph {
        uint32_t n_boxes, n_gpus;    /* GPUs of each */
        double links[CUT_BOXES_MAX]; /* as of cut_links(); a slower link is a part of one */
        uint64_t bytes_per_second;   /* of the fastest PCI link that is on a way from one GPU to another; 0: unknown */
};
/* A node's graph whose GPUs are in several boxes: sets of equally many that only PCI joins. 1; 0: it is not so;
 * -E2BIG: there are more than CUT_BOXES_MAX; -ENOMEM. */
int cut_graph(const struct topology *topology, struct cut_graph *ret_graph);
