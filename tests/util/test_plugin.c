/* SPDX-License-Identifier: MIT */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cmocka_all.h"
#include "util/plugin.h"

#define VARIABLE "RAILMUX_TEST_PLUGIN"

static char error[4096];

static int load(const char *name, const char *path, const char *symbol, uint32_t version, const uint32_t **ret_table) {
        const struct plugin plugin = {
                .name = name, .variable = VARIABLE, .path = path, .symbol = symbol, .version = version};
        const void *table = NULL;
        int r;

        error[0] = '\0';
        r = plugin_load(&plugin, &table, error, sizeof(error));
        *ret_table = table;
        return r;
}

static void refused(const char *name, const char *path, const char *symbol, uint32_t version, const char *why) {
        const uint32_t *table;

        assert_int_equal(load(name, path, symbol, version, &table), PLUGIN_E_UNUSABLE);
        assert_null(table);
        if (!strstr(error, why))
                fail_msg("'%s' does not say '%s'", error, why);
}

static void test_given(void **unused) {
        const uint32_t *table;

        (void)unused;
        assert_int_equal(load("none.so", TABLE_FILE, "plugin_table", 7, &table), 0);
        assert_int_equal(table[1], 42);
        refused("none.so", "/none/none.so", "plugin_table", 7, "the plug-in /none/none.so cannot be read");
        refused("none.so", "/etc/passwd", "plugin_table", 7, "/etc/passwd");
        refused("none.so", TABLE_FILE, "plugin_table", 8, TABLE_FILE " has version 7, this program needs 8");
        refused("none.so", TABLE_FILE, "plugin", 7, TABLE_FILE " has no symbol plugin");
        /* The environment comes first; with nothing in it, it says nothing. */
        assert_int_equal(setenv(VARIABLE, TABLE_FILE, 1), 0);
        assert_int_equal(load("none.so", "/none/none.so", "plugin_table", 7, &table), 0);
        assert_int_equal(setenv(VARIABLE, "", 1), 0);
        refused("none.so", "/none/none.so", "plugin_table", 7, "/none/none.so");
        unsetenv(VARIABLE);
}

/* Beside the program: this one is in FOLDER/bin/, as it were. */
static void test_found(void **unused) {
        char program[PATH_MAX], folder[PATH_MAX + 8], path[PATH_MAX + 64];
        const uint32_t *table;
        ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
        bool made;

        (void)unused;
        assert_true(n > 0);
        program[n] = '\0';
        *strrchr(program, '/') = '\0';
        *strrchr(program, '/') = '\0';
        snprintf(folder, sizeof(folder), "%s/lib", program);
        snprintf(path, sizeof(path), "%s/railmux-test-plugin-%ld.so", folder, (long)getpid());
        refused(strrchr(path, '/') + 1, NULL, "plugin_table", 7, folder);
        if (!strstr(error, "$" VARIABLE) || !strstr(error, FULL_DIR) || !strstr(error, strrchr(path, '/') + 1))
                fail_msg("'%s' does not say where it was looked for", error);
        made = mkdir(folder, 0700) == 0;
        assert_int_equal(symlink(TABLE_FILE, path), 0);
        assert_int_equal(load(strrchr(path, '/') + 1, NULL, "plugin_table", 7, &table), 0);
        assert_int_equal(table[1], 42);
        assert_int_equal(unlink(path), 0);
        if (made)
                assert_int_equal(rmdir(folder), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_given),
                cmocka_unit_test(test_found),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
