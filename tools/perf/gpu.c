/* SPDX-License-Identifier: MIT */
#include "tools/perf/gpu.h"

#include <stdio.h>
#include <string.h>

#include "util/plugin.h"

int gpu_load(const char *backend, const struct gpu_ops **ret_ops, char *error) {
        char name[64], text[GPU_ERROR_MAX - 32];
        const struct plugin plugin = {
                .name = name,
                .variable = GPU_PATH_ENV,
                .symbol = GPU_SYMBOL,
                .version = GPU_VERSION,
        };
        const void *table;

        if (!backend[0] || strspn(backend, "abcdefghijklmnopqrstuvwxyz") != strlen(backend) ||
            !strcmp(backend, "host")) {
                snprintf(error, GPU_ERROR_MAX, "the daemon serves no GPUs (its backend is '%.20s')", backend);
                return -1;
        }
        snprintf(name, sizeof(name), "librailmux-perf-%.32s.so", backend);
        if (plugin_load(&plugin, &table, text, sizeof(text)) != 0) {
                snprintf(error, GPU_ERROR_MAX, "GPU memory needs a plug-in: %s", text);
                return -1;
        }
        *ret_ops = table;
        return 0;
}
