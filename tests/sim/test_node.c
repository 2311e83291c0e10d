/* SPDX-License-Identifier: MIT */
/* Nodes from files, ways through them, and what a plan puts on their links. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "railmux/railmux.h"
#include "ring/ring.h"
#include "tests/cmocka_all.h"
#include "tools/sim/node.h"
#include "tools/sim/sim.h"
#include "util/processors.h"

static void write_file(char path[64], const char *text) {
        int fd;

        snprintf(path, 64, "%s", "/tmp/railmux-node-XXXXXX");
        fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), strlen(text));
        close(fd);
}

/* Two sockets with two GPUs each; 0 and 1 have a fabric, 1 and 2 as well. */
static const char node_text[] =
        "{\"version\": 1, \"nodes\": [{\"kind\": \"numa\", \"index\": 0}, {\"kind\": \"numa\", \"index\": 1},"
        " {\"kind\": \"gpu\", \"index\": 0, \"numa\": 0}, {\"kind\": \"gpu\", \"index\": 1, \"numa\": 0},"
        " {\"kind\": \"gpu\", \"index\": 2, \"numa\": 1}, {\"kind\": \"gpu\", \"index\": 3, \"numa\": 1}],"
        " \"links\": ["
        "{\"a\": \"numa0\", \"b\": \"gpu0\", \"kind\": \"local\", \"gb_per_second\": 32, \"latency_ns\": 400},"
        "{\"a\": \"numa0\", \"b\": \"gpu1\", \"kind\": \"local\", \"gb_per_second\": 32, \"latency_ns\": 400},"
        "{\"a\": \"gpu2\", \"b\": \"numa1\", \"kind\": \"local\", \"gb_per_second\": 32, \"latency_ns\": 400},"
        "{\"a\": \"numa1\", \"b\": \"gpu3\", \"kind\": \"local\", \"gb_per_second\": 32, \"latency_ns\": 400},"
        "{\"a\": \"numa0\", \"b\": \"numa1\", \"kind\": \"numa\", \"gb_per_second\": 20, \"latency_ns\": 400},"
        "{\"a\": \"gpu0\", \"b\": \"gpu1\", \"kind\": \"direct\", \"gb_per_second\": 64, \"latency_ns\": 400},"
        "{\"a\": \"gpu1\", \"b\": \"gpu2\", \"kind\": \"direct\", \"gb_per_second\": 64.5}]}";

static void test_json(void **state) {
        struct topology *topology = NULL;
        struct node_way *ways;
        uint32_t path[2];
        char file[64], error[256];

        (void)state;
        write_file(file, node_text);
        if (node_load(file, &topology, error, sizeof(error)))
                fail_msg("%s", error);
        assert_int_equal(topology_count(topology, TOPOLOGY_GPU), 4);
        assert_int_equal(topology_count(topology, TOPOLOGY_NUMA), 2);
        assert_int_equal(node_ways(topology, 4, &ways), 0);
        assert_int_equal(ways[1].n_links, 1);
        assert_int_equal(topology->links[ways[1].links[0]].kind, TOPOLOGY_LINK_DIRECT);
        assert_int_equal(ways[2].n_links, 3); /* not through GPU 1 */
        assert_int_equal(topology->links[ways[2].links[0]].kind, TOPOLOGY_LINK_LOCAL);
        assert_int_equal(topology->links[ways[2].links[1]].kind, TOPOLOGY_LINK_NUMA);
        assert_int_equal(topology->links[ways[2].links[2]].kind, TOPOLOGY_LINK_LOCAL);
        assert_int_equal(ways[3 * 4 + 2].n_links, 2);
        assert_int_equal(ways[2 * 4 + 2].n_links, 0);
        free(ways);
        assert_int_equal(node_ways(topology, 5, &ways), 0); /* there is no GPU 4 */
        assert_int_equal(ways[2 * 5 + 4].n_links, 0);
        assert_int_equal(ways[3 * 5 + 2].n_links, 2);
        free(ways);
        assert_int_equal(topology_path(topology, 2, 4, path, 2), 0); /* too far */
        topology_free(topology);
        unlink(file);
}

/* One byte more on a path is one byte more on each of its links. */
static void test_links(void **state) {
        struct options options = {
                .operation = RING_OP_ALL_TO_ALL, .ranks = 8, .type = RMX_FLOAT32, .algorithm = PLAN_DIRECT};
        char file[64], error[OPTIONS_ERROR_MAX];
        struct sim_result *result = calloc(1, sizeof(*result));
        const struct sim_candidate *c;
        struct sim sim;

        (void)state;
        assert_non_null(result);
        write_file(file, node_text);
        options.topology = file;
        assert_int_equal(sim_init(&sim, &options, error), 0);
        assert_int_equal(sim.n_ranks, 4);
        assert_true(sim.constants.hop_ns == 1200); /* local, numa, local */
        assert_int_equal(sim_look(&sim, 1 << 20, result), 0);
        c = &result->candidates[0];
        assert_int_equal(c->plan.algorithm, PLAN_DIRECT);
        assert_int_equal(c->links[4].forth, 3 << 20); /* numa0 - numa1: of four pairs all but 1 - 2 */
        assert_int_equal(c->links[4].back, 3 << 20);
        assert_int_equal(c->links[5].forth, 1 << 20);
        assert_int_equal(c->links[0].forth, 2 << 20); /* into gpu0 from 2 and 3 */
        assert_int_equal(c->links[2].forth,
                         2 << 20); /* links run from the lower position: numa1 to gpu2, from 0 and 3 */
        assert_int_equal(c->links[3].forth, 3 << 20);
        assert_int_equal(c->slowest_link, 4);
        assert_true(c->link_ns > 3 * 1048576 / 20.0 * 0.999 && c->link_ns < 3 * 1048576 / 20.0 * 1.001);
        assert_true(c->ns == sim.constants.request_ns + c->link_ns);
        assert_string_equal(sim_limit(c), "link");
        sim_result_deinit(result);
        sim_deinit(&sim);
        options.operation = RING_OP_SCATTER; /* one way only */
        assert_int_equal(sim_init(&sim, &options, error), 0);
        assert_int_equal(sim_look(&sim, 1 << 20, result), 0);
        c = &result->candidates[0];
        assert_int_equal(c->links[0].back, 2 << 20); /* from gpu0 to numa0, for 2 and 3 */
        assert_int_equal(c->links[0].forth, 0);
        assert_int_equal(c->links[4].forth, 2 << 20);
        assert_int_equal(c->links[4].back, 0);
        assert_int_equal(c->links[5].forth, 1 << 20);
        sim_result_deinit(result);
        sim_deinit(&sim);
        options.ranks_given = true;
        options.ranks = 5;
        assert_int_equal(sim_init(&sim, &options, error), -EINVAL);
        assert_non_null(strstr(error, "4 GPUs"));
        sim_deinit(&sim);
        options.topology = NULL;
        options.host = true;
        assert_int_equal(sim_init(&sim, &options, error), 0);
        assert_int_equal(sim.n_ranks, 5);
        sim_deinit(&sim);
        unlink(file);
        free(result);
}

/* As many GPUs as XML may have, and one more. */
static void test_gpus(void) {
        struct topology *topology = NULL;
        static char text[64u * 1024];
        char file[64], error[256];

        for (uint32_t n = TOPOLOGY_GPUS_MAX; n <= TOPOLOGY_GPUS_MAX + 1; n++) {
                size_t at = (size_t)snprintf(text, sizeof(text), "{\"version\": 1, \"nodes\": [");

                for (uint32_t i = 0; i < n; i++)
                        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s{\"kind\": \"gpu\", \"index\": %u}",
                                               i ? ", " : "", i);
                snprintf(text + at, sizeof(text) - at, "]}");
                write_file(file, text);
                assert_int_equal(node_load(file, &topology, error, sizeof(error)), n > TOPOLOGY_GPUS_MAX ? -EINVAL : 0);
                unlink(file);
                topology = topology_free(topology);
        }
        assert_non_null(strstr(error, "too many GPUs; allowed: 128"));
}

static void test_bad_json(void **state) {
        static const char *const bad[] = {
                "",
                "{}",
                "{\"version\": 2, \"nodes\": []}",
                "{\"version\": 1}",
                "{\"version\": 1, \"nodes\": {}}",
                "{\"version\": 1, \"nodes\": [], \"links\": 3}",
                "{\"version\": 1, \"nodes\": [{}]}",
                "{\"version\": 1, \"nodes\": [{\"kind\": \"cpu\", \"index\": 0}]}",
                "{\"version\": 1, \"nodes\": [{\"kind\": \"gpu\", \"index\": -1}]}",
                "{\"version\": 1, \"nodes\": [{\"kind\": \"gpu\", \"index\": 0, \"numa\": 0}]}",
                "{\"version\": 1, \"nodes\": [{\"kind\": \"gpu\", \"index\": 0}, {\"kind\": \"gpu\", \"index\": 0}]}",
                "{\"version\": 1, \"nodes\": [{\"kind\": \"gpu\", \"index\": 0, \"numa\": \"x\"}]}",
                "{\"version\": 1, \"nodes\": [], \"links\": [{\"a\": \"gpu0\", \"b\": \"gpu1\", \"kind\": \"local\"}]}",
                "{\"version\": 1, \"nodes\": [{\"kind\": \"gpu\", \"index\": 0}],"
                " \"links\": [{\"a\": \"gpu0\", \"b\": \"gpu0\", \"kind\": \"direct\"}]}",
                "{\"version\": 1, \"nodes\": [{\"kind\": \"gpu\", \"index\": 0}, {\"kind\": \"gpu\", \"index\": 1}],"
                " \"links\": [{\"a\": \"gpu0\", \"b\": \"gpu1\", \"kind\": \"string\"}]}",
                "{\"version\": 1, \"nodes\": [{\"kind\": \"gpu\", \"index\": 0}, {\"kind\": \"gpu\", \"index\": 1}],"
                " \"links\": [{\"a\": \"gpu0\", \"b\": \"gpu1\", \"kind\": \"direct\", \"gb_per_second\": -1}]}",
                "<topology>",
                "<nothing/>",
        };
        struct topology *topology = NULL;
        char file[64], error[256];

        (void)state;
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                write_file(file, bad[i]);
                error[0] = '\0';
                assert_int_equal(node_load(file, &topology, error, sizeof(error)), -EINVAL);
                assert_true(error[0] != '\0');
                assert_null(topology);
                unlink(file);
        }
        test_gpus();
        assert_int_equal(node_load("/nowhere", &topology, error, sizeof(error)), -EINVAL);
        assert_string_equal(error, "/nowhere: No such file or directory");
        /* Whatever it is, the file is named, and once. */
        for (size_t i = 0; i < 2; i++) {
                write_file(file, i ? "[1, 2" : "<railmux-topology version=\"1\"><gpu index=\"x\"/></railmux-topology>");
                assert_int_equal(node_load(file, &topology, error, sizeof(error)), -EINVAL);
                assert_ptr_equal(strstr(error, file), error);
                assert_null(strstr(error + 1, file));
                unlink(file);
        }
}

/* As hwloc writes it: two packages, an accelerator on each and a console on the first. */
static const char xml_text[] =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
        "<topology version=\"2.0\">\n"
        " <object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" allowed_cpuset=\"0x3\""
        " nodeset=\"0x3\" complete_nodeset=\"0x3\" allowed_nodeset=\"0x3\" gp_index=\"1\">\n"
        "  <object type=\"Package\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\""
        " complete_nodeset=\"0x1\" gp_index=\"2\">\n"
        "   <object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\""
        " complete_nodeset=\"0x1\" gp_index=\"3\" local_memory=\"1073741824\"/>\n"
        "   <object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\""
        " complete_nodeset=\"0x1\" gp_index=\"4\"/>\n"
        "   <object type=\"Bridge\" gp_index=\"5\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[00-20]\">\n"
        "    <object type=\"PCIDev\" gp_index=\"6\" pci_busid=\"0000:03:00.0\" pci_type=\"0300 [1a03:2000] [0000:0000] "
        "00\""
        " pci_link_speed=\"0.25\"/>\n"
        "    <object type=\"PCIDev\" gp_index=\"7\" pci_busid=\"0000:11:00.0\" pci_type=\"1200 [1002:740f] [0000:0000] "
        "00\""
        " pci_link_speed=\"32\"/>\n"
        "   </object>\n"
        "  </object>\n"
        "  <object type=\"Package\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x2\""
        " complete_nodeset=\"0x2\" gp_index=\"8\">\n"
        "   <object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x2\""
        " complete_nodeset=\"0x2\" gp_index=\"9\" local_memory=\"2147483648\"/>\n"
        "   <object type=\"PU\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x2\""
        " complete_nodeset=\"0x2\" gp_index=\"10\"/>\n"
        "   <object type=\"Bridge\" gp_index=\"11\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[40-60]\">\n"
        "    <object type=\"PCIDev\" gp_index=\"12\" pci_busid=\"0000:51:00.0\" pci_type=\"1200 [1002:740f] "
        "[0000:0000] 00\""
        " pci_link_speed=\"16\"/>\n"
        "   </object>\n"
        "  </object>\n"
        " </object>\n"
        "</topology>\n";

static void test_xml(void **state) {
        struct topology *topology = NULL;
        struct node_way *ways;
        char file[64], error[256];

        (void)state;
        write_file(file, xml_text);
        if (node_load(file, &topology, error, sizeof(error)))
                fail_msg("%s", error);
        assert_int_equal(topology->n_cpus, 2);
        assert_int_equal(topology_count(topology, TOPOLOGY_NUMA), 2);
        assert_int_equal(topology_count(topology, TOPOLOGY_GPU), 2); /* not the console */
        assert_string_equal(topology->nodes[2].name, "0000:11:00.0");
        assert_int_equal(topology->nodes[3].numa, 1);
        assert_int_equal(node_ways(topology, 2, &ways), 0);
        assert_int_equal(ways[1].n_links, 3);
        assert_int_equal(topology->links[ways[1].links[0]].bytes_per_second, UINT64_C(32000000000));
        assert_int_equal(topology->links[ways[1].links[2]].bytes_per_second, UINT64_C(16000000000));
        free(ways);
        assert_false(topology_full_mesh(topology));
        topology_free(topology);
        unlink(file);
}

/* Three GPUs: 0 and 2 have no way to each other, or their numbers leave one out, or hops are long. */
static void test_ways(void **state) {
        static const char text[] =
                "{\"version\": 1, \"nodes\": [{\"kind\": \"gpu\", \"index\": 0}, {\"kind\": \"gpu\", \"index\": %u},"
                " {\"kind\": \"gpu\", \"index\": 2}, {\"kind\": \"switch\", \"index\": 0},"
                " {\"kind\": \"switch\", \"index\": 1}],"
                " \"links\": [{\"a\": \"gpu0\", \"b\": \"%s\", \"kind\": \"pci\", \"latency_ns\": 2147483647},"
                " {\"a\": \"gpu%u\", \"b\": \"switch0\", \"kind\": \"pci\", \"latency_ns\": 2147483647},"
                " {\"a\": \"switch0\", \"b\": \"switch1\", \"kind\": \"pci\", \"latency_ns\": 2147483647},"
                " {\"a\": \"switch1\", \"b\": \"gpu2\", \"kind\": \"pci\", \"latency_ns\": 2147483647}]}";
        static const struct {
                uint32_t second;
                const char *first, *says; /* NULL: nothing */
        } cases[] = {{1, "gpu1", "there is no way from gpu0 to gpu2"},
                     {5, "switch0", "it has 3 GPUs and no gpu1"},
                     {1, "switch0", NULL}};
        struct options options = {.operation = RING_OP_ALL_REDUCE, .ranks = 8, .type = RMX_FLOAT32};
        char file[64], json[1024], error[OPTIONS_ERROR_MAX];
        struct sim sim;

        (void)state;
        options.topology = file;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                snprintf(json, sizeof(json), text, cases[i].second, cases[i].first, cases[i].second);
                write_file(file, json);
                assert_int_equal(sim_init(&sim, &options, error), cases[i].says ? -EINVAL : 0);
                if (cases[i].says)
                        assert_non_null(strstr(error, cases[i].says));
                else
                        assert_true(sim.constants.hop_ns == 3 * 2147483647.0);
                if (cases[i].says)
                        assert_ptr_equal(strstr(error, file), error);
                sim_deinit(&sim);
                unlink(file);
        }
}

/* Two GPUs at the ends of a row of switches. */
static void write_row(char path[64], uint32_t n_switches) {
        FILE *file;

        write_file(path, "");
        file = fopen(path, "we");
        assert_non_null(file);
        fputs("{\"version\": 1, \"nodes\": [{\"kind\": \"gpu\", \"index\": 0}, {\"kind\": \"gpu\", \"index\": 1}",
              file);
        for (uint32_t i = 0; i < n_switches; i++)
                fprintf(file, ", {\"kind\": \"switch\", \"index\": %u}", i);
        fputs("], \"links\": [{\"a\": \"gpu0\", \"b\": \"switch0\", \"kind\": \"pci\"}", file);
        for (uint32_t i = 1; i < n_switches; i++)
                fprintf(file, ", {\"a\": \"switch%u\", \"b\": \"switch%u\", \"kind\": \"pci\"}", i - 1, i);
        fprintf(file, ", {\"a\": \"gpu1\", \"b\": \"switch%u\", \"kind\": \"pci\"}]}", n_switches - 1);
        assert_int_equal(fclose(file), 0);
}

/* What is too large or too far is refused by the limit's name. */
static void test_rows(void **state) {
        static const struct {
                uint32_t n_switches;
                const char *says; /* NULL: nothing */
        } rows[] = {{NODE_PATH_MAX - 1, NULL},
                    {NODE_PATH_MAX, "no way from gpu0 to gpu1, or none of at most 16 links"},
                    {TOPOLOGY_NODES_MAX - 2, "no way from gpu0 to gpu1, or none of at most 16 links"},
                    {TOPOLOGY_NODES_MAX - 1, "node 4096: too many nodes; allowed: 4096"}};
        struct options options = {.operation = RING_OP_ALL_REDUCE, .ranks = 2, .type = RMX_FLOAT32};
        char file[64], error[OPTIONS_ERROR_MAX];
        struct sim sim;

        (void)state;
        options.topology = file;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                write_row(file, rows[i].n_switches);
                assert_int_equal(sim_init(&sim, &options, error), rows[i].says ? -EINVAL : 0);
                if (rows[i].says)
                        assert_non_null(strstr(error, rows[i].says));
                sim_deinit(&sim);
                unlink(file);
        }
}

static const struct sim_candidate *candidate(const struct sim_result *result, uint32_t algorithm) {
        for (uint32_t i = 0; i < result->n_candidates; i++)
                if (result->candidates[i].plan.algorithm == algorithm)
                        return &result->candidates[i];
        fail_msg("no %s", plan_algorithm_name(algorithm));
        return NULL;
}

/* Through a switch seven copies of 64 MiB take what one GPU has, 450 GB/s. Each link has that too, to one of them. */
static void test_nvswitch(void **state) {
        const struct options options = {.operation = RING_OP_ALL_REDUCE,
                                        .ranks = 8,
                                        .type = RMX_FLOAT32,
                                        .topology = FIXTURES "/h200-8x8.xml",
                                        .algorithm = OPTIONS_ALGORITHM_ALL};
        struct sim_result *result = calloc(1, sizeof(*result));
        char error[OPTIONS_ERROR_MAX];
        const struct sim_candidate *c;
        struct sim sim;
        double us;

        (void)state;
        assert_non_null(result);
        assert_int_equal(sim_init(&sim, &options, error), 0);
        assert_true(sim.device);
        assert_int_equal(sim_look(&sim, 64 << 20, result), 0);
        c = candidate(result, PLAN_ONE_SHOT);
        us = 7.0 * (64 << 20) / 450e9 * 1e6;
        assert_true(c->link_ns / 1000 > us * 0.999 && c->link_ns / 1000 < us * 1.001);
        assert_int_equal(sim.topology->links[c->slowest_link].kind, TOPOLOGY_LINK_NVLINK);
        assert_int_equal(c->sums[3].out, UINT64_C(7) * (64 << 20));
        assert_int_equal(c->sums[3].in, UINT64_C(7) * (64 << 20));
        c = candidate(result, PLAN_RING); /* one way out of each GPU, as before: 2 (n - 1) / n */
        us = 2 * 7 / 8.0 * (64 << 20) / 450e9 * 1e6;
        assert_true(c->link_ns / 1000 > us * 0.999 && c->link_ns / 1000 < us * 1.001);
        sim_result_deinit(result);
        sim_deinit(&sim);
        free(result);
}

/* Kernels run plans by channels, by a table that goes by size; ranks on emulated GPUs are the host's. */
static void test_device(void **state) {
        static const struct {
                const char *topology;
                uint64_t bytes;
                uint32_t algorithm;
        } cases[] = {
                {FIXTURES "/h200-8x8.xml", 16384, PLAN_ONE_SHOT},
                {FIXTURES "/h200-8x8.xml", 16388, PLAN_TWO_SHOT},
                {FIXTURES "/h200-8x8.xml", 1 << 20, PLAN_TWO_SHOT},
                {FIXTURES "/mi300x-8x0.xml", 1 << 20, PLAN_TWO_SHOT},
                {NULL, 1 << 20, PLAN_ZERO_COPY},
        };
        struct sim_result *result = calloc(1, sizeof(*result));
        char error[OPTIONS_ERROR_MAX];
        struct sim sim;

        (void)state;
        assert_non_null(result);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                const struct options options = {.operation = RING_OP_ALL_REDUCE,
                                                .ranks = 8,
                                                .type = RMX_FLOAT32,
                                                .topology = cases[i].topology,
                                                .host = !cases[i].topology,
                                                .workers = 2};

                assert_int_equal(sim_init(&sim, &options, error), 0);
                assert_int_equal(sim.constants.parallel, 2);
                assert_int_equal(sim_look(&sim, cases[i].bytes, result), 0);
                for (uint32_t k = 0; k < result->n_candidates; k++) {
                        const struct sim_candidate *c = &result->candidates[k];

                        assert_int_equal(c->chosen, c->plan.algorithm == cases[i].algorithm);
                        assert_true(!c->chosen || c->may);
                        if (c->plan.algorithm == PLAN_ZERO_COPY)
                                assert_int_equal(c->may, !cases[i].topology);
                        if (c->plan.algorithm == PLAN_RING)
                                assert_false(c->may);
                }
                sim_result_deinit(result);
                sim_deinit(&sim);
        }
        free(result);
}

/* The host backend takes no more workers than these, however many processors there are. */
static void test_workers(void **state) {
        const struct options options = {.operation = RING_OP_BARRIER, .ranks = 2, .type = RMX_FLOAT32, .host = true};
        uint32_t n = processors_usable();
        char error[OPTIONS_ERROR_MAX];
        struct sim sim;

        (void)state;
        assert_int_equal(sim_init(&sim, &options, error), 0);
        assert_int_equal(sim.constants.parallel, n < 16 ? n : 16);
        sim_deinit(&sim);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_json),   cmocka_unit_test(test_links),   cmocka_unit_test(test_bad_json),
                cmocka_unit_test(test_xml),    cmocka_unit_test(test_ways),    cmocka_unit_test(test_nvswitch),
                cmocka_unit_test(test_device), cmocka_unit_test(test_workers), cmocka_unit_test(test_rows),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
