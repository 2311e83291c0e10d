/* SPDX-License-Identifier: MIT */
#include <sched.h>
#include <string.h>

#include "tests/cmocka_all.h"
#include "topology/topology.h"

static void test_host(void **state) {
        (void)state;
        for (uint32_t n = 1; n <= 64; n = n * 3 - 1) {
                struct topology *t = NULL;
                uint32_t n_numa, n_cpus = 0;
                cpu_set_t cpus;

                assert_int_equal(topology_host(n, &t), 0);
                n_numa = topology_count(t, TOPOLOGY_NUMA);
                assert_int_equal(topology_count(t, TOPOLOGY_GPU), n);
                assert_true(n_numa >= 1);
                assert_int_equal(t->n_nodes, n_numa + n);
                assert_int_equal(t->n_links, n + n * (n - 1) / 2);
                assert_true(topology_full_mesh(t));

                for (uint32_t i = 0; i < t->n_nodes; i++)
                        n_cpus += t->nodes[i].kind == TOPOLOGY_NUMA ? t->nodes[i].n_cpus : 0;
                assert_true(t->n_cpus >= 1 && n_cpus <= t->n_cpus);
                assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
                assert_true(t->n_cpus >= (uint32_t)CPU_COUNT(&cpus)); /* allowed, bound to or not */

                for (uint32_t i = 0; i < n; i++) {
                        uint32_t at = topology_find(t, TOPOLOGY_GPU, i);
                        const struct topology_link *link;

                        assert_true(at < t->n_nodes && t->nodes[at].numa == i % n_numa);
                        link = topology_link_find(t, at, t->nodes[at].numa);
                        assert_non_null(link);
                        assert_int_equal(link->kind, TOPOLOGY_LINK_LOCAL);
                        for (uint32_t k = 0; k < i; k++) {
                                link = topology_link_find(t, at, topology_find(t, TOPOLOGY_GPU, k));
                                assert_non_null(link);
                                assert_int_equal(link->kind, TOPOLOGY_LINK_MEMORY);
                                assert_true(link->bytes_per_second > 0 && link->latency_ns > 0);
                        }
                }
                assert_null(topology_free(t));
        }
}

static void test_host_limits(void **state) {
        struct topology *t = NULL;

        (void)state;
        assert_int_equal(topology_host(0, &t), TOPOLOGY_E_INVALID);
        assert_int_equal(topology_host(TOPOLOGY_GPUS_MAX + 1, &t), TOPOLOGY_E_INVALID);
        assert_null(t);
        assert_null(topology_free(NULL));
}

/* A graph as another reader would make it: not a mesh, two kinds of links between the same two. */
static void test_graph(void **state) {
        struct topology_node numa = {.kind = TOPOLOGY_NUMA, .index = 3, .numa = TOPOLOGY_NONE};
        struct topology_node gpu = {.kind = TOPOLOGY_GPU, .index = 0, .numa = 0};
        struct topology_link link = {.a = 2, .b = 1, .kind = TOPOLOGY_LINK_LOCAL, .bytes_per_second = 5};
        struct topology *t = NULL;
        uint32_t at = 77;

        (void)state;
        memset(gpu.name, 'x', sizeof(gpu.name));
        assert_int_equal(topology_new(&t), 0);
        assert_true(topology_full_mesh(t));                                    /* of none */
        assert_int_equal(topology_add_node(t, &gpu, &at), TOPOLOGY_E_INVALID); /* its NUMA node is not there */
        assert_int_equal(at, 77);
        assert_int_equal(topology_add_node(t, &numa, &at), 0);
        assert_int_equal(at, 0);
        assert_int_equal(topology_add_node(t, &numa, &at), TOPOLOGY_E_EXISTS);
        for (gpu.index = 0; gpu.index < 3; gpu.index++)
                assert_int_equal(topology_add_node(t, &gpu, &at), 0);
        assert_int_equal(at, 3);
        assert_int_equal(strlen(t->nodes[1].name), sizeof(t->nodes[1].name) - 1);
        gpu.index = 9;
        gpu.numa = 1; /* a GPU */
        assert_int_equal(topology_add_node(t, &gpu, &at), TOPOLOGY_E_INVALID);
        gpu.numa = 0;
        gpu.kind = TOPOLOGY_NODE_KIND_COUNT;
        assert_int_equal(topology_add_node(t, &gpu, &at), TOPOLOGY_E_INVALID);
        gpu.kind = 0;
        assert_int_equal(topology_add_node(t, &gpu, &at), TOPOLOGY_E_INVALID);
        assert_int_equal(topology_find(t, TOPOLOGY_NUMA, 3), 0);
        assert_int_equal(topology_find(t, TOPOLOGY_GPU, 2), 3);
        assert_int_equal(topology_find(t, TOPOLOGY_GPU, 3), TOPOLOGY_NONE);
        assert_int_equal(topology_find(t, TOPOLOGY_NUMA, 0), TOPOLOGY_NONE);

        assert_int_equal(topology_add_link(t, &link), 0);
        assert_int_equal(topology_add_link(t, &link), TOPOLOGY_E_EXISTS);
        link.a = 1;
        link.b = 2; /* the same the other way round */
        assert_int_equal(topology_add_link(t, &link), TOPOLOGY_E_EXISTS);
        assert_false(topology_full_mesh(t));
        link.kind = TOPOLOGY_LINK_MEMORY;
        link.bytes_per_second = 50;
        assert_int_equal(topology_add_link(t, &link), 0);
        assert_int_equal(topology_link_find(t, 2, 1)->bytes_per_second, 50);
        assert_int_equal(topology_link_find(t, 1, 2)->a, 1);
        assert_null(topology_link_find(t, 1, 3));
        for (link.a = 1; link.a < 3; link.a++) {
                link.b = 3;
                assert_int_equal(topology_add_link(t, &link), 0);
        }
        assert_true(topology_full_mesh(t));
        link.a = link.b = 1;
        assert_int_equal(topology_add_link(t, &link), TOPOLOGY_E_INVALID);
        link.b = 4;
        assert_int_equal(topology_add_link(t, &link), TOPOLOGY_E_INVALID);
        link.b = 2;
        link.kind = TOPOLOGY_LINK_KIND_COUNT;
        assert_int_equal(topology_add_link(t, &link), TOPOLOGY_E_INVALID);
        assert_null(topology_free(t));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_host),
                cmocka_unit_test(test_host_limits),
                cmocka_unit_test(test_graph),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
