/* SPDX-License-Identifier: MIT */
/* A successor of railmuxd, or an executor, that serves fewer GPUs than there were. */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "railmux/railmux.h"
#include <string.h>

#define RESUMED RAILMUX__SESSION__EVENT__BODY_RESUMED

static bool has_ring(const struct fixture *f, uint64_t session, uint32_t gpu) {
        for (unsigned int i = 0; i < f->executor.n_rings; i++)
                if (f->executor.rings[i].session == session && f->executor.rings[i].gpu == gpu)
                        return true;
        return false;
}

/* Emulated GPUs are numbers: what there is goes on, on those that are no more, too. */
static void test_host(void **unused) {
        struct comm_answer answers[2], single;
        uint8_t id[COMM_ID_BYTES];
        struct client *clients[2];
        struct fixture f;
        uint64_t calls[2];

        (void)unused;
        fixture_setup(&f, NULL, true);
        for (unsigned int i = 0; i < 2; i++) {
                clients[i] = client_open(&f);
                client_drop(clients[i], client_answer(clients[i], send_ring_open(clients[i], i * 7)));
        }
        call_id_create(clients[0], id);
        for (uint32_t i = 0; i < 2; i++)
                calls[i] = send_comm_create_on(clients[i], id, 2, i, (int32_t)i * 7);
        for (uint32_t i = 0; i < 2; i++)
                assert_int_equal((answers[i] = take_comm(clients[i], calls[i])).code, 0);
        call_id_create(clients[1], id);
        assert_int_equal((single = take_comm(clients[1], send_comm_create_on(clients[1], id, 1, 0, 7))).code, 0);

        fixture_kill(&f);
        fixture_wait(&f, f.executor.fd < 0);
        f.gpu_option = "host:4";
        fixture_start(&f);
        for (unsigned int i = 0; i < 2; i++)
                client_drop(clients[i], client_event(clients[i], RESUMED));
        executor_connect(&f, false); /* with as many as before */
        fixture_wait(&f, f.executor.welcome);
        fixture_executor_gpus = 4;
        executor_connect(&f, true); /* a new one, as the configuration says */
        fixture_wait(&f, executor_comm(&f, answers[1].comm) && executor_comm(&f, single.comm));
        fixture_wait(&f, has_ring(&f, clients[1]->session, 7));
        call_id_create(clients[1], id);
        assert_int_equal(take_comm(clients[1], send_comm_create_on(clients[1], id, 1, 0, 7)).code, RMX_E_INVALID);
        assert_int_equal(take_ack(clients[1], send_comm_destroy(clients[1], single.handle, 3), NULL, 0), 0);
        for (unsigned int i = 0; i < 2; i++)
                assert_int_equal(take_ack(clients[i], send_comm_destroy(clients[i], answers[i].handle, 5), NULL, 0), 0);
        fixture_wait(&f, f.executor.n_comms == 0);
        for (unsigned int i = 0; i < 2; i++)
                client_close(clients[i]);
        fixture_executor_gpus = 8;
        fixture_wait_idle(&f);
        fixture_teardown(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_host)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
