/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cmocka_all.h"
#include "util/log.h"

static char output[8192];

/* Runs body with stderr going to a pipe; output is what it wrote. */
static void capture(void (*body)(void)) {
        int fds[2], saved;
        ssize_t n;

        fflush(stderr);
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
        assert_true(saved >= 0);
        assert_true(dup2(fds[1], STDERR_FILENO) >= 0);
        close(fds[1]);
        body();
        dup2(saved, STDERR_FILENO);
        close(saved);
        for (size_t length = 0;; length += (size_t)n) {
                n = read(fds[0], output + length, sizeof(output) - 1 - length);
                assert_true(n >= 0);
                if (!n) {
                        output[length] = 0;
                        break;
                }
        }
        close(fds[0]);
}

static void body_levels(void) {
        log_init("prog", LOG_LEVEL_NOTICE);
        log_error("first %d", 1);
        log_info("hidden");
        log_set_level(LOG_LEVEL_DEBUG);
        log_debug("shown now");
        log_set_level(LOG_LEVEL_ERROR);
        log_warning("hidden too");
}

static void test_levels(void **state) {
        (void)state;
        capture(body_levels);
        assert_non_null(strstr(output, " prog["));
        assert_non_null(strstr(output, "] error: first 1\n"));
        assert_non_null(strstr(output, "] debug: shown now\n"));
        assert_null(strstr(output, "hidden"));
}

static void body_fields(void) {
        static const char *const fields[] = {"SESSION", "12", "TENANT", "default", NULL};

        log_init("prog", LOG_LEVEL_INFO);
        errno = ENOTTY;
        log_fields(LOG_LEVEL_WARNING, fields, "gone");
        assert_int_equal(errno, ENOTTY);
}

static void test_fields(void **state) {
        (void)state;
        capture(body_fields);
        assert_non_null(strstr(output, "warning: gone SESSION=12 TENANT=default\n"));
}

static void body_forged(void) {
        static const char *const fields[] = {"NAME", "evil\n2026-01-01 prog error: forged", NULL};

        log_init("prog", LOG_LEVEL_INFO);
        log_fields(LOG_LEVEL_INFO, fields, "a\x1b[31m\tb\nc");
}

static void test_no_forged_lines(void **state) {
        (void)state;
        capture(body_forged);
        assert_ptr_equal(strchr(output, '\n'), output + strlen(output) - 1);
        assert_null(strchr(output, '\x1b'));
        assert_non_null(strstr(output, "a?[31m?b?c NAME=evil?2026"));
}

static void body_long(void) {
        static char text[6000];
        const char *const fields[] = {"A", text, "B", text, NULL};

        memset(text, 'x', sizeof(text) - 1);
        log_init("prog", LOG_LEVEL_INFO);
        log_fields(LOG_LEVEL_INFO, fields, "%s", text);
}

static void test_long_line_is_cut(void **state) {
        (void)state;
        capture(body_long);
        assert_true(strlen(output) > 1000);
        assert_true(strlen(output) < 2000);
        assert_ptr_equal(strchr(output, '\n'), output + strlen(output) - 1);
}

/* The variable is inherited by children whose stderr is something else: they must not write to the journal. */
static void body_stream(void) {
        setenv("JOURNAL_STREAM", "1:2", 1);
        log_init("prog", LOG_LEVEL_INFO);
        log_info("plain");
        setenv("JOURNAL_STREAM", "nonsense", 1);
        log_init("prog", LOG_LEVEL_INFO);
        log_info("plain");
        unsetenv("JOURNAL_STREAM");
}

static void test_foreign_journal_stream(void **state) {
        char *second;

        (void)state;
        capture(body_stream);
        second = strstr(output, "info: plain\n");
        assert_non_null(second);
        assert_non_null(strstr(second + 1, "info: plain\n"));
}

static void test_names(void **state) {
        (void)state;
        for (int level = LOG_LEVEL_ERROR; level <= LOG_LEVEL_DEBUG; ++level)
                assert_int_equal(log_level_parse(log_level_name(level)), level);
        assert_int_equal(log_level_parse("loud"), -1);
        assert_int_equal(log_level_parse(""), -1);
        assert_int_equal(log_level_parse(NULL), -1);
        assert_string_equal(log_level_name(99), "unknown");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_levels),
                cmocka_unit_test(test_fields),
                cmocka_unit_test(test_no_forged_lines),
                cmocka_unit_test(test_long_line_is_cut),
                cmocka_unit_test(test_foreign_journal_stream),
                cmocka_unit_test(test_names),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
