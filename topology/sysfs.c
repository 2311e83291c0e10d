/* SPDX-License-Identifier: MIT */
#include "topology/sysfs.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/cleanup.h"

static bool sysfs_path(char out[PATH_MAX], const char *root, const char *format, va_list arguments)
        __attribute__((format(printf, 3, 0)));
static bool sysfs_path(char out[PATH_MAX], const char *root, const char *format, va_list arguments) {
        int length = snprintf(out, PATH_MAX, "%s/", root), more;

        if (length < 0 || length >= PATH_MAX)
                return false;
        more = vsnprintf(out + length, PATH_MAX - (size_t)length, format, arguments);
        return more >= 0 && more < PATH_MAX - length;
}

static void sysfs_read(char out[SYSFS_TEXT_MAX], const char *path) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        ssize_t n = fd >= 0 ? read(fd, out, SYSFS_TEXT_MAX - 1) : 0;

        if (n < 0)
                n = 0;
        while (n > 0 && (out[n - 1] == '\n' || out[n - 1] == ' '))
                n--;
        out[n] = '\0';
}

const char *sysfs_text(char out[SYSFS_TEXT_MAX], const char *root, const char *format, ...) {
        char path[PATH_MAX];
        va_list arguments;

        out[0] = '\0';
        va_start(arguments, format);
        if (sysfs_path(path, root, format, arguments))
                sysfs_read(out, path);
        va_end(arguments);
        return out;
}

bool sysfs_exists(const char *root, const char *format, ...) {
        char path[PATH_MAX];
        va_list arguments;
        bool exists;

        va_start(arguments, format);
        exists = sysfs_path(path, root, format, arguments) && access(path, F_OK) == 0;
        va_end(arguments);
        return exists;
}

int64_t sysfs_number(int64_t fallback, const char *root, const char *format, ...) {
        char path[PATH_MAX], text[SYSFS_TEXT_MAX] = "", *end;
        va_list arguments;
        int64_t value;

        va_start(arguments, format);
        if (sysfs_path(path, root, format, arguments))
                sysfs_read(text, path);
        va_end(arguments);
        value = strtoll(text, &end, 10);
        return end != text ? value : fallback;
}

/* "0000:1a:00.0", with a domain of up to eight digits. */
static bool is_pci(const char *name, size_t length) {
        static const char hex[] = "0123456789abcdef";
        size_t domain = strspn(name, hex);

        return domain >= 4 && domain <= 8 && length == domain + 8 && name[domain] == ':' && name[domain + 3] == ':' &&
               name[domain + 6] == '.' && strspn(name + domain + 1, hex) == 2 && strspn(name + domain + 4, hex) == 2 &&
               name[domain + 7] >= '0' && name[domain + 7] <= '7';
}

void sysfs_pci(char out[24], const char *root, const char *format, ...) {
        char path[PATH_MAX], *real = NULL;
        va_list arguments;

        out[0] = '\0';
        va_start(arguments, format);
        if (sysfs_path(path, root, format, arguments))
                real = realpath(path, NULL);
        va_end(arguments);
        for (const char *name = real; name && *name;) {
                size_t length;

                name += strspn(name, "/");
                length = strcspn(name, "/");
                if (is_pci(name, length))
                        snprintf(out, 24, "%.*s", (int)length, name);
                name += length;
        }
        free(real);
}

static int sysfs_visible(const struct dirent *entry) {
        return entry->d_name[0] != '.';
}

void sysfs_list(struct sysfs_names *names, const char *root, const char *format, ...) {
        char path[PATH_MAX];
        va_list arguments;

        *names = (struct sysfs_names){0};
        va_start(arguments, format);
        if (sysfs_path(path, root, format, arguments))
                names->n = scandir(path, &names->entries, sysfs_visible, versionsort);
        va_end(arguments);
        if (names->n < 0)
                *names = (struct sysfs_names){0};
}

void sysfs_list_deinit(struct sysfs_names *names) {
        for (int i = 0; i < names->n; i++)
                free(names->entries[i]);
        free(names->entries);
        *names = (struct sysfs_names){0};
}
