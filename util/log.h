/* SPDX-License-Identifier: MIT */
#pragma once
/* Logging: journald with RAILMUX_ fields when stderr is the journal ($JOURNAL_STREAM), else one text line on stderr. */
#include <stdarg.h>
#include <stddef.h>

enum log_level {
        LOG_LEVEL_ERROR = 3,
        LOG_LEVEL_WARNING = 4,
        LOG_LEVEL_NOTICE = 5,
        LOG_LEVEL_INFO = 6,
        LOG_LEVEL_DEBUG = 7
};

/* Once, before threads: program name and lowest level shown. */
void log_init(const char *program, int level);
void log_set_level(int level);
/* -1 if the name is not one of error, warning, notice, info, debug. */
int log_level_parse(const char *name);
const char *log_level_name(int level);

/* fields: NULL-terminated list of pairs "SESSION", "12", ... ; the prefix RAILMUX_ is added. May be NULL. */
void log_fields(int level, const char *const *fields, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define log_error(...)   log_fields(LOG_LEVEL_ERROR, NULL, __VA_ARGS__)
#define log_warning(...) log_fields(LOG_LEVEL_WARNING, NULL, __VA_ARGS__)
#define log_notice(...)  log_fields(LOG_LEVEL_NOTICE, NULL, __VA_ARGS__)
#define log_info(...)    log_fields(LOG_LEVEL_INFO, NULL, __VA_ARGS__)
#define log_debug(...)   log_fields(LOG_LEVEL_DEBUG, NULL, __VA_ARGS__)
