/* SPDX-License-Identifier: MIT */
/*
 * The conformance suite against a node, for each of the names under which our library comes.
 *
 * A test for each part of it, so that none takes long. After each the node must look as before, whatever the programs
 * have left. Then the same library with defects, each of which the suite must report, and a client in Python.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"

#define RUN_MS        (proc_full() ? 7200000u : 120000u)
#define ARGUMENTS_MAX 16u

struct fixture {
        struct node node;
        const char *program, *library[2], *part;
        const char *spoilt, *runtime, *python, *script; /* of those parts */
};

static struct fixture fixture;

static void run_program(const char *const argv[]) {
        char *output = malloc(PROC_OUTPUT_MAX);
        int status;

        assert_non_null(output);
        status = proc_run(argv, RUN_MS, output);
        printf("%s", output);
        free(output);
        if (status)
                fail_msg("exit status %d", status);
}

static void run(const char *library, const char *const more[]) {
        const char *argv[ARGUMENTS_MAX] = {fixture.program, "--library", library, "-v"};
        size_t n = 4;

        while (*more && n + 1 < ARGUMENTS_MAX)
                argv[n++] = *more++;
        run_program(argv);
}

/* What a process or daemon keeps for later use is there after the first run. */
static void warm_up(void) {
        run(fixture.library[0], (const char *const[]){"--only", "calls", "--ways", "processes,threads", "--ranks", "8",
                                                      "--cases", "1", NULL});
}

/* Both libraries and both kinds of memory. A sample has each once, and large calls in some ways only. */
static void run_both(void) {
        static const char *const memories[] = {"host", "alloc"};
        static const char *const large[][4] = {{"--ways", "processes", "--ranks", "4"},
                                               {"--ways", "threads,grouped", "--ranks", "8"}};
        bool samples = !proc_full() && strcmp(fixture.part, "large") == 0;
        unsigned int seed = (unsigned int)proc_seed() >> 1;

        for (unsigned int i = 0; i < 2; i++) {
                for (unsigned int k = 0; k < (proc_full() ? 2 : 1); k++) {
                        const char *more[9] = {"--only", fixture.part, "--memory", memories[(seed + i + k) % 2]};

                        for (unsigned int w = 0; w < 4 && samples; w++)
                                more[4 + w] = large[i][w];
                        run(fixture.library[i], more);
                }
        }
}

static void run_part(void **state) {
        struct node_snapshot before;
        struct node_pids pids;

        (void)state;
        warm_up();
        before = node_snapshot(&fixture.node);
        pids = node_pids(&fixture.node);
        run_both();
        assert_int_equal(node_pids(&fixture.node).daemon, pids.daemon);
        assert_int_equal(node_pids(&fixture.node).executor, pids.executor);
        node_assert_as_before(&fixture.node, &before);
}

/* The library with a defect the check that must see it, and what its report must say. */
static const char *const spoilt[][3] = {
        {"end", "group: nested", "the end of no group"},
        {"inner", "group: nested", "groups in groups"},
        {"forgives", "group: wrong call", "a group with a wrong call"},
        {"colour", "comm: split", "split 2"},
        {"key", "comm: split", "split 1"},
        {"rank", "comm: facts", "what a communicator tells"},
        {"text", "config: sizes", "a config of 72 bytes"},
        {"long", "config: sizes", "a config of 72 bytes"},
        {"magic", "config: wrong", "another magic number"},
        {"abort", "failure: abort of a call", "does not come to an end"},
        {"once", "failure: in a collective", "the error stays"},
        {"alignment", "memory: alloc", "its address is"},
        {"register", "memory: register", "ncclCommDeregister"},
        {"window", "memory: window", "the window was not written"},
        {"twice", "redop: life", "destroyed twice"},
        {"type", "argument: calls", "types that there are not"},
};

static void run_spoilt(void **state) {
        char *output = malloc(PROC_OUTPUT_MAX);

        (void)state;
        assert_non_null(output);
        run(fixture.spoilt, (const char *const[]){"--only", "group,comm,config,redop", "--ways", "processes", NULL});
        for (size_t i = 0; i < sizeof(spoilt) / sizeof(spoilt[0]); i++) {
                const char *argv[] = {fixture.program,
                                      "--library",
                                      fixture.spoilt,
                                      "--match",
                                      spoilt[i][1],
                                      "--only",
                                      "group,comm,config,failure,memory,redop,argument",
                                      "--ways",
                                      "processes",
                                      "--all-messages",
                                      "--patience",
                                      "2",
                                      NULL};
                int status;

                assert_int_equal(setenv("NCCL_SPOILT", spoilt[i][0], 1), 0);
                status = proc_run_quiet(argv, RUN_MS, output);
                if (status != 1 || !strstr(output, spoilt[i][2]))
                        fail_msg("defect '%s' is not reported (exit status %d): %.3000s", spoilt[i][0], status, output);
        }
        unsetenv("NCCL_SPOILT");
        free(output);
}

/* The way through a GPU runtime, as far as a stand-in and the host backend go. */
static void run_device(void **state) {
        (void)state;
        assert_int_equal(setenv("LD_LIBRARY_PATH", fixture.runtime, 1), 0);
        run(fixture.library[proc_seed() >> 1 & 1],
            (const char *const[]){"--only", "group,comm,config,redop,thread", "--memory", "device", NULL});
        unsetenv("LD_LIBRARY_PATH");
}

static void run_python(void **state) {
        (void)state;
        for (unsigned int i = 0; i < 2; i++) {
                const char *argv[] = {fixture.python, "-B", fixture.script, fixture.library[i], NULL};

                run_program(argv);
        }
}

static int setup(void **state) {
        char name[64];

        (void)state;
        snprintf(name, sizeof(name), "nccl-%.20s", fixture.part);
        for (char *comma = strchr(name, ','); comma; comma = strchr(comma, ','))
                *comma = '-';
        node_start(&fixture.node, name, true);
        return setenv("RAILMUX_SOCKET", fixture.node.socket, 1);
}

static int teardown(void **state) {
        (void)state;
        node_stop(&fixture.node);
        node_cleanup(&fixture.node);
        return 0;
}

int main(int argc, char **argv) {
        struct CMUnitTest tests[] = {cmocka_unit_test(run_part)};

        if (argc < 5) {
                fprintf(stderr, "Usage: e2e_nccl PROGRAM LIBRARY LIBRARY PART\n"
                                "       e2e_nccl PROGRAM LIBRARY LIBRARY spoilt LIBRARY\n"
                                "       e2e_nccl PROGRAM LIBRARY LIBRARY device FOLDER\n"
                                "       e2e_nccl PROGRAM LIBRARY LIBRARY python PYTHON SCRIPT\n");
                return 2;
        }
        fixture = (struct fixture){.program = argv[1], .library = {argv[2], argv[3]}, .part = argv[4]};
        if (argc == 6 && strcmp(fixture.part, "device") == 0) {
                fixture.runtime = argv[5];
                tests[0].test_func = run_device;
        } else if (argc == 6) {
                fixture.spoilt = argv[5];
                tests[0].test_func = run_spoilt;
        } else if (argc == 7) {
                fixture.python = argv[5];
                fixture.script = argv[6];
                tests[0].test_func = run_python;
        }
        return cmocka_run_group_tests_name(fixture.part, tests, setup, teardown);
}
