/* SPDX-License-Identifier: MIT */
#pragma once
/* Lines for the user, as NCCL_DEBUG and NCCL_DEBUG_FILE ask for. See log.c. */

enum log_level {
        LOG_NONE,
        LOG_VERSION, /* one line at the first call */
        LOG_WARN,    /* what went wrong */
        LOG_INFO,    /* communicators come and go, and where they are served */
        LOG_TRACE,   /* every call */
};

/* Is anything of this level wanted? */
int log_wants(enum log_level level);
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
