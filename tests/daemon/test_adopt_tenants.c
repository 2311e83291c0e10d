/* SPDX-License-Identifier: MIT */
/* Tenants over a restart with another configuration: who is served keeps the one it has, who comes gets a new one. */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "railmux/railmux.h"
#include <stdio.h>
#include <string.h>

#define EVERYBODY "0-4294967294"

static double of(struct fixture *f, const char *what, const char *tenant, const char *resource) {
        char name[128];

        snprintf(name, sizeof(name), "railmux_tenant_%s{tenant=\"%s\",resource=\"%s\"}", what, tenant, resource);
        return fixture_metric(f, name);
}

static void succeed(struct fixture *f, const char *config) {
        fixture_configure(f, config, false);
        fixture_kill(f);
        fixture_wait(f, f->executor.fd < 0);
        fixture_start(f);
        executor_connect(f, false);
        fixture_wait(f, f->executor.welcome);
}

static void join(struct client *clients[2], const uint8_t id[COMM_ID_BYTES]) {
        uint64_t call = send_comm_create(clients[0], id, 2, 0);

        assert_int_equal(take_comm(clients[1], send_comm_create(clients[1], id, 2, 1)).code, 0);
        assert_int_equal(take_comm(clients[0], call).code, 0);
}

static void test_removed(void **unused) {
        struct client *clients[2], *late;
        uint8_t ids[3][COMM_ID_BYTES];
        struct comm_answer answer;
        uint32_t handles[2];
        struct fixture f;
        uint64_t call;

        (void)unused;
        fixture_setup(&f, "tenants: {by_uid: 'alpha=" EVERYBODY "'}\nlimits: {comms: 20}\n", true);
        f.tenant = "alpha";
        for (uint32_t i = 0; i < 2; i++)
                clients[i] = client_open(&f);
        make_comm(clients, 2, handles);
        for (uint32_t i = 0; i < 3; i++)
                call_id_create(clients[0], ids[i]);
        assert_true(of(&f, "used", "alpha", "comms") == 2);

        for (uint32_t round = 0; round < 2; round++) { /* the second successor learns it from the first */
                succeed(&f, round ? "limits: {comms: 30}\n" : "tenants: {by_uid: 'beta=" EVERYBODY "'}\n");
                assert_true(of(&f, "used", "alpha", "sessions") == 2);
                assert_true(of(&f, "used", "alpha", "comms") == 2 + 2 * round);
                assert_true(of(&f, "limit", "alpha", "comms") == (round ? 30 : 16384));
                join(clients, ids[round]); /* made for it, and so for these alone */
                f.tenant = round ? "default" : "beta";
                late = client_open(&f);
                answer = take_comm(late, send_comm_create(late, ids[2], 1, 0));
                assert_int_equal(answer.code, RMX_E_DENIED);
                assert_non_null(strstr(answer.text, f.tenant));
                assert_true(of(&f, "used", f.tenant, "sessions") == 1);
                client_close(late);
        }
        call = send_comm_split(clients[0], handles[0], 1, 0, 0);
        assert_int_equal(take_comm(clients[1], send_comm_split(clients[1], handles[1], 1, 0, 0)).code, 0);
        assert_int_equal(take_comm(clients[0], call).code, 0);
        assert_true(of(&f, "used", "alpha", "comms") == 8);
        fixture_configure(&f, "limits: {comms: 8}\n", true); /* what it may hold is as it is for all */
        answer = take_comm(clients[0], send_comm_create(clients[0], ids[2], 1, 0));
        assert_int_equal(answer.code, RMX_E_LIMIT);
        assert_non_null(strstr(answer.text, "tenant alpha"));
        for (uint32_t i = 0; i < 2; i++)
                client_close(clients[i]);
        fixture_wait_idle(&f);
        assert_true(of(&f, "used", "alpha", "sessions") == 0);
        succeed(&f, ""); /* nobody has it any more */
        fixture_assert_silent(&f, "metrics", NULL, "alpha");
        fixture_teardown(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_removed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
