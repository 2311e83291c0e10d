/* SPDX-License-Identifier: MIT */
/* A node that speaks, and takes what is sent to it, but never tells that the ring of frames has room again. */
#include <arpa/inet.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "fabric/verbs/verbs.h"
#include "tests/fabric/fake_rig.h"
#include "tests/fabric/rig.h"
#include "tests/time_scale.h"
#include "util/clock.h"

static _Atomic bool mean;

/* Node 1's words of credit say that it has taken nothing yet. */
static int mean_post_send(struct ibv_qp *qp, struct ibv_send_wr *wrs, struct ibv_send_wr **ret_bad) {
        const struct rig_place place = rig_place(RIG_FAKE, 1, 0);

        for (struct ibv_send_wr *wr = wrs; wr; wr = wr->next)
                if (mean && wr->wr_id == COMPLETION_CREDIT && strcmp(qp->context->device->name, place.hca) == 0)
                        wr->imm_data &= ~htonl(IMM_COUNT);
        return fake_verbs()->post_send(qp, wrs, ret_bad);
}

/* Its connection is given up, and what was to go over it goes over the next one. */
static void test_no_credit(void **state) {
        const struct rig_options options = {.n_nodes = 2,
                                            .n_rails = 1,
                                            .ranks = {2, 1},
                                            .slot_bytes = 2000,
                                            .key = 1,
                                            .class = FABRIC_NORMAL,
                                            .chunks = 300,
                                            .times = {.heartbeat = 50 * (uint32_t)time_scale(),
                                                      .deadline = 200 * (uint32_t)time_scale(),
                                                      .hold_down = 5,
                                                      .hold_max = 20}};
        const uint64_t end_ns = clock_now_ns() + UINT64_C(40000000000) * time_scale();
        static struct verbs_api api;
        static struct rig rig;

        (void)state;
        fake_rig_begin(NULL);
        api = *fake_verbs();
        api.post_send = mean_post_send;
        rig_verbs = &api;
        rig_start(&rig, &options);
        /* Nor does it mind that node 0 falls silent. */
        pthread_mutex_lock(&rig.nodes[1].fabric->lock);
        rig.nodes[1].fabric->deadline_ns = UINT64_C(600000000000);
        pthread_mutex_unlock(&rig.nodes[1].fabric->lock);
        atomic_store(&mean, true);
        for (uint32_t a = 0; a < 2; a++)
                rig_peer(&rig, a, 1 - a, NULL);
        for (uint32_t a = 0; a < 2; a++)
                rig_area(&rig, a);
        while (!strstr(rig.nodes[0].why, "nothing was acknowledged")) {
                assert_false(rig_done(&rig));
                if (clock_now_ns() > end_ns)
                        fail_msg("a connection without credit lives on; node 0 was told last: %s", rig.nodes[0].why);
                rig_step(&rig);
                rig_dispatch(&rig);
                sched_yield();
        }
        atomic_store(&mean, false);
        rig_run(&rig, 30);
        rig_free(&rig);
        fake_rig_end();
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_credit)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
