/* SPDX-License-Identifier: MIT */
/* What people and programs get to see, to the letter. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cmocka_all.h"

#include "tools/ctl/graph.h"
#include "tools/ctl/ranks.h"
#include "tools/ctl/show.h"
#include "tools/ctl/table.h"
#include "topology/rails.h"
#include "topology/topology.h"

typedef Railmux__Control__Member Member;
typedef Railmux__Control__Comm Comm;

static void assert_shown(int (*show)(const struct answer *, const struct show_options *, FILE *),
                         const struct answer *answer, const struct show_options *options, const char *expected) {
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);

        assert_non_null(out);
        assert_int_equal(show(answer, options, out), 0);
        fclose(out);
        assert_string_equal(text, expected);
        free(text);
}

static Member members[6];
static Member *member_rows[6];

static Comm make_comm(unsigned int n, const uint32_t *rung) {
        Comm comm = RAILMUX__CONTROL__COMM__INIT;

        for (unsigned int i = 0; i < n; i++) {
                members[i] = (Member)RAILMUX__CONTROL__MEMBER__INIT;
                members[i].rank = i;
                members[i].rung = rung[i];
                members[i].gpu = i;
                members[i].pid = 4000 + i;
                members[i].session = 10 + i;
                member_rows[i] = &members[i];
        }
        comm.comm = 3;
        comm.name = (char *)"tp";
        comm.tenant = (char *)"default";
        comm.state = (char *)"ready";
        comm.n_ranks = comm.joined = n;
        comm.n_members = n;
        comm.members = member_rows;
        return comm;
}

static void test_ranks(void **state) {
        const uint32_t even[] = {7, 7, 7}, mixed[] = {121, 121, 121, 120, 121, 119}, wrapped[] = {0xffffffff, 1, 0};
        char text[256];
        Comm comm;

        (void)state;
        comm = make_comm(3, even);
        assert_int_equal(ranks_highest(&comm), 7);
        assert_false(ranks_awaited(&comm, member_rows[0]));
        assert_string_equal(ranks_text(&comm, text, sizeof(text)), "7 by ranks 0-2");
        comm = make_comm(6, mixed);
        assert_true(ranks_awaited(&comm, member_rows[3]));
        assert_false(ranks_awaited(&comm, member_rows[4]));
        assert_string_equal(ranks_text(&comm, text, sizeof(text)), "121 by ranks 0-2, 4; 120 by rank 3; 119 by rank 5");
        members[5].left = true;
        assert_string_equal(ranks_text(&comm, text, sizeof(text)), "121 by ranks 0-2, 4; 120 by rank 3");
        assert_false(ranks_awaited(&comm, member_rows[5]));
        /* Sequences wrap. */
        comm = make_comm(3, wrapped);
        assert_int_equal(ranks_highest(&comm), 1);
        assert_string_equal(ranks_text(&comm, text, sizeof(text)), "1 by rank 1; 0 by rank 2; 4294967295 by rank 0");
        /* Cut, not overrun. */
        ranks_text(&comm, text, 8);
        assert_string_equal(text, "1 by ra");
        comm.n_members = 0;
        assert_string_equal(ranks_text(&comm, text, sizeof(text)), "");
}

static void test_table(void **state) {
        static const char *const headers[] = {"NAME", ">N", "REST", NULL};
        struct table table;
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);

        (void)state;
        table_init(&table, headers);
        table_cell(&table, "%s", "a\033[31m\n");
        table_cell(&table, "%d", 12345);
        table_cell(&table, "%s", "");
        table_note(&table, "under it");
        table_cell(&table, "%s", "long name");
        table_size(&table, 1536);
        table_cell(&table, "x");
        assert_int_equal(table_print(&table, out), 0);
        fclose(out);
        assert_string_equal(text, "NAME             N  REST\n"
                                  "a?[31m?      12345  -\n"
                                  "    under it\n"
                                  "long name  1.5 KiB  x\n");
        table_deinit(&table);
        free(text);
}

static void test_comms(void **state) {
        const uint32_t rung[] = {17, 16, 17};
        Comm comm = make_comm(3, rung), broken = RAILMUX__CONTROL__COMM__INIT, *rows[] = {&comm, &broken};
        struct answer answer = {.comms = rows, .n_comms = 2};
        struct show_options options = {.ranks = false};
        json_t *json;

        (void)state;
        comm.final_sequence = 16;
        comm.operations = 16;
        comm.bytes = 4096;
        comm.waiting = (char *)"all_reduce 17 for rank 1 since 1.2 s";
        comm.staging_bytes = 1 << 20;
        broken.comm = 4;
        broken.tenant = (char *)"default";
        broken.state = (char *)"failed";
        broken.n_ranks = broken.joined = 2;
        broken.error = 10;
        broken.failed_rank = 1;
        assert_shown(show_comms, &answer, &options,
                     "COMM  NAME  TENANT   RANKS  STATE   EPOCH  FINAL  OPERATIONS  BYTES  LOST  STAGING  WAITING FOR\n"
                     "   3  tp    default    3/3  ready       0     16          16  4 KiB     0    1 MiB  "
                     "all_reduce 17 for rank 1 since 1.2 s\n"
                     "    last sequence 17 by ranks 0, 2; 16 by rank 1\n"
                     "   4  -     default    2/2  failed      0      0           0    0 B     0      0 B  -\n"
                     "    error: RMX_E_PEER_LOST, caused by rank 1\n");
        options.ranks = true;
        answer.n_comms = 1;
        assert_shown(show_comms, &answer, &options,
                     "COMM  NAME  TENANT   RANKS  STATE  EPOCH  FINAL  OPERATIONS  BYTES  LOST  STAGING  WAITING FOR\n"
                     "   3  tp    default    3/3  ready      0     16          16  4 KiB     0    1 MiB  "
                     "all_reduce 17 for rank 1 since 1.2 s\n"
                     "    rank 0   GPU 0   pid 4000     session 10     last 17\n"
                     "    rank 1   GPU 1   pid 4001     session 11     last 16  <- waited for\n"
                     "    rank 2   GPU 2   pid 4002     session 12     last 17\n");
        /* Exchanged by the ranks' own kernels. */
        for (size_t i = 0; i < 3; i++) {
                members[i].exchanged = 100 - (i == 2);
                members[i].awaited = i == 2;
        }
        members[0].left = true;
        comm.exchanged = 99;
        comm.operations += 99;
        comm.waiting = (char *)"exchange 100 (all_reduce) for rank 2 since 1.2 s";
        assert_shown(show_comms, &answer, &options,
                     "COMM  NAME  TENANT   RANKS  STATE  EPOCH  FINAL  OPERATIONS  BYTES  LOST  STAGING  WAITING FOR\n"
                     "   3  tp    default    3/3  ready      0     16         115  4 KiB     0    1 MiB  "
                     "exchange 100 (all_reduce) for rank 2 since 1.2 s\n"
                     "    rank 0   GPU 0   pid 4000     session 10     last 17  exchanged 100  left\n"
                     "    rank 1   GPU 1   pid 4001     session 11     last 16  exchanged 100  <- waited for\n"
                     "    rank 2   GPU 2   pid 4002     session 12     last 17  exchanged 99  <- waited for\n");
        json = json_comms(&answer);
        assert_int_equal(json_integer_value(json_object_get(json_array_get(json, 0), "exchanged")), 99);
        assert_int_equal(json_array_size(json), 1);
        assert_true(json_is_null(json_object_get(json_array_get(json, 0), "error")));
        json_decref(json);
}

static void test_status(void **state) {
        Railmux__Control__Executor executor = RAILMUX__CONTROL__EXECUTOR__INIT, *executors[] = {&executor};
        Railmux__Control__Status status = RAILMUX__CONTROL__STATUS__INIT;
        struct answer answer = {.status = &status};
        struct show_options options = {.ranks = false};
        char *notes[] = {(char *)"look\there"};

        (void)state;
        status.state = (char *)"running";
        status.version = (char *)"0.1.0";
        status.pid = 77;
        status.uptime_ns = UINT64_C(7200) * 1000000000;
        status.client_socket = (char *)"/run/railmux/client.sock";
        status.sessions = 8;
        status.comms = 1;
        status.tenants = 1;
        status.executors = executors;
        status.n_executors = 1;
        status.notes = notes;
        status.n_notes = 1;
        executor.name = executor.backend = (char *)"host";
        executor.state = (char *)"ready";
        executor.pid = 78;
        executor.gpus = 8;
        executor.workers = 2;
        executor.uptime_ns = UINT64_C(500000000);
        assert_shown(show_status, &answer, &options,
                     "state          running\n"
                     "railmuxd       0.1.0, pid 77, up 2.0 h, 0 restarts survived\n"
                     "socket         /run/railmux/client.sock\n"
                     "configuration  defaults (no file)\n"
                     "serving        8 sessions, 1 communicators, 1 tenants\n"
                     "\n"
                     "EXECUTOR  BACKEND  STATE  PID  GPUS  WORKERS  LOSSES     UP\n"
                     "host      host     ready   78     8        2       0  0.5 s\n"
                     "\n"
                     "note           look?here\n");
        answer.status = NULL;
        assert_true(show_status(&answer, &options, stdout) < 0);
}

static void test_rails(void **state) {
        Railmux__Control__Rail up = RAILMUX__CONTROL__RAIL__INIT, waiting = up, *rows[] = {&up, &waiting};
        struct answer answer = {.rail_rows = rows, .n_rail_rows = 2};
        json_t *json;

        (void)state;
        up.name = (char *)"r0";
        waiting.name = (char *)"r1";
        up.kind = waiting.kind = (char *)"tcp";
        up.address = (char *)"10.0.0.1:4000";
        waiting.address = (char *)"10.0.1.1:0";
        up.state = (char *)"up";
        waiting.state = (char *)"waiting";
        waiting.error = (char *)"there is no such address";
        assert_shown(
                show_rails, &answer, NULL,
                "RAIL  KIND  ADDRESS        STATE    SENT  RECEIVED  MESSAGES  CONNECTIONS  QUEUED  IN FLIGHT       "
                "RATE  REFUSED  GPUS  ERROR\n"
                "r0    tcp   10.0.0.1:4000  up        0 B       0 B         0            0     0 B        0 B  "
                "0.00 GB/s        0  -     -\n"
                "r1    tcp   10.0.1.1:0     waiting   0 B       0 B         0            0     0 B        0 B  "
                "0.00 GB/s        0  -     there is no such address\n");
        json = json_rails(&answer);
        assert_string_equal(json_string_value(json_object_get(json_array_get(json, 0), "error")), "");
        assert_string_equal(json_string_value(json_object_get(json_array_get(json, 1), "error")),
                            "there is no such address");
        json_decref(json);
}

static void test_metrics(void **state) {
        Railmux__Control__Metric a = RAILMUX__CONTROL__METRIC__INIT, b = a, c = a, *rows[] = {&a, &b, &c};
        Railmux__Control__Label label = RAILMUX__CONTROL__LABEL__INIT, other = label, *one[] = {&label},
                                *two[] = {&label, &other};
        struct answer answer = {.metrics = rows, .n_metrics = 3};

        (void)state;
        label.name = (char *)"tenant";
        label.value = (char *)"a\"b\\c\nd";
        other.name = (char *)"resource";
        other.value = (char *)"bytes";
        a.name = b.name = (char *)"railmux_used";
        a.help = b.help = (char *)"What is \"used\" \\ held";
        a.kind = b.kind = (char *)"gauge";
        a.labels = one;
        a.n_labels = 1;
        a.value = 0.1;
        b.labels = two;
        b.n_labels = 2;
        b.value = 9007199254740991.0;
        c.name = (char *)"railmux_calls_total";
        c.help = (char *)"Calls";
        c.kind = (char *)"counter";
        c.value = 12;
        assert_shown(show_metrics, &answer, NULL,
                     "# HELP railmux_used What is \"used\" \\\\ held\n"
                     "# TYPE railmux_used gauge\n"
                     "railmux_used{tenant=\"a\\\"b\\\\c\\nd\"} 0.1\n"
                     "railmux_used{tenant=\"a\\\"b\\\\c\\nd\",resource=\"bytes\"} 9007199254740991\n"
                     "# HELP railmux_calls_total Calls\n"
                     "# TYPE railmux_calls_total counter\n"
                     "railmux_calls_total 12\n");
}

/* One machine with all that the tree has to show: a switch, a NIC with a place and one without, two links between GPUs.
 */
static const char graph_text[] =
        "<railmux-topology version=\"1\" cpus=\"12\"><numa index=\"0\" name=\"numa0\" cpus=\"8\" "
        "memory=\"1073741824\"/>"
        "<numa index=\"1\" name=\"DRAM\" cpus=\"4\"/>"
        "<switch index=\"0\" numa=\"0\" name=\"0000:01:00.0\" pci=\"0000:01:00.0\"/>"
        "<gpu index=\"0\" numa=\"0\" name=\"0000:02:00.0\" pci=\"0000:02:00.0\" vendor=\"1002\" memory=\"2147483648\"/>"
        "<gpu index=\"1\" numa=\"1\" name=\"big\" pci=\"0000:42:00.0\" vendor=\"abcd\"/>"
        "<nic index=\"0\" numa=\"0\" name=\"mlx5_0\" pci=\"0000:03:00.0\" vendor=\"15b3\" netdev=\"eth0\" "
        "rdma=\"mlx5_0\"/>"
        "<nic index=\"1\" name=\"rxe0\" netdev=\"veth0\" rdma=\"rxe0\"/><network index=\"0\"/>"
        "<link a=\"numa0\" b=\"numa1\" kind=\"numa\"/>"
        "<link a=\"numa0\" b=\"switch0\" kind=\"pci\" bytes_per_second=\"31507692304\" width=\"16\" generation=\"4\"/>"
        "<link a=\"switch0\" b=\"gpu0\" kind=\"pci\" bytes_per_second=\"31507692304\" width=\"16\" generation=\"4\"/>"
        "<link a=\"switch0\" b=\"nic0\" kind=\"pci\"/><link a=\"numa1\" b=\"gpu1\" kind=\"xgmi\" "
        "bytes_per_second=\"36000000000\"/>"
        "<link a=\"nic0\" b=\"network0\" kind=\"port\" bytes_per_second=\"50000000000\"/>"
        "<link a=\"nic1\" b=\"network0\" kind=\"port\"/>"
        "<link a=\"gpu0\" b=\"gpu1\" kind=\"xgmi\" bytes_per_second=\"64000000000\"/></railmux-topology>";

static void test_topology(void **state) {
        struct answer answer = ANSWER_INIT;
        struct show_options options = {.ranks = false};
        char error[ANSWER_ERROR_MAX] = "", *text = NULL;
        size_t size = 0;
        json_t *json;
        FILE *out;

        (void)state;
        assert_int_equal(show_topology(&answer, &options, stdout), -EBADMSG);
        assert_int_equal(graph_of_daemon(&answer, error), -EBADMSG);
        assert_non_null(strstr(error, "it is not there"));
        answer.topology = strdup("<railmux-topology version=\"9\"/>");
        answer.topology_length = strlen(answer.topology);
        assert_int_equal(graph_of_daemon(&answer, error), -EBADMSG);
        assert_non_null(strstr(error, "railmuxd:1:1: version=\"9\"; allowed: 1"));
        free(answer.topology);
        answer.topology = strdup(graph_text);
        answer.topology_length = strlen(answer.topology);
        assert_int_equal(graph_of_daemon(&answer, error), 0);
        assert_shown(show_topology, &answer, &options,
                     "12 CPUs, 2 NUMA nodes, 2 GPUs, 2 NICs, 2 of them to be rails\n"
                     "\n"
                     "numa0  8 CPUs, 1 GiB\n"
                     "  switch0  0000:01:00.0, PCIe 4.0 x16 31.5 GB/s\n"
                     "    gpu0  0000:02:00.0, AMD, 2 GiB, PCIe 4.0 x16 31.5 GB/s, nearest nic0\n"
                     "    nic0  mlx5_0, 0000:03:00.0, Mellanox, eth0, pci\n"
                     "numa1  DRAM, 4 CPUs\n"
                     "  gpu1  big, 0000:42:00.0, xgmi 36.0 GB/s, nearest nic1\n"
                     "elsewhere, or nobody knows where\n"
                     "  nic1  rxe0, veth0\n"
                     "\n"
                     "LINKS        NUMBER  GB/s EACH  TOGETHER\n"
                     "numa              1          ?         ?\n"
                     "pci 4.0 x16       2       31.5      63.0\n"
                     "pci               1          ?         ?\n"
                     "xgmi              1       36.0      36.0\n"
                     "xgmi              1       64.0      64.0\n"
                     "port              1       50.0      50.0\n"
                     "port              1          ?         ?\n"
                     "\n"
                     "NIC   RDMA    NETDEV  NUMA   GB/s  NEAREST GPUS\n"
                     "nic0  mlx5_0  eth0    numa0  50.0  0\n"
                     "nic1  rxe0    veth0   -         ?  1\n"
                     "\n"
                     "GPUs have the rails of peer.rails in turn; nothing goes by this table.\n"
                     "In this order GPUs 0, 1, 2 and so on have those that are nearest:\n"
                     "  peer.rails: rail0=ADDRESS_OF_eth0,kind=verbs rail1=ADDRESS_OF_veth0,kind=verbs\n");
        json = json_topology(&answer);
        assert_int_equal(json_array_size(json_object_get(json, "nodes")), 8);
        assert_int_equal(json_array_size(json_object_get(json, "links")), 8);
        assert_int_equal(json_array_size(json_object_get(json, "rails")), 2);
        assert_string_equal(
                json_string_value(json_object_get(json_array_get(json_object_get(json, "nodes"), 4), "vendor")),
                "abcd");
        assert_true(json_is_null(json_object_get(json_array_get(json_object_get(json, "nodes"), 6), "numa")));
        json_decref(json);

        out = open_memstream(&text, &size);
        assert_non_null(out);
        assert_int_equal(graph_to_dot(&answer, out), 0);
        fclose(out);
        assert_int_equal(strncmp(text, "graph topology {", 16), 0);
        assert_non_null(
                strstr(text, "label=\"GB/s each way; numa gray50; pci black; xgmi firebrick; port royalblue\""));
        assert_non_null(strstr(
                text, "gpu0 [shape=box,style=filled,fillcolor=lightgoldenrod,label=\"gpu0\\nAMD\\n0000:02:00.0"));
        assert_non_null(strstr(text, "  numa0 -- switch0 [color=black,label=\"31.51\"];"));
        assert_non_null(strstr(text, "  gpu0 -- gpu1 [color=firebrick,constraint=false];"));
        free(text);
        answer_deinit(&answer);
}

/* Chains, rings and words that Graphviz and terminals would take for more: shown once each, and quoted. */
static void test_topology_odd(void **state) {
        struct show_options options = {.ranks = false};
        struct topology_node node = {.kind = TOPOLOGY_SWITCH, .numa = TOPOLOGY_NONE, .name = "\"];\\ \033[31m"};
        struct topology_link link = {.kind = TOPOLOGY_LINK_PCI};
        struct answer answer = ANSWER_INIT;
        char *text = NULL;
        unsigned int n = 0;
        uint32_t position;
        size_t size = 0;
        FILE *out;

        (void)state;
        assert_int_equal(topology_new(&answer.graph), 0);
        for (; node.index < 100; node.index++)
                assert_int_equal(topology_add_node(answer.graph, &node, &position), 0);
        for (link.b = 1; link.b < 100; link.a = link.b++)
                assert_int_equal(topology_add_link(answer.graph, &link), 0);
        assert_int_equal(
                topology_add_link(answer.graph, &(struct topology_link){.a = 0, .b = 99, .kind = TOPOLOGY_LINK_PCI}),
                0);
        assert_int_equal(topology_rails_new(answer.graph, &answer.rails), 0);
        out = open_memstream(&text, &size);
        assert_int_equal(show_topology(&answer, &options, out), 0);
        fclose(out);
        for (const char *p = text; (p = strstr(p, "switch")); p++)
                n++;
        assert_int_equal(n, 100);
        assert_null(strchr(text, '\033'));
        free(text);
        out = open_memstream(&text, &size);
        snprintf(answer.graph->nodes[7].rdma, sizeof(answer.graph->nodes[7].rdma), "a\"b\\");
        assert_int_equal(graph_to_dot(&answer, out), 0);
        fclose(out);
        assert_non_null(strstr(text, "label=\"switch7\\n\\\"];\\\\ ?[31m\\na\\\"b\\\\\"];"));
        free(text);
        answer_deinit(&answer);
}

/* A name that is no UTF-8 must not cost the document. */
static void test_json_text(void **state) {
        Railmux__Control__Session session = RAILMUX__CONTROL__SESSION__INIT, *rows[] = {&session};
        struct answer answer = {.sessions = rows, .n_sessions = 1};
        json_t *json;

        (void)state;
        session.name = (char *)"a\xff\"b";
        session.bytes = UINT64_MAX;
        json = json_sessions(&answer);
        assert_non_null(json);
        assert_string_equal(json_string_value(json_object_get(json_array_get(json, 0), "name")), "a?\"b");
        assert_true(json_integer_value(json_object_get(json_array_get(json, 0), "bytes")) == INT64_MAX);
        json_decref(json);
}

static void test_peers(void **state) {
        Railmux__Control__Peer self = RAILMUX__CONTROL__PEER__INIT, up = RAILMUX__CONTROL__PEER__INIT,
                               gone = RAILMUX__CONTROL__PEER__INIT, *rows[] = {&self, &up, &gone};
        struct answer answer = {.peers = rows, .n_peers = 3};
        struct show_options options = {0};
        char *text;
        size_t size;
        FILE *out;

        (void)state;
        self.state = (char *)"self";
        self.name = (char *)"node1";
        self.node = (char *)"0011223344556677";
        self.address = (char *)"10.0.0.1:7600";
        self.protocol = 5;
        self.tls = true;
        up.state = (char *)"up";
        up.name = (char *)"node2";
        up.node = (char *)"8899aabbccddeeff";
        up.address = (char *)"10.0.0.2:7600";
        up.since_ns = UINT64_C(90000000000);
        up.tls = up.dialled = true;
        up.round_trip_ns = 123400;
        up.sent_messages = 7;
        up.received_messages = 8;
        up.losses = 1;
        up.protocol = 4;
        gone.state = (char *)"waiting";
        gone.address = (char *)"node3:7600";
        gone.error = (char *)"Connection refused";
        out = open_memstream(&text, &size);
        assert_non_null(out);
        assert_int_equal(show_peers(&answer, &options, out), 0);
        fclose(out);
        assert_string_equal(
                text, "NODE   ID        ADDRESS        STATE     SINCE  PROTOCOL  TLS  DIALLED     RTT  SENT  "
                      "RECEIVED  QUEUED  LOSSES  ERROR\n"
                      "node1  00112233  10.0.0.1:7600  self          -         5  yes  -             -     0         "
                      "0     0 B       0  -\n"
                      "node2  8899aabb  10.0.0.2:7600  up       90.0 s         4  yes  here     123 us     7         "
                      "8     0 B       1  -\n"
                      "-      -         node3:7600     waiting       -         -  -    -             -     0         "
                      "0     0 B       0  Connection refused\n");
        free(text);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_ranks),    cmocka_unit_test(test_table),        cmocka_unit_test(test_comms),
                cmocka_unit_test(test_status),   cmocka_unit_test(test_metrics),      cmocka_unit_test(test_json_text),
                cmocka_unit_test(test_topology), cmocka_unit_test(test_topology_odd), cmocka_unit_test(test_peers),
                cmocka_unit_test(test_rails),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
