/* SPDX-License-Identifier: MIT */
/* Daemons that find each other: one connection for a pair, whoever dials; messages; losses; new incarnations. */
#include "tests/daemon/peers_fixture.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/peer_address.h"
#include "util/log.h"

static void sends_both_ways(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        struct peer *peer;

        nodes_start_two(world);
        peer = node_dial(world, 0, 1);
        assert_false(peer_is_up(peer));
        assert_null(peer_node_id(peer));
        assert_null(peer_token(peer));
        assert_int_equal(send_go(peer, 17), 0); /* before there is a connection */
        assert_int_equal(a->ups, 0);            /* never from below a function */
        world_until(world, a->ups && b->ups && b->n_messages);
        assert_int_equal(b->keys[0], 17);
        assert_ptr_equal(a->up, peer);
        assert_memory_equal(peer_node_id(a->up), b->id, PEER_NODE_BYTES);
        assert_memory_equal(peer_node_id(b->up), a->id, PEER_NODE_BYTES);
        assert_string_equal(peer_name(a->up), "beta");
        assert_true(peer_takes_classes(a->up));
        assert_string_equal(peer_name(b->up), "alpha");
        assert_string_equal(peer_address(b->up), peers_address(a->peers));
        assert_memory_equal(a->token, b->token, PEER_TOKEN_BYTES);
        assert_int_equal(send_go(b->up, 18), 0);
        world_until(world, a->n_messages);
        assert_int_equal(a->keys[0], 18);
        assert_int_equal(a->ups + b->ups, 2);
        assert_int_equal(a->losts + b->losts + a->faileds + b->faileds, 0);
}

/* Everything in order and once, also large messages and what was said before the connection was there. */
static void keeps_order(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Join join = RAILMUX__PEER__JOIN__INIT;
        uint8_t id[128];
        struct peer *to_b;

        memset(id, 0xc3, sizeof(id));
        join.comm_id = (ProtobufCBinaryData){.len = sizeof(id), .data = id};
        join.tenant = (char *)"default";
        join.name = (char *)"job";
        join.n_ranks = 4;
        join.rank = 3;
        join.attempt = UINT64_MAX;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_JOIN;
        message.join = &join;
        nodes_start_two(world);
        to_b = node_dial(world, 0, 1);
        for (uint64_t i = 0; i < 1000; i++)
                assert_int_equal(send_go(to_b, i), 0);
        world_until(world, b->ups && a->ups);
        for (uint64_t i = 1000; i < 20000; i++) {
                assert_int_equal(send_go(to_b, i), 0);
                assert_int_equal(send_go(b->up, i - 1000), 0);
        }
        assert_int_equal(peer_send(to_b, &message), 0);
        world_until(world, b->n_messages == 20001 && a->n_messages == 19000);
        for (uint64_t i = 0; i < 20000; i++)
                assert_int_equal(b->keys[i], i);
        for (uint64_t i = 0; i < 19000; i++)
                assert_int_equal(a->keys[i], i);
        assert_int_equal(b->last->body_case, RAILMUX__PEER__MESSAGE__BODY_JOIN);
        assert_int_equal(b->last->join->comm_id.len, sizeof(id));
        assert_memory_equal(b->last->join->comm_id.data, id, sizeof(id));
        assert_string_equal(b->last->join->name, "job");
        assert_true(b->last->join->attempt == UINT64_MAX);
        assert_int_equal(a->losts + b->losts, 0);
}

/* Both dial at once, again and again: one connection, and what was sent arrives once. */
static void agrees_on_one(void **state) {
        struct world *world = *state;
        unsigned int dialled_by_a = 0;

        for (unsigned int round = 0; round < 60; round++) {
                struct node *a = &world->node[0], *b = &world->node[1];
                struct peer *to_b, *to_a;

                nodes_start_two(world);
                to_b = node_dial(world, 0, 1);
                for (unsigned int i = 0; i < round % 6; i++)
                        event_base_loop(world->base, EVLOOP_NONBLOCK);
                to_a = node_dial(world, 1, 0);
                assert_int_equal(send_go(to_b, 5), 0);
                assert_int_equal(send_go(to_a, 6), 0);
                world_until(world, a->n_messages && b->n_messages);
                world_turn_for(world, 20);
                assert_int_equal(a->ups, 1);
                assert_int_equal(b->ups, 1);
                assert_int_equal(a->n_messages + b->n_messages, 2);
                assert_int_equal(b->keys[0], 5);
                assert_int_equal(a->keys[0], 6);
                assert_int_equal(a->losts + b->losts + a->faileds + b->faileds + a->mergeds + b->mergeds, 0);
                assert_ptr_equal(peer_find(a->peers, b->id), to_b);
                assert_ptr_equal(peer_find(b->peers, a->id), to_a);
                assert_memory_equal(peer_token(to_a), peer_token(to_b), PEER_TOKEN_BYTES);
                dialled_by_a += rows_of(a->peers, "up", NULL).dialled;
                node_stop(world, 0);
                node_stop(world, 1);
        }
        assert_true(dialled_by_a > 0);
}

static void knows_three(void **state) {
        struct world *world = *state;

        for (unsigned int i = 0; i < 3; i++) {
                struct peers_options options = node_options(world, i);

                node_start(world, i, &options);
        }
        for (unsigned int i = 0; i < 3; i++)
                for (unsigned int k = 0; k < 3; k++)
                        if (i != k)
                                assert_int_equal(send_go(node_dial(world, i, k), i), 0);
        world_until(world,
                    world->node[0].n_messages == 2 && world->node[1].n_messages == 2 && world->node[2].n_messages == 2);
        world_turn_for(world, 20);
        for (unsigned int i = 0; i < 3; i++) {
                unsigned int n = 0;

                assert_int_equal(world->node[i].ups, 2);
                assert_int_equal(world->node[i].losts, 0);
                rows_of(world->node[i].peers, "up", &n);
                assert_int_equal(n, 2);
        }
}

/* ---- losses ---- */

/* Sent in lost(): for the next connection, not for the one that is over. */
static void send_when_lost(struct node *node, struct peer *peer) {
        (void)node;
        assert_null(peer_token(peer));
        assert_int_equal(send_go(peer, 99), 0);
}

static void comes_back_the_same(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        struct peer *to_b;

        nodes_start_two(world);
        a->on_lost = send_when_lost;
        to_b = node_dial(world, 0, 1);
        world_until(world, a->ups && b->ups);
        peer_drop(to_b, "for the test");
        peer_drop(to_b, "and again");
        assert_int_equal(a->losts, 0); /* not from below */
        world_until(world, a->ups == 2 && b->ups == 2 && b->n_messages);
        assert_int_equal(a->losts, 1);
        assert_int_equal(b->losts, 1);
        assert_string_equal(a->lost_text, "for the test");
        assert_string_equal(b->lost_text, "refused by the other end: for the test");
        assert_int_equal(b->n_messages, 1);
        assert_int_equal(b->keys[0], 99);
        assert_int_equal(peer_boot(to_b), 1);
        assert_ptr_equal(peer_find(a->peers, b->id), to_b);
}

static void comes_back_started_anew(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        struct peers_options options;
        char address[PEER_ADDRESS_MAX];
        struct peer *to_b;

        nodes_start_two(world);
        to_b = node_dial(world, 0, 1);
        world_until(world, a->ups && b->ups);
        snprintf(address, sizeof(address), "%s", peers_address(b->peers));
        node_stop(world, 1);
        world_until(world, a->losts && a->faileds); /* nobody is there */
        assert_int_equal(send_go(to_b, 3), 0);
        options = node_options(world, 1);
        options.listen = address;
        options.boot = 2;
        node_start(world, 1, &options);
        world_until(world, a->ups == 2 && b->n_messages);
        assert_int_equal(a->losts, 1);
        assert_int_equal(a->lost_boot, 1);
        assert_int_equal(peer_boot(to_b), 2);
        assert_int_equal(b->keys[0], 3);
        assert_string_equal(peer_error(to_b), "");
}

/* The old one is still connected, as far as anybody knows: the new one takes its place, after lost(). */
static void new_incarnation_takes_over(void **state) {
        struct world *world = *state;

        /* Once with the lower end deciding on the new one, once with the higher. */
        for (unsigned int round = 0; round < 2; round++) {
                struct node *a = &world->node[round ? 1 : 0], *old = &world->node[2], *fresh = &world->node[3];
                struct peers_options options = node_options(world, round ? 1 : 0);
                unsigned int b_id = round ? 0 : 1;

                node_start(world, round ? 1 : 0, &options);
                options = node_options(world, 2);
                memcpy(options.node, node_options(world, b_id).node, sizeof(options.node));
                node_start(world, 2, &options);
                node_dial(world, 2, round ? 1 : 0);
                world_until(world, a->ups && old->ups);
                options.data = fresh;
                options.boot = 77;
                node_start(world, 3, &options);
                node_dial(world, 3, round ? 1 : 0);
                world_until(world, a->ups == 2 && fresh->ups == 1);
                assert_int_equal(a->losts, 1);
                assert_int_equal(a->lost_boot, 1);
                assert_string_equal(a->lost_text, "it was started anew");
                assert_int_equal(peer_boot(peer_find(a->peers, fresh->id)), 77);
                world_until(world, old->losts == 1);
                for (unsigned int i = 0; i < NODES_MAX; i++)
                        node_stop(world, i);
        }
}

/* One end has seen the connection die and the other has not: dialling again is no duplicate. */
static void one_end_lost_it(void **state) {
        struct world *world = *state;

        for (unsigned int round = 0; round < 2; round++) {
                unsigned int keen = round, slow = !round; /* who notices first; once the lower id, once the higher */
                struct node *k = &world->node[keen], *s = &world->node[slow];
                struct peers_options options;
                struct proxy *proxy;
                struct peer *peer;

                options = node_options(world, slow);
                options.deadline_ms = 600000;
                node_start(world, slow, &options);
                options = node_options(world, keen);
                options.heartbeat_ms = 50;
                options.deadline_ms = 200;
                node_start(world, keen, &options);
                proxy = proxy_new(world, peers_address(s->peers));
                assert_int_equal(peers_dial(k->peers, proxy_address(proxy), &peer), 0);
                world_until(world, k->ups && s->ups);
                peer_hold(peer_find(s->peers, k->id));
                proxy_silence(proxy);
                world_until(world, k->losts);
                assert_int_equal(s->losts, 0);
                peer_drop(peer, "not connected: no effect");
                /* By the address that it advertises, since the one dialled leads nowhere. */
                world_until(world, k->ups >= 2 && s->ups >= 2);
                assert_int_equal(s->losts, 1);
                assert_string_equal(s->lost_text, "it has connected anew");
                assert_true(peer_is_up(peer_find(s->peers, k->id)));
                assert_true(peer_is_up(peer_find(k->peers, s->id)));
                assert_int_equal(send_go(peer_find(s->peers, k->id), 4), 0);
                world_until(world, k->n_messages == 1);
                node_stop(world, 0);
                node_stop(world, 1);
                proxy_free(proxy);
        }
}

/* ---- addresses ---- */

static void merges_two_addresses(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        struct peers_options options = node_options(world, 1);
        char mapped[PEER_ADDRESS_MAX];
        struct peer *one, *two;

        options.listen = "[::]:0";
        node_start(world, 1, &options);
        options = node_options(world, 0);
        node_start(world, 0, &options);
        snprintf(mapped, sizeof(mapped), "127.0.0.1:%s", strrchr(peers_address(b->peers), ':') + 1);
        assert_int_equal(peers_dial(a->peers, mapped, &one), 0);
        snprintf(mapped, sizeof(mapped), "127.0.0.2:%s", strrchr(peers_address(b->peers), ':') + 1);
        assert_int_equal(peers_dial(a->peers, mapped, &two), 0);
        assert_ptr_not_equal(one, two);
        assert_int_equal(send_go(one, 1), 0);
        assert_int_equal(send_go(two, 2), 0);
        world_until(world, a->mergeds && b->n_messages == 2);
        assert_true(a->merged_from == one || a->merged_from == two);
        assert_true(a->merged_into == (a->merged_from == one ? two : one));
        assert_int_equal(a->mergeds, 1);
        assert_int_equal(b->keys[0] + b->keys[1], 3);
        assert_int_equal(a->ups, 1);
        assert_int_equal(a->losts + a->faileds + b->losts, 0);
        assert_int_equal(rows_of(a->peers, "up", NULL).holds, 2);
        /* Both releases count. */
        peer_release(a->merged_into);
        peer_release(a->merged_into);
        node_stop(world, 1);
        world_until(world, a->losts == 1);
        world_turn_for(world, 10);
        assert_null(peer_find(a->peers, world->node[1].id));
}

static void tells_another_node_at_the_address(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *c = &world->node[2];
        struct peers_options options;
        char address[PEER_ADDRESS_MAX];
        struct peer *to_b, *to_c;

        nodes_start_two(world);
        to_b = node_dial(world, 0, 1);
        world_until(world, a->ups && world->node[1].ups);
        snprintf(address, sizeof(address), "%s", peers_address(world->node[1].peers));
        node_stop(world, 1);
        options = node_options(world, 2);
        options.listen = address;
        node_start(world, 2, &options);
        assert_int_equal(send_go(to_b, 1), 0); /* for b, and nobody else */
        world_until(world, a->ups == 2);
        assert_memory_equal(peer_node_id(a->up), c->id, PEER_NODE_BYTES);
        assert_ptr_not_equal(a->up, to_b);
        assert_false(peer_is_up(to_b));
        assert_int_equal(peers_dial(a->peers, address, &to_c), 0);
        assert_ptr_equal(to_c, a->up);
        assert_int_equal(send_go(to_c, 2), 0);
        world_until(world, c->n_messages);
        assert_int_equal(c->n_messages, 1);
        assert_int_equal(c->keys[0], 2);
        assert_int_equal(a->losts, 1);
        assert_non_null(strstr(peer_error(to_b), "address"));
}

/* The node that was there is somewhere else, and somebody who knows says where. */
static void goes_where_it_is_said_to_be(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        char address[PEER_ADDRESS_MAX];
        struct peers_options options;
        unsigned int faileds;
        struct peer *to_b;

        nodes_start_two(world);
        to_b = node_dial(world, 0, 1);
        world_until(world, a->ups && b->ups);
        snprintf(address, sizeof(address), "%s", peers_address(b->peers));
        node_stop(world, 1);
        options = node_options(world, 2);
        options.listen = address;
        node_start(world, 2, &options);
        world_until(world, a->ups == 2 && !peer_is_up(to_b));
        /* Nobody knows: whoever begins to wait for it hears so, again and again. */
        faileds = a->faileds;
        world_until(world, a->faileds >= faileds + 2);
        options = node_options(world, 1);
        node_start(world, 1, &options);
        assert_string_not_equal(peers_address(b->peers), address);
        peer_moved(to_b, peers_address(a->peers)); /* not here, */
        peer_moved(to_b, "nowhere");               /* nor where nothing can be */
        peer_moved(to_b, peers_address(b->peers));
        world_until(world, a->ups == 3);
        assert_ptr_equal(a->up, to_b);
        assert_true(peer_is_up(to_b));
        peer_moved(to_b, address); /* it is connected, and nobody knows better */
        assert_int_equal(send_go(to_b, 3), 0);
        world_until(world, b->n_messages);
        assert_int_equal(a->losts, 1);
}

/* Somebody holds the line where it was, and says nothing. */
static void leaves_who_does_not_answer(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1, mute = -1, size;
        struct peers_options options = node_options(world, 0);
        struct sockaddr_storage there;
        struct peer *to_b;

        options.handshake_ms = 600000;
        node_start(world, 0, &options);
        options = node_options(world, 1);
        node_start(world, 1, &options);
        to_b = node_dial(world, 0, 1);
        world_until(world, a->ups && b->ups);
        assert_int_equal(peer_address_parse(peers_address(b->peers), &there, &size), 0);
        node_stop(world, 1);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&there, (socklen_t)size), 0);
        assert_int_equal(listen(fd, 8), 0);
        world_until(world, (mute = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0);
        options = node_options(world, 1);
        node_start(world, 1, &options);
        peer_moved(to_b, peers_address(b->peers));
        peer_moved(to_b, peers_address(b->peers));
        world_until(world, a->ups == 2);
        assert_ptr_equal(a->up, to_b);
        assert_string_equal(peer_address(to_b), peers_address(b->peers));
        close(mute);
        close(fd);
}

/* Hosts are compared, not how they are written. */
static void knows_hosts(void **state) {
        static const char *const same[][2] = {{"10.0.0.1:7", "10.0.0.1:8"},
                                              {"10.0.0.1:7", "[::ffff:10.0.0.1]:8"},
                                              {"[fd00::1]:7", "[fd00:0:0::1]:7"},
                                              {"[fe80::1%eth0]:7", "[fe80::1%2]:7"}};
        static const char *const other[] = {"10.0.0.2:7", "[::10.0.0.1]:7", "[fe80::2]:7", "[fd00::2]:7"};
        static const char *const none[] = {"node7:7600", "10.0.0.1", "", "[::g]:1"};
        struct in6_addr a, b;

        (void)state;
        for (size_t i = 0; i < 4; i++) {
                assert_int_equal(peer_address_host(same[i][0], &a), 0);
                assert_int_equal(peer_address_host(same[i][1], &b), 0);
                assert_memory_equal(&a, &b, sizeof(a));
                for (size_t k = 0; k < 4; k++) {
                        assert_int_equal(peer_address_host(other[k], &b), 0);
                        assert_memory_not_equal(&a, &b, sizeof(a));
                }
                assert_int_equal(peer_address_host(none[i], &a), -EINVAL);
        }
}

static void refuses_addresses(void **state) {
        static const char *const bad[] = {"",      "node", "node:", ":1",       "1.2.3.4:65536", "1.2.3.4:0", "::1:80",
                                          "[::1]", "[]:1", "a b:1", "node/x:1", "node:-1",       "node:1x"};
        struct world *world = *state;
        struct node *a = &world->node[0];
        struct peer *peer = NULL;

        nodes_start_two(world);
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                if (peers_dial(a->peers, bad[i], &peer) != PEER_E_ADDRESS)
                        fail_msg("'%s' was taken", bad[i]);
        assert_int_equal(peers_dial(a->peers, peers_address(a->peers), &peer), PEER_E_SELF);
        assert_null(peer);
}

/* By another address it is found out when it answers. */
static void finds_itself(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0];
        struct peers_options options = node_options(world, 0);
        char self[PEER_ADDRESS_MAX];
        struct peer *peer;

        options.listen = "0.0.0.0:0";
        node_start(world, 0, &options);
        assert_null(strstr(peers_address(a->peers), "0.0.0.0"));
        snprintf(self, sizeof(self), "127.0.0.3%s", strrchr(peers_address(a->peers), ':'));
        assert_int_equal(peers_dial(a->peers, self, &peer), 0);
        world_until(world, a->faileds > 0);
        assert_non_null(strstr(a->failed_text, "one node id"));
        assert_int_equal(a->ups, 0);
}

/* A name, looked up without stopping the loop; and IPv6. */
static void dials_names(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        struct peers_options options = node_options(world, 1);
        char name[PEER_ADDRESS_MAX], line[256];
        bool known = false, v6 = false;
        struct peer *peer;
        FILE *hosts;

        hosts = fopen("/etc/hosts", "re");
        while (hosts && fgets(line, sizeof(line), hosts)) {
                known = known || (strncmp(line, "127.0.0.1", 9) == 0 && strstr(line, "localhost"));
                v6 = v6 || (strncmp(line, "::1", 3) == 0 && strstr(line, "localhost"));
        }
        if (hosts)
                fclose(hosts);
        options.listen = v6 ? "[::]:0" : "127.0.0.1:0"; /* whichever address the name gives */
        options.advertise = "node-b.example:7600";
        options.name = "by name";
        if (!known)
                skip();
        node_start(world, 1, &options);
        assert_string_equal(peers_address(b->peers), "node-b.example:7600");
        node_stop(world, 1);
        options.advertise = NULL;
        node_start(world, 1, &options);
        snprintf(name, sizeof(name), "localhost%s", strrchr(peers_address(b->peers), ':'));
        options = node_options(world, 0);
        node_start(world, 0, &options);
        assert_int_equal(peers_dial(a->peers, name, &peer), 0);
        assert_string_equal(peer_address(peer), name);
        world_until(world, a->ups && b->ups);
        assert_string_equal(peer_name(peer), "by?name");
        assert_string_equal(peer_address(peer), peers_address(b->peers));
}

/* Let go before there is a connection: as if nobody had asked. After that: it stays. */
static void lets_go(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        struct peer *peer;

        nodes_start_two(world);
        peer = node_dial(world, 0, 1);
        peer_release(peer);
        world_turn_for(world, 50);
        assert_int_equal(a->ups + b->ups + a->faileds, 0);
        peer = node_dial(world, 0, 1);
        world_until(world, a->ups && b->ups);
        peer_release(peer);
        world_turn_for(world, 50);
        assert_true(peer_is_up(peer));
        assert_int_equal(rows_of(a->peers, "up", NULL).holds, 0);
        peer_drop(peer, "enough");
        world_until(world, a->losts && b->losts);
        world_turn_for(world, 100);
        assert_int_equal(a->ups + b->ups, 2);
        assert_null(peer_find(a->peers, b->id));
        assert_null(peer_find(b->peers, a->id));
}

static unsigned int n_gone(const struct peers *peers) {
        unsigned int n;

        rows_of(peers, "gone", &n);
        return n;
}

/* Node 0 and another, which is lost and wanted by nobody. */
static void lose(struct world *world, unsigned int i, const struct peers_options *options) {
        struct node *a = &world->node[0];
        unsigned int losts = a->losts, ups = a->ups;
        struct peer *peer;

        node_start(world, i, options);
        peer = node_dial(world, 0, i);
        world_until(world, a->ups == ups + 1);
        peer_release(peer);
        node_stop(world, i);
        world_until(world, a->losts == losts + 1);
        world_turn_for(world, 20);
        assert_null(peer_find(a->peers, options->node));
}

/* What was lost is shown for a while, and until it is back. */
static void shows_the_lost(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        struct peers_options options = node_options(world, 0), other = node_options(world, 1);
        struct peer_row row;
        uint64_t sent;
        unsigned int n;

        options.keep_ms = 3000000;
        node_start(world, 0, &options);
        lose(world, 1, &other);
        row = rows_of(a->peers, "gone", &n);
        assert_int_equal(n, 1);
        assert_memory_equal(peer_node_id(row.peer), other.node, PEER_NODE_BYTES);
        assert_string_equal(peer_name(row.peer), "beta");
        assert_true(strlen(peer_error(row.peer)) > 0);
        assert_int_equal(row.losses, 1);
        assert_true(row.since_ns > 0);
        sent = row.received_messages;
        /* The same node, at another address: one row that goes on counting. */
        other.boot = 2;
        node_start(world, 1, &other);
        node_dial(world, 1, 0);
        world_until(world, a->ups == 2 && b->ups);
        assert_int_equal(n_gone(a->peers), 0);
        row = rows_of(a->peers, "up", &n);
        assert_int_equal(n, 1);
        assert_int_equal(row.losses, 1);
        assert_true(row.received_messages >= sent);
        assert_int_equal(send_go(b->up, 1), 0);
        world_until(world, a->n_messages == 1);
        node_stop(world, 1);
        world_until(world, a->losts == 2);
        world_turn_for(world, 20);
        row = rows_of(a->peers, "gone", &n);
        assert_int_equal(n, 1);
        assert_int_equal(row.losses, 2);
}

/* Another node at the address takes its place; it is dialled as if nobody had been there. */
static void forgets_the_lost(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0];
        struct peers_options options = node_options(world, 0), other = node_options(world, 1);
        char address[PEER_ADDRESS_MAX];
        struct peer *peer;

        node_start(world, 0, &options);
        lose(world, 1, &other);
        snprintf(address, sizeof(address), "%s", peer_address(rows_of(a->peers, "gone", NULL).peer));
        assert_int_equal(peers_dial(a->peers, address, &peer), 0);
        assert_null(peer_node_id(peer));
        other = node_options(world, 2);
        other.listen = address;
        node_start(world, 2, &other);
        world_until(world, a->ups == 2);
        assert_ptr_equal(a->up, peer);
        assert_int_equal(n_gone(a->peers), 0);
        assert_int_equal(rows_of(a->peers, "up", NULL).losses, 0);
        node_stop(world, 2);
        node_stop(world, 0);
        /* Not for ever, and not too many. */
        options.keep_ms = 400;
        node_start(world, 0, &options);
        other = node_options(world, 1);
        lose(world, 1, &other);
        world_until(world, n_gone(a->peers) == 0);
        node_stop(world, 0);
        options.keep_ms = 3000000;
        node_start(world, 0, &options);
        for (unsigned int i = 0; i < 70; i++) {
                other.node[1] = (uint8_t)i;
                snprintf(address, sizeof(address), "127.0.1.%u:0", i + 1); /* else a port may come again */
                other.listen = address;
                lose(world, 1, &other);
                assert_int_equal(n_gone(a->peers), i < 64 ? i + 1 : 64);
        }
        assert_int_equal(peer_node_id(rows_of(a->peers, "gone", NULL).peer)[1], 69);
}

static void needs_sense(void **state) {
        struct world *world = *state;
        struct peers_options options = node_options(world, 0);
        struct peers *peers = NULL;
        char error[PEER_TEXT_MAX];

        options.listen = "node:1";
        assert_int_equal(peers_new(&options, error, &peers), PEER_E_REFUSED);
        assert_string_equal(error, "peer.listen: allowed: ADDR:PORT or [ADDR]:PORT with a numeric address");
        options.listen = NULL;
        assert_int_equal(peers_new(&options, error, &peers), PEER_E_REFUSED);
        options = node_options(world, 0);
        options.cluster = "a/b";
        assert_int_equal(peers_new(&options, error, &peers), PEER_E_REFUSED);
        assert_non_null(strstr(error, "peer.cluster"));
        options = node_options(world, 0);
        options.deadline_ms = 399;
        assert_int_equal(peers_new(&options, error, &peers), PEER_E_REFUSED);
        assert_non_null(strstr(error, "peer.lost_ms"));
        options = node_options(world, 0);
        options.listen = "192.0.2.1:7000"; /* nobody's address */
        assert_int_equal(peers_new(&options, error, &peers), -EADDRNOTAVAIL);
        assert_non_null(strstr(error, "192.0.2.1:7000"));
        options = node_options(world, 0);
        options.ca = "/nowhere";
        assert_int_equal(peers_new(&options, error, &peers), PEER_E_REFUSED);
        assert_non_null(strstr(error, "all three"));
        assert_null(peers);
        assert_null(peers_free(NULL));
}

/* An address that this machine has not may come. */
static void listens_ahead(void **state) {
        struct world *world = *state;
        struct peers_options options = node_options(world, 0);
        struct peers *peers = NULL;
        char error[PEER_TEXT_MAX];
        int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

        options.ahead = true;
        options.listen = "192.0.2.1:7000";
        assert_int_equal(peers_new(&options, error, &peers), 0);
        assert_string_equal(peers_address(peers), "192.0.2.1:7000");
        peers = peers_free(peers);
        if (fd >= 0) {
                options.listen = "[2001:db8::1]:7000";
                assert_int_equal(peers_new(&options, error, &peers), 0);
                assert_string_equal(peers_address(peers), "[2001:db8::1]:7000");
                peers = peers_free(peers);
                close(fd);
        }
}

/* A port that somebody else has may be free later; until then others are dialled. Who has nothing to lose is told. */
static void waits_for_its_port(void **state) {
        struct world *world = *state;
        struct peers_options options = node_options(world, 0), other;
        struct peers *peers = NULL;
        char error[PEER_TEXT_MAX], address[PEER_ADDRESS_MAX];

        for (unsigned int i = 1; i < 4; i++) {
                other = node_options(world, i);
                node_start(world, i, &other);
        }
        snprintf(address, sizeof(address), "%s", peers_address(world->node[1].peers));
        options.listen = address;
        assert_int_equal(peers_new(&options, error, &peers), -EADDRINUSE);
        assert_non_null(strstr(error, "cannot listen on 127.0.0.1:"));
        assert_null(peers);
        options.ahead = true;
        node_start(world, 0, &options);
        assert_non_null(strstr(peers_deaf(world->node[0].peers), strerror(EADDRINUSE)));
        assert_string_equal(peers_address(world->node[0].peers), address);
        node_dial(world, 0, 2);
        world_until(world, world->node[0].ups == 1 && world->node[2].ups == 1);
        assert_non_null(peers_deaf(world->node[0].peers));
        node_stop(world, 1);
        world_until(world, !peers_deaf(world->node[0].peers));
        node_dial(world, 3, 0);
        world_until(world, world->node[0].ups == 2 && world->node[3].ups == 1);
}

int main(void) {
        const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
                T(sends_both_ways),
                T(keeps_order),
                T(agrees_on_one),
                T(knows_three),
                T(comes_back_the_same),
                T(comes_back_started_anew),
                T(new_incarnation_takes_over),
                T(one_end_lost_it),
                T(merges_two_addresses),
                T(tells_another_node_at_the_address),
                T(goes_where_it_is_said_to_be),
                T(leaves_who_does_not_answer),
                T(knows_hosts),
                T(refuses_addresses),
                T(finds_itself),
                T(dials_names),
                T(lets_go),
                T(shows_the_lost),
                T(forgets_the_lost),
                T(needs_sense),
                T(listens_ahead),
                T(waits_for_its_port),
        };

        log_init("test", LOG_LEVEL_ERROR);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
