/* SPDX-License-Identifier: MIT */
/* A successor of railmuxd, or an executor, that serves fewer GPUs than there were. */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "railmux/railmux.h"
#include <string.h>

#define RESUMED RAILMUX__SESSION__EVENT__BODY_RESUMED
#define FAILED  RAILMUX__SESSION__EVENT__BODY_COMM_FAILED

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

/* GPUs of hardware: who has ranks on one that is no more is told, when nobody reaches their memory any more. */
static void test_device(void **unused) {
        uint32_t handles[4], left[4], single, pair[2];
        uint64_t leave, destroy, leaves[4];
        struct client *clients[4];
        struct fixture f;

        (void)unused;
        fixture_setup_planes(&f, 4, true);
        for (uint32_t i = 0; i < 4; i++) {
                clients[i] = client_open(&f);
                client_drop(clients[i], client_answer(clients[i], send_ring_open_device(clients[i], i, "area", 0)));
                client_drop(clients[i],
                            client_answer(clients[i], send_buffer_create_device(clients[i], 9, 5000, i, "buffer")));
        }
        make_comm(clients, 4, handles);
        make_comm(clients, 4, left);
        make_comm(clients, 2, pair);
        {
                uint8_t id[COMM_ID_BYTES];
                struct comm_answer answer;

                call_id_create(clients[3], id);
                answer = take_comm(clients[3], send_comm_create_on(clients[3], id, 1, 0, 3));
                assert_int_equal(answer.code, 0);
                single = answer.handle;
        }
        plane_write(&f, 2, "lingers", ""); /* these do not end at once */
        plane_write(&f, 3, "lingers", "");
        fixture_kill(&f);
        f.gpu_option = "hip:2";
        fixture_start(&f);
        for (unsigned int i = 0; i < 4; i++)
                client_drop(clients[i], client_event(clients[i], RESUMED));
        plane_wait_ready(&f, 2);
        /* Executors of GPUs that are served no more end. */
        leave = send_comm_destroy(clients[3], single, 0);
        destroy = send_buffer_destroy(clients[3], 9);
        for (unsigned int i = 0; i < 4; i++)
                leaves[i] = send_comm_destroy(clients[i], left[i], 0);
        assert_int_equal(take_ack(clients[3], send_ring_open(clients[3], 77), NULL, 0), RMX_E_INVALID);
        assert_null(client_find(clients[3], leave)); /* it may be in use */
        assert_null(client_find(clients[3], destroy));
        plane_write(&f, 3, "lingers", NULL);
        assert_int_equal(plane_end(&f, 3), 0);
        assert_int_equal(take_ack(clients[3], leave, NULL, 0), 0);
        assert_int_equal(take_ack(clients[3], destroy, NULL, 0), 0);
        assert_int_equal(take_failure(clients[3], single), RMX_E_DEVICE_LOST);
        for (unsigned int i = 0; i < 4; i++) { /* one of theirs has not ended yet */
                assert_false(client_has_event(clients[i], FAILED));
                assert_null(client_find(clients[i], leaves[i]));
        }
        plane_write(&f, 2, "lingers", NULL);
        assert_int_equal(plane_end(&f, 2), 0);
        for (unsigned int i = 0; i < 4; i++)
                assert_int_equal(take_failure(clients[i], handles[i]), i == 2 ? RMX_E_DEVICE_LOST : RMX_E_LOST);
        for (unsigned int i = 0; i < 4; i++)
                assert_int_equal(take_ack(clients[i], leaves[i], NULL, 0), 0);
        /* What is on the others goes on, and what is not ends as ever. */
        for (unsigned int i = 0; i < 4; i++)
                assert_int_equal(take_ack(clients[i], send_comm_destroy(clients[i], handles[i], 0), NULL, 0), 0);
        for (unsigned int i = 0; i < 3; i++)
                assert_int_equal(take_ack(clients[i], send_buffer_destroy(clients[i], 9), NULL, 0), 0);
        for (unsigned int i = 0; i < 2; i++)
                assert_int_equal(take_ack(clients[i], send_comm_destroy(clients[i], pair[i], 0), NULL, 0), 0);
        make_comm(clients, 2, pair);
        for (unsigned int i = 0; i < 4; i++)
                client_close(clients[i]);
        fixture_teardown(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_host), cmocka_unit_test(test_device)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
