/* SPDX-License-Identifier: MIT */
#pragma once
/* Graphs from tests/topology/fixtures, and trees of small files. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cmocka_all.h"
#include "topology/topology.h"
#include "topology/xml.h"

static const char *const fixtures[] = {
        "mi300x-8x8",
        "mi300x-8x4",
        "mi300x-8x0",
        "h200-8x8",
        "soft-roce",
        "more-nics",
        "pci-1s-1rp-std-cascade",
        "pci-1s-2rp-std-cascade",
        "pci-2s-2rp-split-flat",
};
#define N_FIXTURES (sizeof(fixtures) / sizeof(fixtures[0]))

static inline struct topology *fixture_load(const char *name) {
        struct topology *topology = NULL;
        char path[512], error[TOPOLOGY_ERROR_MAX] = "";

        snprintf(path, sizeof(path), "%s/%s.xml", FIXTURES_DIR, name);
        if (topology_load(path, &topology, error))
                fail_msg("%s", error);
        return topology;
}

/* Makes the folders of a path below root, all but the last name. */
static inline void tree_folders(const char *root, const char *path) {
        char at[512];

        for (const char *p = path; (p = strchr(p, '/')); p++) {
                snprintf(at, sizeof(at), "%s/%.*s", root, (int)(p - path), path);
                if (mkdir(at, 0700) < 0)
                        assert_int_equal(errno, EEXIST);
        }
}

static inline void tree_file(const char *root, const char *text, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
static inline void tree_file(const char *root, const char *text, const char *format, ...) {
        char path[256], at[512];
        va_list arguments;
        FILE *file;

        va_start(arguments, format);
        vsnprintf(path, sizeof(path), format, arguments);
        va_end(arguments);
        tree_folders(root, path);
        snprintf(at, sizeof(at), "%s/%s", root, path);
        file = fopen(at, "we");
        assert_non_null(file);
        assert_true(fputs(text, file) >= 0);
        assert_int_equal(fclose(file), 0);
}

/* path -> target, which is relative to path as in sysfs */
static inline void tree_link(const char *root, const char *path, const char *target) {
        char at[512];

        tree_folders(root, path);
        snprintf(at, sizeof(at), "%s/%s", root, path);
        assert_int_equal(symlink(target, at), 0);
}
