/* SPDX-License-Identifier: MIT */
/* What newer versions of NCCL added, and who inherits a communicator's config, on communicators of the daemon. */
#include "tests/nccl/pair.h"

#include <string.h>

#include "client/nccl/device_api.h"
#include "tests/nccl/abi.h"

#define POISON 0xa5

static void assert_team(ncclTeam_t team, int n_ranks, int rank, int stride) {
        assert_int_equal(team.nRanks, n_ranks);
        assert_int_equal(team.rank, rank);
        assert_int_equal(team.stride, stride);
}

/* Each is alone where memory of others would be in reach, so the rail has everybody. */
static void test_teams(void **state) {
        ncclTeam_t odd = {4, 1, 2};
        ncclComm_t comms[2];

        (void)state;
        pair_new(comms, true);
        for (int rank = 0; rank < 2; rank++) {
                assert_team(ncclTeamWorld(comms[rank]), 2, rank, 1);
                assert_team(pncclTeamLsa(comms[rank]), 1, 0, 1);
                assert_team(ncclTeamRail(comms[rank]), 2, rank, 1);
                assert_team(ncclTeamCft(comms[rank], NCCL_CFT_TEAM_FLAT), 1, 0, 1);
                assert_team(ncclTeamCft(comms[rank], (ncclCftTeamMode_t)7), 0, 0, 0);
                assert_team(ncclTeamCftMultimem(comms[rank]), 1, 0, 1);
                for (int peer = 0; peer < 2; peer++)
                        assert_int_equal(ncclTeamRankToWorld(comms[rank], ncclTeamWorld(comms[rank]), peer), peer);
                assert_int_equal(ncclTeamRankToLsa(comms[rank], ncclTeamLsa(comms[rank]), 0), 0);
                assert_int_equal(ncclTeamRankToWorld(comms[rank], odd, 3), rank + 4);
                assert_int_equal(ncclTeamRankToLsa(comms[rank], odd, 0), -2);
                assert_int_equal(ncclGinBarrierCreateRequirement(comms[rank], odd, 1, NULL, NULL), ncclInvalidUsage);
        }
        pair_destroy(comms);
        assert_team(ncclTeamWorld(comms[0]), 0, 0, 0);
        assert_int_equal(ncclTeamRankToWorld(comms[0], odd, 0), -1);
}

static int32_t number_at(const unsigned char *bytes, size_t at) {
        int32_t number;

        memcpy(&number, bytes + at, sizeof(number));
        return number;
}

/* Of a program that was built with a version whose struct has so many bytes. */
static void check_properties(ncclComm_t comm, int rank, size_t size, uint32_t version) {
        _Alignas(8) unsigned char bytes[NCCL_PROPERTIES_BYTES_LATER + 8];
        const uint32_t head[] = {NCCL_CONFIG_MAGIC, version};

        memset(bytes, POISON, sizeof(bytes));
        memcpy(bytes, &size, sizeof(size));
        memcpy(bytes + sizeof(size), head, sizeof(head));
        assert_int_equal(ncclCommQueryProperties(comm, (void *)bytes), ncclSuccess);
        assert_memory_equal(bytes, &size, sizeof(size));
        assert_memory_equal(bytes + sizeof(size), head, sizeof(head));
        assert_int_equal(number_at(bytes, NCCL_PROPERTIES_RANK), rank);
        assert_int_equal(number_at(bytes, NCCL_PROPERTIES_RANKS), 2);
        assert_int_equal(number_at(bytes, NCCL_PROPERTIES_DEVICE), rank);
        assert_int_equal(number_at(bytes, NCCL_PROPERTIES_NVML), rank);
        for (int at = NCCL_PROPERTIES_DEVICE_API; at < NCCL_PROPERTIES_GIN; at++)
                assert_int_equal(bytes[at], 0);
        assert_int_equal(number_at(bytes, NCCL_PROPERTIES_GIN), 0);
        if (size > NCCL_PROPERTIES_LSA_TEAMS)
                assert_int_equal(number_at(bytes, NCCL_PROPERTIES_LSA_TEAMS) * ncclTeamLsa(comm).nRanks, 2);
        for (size_t at = NCCL_PROPERTIES_HOST_RMA; at < NCCL_PROPERTIES_BYTES_HASH && at < size; at++)
                assert_int_equal(bytes[at], 0);
        for (size_t at = size; at < sizeof(bytes); at++)
                assert_int_equal(bytes[at], POISON);
}

static void test_properties(void **state) {
        ncclComm_t comms[2];

        (void)state;
        pair_new(comms, true);
        for (int rank = 0; rank < 2; rank++) {
                check_properties(comms[rank], rank, NCCL_PROPERTIES_BYTES_22902, 22902);
                check_properties(comms[rank], rank, NCCL_PROPERTIES_BYTES_23000, 23003);
                check_properties(comms[rank], rank, NCCL_PROPERTIES_BYTES_HASH, 23100);
                check_properties(comms[rank], rank, NCCL_PROPERTIES_BYTES_LATER, 23200);
        }
        pair_destroy(comms);
}

/* All calls with a config do what they do without. */
static void call_all(ncclComm_t comm, const ncclCollConfig_t *config, ncclResult_t wanted) {
        const int32_t in[2] = {3, 4};
        int32_t out[2] = {0};

#define CALL(name, ...)                                                                                                \
        do {                                                                                                           \
                memset(out, 0, sizeof(out));                                                                           \
                assert_int_equal(nccl##name##Config(in, out, 2, ncclInt32, __VA_ARGS__, comm, NULL, config), wanted);  \
                if (!wanted)                                                                                           \
                        assert_memory_equal(out, in, sizeof(in));                                                      \
        } while (0)
        CALL(AllReduce, ncclSum);
        CALL(Reduce, ncclSum, 0);
        CALL(ReduceScatter, ncclSum);
        CALL(Broadcast, 0);
        CALL(Gather, 0);
        CALL(Scatter, 0);
#undef CALL
        memset(out, 0, sizeof(out));
        assert_int_equal(ncclAllGatherConfig(in, out, 2, ncclInt32, comm, NULL, config), wanted);
        assert_int_equal(out[1], wanted ? 0 : in[1]);
        memset(out, 0, sizeof(out));
        assert_int_equal(ncclAlltoAllConfig(in, out, 2, ncclInt32, comm, NULL, config), wanted);
        assert_int_equal(out[1], wanted ? 0 : in[1]);
}

static void test_tuned(void **state) {
        ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
        ncclUniqueId id;
        ncclComm_t comm;

        (void)state;
        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
        call_all(comm, NULL, ncclSuccess);
        config.minCTAs = 2;
        config.maxCTAs = 4;
        config.userProfilerTag = 77;
        call_all(comm, &config, ncclSuccess);
        config.algSelection = "ring";
        call_all(comm, &config, ncclInvalidUsage);
        assert_non_null(strstr(ncclGetLastError(comm), "ncclAlltoAllConfig: config.algSelection is \"ring\""));
        config.forceAlgSelection = 0;
        call_all(comm, &config, ncclSuccess);
        config.launchCompletionEvent = &config;
        call_all(comm, &config, ncclInvalidUsage);
        config.size = 64; /* of 2.31, where there was no such member */
        call_all(comm, &config, ncclSuccess);
        config.size = 8;
        call_all(comm, &config, ncclInvalidArgument);
        config.size = sizeof(config);
        config.magic = 0;
        call_all(comm, &config, ncclInvalidArgument);
        call_all(NULL, NULL, ncclInvalidArgument);
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
}

/* A group that cannot be simulated has ended all the same, and what comes next runs. */
static void test_simulation_refused(void **state) {
        int32_t one = 1, sum[2] = {0};
        ncclSimInfo_t info = {0};
        ncclComm_t comms[2];

        (void)state;
        pair_new(comms, true);
        for (int round = 0; round < 2; round++) {
                assert_int_equal(ncclGroupStart(), ncclSuccess);
                for (int rank = 0; rank < 2; rank++)
                        assert_int_equal(ncclAllReduce(&one, &sum[rank], 1, ncclInt32, ncclSum, comms[rank], NULL),
                                         ncclSuccess);
                if (!round)
                        assert_int_equal(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
                else
                        assert_int_equal(ncclGroupEnd(), ncclSuccess);
                assert_true(sum[0] == 2 * round && sum[1] == 2 * round);
        }
        pair_destroy(comms);
}

/* Only who gives no config inherits the parent's. What waits says ncclSuccess, also for what a group is to make. */
static void check_split(bool parent, bool given, ncclResult_t wanted) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comms[2], parts[2];

        pair_new(comms, parent);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(ncclCommSplit(comms[rank], 0, rank, &parts[rank], given ? &config : NULL), wanted);
        assert_int_equal(ncclGroupEnd(), wanted);
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(settled(parts[rank]), ncclSuccess);
        pair_destroy(parts);
        pair_destroy(comms);
}

static void check_shrink(bool parent, bool given, ncclResult_t wanted) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comms[2], alone;
        int other = 1;

        pair_new(comms, parent);
        assert_int_equal(ncclCommShrink(comms[0], &other, 1, &alone, given ? &config : NULL, NCCL_SHRINK_DEFAULT),
                         wanted);
        assert_int_equal(settled(alone), ncclSuccess);
        assert_int_equal(ncclCommDestroy(alone), ncclSuccess);
        pair_destroy(comms);
}

static void test_inherited(void **state) {
        (void)state;
        check_split(false, false, ncclInProgress);
        check_split(true, false, ncclSuccess);
        check_shrink(false, false, ncclInProgress);
}

static void test_not_inherited(void **state) {
        (void)state;
        check_split(false, true, ncclSuccess);
        check_split(true, true, ncclSuccess);
        check_shrink(false, true, ncclSuccess);
        setenv("NCCL_COMM_BLOCKING", "0", 1); /* the default, above what programs say */
        check_split(true, true, ncclInProgress);
        unsetenv("NCCL_COMM_BLOCKING");
}

static ncclResult_t blocking_of(const char *text, int given) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclResult_t result;
        ncclUniqueId id;
        ncclComm_t comm;

        config.blocking = given;
        setenv("NCCL_COMM_BLOCKING", text, 1);
        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        result = ncclCommInitRankConfig(&comm, 1, id, 0, &config);
        assert_int_equal(settled(comm), ncclSuccess);
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
        unsetenv("NCCL_COMM_BLOCKING");
        return result;
}

/* Only what is a number of its own is above what programs say. */
static void test_blocking_variable(void **state) {
        static const char *const none[] = {"", "2", "-1", "yes", "0x0", "1 "};

        (void)state;
        for (int given = 0; given < 2; given++) {
                assert_int_equal(blocking_of("0", given), ncclInProgress);
                assert_int_equal(blocking_of("1", given), ncclSuccess);
                for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
                        assert_int_equal(blocking_of(none[i], given), given ? ncclSuccess : ncclInProgress);
        }
        assert_int_equal(blocking_of("", NCCL_CONFIG_UNDEF_INT), ncclSuccess);
        assert_int_equal(blocking_of("0", NCCL_CONFIG_UNDEF_INT), ncclInProgress);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_teams),
                cmocka_unit_test(test_properties),
                cmocka_unit_test(test_tuned),
                cmocka_unit_test(test_simulation_refused),
                cmocka_unit_test(test_inherited),
                cmocka_unit_test(test_not_inherited),
                cmocka_unit_test(test_blocking_variable),
        };

        return cmocka_run_group_tests(tests, pair_start, pair_stop);
}
