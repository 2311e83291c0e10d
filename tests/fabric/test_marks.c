/* SPDX-License-Identifier: MIT */
/*
 * What switches tell packets by is given to sockets and to queue pairs, at both ends of a connection: the DSCP of the
 * connection's class, and over RDMA the UDP port that packets come from, which adapters make out of the flow label.
 */
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "fabric/private.h"
#include "tests/fabric/rig.h"
#if RIG_OVER_FAKES
#include "fabric/verbs/verbs.h"
#include "tests/fabric/fake_rig.h"
#endif

#define UDP_PORT 0xd234u

static const uint8_t marks[FABRIC_N_CLASSES] = {46, 26, 10};

static void check_queue_pair(const struct fabric_conn *conn) {
#if RIG_OVER_FAKES
        struct ibv_ah_attr path;

        assert_true(fake_qp_path(link_of(conn)->number, &path));
        assert_int_equal(path.grh.traffic_class, marks[conn->port->class] << 2);
        assert_int_equal(path.grh.flow_label, UDP_PORT & 0x3fff);
#else
        (void)conn;
#endif
}

/* Over RDMA the sockets are those that queue pairs were agreed on over. Returns how many connections of the class there
 * are; a route is probed by one of another. */
static uint32_t check_connections(struct fabric *fabric, enum fabric_class class) {
        const struct fabric_conn *conn;
        uint32_t n = 0;

        pthread_mutex_lock(&fabric->lock);
        for (size_t i = 0; i < fabric->n_rails; i++) {
                DL_FOREACH(fabric->rails[i]->conns, conn) {
                        int tos = -1;
                        socklen_t size = sizeof(tos);

                        if (conn->state != CONN_UP || conn->doomed)
                                continue;
                        assert_int_equal(getsockopt(conn->fd, IPPROTO_IP, IP_TOS, &tos, &size), 0);
                        assert_int_equal(tos, marks[conn->port->class] << 2);
                        check_queue_pair(conn);
                        n += conn->port->class == class;
                }
        }
        pthread_mutex_unlock(&fabric->lock);
        return n;
}

static void test_classes(void **state) {
        struct rig_options options = {.n_nodes = 2,
                                      .n_rails = 2,
                                      .ranks = {2, 2},
                                      .slot_bytes = 200000,
                                      .key = 1,
                                      .chunks = 40,
                                      .udp_port = RIG_OVER_FAKES ? UDP_PORT : 0,
                                      .times = {.heartbeat = 5000, .deadline = 60000}};
        static struct rig rig;

        (void)state;
        memcpy(options.dscp, marks, sizeof(marks));
        for (uint32_t class = 0; class < FABRIC_N_CLASSES; class ++) {
                options.class = (enum fabric_class) class;
                rig_new(&rig, &options);
                rig_run(&rig, 30);
                for (uint32_t node = 0; node < options.n_nodes; node++)
                        assert_true(check_connections(rig.nodes[node].fabric, options.class) > 0);
                rig_free(&rig);
        }
}

static void test_ipv6(void **state) {
        const struct fabric_rail rail = {.address = {.ss_family = AF_INET6}, .dscp = {0, 46, 0}};
        int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), class = -1;
        socklen_t size = sizeof(class);

        (void)state;
        if (fd < 0)
                skip(); /* a machine without IPv6 */
        socket_class(&rail, fd, FABRIC_NORMAL);
        assert_int_equal(getsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &class, &size), 0);
        assert_int_equal(class, 46 << 2);
        close(fd);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_classes), cmocka_unit_test(test_ipv6)};

        return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
