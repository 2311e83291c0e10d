/* SPDX-License-Identifier: MIT */
/* On GPUs: which ranks of a process share a bell area, and what the sessions behind that do. */
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/comm.h"
#include "client/device.h"
#include "client/session.h"
#include "tests/client/device_rig.h"

/* How many different areas the ranks of the first n are in; *ret_most: ranks in the fullest. */
static uint32_t areas(struct rmx_comm *const *comm, uint32_t n, uint32_t *ret_most) {
        uint32_t different = 0;

        *ret_most = 0;
        for (uint32_t i = 0; i < n; i++) {
                uint32_t before = 0, with = 0;

                for (uint32_t k = 0; k < n; k++) {
                        before += k < i && comm[k]->device == comm[i]->device;
                        with += comm[k]->device == comm[i]->device;
                }
                different += !before;
                *ret_most = with > *ret_most ? with : *ret_most;
        }
        return different;
}

static uint32_t sessions(struct rig *rig) {
        return fake_calls(&rig->crew.fake, BODY(HELLO));
}

/* One rank of each communicator here, as in most processes: one connection, one area for each GPU. */
static void test_one(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options)};
        struct rmx_comm *comm[12];
        struct rmx_id id;
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        for (uint32_t i = 0; i < 12; i++) {
                options.gpu = (int32_t)(i % 3);
                assert_int_equal(rmx_get_id(rig.crew.session, &id), RMX_OK);
                assert_int_equal(rmx_comm_create(rig.crew.session, &id, 1, 0, &options, &comm[i]), RMX_OK);
                assert_ptr_equal(comm[i]->session, rig.crew.session);
                if (i % 3 == 0)
                        assert_ptr_equal(comm[i]->device, rig.comm->device);
        }
        assert_int_equal(sessions(&rig), 1);
        assert_int_equal(rig.gpu->opened, 3);
        for (uint32_t i = 0; i < 12; i++)
                assert_int_equal(rmx_comm_destroy(comm[i]), RMX_OK);
        rig_stop(&rig);
}

static int join_anywhere(struct crew *crew, uint32_t rank) {
        return rmx_comm_create(crew->session, &crew->id, crew->n, rank, NULL, &crew->comm[rank]);
}

/* Each rank of a process has a GPU, which the daemon chooses. */
static void test_gpu_each(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 4);
        assert_int_equal(sessions(&rig), 4);
        for (uint32_t i = 0; i < 4; i++)
                assert_int_equal(rmx_comm_destroy(rig.crew.comm[i]), RMX_OK);
        assert_int_equal(rmx_get_id(rig.crew.session, &rig.crew.id), RMX_OK);
        crew_run(&rig.crew, join_anywhere);
        for (uint32_t i = 0; i < 4; i++) {
                assert_int_equal(rig.crew.result[i], RMX_OK);
                assert_int_equal(rig.crew.comm[i]->gpu, i);
                assert_ptr_equal(rig.crew.comm[i]->session, rig.crew.session);
        }
        rig_stop(&rig);
}

/* Ranks of one communicator on one GPU: an area each, and when there are too many, as many in each. */
static void test_many(void **state) {
        uint32_t most;
        struct rig rig;

        (void)state;
        for (uint32_t n = 2; n <= 2 * DEVICE_SHARES; n++) {
                rig_start(&rig, n);
                assert_int_equal(areas(rig.crew.comm, n, &most), n < DEVICE_SHARES ? n : DEVICE_SHARES);
                assert_int_equal(most, (n + DEVICE_SHARES - 1) / DEVICE_SHARES);
                assert_int_equal(sessions(&rig), n < DEVICE_SHARES ? n : DEVICE_SHARES);
                rig_stop(&rig);
                assert_int_equal(rig.gpu->closed, rig.gpu->opened);
        }
}

/* Later communicators use what is there, those that are split off stay where their parents are. */
static int join(struct crew *crew, uint32_t rank) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};

        return rmx_comm_create(crew->session, &crew->id, crew->n, rank, &options, &crew->comm[rank]);
}

static int split_and_leave(struct crew *crew, uint32_t rank) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_comm *child;
        int r = rmx_comm_split(crew->comm[rank], 0, 0, &options, &child);

        if (r)
                return r;
        must(child->device == crew->comm[rank]->device);
        must(rmx_comm_split(child, -1, 0, &options, &crew->comm[rank]) == RMX_OK && !crew->comm[rank]);
        crew->comm[rank] = child;
        return RMX_OK;
}

static void test_again(void **state) {
        struct rmx_comm *parent[3];
        uint32_t most;
        struct rig rig;

        (void)state;
        rig_start(&rig, 3);
        for (uint32_t turn = 0; turn < 5; turn++) {
                memcpy(parent, rig.crew.comm, sizeof(parent));
                crew_run(&rig.crew, split_and_leave);
                for (uint32_t i = 0; i < 3; i++) {
                        assert_int_equal(rig.crew.result[i], RMX_OK);
                        assert_int_equal(rmx_barrier(rig.crew.comm[i], NULL), RMX_OK);
                }
                assert_int_equal(areas(rig.crew.comm, 3, &most), 3);
                for (uint32_t i = 0; i < 3; i++) {
                        assert_int_equal(rmx_comm_destroy(rig.crew.comm[i]), RMX_OK);
                        assert_int_equal(rmx_comm_destroy(parent[i]), RMX_OK);
                }
                assert_int_equal(rmx_get_id(rig.crew.session, &rig.crew.id), RMX_OK);
                crew_run(&rig.crew, join);
                assert_int_equal(areas(rig.crew.comm, 3, &most), 3);
        }
        assert_int_equal(sessions(&rig), 3);
        assert_int_equal(rig.gpu->opened, 3);
        assert_null(rig.crew.session->shares.joining);
        rig_stop(&rig);
        assert_int_equal(rig.gpu->closed, 3);
}

/* Who joins something else meanwhile is not counted. */
static void *join_first(void *userdata) {
        struct rig *rig = userdata;

        rig->crew.result[0] = join(&rig->crew, 0);
        return NULL;
}

static void test_other(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_comm *other;
        struct rmx_id id;
        pthread_t thread;
        struct rig rig;
        uint32_t most;

        (void)state;
        rig_start(&rig, 1);
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        rig.crew.n = 2;
        assert_int_equal(rmx_get_id(rig.crew.session, &rig.crew.id), RMX_OK);
        assert_int_equal(rmx_get_id(rig.crew.session, &id), RMX_OK);
        assert_int_equal(pthread_create(&thread, NULL, join_first, &rig), 0);
        fake_wait_calls(&rig.crew.fake, BODY(COMM_CREATE), 2); /* it waits for rank 1 */
        assert_int_equal(rmx_comm_create(rig.crew.session, &id, 1, 0, &options, &other), RMX_OK);
        assert_ptr_equal(other->session, rig.crew.session);
        assert_int_equal(sessions(&rig), 1);
        assert_int_equal(join(&rig.crew, 1), RMX_OK);
        pthread_join(thread, NULL);
        assert_int_equal(rig.crew.result[0], RMX_OK);
        assert_int_equal(areas(rig.crew.comm, 2, &most), 2);
        assert_int_equal(sessions(&rig), 2);
        assert_int_equal(rmx_comm_destroy(other), RMX_OK);
        rig_stop(&rig);
}

/* The tenant may have no more sessions: then ranks share. */
static void test_refused(void **state) {
        uint32_t most;
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        rig.crew.fake.hello_failure = RMX_E_LIMIT;
        rig.crew.n = 3;
        assert_int_equal(rmx_get_id(rig.crew.session, &rig.crew.id), RMX_OK);
        crew_run(&rig.crew, join);
        for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(rig.crew.result[i], RMX_OK);
                assert_int_equal(rmx_barrier(rig.crew.comm[i], NULL), RMX_OK);
        }
        assert_int_equal(areas(rig.crew.comm, 3, &most), 1);
        rig_stop(&rig);
}

/* After a reload the daemon may take new connections of this process for another tenant's. */
static void test_estranged(void **state) {
        uint32_t most;
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        rig.crew.fake.estranged = true;
        rig.crew.n = 3;
        assert_int_equal(rmx_get_id(rig.crew.session, &rig.crew.id), RMX_OK);
        crew_run(&rig.crew, join);
        for (uint32_t i = 0; i < 3; i++)
                assert_int_equal(rig.crew.result[i], RMX_OK);
        assert_int_equal(areas(rig.crew.comm, 3, &most), 1);
        rig_stop(&rig);
}

/* The GPU, or the executor, may have no room for another area. */
static void test_no_room(void **state) {
        uint32_t most;
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        for (uint32_t turn = 0; turn < 3; turn++) {
                for (uint32_t i = 0; i < rig.crew.n; i++)
                        assert_int_equal(rmx_comm_destroy(rig.crew.comm[i]), RMX_OK);
                rig.crew.n = 2;
                rig.gpu->fail_open = turn < 2 ? RMX_E_NO_MEMORY : RMX_OK;
                assert_int_equal(rmx_get_id(rig.crew.session, &rig.crew.id), RMX_OK);
                crew_run(&rig.crew, join);
                assert_int_equal(rig.crew.result[0], RMX_OK);
                assert_int_equal(rig.crew.result[1], RMX_OK);
                assert_int_equal(areas(rig.crew.comm, 2, &most), turn < 2 ? 1 : 2);
        }
        assert_int_equal(sessions(&rig), 2);
        rig_stop(&rig);
        assert_int_equal(rig.gpu->closed, 2);
}

/* The daemon stands still: who joins can be called back, also who waits for an area. */
static struct rmx_cancel *cancels[2];

static int join_cancelled(struct crew *crew, uint32_t rank) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 1, .cancel = cancels[rank]};

        return rmx_comm_create(crew->session, &crew->id, 2, rank, &options, &crew->comm[rank]);
}

static void *call_back(void *userdata) {
        struct rig *rig = userdata;
        struct device_shares *shares = &rig->crew.session->shares;
        uint32_t n = 0;

        while (n < 2) { /* both are about to wait, or do */
                sched_yield();
                n = 0;
                pthread_mutex_lock(&shares->mutex);
                for (const struct device_share *share = shares->joining; share; share = share->next)
                        n++;
                pthread_mutex_unlock(&shares->mutex);
        }
        for (uint32_t i = 0; i < 2; i++)
                rmx_cancel_set(cancels[i]);
        return NULL;
}

static void test_cancel(void **state) {
        pthread_t thread;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2); /* both sessions are there, and no area on GPU 1 */
        rig.crew.fake.cancels = true;
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(rmx_comm_destroy(rig.crew.comm[i]), RMX_OK);
                assert_int_equal(rmx_cancel_new(&cancels[i]), RMX_OK);
        }
        assert_int_equal(rmx_get_id(rig.crew.session, &rig.crew.id), RMX_OK);
        fake_deafen(&rig.crew.fake, true);
        assert_int_equal(pthread_create(&thread, NULL, call_back, &rig), 0);
        crew_run(&rig.crew, join_cancelled);
        pthread_join(thread, NULL);
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(rig.crew.result[i], RMX_E_ABORTED);
                rmx_cancel_free(cancels[i]);
        }
        assert_null(rig.crew.session->shares.joining);
        fake_deafen(&rig.crew.fake, false);
        rmx_session_close(rig.crew.session);
        fake_stop(&rig.crew.fake);
}

/* Registered memory is known for all ranks, and for none afterwards. */
static void test_memory(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 3);
        assert_int_equal(rmx_buffer_register(rig.crew.session, rig.a, BLOCK), RMX_OK);
        assert_int_equal(rmx_buffer_register(rig.crew.session, rig.b, BLOCK), RMX_OK);
        assert_int_equal(creations(&rig), 6);
        for (uint32_t i = 0; i < 3; i++)
                assert_int_equal(rmx_all_reduce(rig.crew.comm[i], rig.a, rig.b, BLOCK / 4, RMX_INT32, RMX_SUM, NULL),
                                 RMX_OK);
        assert_int_equal(creations(&rig), 6);
        assert_int_equal(rmx_buffer_unregister(rig.crew.session, rig.a), RMX_OK);
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(BUFFER_DESTROY)), 3);
        rig_stop(&rig);
}

/* Events come on the connection of the rank they are about. */
static void test_events(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 3);
        fake_comm_failed(&rig.crew.fake, RMX_E_PEER_LOST, 1);
        for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(rmx_comm_error(rig.crew.comm[i]), RMX_E_PEER_LOST);
                assert_int_equal(rmx_comm_failed_rank(rig.crew.comm[i]), 1);
        }
        rig_stop(&rig);
}

/* Nothing is given back before the kernels of all areas have ended: giving back waits for them. */
static void test_close(void **state) {
        struct rmx_request request;
        struct rig rig;

        (void)state;
        rig_start(&rig, 3);
        rig.gpu->hold = rig.gpu->close_waits = true;
        for (uint32_t i = 0; i < 3; i++)
                assert_int_equal(rmx_barrier_start(rig.crew.comm[i], NULL, &request), RMX_OK);
        rmx_session_close(rig.crew.session);
        assert_int_equal(rig.gpu->closed, 3);
        fake_stop(&rig.crew.fake);
}

/* A child of fork() has copies of all of it, whose end is nobody's business. */
static void test_fork(void **state) {
        struct rig rig;
        int status;
        pid_t pid;

        (void)state;
        rig_start(&rig, 3);
        pid = fork();
        if (pid == 0) {
                int bad = 0;

                for (uint32_t i = 0; i < 3; i++)
                        bad |= rmx_barrier(rig.crew.comm[i], NULL) != RMX_E_INVALID;
                rmx_session_close(rig.crew.session);
                _exit(bad || rig.gpu->released || rig.gpu->closed);
        }
        assert_true(pid > 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        for (uint32_t i = 0; i < 3; i++)
                assert_int_equal(rmx_barrier(rig.crew.comm[i], NULL), RMX_OK);
        rig_stop(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_one),    cmocka_unit_test(test_gpu_each),  cmocka_unit_test(test_many),
                cmocka_unit_test(test_again),  cmocka_unit_test(test_other),     cmocka_unit_test(test_refused),
                cmocka_unit_test(test_cancel), cmocka_unit_test(test_memory),    cmocka_unit_test(test_events),
                cmocka_unit_test(test_close),  cmocka_unit_test(test_estranged), cmocka_unit_test(test_no_room),
                cmocka_unit_test(test_fork),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
