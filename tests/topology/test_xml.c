/* SPDX-License-Identifier: MIT */
/* Graphs as text: there and back again, what the fixtures hold, and everything that is refused. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/topology/fixtures.h"

static void assert_same(const struct topology *a, const struct topology *b) {
        assert_int_equal(a->n_cpus, b->n_cpus);
        assert_int_equal(a->n_nodes, b->n_nodes);
        assert_int_equal(a->n_links, b->n_links);
        for (uint32_t i = 0; i < a->n_nodes; i++) {
                const struct topology_node *x = &a->nodes[i], *y = &b->nodes[i];

                assert_int_equal(x->kind, y->kind);
                assert_int_equal(x->index, y->index);
                assert_int_equal(x->numa, y->numa);
                assert_int_equal(x->n_cpus, y->n_cpus);
                assert_int_equal(x->memory_bytes, y->memory_bytes);
                assert_int_equal(x->vendor, y->vendor);
                assert_string_equal(x->name, y->name);
                assert_string_equal(x->pci, y->pci);
                assert_string_equal(x->netdev, y->netdev);
                assert_string_equal(x->rdma, y->rdma);
        }
        for (uint32_t i = 0; i < a->n_links; i++) {
                const struct topology_link *x = &a->links[i], *y = &b->links[i];

                assert_int_equal(x->a, y->a);
                assert_int_equal(x->b, y->b);
                assert_int_equal(x->kind, y->kind);
                assert_int_equal(x->bytes_per_second, y->bytes_per_second);
                assert_int_equal(x->latency_ns, y->latency_ns);
                assert_int_equal(x->width, y->width);
                assert_int_equal(x->generation, y->generation);
        }
}

static void assert_round(const struct topology *topology) {
        char *text = NULL, *again = NULL, error[TOPOLOGY_ERROR_MAX] = "";
        struct topology *copy = NULL;
        size_t size = 0, size_again = 0;

        assert_int_equal(topology_xml_write(topology, &text, &size), 0);
        assert_int_equal(strlen(text), size);
        if (topology_xml_read("text", text, size, &copy, error))
                fail_msg("%s", error);
        assert_same(topology, copy);
        assert_int_equal(topology_xml_write(copy, &again, &size_again), 0);
        assert_string_equal(text, again);
        topology_free(copy);
        free(text);
        free(again);
}

static void test_fixtures(void **state) {
        (void)state;
        for (size_t i = 0; i < N_FIXTURES; i++) {
                struct topology *topology = fixture_load(fixtures[i]);

                assert_true(topology_count(topology, TOPOLOGY_GPU) >= 4);
                assert_round(topology);
                topology_free(topology);
        }
}

/* Nodes, links of each kind, and what they carry together in MB/s. */
static void test_sums(void **state) {
        static const struct {
                const char *name;
                uint32_t gpus, nics, switches;
                struct {
                        uint32_t kind, n;
                        uint64_t megabytes;
                } links[4];
        } cases[] = {
                {"mi300x-8x8",
                 8,
                 8,
                 4,
                 {{TOPOLOGY_LINK_XGMI, 28, 1792000},
                  {TOPOLOGY_LINK_PCI, 20, 1260307},
                  {TOPOLOGY_LINK_PORT, 8, 400000},
                  {TOPOLOGY_LINK_NUMA, 1, 0}}},
                {"mi300x-8x4",
                 8,
                 4,
                 4,
                 {{TOPOLOGY_LINK_XGMI, 28, 1792000},
                  {TOPOLOGY_LINK_PCI, 16, 1008246},
                  {TOPOLOGY_LINK_PORT, 4, 200000},
                  {TOPOLOGY_LINK_NUMA, 1, 0}}},
                {"mi300x-8x0",
                 8,
                 0,
                 4,
                 {{TOPOLOGY_LINK_XGMI, 28, 1792000},
                  {TOPOLOGY_LINK_PCI, 12, 756184},
                  {TOPOLOGY_LINK_PORT, 0, 0},
                  {TOPOLOGY_LINK_NUMA, 1, 0}}},
                {"h200-8x8",
                 8,
                 8,
                 8,
                 {{TOPOLOGY_LINK_NVLINK, 28, 12600000},
                  {TOPOLOGY_LINK_PCI, 24, 1512369},
                  {TOPOLOGY_LINK_PORT, 8, 400000},
                  {TOPOLOGY_LINK_NUMA, 1, 0}}},
                {"soft-roce",
                 8,
                 2,
                 0,
                 {{TOPOLOGY_LINK_XGMI, 28, 1792000},
                  {TOPOLOGY_LINK_PCI, 8, 504123},
                  {TOPOLOGY_LINK_PORT, 2, 0},
                  {TOPOLOGY_LINK_NUMA, 1, 0}}},
                {"more-nics",
                 4,
                 9,
                 2,
                 {{TOPOLOGY_LINK_XGMI, 6, 384000},
                  {TOPOLOGY_LINK_PCI, 15, 884184},
                  {TOPOLOGY_LINK_PORT, 9, 200125},
                  {TOPOLOGY_LINK_NUMA, 1, 0}}},
                /* 16 GPUs, 4 or 8 cables, 1 or 2 root ports, each 31.5 GB/s */
                {"pci-1s-1rp-std-cascade",
                 16,
                 0,
                 5,
                 {{TOPOLOGY_LINK_XGMI, 56, 3584000},
                  {TOPOLOGY_LINK_PCI, 21, 661661},
                  {TOPOLOGY_LINK_PORT, 0, 0},
                  {TOPOLOGY_LINK_NUMA, 0, 0}}},
                {"pci-1s-2rp-std-cascade",
                 16,
                 0,
                 6,
                 {{TOPOLOGY_LINK_XGMI, 56, 3584000},
                  {TOPOLOGY_LINK_PCI, 22, 693169},
                  {TOPOLOGY_LINK_PORT, 0, 0},
                  {TOPOLOGY_LINK_NUMA, 0, 0}}},
                {"pci-2s-2rp-split-flat",
                 16,
                 0,
                 10,
                 {{TOPOLOGY_LINK_XGMI, 56, 3584000},
                  {TOPOLOGY_LINK_PCI, 26, 819200},
                  {TOPOLOGY_LINK_PORT, 0, 0},
                  {TOPOLOGY_LINK_NUMA, 0, 0}}},
        };

        (void)state;
        assert_int_equal(sizeof(cases) / sizeof(cases[0]), N_FIXTURES);
        for (size_t i = 0; i < N_FIXTURES; i++) {
                struct topology *t = fixture_load(cases[i].name);
                uint32_t expected = 0;

                assert_int_equal(topology_count(t, TOPOLOGY_GPU), cases[i].gpus);
                assert_int_equal(topology_count(t, TOPOLOGY_NIC), cases[i].nics);
                assert_int_equal(topology_count(t, TOPOLOGY_SWITCH), cases[i].switches);
                for (size_t k = 0; k < 4; k++) {
                        uint64_t bytes = 0;
                        uint32_t n = 0;

                        for (uint32_t l = 0; l < t->n_links; l++) {
                                n += t->links[l].kind == cases[i].links[k].kind;
                                bytes += t->links[l].kind == cases[i].links[k].kind ? t->links[l].bytes_per_second : 0;
                        }
                        assert_int_equal(n, cases[i].links[k].n);
                        assert_int_equal(bytes / 1000000, cases[i].links[k].megabytes);
                        expected += n;
                }
                assert_int_equal(t->n_links, expected); /* and no others */
                assert_int_equal(topology_full_mesh(t), cases[i].gpus <= 8);
                topology_free(t);
        }
}

/* In the fabric of two root ports, GPUs of different boxes meet at the host; in the others at a switch. */
static void test_ways(void **state) {
        struct topology *t = fixture_load("pci-1s-2rp-std-cascade");
        uint32_t path[8], host = topology_find(t, TOPOLOGY_NUMA, 0), n;

        (void)state;
        n = topology_path(t, topology_find(t, TOPOLOGY_GPU, 0), topology_find(t, TOPOLOGY_GPU, 15), path, 8);
        assert_int_equal(n, 6);
        assert_true(t->links[path[2]].a == host && t->links[path[3]].a == host);
        topology_free(t);
        t = fixture_load("pci-2s-2rp-split-flat");
        n = topology_path(t, topology_find(t, TOPOLOGY_GPU, 0), topology_find(t, TOPOLOGY_GPU, 4), path, 8);
        assert_int_equal(n, 4);
        /* Not through NICs and networks. */
        topology_free(t);
        t = fixture_load("soft-roce");
        n = topology_path(t, topology_find(t, TOPOLOGY_NIC, 0), topology_find(t, TOPOLOGY_GPU, 0), path, 8);
        assert_int_equal(n, 0);
        topology_free(t);
}

/* One search for many ends finds what one for each finds; what is not there, or the start itself, has no way. */
static void test_ways_together(void **state) {
        uint32_t ends[64], together[64 * 8], lengths[64], alone[8];

        (void)state;
        for (size_t f = 0; f < N_FIXTURES; f++) {
                struct topology *t = fixture_load(fixtures[f]);
                uint32_t n = t->n_nodes < 62 ? t->n_nodes : 62;

                for (uint32_t i = 0; i < n; i++)
                        ends[i] = n - 1 - i;
                ends[n] = t->n_nodes;
                ends[n + 1] = TOPOLOGY_NONE;
                for (uint32_t a = 0; a < n; a++) {
                        assert_int_equal(topology_paths(t, a, ends, n + 2, together, 8, lengths), 0);
                        for (uint32_t i = 0; i < n + 2; i++) {
                                assert_int_equal(lengths[i], topology_path(t, a, ends[i], alone, 8));
                                assert_memory_equal(&together[i * 8], alone, lengths[i] * sizeof(alone[0]));
                                assert_true(lengths[i] == 0 || (i < n && ends[i] != a));
                        }
                }
                assert_int_equal(topology_paths(t, TOPOLOGY_NONE, ends, n, together, 8, lengths), 0);
                assert_int_equal(lengths[0], 0);
                topology_free(t);
        }
}

/* Every field, texts that XML has to quote, and texts that are no text. */
static void test_odd(void **state) {
        struct topology_node node = {.kind = TOPOLOGY_NUMA,
                                     .index = UINT32_MAX,
                                     .numa = TOPOLOGY_NONE,
                                     .n_cpus = UINT32_MAX,
                                     .memory_bytes = UINT64_MAX,
                                     .name = "<&>\"' \xc3\xa4\n\x7f"};
        struct topology_link link = {.a = 0,
                                     .b = 1,
                                     .kind = TOPOLOGY_LINK_DIRECT,
                                     .bytes_per_second = TOPOLOGY_RATE_MAX,
                                     .latency_ns = UINT32_MAX,
                                     .width = UINT16_MAX,
                                     .generation = UINT16_MAX};
        struct topology *t = NULL;
        uint32_t at;

        (void)state;
        assert_int_equal(topology_new(&t), 0);
        t->n_cpus = UINT32_MAX;
        assert_round(t); /* of nothing */
        assert_int_equal(topology_add_node(t, &node, &at), 0);
        assert_string_equal(t->nodes[0].name, "<&>\"' ????");
        node = (struct topology_node){
                .kind = TOPOLOGY_NIC, .vendor = 0xffff, .pci = "10000:00:1f.7", .netdev = "a\"b", .rdma = "<>"};
        memset(node.name, 'n', sizeof(node.name));
        assert_int_equal(topology_add_node(t, &node, &at), 0);
        for (link.kind = TOPOLOGY_LINK_LOCAL; link.kind < TOPOLOGY_LINK_KIND_COUNT; link.kind++)
                assert_int_equal(topology_add_link(t, &link), 0);
        assert_round(t);
        link.kind = TOPOLOGY_LINK_LOCAL;
        link.bytes_per_second++;
        assert_int_equal(topology_add_link(t, &link), TOPOLOGY_E_INVALID);
        topology_free(t);
}

#define HEAD "<railmux-topology version=\"1\">\n"
#define TAIL "</railmux-topology>\n"

static void test_refused(void **state) {
        static const struct {
                const char *text, *place, *says;
        } cases[] = {
                {"", "f:1:1", "allowed: well-formed XML"},
                {"<topology/>", "f:1:1", "allowed: <railmux-topology version"},
                {"<railmux-topology/>", "f:1:1", "lacks version; allowed: 1"},
                {"<railmux-topology version=\"2\"/>", "f:1:1", "version=\"2\"; allowed: 1"},
                {"<railmux-topology version=\"1\" cpu=\"1\"/>", "f:1:1", "allowed: version, cpus"},
                {"<railmux-topology version=\"1\" cpus=\"-1\"/>", "f:1:1", "allowed: a number from 0"},
                {HEAD, "f:2:1", "no element found"},
                {HEAD "<gpu index=\"0\">\n" TAIL, "f:3:3", "mismatched tag"},
                {HEAD " <gpu index=\"0\"/>\n <gpu index=\"0\"/>\n" TAIL, "f:3:2",
                 "there already; allowed: another index"},
                {HEAD "<gpu/>\n" TAIL, "f:2:1", "<gpu> lacks index; needed or allowed: index, numa, name, pci"},
                {HEAD "\n<gpu index=\"x\"/>" TAIL, "f:3:1", "index=\"x\"; allowed: a number from 0 to 4294967295"},
                {HEAD "<gpu index=\"4294967296\"/>" TAIL, "f:2:1", "allowed: a number from 0 to 4294967295"},
                {HEAD "<gpu index=\"99999999999999999999999\"/>" TAIL, "f:2:1", "allowed: a number"},
                {HEAD "<gpu index=\"\"/>" TAIL, "f:2:1", "allowed: a number"},
                {HEAD "<gpu index=\"0\" numa=\"0\"/>" TAIL, "f:2:1", "the index of a <numa> that stands before"},
                {HEAD "<numa index=\"0\" numa=\"0\"/>" TAIL, "f:2:1",
                 "no attribute numa; allowed: index, name, cpus, memory"},
                {HEAD "<gpu index=\"0\" colour=\"red\"/>" TAIL, "f:2:1", "no attribute colour; allowed: index, numa"},
                {HEAD "<gpu index=\"0\" index=\"1\"/>" TAIL, "f:2:16", "duplicate attribute"},
                {HEAD "<gpu index=\"0\" vendor=\"10000\"/>" TAIL, "f:2:1", "such as 1002"},
                {HEAD "<gpu index=\"0\" vendor=\"AMD\"/>" TAIL, "f:2:1", "such as 1002"},
                {HEAD "<nic index=\"0\" netdev=\"0123456789abcdef\"/>" TAIL, "f:2:1", "allowed: up to 15 bytes"},
                {HEAD "<disk index=\"0\"/>" TAIL, "f:2:1", "<disk>; allowed: numa, gpu, nic"},
                {HEAD "<gpu index=\"0\"><gpu index=\"1\"/></gpu>" TAIL, "f:2:16", "side by side"},
                {HEAD "word" TAIL, "f:2:1", "text between elements"},
                {HEAD "<!-- fine --> <gpu index=\"0\"/> &amp;" TAIL, "f:2:32", "text between elements"},
                {HEAD "<gpu index=\"0\"/><link a=\"gpu0\" b=\"gpu1\" kind=\"pci\"/>" TAIL, "f:2:17",
                 "b=\"gpu1\"; allowed: a node that stands before"},
                {HEAD "<gpu index=\"0\"/><link a=\"gpu0\" b=\"gpu0\" kind=\"pci\"/>" TAIL, "f:2:17", "to itself"},
                {HEAD "<gpu index=\"0\"/><link a=\"gpu0\" b=\"0\" kind=\"pci\"/>" TAIL, "f:2:17", "such as gpu0"},
                {HEAD "<gpu index=\"0\"/>\n<gpu index=\"1\"/>\n<link a=\"gpu0\" b=\"gpu1\" kind=\"string\"/>" TAIL,
                 "f:4:1", "allowed: local, memory, direct, numa, pci, xgmi, nvlink, port"},
                {HEAD "<gpu index=\"0\"/>\n<gpu index=\"1\"/>\n<link a=\"gpu0\" b=\"gpu1\"/>" TAIL, "f:4:1",
                 "lacks kind"},
                {HEAD "<gpu index=\"0\"/>\n<gpu index=\"1\"/>\n<link a=\"gpu0\" b=\"gpu1\" kind=\"pci\"/>\n"
                      "<link b=\"gpu0\" a=\"gpu1\" kind=\"pci\"/>" TAIL,
                 "f:5:1", "a link of kind pci already"},
                {HEAD "<gpu index=\"0\"/>\n<gpu index=\"1\"/>\n<link a=\"gpu0\" b=\"gpu1\" kind=\"pci\" "
                      "width=\"65536\"/>" TAIL,
                 "f:4:1", "a number from 0 to 65535"},
                {"<!DOCTYPE x [<!ENTITY a \"aaaa\">]>\n" HEAD TAIL, "f:1:1", "a DOCTYPE; allowed: none"},
                {HEAD "&a;" TAIL, "f:2:1", "undefined entity"},
                {HEAD TAIL "<more/>", "f:3:1", "junk after document element"},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct topology *topology = NULL;
                char error[TOPOLOGY_ERROR_MAX];

                memset(error, 'x', sizeof(error));
                assert_int_equal(topology_xml_read("f", cases[i].text, strlen(cases[i].text), &topology, error),
                                 TOPOLOGY_E_INVALID);
                assert_null(topology);
                assert_non_null(memchr(error, '\0', sizeof(error)));
                if (strncmp(error, cases[i].place, strlen(cases[i].place)) != 0 || !strstr(error, cases[i].says) ||
                    !strstr(error, "allowed: "))
                        fail_msg("case %zu: \"%s\", not %s: %s", i, error, cases[i].place, cases[i].says);
        }
}

/* As many nodes, GPUs, links and bytes as there may be, and one more. */
static void test_bounds(void **state) {
        size_t size = TOPOLOGY_XML_BYTES_MAX + 2, length;
        char *text = calloc(1, size), error[TOPOLOGY_ERROR_MAX];
        struct topology *t = NULL;

        (void)state;
        assert_non_null(text);
        length = (size_t)snprintf(text, size, HEAD);
        for (unsigned int i = 0; i < TOPOLOGY_NODES_MAX; i++)
                length += (size_t)snprintf(text + length, size - length, "<switch index=\"%u\"/>\n", i);
        length += (size_t)snprintf(text + length, size - length, TAIL);
        assert_int_equal(topology_xml_read("f", text, length, &t, error), 0);
        assert_int_equal(t->n_nodes, TOPOLOGY_NODES_MAX);
        t = topology_free(t);
        length -= strlen(TAIL);
        length += (size_t)snprintf(text + length, size - length, "<numa index=\"0\"/>" TAIL);
        assert_int_equal(topology_xml_read("f", text, length, &t, error), TOPOLOGY_E_INVALID);
        assert_non_null(strstr(error, "too many nodes; allowed: 4096"));

        length = (size_t)snprintf(text, size, HEAD);
        for (unsigned int i = 0; i <= TOPOLOGY_GPUS_MAX; i++)
                length += (size_t)snprintf(text + length, size - length, "<gpu index=\"%u\"/>\n", i);
        assert_int_equal(topology_xml_read("f", text, length, &t, error), TOPOLOGY_E_INVALID);
        assert_non_null(strstr(error, "f:130:1: too many GPUs; allowed: 128"));

        length = (size_t)snprintf(text, size, HEAD);
        for (unsigned int b = 0, n = 0; n <= TOPOLOGY_LINKS_MAX; b++) {
                length += (size_t)snprintf(text + length, size - length, "<root index=\"%u\"/>\n", b);
                for (unsigned int a = 0; a < b && n <= TOPOLOGY_LINKS_MAX; a++, n++)
                        length += (size_t)snprintf(text + length, size - length,
                                                   "<link a=\"root%u\" b=\"root%u\" kind=\"pci\"/>\n", a, b);
        }
        assert_int_equal(topology_xml_read("f", text, length, &t, error), TOPOLOGY_E_INVALID);
        assert_non_null(strstr(error, "too many links; allowed: 16384"));

        memset(text, ' ', size);
        memcpy(text, HEAD, strlen(HEAD));
        memcpy(text + TOPOLOGY_XML_BYTES_MAX - strlen(TAIL), TAIL, strlen(TAIL));
        assert_int_equal(topology_xml_read("f", text, TOPOLOGY_XML_BYTES_MAX, &t, error), 0);
        t = topology_free(t);
        assert_int_equal(topology_xml_read("f", text, TOPOLOGY_XML_BYTES_MAX + 1, &t, error), TOPOLOGY_E_INVALID);
        assert_non_null(strstr(error, "allowed: 4194304"));
        free(text);
}

static void test_files(void **state) {
        char path[64] = "/tmp/railmux-topology-XXXXXX", error[TOPOLOGY_ERROR_MAX] = "";
        struct topology *t = NULL;
        int fd = mkstemp(path);

        (void)state;
        assert_true(fd >= 0);
        assert_int_equal(topology_load("/nowhere", &t, error), -ENOENT);
        assert_non_null(strstr(error, "/nowhere: No such file"));
        assert_int_equal(topology_load("/tmp", &t, error), TOPOLOGY_E_INVALID);
        assert_non_null(strstr(error, "no regular file"));
        assert_int_equal(write(fd, "<!-- x --><topology>", 20), 20);
        assert_int_equal(topology_load(path, &t, error), TOPOLOGY_E_INVALID);
        assert_non_null(strstr(error, "hwloc cannot read it"));
        assert_int_equal(ftruncate(fd, TOPOLOGY_XML_BYTES_MAX + 1), 0);
        assert_int_equal(topology_load(path, &t, error), TOPOLOGY_E_INVALID);
        assert_non_null(strstr(error, "larger than 4 MiB"));
        assert_null(t);
        close(fd);
        unlink(path);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_fixtures),      cmocka_unit_test(test_sums),  cmocka_unit_test(test_ways),
                cmocka_unit_test(test_ways_together), cmocka_unit_test(test_odd),   cmocka_unit_test(test_refused),
                cmocka_unit_test(test_bounds),        cmocka_unit_test(test_files),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
