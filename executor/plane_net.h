/* SPDX-License-Identifier: MIT */
#pragma once
/* What a communicator on GPUs has with other nodes: the net area that railmuxd made, and the fabric's doorbell. Control
 * thread only; the plane's proxy works on it meanwhile. */
#include <stdbool.h>
#include <stddef.h>

#include "gpu/plane.h"

struct plane_net_map {
        struct plane_net net; /* area NULL: there is none */
        size_t bytes;
};
#define PLANE_NET_MAP_NULL                                                                                             \
        {                                                                                                              \
                .net = {.doorbell_fd = -1 }                                                                            \
        }

/* The descriptors stay the caller's. -errno, or -EINVAL with a sentence (PLANE_TEXT bytes): no net area. */
int plane_net_map(struct plane_net_map *map, int area_fd, int doorbell_fd, char *error);
/* The plane has let go of it. Fine if nothing is mapped. */
void plane_net_unmap(struct plane_net_map *map);
