/* SPDX-License-Identifier: MIT */
#include "util/processors.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Of cgroup v2: in the line "0::/the/group". False: it is in none. */
static bool group_of(const char *own_path, char ret_group[PATH_MAX]) {
        FILE *file = fopen(own_path, "re");
        char line[PATH_MAX];
        bool found = false;

        if (!file)
                return false;
        while (!found && fgets(line, sizeof(line), file)) {
                line[strcspn(line, "\n")] = 0;
                found = strncmp(line, "0::/", 4) == 0;
        }
        fclose(file);
        if (found)
                snprintf(ret_group, PATH_MAX, "%s", line + 3);
        return found;
}

/* "QUOTA PERIOD" in microseconds, or "max PERIOD". The root of all groups has no such file. */
static uint32_t group_quota(const char *root, const char *group) {
        unsigned long long quota, period, n = UINT32_MAX;
        char path[2 * PATH_MAX];
        FILE *file;

        snprintf(path, sizeof(path), "%s%s/cpu.max", root, group);
        file = fopen(path, "re");
        if (!file)
                return UINT32_MAX;
        if (fscanf(file, "%llu %llu", &quota, &period) == 2 && period > 0)
                n = quota / period + (quota % period > 0);
        fclose(file);
        return n == 0 ? 1 : n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

uint32_t processors_quota(const char *own_path, const char *root) {
        uint32_t least = UINT32_MAX;
        char group[PATH_MAX];

        if (!group_of(own_path, group))
                return least;
        for (;;) { /* that group, and all it lies in */
                char *end = strrchr(group, '/');
                uint32_t n = group_quota(root, group);

                if (n < least)
                        least = n;
                if (!end)
                        return least;
                *end = 0;
        }
}

uint32_t processors_usable(void) {
        uint32_t quota = processors_quota("/proc/self/cgroup", "/sys/fs/cgroup"), n;
        cpu_set_t set;

        /* More than a cpu_set_t has are plenty. */
        n = sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : CPU_SETSIZE;
        return n < quota ? n : quota;
}
