/* SPDX-License-Identifier: MIT */
#pragma once
/* NICs as the kernel names them, with their speeds. See nic.c. */
struct topology;

/* Completes a graph below `root` ("": this machine). TOPOLOGY_E_INVALID, -ENOMEM. */
int nic_read(const char *root, struct topology *topology);
