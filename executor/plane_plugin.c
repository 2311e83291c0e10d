/* SPDX-License-Identifier: MIT */
#include "executor/plane_plugin.h"

#include <stdio.h>
#include <string.h>

#include "util/plugin.h"

int plane_plugin_load(const char *backend, const struct plane_ops **ret_ops, char error[PLANE_TEXT]) {
        char name[64];
        const struct plugin plugin = {
                .name = name,
                .variable = "RAILMUX_GPU_PLUGIN",
                .path = strchr(backend, '/') ? backend : NULL,
                .symbol = PLANE_SYMBOL,
                .version = PLANE_VERSION,
        };
        const void *table;
        int r;

        snprintf(name, sizeof(name), "librailmux-gpu-%.32s.so", backend);
        r = plugin_load(&plugin, &table, error, PLANE_TEXT);
        if (r == 0)
                *ret_ops = table;
        return r;
}
