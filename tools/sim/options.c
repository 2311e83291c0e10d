/* SPDX-License-Identifier: MIT */
#include "tools/sim/options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"
#include "railmux/railmux.h"
#include "util/parse.h"
#include "util/type.h"

#define GIB_MAX        1024u
#define OPERATIONS_MAX 32u
#define GPU_RANKS_MAX  64u /* of a communicator */
#define RAILS_MAX      16u /* FABRIC_RAILS_MAX */

static const char help_text[] =
        "Usage: railmux-sim OP [option...]\n"
        "       railmux-sim TOPOLOGY OP SIZE... [option...]   (railmux-sim mi300x:8x8 --help)\n"
        "       railmux-sim choices [option...]\n"
        "       railmux-sim verify OP [option...]\n"
        "       railmux-sim fit [option...] [ALGORITHM=]FILE...\n"
        "Shows how a collective would run: the plan, its traffic and its predicted time. Nothing is executed.\n"
        "\n"
        "  OP                    all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, all_to_all_v,\n"
        "                        gather, scatter, send or barrier\n"
        "  choices               print what is chosen for every operation and size\n"
        "  verify                prove the plan of an operation, as an executor does before it runs it\n"
        "  fit                   fit constants to results of railmux-perf -J\n"
        "\n"
        "      --ranks N         ranks, 1 to 64 (default 8, or the GPUs of the topology)\n"
        "      --topology FILE   place the ranks on the GPUs of a node: hwloc XML, or JSON\n"
        "      --host            place them on this host, as the host backend does\n"
        "      --workers N       how many ranks make progress at once (default: --host: CPUs, at most 16; else all)\n"
        "  -b, --min SIZE        smallest size (default 64K); K, M and G are powers of 1024\n"
        "  -e, --max SIZE        largest size (default the smallest; 1024G at most)\n"
        "  -f, --factor F        each size is F times the one before, 2 or more (default 2)\n"
        "      --size SIZE       this size only\n"
        "  -d, --type TYPE       int8 to fp8_e5m2 as in railmux-perf (default fp32)\n"
        "  -r, --root R          root rank; of a send: the sender (default 0)\n"
        "      --algorithm NAME  show this one instead of the chosen one; all: show all\n"
        "      --nodes NxG       choices: for ranks on GPUs of N nodes, G on each, as railmuxd makes them; with\n"
        "                        --workers: on emulated GPUs, served by so many workers on each node\n"
        "      --rails N         of each of these nodes (default 1)\n"
        "      --constants FILE  JSON with the constants of the model (default: of the host backend, or of GPUs);\n"
        "                        with --nodes only where there is --workers\n"
        "  -o, --output FILE     fit: where the constants go (default: standard output)\n"
        "      --json            print JSON (docs/schema/railmux-sim.json)\n"
        "  -h, --help            show this text\n"
        "      --version         show the version\n"
        "\n"
        "A size is a request's count in bytes: what a rank contributes; for reduce_scatter, all_to_all, gather and\n"
        "scatter one block of it.\n"
        "Exit status: 0 all right, 1 the verifier refuses the plan, 2 wrong usage or input, 3 out of memory or the "
        "like.\n";

enum {
        OPT_RANKS = 256,
        OPT_TOPOLOGY,
        OPT_HOST,
        OPT_WORKERS,
        OPT_SIZE,
        OPT_ALGORITHM,
        OPT_CONSTANTS,
        OPT_NODES,
        OPT_RAILS,
        OPT_JSON,
        OPT_VERSION
};

static const struct option long_options[] = {
        {"ranks", required_argument, NULL, OPT_RANKS},
        {"topology", required_argument, NULL, OPT_TOPOLOGY},
        {"host", no_argument, NULL, OPT_HOST},
        {"workers", required_argument, NULL, OPT_WORKERS},
        {"min", required_argument, NULL, 'b'},
        {"max", required_argument, NULL, 'e'},
        {"factor", required_argument, NULL, 'f'},
        {"size", required_argument, NULL, OPT_SIZE},
        {"type", required_argument, NULL, 'd'},
        {"root", required_argument, NULL, 'r'},
        {"algorithm", required_argument, NULL, OPT_ALGORITHM},
        {"constants", required_argument, NULL, OPT_CONSTANTS},
        {"nodes", required_argument, NULL, OPT_NODES},
        {"rails", required_argument, NULL, OPT_RAILS},
        {"output", required_argument, NULL, 'o'},
        {"json", no_argument, NULL, OPT_JSON},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, OPT_VERSION},
        {NULL, 0, NULL, 0},
};

uint32_t options_type_find(const char *name) {
        for (uint32_t i = 0; i < RMX_TYPE_COUNT; i++)
                if (strcmp(type_name(i), name) == 0)
                        return i;
        return UINT32_MAX;
}

/* Operations that have plans. */
uint32_t options_operation_find(const char *name) {
        for (uint32_t i = 0; i < OPERATIONS_MAX; i++)
                if (plan_algorithm_at(i, 1, 0) != PLAN_ALGORITHM_NONE && strcmp(plan_operation_name(i), name) == 0)
                        return i;
        return UINT32_MAX;
}

uint32_t options_algorithm_find(const char *name) {
        for (uint32_t i = PLAN_ALGORITHM_NONE + 1; i < PLAN_ALGORITHM_COUNT; i++)
                if (strcmp(plan_algorithm_name(i), name) == 0)
                        return i;
        return UINT32_MAX;
}

static int take_algorithm(const char *text, uint32_t *ret_algorithm, char *error) {
        char names[160];
        size_t length = 0;

        *ret_algorithm = strcmp(text, "all") == 0 ? OPTIONS_ALGORITHM_ALL : options_algorithm_find(text);
        if (*ret_algorithm != UINT32_MAX || strcmp(text, "all") == 0)
                return OPTIONS_OK;
        for (uint32_t i = PLAN_ALGORITHM_NONE + 1; i < PLAN_HIERARCHICAL; i++) /* those of one node */
                length += (size_t)snprintf(names + length, sizeof(names) - length, "%s, ", plan_algorithm_name(i));
        return options_refuse(error, "unknown algorithm '%.40s'; use one of: %sall", text, names);
}

static int take_operation(const char *text, uint32_t *ret_operation, char *error) {
        char names[160];
        size_t length = 0;

        *ret_operation = options_operation_find(text);
        if (*ret_operation != UINT32_MAX)
                return OPTIONS_OK;
        for (uint32_t i = 0; i < OPERATIONS_MAX; i++)
                if (plan_algorithm_at(i, 1, 0) != PLAN_ALGORITHM_NONE)
                        length += (size_t)snprintf(names + length, sizeof(names) - length, "%s%s", length ? ", " : "",
                                                   plan_operation_name(i));
        return options_refuse(error, "unknown operation '%.40s'; use one of: %s", text, names);
}

/* NxG */
static int take_nodes(const char *text, struct options *o, char *error) {
        const char *by = strchr(text, 'x');
        char nodes[16] = "";

        if (by && (size_t)(by - text) < sizeof(nodes))
                memcpy(nodes, text, (size_t)(by - text));
        if (!by || parse_u32(nodes, &o->nodes) != 0 || parse_u32(by + 1, &o->gpus) != 0 || o->nodes < 1 ||
            o->gpus < 1 || o->nodes > GPU_RANKS_MAX || o->gpus > GPU_RANKS_MAX || o->nodes * o->gpus > GPU_RANKS_MAX)
                return options_refuse(
                        error, "--nodes: '%.40s' is not allowed; allowed: NxG, as 2x4, with at most %u ranks in all",
                        text, GPU_RANKS_MAX);
        return OPTIONS_OK;
}

static int take_option(int c, const char *text, struct options *o, char *error) {
        int r;

        switch (c) {
        case OPT_RANKS:
                o->ranks_given = true;
                return options_take_u32("--ranks", text, 1, PLAN_RANKS_MAX, &o->ranks, error);
        case OPT_TOPOLOGY:
                o->topology = text;
                return OPTIONS_OK;
        case OPT_HOST:
                o->host = true;
                return OPTIONS_OK;
        case OPT_WORKERS:
                return options_take_u32("--workers", text, 1, 4096, &o->workers, error);
        case 'b':
                return options_take_size("-b", text, GIB_MAX, &o->min_bytes, error);
        case 'e':
                return options_take_size("-e", text, GIB_MAX, &o->max_bytes, error);
        case 'f':
                return options_take_u32("-f", text, 2, 1u << 30, &o->factor, error);
        case OPT_SIZE:
                r = options_take_size("--size", text, GIB_MAX, &o->min_bytes, error);
                o->max_bytes = o->min_bytes;
                return r;
        case 'd':
                o->type = options_type_find(text);
                return o->type == UINT32_MAX
                               ? options_refuse(error, "unknown type '%.40s'; see railmux-sim --help", text)
                               : OPTIONS_OK;
        case 'r':
                return options_take_u32("-r", text, 0, PLAN_RANKS_MAX - 1, &o->root, error);
        case OPT_ALGORITHM:
                return take_algorithm(text, &o->algorithm, error);
        case OPT_CONSTANTS:
                o->constants = text;
                return OPTIONS_OK;
        case OPT_NODES:
                return take_nodes(text, o, error);
        case OPT_RAILS:
                return options_take_u32("--rails", text, 1, RAILS_MAX, &o->rails, error);
        case 'o':
                o->output = text;
                return OPTIONS_OK;
        case OPT_JSON:
                o->json = true;
                return OPTIONS_OK;
        case 'h':
                fputs(help_text, stdout);
                return OPTIONS_E_HELP;
        case OPT_VERSION:
                printf("railmux-sim %d.%d.%d\n", RMX_VERSION_MAJOR, RMX_VERSION_MINOR, RMX_VERSION_PATCH);
                return OPTIONS_E_HELP;
        default:
                return options_refuse(error, "wrong option; see railmux-sim --help");
        }
}

static int take_command(int n_words, char **words, struct options *o, char *error) {
        if (n_words < 1)
                return options_refuse(error, "an operation is needed; see railmux-sim --help");
        if (strcmp(words[0], "fit") == 0) {
                o->command = OPTIONS_FIT;
                o->files = words + 1;
                o->n_files = (uint32_t)n_words - 1;
                return n_words > 1 ? OPTIONS_OK : options_refuse(error, "fit needs results of railmux-perf -J");
        }
        if (strcmp(words[0], "choices") == 0) {
                o->command = OPTIONS_CHOICES;
                return n_words == 1 ? OPTIONS_OK : options_refuse(error, "choices: '%.40s' is too much", words[1]);
        }
        if (strcmp(words[0], "verify") == 0) {
                o->command = OPTIONS_VERIFY;
                n_words--;
                words++;
        }
        if (n_words != 1)
                return options_refuse(error, "exactly one operation is needed; see railmux-sim --help");
        return take_operation(words[0], &o->operation, error);
}

int options_parse(int argc, char **argv, struct options *ret_options, char ret_error[OPTIONS_ERROR_MAX]) {
        struct options o = {
                .ranks = 8, .min_bytes = 64u << 10, .max_bytes = UINT64_MAX, .factor = 2, .type = RMX_FLOAT32};
        int c, r;

        opterr = 0; /* one line, and it is ours */
        while ((c = getopt_long(argc, argv, "b:e:f:d:r:o:h", long_options, NULL)) != -1) {
                r = take_option(c, optarg, &o, ret_error);
                if (r)
                        return r;
        }
        r = take_command(argc - optind, argv + optind, &o, ret_error);
        if (r)
                return r;
        if (o.max_bytes == UINT64_MAX)
                o.max_bytes = o.min_bytes;
        if (o.min_bytes > o.max_bytes)
                return options_refuse(ret_error, "-b is larger than -e");
        if (o.topology && o.host)
                return options_refuse(ret_error, "--topology and --host exclude each other");
        if (o.output && o.command != OPTIONS_FIT)
                return options_refuse(ret_error, "-o is for fit only");
        if (o.nodes && o.command != OPTIONS_CHOICES)
                return options_refuse(ret_error,
                                      "--nodes is for choices only; with a topology (mi300x:8x8) plans are shown");
        if (o.nodes && (o.ranks_given || o.topology || o.host || (o.constants && !o.workers)))
                return options_refuse(ret_error,
                                      "--nodes says which ranks there are, and their constants are railmuxd's own");
        if (o.rails && !o.nodes)
                return options_refuse(ret_error, "--rails belongs to --nodes");
        if (o.nodes)
                o.ranks = o.nodes * o.gpus;
        o.rails = o.rails ? o.rails : 1;
        *ret_options = o;
        return OPTIONS_OK;
}
