/* SPDX-License-Identifier: MIT */
/*
 * The suite itself: it reports nothing about a library that does what it must, and each defect of one that does not.
 *
 *     test_model PROGRAM MODEL FOLDER-OF-THE-FAKE-RUNTIME
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/e2e/proc.h"

#define RUN_MS 60000u

static const char *program, *model, *runtime;

/* name, operation, and what must be in the report */
static const char *const defects[][3] = {
        {"last", "AllReduce", "of the output are wrong"},
        {"last", "ReduceScatter", "of the output are wrong"},
        {"root", "Broadcast", "of the output are wrong"},
        {"beyond", "AllGather", "1 of them outside"},
        {"input", "AlltoAll", "of the input are wrong"},
        {"stale", "Gather", "of the output are wrong"},
        {"min", "AllReduce", "e5m2 min"},
        {"factor", "Reduce", "premul (immediate)"},
        {"average", "ReduceScatter", "avg"},
        {"rank", "AllGather", "of the buffer are wrong"},
        {"pieces", "AllToAllv", "of the output are wrong"},
        {"error", "Send/Recv", "ncclInternalError (3), not ncclSuccess"},
        {"crash", "Scatter", "wrong: Scatter"} /* a signal, or the exit status that a sanitizer makes of it */,
        {"hang", "Bcast", "does not come to an end"},
};

static int run(const char *const more[], char *output) {
        const char *argv[20] = {program, "--library", model};
        size_t n = 3;
        int status;

        while (*more)
                argv[n++] = *more++;
        status = proc_run_quiet(argv, RUN_MS, output);
        if (status < 0)
                fail_msg("it does not end: %.2000s", output);
        return status;
}

static void assert_clean(const char *const more[]) {
        char *output = malloc(PROC_OUTPUT_MAX);
        int status;

        assert_non_null(output);
        status = run(more, output);
        printf("%s", output);
        assert_int_equal(status, 0);
        assert_non_null(strstr(output, "cases, 0 wrong\n"));
        free(output);
}

static void test_no_defect(void **state) {
        (void)state;
        unsetenv("NCCL_MODEL_DEFECT");
        assert_clean((const char *const[]){"--only", "calls", "--ways", "threads,grouped,all", NULL});
        assert_clean((const char *const[]){"--only", "large", "--ways", "grouped", "--ranks", "8", NULL});
}

/* The way through a GPU runtime. */
static void test_device_memory(void **state) {
        (void)state;
        unsetenv("NCCL_MODEL_DEFECT");
        assert_int_equal(setenv("LD_LIBRARY_PATH", runtime, 1), 0);
        assert_clean((const char *const[]){"--only", "calls", "--ways", "threads,grouped", "--memory", "device",
                                           "--ranks", "3", NULL});
        unsetenv("LD_LIBRARY_PATH");
}

/* What the suite needs and does not get is wrong, though no call of the library was. */
static void test_no_device(void **state) {
        static const char *const ways[] = {"processes", "threads", "grouped"};
        char *output = malloc(PROC_OUTPUT_MAX);

        (void)state;
        assert_non_null(output);
        unsetenv("NCCL_MODEL_DEFECT");
        assert_int_equal(setenv("LD_LIBRARY_PATH", runtime, 1), 0);
        assert_int_equal(setenv("FAKE_RUNTIME_BROKEN", "1", 1), 0);
        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
                int status = run((const char *const[]){"--only", "calls", "--ways", ways[i], "--memory", "device",
                                                       "--ranks", "3", NULL},
                                 output);

                if (status != 1 || !strstr(output, "the device cannot be used"))
                        fail_msg("%s: it is not reported (exit status %d): %.2000s", ways[i], status, output);
        }
        unsetenv("FAKE_RUNTIME_BROKEN");
        unsetenv("LD_LIBRARY_PATH");
        free(output);
}

static void test_defects(void **state) {
        char *output = malloc(PROC_OUTPUT_MAX);

        (void)state;
        assert_non_null(output);
        for (size_t i = 0; i < sizeof(defects) / sizeof(defects[0]); i++) {
                bool hangs = strcmp(defects[i][0], "hang") == 0;
                bool rare = strcmp(defects[i][0], "min") == 0; /* so is the case that shows it: all of them */
                int status;

                assert_int_equal(setenv("NCCL_MODEL_DEFECT", defects[i][0], 1), 0);
                status =
                        run((const char *const[]){"--only", "calls", "--ways", i % 2 ? "grouped" : "threads", "--ranks",
                                                  "3", "--cases", rare ? "0" : "170", "--match", defects[i][1],
                                                  "--patience", hangs ? "2" : "30", "--all-messages", NULL},
                            output);
                if (status != 1 || !strstr(output, defects[i][2]) || strstr(output, " 0 wrong\n"))
                        fail_msg("defect '%s' is not reported (exit status %d): %.2000s", defects[i][0], status,
                                 output);
        }
        unsetenv("NCCL_MODEL_DEFECT");
        free(output);
}

/* What a library lacks is wrong, too, and no reason to fall over. */
static void test_lacks(void **state) {
        static const char *const groups[] = {"comm", "config", "argument", "memory"};
        char *output = malloc(PROC_OUTPUT_MAX);

        (void)state;
        assert_non_null(output);
        for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
                int status = run((const char *const[]){"--only", groups[i], "--ways", "grouped", NULL}, output);

                if (status != 1)
                        fail_msg("%s: exit status %d: %.2000s", groups[i], status, output);
        }
        free(output);
}

static void test_usage(void **state) {
        static const char *const wrong[][3] = {
                {"--memory", "paper"}, {"--ranks", "9"}, {"--ranks", "1,x"}, {"--nothing"}, {"more"}};
        char *output = malloc(PROC_OUTPUT_MAX);

        (void)state;
        assert_non_null(output);
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
                assert_int_equal(run(wrong[i], output), 2);
        assert_int_equal(run((const char *const[]){"--library", "/nowhere", "--only", "calls", NULL}, output), 1);
        free(output);
}

int main(int argc, char **argv) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_no_defect), cmocka_unit_test(test_device_memory),
                cmocka_unit_test(test_no_device), cmocka_unit_test(test_defects),
                cmocka_unit_test(test_lacks),     cmocka_unit_test(test_usage),
        };

        if (argc != 4) {
                fprintf(stderr, "Usage: test_model PROGRAM MODEL FOLDER\n");
                return 2;
        }
        program = argv[1];
        model = argv[2];
        runtime = argv[3];
        return cmocka_run_group_tests_name("nccl_model", tests, NULL, NULL);
}
