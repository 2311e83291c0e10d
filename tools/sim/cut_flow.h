/* SPDX-License-Identifier: MIT */
#pragma once
/* Smallest cuts between sets of boxes. See cut_flow.c. */
#include <stdint.h>

#include "tools/sim/cut.h"

struct cut_net {
        uint32_t n, n_boxes; /* vertices; the boxes come first, CUT_BOXES_MAX at most */
        uint32_t *capacity;  /* [n][n], each way */
};
/* Room for so many vertices, nothing joined. -ENOMEM. */
int cut_net_init(struct cut_net *net, uint32_t n, uint32_t n_boxes);
void cut_net_deinit(struct cut_net *net);
void cut_net_join(struct cut_net *net, uint32_t a, uint32_t b, uint32_t capacity);
/* ret_least[k]: the smallest cut that parts any k boxes from the others, from 1 to n_boxes - 1. Takes vertices out that
 * change nothing. -ENOMEM. */
int cut_net_parts(struct cut_net *net, uint32_t ret_least[CUT_BOXES_MAX]);
