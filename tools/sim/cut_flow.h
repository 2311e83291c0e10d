/* SPDX-License-Identifier: MIT */
#pragma once
/* Smallest cuts between sets of boxes. See cut_flow.c. */
#include <stdint.h>

#define CUT_ENDS_MAX  64u                 /* boxes of a net */
#define CUT_UNLIMITED (UINT64_C(1) << 62) /* and more: no cut */

struct cut_way { /* one direction of what joins two vertices; ways[i ^ 1] is the other one */
        uint32_t to, next;
        uint64_t capacity;
};
struct cut_net {
        uint32_t n, n_boxes; /* vertices; the boxes come first */
        uint32_t n_ways, max_ways;
        struct cut_way *ways;
        uint32_t *first;  /* way of each vertex */
        uint32_t *degree; /* how many it has */
};
/* Room for so many vertices and joints, nothing joined. -ENOMEM. */
int cut_net_init(struct cut_net *net, uint32_t n, uint32_t n_boxes, uint32_t max_joints);
void cut_net_deinit(struct cut_net *net);
void cut_net_join(struct cut_net *net, uint32_t a, uint32_t b, uint64_t capacity);
/*
 * ret_least[k], from 1 to n_boxes - 1: the smallest cut that parts `root` and k - 1 more boxes from the others; of more
 * than 16 boxes only runs of 1, 2, 4, ... that follow one another are tried on one side, the others have CUT_UNLIMITED.
 * ret_alone: all cuts that part one box from all others, together. Joins what needs no vertex. -ENOMEM.
 */
int cut_net_sides(struct cut_net *net, uint32_t root, uint64_t *ret_least, uint64_t *ret_alone);
/* Whatever the root: the smallest cut that parts any k boxes from the others. -ENOMEM. */
int cut_net_parts(struct cut_net *net, uint64_t *ret_least);
