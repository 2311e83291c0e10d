/* SPDX-License-Identifier: MIT */
#pragma once
/* railmuxd's command line. It wins over the configuration files, also after a reload. */
#include "daemon/config.h"
#include <stdbool.h>
#include <stdint.h>

#define OPTIONS_RAILS_MAX 4096u

struct options {
        const char *config_path, *gpu, *socket, *control, *listen;
        char rails[OPTIONS_RAILS_MAX]; /* of --rail, blanks between */
        bool keep, check, has_workers, has_level, peer_plain, version, help;
        uint32_t workers;
        int level;
};

/* 0, or -EINVAL and a text. */
int options_parse(struct options *options, int argc, char **argv, char error[CONFIG_ERROR_MAX]);
/* A copy of a command line that options_parse() takes, without --keep however it is written; NULL: no memory. To be
 * freed with launcher_command_free(). */
char **options_without_keep(int argc, char **argv);
/* 0, -EINVAL with a text, -ENOMEM. */
int options_apply(const struct options *options, struct config *config, char error[CONFIG_ERROR_MAX]);
extern const char options_help[];
