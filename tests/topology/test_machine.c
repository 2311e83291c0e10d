/* SPDX-License-Identifier: MIT */
/* What hwloc has seen, from a file and from here. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/scratch.h"
#include "tests/topology/fixtures.h"
#include "topology/discover.h"
#include "topology/rails.h"

static const struct topology_link *uplink(const struct topology *t, uint32_t kind, uint32_t index, uint32_t to_kind,
                                          uint32_t to_index) {
        const struct topology_link *link =
                topology_link_find(t, topology_find(t, kind, index), topology_find(t, to_kind, to_index));

        if (!link)
                fail_msg("no link from %s%u to %s%u", topology_node_kind_name(kind), index,
                         topology_node_kind_name(to_kind), to_index);
        return link;
}

static void check_machine(const struct topology *t) {
        const struct topology_node *nic;

        assert_int_equal(t->n_cpus, 2);
        assert_int_equal(topology_count(t, TOPOLOGY_NUMA), 2);
        assert_int_equal(topology_count(t, TOPOLOGY_GPU), 4); /* not the console */
        assert_int_equal(topology_count(t, TOPOLOGY_NIC), 3);
        assert_int_equal(topology_count(t, TOPOLOGY_SWITCH), 1);
        assert_int_equal(topology_count(t, TOPOLOGY_ROOT), 1);
        assert_int_equal(uplink(t, TOPOLOGY_NUMA, 0, TOPOLOGY_NUMA, 1)->kind, TOPOLOGY_LINK_NUMA);
        assert_int_equal(uplink(t, TOPOLOGY_ROOT, 0, TOPOLOGY_NUMA, 0)->kind, TOPOLOGY_LINK_LOCAL);
        assert_int_equal(uplink(t, TOPOLOGY_NIC, 1, TOPOLOGY_ROOT, 0)->kind, TOPOLOGY_LINK_PCI);
        uplink(t, TOPOLOGY_SWITCH, 0, TOPOLOGY_NUMA, 0);
        uplink(t, TOPOLOGY_GPU, 0, TOPOLOGY_SWITCH, 0);
        uplink(t, TOPOLOGY_GPU, 1, TOPOLOGY_SWITCH, 0);
        uplink(t, TOPOLOGY_NIC, 0, TOPOLOGY_SWITCH, 0);
        uplink(t, TOPOLOGY_GPU, 2, TOPOLOGY_ROOT, 0);
        uplink(t, TOPOLOGY_GPU, 3, TOPOLOGY_NUMA, 1);
        nic = &t->nodes[topology_find(t, TOPOLOGY_NIC, 0)];
        assert_string_equal(nic->pci, "0000:05:00.0");
        assert_string_equal(nic->netdev, "enp5s0");
        assert_string_equal(nic->rdma, "mlx5_0");
        assert_string_equal(nic->name, "mlx5_0");
        assert_int_equal(nic->vendor, 0x15b3);
        assert_int_equal(nic->numa, 0);
        nic = &t->nodes[topology_find(t, TOPOLOGY_NIC, 2)];
        assert_string_equal(nic->name, "eth0");
        assert_int_equal(nic->numa, TOPOLOGY_NONE);
}

/* In a file there are only the speeds of the moment, of the slowest piece of a chain. */
static void test_file(void **state) {
        struct topology *t = fixture_load("hwloc");
        struct topology_rails *rails = NULL;

        (void)state;
        check_machine(t);
        assert_int_equal(t->n_links, 1 + 1 + 1 + 3 + 2 + 1 + 2);
        assert_int_equal(uplink(t, TOPOLOGY_GPU, 0, TOPOLOGY_GPU, 1)->kind, TOPOLOGY_LINK_XGMI);
        assert_int_equal(uplink(t, TOPOLOGY_GPU, 0, TOPOLOGY_GPU, 1)->bytes_per_second, UINT64_C(64000000000));
        assert_int_equal(uplink(t, TOPOLOGY_GPU, 1, TOPOLOGY_GPU, 3)->bytes_per_second, UINT64_C(36000000000));
        assert_int_equal(uplink(t, TOPOLOGY_SWITCH, 0, TOPOLOGY_NUMA, 0)->bytes_per_second, UINT64_C(31500000000));
        assert_int_equal(uplink(t, TOPOLOGY_GPU, 0, TOPOLOGY_SWITCH, 0)->bytes_per_second, UINT64_C(63000000000));
        assert_int_equal(uplink(t, TOPOLOGY_GPU, 1, TOPOLOGY_SWITCH, 0)->bytes_per_second, UINT64_C(16000000000));
        assert_int_equal(uplink(t, TOPOLOGY_GPU, 3, TOPOLOGY_NUMA, 1)->bytes_per_second, UINT64_C(63000000000));
        assert_int_equal(topology_rails_new(t, &rails), 0);
        assert_int_equal(rails->n_rails, 2); /* those with RDMA */
        assert_int_equal(rails->map[0].rail, 0);
        assert_int_equal(rails->map[1].rail, 0);
        assert_int_equal(rails->map[2].rail, 1);
        assert_int_equal(rails->map[3].rail, 1);
        free(rails);
        topology_free(t);
}

/* The same machine as if it were this one: what the kernel adds. */
static void test_live(void **state) {
        static const char *const order[] = {"0000:41:00.0", "", "0000:04:00.0"};
        char root[] = "/tmp/railmux-machine-XXXXXX";
        struct discover_options options = {.root = root, .gpus = order, .n_gpus = 3};
        const struct topology_link *link;
        struct topology *t = NULL;

        (void)state;
        assert_non_null(mkdtemp(root));
        tree_file(root, "32.0 GT/s PCIe\n", "sys/bus/pci/devices/0000:03:00.0/max_link_speed");
        tree_file(root, "16\n", "sys/bus/pci/devices/0000:03:00.0/max_link_width");
        tree_file(root, "16.0 GT/s PCIe\n", "sys/bus/pci/devices/0000:02:00.0/max_link_speed");
        tree_file(root, "16\n", "sys/bus/pci/devices/0000:02:00.0/max_link_width");
        tree_file(root, "32.0 GT/s PCIe\n", "sys/bus/pci/devices/0000:41:00.0/max_link_speed");
        tree_file(root, "Unknown\n", "sys/bus/pci/devices/0000:04:00.0/max_link_speed");
        tree_file(root, "255\n", "sys/bus/pci/devices/0000:04:00.0/max_link_width");
        tree_file(root, "simd_count 1216\nlocation_id 768\ndomain 0\n",
                  "sys/class/kfd/kfd/topology/nodes/2/properties");
        tree_file(root, "simd_count 1216\nlocation_id 1024\ndomain 0\n",
                  "sys/class/kfd/kfd/topology/nodes/3/properties");
        tree_file(root, "type 11\nnode_from 2\nnode_to 3\nweight 15\nmax_bandwidth 64000\n",
                  "sys/class/kfd/kfd/topology/nodes/2/io_links/0/properties");
        tree_file(root, "400 Gb/sec (4X NDR)\n", "sys/class/infiniband/mlx5_0/ports/1/rate");
        tree_file(root, "100 Gb/sec (4X EDR)\n", "sys/class/infiniband/rxe7/ports/1/rate");
        setenv("HWLOC_XMLFILE", FIXTURES_DIR "/hwloc.xml", 1);
        assert_int_equal(topology_discover(&options, &t), 0);
        unsetenv("HWLOC_XMLFILE");
        assert_int_equal(topology_count(t, TOPOLOGY_NIC), 4);
        /* Numbers as wanted, then the others in their order: 41, -, 04, 03, 11. */
        assert_string_equal(t->nodes[topology_find(t, TOPOLOGY_GPU, 0)].pci, "0000:41:00.0");
        assert_int_equal(topology_find(t, TOPOLOGY_GPU, 1), TOPOLOGY_NONE);
        assert_string_equal(t->nodes[topology_find(t, TOPOLOGY_GPU, 2)].pci, "0000:04:00.0");
        assert_string_equal(t->nodes[topology_find(t, TOPOLOGY_GPU, 3)].pci, "0000:03:00.0");
        assert_string_equal(t->nodes[topology_find(t, TOPOLOGY_GPU, 4)].pci, "0000:11:00.0");
        link = uplink(t, TOPOLOGY_GPU, 3, TOPOLOGY_SWITCH, 0); /* the switch's side is the slower one */
        assert_int_equal(link->generation, 4);
        assert_int_equal(link->width, 16);
        assert_int_equal(link->bytes_per_second, UINT64_C(31507692304));
        link = uplink(t, TOPOLOGY_GPU, 2, TOPOLOGY_SWITCH, 0); /* what nobody knows is hwloc's */
        assert_int_equal(link->generation, 0);
        assert_int_equal(link->width, 0);
        assert_int_equal(link->bytes_per_second, UINT64_C(16000000000));
        assert_int_equal(uplink(t, TOPOLOGY_GPU, 2, TOPOLOGY_GPU, 3)->kind, TOPOLOGY_LINK_XGMI);
        assert_int_equal(uplink(t, TOPOLOGY_NIC, 0, TOPOLOGY_NETWORK, 0)->bytes_per_second, UINT64_C(50000000000));
        topology_free(t);

        /* Emulated GPUs stand in the place of real ones. */
        options = (struct discover_options){.root = root, .emulated = 5};
        setenv("HWLOC_XMLFILE", FIXTURES_DIR "/hwloc.xml", 1);
        assert_int_equal(topology_discover(&options, &t), 0);
        unsetenv("HWLOC_XMLFILE");
        assert_int_equal(topology_count(t, TOPOLOGY_GPU), 5);
        assert_int_equal(topology_count(t, TOPOLOGY_NIC), 4);
        assert_int_equal(topology_count(t, TOPOLOGY_SWITCH), 0); /* one NIC at the end of each branch */
        assert_string_equal(t->nodes[topology_find(t, TOPOLOGY_GPU, 4)].name, "host4");
        assert_true(topology_full_mesh(t));
        topology_free(t);
        assert_int_equal(scratch_remove(root), 0);
}

/* This machine, whatever it is: a graph that can be written and read, with rails for its NICs. */
static void test_here(void **state) {
        struct topology *t = NULL, *copy = NULL;
        struct topology_rails *rails = NULL;
        char *text = NULL, *again = NULL, error[TOPOLOGY_ERROR_MAX] = "";
        size_t size;

        (void)state;
        for (uint32_t emulated = 0; emulated <= 8; emulated += 8) {
                struct discover_options options = {.emulated = emulated};

                assert_int_equal(topology_discover(&options, &t), 0);
                assert_true(topology_count(t, TOPOLOGY_NUMA) >= 1 && t->n_cpus >= 1);
                assert_true(emulated == 0 || topology_count(t, TOPOLOGY_GPU) == emulated);
                assert_int_equal(topology_xml_write(t, &text, &size), 0);
                if (topology_xml_read("here", text, size, &copy, error))
                        fail_msg("%s\n%s", error, text);
                assert_int_equal(topology_xml_write(copy, &again, &size), 0);
                assert_string_equal(text, again);
                assert_int_equal(topology_rails_new(t, &rails), 0);
                assert_true(rails->n_rails <= topology_count(t, TOPOLOGY_NIC));
                free(rails);
                free(text);
                free(again);
                topology_free(copy);
                topology_free(t);
        }
}

/* A copy of hwloc.xml in which an attribute, of lines with `where` in them, has another name. */
static void test_broken(void **state) {
        static const struct {
                const char *where, *attribute;
        } broken[] = {
                {"type=\"Package\"", " complete_cpuset="},
                {"<", " complete_nodeset="},
                {"<", " complete_cpuset="},
                {"<", " cpuset="},
                {"<", " nodeset="},
                {"type=\"NUMANode\"", " os_index="},
        };
        char path[] = "/tmp/railmux-broken-XXXXXX", line[4096], error[TOPOLOGY_ERROR_MAX];
        struct topology *t = NULL;
        int fd = mkstemp(path);

        (void)state;
        assert_true(fd >= 0);
        close(fd);
        for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
                FILE *in = fopen(FIXTURES_DIR "/hwloc.xml", "re"), *out = fopen(path, "we");
                int r;

                assert_true(in && out);
                while (fgets(line, sizeof(line), in)) {
                        char *at = strstr(line, broken[i].where) ? strstr(line, broken[i].attribute) : NULL;

                        if (at)
                                at[1] = 'x';
                        fputs(line, out);
                }
                fclose(in);
                assert_int_equal(fclose(out), 0);
                r = topology_load(path, &t, error);
                if (r) {
                        assert_int_equal(r, TOPOLOGY_E_INVALID);
                        assert_ptr_equal(strstr(error, path), error);
                        assert_non_null(strstr(error, "hwloc cannot read it"));
                } else
                        print_message("this hwloc reads file %zu\n", i); /* 2.9 dies of the first two */
                t = topology_free(t);
        }
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
        unlink(path);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_file),
                cmocka_unit_test(test_broken),
                cmocka_unit_test(test_live),
                cmocka_unit_test(test_here),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
