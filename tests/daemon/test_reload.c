/* SPDX-License-Identifier: MIT */
/* Certificates that are renewed on disk: after a reload they are used for new connections to other nodes. */
#include "tests/daemon/fixture.h"
#include "tests/daemon/peers_fixture.h"

#include "daemon/comm_id.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIMIT "railmux_tenant_limit{tenant=\"default\",resource=\"comms\"}"

static struct fixture f;

#define both_until(world, expression)                                                                                  \
        do {                                                                                                           \
                uint64_t end_ = fixture_deadline();                                                                    \
                while (!(expression)) {                                                                                \
                        assert_true(event_base_loop((world)->base, EVLOOP_NONBLOCK) >= 0);                             \
                        fixture_turn_until(&f, end_, #expression, __FILE__, __LINE__);                                 \
                }                                                                                                      \
        } while (0)

static void configure(const struct peers_options *options, char *config, size_t size, const char *more) {
        snprintf(config, size,
                 "peer:\n  listen: '127.0.0.1:0'\n  cluster: test\n  ca: %s\n  certificate: %s\n  key: %s\n%s",
                 options->ca, options->certificate, options->key, more);
}

/* The other one drops the connection and dials anew. */
static const char *name_after_another_connection(struct world *world) {
        struct node *other = &world->node[1];
        unsigned int ups = other->ups;

        peer_drop(other->up, "for the test");
        both_until(world, other->ups > ups);
        return peer_name(other->up);
}

static void test_certificates(void **state) {
        struct certificate_request request = {.uri = "railmux:test/first", .from_days = -1, .to_days = 5};
        struct world *world = *state;
        struct peers_options options = node_options(world, 0), others = node_options(world, 1);
        struct authority *authority = authority_new("the CA");
        struct node *other = &world->node[1];
        char config[2048], address[COMM_ID_ADDRESS_BYTES];
        uint8_t id[COMM_ID_BYTES];
        struct client *client;
        struct peer *peer;

        certificate_write(world, authority, "a", &request);
        node_use_certificate(world, &options, "a");
        request.uri = "railmux:test/other";
        certificate_write(world, authority, "b", &request);
        node_use_certificate(world, &others, "b");
        node_start(world, 1, &others);
        configure(&options, config, sizeof(config), "");
        fixture_setup(&f, config, false);
        client = client_open(&f);
        call_id_create(client, id);
        assert_int_equal(comm_id_address(id, address), 0);
        assert_int_equal(peers_dial(other->peers, address, &peer), 0);
        both_until(world, other->ups == 1);
        assert_string_equal(peer_name(other->up), "first");
        /* Nothing happens before the reload, and nothing to what stands. */
        request.uri = "railmux:test/second";
        certificate_write(world, authority, "a", &request);
        assert_string_equal(name_after_another_connection(world), "first");
        fixture_configure(&f, config, true);
        call_id_create(client, id);
        assert_int_equal(other->losts, 1); /* of the drop */
        assert_string_equal(name_after_another_connection(world), "second");
        /* What cannot be used changes nothing, the rest of the configuration neither. */
        assert_int_equal(unlink(options.key), 0);
        configure(&options, config, sizeof(config), "limits: {comms: 7}\n");
        fixture_configure(&f, config, true);
        assert_true(fixture_metric(&f, LIMIT) == 16384);
        assert_string_equal(name_after_another_connection(world), "second");
        /* Other files, which the configuration names now. */
        request.uri = "railmux:test/third";
        certificate_write(world, authority, "c", &request);
        node_use_certificate(world, &options, "c");
        configure(&options, config, sizeof(config), "limits: {comms: 7}\n");
        fixture_configure(&f, config, true);
        assert_true(fixture_metric(&f, LIMIT) == 7);
        assert_string_equal(name_after_another_connection(world), "third");
        /* TLS is for good. */
        fixture_configure(&f, "peer: {listen: '127.0.0.1:0', cluster: test}\nlimits: {comms: 8}\n", true);
        assert_true(fixture_metric(&f, LIMIT) == 7);
        assert_string_equal(name_after_another_connection(world), "third");
        client_close(client);
        node_stop(world, 1);
        fixture_teardown(&f);
        authority_free(authority);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_certificates, world_setup, world_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
