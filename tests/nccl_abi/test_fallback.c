/* SPDX-License-Identifier: MIT */
/* RAILMUX_FALLBACK without a daemon: communicators go to the other library, whole, and in its groups. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/nccl/device_api.h"
#include "client/nccl/nccl.h"
#include "tests/nccl_abi/stand_in_load.h"

static const struct stand_in_counts *counts;
static int (*n_waiting)(void);

static ncclComm_t one(int n_ranks, int rank) {
        ncclComm_t comm = NULL;
        ncclUniqueId id;

        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(id.internal[0], STAND_IN_ID_BYTE);
        assert_int_equal(ncclCommInitRank(&comm, n_ranks, id, rank), ncclSuccess);
        assert_non_null(comm);
        return comm;
}

static void test_communicator(void **state) {
        float in[4] = {1, 2, 3, 4}, out[4] = {-1, -1, -1, -1};
        struct stand_in_counts before = *counts;
        ncclComm_t comm = one(3, 2), child;
        int count = 0, rank = 0;

        (void)state;
        assert_int_equal(counts->inits, before.inits + 1);
        assert_int_equal(ncclCommCount(comm, &count), ncclSuccess);
        assert_int_equal(ncclCommUserRank(comm, &rank), ncclSuccess);
        assert_int_equal(count, 3);
        assert_int_equal(rank, 2);
        assert_int_equal(ncclAllReduce(in, out, 4, ncclFloat32, ncclSum, comm, (ncclStream_t)(uintptr_t)0x77),
                         ncclSuccess);
        assert_int_equal(counts->stream, 0x77);
        assert_memory_equal(in, out, sizeof(in));
        /* What it does not have, and what fails in it. */
        assert_int_equal(ncclReduce(in, out, 4, ncclFloat32, ncclSum, 0, comm, NULL), ncclInvalidUsage);
        assert_non_null(strstr(ncclGetLastError(comm), "RAILMUX_FALLBACK"));
        assert_int_equal(ncclCommSplit(comm, STAND_IN_COLOUR, 0, &child, NULL), ncclRemoteError);
        assert_non_null(strstr(ncclGetLastError(comm), "the stand-in is sorry"));
        /* Not even asked: there is no place for the handle. */
        assert_int_equal(ncclCommSplit(comm, 0, 0, NULL, NULL), ncclInvalidArgument);
        assert_int_equal(ncclCommShrink(comm, &rank, 1, NULL, NULL, 0), ncclInvalidArgument);
        assert_int_equal(ncclCommGrow(comm, 4, NULL, -1, NULL, NULL), ncclInvalidArgument);
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
        assert_int_equal(counts->destroys, before.destroys + 1);
}

/* A new rank of a communicator that grows there meets the old ones in the same call. */
static void test_grow(void **state) {
        struct stand_in_counts before = *counts;
        ncclComm_t comm = NULL;
        ncclUniqueId id;
        int rank = -1;

        (void)state;
        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(ncclCommGrow(NULL, 4, &id, 3, NULL, NULL), ncclInvalidArgument);
#ifdef STAND_IN_OLD
        assert_int_equal(ncclCommGrow(NULL, 4, &id, 3, &comm, NULL), ncclInvalidUsage);
        assert_non_null(strstr(ncclGetLastError(NULL), "ncclCommGrow"));
        (void)rank;
        assert_int_equal(counts->inits, before.inits);
#else
        assert_int_equal(ncclCommGrow(NULL, 4, &id, 3, &comm, NULL), ncclSuccess);
        assert_int_equal(counts->grows, before.grows + 1);
        assert_int_equal(counts->inits, before.inits);
        assert_int_equal(ncclCommUserRank(comm, &rank), ncclSuccess);
        assert_int_equal(rank, 3);
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
#endif
}

static void test_group(void **state) {
        float in = 5, out[2] = {-1, -1};
        ncclUniqueId id;
        ncclComm_t comm[2] = {NULL, NULL};
        struct stand_in_counts before = *counts;

        (void)state;
        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        for (int i = 0; i < 2; i++)
                assert_int_equal(ncclCommInitRank(&comm[i], 2, id, i), ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        assert_int_equal(counts->grouped_inits, before.grouped_inits + 2);
        assert_int_equal(counts->groups, before.groups + 1);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        for (int i = 0; i < 2; i++)
                assert_int_equal(ncclAllReduce(&in, &out[i], 1, ncclFloat32, ncclSum, comm[i], NULL), ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        assert_int_equal(counts->grouped_collectives, before.grouped_collectives + 2);
        assert_int_equal(counts->depth, 0);
        assert_true(out[0] == 5 && out[1] == 5);
        for (int i = 0; i < 2; i++)
                assert_int_equal(ncclCommDestroy(comm[i]), ncclSuccess);
}

/* A simulated group runs in no library, and the time is the other one's. */
static void test_simulation(void **state) {
        ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
        struct stand_in_counts before = *counts;
        ncclComm_t comm = one(2, 0);
        float in = 5, out = -1;

        (void)state;
        for (int i = 0; i < 4; i++) {
                ncclSimInfo_t *given = i == 1 ? NULL : &info; /* NCCL's would then run the group */

                info.magic = i == 2 ? 0 : NCCL_SIM_INFO_MAGIC;
                info.size = i == 3 ? offsetof(ncclSimInfo_t, estimatedTime) : sizeof(info);
                info.estimatedTime = 7;
                assert_int_equal(ncclGroupStart(), ncclSuccess);
                for (int k = 0; k < 2; k++)
                        assert_int_equal(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL), ncclSuccess);
#ifdef STAND_IN_OLD
                assert_int_equal(ncclGroupSimulateEnd(given), i == 2 ? ncclInvalidArgument : ncclInvalidUsage);
                assert_non_null(strstr(ncclGetLastError(NULL), "ncclGroupSimulateEnd"));
                assert_true(info.estimatedTime == (i ? 7 : NCCL_UNDEF_FLOAT));
#else
                assert_int_equal(ncclGroupSimulateEnd(given), i == 2 ? ncclInvalidArgument : ncclSuccess);
                assert_true(info.estimatedTime == (i ? 7 : 2 * STAND_IN_TIME));
#endif
                assert_int_equal(counts->depth, 0);
                assert_true(out == -1);
        }
#ifndef STAND_IN_OLD
        assert_int_equal(counts->simulations, before.simulations + 3);
#endif
        assert_int_equal(counts->collectives, before.collectives);
        /* The thread's group is over in both libraries. */
        assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
        assert_int_equal(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL), ncclSuccess);
        assert_true(out == 5);
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
}

/* A call that is wrong here spoils the group there: nothing of it has begun, and what was made is taken back. */
static void test_failed_group(void **state) {
        ncclComm_t comm = one(2, 0), made = NULL;
        struct stand_in_counts before = *counts;
        ncclResult_t async = ncclSuccess;
        float in = 5, out = -1;
        ncclUniqueId id;
        int n;

        (void)state;
        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclCommInitRank(&made, 2, id, 1), ncclSuccess);
        assert_int_equal(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL), ncclSuccess);
        assert_int_equal(ncclSend(&in, 1, ncclFloat32, 0, NULL, NULL), ncclInvalidArgument);
        assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
        assert_non_null(strstr(ncclGetLastError(NULL), "ncclSend"));
        assert_true(out == -1);
        assert_int_equal(counts->collectives, before.collectives);
        assert_int_equal(counts->simulations, before.simulations);
        assert_int_equal(counts->depth, 0);
        assert_int_equal(ncclCommCount(made, &n), ncclInvalidUsage);
        assert_int_equal(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, made, NULL), ncclInvalidUsage);
        assert_int_equal(ncclCommGetAsyncError(made, &async), ncclSuccess);
        assert_int_equal(async, ncclInvalidUsage);
        assert_int_equal(ncclCommDestroy(made), ncclSuccess);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL), ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        assert_true(out == 5);
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
}

/* What it has of newer calls is its own answer. */
static void test_newer_calls(void **state) {
        ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
        struct stand_in_counts before = *counts;
        ncclDevResourceRequirements_t requirement = {0};
        float in[2] = {1, 2}, out[2] = {0};
        ncclComm_t comm = one(8, 3);
        ncclTeam_t team;
        void *pointer;

        (void)state;
        team = ncclTeamLsa(comm);
        assert_true(team.nRanks == 8 && team.rank == 3 && team.stride == 1);
        assert_int_equal(ncclTeamRankToWorld(comm, team, 5), 5);
        assert_int_equal(ncclTeamRankToLsa(comm, team, 5), -1);
        team = ncclTeamRail(comm);
        assert_true(!team.nRanks && !team.stride);
        assert_non_null(strstr(ncclGetLastError(comm), "ncclTeamRail: the library that RAILMUX_FALLBACK names"));
        assert_int_equal(ncclGetMultimemDevicePointer((ncclWindow_t)(uintptr_t)16, 4,
                                                      (ncclMultimemHandle_t){(void *)(uintptr_t)256}, &pointer),
                         ncclSuccess);
        assert_ptr_equal(pointer, (void *)(uintptr_t)276);
        assert_int_equal(ncclLLA2ACreateRequirement(3, 5, NULL, &requirement), ncclSuccess);
        assert_int_equal(requirement.bufferSize, 15);
        config.maxCTAs = 9;
        config.algSelection = "ring"; /* not ours to judge */
        assert_int_equal(ncclAllReduceConfig(in, out, 2, ncclFloat32, ncclSum, comm, NULL, &config), ncclSuccess);
        assert_memory_equal(in, out, sizeof(in));
        assert_int_equal(counts->max_blocks, 9);
        assert_int_equal(ncclAllReduceConfig(in, out, 2, ncclFloat32, ncclSum, comm, NULL, NULL), ncclSuccess);
        assert_int_equal(counts->collectives, before.collectives + 2);
        assert_int_equal(ncclReduceConfig(in, out, 2, ncclFloat32, ncclSum, 0, comm, NULL, &config), ncclInvalidUsage);
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
}

static void *wait_in_call(void *userdata) {
        float x = 1, y = -1;

        return ncclAllReduce(&x, &y, 0, ncclFloat32, ncclSum, userdata, NULL) == ncclRemoteError ? userdata : NULL;
}

/* One thread is in a call that ends when the communicator is aborted. With a group open, too: that is another thread's
 * matter. */
static void test_abort(void **state) {
        struct stand_in_counts before = *counts;
        pthread_t thread;
        void *result;

        (void)state;
        for (int grouped = 0; grouped < 2; grouped++) {
                ncclComm_t comm = one(2, 0);

                assert_int_equal(pthread_create(&thread, NULL, wait_in_call, comm), 0);
                while (!n_waiting())
                        sched_yield();
                if (grouped)
                        assert_int_equal(ncclGroupStart(), ncclSuccess);
                assert_int_equal(ncclCommAbort(comm), ncclSuccess);
                pthread_join(thread, &result);
                assert_ptr_equal(result, comm);
                assert_int_equal(ncclCommAbort(comm), ncclInvalidArgument);
                if (grouped)
                        assert_int_equal(ncclGroupEnd(), ncclInvalidArgument); /* of the second abort */
        }
        assert_int_equal(counts->aborts, before.aborts + 2);
        assert_int_equal(counts->destroys, before.destroys);
        assert_int_equal(counts->groups, before.groups);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_communicator), cmocka_unit_test(test_grow),
                                           cmocka_unit_test(test_group),        cmocka_unit_test(test_simulation),
                                           cmocka_unit_test(test_failed_group), cmocka_unit_test(test_newer_calls),
                                           cmocka_unit_test(test_abort)};
        void *function;

        counts = stand_in_load("stand_in_waiting", &function);
        if (!counts)
                return 2;
        n_waiting = (int (*)(void))function;
        return cmocka_run_group_tests_name("fallback", tests, NULL, NULL);
}
