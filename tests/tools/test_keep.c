/* SPDX-License-Identifier: MIT */
/* What a keeper starts railmuxd with: the same command line, but for --keep. */
#include "tests/cmocka_all.h"

#include "daemon/launcher_command.h"
#include "daemon/options.h"

#define EXPECT(expected, ...) expect(expected, (const char *const[]){"railmuxd", __VA_ARGS__, NULL})

static void expect(const char *const *expected, const char *const *argv) {
        char error[CONFIG_ERROR_MAX], **rest;
        struct options options;
        int argc = 0, n = 0;

        while (argv[argc])
                argc++;
        assert_int_equal(options_parse(&options, argc, (char **)argv, error), 0);
        assert_true(options.keep);
        rest = options_without_keep(argc, (char **)argv);
        assert_non_null(rest);
        for (; expected[n]; n++) {
                assert_non_null(rest[n]);
                assert_string_equal(rest[n], expected[n]);
        }
        assert_null(rest[n]);
        assert_int_equal(options_parse(&options, n, rest, error), 0);
        assert_false(options.keep); /* else there would be keepers without end */
        launcher_command_free(rest);
}
#define REST(...) ((const char *const[]){"railmuxd", __VA_ARGS__, NULL})

static void test_rest(void **unused) {
        (void)unused;
        EXPECT(((const char *const[]){"railmuxd", NULL}), "--keep");
        EXPECT(REST("--gpu", "host:2", "--workers=3"), "--gpu", "host:2", "--keep", "--workers=3");
        EXPECT(REST("--socket", "s"), "--keep", "--socket", "s", "--keep");
        /* As getopt_long() understands it. */
        EXPECT(REST("--socket", "s"), "--kee", "--socket", "s", "--k");
        EXPECT(REST("--gpu", "host:2", "--"), "--gpu", "host:2", "--keep", "--");
        /* A value is a value. */
        EXPECT(REST("--config", "--keep", "--socket=--keep"), "--config", "--keep", "--keep", "--socket=--keep");
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_rest)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
