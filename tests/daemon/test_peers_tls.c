/* SPDX-License-Identifier: MIT */
/* Who is let in: certificates, plain connections, clusters. */
#include "tests/daemon/peers_fixture.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/log.h"

static const struct certificate_request good = {.uri = "railmux:test/node-a", .from_days = -1, .to_days = 5};
static const struct certificate_request good_b = {.uri = "railmux:test/node-b", .from_days = -1, .to_days = 5};

static void start_tls(struct world *world, unsigned int i, const char *name) {
        struct peers_options options = node_options(world, i);

        if (name)
                node_use_certificate(world, &options, name);
        node_start(world, i, &options);
}

/* ---- TLS ---- */

static void tls_lets_in(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        struct authority *authority = authority_new("the CA");
        struct certificate_request both = good_b;

        both.usage = "serverAuth,clientAuth";
        certificate_write(world, authority, "a", &good);
        certificate_write(world, authority, "b", &both);
        start_tls(world, 0, "a");
        start_tls(world, 1, "b");
        assert_non_null(peers_tls(a->peers));
        assert_string_equal(peers_name(a->peers), "node-a");
        assert_int_equal(send_go(node_dial(world, 0, 1), 1), 0);
        assert_int_equal(send_go(node_dial(world, 1, 0), 2), 0);
        world_until(world, a->n_messages && b->n_messages);
        /* The certificate's name, whatever the other end calls itself. */
        assert_string_equal(peer_name(a->up), "node-b");
        assert_string_equal(peer_name(b->up), "node-a");
        assert_memory_equal(a->token, b->token, PEER_TOKEN_BYTES);
        for (uint64_t i = 0; i < 20000; i++)
                assert_int_equal(send_go(a->up, i), 0);
        world_until(world, b->n_messages == 20001);
        assert_int_equal(b->keys[20000], 19999);
        /* Another connection, another token. */
        {
                uint8_t token[PEER_TOKEN_BYTES];

                memcpy(token, a->token, sizeof(token));
                peer_drop(a->up, "for the test");
                world_until(world, a->ups == 2 && b->ups == 2);
                assert_memory_equal(a->token, b->token, PEER_TOKEN_BYTES);
                assert_memory_not_equal(a->token, token, PEER_TOKEN_BYTES);
        }
        assert_int_equal(a->faileds + b->faileds, 0);
        authority_free(authority);
}

/* Dials b from a and expects that it comes to nothing, for this reason at a. */
static void expect_failure(struct world *world, const char *text) {
        struct node *a = &world->node[0], *b = &world->node[1];

        node_dial(world, 0, 1);
        world_until(world, a->faileds > 0);
        if (!strstr(a->failed_text, text))
                fail_msg("'%s' instead of '%s'", a->failed_text, text);
        assert_int_equal(a->ups + b->ups, 0);
        assert_int_equal(a->losts + b->losts, 0);
        world_until(world, peers_counters(b->peers)->refused + peers_counters(b->peers)->handshakes_failed > 0);
        node_stop(world, 0);
        node_stop(world, 1);
}

static void append(const char *from, const char *to) {
        FILE *in = fopen(from, "re"), *out = fopen(to, "ae");
        char text[8192];
        size_t n;

        assert_true(in && out);
        n = fread(text, 1, sizeof(text), in);
        assert_true(n > 0 && n < sizeof(text));
        assert_int_equal(fwrite(text, 1, n, out), n);
        fclose(in);
        fclose(out);
}

static void tls_keeps_out(void **state) {
        struct world *world = *state;
        struct authority *authority = authority_new("the CA"), *other = authority_new("another CA");
        struct certificate_request request = good;

        certificate_write(world, authority, "a", &good);
        certificate_write(world, authority, "b", &good_b);
        certificate_write(world, other, "stranger", &good);

        /* Another CA: a refuses b, and says so. */
        start_tls(world, 0, "stranger");
        start_tls(world, 1, "b");
        expect_failure(world, "its certificate is refused: ");

        /* A CA that trusts b's, but that b does not trust: b's alert arrives. */
        start_tls(world, 1, "b");
        {
                struct peers_options options = node_options(world, 0);
                char ca[PATH_BYTES];

                node_use_certificate(world, &options, "stranger");
                snprintf(ca, sizeof(ca), "%s/both.ca", world->dir);
                append(options.ca, ca);
                append(world->paths[world->n_paths - 2][0], ca); /* b's */
                options.ca = ca;
                node_start(world, 0, &options);
                expect_failure(world, "unknown ca");
        }

        /* No TLS on one side. */
        start_tls(world, 0, NULL);
        start_tls(world, 1, "b");
        expect_failure(world, "; it may want TLS, and no certificates are configured here (peer.ca)");
        start_tls(world, 0, "a");
        start_tls(world, 1, NULL);
        expect_failure(world, "it speaks no TLS 1.3");

        /* A certificate of this CA for another cluster is refused by a message, after the handshake. The daemon that
         * has it is of that cluster, or it would not have started. */
        request.uri = "railmux:production/node-a";
        certificate_write(world, authority, "other", &request);
        start_tls(world, 1, "b");
        {
                struct peers_options options = node_options(world, 0);

                options.cluster = "production";
                node_use_certificate(world, &options, "other");
                node_start(world, 0, &options);
                expect_failure(world, "the certificate is of another cluster");
        }
        authority_free(authority);
        authority_free(other);
}

static void expect_no_start(struct world *world, const struct peers_options *options, const char *text) {
        struct peers *peers = NULL;
        char error[PEER_TEXT_MAX] = "";

        (void)world;
        assert_int_equal(peers_new(options, error, &peers), PEER_E_REFUSED);
        if (!strstr(error, text))
                fail_msg("'%s' instead of '%s'", error, text);
        assert_null(peers);
}

/* What others would refuse, a daemon does not start with. */
static void tls_checks_its_own(void **state) {
        static const struct {
                struct certificate_request request;
                const char *text;
        } cases[] = {
                {{.uri = NULL, .from_days = -1, .to_days = 5}, "the certificate has no name URI:railmux:test/NODE"},
                {{.uri = "https://test/node", .from_days = -1, .to_days = 5}, "the certificate has no name"},
                {{.uri = "railmux:test", .from_days = -1, .to_days = 5}, "of another cluster"},
                {{.uri = "railmux:tes/node", .from_days = -1, .to_days = 5}, "of another cluster"},
                {{.uri = "railmux:test2/node", .from_days = -1, .to_days = 5}, "of another cluster"},
                {{.uri = "railmux:test/", .from_days = -1, .to_days = 5}, "the certificate has no name"},
                {{.uri = "railmux:test/a/b", .from_days = -1, .to_days = 5}, "the certificate has no name"},
                {{.uri = "railmux:test/node", .from_days = -5, .to_days = -1}, "certificate has expired"},
                {{.uri = "railmux:test/node", .from_days = 1, .to_days = 5}, "not yet valid"},
                {{.uri = "railmux:test/node", .usage = "serverAuth", .from_days = -1, .to_days = 5},
                 "other daemons would refuse it as a client's"},
                {{.uri = "railmux:test/node", .usage = "clientAuth", .from_days = -1, .to_days = 5},
                 "other daemons would refuse it as a server's"},
        };
        struct world *world = *state;
        struct authority *authority = authority_new("the CA"), *other = authority_new("another CA");
        struct peers_options options;
        char path[PATH_BYTES], text[PATH_BYTES + 64];

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                certificate_write(world, authority, "x", &cases[i].request);
                options = node_options(world, 0);
                world->n_paths = 0;
                node_use_certificate(world, &options, "x");
                expect_no_start(world, &options, cases[i].text);
        }
        world->n_paths = 0;
        certificate_write(world, authority, "a", &good);
        certificate_write(world, other, "b", &good_b);
        options = node_options(world, 0);
        node_use_certificate(world, &options, "a");
        snprintf(path, sizeof(path), "%s/b.key", world->dir);
        options.key = path;
        snprintf(text, sizeof(text), "%s: no key of the certificate: key values mismatch", path);
        expect_no_start(world, &options, text);
        node_use_certificate(world, &options, "a");
        snprintf(path, sizeof(path), "%s/b.ca", world->dir);
        options.ca = path;
        expect_no_start(world, &options, "unable to get");
        node_use_certificate(world, &options, "a");
        options.certificate = "/nowhere/a.crt";
        expect_no_start(world, &options, "/nowhere/a.crt: cannot be read: No such file or directory");
        node_use_certificate(world, &options, "a");
        options.ca = "/tmp";
        expect_no_start(world, &options, "/tmp: cannot be read: Is a directory");
        node_use_certificate(world, &options, "a");
        assert_int_equal(chmod(options.key, 0644), 0);
        expect_no_start(world, &options, "mode 0644; a key may be read by its owner and group at most");
        assert_int_equal(chmod(options.key, 0640), 0);
        node_start(world, 0, &options);
        node_stop(world, 0);
        /* Names without a slash are credentials of the service. */
        assert_int_equal(setenv("CREDENTIALS_DIRECTORY", world->dir, 1), 0);
        options.ca = "a.ca";
        options.certificate = "a.crt";
        options.key = "a.key";
        node_start(world, 0, &options);
        unsetenv("CREDENTIALS_DIRECTORY");
        authority_free(authority);
        authority_free(other);
}

/* New certificates count for new connections; ones that cannot be used change nothing. */
static void tls_reloads(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        struct authority *authority = authority_new("the CA");
        struct certificate_request request = good;
        struct peers_options options = node_options(world, 0);
        char error[PEER_TEXT_MAX] = "";

        certificate_write(world, authority, "a", &good);
        certificate_write(world, authority, "b", &good_b);
        node_use_certificate(world, &options, "a");
        node_start(world, 0, &options);
        start_tls(world, 1, "b");
        node_dial(world, 0, 1);
        world_until(world, a->ups && b->ups);
        request.uri = "railmux:test/renamed";
        certificate_write(world, authority, "a", &request);
        assert_int_equal(peers_reload(a->peers, &options, error), 0);
        assert_int_equal(a->losts, 0);
        peer_drop(a->up, "for the test");
        world_until(world, a->ups == 2 && b->ups == 2);
        assert_string_equal(peer_name(b->up), "renamed");
        assert_int_equal(unlink(options.key), 0);
        assert_int_equal(peers_reload(a->peers, &options, error), PEER_E_REFUSED);
        assert_non_null(strstr(error, options.key));
        options.ca = options.certificate = options.key = NULL;
        assert_int_equal(peers_reload(a->peers, &options, error), PEER_E_REFUSED);
        peer_drop(a->up, "for the test");
        world_until(world, a->ups == 3 && b->ups == 3);
        authority_free(authority);
}

/* ---- without TLS ---- */

/* An address of this machine that is no loopback; false if there is none. */
static bool own_address(char host[INET_ADDRSTRLEN]) {
        struct ifaddrs *all;
        bool found = false;

        assert_int_equal(getifaddrs(&all), 0);
        for (const struct ifaddrs *one = all; one && !found; one = one->ifa_next)
                if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && !(one->ifa_flags & IFF_LOOPBACK) &&
                    (one->ifa_flags & IFF_UP))
                        found = inet_ntop(AF_INET, &((struct sockaddr_in *)one->ifa_addr)->sin_addr, host,
                                          INET_ADDRSTRLEN) != NULL;
        freeifaddrs(all);
        return found;
}

static void plain_is_for_loopback(void **state) {
        struct world *world = *state;
        char host[INET_ADDRSTRLEN], listen[INET_ADDRSTRLEN + 8];

        if (!own_address(host))
                skip();
        snprintf(listen, sizeof(listen), "%s:0", host);
        for (unsigned int round = 0; round < 3; round++) {
                for (unsigned int i = 0; i < 2; i++) {
                        struct peers_options options = node_options(world, i);

                        options.listen = listen;
                        options.plain = round == 2 || (round == 1 && i == 0); /* it takes both */
                        node_start(world, i, &options);
                }
                if (round < 2) {
                        expect_failure(world, round ? "refused by the other end: no TLS beyond loopback"
                                                    : "no TLS beyond loopback");
                } else {
                        node_dial(world, 0, 1);
                        world_until(world, world->node[0].ups && world->node[1].ups);
                }
        }
}

static void other_cluster(void **state) {
        struct world *world = *state;
        struct peers_options options = node_options(world, 1);

        options.cluster = "production";
        node_start(world, 1, &options);
        options = node_options(world, 0);
        node_start(world, 0, &options);
        expect_failure(world, "cluster");
        /* The same node id twice. */
        options = node_options(world, 0);
        node_start(world, 0, &options);
        options.data = &world->node[1];
        node_start(world, 1, &options);
        expect_failure(world, "same node");
}

/* Close to the largest message, over TLS. */
static void tls_carries_large(void **state) {
        static Railmux__Peer__Member member[16384], *members[16384];
        static Railmux__Peer__Node node[4096], *nodes[4096];
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        struct authority *authority = authority_new("the CA");
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Assign assign = RAILMUX__PEER__ASSIGN__INIT;
        uint8_t id[128];
        char address[120];
        size_t size;

        memset(id, 0x7e, sizeof(id));
        memset(address, 'h', sizeof(address) - 1);
        address[sizeof(address) - 1] = '\0';
        for (unsigned int i = 0; i < 16384; i++) {
                members[i] = &member[i];
                railmux__peer__member__init(members[i]);
                member[i].rank = 16383 - i;
                member[i].node = i % 4096;
                member[i].gpu = UINT32_MAX;
        }
        for (unsigned int i = 0; i < 4096; i++) {
                nodes[i] = &node[i];
                railmux__peer__node__init(nodes[i]);
                node[i].node = (ProtobufCBinaryData){.len = 16, .data = id};
                node[i].address = address;
        }
        assign.comm_id = (ProtobufCBinaryData){.len = sizeof(id), .data = id};
        assign.n_ranks = 16384;
        assign.members = members;
        assign.n_members = 16384;
        assign.nodes = nodes;
        assign.n_nodes = 4096;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_ASSIGN;
        message.assign = &assign;
        size = railmux__peer__message__get_packed_size(&message);
        assert_true(size > PEER_MESSAGE_MAX * 3 / 4 && size <= PEER_MESSAGE_MAX);
        certificate_write(world, authority, "a", &good);
        certificate_write(world, authority, "b", &good_b);
        start_tls(world, 0, "a");
        start_tls(world, 1, "b");
        node_dial(world, 0, 1);
        world_until(world, a->ups && b->ups);
        for (unsigned int i = 0; i < 8; i++) {
                assert_int_equal(peer_send(a->up, &message), 0);
                assert_int_equal(peer_send(b->up, &message), 0);
        }
        world_until(world, a->n_messages == 8 && b->n_messages == 8);
        assert_int_equal(a->last->assign->n_members, 16384);
        for (unsigned int i = 0; i < 16384; i++) {
                assert_int_equal(a->last->assign->members[i]->rank, 16383 - i);
                assert_int_equal(a->last->assign->members[i]->gpu, UINT32_MAX);
        }
        for (unsigned int i = 0; i < 4096; i++)
                assert_string_equal(a->last->assign->nodes[i]->address, address);
        assert_int_equal(a->losts + b->losts, 0);
        authority_free(authority);
}

int main(void) {
        const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
                T(tls_lets_in),           T(tls_keeps_out), T(tls_checks_its_own), T(tls_reloads),
                T(plain_is_for_loopback), T(other_cluster), T(tls_carries_large),
        };

        log_init("test", LOG_LEVEL_ERROR);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
