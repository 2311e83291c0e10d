/* SPDX-License-Identifier: MIT */
#pragma once
/* What AMD's kernel driver says of its GPUs: memory and xGMI. See kfd.c. */
struct topology;

/* Completes a graph below `root` ("": this machine). Nothing is there without the driver: 0. TOPOLOGY_E_INVALID,
 * -ENOMEM. */
int kfd_read(const char *root, struct topology *topology);
