/* SPDX-License-Identifier: MIT */
/* More connections at once than there are places for who has proven nothing: peers must get through all the same. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fabric/stranger.h"

#define CROWD     100u
#define PLACES    64u /* for strangers from elsewhere */
#define OF_A_PEER 8u  /* from where a peer is */

/* Nobody is closed because it took too long. */
static const struct rig_options patient = {.n_nodes = 2,
                                           .n_rails = 1,
                                           .ranks = {1, 1},
                                           .slot_bytes = 512,
                                           .key = 9,
                                           .chunks = 100,
                                           .times = {.handshake = 600000}};

static bool has_ended(int fd) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

        return poll(&poll_fd, 1, 0) != 0;
}

static uint64_t refused(const struct rig *rig) {
        struct fabric_counters counters;

        fabric_counters(rig->nodes[1].fabric, &counters);
        return counters.refused;
}

/* They are as many as there may be, and none of them in a peer's place. */
static void test_from_elsewhere(void **state) {
        static struct rig rig;
        int fds[PLACES + 10];

        (void)state;
        rig_new(&rig, &patient);
        for (unsigned int i = 0; i < PLACES; i++)
                fds[i] = stranger_dial_from(&rig, 1, "127.0.0.9");
        rig_run(&rig, 20);
        assert_int_equal(rig.nodes[0].routes_changed + rig.nodes[1].routes_changed, 0);
        assert_int_equal(refused(&rig), 0);
        for (unsigned int i = 0; i < PLACES; i++)
                assert_false(has_ended(fds[i]));
        /* More of them take the places of the first. */
        for (unsigned int i = PLACES; i < PLACES + 10; i++) {
                fds[i] = stranger_dial_from(&rig, 1, i % 2 ? "127.0.0.9" : "127.0.0.10");
                stranger_hear_end(fds[i - PLACES]);
                assert_int_equal(refused(&rig), i - PLACES + 1);
        }
        for (unsigned int i = 10; i < PLACES + 10; i++) {
                assert_false(has_ended(fds[i]));
                close(fds[i]);
        }
        rig_free(&rig);
}

/* The peer's own address: of its places it gets the last one, again and again. */
static void test_from_the_peer(void **state) {
        static struct rig rig;
        int fds[CROWD];

        (void)state;
        rig_new(&rig, &patient);
        for (unsigned int i = 0; i < CROWD; i++)
                fds[i] = stranger_dial(&rig, 1);
        rig_run(&rig, 20);
        assert_int_equal(rig.nodes[0].routes_changed + rig.nodes[1].routes_changed, 0);
        for (unsigned int i = 0; i < CROWD - OF_A_PEER; i++)
                stranger_hear_end(fds[i]);
        for (unsigned int i = CROWD - OF_A_PEER; i < CROWD; i++)
                close(fds[i]);
        rig_free(&rig);
}

/* More peers than strangers may be, all of them slow: none makes room for another one. */
static void test_many_peers(void **state) {
        static struct rig rig;
        struct hello hellos[CROWD];
        int fds[CROWD];

        (void)state;
        rig_start(&rig, &patient);
        for (unsigned int i = 0; i < CROWD; i++) {
                char address[16];
                const struct fabric_peer_rail rail = {.name = "blue", .address = address, .port = 1};
                struct fabric_peer_options peer = {
                        .node = {{1, 2, (uint8_t)i}}, .boot_epoch = 77, .rails = &rail, .n_rails = 1};

                snprintf(address, sizeof(address), "127.0.2.%u", i + 1);
                memset(peer.token, 5, sizeof(peer.token));
                assert_int_equal(fabric_peer_add(rig.nodes[1].fabric, &peer), 0);
                fds[i] = stranger_dial_from(&rig, 1, address);
                hellos[i] = stranger_hello_of(&rig);
                hellos[i].from = peer.node;
                hellos[i].from_epoch = peer.boot_epoch;
                hellos[i].number = 1;
        }
        for (unsigned int i = 0; i < CROWD; i++)
                assert_int_equal(stranger_greet(fds[i], &hellos[i], 5), HELLO_OK);
        assert_int_equal(refused(&rig), 0);
        for (unsigned int i = 0; i < CROWD; i++)
                close(fds[i]);
        rig_free(&rig);
}

/* Connections of a peer that is elsewhere than where it dials from, as behind a translator of addresses: with the first
 * it has proven who it is, and who crowds in then does not take the place of the next one. */
static void test_translated(void **state) {
        const struct fabric_peer_rail rail = {.name = "blue", .address = "127.0.2.1", .port = 1};
        struct fabric_peer_options peer = {.node = {{1, 2}}, .boot_epoch = 77, .rails = &rail, .n_rails = 1};
        static struct rig rig;
        int fds[PLACES + 1], first, next;
        struct hello hello;

        (void)state;
        rig_start(&rig, &patient);
        memset(peer.token, 5, sizeof(peer.token));
        assert_int_equal(fabric_peer_add(rig.nodes[1].fabric, &peer), 0);
        hello = stranger_hello_of(&rig);
        hello.from = peer.node;
        hello.from_epoch = peer.boot_epoch;
        hello.number = 1;
        first = stranger_dial_from(&rig, 1, "127.0.3.1");
        assert_int_equal(stranger_greet(first, &hello, 5), HELLO_OK);
        next = stranger_dial_from(&rig, 1, "127.0.3.1");
        for (unsigned int i = 0; i < PLACES + 1; i++)
                fds[i] = stranger_dial_from(&rig, 1, "127.0.0.9");
        stranger_hear_end(fds[0]);
        hello.number = 2;
        assert_int_equal(stranger_greet(next, &hello, 5), HELLO_OK);
        assert_int_equal(refused(&rig), 1);
        for (unsigned int i = 1; i < PLACES + 1; i++)
                close(fds[i]);
        close(first);
        close(next);
        rig_free(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_from_elsewhere),
                cmocka_unit_test(test_from_the_peer),
                cmocka_unit_test(test_many_peers),
                cmocka_unit_test(test_translated),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
