/* SPDX-License-Identifier: MIT */
/*
 * One format for all lines:  HOST:PID:THREAD railmux LEVEL TEXT
 *
 * NCCL_DEBUG is VERSION, WARN, INFO, ABORT (as INFO) or TRACE; each includes those before it. Lines go to stderr or to
 * NCCL_DEBUG_FILE, in which %h stands for the host and %p for the process; both are read once. A line is one write, so
 * that those of many ranks in one file do not mix.
 */
#include "client/nccl/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "client/nccl/nccl.h"
#include "railmux/railmux.h"

#define LINE_BYTES 1024u
#define PATH_BYTES 512u

static struct {
        pthread_once_t once;
        enum log_level level;
        int fd;
        char host[64];
} log_state = {.once = PTHREAD_ONCE_INIT, .fd = STDERR_FILENO};

static const char *const names[] = {"", "VERSION", "WARN", "INFO", "TRACE"};

static enum log_level level_of(const char *text) {
        if (!text)
                return LOG_NONE;
        if (!strcasecmp(text, "ABORT"))
                return LOG_INFO;
        for (int i = LOG_VERSION; i <= LOG_TRACE; i++)
                if (!strcasecmp(text, names[i]))
                        return (enum log_level)i;
        return LOG_NONE;
}

static void expand(const char *pattern, char *path, size_t size) {
        size_t n = 0;
        int added;

        for (path[0] = 0; *pattern && n + 1 < size; pattern++) {
                if (pattern[0] == '%' && (pattern[1] == 'h' || pattern[1] == 'p')) {
                        pattern++;
                        added = *pattern == 'h' ? snprintf(path + n, size - n, "%s", log_state.host)
                                                : snprintf(path + n, size - n, "%d", getpid());
                        n += added < 0 ? 0 : (size_t)added;
                } else {
                        path[n++] = *pattern;
                        path[n] = 0;
                }
        }
}

static void log_begin(void) {
        const char *file = getenv("NCCL_DEBUG_FILE");
        char path[PATH_BYTES], *dot;

        log_state.level = level_of(getenv("NCCL_DEBUG"));
        if (!log_state.level)
                return;
        gethostname(log_state.host, sizeof(log_state.host) - 1);
        dot = strchr(log_state.host, '.');
        if (dot)
                *dot = 0;
        if (file && *file) {
                int fd;

                expand(file, path, sizeof(path));
                fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
                if (fd >= 0)
                        log_state.fd = fd;
        }
}

static void __attribute__((format(printf, 2, 0)))
log_write(enum log_level level, const char *format, va_list arguments) {
        char line[LINE_BYTES];
        int head, text;
        size_t n;

        head = snprintf(line, sizeof(line), "%s:%d:%d railmux %s ", log_state.host, getpid(), gettid(), names[level]);
        text = vsnprintf(line + head, sizeof(line) - (size_t)head, format, arguments);
        n = (size_t)head + (text < 0 ? 0 : (size_t)text);
        if (n > sizeof(line) - 2)
                n = sizeof(line) - 2;
        line[n++] = '\n';
        if (write(log_state.fd, line, n) < 0)
                return; /* there is nobody to tell */
}

static void log_first(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void log_first(enum log_level level, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        log_write(level, format, arguments);
        va_end(arguments);
}

static void log_once(void) {
        log_begin();
        if (log_state.level >= LOG_VERSION)
                log_first(LOG_VERSION, "railmux %d.%d.%d in place of NCCL %d.%d.%d", RMX_VERSION_MAJOR,
                          RMX_VERSION_MINOR, RMX_VERSION_PATCH, NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
}

int log_wants(enum log_level level) {
        pthread_once(&log_state.once, log_once);
        return log_state.level >= level;
}

void log_line(enum log_level level, const char *format, ...) {
        va_list arguments;

        if (!log_wants(level))
                return;
        va_start(arguments, format);
        log_write(level, format, arguments);
        va_end(arguments);
}
