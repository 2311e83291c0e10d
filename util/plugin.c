/* SPDX-License-Identifier: MIT */
/*
 * A plug-in is looked for beside our own program as it is built (../lib) or installed (the same way up and down again
 * as from bin or libexec/railmux to lib, so that an installation can be moved), then where this build would be
 * installed.
 */
#include "util/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How many names at the end of our own path are left out, and what comes in their place. */
static const struct {
        uint32_t up;
        const char *folder;
} places[] = {{2, "lib"}, {2, RAILMUX_PLUGIN_RELATIVE_DIR}, {3, RAILMUX_PLUGIN_RELATIVE_DIR}};
#define N_PLACES (sizeof(places) / sizeof(places[0]))

/* One of N_PLACES + 1; false: there is no such place. */
static bool plugin_place(const char *program, size_t i, char ret_folder[PATH_MAX]) {
        size_t length = strlen(program);

        if (i == N_PLACES)
                return snprintf(ret_folder, PATH_MAX, "%s", RAILMUX_PLUGIN_FULL_DIR) < PATH_MAX;
        for (uint32_t up = 0; up < places[i].up; up++) {
                while (length > 0 && program[length - 1] != '/')
                        length--;
                if (length == 0)
                        return false;
                length--;
        }
        return snprintf(ret_folder, PATH_MAX, "%.*s/%s", (int)length, program, places[i].folder) < PATH_MAX;
}

static int plugin_find(const struct plugin *plugin, char path[PATH_MAX], char *error, size_t size) {
        const char *given = secure_getenv(plugin->variable);
        char program[PATH_MAX], folder[PATH_MAX];
        size_t used;
        ssize_t n;

        if (!given || !*given)
                given = plugin->path;
        if (given) {
                if (snprintf(path, PATH_MAX, "%s", given) < PATH_MAX && access(path, R_OK) == 0)
                        return 0;
                snprintf(error, size, "the plug-in %.160s cannot be read", given);
                return PLUGIN_E_UNUSABLE;
        }
        n = readlink("/proc/self/exe", program, sizeof(program) - 1);
        program[n > 0 ? n : 0] = '\0';
        used = (size_t)snprintf(error, size, "there is no %s, which $%s may name, in", plugin->name, plugin->variable);
        for (size_t i = 0; i <= N_PLACES; i++) {
                if (!plugin_place(program, i, folder))
                        continue;
                if (snprintf(path, PATH_MAX, "%s/%s", folder, plugin->name) < PATH_MAX && access(path, R_OK) == 0)
                        return 0;
                if (used < size && !strstr(error, folder)) /* where it is installed is both */
                        used += (size_t)snprintf(error + used, size - used, "%s %s", i > 0 ? "," : "", folder);
        }
        return PLUGIN_E_UNUSABLE;
}

int plugin_load(const struct plugin *plugin, const void **ret_table, char *error, size_t size) {
        uint32_t version;
        char path[PATH_MAX];
        const void *table;
        void *handle;
        int r;

        r = plugin_find(plugin, path, error, size);
        if (r)
                return r;
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!handle) {
                const char *why = dlerror();

                snprintf(error, size, "%s", why ? why : path);
                return PLUGIN_E_UNUSABLE;
        }
        table = dlsym(handle, plugin->symbol);
        if (!table) {
                snprintf(error, size, "%.160s has no symbol %s", path, plugin->symbol);
                dlclose(handle);
                return PLUGIN_E_UNUSABLE;
        }
        memcpy(&version, table, sizeof(version));
        if (version != plugin->version) {
                snprintf(error, size, "%.160s has version %u, this program needs %u", path, version, plugin->version);
                dlclose(handle);
                return PLUGIN_E_UNUSABLE;
        }
        *ret_table = table;
        return 0;
}
