/* SPDX-License-Identifier: MIT */
/*
 * The conformance suite over two and three nodes, each a daemon of its own on this machine, connected over loopback.
 *
 * What the suite shows in one process, and defects that it must report, are tested on one node (e2e_nccl.c). Here is
 * what lies between nodes: all calls, communicators from communicators, peers that die on another node, clients in
 * Python, and a node that goes while programs shrink. After each the nodes must look as before.
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
#include "tests/nccl/suite.h"

#define NODES_MAX 3u

struct fixture {
        struct node node[NODES_MAX];
        uint32_t n_nodes;
        char sockets[512];
        struct suite suite;
        const char *python, *script; /* of that part */
};

static struct fixture fixture;

static void run_part(void **state) {
        struct node_snapshot before[NODES_MAX];
        struct node_pids pids[NODES_MAX];

        (void)state;
        suite_run(&fixture.suite, fixture.suite.library[0], /* what is kept for later use is there after it */
                  (const char *const[]){"--only", "calls,comm", "--ways", "processes,threads", "--ranks", "8",
                                        "--cases", "1", NULL},
                  0, ", 0 wrong");
        nodes_snapshot(fixture.node, fixture.n_nodes, before);
        for (uint32_t i = 0; i < fixture.n_nodes; i++)
                pids[i] = node_pids(&fixture.node[i]);
        suite_run_both(&fixture.suite);
        for (uint32_t i = 0; i < fixture.n_nodes; i++) {
                assert_int_equal(node_pids(&fixture.node[i]).daemon, pids[i].daemon);
                assert_int_equal(node_pids(&fixture.node[i]).executor, pids[i].executor);
        }
        nodes_assert_as_before(fixture.node, fixture.n_nodes, before);
}

static void run_python(void **state) {
        (void)state;
        for (unsigned int i = 0; i < 2; i++) {
                const char *argv[] = {fixture.python, "-B",        fixture.script,  fixture.suite.library[i],
                                      i ? "6" : "5",  "--sockets", fixture.sockets, NULL};

                suite_run_program(argv, 0, ", 0 wrong");
        }
}

/* Daemons that do not listen for each other: ranks of the other node are told. */
static void run_apart(void **state) {
        (void)state;
        suite_run(&fixture.suite, fixture.suite.library[0],
                  (const char *const[]){"--only", "comm", "--match", "comm: facts", "--ways", "processes", "--ranks",
                                        "3", "--all-messages", "--patience", "5", NULL},
                  1, "was made by another node, and this one");
}

static int setup(void **state) {
        char name[SUITE_NAME_MAX], prefix[32];

        (void)state;
        fixture.suite.sockets = fixture.sockets;
        for (uint32_t i = 0; i < fixture.n_nodes; i++) {
                size_t used = strlen(fixture.sockets);

                fixture.node[i].listens = strcmp(fixture.suite.part, "apart") != 0;
                snprintf(prefix, sizeof(prefix), "nccl-nodes-%u-%c", fixture.n_nodes, (int)('a' + i));
                suite_name(name, prefix, fixture.suite.part);
                node_start(&fixture.node[i], name, false);
                snprintf(fixture.sockets + used, sizeof(fixture.sockets) - used, "%s%s", i ? "," : "",
                         fixture.node[i].socket);
        }
        return 0;
}

static int teardown(void **state) {
        (void)state;
        nodes_stop(fixture.node, fixture.n_nodes);
        nodes_cleanup(fixture.node, fixture.n_nodes);
        return 0;
}

int main(int argc, char **argv) {
        struct CMUnitTest tests[] = {cmocka_unit_test(run_part)};

        if (argc != 6 && argc != 8) {
                fprintf(stderr, "Usage: e2e_nccl_nodes PROGRAM LIBRARY LIBRARY NODES PART\n"
                                "       e2e_nccl_nodes PROGRAM LIBRARY LIBRARY NODES apart\n"
                                "       e2e_nccl_nodes PROGRAM LIBRARY LIBRARY NODES python PYTHON SCRIPT\n");
                return 2;
        }
        fixture = (struct fixture){.suite = {.program = argv[1], .library = {argv[2], argv[3]}, .part = argv[5]},
                                   .n_nodes = argv[4][0] == '3' ? 3 : 2};
        if (strcmp(fixture.suite.part, "apart") == 0)
                tests[0].test_func = run_apart;
        if (argc == 8) {
                fixture.python = argv[6];
                fixture.script = argv[7];
                tests[0].test_func = run_python;
        }
        return cmocka_run_group_tests_name(fixture.suite.part, tests, setup, teardown);
}
