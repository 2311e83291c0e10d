/* SPDX-License-Identifier: MIT */
#include "tools/perf/gpu.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* That of the build tree of this program, or the installed one: from the program, so that an installation can be moved,
 * then where this build would be installed. */
static void *plugin_open(const char *backend) {
        static const char *const places[] = {"/../lib", "/../" RAILMUX_PLUGIN_RELATIVE_DIR};
        const char *given = secure_getenv(GPU_PATH_ENV);
        char program[PATH_MAX], path[PATH_MAX + 256];
        ssize_t length;

        if (given && *given)
                return dlopen(given, RTLD_NOW | RTLD_LOCAL);
        length = readlink("/proc/self/exe", program, sizeof(program) - 1);
        if (length > 0) {
                program[length] = '\0';
                *strrchr(program, '/') = '\0';
                for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
                        snprintf(path, sizeof(path), "%s%s/librailmux-perf-%s.so", program, places[i], backend);
                        if (!access(path, R_OK))
                                return dlopen(path, RTLD_NOW | RTLD_LOCAL);
                }
        }
        snprintf(path, sizeof(path), RAILMUX_PLUGIN_FULL_DIR "/librailmux-perf-%s.so", backend);
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

int gpu_load(const char *backend, const struct gpu_ops **ret_ops, char *error) {
        const struct gpu_ops *ops;
        void *plugin;

        if (!backend[0] || strspn(backend, "abcdefghijklmnopqrstuvwxyz") != strlen(backend) ||
            !strcmp(backend, "host")) {
                snprintf(error, GPU_ERROR_MAX, "the daemon serves no GPUs (its backend is '%.20s')", backend);
                return -1;
        }
        plugin = plugin_open(backend);
        if (!plugin) {
                snprintf(error, GPU_ERROR_MAX, "GPU memory needs a plug-in: %.200s", dlerror());
                return -1;
        }
        ops = dlsym(plugin, GPU_SYMBOL);
        if (!ops) {
                snprintf(error, GPU_ERROR_MAX, "the plug-in for backend '%.20s' has no symbol %s", backend, GPU_SYMBOL);
                return -1;
        }
        if (ops->version != GPU_VERSION) {
                snprintf(error, GPU_ERROR_MAX,
                         "the plug-in for backend '%.20s' has version %u of the table, %u is wanted", backend,
                         ops->version, GPU_VERSION);
                return -1;
        }
        *ret_ops = ops;
        return 0;
}
