/* SPDX-License-Identifier: MIT */
/* The program railmux-sim: command line, exit status, and that its JSON is what its schema says. */
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cmocka_all.h"

#define OUTPUT_MAX (1u << 20)

extern char **environ;

static char out[OUTPUT_MAX], err[OUTPUT_MAX];

static void slurp(int fd, char *text) {
        ssize_t n = pread(fd, text, OUTPUT_MAX - 1, 0);

        assert_true(n >= 0 && n < OUTPUT_MAX - 1);
        text[n] = '\0';
        close(fd);
}

/* One command line, words parted by single spaces. The output goes to `path`; "": to `out`; NULL: it is closed. Returns
 * the exit status. */
static int run_into(const char *line, const char *path) {
        int fds[2] = {memfd_create("out", MFD_CLOEXEC), memfd_create("err", MFD_CLOEXEC)}, status;
        char words[512], *argv[24] = {"railmux-sim"}, *rest = words, *word;
        posix_spawn_file_actions_t actions;
        size_t n = 1;
        pid_t pid;

        snprintf(words, sizeof(words), "%s", line);
        while ((word = strsep(&rest, " ")) && n < 23)
                if (*word)
                        argv[n++] = word;
        argv[n] = NULL;
        assert_true(fds[0] >= 0 && fds[1] >= 0);
        posix_spawn_file_actions_init(&actions);
        if (!path)
                posix_spawn_file_actions_addclose(&actions, 1);
        else if (*path)
                posix_spawn_file_actions_addopen(&actions, 1, path, O_WRONLY, 0);
        else
                posix_spawn_file_actions_adddup2(&actions, fds[0], 1);
        posix_spawn_file_actions_adddup2(&actions, fds[1], 2);
        assert_int_equal(posix_spawn(&pid, RAILMUX_SIM, &actions, NULL, argv, environ), 0);
        posix_spawn_file_actions_destroy(&actions);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        slurp(fds[0], out);
        slurp(fds[1], err);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

/* The same into `out`. */
static int run(const char *line) {
        return run_into(line, "");
}

/* ---- a schema checker for the words our schemas use -------------------------------------------------------------- */
static bool is_type(const json_t *value, const char *type) {
        return (strcmp(type, "object") == 0 && json_is_object(value)) ||
               (strcmp(type, "array") == 0 && json_is_array(value)) ||
               (strcmp(type, "string") == 0 && json_is_string(value)) ||
               (strcmp(type, "boolean") == 0 && json_is_boolean(value)) ||
               (strcmp(type, "integer") == 0 && json_is_integer(value)) ||
               (strcmp(type, "number") == 0 && json_is_number(value)) ||
               (strcmp(type, "null") == 0 && json_is_null(value));
}

static bool has_type(const json_t *value, const json_t *types) {
        const json_t *item;
        size_t i;

        if (json_is_string(types))
                return is_type(value, json_string_value(types));
        json_array_foreach(types, i, item) {
                if (is_type(value, json_string_value(item)))
                        return true;
        }
        return false;
}

/* NULL: right; else what is wrong. */
static const char *wrong(json_t *value, const json_t *schema) {
        const json_t *types = json_object_get(schema, "type"), *item, *minimum = json_object_get(schema, "minimum");
        const json_t *constant = json_object_get(schema, "const"), *allowed = json_object_get(schema, "enum");
        const char *name, *problem = NULL;
        bool found = !allowed;
        json_t *member;
        size_t i;

        if (types && !has_type(value, types))
                return "a value of the wrong type";
        if (constant && !json_equal(value, constant))
                return "a constant that is another";
        json_array_foreach(allowed, i, item) {
                found |= json_equal(value, item) != 0;
        }
        if (!found)
                return "a value that is not listed";
        if (minimum && json_is_number(value) && json_number_value(value) < json_number_value(minimum))
                return "a number that is too small";
        json_array_foreach(json_object_get(schema, "required"), i, item) {
                if (json_is_object(value) && !json_object_get(value, json_string_value(item)))
                        return json_string_value(item);
        }
        if (json_object_get(schema, "properties"))
                json_object_foreach(value, name, member) {
                        item = json_object_get(json_object_get(schema, "properties"), name);
                        problem = item ? wrong(member, item) : name; /* what we write the schema should describe */
                        if (problem)
                                return problem;
                }
        if (json_object_get(schema, "items"))
                json_array_foreach(value, i, member) {
                        problem = wrong(member, json_object_get(schema, "items"));
                        if (problem)
                                return problem;
                }
        return NULL;
}

static const char *check_schema(json_t *document, const char *name) {
        json_t *schema;
        char path[512];
        static char problem[128];

        snprintf(path, sizeof(path), "%s/%s.json", SCHEMA_DIR, name);
        schema = json_load_file(path, 0, NULL);
        assert_non_null(schema);
        assert_non_null(document);
        snprintf(problem, sizeof(problem), "%s", wrong(document, schema) ? wrong(document, schema) : "");
        json_decref(schema);
        return problem;
}

static json_t *run_json(const char *line) {
        json_t *document;

        assert_int_equal(run(line), 0);
        document = json_loads(out, 0, NULL);
        if (!document)
                fail_msg("railmux-sim %s prints no JSON", line);
        return document;
}

static void test_json(void **state) {
        static const char *const lines[] = {
                "all_reduce --json",
                "all_reduce --json --algorithm all --ranks 5 -b 1 -e 1M -f 16",
                "all_reduce --json --ranks 1 --size 0",
                "reduce_scatter --json --ranks 4 --algorithm halving_doubling -d bf16",
                "broadcast --json --host --ranks 3 -r 2",
                "send --json --ranks 2 -r 1",
                "barrier --json --algorithm all",
                "all_to_all_v --json --algorithm all -d fp64",
                "choices --json --ranks 64",
                "choices --json --nodes 2x4 --rails 4",
                "choices --json --nodes 4x4 --workers 3 --rails 2",
                "choices --nodes 8x1 --json",
                "choices --nodes 1x8 --json",
                "all_reduce --json --algorithm all --topology " FIXTURES "/h200-8x8.xml",
                "all_reduce --json --topology " FIXTURES "/pci-2s-2rp-split-flat.xml",
                "verify all_reduce --json --ranks 3",
                "verify gather --json --algorithm direct",
        };
        json_t *document, *candidate;

        (void)state;
        for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
                document = run_json(lines[i]);
                if (*check_schema(document, "railmux-sim"))
                        fail_msg("railmux-sim %s: %s", lines[i], check_schema(document, "railmux-sim"));
                json_decref(document);
        }
        /* The checker can say no. */
        document = run_json("all_reduce --json");
        candidate = json_array_get(
                json_object_get(json_array_get(json_object_get(document, "results"), 0), "candidates"), 0);
        json_object_set_new(candidate, "hops", json_integer(-1));
        assert_string_equal(check_schema(document, "railmux-sim"), "a number that is too small");
        json_object_del(candidate, "hops");
        assert_string_equal(check_schema(document, "railmux-sim"), "hops");
        json_object_set_new(candidate, "hops", json_string("many"));
        assert_string_equal(check_schema(document, "railmux-sim"), "a value of the wrong type");
        json_object_set_new(candidate, "hops", json_integer(1));
        json_object_set_new(candidate, "skips", json_integer(1));
        assert_string_equal(check_schema(document, "railmux-sim"), "skips");
        json_decref(document);
}

static json_int_t number(const json_t *object, const char *name) {
        return json_integer_value(json_object_get(object, name));
}

/* What each rail and link carries adds up to what the plan sends, and the busiest rail is that of the table. */
static void test_cluster_loads(void **state) {
        json_t *document = run_json("mi300x:4x8 gather 1M --json"), *plan, *nodes, *node, *rails;
        const json_t *result = json_array_get(json_object_get(document, "results"), 0), *rail;
        json_int_t out_bytes = 0, in_bytes = 0;
        size_t i, k;

        (void)state;
        assert_string_equal(check_schema(document, "railmux-sim-cluster"), "");
        plan = json_object_get(result, "plan");
        assert_string_equal(json_string_value(json_object_get(plan, "algorithm")), "direct");
        assert_int_equal(json_array_size(json_object_get(plan, "phases")), 3);
        nodes = json_object_get(plan, "nodes");
        assert_int_equal(json_array_size(nodes), 4);
        json_array_foreach(nodes, i, node) {
                rails = json_object_get(node, "rails");
                assert_int_equal(json_array_size(rails), 8);
                json_array_foreach(rails, k, rail) {
                        out_bytes += number(rail, "bytes_out");
                        in_bytes += number(rail, "bytes_in");
                        assert_int_equal(number(rail, "bytes_in"), i == 0 ? 3 << 20 : 0);
                }
                assert_int_equal(json_array_size(json_object_get(node, "links")), i == 0 ? 7 : 0);
        }
        assert_true(out_bytes == in_bytes && in_bytes == 24 << 20);
        json_decref(document);
        /* On the links of a file: all 28 of them, alike on both nodes. */
        document = run_json(FIXTURES "/mi300x-8x8.xml all_reduce 1M --json");
        assert_string_equal(check_schema(document, "railmux-sim-cluster"), "");
        plan = json_object_get(json_array_get(json_object_get(document, "results"), 0), "plan");
        node = json_array_get(json_object_get(plan, "nodes"), 1);
        assert_int_equal(json_array_size(json_object_get(node, "physical_links")), 28);
        assert_true(json_equal(node, json_array_get(json_object_get(plan, "nodes"), 0)));
        json_decref(document);
        /* Of boxes in one file too, between them over the PCI links. */
        document = run_json(FIXTURES "/pci-2s-2rp-split-flat.xml all_gather 1M --json");
        assert_string_equal(check_schema(document, "railmux-sim-cluster"), "");
        plan = json_object_get(json_array_get(json_object_get(document, "results"), 0), "plan");
        node = json_array_get(json_object_get(plan, "nodes"), 0);
        assert_int_equal(json_array_size(json_object_get(node, "rails")), 0);
        assert_true(json_array_size(json_object_get(node, "physical_links")) > 56);
        json_decref(document);
        assert_int_equal(run("mi300x:4x8 broadcast 1M"), 0);
        assert_non_null(strstr(out, "\nPlan broadcast hierarchical_staged\n  0 pass    the root pushes each shard"));
        assert_non_null(strstr(out, "\n  node 0:\n  rail "));
        assert_non_null(strstr(out, "\n  nodes 1-3, each:\n  rail "));
        assert_non_null(strstr(out, "\n  0-7, each                                393216              0"));
        assert_int_equal(run("mi300x:1024x8 all_reduce 1M"), 0);
        assert_non_null(strstr(out, ", phases as of 8 nodes with 8 GPUs\n  0 pass    ranks of a node wait"));
        assert_non_null(strstr(out, "  none of 8192 rails carries more than 261888 bytes\n"));
        /* One node alone has no rails. */
        assert_int_equal(run("h200:1x128 all_gather 1M"), 0);
        assert_non_null(strstr(out, ", phases as of 1 node with 16 GPUs\n"));
        assert_null(strstr(out, "carries more than"));
        assert_int_equal(run("mi300x:4x8 all_reduce 1M --algorithm rings"), 0);
        assert_null(strstr(out, "\nPlan "));
        assert_int_equal(run("h200:1x8 all_reduce 1M"), 0);
        assert_non_null(strstr(out, "what a GPU has, 450.0 GB/s, takes 4.08 us at least\n"));
        assert_non_null(strstr(out, "56 of 56 pairs of its GPUs are used, each: 262144 bytes\n"));
        /* More GPUs than the file has are not on its links. */
        assert_int_equal(run(FIXTURES "/mi300x-8x8.xml all_reduce 1M --ranks-per-node 16"), 0);
        assert_non_null(strstr(out, "240 of 240 pairs"));
        /* Nor is a part of each box, whose GPUs are not the first ones of the file. */
        document = run_json(FIXTURES "/pci-1s-2rp-std-cascade.xml all_reduce 1M --ranks-per-node 4 --json");
        assert_string_equal(check_schema(document, "railmux-sim-cluster"), "");
        plan = json_object_get(json_array_get(json_object_get(document, "results"), 0), "plan");
        node = json_array_get(json_object_get(plan, "nodes"), 0);
        assert_int_equal(json_array_size(json_object_get(node, "physical_links")), 0);
        assert_int_equal(json_array_size(json_object_get(node, "links")), 56);
        json_decref(document);
}

static void test_cluster_json(void **state) {
        static const char *const lines[] = {
                "mi300x:8x8 all_reduce 8K 1M 64M --json",
                "h200:4x8 barrier 0 --json",
                "pcie:2s-2rp-split-flat all_gather 1G --json --algorithm rings",
                "host:3x2 broadcast 1 --json --any-tree",
                "h200:1x1 all_to_all_v 1M --json",
                "mi300x:8x8 --nodes 1024 --ranks-per-node 4 gather 1M --json",
        };
        json_t *document, *cluster, *algorithms, *rings = NULL;

        (void)state;
        for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
                document = run_json(lines[i]);
                if (*check_schema(document, "railmux-sim-cluster"))
                        fail_msg("railmux-sim %s: %s", lines[i], check_schema(document, "railmux-sim-cluster"));
                cluster = json_object_get(document, "cluster");
                if (i == 5)
                        assert_true(json_integer_value(json_object_get(cluster, "nodes")) == 1024 &&
                                    json_integer_value(json_object_get(cluster, "rails")) == 4);
                json_decref(document);
        }
        /* Rings of one GPU move nothing, in no time. */
        document = run_json("h200:1x1 all_reduce 1M --json --algorithm rings");
        assert_string_equal(check_schema(document, "railmux-sim-cluster"), "");
        algorithms = json_object_get(json_array_get(json_object_get(document, "results"), 0), "algorithms");
        for (size_t i = 0; !rings && i < json_array_size(algorithms); i++)
                if (json_is_true(json_object_get(json_array_get(algorithms, i), "chosen")))
                        rings = json_array_get(algorithms, i);
        assert_non_null(rings);
        assert_string_equal(json_string_value(json_object_get(rings, "algorithm")), "rings");
        assert_true(json_real_value(json_object_get(rings, "bus_gbs")) == 0);
        json_decref(document);
        assert_int_equal(run("mi300x:1x1 all_gather 1M"), 0);
        assert_non_null(strstr(out, " rings "));
        assert_null(strstr(out, "nan"));
        assert_int_equal(run("mi300x:8x8 all_reduce 1M"), 0);
        assert_non_null(strstr(out, "* hierarchical_scatter"));
        assert_non_null(strstr(out, "\n* railmuxd chooses hierarchical_staged_scatter, which sends the same between"));
        /* What the table of `choices` says, and not what these formulas would. */
        assert_int_equal(run("mi300x:2x8 all_reduce 256M"), 0);
        assert_non_null(strstr(out, "* hierarchical_scatter"));
        assert_int_equal(run("mi300x:4x8 broadcast 1M"), 0);
        assert_non_null(strstr(out, "* hierarchical "));
        assert_int_equal(run("host:2x4 broadcast 512"), 0);
        assert_non_null(strstr(out, "\nrailmuxd chooses ring, for which there is no formula\n"));
        assert_int_equal(run("mi300x:2x1 all_reduce 512"), 0);
        assert_non_null(strstr(out, "\n* what railmuxd chooses\n"));
        assert_int_equal(run("h200:1x8 all_reduce 1M"), 0);
        assert_non_null(strstr(out, "(all_reduce of 8 H200, 256 KiB and 64 MiB)"));
        assert_non_null(strstr(out, "stays in the node"));
        assert_null(strstr(out, "hierarchical"));
        /* What nobody knows is not made up. */
        assert_int_equal(run("a100:1x8 all_reduce 1M"), 2);
        assert_non_null(strstr(err, "of one such node alone nothing is known"));
        assert_int_equal(run("host:1x4 all_reduce 1M"), 2);
        assert_non_null(strstr(err, "railmux-sim OP --host"));
        assert_int_equal(run("pcie:2s-2rp-split-flat all_reduce 1M --nodes 1"), 2);
        assert_int_equal(run("mi300x:64x8 all_reduce 1M"), 0);
        assert_non_null(strstr(out, "\n* the fastest by these formulas\n"));
        assert_int_equal(run("mi300x:8x8 all_reduce 1M --algorithm two_shot"), 0);
        assert_non_null(strstr(out, "* two_shot"));
        assert_int_equal(run("mi300x:8x8 --help"), 0);
        assert_non_null(strstr(out, "Usage: railmux-sim TOPOLOGY"));
}

/* Nodes need not have names in XML; their links still say what they join. */
static void test_nameless(void **state) {
        static const char text[] = "<railmux-topology version=\"1\" cpus=\"1\"><gpu index=\"0\"/><gpu index=\"1\"/>"
                                   "<link a=\"gpu0\" b=\"gpu1\" kind=\"nvlink\" bytes_per_second=\"450000000000\"/>"
                                   "</railmux-topology>";
        char path[] = "/tmp/railmux-nameless-XXXXXX", line[256];
        int fd = mkstemp(path);

        (void)state;
        assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
        close(fd);
        snprintf(line, sizeof(line), "all_reduce --size 1M --topology %s", path);
        assert_int_equal(run(line), 0);
        assert_non_null(strstr(out, "\n  gpu0 - gpu1 "));
        assert_non_null(strstr(out, "\n  gpu1 - all "));
        assert_non_null(strstr(out, "\nAt least 2.33 us, whatever the algorithm: the smallest cut, around one rank, is "
                                    "450.0 GB/s; bus 450.00 GB/s at most\n"));
        snprintf(line, sizeof(line), "all_reduce --json --size 1M --topology %s", path);
        assert_int_equal(run(line), 0);
        assert_non_null(strstr(out, "\"a\": \"gpu0\""));
        assert_non_null(strstr(out, "\"bound_bus_gbs\": 450.0,"));
        unlink(path);
}

static void test_text(void **state) {
        (void)state;
        assert_int_equal(run("all_reduce --ranks 4 --size 1M --algorithm all"), 0);
        assert_string_equal(err, "");
        assert_non_null(strstr(out, "4 of 12 pairs are used, each: 1572864 bytes")); /* ring: 2 (n - 1) / n */
        assert_non_null(strstr(out, "Chosen: "));
        assert_non_null(strstr(out, "(GB/s)"));
        assert_null(strstr(out, "At least")); /* without a topology */
        assert_non_null(strstr(out, "reduction: ((x0 + x1) + x2) + x3"));
        assert_int_equal(run("choices --ranks 2"), 0);
        assert_non_null(strstr(out, "all_to_all_v "));
        assert_int_equal(run("verify barrier"), 0);
        assert_non_null(strstr(out, "barrier direct, 8 ranks: accepted"));
        assert_int_equal(run("--version"), 0);
        assert_non_null(strstr(out, "railmux-sim "));
        assert_int_equal(run("--help"), 0);
        assert_non_null(strstr(out, "Usage: railmux-sim"));
}

/* What a table of docs/plans.md says of an operation: "staged to 64K, staged_scatter". */
static void cell(const json_t *document, const char *operation, uint32_t widening, char text[128]) {
        const json_t *choices = json_object_get(document, "choices"), *choice;
        size_t i, n = 0;

        *text = 0;
        json_array_foreach(choices, i, choice) {
                const char *name = json_string_value(json_object_get(choice, "algorithm"));
                const json_int_t wide = json_integer_value(json_object_get(choice, "widening"));
                const json_t *most = json_object_get(choice, "max_bytes");
                const json_int_t bytes = json_integer_value(most);
                const bool whole = bytes < 1024 || bytes % 1024 == 0;

                if (strcmp(json_string_value(json_object_get(choice, "operation")), operation) != 0 ||
                    (wide && wide != widening))
                        continue;
                n += (size_t)snprintf(text + n, 128 - n, "%s%s", n ? ", " : "",
                                      strncmp(name, "hierarchical_", 13) == 0 ? name + 13 : name);
                if (!json_is_null(most))
                        n += (size_t)snprintf(text + n, 128 - n, " to %.*f%s", whole ? 0 : 1,
                                              (double)bytes / (bytes < 1024 ? 1 : 1024), bytes < 1024 ? "" : "K");
        }
}

static const char *plans_md(void) {
        static char text[1u << 18];
        FILE *file = fopen(PLANS_MD, "re");

        assert_non_null(file);
        assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
        fclose(file);
        return text;
}

/* A row of docs/plans.md on three tables. */
static void check_row(const char *title, json_t *const documents[3], const char *operation, uint32_t widening) {
        char row[512], cells[3][128];

        for (uint32_t i = 0; i < 3; i++)
                cell(documents[i], operation, widening, cells[i]);
        snprintf(row, sizeof(row), "\n| %s | %s | %s | %s |\n", title, cells[0], cells[1], cells[2]);
        if (!strstr(plans_md(), row))
                fail_msg("docs/plans.md has no row: %s", row);
}

/* Of the host backend, on one node and over several. */
static void test_host(void **state) {
        static const char *const lines[2][3] = {
                {"choices --json --workers 2 --ranks 2", "choices --json --workers 2 --ranks 8",
                 "choices --json --workers 2 --ranks 64"},
                {"choices --json --workers 2 --nodes 2x2", "choices --json --workers 2 --nodes 2x4",
                 "choices --json --workers 2 --nodes 4x2"},
        };
        static const char *const operations[] = {"all_reduce",     "reduce",     "broadcast",    "all_gather",
                                                 "reduce_scatter", "all_to_all", "all_to_all_v", "gather",
                                                 "scatter",        "send",       "barrier"};
        static const char *const sums[] = {"all_reduce of fp32", "of bf16", "of fp8"};
        json_t *documents[3];

        (void)state;
        for (uint32_t nodes = 0; nodes < 2; nodes++) {
                for (uint32_t i = 0; i < 3; i++)
                        documents[i] = run_json(lines[nodes][i]);
                for (size_t k = nodes; k < (nodes ? 3 : sizeof(operations) / sizeof(operations[0])); k++)
                        check_row(operations[k], documents, operations[k], 1);
                for (uint32_t k = 0; nodes && k < 3; k++)
                        check_row(sums[k], documents, "all_reduce", 1u << k);
                for (uint32_t i = 0; i < 3; i++)
                        json_decref(documents[i]);
        }
        assert_int_equal(run("choices --nodes 2x4 --workers 2"), 0);
        assert_non_null(strstr(out, "# 2 nodes of 4 ranks, 2 at once on each, 1 rail; between nodes"));
        assert_non_null(strstr(out,
                               "all_reduce      hierarchical                all sizes, sums as long as elements\n"
                               "                hierarchical                up to 128 KiB, sums 2 times as long as "
                               "elements\n"
                               "                hierarchical_scatter        above 128 KiB, sums 2 times as long as "
                               "elements\n"));
        assert_non_null(strstr(out, "reduce          hierarchical                all sizes\n"));
        assert_int_equal(run("choices --nodes 1x4 --workers 2"), 0);
        assert_non_null(strstr(out, "# 4 ranks, 2 at once, parts of 64 KiB"));
}

static void test_nodes(void **state) {
        static const char *const lines[] = {"choices --json --nodes 2x2", "choices --json --nodes 2x4",
                                            "choices --json --nodes 4x2"};
        static const char *const operations[] = {"all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather"};
        json_t *documents[3];
        char row[512], cells[3][128], again[128];

        (void)state;
        for (uint32_t i = 0; i < 3; i++)
                documents[i] = run_json(lines[i]);
        for (size_t k = 0; k < sizeof(operations) / sizeof(operations[0]); k++) {
                for (uint32_t i = 0; i < 3; i++)
                        cell(documents[i], operations[k], 2, cells[i]);
                snprintf(row, sizeof(row), "%s | %s | %s | %s |\n", operations[k], cells[0], cells[1], cells[2]);
                if (strncmp(operations[k], "reduce", 6) == 0) { /* the document has them in one row */
                        cell(documents[0], "reduce", 2, again);
                        assert_string_equal(cells[0], again);
                        snprintf(row, sizeof(row), "| reduce, reduce_scatter | %s | %s | %s |\n", cells[0], cells[1],
                                 cells[2]);
                }
                if (!strstr(plans_md(), row))
                        fail_msg("docs/plans.md has no row: %s", row);
        }
        for (uint32_t i = 0; i < 3; i++)
                json_decref(documents[i]);
        assert_int_equal(run("choices --nodes 2x1 --rails 4"), 0);
        assert_non_null(strstr(out, "# 2 nodes of 1 GPU, 4 rails"));
        assert_non_null(strstr(out, "all_reduce      one_shot                    all sizes\n"));
}

/* Into what is always full every form of output fails, and says so. */
static void test_full(void **state) {
        static const char *const lines[] = {
                "all_reduce",
                "all_reduce -b 1 -e 1G", /* more than stdio holds back */
                "all_reduce --json",
                "choices",
                "choices --json",
                "verify barrier",
                "--help",
                "--version",
                "mi300x:8x8 all_reduce 1M",
                "mi300x:8x8 all_reduce 1M --json",
                "mi300x:8x8 --help",
        };

        (void)state;
        for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
                if (run_into(lines[i], "/dev/full") != 3)
                        fail_msg("railmux-sim %s > /dev/full: %s", lines[i], err);
                assert_string_equal(err, "railmux-sim: cannot write to standard output: No space left on device\n");
        }
        assert_int_equal(run_into("all_reduce", NULL), 3);
        assert_string_equal(err, "railmux-sim: cannot write to standard output: Bad file descriptor\n");
}

/* Why a plan is chosen: what adds in another order is no candidate, and nothing is divided by nothing. */
static void test_why(void **state) {
        char constants[] = "/tmp/railmux-constants-XXXXXX", line[256];
        int fd = mkstemp(constants);
        static const char zeros[] = "{\"version\": 1, \"constants\": {\"request_ns\": 0, \"hop_ns\": 0,"
                                    " \"ns_per_phase\": 0, \"ns_per_chunk\": 0, \"ns_per_signal\": 0,"
                                    " \"ns_per_byte_copy\": 0, \"ns_per_byte_reduce\": 0, \"ns_per_byte_fold\": 0,"
                                    " \"ns_per_turn\": 0}}";

        (void)state;
        assert_int_equal(run("all_reduce --ranks 8 --host --workers 2 --size 1K"), 0);
        assert_non_null(strstr(out, "Chosen: zero_copy; "));
        assert_non_null(strstr(out, "the next best, one_shot, takes ") ? out
                                                                       : strstr(out, "the next best, two_shot, "));
        assert_int_equal(run("all_reduce --ranks 64 --size 0"), 0);
        assert_non_null(strstr(out, "but adds in another order\n"));
        assert_null(strstr(out, "is too little"));
        assert_int_equal(run("all_reduce --size 1M --topology " FIXTURES "/h200-8x8.xml"), 0);
        assert_non_null(strstr(out, "# 8 ranks on GPUs, "));
        assert_non_null(
                strstr(out, "\n# predicted: 4.15 us a hop and 1.56 times what the busiest link takes (all_reduce"));
        assert_null(strstr(out, "not predicted"));
        assert_non_null(strstr(out, "Chosen: two_shot; "));
        assert_int_equal(run("all_reduce --topology " FIXTURES "/pci-2s-2rp-split-flat.xml --size 1M"), 0);
        assert_non_null(strstr(out, "\n# times are not predicted, as nothing is known of such GPUs; "));
        assert_int_equal(write(fd, zeros, strlen(zeros)), strlen(zeros));
        close(fd);
        snprintf(line, sizeof(line), "all_reduce --constants %s", constants);
        assert_int_equal(run(line), 0);
        assert_null(strstr(out, "nan"));
        unlink(constants);
}

static void test_sizes(void **state) {
        (void)state;
        assert_int_equal(run("barrier -b 512G -e 1024G -f 33554432"), 0);
        assert_non_null(strstr(out, "barrier, 512 GiB"));
        assert_ptr_equal(strstr(out, "\nbarrier, "), strstr(out, "\nbarrier, 512 GiB"));
        assert_null(strstr(strstr(out, "\nbarrier, ") + 1, "\nbarrier, "));
        assert_int_equal(run("barrier -b 0 -e 3 -d int8"), 0);
        assert_non_null(strstr(out, "\nbarrier, 2 B")); /* 0, 1, 2 */
        assert_int_equal(run("host:4x1 all_reduce 1M --ranks-per-node 8"), 0);
        assert_non_null(strstr(out, "each with 8 GPUs and 1 rails"));
        assert_int_equal(run("mi300x:4x1 all_reduce 1M --ranks-per-node 8"), 0);
        assert_non_null(strstr(out, "each with 8 GPUs and 8 rails"));
        assert_int_equal(run("pcie:2s-2rp-split-flat all_gather 1M --nodes 2"), 0);
        assert_int_equal(run("choices --nodes 1x8"), 0);
        assert_non_null(strstr(out, "# 1 node of 8 GPUs\n"));
        assert_non_null(strstr(out, "all_reduce      one_shot                    up to 16 KiB\n"));
        assert_non_null(strstr(out, "two_shot                    above 16 KiB\n"));
}

static void test_usage(void **state) {
        static const struct {
                const char *line, *says;
        } bad[] = {
                {"", "an operation is needed"},
                {"recv", "unknown operation"},
                {"none", "unknown operation"},
                {"all_reduce extra", "exactly one"},
                {"choices extra", "too much"},
                {"choices --nodes 2", "allowed: NxG"},
                {"choices --nodes 0x8", "allowed: NxG"},
                {"choices --nodes 2x0", "allowed: NxG"},
                {"choices --nodes 8x9", "at most 64"},
                {"choices --nodes 65536x65536", "at most 64"},
                {"choices --nodes 11111111111111111111x1", "allowed: NxG"},
                {"choices --nodes 2x4 --ranks 8", "which ranks"},
                {"choices --nodes 2x4 --constants /dev/null", "railmuxd's own"},
                {"all_reduce --nodes 2x4", "choices only"},
                {"choices --rails 2", "belongs to --nodes"},
                {"choices --nodes 2x4 --rails 17", "1 to 16"},
                {"verify", "exactly one"},
                {"fit", "railmux-perf"},
                {"fit /nowhere", "railmux-sim: /nowhere: No such file or directory\n"},
                {"fit /tmp", "railmux-sim: /tmp: Is a directory\n"},
                {"all_reduce --ranks 0", "1 to 64"},
                {"all_reduce --ranks 65", "1 to 64"},
                {"all_reduce --size x", "no size"},
                {"all_reduce -b 2M -e 1M", "-b is larger"},
                {"all_reduce -f 1", "2 to"},
                {"all_reduce -d fp31", "unknown type"},
                {"all_reduce --algorithm best", "unknown algorithm"},
                {"all_reduce --algorithm direct", "does not exist"},
                {"verify reduce_scatter --ranks 3 --algorithm halving_doubling", "does not exist"},
                {"broadcast -r 8", "0 to 7"},
                {"all_reduce --host --topology x", "exclude"},
                {"all_reduce --topology /nowhere", "railmux-sim: /nowhere: No such file or directory\n"},
                {"all_reduce --topology /dev/null", "railmux-sim: /dev/null: it is no regular file\n"},
                {"all_reduce --constants /dev/null", "/dev/null"},
                {"all_reduce --constants /nowhere", "railmux-sim: /nowhere: No such file or directory\n"},
                {"all_reduce -o x", "fit only"},
                {"all_reduce --workers 0", "1 to"},
                {"all_reduce --nonsense", "wrong option"},
                {"mi300x:8x8", "an operation is needed"},
                {"mi300x:8x8 all_reduce", "a size is needed"},
                {"mi300x:8x8 all_reduce many", "no size"},
                {"mi300x:8x8 send 1M", "no operation of all ranks"},
                {"mi300x:8 all_reduce 1M", "8x8"},
                {"mi300x:8x8 all_reduce 1M --nodes 0", "allowed: 1 to"},
                {"mi300x:8x8 all_reduce 1M --ranks-per-node 1000", "allowed: 1 to"},
                {"mi300x:8x8 all_reduce 1M --algorithm best", "unknown algorithm"},
                {"mi300x:8x8 all_reduce 1M --nonsense", "wrong option"},
                {"pcie:round all_reduce 1M", "no PCIe fabric"},
                {"/nowhere.json:x all_reduce 1M", "/nowhere.json"},
                {"/nowhere.xml all_reduce 1M", "railmux-sim: /nowhere.xml: No such file or directory\n"},
                {"h100:2x8 all_reduce 1M",
                 "'h100' is neither a kind nor a file; allowed: h200, a100, mi300x, host and pcie, "
                 "or a file of fabrics"},
                {"mi300x:8x8 all_gather 1M --algorithm hierarchical_tree", "has no algorithm hierarchical_tree"},
                {"mi300x:8x8 all_reduce 1M --algorithm ring", "has no algorithm ring"},
                {"pcie:2s-2rp-split-flat all_gather 1M --nodes 4", "joins 2 boxes"},
                {FIXTURES "/pci-2s-2rp-split-flat.xml all_gather 1M --nodes 4", "joins 2 boxes"},
                {"send --topology " FIXTURES "/h200-8x8.xml", "GPUs have no plan for this operation"},
                {"/tmp:round all_reduce 1M", "railmux-sim: /tmp: Is a directory\n"},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                if (run(bad[i].line) != 2 || !strstr(err, bad[i].says))
                        fail_msg("railmux-sim %s: %s", bad[i].line, err);
                assert_string_equal(out, "");
                assert_ptr_equal(strchr(err, '\n'), err + strlen(err) - 1); /* one line */
        }
}

static void test_fit(void **state) {
        static const char text[] = "{\"results\": ["
                                   "{\"op\": \"all_reduce\", \"ranks\": 4, \"type\": \"fp32\", \"count\": 1000000,"
                                   " \"p50_us\": 5000, \"time_us\": 5000},"
                                   "{\"op\": \"all_reduce\", \"ranks\": 4, \"type\": \"fp32\", \"count\": 100,"
                                   " \"p50_us\": 20, \"time_us\": 20}]}";
        static const char ring[] = "{\"results\": ["
                                   "{\"op\": \"sendrecv\", \"ranks\": 2, \"type\": \"fp32\", \"count\": 100,"
                                   " \"p50_us\": 20, \"time_us\": 20}]}";
        char dir[] = "/tmp/railmux-sim-XXXXXX", perf[64], constants[64], line[256];
        json_t *document;
        int fds[2];
        FILE *file;

        (void)state;
        assert_non_null(mkdtemp(dir));
        snprintf(perf, sizeof(perf), "%s/perf.json", dir);
        snprintf(constants, sizeof(constants), "%s/constants.json", dir);
        file = fopen(perf, "we");
        assert_non_null(file);
        fputs(text, file);
        fclose(file);
        snprintf(line, sizeof(line), "fit --workers 2 -o %s two_shot=%s", constants, perf);
        assert_int_equal(run(line), 0);
        assert_string_equal(out, "");
        assert_non_null(strstr(err, "2 lines"));
        document = json_load_file(constants, 0, NULL);
        assert_string_equal(check_schema(document, "railmux-constants"), "");
        json_decref(document);
        snprintf(line, sizeof(line),
                 "all_reduce --json --algorithm two_shot --ranks 4 --workers 2 --constants %s --size 4000000",
                 constants);
        document = run_json(line);
        json_decref(document);
        snprintf(line, sizeof(line), "fit %s", perf);
        document = run_json(line);
        assert_string_equal(check_schema(document, "railmux-constants"), "");
        json_decref(document);
        assert_int_equal(pipe(fds), 0); /* which cannot be read twice */
        assert_int_equal(write(fds[1], text, strlen(text)), strlen(text));
        close(fds[1]);
        snprintf(line, sizeof(line), "fit /dev/fd/%d", fds[0]);
        document = run_json(line);
        assert_string_equal(check_schema(document, "railmux-constants"), "");
        json_decref(document);
        close(fds[0]);
        snprintf(line, sizeof(line), "fit -o %s/no/file %s", dir, perf);
        assert_int_equal(run(line), 3);
        file = fopen(perf, "we");
        assert_non_null(file);
        fputs(ring, file);
        fclose(file);
        snprintf(line, sizeof(line), "fit %s", perf);
        assert_int_not_equal(run(line), 0);
        assert_non_null(strstr(err, "left out: 1 lines of sendrecv"));
        assert_non_null(strstr(err, "no measurement"));
        assert_string_equal(out, "");
        unlink(perf);
        unlink(constants);
        assert_int_equal(rmdir(dir), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_json),          cmocka_unit_test(test_cluster_json),
                cmocka_unit_test(test_cluster_loads), cmocka_unit_test(test_nameless),
                cmocka_unit_test(test_text),          cmocka_unit_test(test_nodes),
                cmocka_unit_test(test_host),          cmocka_unit_test(test_usage),
                cmocka_unit_test(test_fit),           cmocka_unit_test(test_full),
                cmocka_unit_test(test_why),           cmocka_unit_test(test_sizes),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
