/* SPDX-License-Identifier: MIT */
/*
 * Where a plug-in is looked for: beside our own program as it is built (../lib) or installed (the same way up and down
 * again as from libexec to lib, so that an installation can be moved), then where this build would be installed.
 */
#include "executor/plane_plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef RAILMUX_PLUGIN_FULL_DIR
#define RAILMUX_PLUGIN_FULL_DIR "/usr/lib/railmux"
#endif
#ifndef RAILMUX_PLUGIN_RELATIVE_DIR
#define RAILMUX_PLUGIN_RELATIVE_DIR "lib/railmux"
#endif

static int plugin_find(const char *backend, char path[PATH_MAX], char *error) {
        static const char *const places[] = {"/../lib", "/../" RAILMUX_PLUGIN_RELATIVE_DIR,
                                             "/../../" RAILMUX_PLUGIN_RELATIVE_DIR};
        const char *given = getenv("RAILMUX_GPU_PLUGIN");
        char self[PATH_MAX];
        ssize_t length;
        int n;

        if ((given && *given) || strchr(backend, '/')) {
                n = snprintf(path, PATH_MAX, "%s", given && *given ? given : backend);
                if (n < PATH_MAX && access(path, R_OK) == 0)
                        return 0;
                snprintf(error, PLANE_TEXT, "the plug-in %.160s cannot be read", path);
                return PLANE_PLUGIN_E_ABSENT;
        }
        length = readlink("/proc/self/exe", self, sizeof(self) - 1);
        self[length > 0 ? length : 0] = '\0';
        if (strrchr(self, '/'))
                *strrchr(self, '/') = '\0';
        for (size_t i = 0; length > 0 && i < sizeof(places) / sizeof(places[0]); i++) {
                n = snprintf(path, PATH_MAX, "%s%s/librailmux-gpu-%s.so", self, places[i], backend);
                if (n < PATH_MAX && access(path, R_OK) == 0)
                        return 0;
        }
        n = snprintf(path, PATH_MAX, "%s/librailmux-gpu-%s.so", RAILMUX_PLUGIN_FULL_DIR, backend);
        if (n < PATH_MAX && access(path, R_OK) == 0)
                return 0;
        snprintf(error, PLANE_TEXT, "there is no plug-in %.160s", path);
        return PLANE_PLUGIN_E_ABSENT;
}

int plane_plugin_load(const char *backend, struct plane_plugin *ret_plugin, char error[PLANE_TEXT]) {
        struct plane_plugin plugin = {0};
        char path[PATH_MAX];
        int r;

        r = plugin_find(backend, path, error);
        if (r)
                return r;
        plugin.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!plugin.handle) {
                const char *why = dlerror();

                snprintf(error, PLANE_TEXT, "%.250s", why ? why : path);
                return PLANE_PLUGIN_E_UNUSABLE;
        }
        plugin.ops = dlsym(plugin.handle, PLANE_SYMBOL);
        if (!plugin.ops || plugin.ops->version != PLANE_VERSION) {
                if (plugin.ops)
                        snprintf(error, PLANE_TEXT, "%.160s has version %u of the table, %u is wanted", path,
                                 plugin.ops->version, PLANE_VERSION);
                else
                        snprintf(error, PLANE_TEXT, "%.160s has no symbol %s", path, PLANE_SYMBOL);
                dlclose(plugin.handle);
                return PLANE_PLUGIN_E_UNUSABLE;
        }
        *ret_plugin = plugin;
        return 0;
}
