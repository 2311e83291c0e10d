/* SPDX-License-Identifier: MIT */
/* Without a daemon: what is answered from the arguments alone, and what is said about the daemon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/nccl/device_api.h"
#include "client/nccl/nccl.h"

#define NOWHERE "/nonexistent/railmux.sock"

static const ncclUniqueId id = {{1}}; /* begins as the daemon's do */

/* An ncclConfig_t of any version: all members are numbers here, so that what must not be followed can be garbage. */
union config {
        ncclConfig_t config;
        uint32_t word[32];
        uint64_t pair[16];
};

static union config config_of(size_t size, unsigned int version) {
        union config c = {.config = NCCL_CONFIG_INITIALIZER};

        for (size_t i = sizeof(c.config) / 4; i < 32; i++)
                c.word[i] = 0xdeadbeef;
        c.config.size = size;
        c.config.version = version;
        return c;
}

static ncclResult_t init_with(union config *c) {
        ncclComm_t comm = (ncclComm_t)(uintptr_t)1;
        ncclResult_t result = ncclCommInitRankConfig(&comm, 2, id, 0, c ? &c->config : NULL);

        if (result == ncclSystemError)
                assert_null(comm);
        return result;
}

static void test_config_sizes(void **state) {
        static const struct {
                size_t size;
                unsigned int version;
        } known[] = {{24, 21400}, {40, 21700}, {48, 21800},  {72, 22700}, {80, 22800},
                     {88, 22803}, {96, 23000}, {112, 23100}, {120, 23100}};

        (void)state;
        assert_int_equal(init_with(NULL), ncclSystemError);
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
                union config c = config_of(known[i].size, known[i].version);

                /* Good up to its end: then the daemon is missed. */
                if (init_with(&c) != ncclSystemError)
                        fail_msg("size %zu: %s", known[i].size, ncclGetLastError(NULL));
                /* Beyond its end there may be anything. */
                for (size_t k = known[i].size / 4; k < 32; k++)
                        c.word[k] = 0xdeadbeef;
                if (init_with(&c) != ncclSystemError)
                        fail_msg("size %zu, garbage behind it: %s", known[i].size, ncclGetLastError(NULL));
        }
}

/* Members that the program's version did not have yet stand in what was padding for it. */
static void test_config_versions(void **state) {
        union config c = config_of(48, 21800);

        (void)state;
        c.config.trafficClass = -77;
        assert_int_equal(init_with(&c), ncclSystemError);
        c = config_of(80, 22700);
        c.config.nvlinkCentricSched = 12345;
        assert_int_equal(init_with(&c), ncclSystemError);
        c.config.version = 22800;
        assert_int_equal(init_with(&c), ncclInvalidArgument);
        c = config_of(80, 22600);
        c.config.commName = (const char *)(uintptr_t)0xdead; /* must not be read */
        assert_int_equal(init_with(&c), ncclSystemError);
}

static void test_config_values(void **state) {
        union config c = config_of(80, 22809);

        (void)state;
        c.config.magic = 0;
        assert_int_equal(init_with(&c), ncclInvalidArgument);
        assert_non_null(strstr(ncclGetLastError(NULL), "NCCL_CONFIG_INITIALIZER"));
        c = config_of(8, 22809);
        assert_int_equal(init_with(&c), ncclInvalidArgument);
        c = config_of(80, 22809);
        c.config.blocking = 2;
        assert_int_equal(init_with(&c), ncclInvalidArgument);
        assert_non_null(strstr(ncclGetLastError(NULL), "blocking"));
        c = config_of(80, 22809);
        c.config.minCTAs = 8;
        c.config.maxCTAs = 4;
        assert_int_equal(init_with(&c), ncclInvalidArgument);
        c = config_of(80, 22809);
        c.config.splitShare = -1;
        assert_int_equal(init_with(&c), ncclInvalidArgument);
        c = config_of(80, 22809);
        c.config.commName = "a name that is longer than sixty-three bytes, which is what the daemon shows of it";
        assert_int_equal(init_with(&c), ncclSystemError);
}

/* It says that there is no daemon, and where one was looked for. */
static void test_no_daemon(void **state) {
        ncclComm_t comm[2];
        ncclUniqueId fresh;
        void *memory;

        (void)state;
        assert_int_equal(ncclGetUniqueId(&fresh), ncclSystemError);
        assert_non_null(strstr(ncclGetLastError(NULL), NOWHERE));
        assert_non_null(strstr(ncclGetLastError(NULL), "RAILMUX_SOCKET"));
        assert_int_equal(ncclCommInitRank(comm, 1, id, 0), ncclSystemError);
        assert_non_null(strstr(ncclGetLastError(NULL), NOWHERE));
        assert_int_equal(ncclCommInitAll(comm, 2, NULL), ncclSystemError);
        assert_int_equal(ncclMemAlloc(&memory, 4096), ncclSystemError);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        for (int r = 0; r < 2; r++)
                assert_int_equal(ncclCommInitRank(&comm[r], 2, id, r), ncclSystemError);
        assert_int_equal(ncclGroupEnd(), ncclSystemError);
        assert_null(comm[0]);
        assert_null(comm[1]);
}

static void test_arguments(void **state) {
        char nothing[256] = {0};
        ncclComm_t bad = (ncclComm_t)(void *)nothing, comm;
        const ncclUniqueId foreign = {{0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a}};
        ncclResult_t async;
        int value;

        (void)state;
        assert_int_equal(ncclGetVersion(NULL), ncclInvalidArgument);
        assert_int_equal(ncclGetVersion(&value), ncclSuccess);
        assert_int_equal(value, 22809);
        assert_int_equal(ncclGetUniqueId(NULL), ncclInvalidArgument);
        assert_int_equal(ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument);
        assert_int_equal(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
        assert_int_equal(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
        assert_int_equal(ncclCommInitRank(&comm, 2, id, -1), ncclInvalidArgument);
        assert_int_equal(ncclCommInitRank(&comm, 2, foreign, 0), ncclInvalidArgument);
        assert_non_null(strstr(ncclGetLastError(NULL), "RAILMUX_FALLBACK"));
        assert_int_equal(ncclCommInitAll(&comm, 0, NULL), ncclInvalidArgument);
        assert_int_equal(ncclCommInitAll(NULL, 1, NULL), ncclInvalidArgument);
        assert_int_equal(ncclAllReduce(nothing, nothing, 1, ncclInt8, ncclSum, NULL, NULL), ncclInvalidArgument);
        assert_int_equal(ncclAllReduce(nothing, nothing, 1, ncclInt8, ncclSum, bad, NULL), ncclInvalidArgument);
        assert_int_equal(ncclCommCount(bad, &value), ncclInvalidArgument);
        assert_int_equal(ncclCommGetAsyncError(bad, &async), ncclInvalidArgument);
        assert_int_equal(ncclCommDestroy(bad), ncclInvalidArgument);
        assert_int_equal(ncclCommAbort(bad), ncclInvalidArgument);
        assert_int_equal(ncclCommDestroy(NULL), ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
        for (int i = -1; i < 12; i++)
                assert_true(strlen(ncclGetErrorString((ncclResult_t)i)) > 3);
        assert_ptr_equal(pncclGetErrorString(ncclSuccess), ncclGetErrorString(ncclSuccess));
}

/* The first error of a group is the group's, and what stood in it does not happen. */
static void test_group_errors(void **state) {
        ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;

        (void)state;
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclSend(NULL, 1, ncclInt8, 0, NULL, NULL), ncclInvalidArgument);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclGroupSimulateEnd(&info), ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
        info.magic = 0;
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
        assert_int_equal(ncclGroupEnd(), ncclInvalidUsage); /* it has ended */
        assert_int_equal(ncclGroupSimulateEnd(&info), ncclInvalidUsage);
        /* The argument of an inner one is an error in the group; the first counts. */
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
        assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(ncclPutSignal(NULL, 0, ncclInt8, 0, NULL, 0, 0, 0, 0, NULL, NULL), ncclInvalidArgument);
        info = (ncclSimInfo_t)NCCL_SIM_INFO_INITIALIZER;
        info.estimatedTime = 7;
        assert_int_equal(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
        assert_true(info.estimatedTime == NCCL_UNDEF_FLOAT);
        assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
}

/* What there is not says so, and leaves nothing that could be taken for an answer. */
static void test_parameters(void **state) {
        ncclEncryptionConfig_t encryption = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
        ncclParamHandle_t handle = (ncclParamHandle_t)(uintptr_t)1;
        const char *text = "x", **keys = &text;
        uint64_t value = 5;
        int n = 5;

        (void)state;
        assert_int_equal(ncclParamBind(&handle, "NCCL_DEBUG"), ncclInvalidUsage);
        assert_null(handle);
        assert_int_equal(ncclParamGetU64(handle, &value), ncclInvalidUsage);
        assert_int_equal(value, 0);
        assert_int_equal(pncclParamGetStr(handle, &text), ncclInvalidUsage);
        assert_null(text);
        assert_int_equal(ncclParamGet(handle, &value, sizeof(value), &n), ncclInvalidUsage);
        assert_int_equal(n, 0);
        n = 5;
        assert_int_equal(ncclParamGetAllParameterKeys(&keys, &n), ncclInvalidUsage);
        assert_true(!keys && !n);
        assert_non_null(strstr(ncclGetLastError(NULL), "ncclParamGetAllParameterKeys: railmux has no parameters"));
        ncclParamDumpAll();
        assert_int_equal(ncclSetEncryption(&encryption), ncclSuccess);
        encryption.mode = NCCL_ENCRYPTION_MODE_PSK;
        encryption.psk = "secret";
        assert_int_equal(ncclSetEncryption(&encryption), ncclInvalidUsage);
        assert_null(strstr(ncclGetLastError(NULL), "secret"));
        encryption.magic = 0;
        assert_int_equal(ncclSetEncryption(&encryption), ncclInvalidArgument);
        assert_int_equal(ncclSetEncryption(NULL), ncclInvalidArgument);
}

struct requirement {
        ncclDevResourceRequirements_t beginning;
        uint64_t rest; /* the program's, or another version's */
};

static void test_device_api(void **state) {
        const struct requirement full = {{(void *)(uintptr_t)1, 2, 3, (void *)(uintptr_t)4}, 5}, empty = {.rest = 5};
        struct requirement requirement = full;
        uint32_t handle[3] = {7, 7, 7};
        ncclTeam_t team = {2, 1, 1};
        ncclCftLeId element = 5;
        size_t offset = 5;
        void *pointer = &offset;

        (void)state;
        team = ncclTeamWorld(NULL);
        assert_true(!team.nRanks && !team.rank && !team.stride);
        assert_int_equal(ncclTeamRankToWorld(NULL, team, 0), -1);
        assert_int_equal(ncclGetPeerDevicePointer(NULL, 0, 1, &pointer), ncclInvalidUsage);
        assert_null(pointer);
        assert_non_null(strstr(ncclGetLastError(NULL), "ncclGetPeerDevicePointer"));
        pointer = &offset;
        assert_int_equal(
                pncclGetMultimemDevicePointer((ncclWindow_t)&offset, 0, (ncclMultimemHandle_t){NULL}, &pointer),
                ncclInvalidUsage);
        assert_null(pointer);
        assert_int_equal(ncclGetLsaMultimemDevicePointer(NULL, 0, NULL), ncclInvalidUsage);
        assert_int_equal(ncclGetCftDeviceLeInfo(NULL, 0, 0, team, &element, &offset), ncclInvalidUsage);
        assert_true(!element && !offset);
        assert_int_equal(ncclLsaBarrierCreateRequirement(team, 1, (void *)handle, &requirement.beginning),
                         ncclInvalidUsage);
        assert_memory_equal(&requirement, &empty, sizeof(empty));
        assert_true(!handle[0] && !handle[1] && handle[2] == 7);
        requirement = full;
        assert_int_equal(ncclLLA2ACreateRequirement(1, 1, NULL, &requirement.beginning), ncclInvalidUsage);
        assert_memory_equal(&requirement, &empty, sizeof(empty));
        assert_int_equal(ncclGinBarrierCreateRequirement(NULL, team, 1, NULL, NULL), ncclInvalidArgument);
        assert_int_equal(ncclLLA2ACalcSlots(3, 8), 3);
        assert_int_equal(ncclLLA2ACalcSlots(5, 9), 10);
        assert_int_equal(ncclLLA2ACalcSlots(0, 4), 0);
}

/* Runs last: every line of the others is in the file, in the one format. */
static void test_log(void **state) {
        char path[128], line[2048], head[64];
        unsigned int versions = 0, warnings = 0;
        FILE *file;

        (void)state;
        snprintf(path, sizeof(path), "/tmp/railmux-nccl-%d.log", getpid());
        snprintf(head, sizeof(head), ":%d:%d railmux ", getpid(), getpid());
        file = fopen(path, "re");
        assert_non_null(file);
        while (fgets(line, sizeof(line), file)) {
                const char *rest = strstr(line, head);

                assert_non_null(rest);
                rest += strlen(head);
                if (!strncmp(rest, "VERSION ", 8))
                        versions++;
                else if (!strncmp(rest, "WARN ", 5))
                        warnings++;
                else
                        fail_msg("%s", line);
        }
        fclose(file);
        unlink(path);
        assert_int_equal(versions, 1);
        assert_in_range(warnings, 20, 100);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_config_sizes),  cmocka_unit_test(test_config_versions),
                cmocka_unit_test(test_config_values), cmocka_unit_test(test_no_daemon),
                cmocka_unit_test(test_arguments),     cmocka_unit_test(test_group_errors),
                cmocka_unit_test(test_parameters),    cmocka_unit_test(test_device_api),
                cmocka_unit_test(test_log),
        };

        setenv("RAILMUX_SOCKET", NOWHERE, 1);
        unsetenv("RAILMUX_FALLBACK");
        unsetenv("NCCL_COMM_BLOCKING");
        setenv("NCCL_DEBUG", "WARN", 1);
        setenv("NCCL_DEBUG_FILE", "/tmp/railmux-nccl-%p.log", 1);
        return cmocka_run_group_tests_name("absent", tests, NULL, NULL);
}
