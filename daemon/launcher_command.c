/* SPDX-License-Identifier: MIT */
#include "daemon/launcher_command.h"

#include "daemon/config.h"
#include "util/cleanup.h"
#include "util/log.h"
#include "util/parse.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXECUTOR_PROGRAM     "railmux-executor"
#define EXECUTOR_WORKERS_MAX 64u /* it refuses more */

static int launcher_command_take(const char *path, char **ret_path) {
        char *copy;

        if (access(path, X_OK) < 0)
                return -ENOENT;
        copy = strdup(path);
        if (!copy)
                return -ENOMEM;
        *ret_path = copy;
        return 0;
}

int launcher_command_path(char **ret_path) {
        static const char *const places[] = {"", "/../" RAILMUX_LIBEXEC_RELATIVE_DIR};
        const char *given = getenv("RAILMUX_EXECUTOR");
        char self[PATH_MAX], path[PATH_MAX + 256];
        ssize_t n;

        if (given && *given)
                return launcher_command_take(given, ret_path);
        n = readlink("/proc/self/exe", self, sizeof(self) - 1);
        if (n > 0) {
                self[n] = '\0';
                *strrchr(self, '/') = '\0';
                for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
                        int r;

                        snprintf(path, sizeof(path), "%s%s/%s", self, places[i], EXECUTOR_PROGRAM);
                        r = launcher_command_take(path, ret_path);
                        if (r != -ENOENT)
                                return r;
                }
        }
        return launcher_command_take(RAILMUX_LIBEXEC_FULL_DIR "/" EXECUTOR_PROGRAM, ret_path);
}

char **launcher_command_free(char **argv) {
        for (char **p = argv; p && *p; p++)
                free(*p);
        free(argv);
        return NULL;
}

int launcher_command_arguments(const struct config *config, const char *name, bool exit_with_daemon, char ***ret_argv) {
        char gpus[16], workers[16], stall[16], device[16], blocks[16], staging[16], socket[PATH_MAX + 8];
        const char *const plane_words[] = {
                EXECUTOR_PROGRAM,
                "--name",
                name,
                "--backend",
                "hip",
                "--device",
                device,
                "--policy",
                config->policy,
                "--blocks",
                blocks,
                "--staging-mib",
                staging,
                "--socket",
                socket,
                "--stall-ms",
                stall,
                "--log-level",
                log_level_name(config->log_level),
                exit_with_daemon ? "--exit-with-daemon" : NULL,
        };
        const char *const host_words[] = {
                EXECUTOR_PROGRAM,
                "--name",
                name,
                "--gpus",
                gpus,
                "--socket",
                socket,
                "--workers",
                workers,
                "--stall-ms",
                stall,
                "--log-level",
                log_level_name(config->log_level),
                exit_with_daemon ? "--exit-with-daemon" : NULL,
        };
        const bool plane = strcmp(name, "host") != 0 && config->devices;
        const char *const *words = plane ? plane_words : host_words;
        const size_t n =
                plane ? sizeof(plane_words) / sizeof(plane_words[0]) : sizeof(host_words) / sizeof(host_words[0]);
        uint32_t number = 0;
        char **argv;

        if (plane && parse_u32(name, &number) < 0)
                return -EINVAL;
        snprintf(device, sizeof(device), "%u", plane ? number % config->devices : 0);
        snprintf(blocks, sizeof(blocks), "%u", config->blocks);
        snprintf(staging, sizeof(staging), "%u", (uint32_t)(config->staging_bytes >> 20));
        snprintf(gpus, sizeof(gpus), "%u", config->gpus);
        snprintf(workers, sizeof(workers), "%u",
                 config->workers < EXECUTOR_WORKERS_MAX ? config->workers : EXECUTOR_WORKERS_MAX);
        snprintf(stall, sizeof(stall), "%u", config->stall_ms);
        snprintf(socket, sizeof(socket), "%s.exec", config->client_socket);
        argv = calloc(n + 1, sizeof(*argv));
        if (!argv)
                return -ENOMEM;
        for (size_t i = 0; i < n && words[i]; i++) {
                argv[i] = strdup(words[i]);
                if (!argv[i]) {
                        launcher_command_free(argv);
                        return -ENOMEM;
                }
        }
        *ret_argv = argv;
        return 0;
}

bool launcher_command_name_valid(const char *name) {
        size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");

        return length > 0 && length < LAUNCHER_COMMAND_NAME_MAX && name[length] == '\0' && name[0] != '.';
}
