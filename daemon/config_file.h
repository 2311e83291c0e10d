/* SPDX-License-Identifier: MIT */
#pragma once
/* One configuration file applied to a struct config. */
#include "daemon/config.h"
#include <stddef.h>

#define CONFIG_FILE_BYTES_MAX (256u << 10)

/* Reads `path` over what config holds. 0, or -errno and a text; config may be half changed then. -ENOENT without a
 * file. */
int config_file_apply(struct config *config, const char *path, char error[CONFIG_ERROR_MAX]);
/* The same for a text; `path` is only for messages. */
int config_text_apply(struct config *config, const char *path, const char *text, size_t length,
                      char error[CONFIG_ERROR_MAX]);
/* When all files are read: values that must fit together, which may come from several of them. 0, or -EINVAL and a text
 * that names where the last of them stands. */
int config_file_check(const struct config *config, char error[CONFIG_ERROR_MAX]);
/* A whole regular file, in memory from malloc. 0 or -errno; -EBADF: it is no file, -EFBIG: larger than
 * CONFIG_FILE_BYTES_MAX. */
int config_file_read(const char *path, char **ret_text, size_t *ret_length);
