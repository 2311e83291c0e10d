/* SPDX-License-Identifier: MIT */
#pragma once
/* What all who ask hwloc have in common. */
#include <errno.h>
#include <hwloc.h>

/* For _cleanup_. */
static inline void hwloc_freep(hwloc_topology_t *hwloc) {
        if (*hwloc)
                hwloc_topology_destroy(*hwloc);
}

/* hwloc has said -1, and mostly why: callers set errno to 0 before. */
static inline int hwloc_failed(void) {
        return errno > 0 ? -errno : -EIO;
}
