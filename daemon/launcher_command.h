/* SPDX-License-Identifier: MIT */
#pragma once
/* How an executor is started: its program and its arguments. */
#include <stdbool.h>

struct config;

#define LAUNCHER_COMMAND_NAME_MAX 64u

/* $RAILMUX_EXECUTOR, else railmux-executor beside our own program, else in the directory for internal programs. The
 * first that is executable. 0, -ENOENT, -ENOMEM. */
int launcher_command_path(char **ret_path);
/* NULL-terminated, argv[0] included; free with launcher_command_free. The flag adds --exit-with-daemon. name: "host",
 * or the number of a GPU. 0, -EINVAL or -ENOMEM. */
int launcher_command_arguments(const struct config *config, const char *name, bool exit_with_daemon, char ***ret_argv);
char **launcher_command_free(char **argv);
/* Letters, digits, '_', '-', '.'; it becomes part of a unit name. */
bool launcher_command_name_valid(const char *name);
