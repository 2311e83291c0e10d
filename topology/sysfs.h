/* SPDX-License-Identifier: MIT */
#pragma once
/* Small files of the kernel, below a root that tests choose. */
#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYSFS_TEXT_MAX 4096u

/* The text of root/FORMAT without the space at its end; "" if it cannot be read. */
const char *sysfs_text(char out[SYSFS_TEXT_MAX], const char *root, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
bool sysfs_exists(const char *root, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The number that a file begins with; `fallback` if it cannot be read or begins with none. */
int64_t sysfs_number(int64_t fallback, const char *root, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The PCI address nearest to the end of the real path of root/FORMAT; "" if there is none. */
void sysfs_pci(char out[24], const char *root, const char *format, ...) __attribute__((format(printf, 3, 4)));

struct sysfs_names {
        struct dirent **entries;
        int n;
};
/* What stands in a folder, numbers within names in the order of their values; nothing if it cannot be read. */
void sysfs_list(struct sysfs_names *names, const char *root, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
void sysfs_list_deinit(struct sysfs_names *names);
