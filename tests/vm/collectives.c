/* SPDX-License-Identifier: MIT */
/* railmux-perf with inputs that are exact in the type, so every element of every call is compared bit for bit. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cmocka_all.h"
#include "tests/e2e/proc.h"
#include "tests/vm/fleet.h"
#include "tests/vm/scenario.h"

#define PERF_MS           120000u
#define PATIENT_MS        10000u
#define COUNT_OF(array)   (sizeof(array) / sizeof((array)[0]))
#define PICK(fleet, list) ((list)[proc_random(&(fleet)->random) % COUNT_OF(list)])

static const char *const ops[] = {"all_reduce",   "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all",
                                  "all_to_all_v", "gather", "scatter",   "sendrecv",   "barrier"};
static const char *const types[] = {"int8", "uint8", "int32", "uint32", "int64",    "uint64",
                                    "fp16", "bf16",  "fp32",  "fp64",   "fp8_e4m3", "fp8_e5m2"};
static const char *const redops[] = {"sum", "prod", "max", "min", "avg", "premul"};
static const char *const memories[] = {"shared", "malloc"};

/* Returns the number of lines, each of which has several calls. */
static uint32_t run_perf(struct fleet *fleet, uint32_t n_ranks, const char *op, const char *max, const char *factor) {
        char ranks[16], root[16], sockets[1024], command[1400] = "", *output = malloc(PROC_OUTPUT_MAX);
        const char *argv[] = {node_program("railmux-perf"),
                              op,
                              "--ranks",
                              ranks,
                              "-d",
                              PICK(fleet, types),
                              "-o",
                              PICK(fleet, redops),
                              "--memory",
                              PICK(fleet, memories),
                              "-b",
                              "1",
                              "-e",
                              max,
                              "-f",
                              factor,
                              "-w",
                              "0",
                              "-n",
                              "1",
                              "-c",
                              "2",
                              "-r",
                              root,
                              "--odd",
                              "--socket",
                              sockets,
                              NULL};
        uint32_t n_lines = 0;
        int status;

        assert_non_null(output);
        fleet_sockets(fleet, (1u << fleet->n_nodes) - 1, sockets);
        snprintf(ranks, sizeof(ranks), "%u", n_ranks);
        snprintf(root, sizeof(root), "%u", (uint32_t)(proc_random(&fleet->random) % n_ranks));
        for (size_t i = 1; argv[i]; i++) {
                size_t used = strlen(command);

                snprintf(command + used, sizeof(command) - used, " %s", argv[i]);
        }
        status = proc_run_quiet(argv, PERF_MS, output);
        if (status != 0 || !strstr(output, "Wrong values         : 0 OK") ||
            !strstr(output, "Out of bounds values : 0 OK")) {
                fputs(output, stderr);
                fail_msg("railmux-perf%s: status %d", command, status);
        }
        for (const char *line = strchr(output, '\n'); line; line = strchr(line + 1, '\n'))
                n_lines += line[1] == ' ';
        free(output);
        assert_true(n_lines > 0);
        return n_lines;
}

void collectives_run(struct fleet *fleet, const struct scenario *scenario) {
        uint32_t n_lines = 0;
        uint64_t first;

        fleet->lost_ms = PATIENT_MS; /* a machine that is busy elsewhere is no fault here */
        fleet_start(fleet);
        first = proc_random(&fleet->random);
        for (uint32_t i = 0; i < (scenario->kind ? scenario->kind : COUNT_OF(ops)); i++)
                n_lines += run_perf(fleet, scenario->n_ranks, ops[(first + 4 * i) % COUNT_OF(ops)], "2K", "2047");
        /* One that takes several chunks of each channel, and with several rails all of them. */
        n_lines += run_perf(fleet, scenario->n_ranks, ops[proc_random(&fleet->random) % 6], "600K", "614399");
        for (uint32_t rail = 0; rail < fleet->n_rails; rail++)
                assert_true(fleet_rail_number(fleet, 0, rail, "bytes_sent") > 0);
        print_message("%u lines, 0 wrong\n", n_lines);
        fleet_stop(fleet);
}
