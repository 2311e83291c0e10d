/* SPDX-License-Identifier: MIT */
/*
 * Log lines go to the journal when stderr is connected to it: $JOURNAL_STREAM names the device and inode of the stream
 * that systemd set up, and only if stderr still is that file do we send structured fields. A terminal, a pipe or a file
 * gets one text line per call, written with a single write() so that lines of threads and of child processes do not
 * mix.
 *
 * Names and messages may contain bytes that a client chose. Control characters are replaced in text lines, so nobody
 * can forge a line; the journal's protocol is binary-safe by itself.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#include "util/log.h"

#define LOG_LINE_MAX   1024u
#define LOG_FIELDS_MAX 16u
#define LOG_FIELD_MAX  256u

/* Process-wide by nature: the one log of this process. */
static const char *log_program = "railmux";
static bool log_journal;
static _Atomic int log_level = LOG_LEVEL_INFO;

static const struct {
        int level;
        const char *name;
} log_names[] = {
        {LOG_LEVEL_ERROR, "error"}, {LOG_LEVEL_WARNING, "warning"}, {LOG_LEVEL_NOTICE, "notice"},
        {LOG_LEVEL_INFO, "info"},   {LOG_LEVEL_DEBUG, "debug"},
};

static bool log_stderr_is_journal(void) {
        const char *stream = getenv("JOURNAL_STREAM");
        unsigned long long device, inode;
        struct stat st;

        if (!stream || sscanf(stream, "%llu:%llu", &device, &inode) != 2 || fstat(STDERR_FILENO, &st) < 0)
                return false;
        return st.st_dev == (dev_t)device && st.st_ino == (ino_t)inode;
}

void log_init(const char *program, int level) {
        log_program = program;
        log_journal = log_stderr_is_journal();
        log_set_level(level);
}

void log_set_level(int level) {
        /* Partner: the relaxed load in log_fields(). The level alone is passed, nothing is published with it. */
        atomic_store_explicit(&log_level, level, memory_order_relaxed);
}

int log_level_parse(const char *name) {
        for (size_t i = 0; i < sizeof(log_names) / sizeof(log_names[0]); ++i)
                if (name && !strcmp(name, log_names[i].name))
                        return log_names[i].level;
        return -1;
}

const char *log_level_name(int level) {
        for (size_t i = 0; i < sizeof(log_names) / sizeof(log_names[0]); ++i)
                if (log_names[i].level == level)
                        return log_names[i].name;
        return "unknown";
}

static int log_send_journal(int level, const char *const *fields, const char *message) {
        char storage[LOG_FIELDS_MAX][LOG_FIELD_MAX];
        char text[LOG_LINE_MAX + 8], priority[16], identifier[64];
        struct iovec iov[3 + LOG_FIELDS_MAX];
        int n = 0;

        snprintf(text, sizeof(text), "MESSAGE=%s", message);
        snprintf(priority, sizeof(priority), "PRIORITY=%d", level);
        snprintf(identifier, sizeof(identifier), "SYSLOG_IDENTIFIER=%s", log_program);
        iov[n++] = (struct iovec){text, strlen(text)};
        iov[n++] = (struct iovec){priority, strlen(priority)};
        iov[n++] = (struct iovec){identifier, strlen(identifier)};
        for (unsigned int i = 0; fields && fields[0] && fields[1] && i < LOG_FIELDS_MAX; ++i, fields += 2) {
                snprintf(storage[i], LOG_FIELD_MAX, "RAILMUX_%s=%s", fields[0], fields[1]);
                iov[n++] = (struct iovec){storage[i], strlen(storage[i])};
        }
        return sd_journal_sendv(iov, n);
}

/* snprintf's view of a position in a fixed line: never past its end. */
static void log_append(char *line, size_t size, size_t *position, const char *format, ...)
        __attribute__((format(printf, 4, 5)));
static void log_append(char *line, size_t size, size_t *position, const char *format, ...) {
        va_list args;
        int n;

        va_start(args, format);
        n = vsnprintf(line + *position, size - *position, format, args);
        va_end(args);
        if (n > 0)
                *position += (size_t)n < size - *position ? (size_t)n : size - *position - 1;
}

static void log_send_text(int level, const char *const *fields, const char *message) {
        char line[LOG_LINE_MAX + 512], stamp[32];
        size_t position = 0;
        struct timespec now;
        struct tm tm;

        clock_gettime(CLOCK_REALTIME, &now);
        gmtime_r(&now.tv_sec, &tm);
        strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
        log_append(line, sizeof(line), &position, "%s.%03ldZ %s[%d] %s: %s", stamp, now.tv_nsec / 1000000, log_program,
                   (int)getpid(), log_level_name(level), message);
        for (; fields && fields[0] && fields[1]; fields += 2)
                log_append(line, sizeof(line), &position, " %s=%s", fields[0], fields[1]);
        for (size_t i = 0; i < position; ++i)
                if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
                        line[i] = '?';
        line[position++] = '\n';
        /* There is nowhere to report that the log itself cannot be written. */
        while (write(STDERR_FILENO, line, position) < 0 && errno == EINTR)
                ;
}

void log_fields(int level, const char *const *fields, const char *format, ...) {
        int saved_errno = errno;
        char message[LOG_LINE_MAX];
        va_list args;

        /* Partner: the relaxed store in log_set_level(). */
        if (level > atomic_load_explicit(&log_level, memory_order_relaxed))
                return;
        va_start(args, format);
        vsnprintf(message, sizeof(message), format, args);
        va_end(args);
        if (!log_journal || log_send_journal(level, fields, message) < 0)
                log_send_text(level, fields, message);
        errno = saved_errno;
}
