/* SPDX-License-Identifier: MIT */
/* railmuxd --check: what it says, and that it touches nothing. */
#include "tests/cmocka_all.h"
#include "tests/output.h"
#include "tests/scratch.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct check {
        char directory[64], config[96], text[4096];
};

static int setup(void **state) {
        struct check *c = calloc(1, sizeof(*c));

        assert_non_null(c);
        snprintf(c->directory, sizeof(c->directory), "/tmp/railmux-test-XXXXXX");
        assert_non_null(mkdtemp(c->directory));
        snprintf(c->config, sizeof(c->config), "%s/r.yaml", c->directory);
        *state = c;
        return 0;
}

static int teardown(void **state) {
        struct check *c = *state;

        assert_int_equal(scratch_remove(c->directory), 0);
        free(c);
        return 0;
}

/* With this configuration and this option. Its exit status; what it says lies in text. */
static int check(struct check *c, const char *config, const char *option, const char *value) {
        char socket[96], control[96];
        FILE *file = fopen(c->config, "we");

        assert_non_null(file);
        fputs(config, file);
        assert_int_equal(fclose(file), 0);
        snprintf(socket, sizeof(socket), "%s/c.sock", c->directory);
        snprintf(control, sizeof(control), "%s/k.sock", c->directory);
        return OUTPUT_OF(c->text, RAILMUXD, "--check", "--keep", "--config", c->config, "--socket", socket, "--control",
                         control, option, value);
}

static bool made(const struct check *c, const char *name) {
        char path[128];

        snprintf(path, sizeof(path), "%s/%s", c->directory, name);
        return access(path, F_OK) == 0;
}

static void test_fine(void **state) {
        struct check *c = *state;

        assert_int_equal(check(c, "version: 1\nlimits: {sessions: 9}\n", "--gpu", "hip"), 0);
        assert_non_null(strstr(c->text, "nothing is wrong with the command line and /tmp/railmux-test-"));
        assert_false(made(c, "c.sock") || made(c, "k.sock") || made(c, "c.sock.exec"));
}

static void test_wrong(void **state) {
        struct check *c = *state;

        assert_int_equal(check(c, "version: 1\nlimits:\n  sessions: many\n", NULL, NULL), 2);
        assert_non_null(strstr(c->text, "r.yaml:3:13: limits.sessions: 'many' is no number; allowed: 1 .. 100000"));
        assert_int_equal(check(c, "version: 1\n", "--gpu", "tpu"), 2);
        assert_non_null(strstr(c->text, "--gpu: 'tpu' is none of"));
        assert_int_equal(check(c, "version: 1\n", "--config", "/nowhere/r.yaml"), 2);
        assert_non_null(strstr(c->text, "/nowhere/r.yaml"));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_fine, setup, teardown),
                cmocka_unit_test_setup_teardown(test_wrong, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
