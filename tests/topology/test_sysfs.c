/* SPDX-License-Identifier: MIT */
/* What the kernel says in small files: AMD's driver on a node of eight GPUs, and NICs of all sorts. */
#include <stdlib.h>
#include <string.h>

#include "tests/scratch.h"
#include "tests/topology/fixtures.h"
#include "topology/kfd.h"
#include "topology/nic.h"

#define NODES "sys/class/kfd/kfd/topology/nodes"

static int setup(void **state) {
        char *root = strdup("/tmp/railmux-sysfs-XXXXXX");

        assert_non_null(root);
        assert_non_null(mkdtemp(root));
        *state = root;
        return 0;
}

static int teardown(void **state) {
        int r = scratch_remove(*state);

        free(*state);
        return r;
}

static struct topology *two_sockets(void) {
        struct topology *t = NULL;
        uint32_t position;

        assert_int_equal(topology_new(&t), 0);
        for (uint32_t i = 0; i < 2; i++)
                assert_int_equal(
                        topology_add_node(
                                t, &(struct topology_node){.kind = TOPOLOGY_NUMA, .index = i, .numa = TOPOLOGY_NONE},
                                &position),
                        0);
        return t;
}

static void kfd_link(const char *root, unsigned int from, unsigned int place, unsigned int to, unsigned int type,
                     unsigned int weight, unsigned int megabytes) {
        char text[512];

        snprintf(text, sizeof(text),
                 "type %u\nversion_major 0\nversion_minor 0\nnode_from %u\nnode_to %u\nweight %u\nmin_latency 0\n"
                 "max_latency 0\nmin_bandwidth 312\nmax_bandwidth %u\nrecommended_transfer_size 0\n"
                 "recommended_sdma_engine_id_mask 0\nflags 1\n",
                 type, from, to, weight, megabytes);
        tree_file(root, text, NODES "/%u/io_links/%u/properties", from, place);
}

/* Nodes 0 and 1 are the sockets, 2 to 9 the GPUs; GPU g has the bus number of bus[g]. */
static const unsigned int bus[8] = {0x0c, 0x22, 0x38, 0x5c, 0x9f, 0xaf, 0xbf, 0xdf};

static void mi300x(const char *root) {
        char text[512];

        for (unsigned int node = 0; node < 10; node++) {
                unsigned int gpu = node - 2, place = 0;

                if (node < 2) {
                        snprintf(
                                text, sizeof(text),
                                "cpu_cores_count 96\nsimd_count 0\nmem_banks_count 1\nio_links_count 5\nlocation_id 0\n"
                                "domain 0\nvendor_id 0\n");
                        kfd_link(root, node, place++, 1 - node, 1, 32, 0);
                        for (unsigned int g = 0; g < 4; g++)
                                kfd_link(root, node, place++, 2 + node * 4 + g, 2, 20, 63015);
                } else {
                        snprintf(text, sizeof(text),
                                 "cpu_cores_count 0\nsimd_count 1216\nmem_banks_count 1\nio_links_count 8\n"
                                 "gfx_target_version 90402\nvendor_id 4098\ndevice_id 29857\nlocation_id %u\ndomain 0\n"
                                 "hive_id 1234605616436508552\nlocal_mem_size 0\n",
                                 bus[gpu] << 8);
                        kfd_link(root, node, place++, gpu / 4, 2, 20, 63015);
                        for (unsigned int g = 0; g < 8; g++)
                                if (g != gpu)
                                        kfd_link(root, node, place++, 2 + g, 11, 15, 64000 + gpu + g);
                        tree_file(root,
                                  "heap_type 1\nsize_in_bytes 206141652992\nflags 0\nwidth 8192\nmem_clk_max 1300\n",
                                  NODES "/%u/mem_banks/0/properties", node);
                        tree_file(root, "heap_type 4\nsize_in_bytes 65536\n", NODES "/%u/mem_banks/1/properties", node);
                }
                tree_file(root, text, NODES "/%u/properties", node);
        }
}

static void test_kfd(void **state) {
        const char *root = *state;
        struct topology *t = two_sockets();

        assert_int_equal(kfd_read(root, t), 0); /* without the driver */
        assert_int_equal(t->n_nodes, 2);
        mi300x(root);
        assert_int_equal(kfd_read(root, t), 0);
        assert_int_equal(topology_count(t, TOPOLOGY_GPU), 8);
        assert_true(topology_full_mesh(t));
        assert_int_equal(t->n_links, 28 + 8);
        for (uint32_t a = 0; a < 8; a++) {
                uint32_t at = topology_find(t, TOPOLOGY_GPU, a);
                const struct topology_link *link = topology_link_find(t, at, a / 4);
                char pci[24];

                snprintf(pci, sizeof(pci), "0000:%02x:00.0", bus[a]);
                assert_string_equal(t->nodes[at].pci, pci);
                assert_int_equal(t->nodes[at].vendor, 0x1002);
                assert_int_equal(t->nodes[at].memory_bytes, UINT64_C(206141652992));
                assert_int_equal(t->nodes[at].numa, a / 4);
                assert_non_null(link);
                assert_int_equal(link->kind, TOPOLOGY_LINK_PCI);
                assert_int_equal(link->bytes_per_second, UINT64_C(63015000000));
                for (uint32_t b = 0; b < a; b++) {
                        link = topology_link_find(t, at, topology_find(t, TOPOLOGY_GPU, b));
                        assert_int_equal(link->kind, TOPOLOGY_LINK_XGMI);
                        assert_int_equal(link->bytes_per_second, UINT64_C(1000000) * (64000 + a + b));
                }
        }
        /* Once more changes nothing. */
        assert_int_equal(kfd_read(root, t), 0);
        assert_int_equal(t->n_nodes, 10);
        assert_int_equal(t->n_links, 36);
        topology_free(t);
}

/* hwloc has seen the GPUs already, in another order and with links of their own: nothing is added but xGMI and memory.
 */
static void test_kfd_known(void **state) {
        struct topology *t = two_sockets();
        const char *root = *state;
        uint32_t position;

        mi300x(root);
        for (uint32_t i = 0; i < 8; i++) {
                struct topology_node gpu = {.kind = TOPOLOGY_GPU, .index = i, .numa = i / 4};

                snprintf(gpu.pci, sizeof(gpu.pci), "0000:%02x:00.0", bus[7 - i]);
                assert_int_equal(topology_add_node(t, &gpu, &position), 0);
        }
        assert_int_equal(kfd_read(root, t), 0);
        assert_int_equal(t->n_nodes, 10);
        assert_int_equal(t->n_links, 28);
        assert_int_equal(topology_link_find(t, 2, 3)->bytes_per_second, UINT64_C(1000000) * (64000 + 7 + 6));
        assert_int_equal(t->nodes[2].memory_bytes, UINT64_C(206141652992));
        assert_int_equal(t->nodes[2].numa, 0);
        topology_free(t);
}

/* Ways through other GPUs, partitions of one GPU, files that are none, CPUs with xGMI. */
static void test_kfd_odd(void **state) {
        struct topology *t = two_sockets();
        const char *root = *state;

        for (unsigned int node = 1; node < 5; node++) {
                char text[128];

                snprintf(text, sizeof(text), "simd_count 440\nlocation_id %u\ndomain %u\nvendor_id 4098",
                         node < 4 ? node << 8 : (3 << 8), node < 4 ? node : 3);
                tree_file(root, text, NODES "/%u/properties", node);
        }
        tree_file(root, "cpu_cores_count 8\nsimd_count 0\n", NODES "/0/properties");
        tree_file(root, "simd_count 1\n", NODES "/4096/properties");
        tree_file(root, "simd_count 1\n", NODES "/x/properties");
        tree_file(root, "", NODES "/7/properties");
        kfd_link(root, 1, 0, 2, 11, 15, 50000);
        kfd_link(root, 1, 1, 3, 11, 30, 50000);
        kfd_link(root, 1, 2, 0, 11, 13, 36000);
        kfd_link(root, 3, 0, 4, 11, 15, 50000);
        kfd_link(root, 3, 1, 999, 11, 15, 50000);
        kfd_link(root, 3, 2, 99999, 11, 15, 50000);
        tree_file(root, "type", NODES "/3/io_links/3/properties");
        tree_file(root, "\n\n", NODES "/3/io_links/4/properties");
        assert_int_equal(kfd_read(root, t), 0);
        assert_int_equal(topology_count(t, TOPOLOGY_GPU), 3);
        assert_string_equal(t->nodes[4].pci, "0003:03:00.0");
        assert_int_equal(t->nodes[2].numa, 0);
        assert_int_equal(t->nodes[3].numa, TOPOLOGY_NONE);
        assert_int_equal(t->n_links, 2);
        assert_int_equal(topology_link_find(t, 2, 3)->bytes_per_second, UINT64_C(50000000000));
        assert_int_equal(topology_link_find(t, 0, 2)->kind, TOPOLOGY_LINK_XGMI);
        topology_free(t);
}

/* ---- NICs ---- */

/* A device of the kernel below a PCI device, or virtual. */
static void class_device(const char *root, const char *class, const char *name, const char *pci) {
        char path[256], target[256];

        if (pci) {
                snprintf(path, sizeof(path), "sys/devices/pci0000:00/0000:00:01.0/%s/%s/%s/x", pci, class, name);
                tree_folders(root, path);
                snprintf(path, sizeof(path), "sys/devices/pci0000:00/0000:00:01.0/%s/%s/%s/device", pci, class, name);
                tree_link(root, path, "../..");
                snprintf(target, sizeof(target), "../../devices/pci0000:00/0000:00:01.0/%s/%s/%s", pci, class, name);
        } else {
                snprintf(path, sizeof(path), "sys/devices/virtual/%s/%s/x", class, name);
                tree_folders(root, path);
                snprintf(target, sizeof(target), "../../devices/virtual/%s/%s", class, name);
        }
        snprintf(path, sizeof(path), "sys/class/%s/%s", class, name);
        tree_link(root, path, target);
}

static void pci_device(const char *root, const char *pci, const char *numa) {
        char path[256], target[256];

        tree_file(root, numa, "sys/devices/pci0000:00/0000:00:01.0/%s/numa_node", pci);
        snprintf(path, sizeof(path), "sys/bus/pci/devices/%s", pci);
        snprintf(target, sizeof(target), "../../../devices/pci0000:00/0000:00:01.0/%s", pci);
        tree_link(root, path, target);
}

static const struct topology_node *nic_named(const struct topology *t, const char *rdma, const char *netdev) {
        for (uint32_t i = 0; i < t->n_nodes; i++)
                if (t->nodes[i].kind == TOPOLOGY_NIC && strcmp(t->nodes[i].rdma, rdma) == 0 &&
                    strcmp(t->nodes[i].netdev, netdev) == 0)
                        return &t->nodes[i];
        fail_msg("no NIC %s %s", rdma, netdev);
        return NULL;
}

static uint64_t port_speed(const struct topology *t, const struct topology_node *nic) {
        const struct topology_link *link =
                topology_link_find(t, (uint32_t)(nic - t->nodes), topology_find(t, TOPOLOGY_NETWORK, 0));

        assert_non_null(link);
        assert_int_equal(link->kind, TOPOLOGY_LINK_PORT);
        return link->bytes_per_second;
}

static void test_nics(void **state) {
        struct topology *t = two_sockets();
        const struct topology_node *nic;
        const char *root = *state;
        uint32_t position;

        assert_int_equal(nic_read(root, t), 0); /* nothing there */
        assert_int_equal(t->n_nodes, 2);

        /* One that hwloc knows by its PCI address only, with both names. */
        pci_device(root, "0000:41:00.0", "1\n");
        class_device(root, "infiniband", "ionic_0", "0000:41:00.0");
        class_device(root, "net", "enp65s0", "0000:41:00.0");
        tree_file(root, "400 Gb/sec (4X NDR)\n", "sys/class/infiniband/ionic_0/ports/1/rate");
        tree_file(root, "enp65s0\n", "sys/class/infiniband/ionic_0/ports/1/gid_attrs/ndevs/0");
        tree_file(root, "1\n", "sys/class/net/enp65s0/type");
        tree_file(root, "200000\n", "sys/class/net/enp65s0/speed"); /* the RDMA device is asked first */
        assert_int_equal(
                topology_add_node(
                        t, &(struct topology_node){.kind = TOPOLOGY_NIC, .index = 0, .numa = 1, .pci = "0000:41:00.0"},
                        &position),
                0);
        /* One that hwloc does not know, InfiniBand: its device of the network has the address only. */
        pci_device(root, "0000:42:00.1", "0\n");
        class_device(root, "infiniband", "mlx5_1", "0000:42:00.1");
        class_device(root, "net", "ibp66s0f1", "0000:42:00.1");
        tree_file(root, "32\n", "sys/class/net/ibp66s0f1/type");
        tree_file(root, "0 Gb/sec\n", "sys/class/infiniband/mlx5_1/ports/1/rate");
        /* A virtual function of it. */
        pci_device(root, "0000:42:01.0", "0\n");
        tree_file(root, "", "sys/devices/pci0000:00/0000:00:01.0/0000:42:01.0/physfn");
        class_device(root, "infiniband", "mlx5_2", "0000:42:01.0");
        class_device(root, "net", "eth9", "0000:42:01.0");
        tree_file(root, "1\n", "sys/class/net/eth9/type");
        /* Soft-RoCE on virtual Ethernet: no place. */
        class_device(root, "infiniband", "rxe0", NULL);
        class_device(root, "net", "veth0", NULL);
        tree_file(root, "veth0\n", "sys/class/infiniband/rxe0/parent");
        tree_file(root, "1\n", "sys/class/net/veth0/type");
        tree_file(root, "40 Gb/sec (4X QDR)\n", "sys/class/infiniband/rxe0/ports/1/rate");
        /* Plain Ethernet in a machine that does not say where, without a link; soft-RoCE on top. */
        pci_device(root, "0000:43:00.0", "-1\n");
        class_device(root, "net", "eno1", "0000:43:00.0");
        tree_file(root, "1\n", "sys/class/net/eno1/type");
        tree_file(root, "-1\n", "sys/class/net/eno1/speed");
        class_device(root, "infiniband", "rxe1", NULL);
        tree_file(root, "eno1\n", "sys/class/infiniband/rxe1/ports/1/gid_attrs/ndevs/0");
        /* Plain Ethernet with a place. And what is no NIC. */
        pci_device(root, "0000:44:00.0", "0\n");
        class_device(root, "net", "eno2", "0000:44:00.0");
        tree_file(root, "1\n", "sys/class/net/eno2/type");
        tree_file(root, "25000\n", "sys/class/net/eno2/speed");
        class_device(root, "net", "lo", NULL);
        tree_file(root, "772\n", "sys/class/net/lo/type");
        class_device(root, "net", "docker0", NULL);
        tree_file(root, "1\n", "sys/class/net/docker0/type");
        tree_file(root, "", "sys/class/net/bonding_masters");

        assert_int_equal(nic_read(root, t), 0);
        assert_int_equal(topology_count(t, TOPOLOGY_NIC), 5);
        assert_int_equal(topology_count(t, TOPOLOGY_NETWORK), 1);
        nic = nic_named(t, "ionic_0", "enp65s0");
        assert_ptr_equal(nic, &t->nodes[position]);
        assert_string_equal(nic->name, "ionic_0");
        assert_int_equal(port_speed(t, nic), UINT64_C(50000000000));
        nic = nic_named(t, "mlx5_1", "ibp66s0f1");
        assert_string_equal(nic->pci, "0000:42:00.1");
        assert_int_equal(nic->numa, 0);
        assert_int_equal(port_speed(t, nic), 0);
        assert_non_null(topology_link_find(t, 0, (uint32_t)(nic - t->nodes)));
        nic = nic_named(t, "rxe0", "veth0");
        assert_string_equal(nic->pci, "");
        assert_int_equal(nic->numa, TOPOLOGY_NONE);
        assert_int_equal(port_speed(t, nic), UINT64_C(5000000000));
        nic = nic_named(t, "rxe1", "eno1");
        assert_string_equal(nic->pci, "0000:43:00.0");
        assert_int_equal(nic->numa, TOPOLOGY_NONE);
        assert_int_equal(port_speed(t, nic), 0);
        nic = nic_named(t, "", "eno2");
        assert_int_equal(nic->numa, 0);
        assert_int_equal(port_speed(t, nic), UINT64_C(3125000000));
        assert_int_equal(t->n_links, 5 + 2); /* ports; two that were added with a place */
        /* Once more changes nothing. */
        assert_int_equal(nic_read(root, t), 0);
        assert_int_equal(topology_count(t, TOPOLOGY_NIC), 5);
        assert_int_equal(t->n_links, 7);
        topology_free(t);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_kfd, setup, teardown),
                cmocka_unit_test_setup_teardown(test_kfd_known, setup, teardown),
                cmocka_unit_test_setup_teardown(test_kfd_odd, setup, teardown),
                cmocka_unit_test_setup_teardown(test_nics, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
