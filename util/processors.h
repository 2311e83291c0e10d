/* SPDX-License-Identifier: MIT */
#pragma once
/* How many processors this process may keep busy, which may be far fewer than the machine has. */
#include <stdint.h>

/* Those of the caller's affinity, at most as many as the process's control groups allow the time of; at least 1. */
uint32_t processors_usable(void);
/* The latter alone, rounded up; UINT32_MAX: no limit, or none that can be read. Of cgroup v2: own_path is
 * /proc/self/cgroup, and root where the groups are mounted. */
uint32_t processors_quota(const char *own_path, const char *root);
