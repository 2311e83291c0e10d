/* SPDX-License-Identifier: MIT */
/*
 * railmux-perf against a real node: every element of every call must be right.
 *
 * By default each (operation, number of ranks) runs once with a drawn type, reduction and kind of memory up to a small
 * size, and each operation once up to 8 MiB; RAILMUX_FULL=1 runs all types with all reductions, and more.
 */
#include <errno.h>
#include <inttypes.h>
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

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const char *const ops[] = {"all_reduce",   "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all",
                                  "all_to_all_v", "gather", "scatter",   "sendrecv",   "barrier"};
static const char *const ranks[] = {"1", "2", "3", "4", "5", "7", "8", "16", "33"};
static const char *const types[] = {"int8", "uint8", "int32", "uint32", "int64",    "uint64",
                                    "fp16", "bf16",  "fp32",  "fp64",   "fp8_e4m3", "fp8_e5m2"};
static const char *const redops[] = {"sum", "prod", "max", "min", "avg", "premul"};
static const char *const memories[] = {"shared", "malloc"};

struct fixture {
        struct node node;
        uint64_t random;
        uint64_t lines; /* of tables; each out of place and, where there is one, in place */
};

static const char *pick(struct fixture *f, const char *const *names, size_t n) {
        return names[proc_random(&f->random) % n];
}

static void run_perf(struct fixture *f, const char *op, const char *n, const char *type, const char *redop,
                     const char *memory, const char *max, const char *factor, const char *check) {
        char root[8], command[512] = "", *output = malloc(PROC_OUTPUT_MAX);
        const char *argv[] = {node_program("railmux-perf"),
                              op,
                              "--ranks",
                              n,
                              "-d",
                              type,
                              "-o",
                              redop,
                              "--memory",
                              memory,
                              "-b",
                              "1",
                              "-e",
                              max,
                              "-f",
                              factor,
                              "-w",
                              "1",
                              "-n",
                              "2",
                              "-c",
                              check,
                              "-r",
                              root,
                              "--odd",
                              strcmp(memory, "malloc") == 0 ? "--equal" : "--odd", /* once more says nothing new */
                              "--socket",
                              f->node.socket,
                              NULL};
        int status;

        assert_non_null(output);
        snprintf(root, sizeof(root), "%u", (unsigned int)(proc_random(&f->random) % strtoul(n, NULL, 10)));
        for (size_t i = 1; argv[i]; i++) {
                size_t used = strlen(command);

                snprintf(command + used, sizeof(command) - used, " %s", argv[i]);
        }
        status = proc_run(argv, 120000, output);
        if (status != 0) {
                fputs(output, stderr);
                free(output);
                fail_msg("railmux-perf%s: status %d", command, status);
        }
        if (strcmp(check, "0") != 0 &&
            (!strstr(output, "Wrong values         : 0 OK") || !strstr(output, "Out of bounds values : 0 OK")))
                fail_msg("railmux-perf%s does not say that all was right", command);
        for (const char *line = output; line; line = strchr(line, '\n')) {
                line += line != output;
                f->lines += *line == ' ';
        }
        free(output);
}

/* Every type with every reduction up to several parts, and up to sizes beyond the caches in one type. */
static void run_all(struct fixture *f) {
        uint64_t lines = 0;

        for (size_t r = 0; r < COUNT_OF(ranks); r++)
                for (size_t o = 0; o < COUNT_OF(ops); o++) {
                        uint64_t before = f->lines;

                        run_perf(f, ops[o], ranks[r], "all", "all", "shared", "32K", "8", "2");
                        run_perf(f, ops[o], ranks[r], "all", "sum", "malloc", "32K", "32", "2");
                        run_perf(f, ops[o], ranks[r], "fp32", "sum", "shared", "8M", "32", "2");
                        run_perf(f, ops[o], ranks[r], "bf16", "avg", "malloc", "1M", "64", "2");
                        printf("%s, %s ranks: %" PRIu64 " lines, 0 wrong\n", ops[o], ranks[r], f->lines - before);
                        fflush(stdout);
                        lines += f->lines - before;
                }
        printf("in all: %" PRIu64 " lines, 0 wrong\n", lines);
}

static void run_sample(struct fixture *f) {
        for (size_t i = 0; i < COUNT_OF(ops) * COUNT_OF(ranks); i++) /* each pair once */
                run_perf(f, ops[i % COUNT_OF(ops)], ranks[i / COUNT_OF(ops) % COUNT_OF(ranks)],
                         pick(f, types, COUNT_OF(types)), pick(f, redops, COUNT_OF(redops)),
                         pick(f, memories, COUNT_OF(memories)), "128K", "8", "2");
        for (size_t o = 0; o < COUNT_OF(ops); o++)
                run_perf(f, ops[o], pick(f, ranks, COUNT_OF(ranks)), pick(f, types, COUNT_OF(types)),
                         pick(f, redops, COUNT_OF(redops)), pick(f, memories, COUNT_OF(memories)), "8M", "32", "1");
}

static void test_matrix(void **state) {
        struct fixture *f = *state;
        struct node_snapshot before;

        run_perf(f, "all_reduce", "16", "fp32", "sum", "malloc", "8M", "64",
                 "0"); /* fills what is kept for later use */
        before = node_snapshot(&f->node);
        if (proc_full())
                run_all(f);
        else
                run_sample(f);
        node_assert_as_before(&f->node, &before);
        node_stop(&f->node);
}

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        *state = f;
        f->random = proc_seed();
        node_start(&f->node, "perf", true);
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        node_cleanup(&f->node);
        free(f);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_matrix, setup, teardown)};

        return cmocka_run_group_tests_name("perf", tests, NULL, NULL);
}
