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
#include "tests/nccl/suite.h"

struct fixture {
        struct node node;
        struct suite suite;
        const char *spoilt, *runtime, *python, *script; /* of those parts */
};

static struct fixture fixture;

static void run(const char *library, const char *const more[]) {
        suite_run(&fixture.suite, library, more, 0, "");
}

/* What a process or daemon keeps for later use is there after the first run. */
static void warm_up(void) {
        run(fixture.suite.library[0], (const char *const[]){"--only", "calls", "--ways", "processes,threads", "--ranks",
                                                            "8", "--cases", "1", NULL});
}

static void run_part(void **state) {
        struct node_snapshot before;
        struct node_pids pids;

        (void)state;
        warm_up();
        before = node_snapshot(&fixture.node);
        pids = node_pids(&fixture.node);
        suite_run_both(&fixture.suite);
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
        {"misleads", "failure: abort of a call", "the call: ncclSystemError"},
        {"once", "failure: in a collective", "the error stays"},
        {"alignment", "memory: alloc", "its address is"},
        {"register", "memory: register", "ncclCommDeregister"},
        {"known", "memory: register", "calls on registered memory"},
        {"stale", "memory: register", "a call on it after that"},
        {"window", "memory: window", "the window was not written"},
        {"in_window", "memory: window", "calls in a window"},
        {"twice", "redop: life", "destroyed twice"},
        {"type", "argument: calls", "types that there are not"},
};

static void run_spoilt(void **state) {
        char *output = malloc(PROC_OUTPUT_MAX);

        (void)state;
        assert_non_null(output);
        run(fixture.spoilt, (const char *const[]){"--only", "group,comm,config,redop", "--ways", "processes", NULL});
        for (size_t i = 0; i < sizeof(spoilt) / sizeof(spoilt[0]); i++) {
                const char *argv[] = {fixture.suite.program,
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
                status = proc_run_quiet(argv, suite_patience_ms(), output);
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
        run(fixture.suite.library[proc_seed() >> 1 & 1],
            (const char *const[]){"--only", "group,comm,config,redop,thread", "--memory", "device", NULL});
        unsetenv("LD_LIBRARY_PATH");
}

static void run_python(void **state) {
        (void)state;
        for (unsigned int i = 0; i < 2; i++) {
                const char *argv[] = {fixture.python, "-B", fixture.script, fixture.suite.library[i], NULL};

                suite_run_program(argv, 0, "");
        }
}

static int setup(void **state) {
        char name[SUITE_NAME_MAX];

        (void)state;
        suite_name(name, "nccl", fixture.suite.part);
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
        fixture = (struct fixture){.suite = {.program = argv[1], .library = {argv[2], argv[3]}, .part = argv[4]}};
        if (argc == 6 && strcmp(fixture.suite.part, "device") == 0) {
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
        return cmocka_run_group_tests_name(fixture.suite.part, tests, setup, teardown);
}
