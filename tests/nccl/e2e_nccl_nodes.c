/* SPDX-License-Identifier: MIT */
/*
 * The conformance suite over two and three nodes, each a daemon of its own on this machine, connected over loopback.
 *
 * What the suite shows in one process, and defects that it must report, are tested on one node (e2e_nccl.c). Here is
 * what lies between nodes: all calls, communicators from communicators, peers that die on another node, clients in
 * Python, and a node that goes while programs shrink. After each the nodes must look as before.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"

#define NODES_MAX     3u
#define RUN_MS        (proc_full() ? 7200000u : 120000u)
#define ARGUMENTS_MAX 24u

struct fixture {
        struct node node[NODES_MAX];
        uint32_t n_nodes;
        char sockets[512];
        const char *program, *library[2], *part;
        const char *python, *script; /* of that part */
};

static struct fixture fixture;

static void run_program(const char *const argv[], int wanted, const char *word) {
        char *output = malloc(PROC_OUTPUT_MAX);
        int status;

        assert_non_null(output);
        status = proc_run(argv, RUN_MS, output);
        printf("%s", output);
        if (status != wanted || !strstr(output, word))
                fail_msg("exit status %d, not %d with '%s'", status, wanted, word);
        free(output);
}

static void run(const char *library, const char *const more[], int wanted, const char *word) {
        const char *argv[ARGUMENTS_MAX] = {fixture.program, "--library", library, "-v", "--sockets", fixture.sockets};
        size_t n = 6;

        while (*more && n + 1 < ARGUMENTS_MAX)
                argv[n++] = *more++;
        run_program(argv, wanted, word);
}

/* Both libraries and both kinds of memory; a sample has each once. */
static void run_both(void) {
        static const char *const memories[] = {"host", "alloc"};
        static const char *const large[][4] = {{"--ways", "processes", "--ranks", "4"},
                                               {"--ways", "threads,grouped", "--ranks", "8"}};
        bool samples = !proc_full() && strcmp(fixture.part, "large") == 0;
        unsigned int seed = (unsigned int)proc_seed() >> 1;

        for (unsigned int i = 0; i < 2; i++) {
                for (unsigned int k = 0; k < (proc_full() ? 2 : 1); k++) {
                        const char *more[11] = {"--only", fixture.part, "--memory", memories[(seed + i + k) % 2]};

                        for (unsigned int w = 0; w < 4 && samples; w++)
                                more[4 + w] = large[i][w];
                        run(fixture.library[i], more, 0, ", 0 wrong");
                }
        }
}

static void run_part(void **state) {
        struct node_snapshot before[NODES_MAX];
        struct node_pids pids[NODES_MAX];

        (void)state;
        run(fixture.library[0], /* what is kept for later use is there after it */
            (const char *const[]){"--only", "calls,comm", "--ways", "processes,threads", "--ranks", "8", "--cases", "1",
                                  NULL},
            0, ", 0 wrong");
        for (uint32_t i = 0; i < fixture.n_nodes; i++) {
                before[i] = node_snapshot(&fixture.node[i]);
                pids[i] = node_pids(&fixture.node[i]);
        }
        run_both();
        for (uint32_t i = 0; i < fixture.n_nodes; i++) {
                assert_int_equal(node_pids(&fixture.node[i]).daemon, pids[i].daemon);
                assert_int_equal(node_pids(&fixture.node[i]).executor, pids[i].executor);
                node_assert_as_before(&fixture.node[i], &before[i]);
        }
}

static void run_python(void **state) {
        (void)state;
        for (unsigned int i = 0; i < 2; i++) {
                const char *argv[] = {fixture.python, "-B",        fixture.script,  fixture.library[i],
                                      i ? "6" : "5",  "--sockets", fixture.sockets, NULL};

                run_program(argv, 0, ", 0 wrong");
        }
}

/* Daemons that do not listen for each other: ranks of the other node are told. */
static void run_apart(void **state) {
        (void)state;
        run(fixture.library[0],
            (const char *const[]){"--only", "comm", "--match", "comm: facts", "--ways", "processes", "--ranks", "3",
                                  "--all-messages", "--patience", "5", NULL},
            1, "was made by another node, and this one");
}

static int setup(void **state) {
        char name[64];

        (void)state;
        for (uint32_t i = 0; i < fixture.n_nodes; i++) {
                size_t used = strlen(fixture.sockets);

                fixture.node[i].listens = strcmp(fixture.part, "apart") != 0;
                snprintf(name, sizeof(name), "nccl-nodes-%.20s-%u-%c", fixture.part, fixture.n_nodes, (int)('a' + i));
                for (char *comma = strchr(name, ','); comma; comma = strchr(comma, ','))
                        *comma = '-';
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
        fixture = (struct fixture){.program = argv[1],
                                   .library = {argv[2], argv[3]},
                                   .n_nodes = argv[4][0] == '3' ? 3 : 2,
                                   .part = argv[5]};
        if (strcmp(fixture.part, "apart") == 0)
                tests[0].test_func = run_apart;
        if (argc == 8) {
                fixture.python = argv[6];
                fixture.script = argv[7];
                tests[0].test_func = run_python;
        }
        return cmocka_run_group_tests_name(fixture.part, tests, setup, teardown);
}
