/* SPDX-License-Identifier: MIT */
/* The file of arguments that railmuxd writes for units, and what the program makes of one. */
#include "tests/cmocka_all.h"
#include "tests/output.h"
#include "tests/scratch.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/argument_file.h"

static char directory[64], path[96];

static int setup(void **state) {
        (void)state;
        snprintf(directory, sizeof(directory), "/tmp/railmux-test-XXXXXX");
        snprintf(path, sizeof(path), "%s/a.env", mkdtemp(directory));
        return 0;
}

static int teardown(void **state) {
        (void)state;
        return scratch_remove(directory);
}

static int read_back(const char *text, struct argument_file *ret_file) {
        FILE *file = fopen(path, "we");

        assert_non_null(file);
        assert_true(fputs(text, file) >= 0);
        assert_int_equal(fclose(file), 0);
        return argument_file_read(ret_file, path);
}

static void test_words(void **state) {
        static struct argument_file file;
        char text[ARGUMENT_FILE_BYTES + 2];
        size_t length;

        (void)state;
        assert_int_equal(argument_file_read(&file, path), 0); /* there is none */
        assert_int_equal(file.argc, 1);
        assert_int_equal(
                read_back("RAILMUX_EXECUTOR_ARGUMENTS=--gpus 3  --socket /x/c.exec\nLD_PRELOAD=/x.so\n", &file), 0);
        assert_int_equal(file.argc, 5);
        assert_string_equal(file.argv[1], "--gpus");
        assert_string_equal(file.argv[4], "/x/c.exec");
        assert_null(file.argv[5]);
        assert_int_equal(read_back("RAILMUX_EXECUTOR_ARGUMENTS=\n", &file), 0);
        assert_int_equal(file.argc, 1);
        assert_int_equal(read_back("HSA_TOOLS_LIB=/x.so\n", &file), -EINVAL);
        assert_int_equal(read_back("", &file), -EINVAL);
        memset(text, 'x', sizeof(text));
        text[sizeof(text) - 1] = '\0';
        assert_int_equal(read_back(text, &file), -EFBIG);
        length = (size_t)snprintf(text, sizeof(text), "RAILMUX_EXECUTOR_ARGUMENTS=");
        for (unsigned int i = 0; i < ARGUMENT_FILE_WORDS; i++)
                length += (size_t)snprintf(text + length, sizeof(text) - length, "w ");
        assert_int_equal(read_back(text, &file), 0);
        assert_int_equal(file.argc, ARGUMENT_FILE_WORDS + 1);
        snprintf(text + length, sizeof(text) - length, "w");
        assert_int_equal(read_back(text, &file), -E2BIG);
        assert_int_equal(argument_file_read(&file, directory), -EBADF);
}

/* Does the program, with this file, end with the status and say that? */
static bool ends(const char *text, int status, const char *says) {
        static struct argument_file file;
        char said[4096];

        read_back(text, &file);
        return OUTPUT_OF(said, RAILMUX_EXECUTOR, "--name", "0", "--arguments", path) == status && strstr(said, says);
}

static void test_program(void **state) {
        (void)state;
        assert_true(ends("RAILMUX_EXECUTOR_ARGUMENTS=--socket /x --gpus 65", 2,
                         "--gpus '65': allowed are numbers from 1 to 64"));
        assert_true(ends("RAILMUX_EXECUTOR_ARGUMENTS=--socket /x --backend /proc/self/fd/9", 2, "may not say a path"));
        assert_true(ends("RAILMUX_EXECUTOR_ARGUMENTS=--socket /x --backen=./x.so", 2, "may not say a path"));
        assert_true(ends("RAILMUX_EXECUTOR_ARGUMENTS=--socket /x --backend no_such", 1, "no_such"));
        assert_true(ends("RAILMUX_EXECUTOR_ARGUMENTS=--gpus 2", 2, "usage: railmux-executor")); /* no socket */
        assert_true(ends("RAILMUX_EXECUTOR_ARGUMENTS=word", 2, "usage: railmux-executor"));
        assert_true(ends("nothing", 2, "--arguments"));
        assert_true(ends("RAILMUX_EXECUTOR_ARGUMENTS=--version", 0, "railmux-executor "));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_words, setup, teardown),
                cmocka_unit_test_setup_teardown(test_program, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
