/* SPDX-License-Identifier: MIT */
#include "tools/sim/cluster_run.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tools/sim/cluster_plan.h"
#include "tools/sim/options.h"
#include "util/parse.h"

enum { EXIT_RIGHT = 0, EXIT_USAGE = 2, EXIT_FAILED = 3 };
enum { OPT_NODES = 256, OPT_GPUS, OPT_ALGORITHM, OPT_ANY_TREE, OPT_JSON };

#define SIZES_MAX 64u

struct command {
        struct cluster cluster;
        struct cluster_form form;
        uint32_t operation;
        struct cluster_wish wish;
        struct cluster_table table;
        uint64_t sizes[SIZES_MAX];
        uint32_t n_sizes;
        bool json;
};

static const char help_text[] =
        "Usage: railmux-sim TOPOLOGY OP SIZE... [option...]\n"
        "Shows what a collective takes on many equal nodes, and how its algorithms compare.\n"
        "\n"
        "  TOPOLOGY              mi300x:NxG, h200:NxG, a100:NxG or host:NxG: N nodes with G GPUs each;\n"
        "                        pcie:2s-2rp-split-flat: two boxes of eight on a PCIe fabric of that form;\n"
        "                        FILE.json:NAME: a PCIe fabric from a file; FILE.xml: a node's topology\n"
        "  OP                    all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, all_to_all_v,\n"
        "                        gather, scatter or barrier\n"
        "  SIZE                  bytes of a request's count; K, M and G are powers of 1024; at most 64 sizes\n"
        "\n"
        "      --nodes N         so many nodes, at most 65536\n"
        "      --ranks-per-node G   so many GPUs of each, at most 128\n"
        "      --algorithm NAME  choose this one\n"
        "      --any-tree        choose also what adds in another order at other sizes\n"
        "      --json            print JSON (docs/schema/railmux-sim-cluster.json)\n"
        "  -h, --help            show this text\n"
        "\n"
        "A star marks what railmuxd chooses, or, of more ranks than it serves (64), the fastest by these formulas.\n";

static const struct option long_options[] = {
        {"nodes", required_argument, NULL, OPT_NODES},
        {"ranks-per-node", required_argument, NULL, OPT_GPUS},
        {"algorithm", required_argument, NULL, OPT_ALGORITHM},
        {"any-tree", no_argument, NULL, OPT_ANY_TREE},
        {"json", no_argument, NULL, OPT_JSON},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
};

/* Those over nodes. */
static int take_algorithm(const char *text, uint32_t *ret_algorithm, char *error) {
        char names[320];
        size_t length = 0;

        *ret_algorithm = strcmp(text, "rings") == 0 ? CLUSTER_RINGS : options_algorithm_find(text);
        if (*ret_algorithm != UINT32_MAX)
                return 0;
        for (uint32_t i = PLAN_HIERARCHICAL; i < PLAN_ALGORITHM_COUNT; i++)
                length += (size_t)snprintf(names + length, sizeof(names) - length, "%s, ", plan_algorithm_name(i));
        return options_refuse(error, "unknown algorithm '%.40s'; use one of: %srings", text, names);
}

/* ---- the command line -------------------------------------------------------------------------------------------- */
static int take_option(struct command *c, int option, char *error) {
        uint32_t n_nodes;
        int r;

        switch (option) {
        case OPT_NODES:
                n_nodes = c->cluster.n_nodes;
                r = options_take_u32("--nodes", optarg, 1, CLUSTER_NODES_MAX, &c->cluster.n_nodes, error);
                if (!r && c->form.boxes && c->cluster.n_nodes != n_nodes)
                        return options_refuse(error,
                                              "--nodes: this fabric joins %u boxes, and what crosses follows from it",
                                              n_nodes);
                return r;
        case OPT_GPUS:
                r = options_take_u32("--ranks-per-node", optarg, 1, CLUSTER_GPUS_MAX, &c->cluster.n_gpus, error);
                if (!r)
                        cluster_gpus(&c->cluster, c->cluster.n_gpus);
                if (!r && c->form.own_rails)
                        c->cluster.n_rails = c->cluster.n_gpus;
                return r;
        case OPT_ALGORITHM:
                return take_algorithm(optarg, &c->wish.algorithm, error);
        case OPT_ANY_TREE:
                c->wish.any_tree = true;
                return 0;
        case OPT_JSON:
                c->json = true;
                return 0;
        default:
                return options_refuse(error, "wrong option; see railmux-sim %s --help", c->cluster.name);
        }
}

static int take_words(struct command *c, int n, char **words, char *error) {
        uint64_t size;

        if (n < 1)
                return options_refuse(error, "an operation is needed, and sizes");
        c->operation = options_operation_find(words[0]);
        if (c->operation == UINT32_MAX || plan_operation_p2p(c->operation))
                return options_refuse(error, "'%.40s' is no operation of all ranks; use all_reduce or the like",
                                      words[0]);
        if (n < 2)
                return options_refuse(error, "%s: a size is needed, such as 1M", words[0]);
        for (int i = 1; i < n; i++) {
                if (c->n_sizes == SIZES_MAX)
                        return options_refuse(error, "more than %u sizes", SIZES_MAX);
                if (parse_size(words[i], &size) || size > UINT64_C(1) << 40)
                        return options_refuse(error, "'%.40s' is no size; write 65536, 64K, 1M or 1G", words[i]);
                c->sizes[c->n_sizes++] = size;
        }
        return 0;
}

static int command_parse(int argc, char **argv, struct command *c, char *error) {
        int r = cluster_load(argv[1], &c->cluster, &c->form, error, OPTIONS_ERROR_MAX), option;
        struct cluster_load load;

        opterr = 0;
        optind = 1;
        while (!r && (option = getopt_long(argc - 1, argv + 1, "h", long_options, NULL)) != -1)
                r = take_option(c, option, error);
        if (!r && c->cluster.n_nodes == 1 && c->form.host)
                return options_refuse(
                        error, "one node of the host backend is not predicted by formulas; see railmux-sim OP --host");
        if (!r && c->cluster.n_nodes == 1 && c->cluster.one.factor <= 0)
                return options_refuse(error, "%.80s: of one such node alone nothing is known, of two or more there is",
                                      c->cluster.name);
        if (!r)
                r = take_words(c, argc - 1 - optind, argv + 1 + optind, error);
        if (!r && c->wish.algorithm && cluster_load_of(&c->cluster, c->operation, c->wish.algorithm, 1, &load))
                return options_refuse(error, "%s has no algorithm %s there; those it has are shown without --algorithm",
                                      plan_operation_name(c->operation), cluster_algorithm_name(c->wish.algorithm));
        return r;
}

/* What each link of a GPU to another one of its node carries, if it has one to each. */
static double link_bytes(const struct cluster *cluster, const struct cluster_load *load) {
        return cluster->n_gpus > 1 ? load->local_bytes / (cluster->n_gpus - 1) : 0;
}

static const char *source(const struct command *c) {
        return c->cluster.n_nodes == 1 ? c->cluster.one.source : c->cluster.source;
}

/* Who says so. */
static const char *chosen_by(const struct cluster_look *look) {
        static const char *const names[] = {[CLUSTER_CHOSEN_RAILMUXD] = "railmuxd",
                                            [CLUSTER_CHOSEN_FORMULAS] = "formulas",
                                            [CLUSTER_CHOSEN_ASKED] = "--algorithm"};

        return names[look->chosen_by];
}

/* ---- text -------------------------------------------------------------------------------------------------------- */
static void print_star(const struct cluster_look *look) {
        const char *name = cluster_algorithm_name(look->algorithm);

        if (look->chosen_by == CLUSTER_CHOSEN_FORMULAS && look->chosen < look->n_choices)
                puts("* the fastest by these formulas");
        if (look->chosen_by != CLUSTER_CHOSEN_RAILMUXD)
                return;
        if (look->chosen == look->n_choices)
                printf("railmuxd chooses %s, for which there is no formula\n", name);
        else if (look->choices[look->chosen].algorithm != look->algorithm)
                printf("* railmuxd chooses %s, which sends the same between nodes\n", name);
        else
                puts("* what railmuxd chooses");
}

static void print_text(const struct command *c, const struct cluster_look *look) {
        const struct cluster *m = &c->cluster;

        const double rails = m->cuts[1] > 0 ? m->cuts[look->bound_part] : m->n_rails;

        printf("\n%s, %.0f bytes: ", plan_operation_name(c->operation), look->bytes);
        if (m->n_nodes == 1)
                printf("all of it stays in the node, hops too; what a GPU has, %.1f GB/s, takes %.2f us at least\n",
                       m->gpu_gbs * m->one.nominal, look->bound_ns / 1000);
        else if (m->cuts[1] > 0 && m->n_nodes > 2)
                printf("%u of the boxes have %g links of %.1f GB/s, which take %.2f us at least\n", look->bound_part,
                       rails, m->rail_gbs, look->bound_ns / 1000);
        else
                printf("the smallest cut around a node is %g rails of %.1f GB/s, which take %.2f us at least\n", rails,
                       m->rail_gbs, look->bound_ns / 1000);
        printf("  %-24s %5s %9s %14s %14s %11s %10s\n", "algorithm", "hops", "messages", "bytes/rail", "bytes/link",
               "us", "bus GB/s");
        for (uint32_t i = 0; i < look->n_choices; i++) {
                const struct cluster_choice *choice = &look->choices[i];

                printf("%s %-24s %5.0f %9.0f %14.0f %14.0f %11.2f %10.2f\n", i == look->chosen ? "*" : " ",
                       cluster_algorithm_name(choice->algorithm),
                       m->n_nodes == 1 ? choice->load.near_hops : choice->load.hops, choice->load.messages,
                       choice->load.rail_bytes, link_bytes(m, &choice->load), choice->ns / 1000,
                       cluster_bus_gbs(m, c->operation, look->bytes, choice->ns));
        }
        print_star(look);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */
static json_t *choice_json(const struct command *c, const struct cluster_look *look, uint32_t i) {
        const struct cluster_choice *choice = &look->choices[i];
        const struct cluster_load *l = &choice->load;

        return json_pack("{s:s, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "algorithm",
                         cluster_algorithm_name(choice->algorithm), "chosen", i == look->chosen, "hops", l->hops,
                         "near_hops", l->near_hops, "messages", l->messages, "gpu_bytes", l->gpu_bytes, "rail_bytes",
                         l->rail_bytes, "link_bytes", link_bytes(&c->cluster, l), "us", choice->ns / 1000, "bus_gbs",
                         cluster_bus_gbs(&c->cluster, c->operation, look->bytes, choice->ns));
}

static json_t *look_json(const struct command *c, const struct cluster_look *look, const struct cluster_plan *plan) {
        json_t *algorithms = json_array();

        for (uint32_t i = 0; i < look->n_choices; i++)
                json_array_append_new(algorithms, choice_json(c, look, i));
        return json_pack("{s:I, s:f, s:f, s:s, s:s?, s:o, s:o}", "bytes", (json_int_t)look->bytes, "bound_us",
                         look->bound_ns / 1000, "bound_bus_gbs",
                         cluster_bus_gbs(&c->cluster, c->operation, look->bytes, look->bound_ns), "chosen_by",
                         chosen_by(look), "railmuxd", look->algorithm ? cluster_algorithm_name(look->algorithm) : NULL,
                         "algorithms", algorithms, "plan", cluster_plan_json(plan));
}

static json_t *command_json(const struct command *c, json_t *results) {
        const struct cluster *m = &c->cluster;
        const bool one = m->n_nodes == 1;
        json_t *document;

        document = json_pack("{s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s}", "name", m->name, "nodes",
                             (int)m->n_nodes, "gpus", (int)m->n_gpus, "rails", (int)m->n_rails, "rail_gbs", m->rail_gbs,
                             "gpu_gbs", m->gpu_gbs, "base_ns", one ? 0 : m->base_ns, "hop_ns",
                             one ? m->one.hop_ns : m->hop_ns, "near_ns", m->near_ns, "message_ns", m->message_ns,
                             "wire_bytes_per_byte", one ? m->one.factor : m->factor, "constants", source(c));
        return json_pack("{s:i, s:o, s:s, s:o}", "version", CLUSTER_RUN_VERSION, "cluster", document, "operation",
                         plan_operation_name(c->operation), "results", results);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */
static int print_json(const struct command *c, json_t *results) {
        json_t *document = command_json(c, results);
        int r = document ? json_dumpf(document, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : -1;

        json_decref(document);
        putchar('\n');
        if (r == 0 || ferror(stdout)) /* main() says what could not be written */
                return EXIT_RIGHT;
        fprintf(stderr, "railmux-sim: out of memory\n");
        return EXIT_FAILED;
}

/* One size. */
static int run_size(const struct command *c, double bytes, json_t *results) {
        struct cluster_plan *plan = NULL;
        struct cluster_look look;
        int r;

        cluster_look(&c->cluster, c->operation, bytes, &c->wish, &look);
        r = cluster_plan_new(&c->cluster, &c->form, c->operation, &look, &plan);
        if (r < 0)
                return r;
        if (results) {
                json_array_append_new(results, look_json(c, &look, plan));
        } else {
                print_text(c, &look);
                cluster_plan_print(plan, look.chosen < look.n_choices ? &look.choices[look.chosen].load : NULL);
        }
        cluster_plan_free(plan);
        return 0;
}

int cluster_run(int argc, char **argv) {
        struct command c = {0};
        char error[OPTIONS_ERROR_MAX] = "the file has changed";
        json_t *results;
        int r;

        for (int i = 2; i < argc; i++)
                if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
                        fputs(help_text, stdout);
                        return EXIT_RIGHT;
                }
        r = command_parse(argc, argv, &c, error);
        c.wish.table = &c.table;
        if (!r && !c.wish.algorithm)
                r = cluster_table_make(&c.cluster, &c.form, c.wish.any_tree, &c.table);
        if (!r && !c.json)
                printf("%s: %u nodes, each with %u GPUs and %u rails of %.1f GB/s; %.1f GB/s from a GPU to the others "
                       "(%s)\n",
                       c.cluster.name, c.cluster.n_nodes, c.cluster.n_gpus, c.cluster.n_rails, c.cluster.rail_gbs,
                       c.cluster.gpu_gbs, source(&c));
        results = c.json ? json_array() : NULL;
        for (uint32_t i = 0; !r && i < c.n_sizes; i++)
                r = run_size(&c, (double)c.sizes[i], results);
        if (!r)
                return c.json ? print_json(&c, results) : EXIT_RIGHT;
        json_decref(results);
        fprintf(stderr, "railmux-sim: %s\n", r == OPTIONS_E_USAGE || r == -EINVAL ? error : strerror(-r));
        return r == OPTIONS_E_USAGE || r == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
}
