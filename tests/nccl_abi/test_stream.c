/* SPDX-License-Identifier: MIT */
/*
 * On GPUs: ranks are where their threads are, streams go through as they are, factors in GPU memory are fetched in the
 * order of the stream, errors of kernels come out of ncclCommGetAsyncError. Daemon and plug-in are those of the
 * client's tests; the process's own runtime is this program, whose device d is the daemon's GPU 3 - d.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "client/nccl/nccl.h"
#include "ring/ring.h"
#include "tests/client/crew.h"
#include "tests/client/fake_gpu.h"

#define EXPORT    __attribute__((visibility("default")))
#define STREAM(n) ((ncclStream_t)(uintptr_t)(0x1000 + (n)))
#define DEVICES   4

#define CHECK(call)                                                                                                    \
        do {                                                                                                           \
                ncclResult_t result_ = (call);                                                                         \
                                                                                                                       \
                if (result_ != ncclSuccess)                                                                            \
                        fail_msg("%s: %d, %s", #call, result_, ncclGetLastError(NULL));                                \
        } while (0)

/* ---- the process's runtime ------------------------------------------------------------------------------------------
 */
static int current;
static int served = DEVICES; /* devices from here on have an address that no GPU of the daemon has */
static void *copied_on, *waited_for;
static int copied_at, waited_at; /* the devices */
static char memory[1 << 16];

EXPORT int cudaGetDeviceCount(int *count);
EXPORT int cudaGetDevice(int *device);
EXPORT int cudaSetDevice(int device);
EXPORT int cudaDeviceGetPCIBusId(char *pci, int size, int device);
EXPORT int cudaMalloc(void **ptr, size_t size);
EXPORT int cudaFree(void *ptr);
EXPORT int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream);
EXPORT int cudaStreamSynchronize(void *stream);

int cudaGetDeviceCount(int *count) {
        *count = DEVICES;
        return 0;
}
int cudaGetDevice(int *device) {
        *device = current;
        return 0;
}
int cudaSetDevice(int device) {
        current = device;
        return 0;
}
int cudaDeviceGetPCIBusId(char *pci, int size, int device) {
        snprintf(pci, (size_t)size, "0000:%02X:00.0", device < served ? DEVICES - 1 - device : 0xEE);
        return 0;
}
int cudaMalloc(void **ptr, size_t size) {
        *ptr = size <= sizeof(memory) ? memory : NULL;
        return *ptr ? 0 : 2;
}
int cudaFree(void *ptr) {
        return ptr == memory ? 0 : 1;
}
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
        (void)kind;
        copied_on = stream;
        copied_at = current;
        memcpy(to, from, size);
        return 0;
}
int cudaStreamSynchronize(void *stream) {
        waited_for = stream;
        waited_at = current;
        return 0;
}

/* ---- tests ----------------------------------------------------------------------------------------------------------
 */
struct rig {
        struct fake fake;
        struct fake_gpu *gpu;
        ncclComm_t comm[2]; /* on GPU 0 and GPU 1 */
};

static void rig_start(struct rig *rig) {
        ncclUniqueId id;

        memset(rig, 0, sizeof(*rig));
        rig->gpu = fake_gpu_load();
        fake_start(&rig->fake);
        rig->fake.backend = "hip";
        setenv("RAILMUX_SOCKET", rig->fake.path, 1);
        fake_gpu_add(rig->gpu, memory, sizeof(memory), 1);
        CHECK(ncclGetUniqueId(&id));
        CHECK(ncclGroupStart());
        for (int r = 0; r < 2; r++) {
                current = DEVICES - 1 - r;
                CHECK(ncclCommInitRank(&rig->comm[r], 2, id, r));
        }
        current = 0;
        CHECK(ncclGroupEnd());
}

static uint32_t closed(struct rig *rig) {
        uint32_t n;

        pthread_mutex_lock(&rig->gpu->mutex);
        n = rig->gpu->closed;
        pthread_mutex_unlock(&rig->gpu->mutex);
        return n;
}

/* When the daemon is lost nothing holds the session. */
static void rig_stop(struct rig *rig) {
        ncclUniqueId id;

        CHECK(ncclGroupStart());
        for (int r = 0; r < 2; r++)
                CHECK(ncclCommDestroy(rig->comm[r]));
        CHECK(ncclGroupEnd());
        fake_hang_up(&rig->fake);
        assert_int_equal(closed(rig), 0);
        CHECK(ncclGetUniqueId(&id)); /* of another session */
        assert_true(rig->gpu->opened > 0);
        while (closed(rig) < rig->gpu->opened) /* otherwise the time limit of the test ends it */
                sched_yield();
        fake_stop(&rig->fake);
}

static const struct fake_gpu_launch *last(struct rig *rig) {
        assert_true(rig->gpu->n_launches > 0);
        return fake_gpu_launched(rig->gpu, rig->gpu->n_launches - 1);
}

static void test_places(struct rig *rig) {
        ncclUniqueId id;
        ncclComm_t comm;
        int device;

        for (int r = 0; r < 2; r++) {
                CHECK(ncclCommCuDevice(rig->comm[r], &device));
                assert_int_equal(device, DEVICES - 1 - r);
                assert_int_equal(rig->fake.comms->member[r].gpu, r);
        }
        /* What the daemon does not serve is refused before anybody waits. */
        CHECK(ncclGetUniqueId(&id));
        served = 1;
        current = 2;
        assert_int_equal(ncclCommInitRank(&comm, 2, id, 0), ncclInvalidUsage);
        assert_non_null(strstr(ncclGetLastError(NULL), "not among"));
        /* Or when it comes to that. */
        CHECK(ncclGroupStart());
        served = DEVICES;
        CHECK(ncclCommInitRank(&comm, 2, id, 0));
        served = 1;
        assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
        served = DEVICES;
        current = 0;
        /* Nor does NCCL ask for what the process does not have. */
        assert_int_equal(ncclCommInitAll(&comm, 1, (int[]){DEVICES}), ncclInvalidArgument);
        /* A send to itself alone, with what is wrong besides first. */
        assert_int_equal(ncclSend(memory, 1, ncclInt32, 0, rig->comm[0], STREAM(1)), ncclInvalidUsage);
        assert_int_equal(ncclSend(NULL, 1, ncclInt32, 0, rig->comm[0], STREAM(1)), ncclInvalidArgument);
        CHECK(ncclGroupStart());
        CHECK(ncclRecv(memory, 1, ncclInt32, 1, rig->comm[1], STREAM(1)));
        assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
}

static void test_streams(struct rig *rig) {
        CHECK(ncclAllReduce(memory, memory + 512, 16, ncclFloat32, ncclSum, rig->comm[0], STREAM(1)));
        assert_ptr_equal(last(rig)->stream, STREAM(1));
        assert_int_equal(last(rig)->kind, FAKE_GPU_CALL);
        assert_true(last(rig)->bell.in == memory && last(rig)->bell.out == memory + 512);
        CHECK(ncclBroadcast(memory, memory, 16, ncclFloat32, 1, rig->comm[0], STREAM(1)));
        assert_ptr_equal(last(rig)->stream, STREAM(1));
        CHECK(ncclGroupStart());
        CHECK(ncclSend(memory, 4, ncclInt32, 1, rig->comm[0], STREAM(1)));
        CHECK(ncclRecv(memory + 64, 4, ncclInt32, 1, rig->comm[0], STREAM(1)));
        CHECK(ncclGroupEnd());
        assert_ptr_equal(last(rig)->stream, STREAM(1));
}

static void test_factor(struct rig *rig) {
        ncclRedOp_t op;
        float factor;
        uint32_t bits;

        CHECK(ncclRedOpCreatePreMulSum(&op, memory + 4096, ncclFloat32, ncclScalarDevice, rig->comm[0]));
        factor = 2.5f; /* what the stream has computed by the time of the call */
        memcpy(memory + 4096, &factor, sizeof(factor));
        CHECK(ncclAllReduce(memory, memory, 16, ncclFloat32, op, rig->comm[0], STREAM(2)));
        assert_ptr_equal(copied_on, STREAM(2));
        assert_ptr_equal(waited_for, STREAM(2));
        memcpy(&bits, &factor, sizeof(bits));
        assert_int_equal(last(rig)->bell.n_arguments, 1);
        assert_int_equal(last(rig)->argument[0], bits);
        factor = -3.0f;
        memcpy(memory + 4096, &factor, sizeof(factor));
        memcpy(&bits, &factor, sizeof(bits));
        CHECK(ncclAllReduce(memory, memory, 16, ncclFloat32, op, rig->comm[0], STREAM(2)));
        assert_int_equal(last(rig)->argument[0], bits);
        assert_int_equal(ncclAllReduce(memory, memory, 16, ncclInt32, op, rig->comm[0], STREAM(2)),
                         ncclInvalidArgument);
        /* Which default stream that is says the device. */
        for (uintptr_t stream = 0; stream < 3; stream++) {
                copied_at = waited_at = -1;
                CHECK(ncclAllReduce(memory, memory, 16, ncclFloat32, op, rig->comm[0], (ncclStream_t)stream));
                assert_ptr_equal(copied_on, (void *)stream);
                assert_ptr_equal(waited_for, (void *)stream);
                assert_int_equal(copied_at, DEVICES - 1);
                assert_int_equal(waited_at, DEVICES - 1);
                assert_int_equal(current, 0);
        }
        CHECK(ncclRedOpDestroy(op, rig->comm[0]));
        assert_int_equal(ncclAllReduce(memory, memory, 16, ncclFloat32, op, rig->comm[0], STREAM(2)),
                         ncclInvalidArgument);
}

/* Streams whose work is over may be destroyed: those of earlier calls, and all before the communicators are. */
static void test_gone(struct rig *rig) {
        for (int n = 7; n < 10; n++) {
                CHECK(ncclGroupStart());
                CHECK(ncclSend(memory, 4, ncclInt32, 1, rig->comm[0], STREAM(n)));
                CHECK(ncclRecv(memory + 64, 4, ncclInt32, 1, rig->comm[0], STREAM(n)));
                CHECK(ncclGroupEnd());
                CHECK(ncclAllReduce(memory, memory, 16, ncclFloat32, ncclSum, rig->comm[0], STREAM(n)));
                fake_gpu_stream_destroy(rig->gpu, STREAM(n));
        }
}

static void test_memory(struct rig *rig) {
        void *ptr, *handle[2];

        CHECK(ncclMemAlloc(&ptr, 4096));
        assert_ptr_equal(ptr, memory);
        for (int i = 0; i < 2; i++)
                CHECK(ncclCommRegister(rig->comm[i], memory, sizeof(memory), &handle[i]));
        assert_int_equal(rig->gpu->exports, 1);
        for (int i = 0; i < 2; i++)
                CHECK(ncclCommDeregister(rig->comm[i], handle[i]));
        assert_int_equal(ncclCommDeregister(rig->comm[0], handle[0]), ncclInvalidArgument);
        /* A graph may have it yet, so it stays known. */
        CHECK(ncclAllReduce(memory, memory, 16, ncclFloat32, ncclSum, rig->comm[0], STREAM(1)));
        CHECK(ncclCommRegister(rig->comm[0], memory, sizeof(memory), &handle[0]));
        CHECK(ncclCommDeregister(rig->comm[0], handle[0]));
        assert_int_equal(rig->gpu->exports, 1);
        CHECK(ncclMemFree(ptr));
        assert_int_equal(ncclMemAlloc(&ptr, sizeof(memory) + 1), ncclUnhandledCudaError);
}

/* Both ranks with this bound, what kernels are bound to. */
static uint32_t blocks_of(struct rig *rig, int max_ctas, ncclComm_t *comm) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclUniqueId id;

        config.maxCTAs = max_ctas;
        rig->gpu->max_blocks = UINT32_MAX;
        CHECK(ncclGetUniqueId(&id));
        CHECK(ncclGroupStart());
        for (int r = 0; r < 2; r++) {
                current = DEVICES - 1 - r;
                CHECK(ncclCommInitRankConfig(&comm[r], 2, id, r, &config));
        }
        current = 0;
        CHECK(ncclGroupEnd());
        return rig->gpu->max_blocks;
}

static void comms_end(ncclComm_t *comm) {
        CHECK(ncclGroupStart());
        for (int r = 0; r < 2; r++)
                CHECK(ncclCommDestroy(comm[r]));
        CHECK(ncclGroupEnd());
}

/* The same for a split of these. */
static uint32_t blocks_of_split(struct rig *rig, ncclComm_t *comm, ncclConfig_t *config) {
        ncclComm_t part[2];

        rig->gpu->max_blocks = UINT32_MAX;
        CHECK(ncclGroupStart());
        for (int r = 0; r < 2; r++)
                CHECK(ncclCommSplit(comm[r], 0, r, &part[r], config));
        CHECK(ncclGroupEnd());
        comms_end(part);
        return rig->gpu->max_blocks;
}

/* maxCTAs bounds the blocks of the ranks' own kernels. What is split off without a config has it, too; with one it has
 * that one's, or none. The environment is above it. */
static void test_blocks(struct rig *rig) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comm[2];

        rig->fake.exchange_min = 1;
        rig->fake.exchange_max = 1 << 20;
        assert_int_equal(blocks_of(rig, NCCL_CONFIG_UNDEF_INT, comm), 0);
        comms_end(comm);
        assert_int_equal(blocks_of(rig, 12, comm), 12);
        assert_int_equal(blocks_of_split(rig, comm, NULL), 12);
        assert_int_equal(blocks_of_split(rig, comm, &config), 0);
        config.maxCTAs = 3;
        assert_int_equal(blocks_of_split(rig, comm, &config), 3);
        comms_end(comm);
        setenv("NCCL_MAX_CTAS", "5", 1);
        assert_int_equal(blocks_of(rig, 12, comm), 5);
        comms_end(comm);
        setenv("NCCL_MAX_CTAS", "many", 1);
        assert_int_equal(blocks_of(rig, 12, comm), 12);
        comms_end(comm);
        unsetenv("NCCL_MAX_CTAS");
        rig->fake.exchange_min = rig->fake.exchange_max = 0;
}

/* What a kernel met is found by whoever watches, and stays. */
static void test_error(struct rig *rig) {
        ncclResult_t async;

        CHECK(ncclCommGetAsyncError(rig->comm[0], &async));
        assert_int_equal(async, ncclSuccess);
        fake_comm_failed(&rig->fake, RMX_E_PEER_LOST, 1);
        do
                CHECK(ncclCommGetAsyncError(rig->comm[0], &async));
        while (async == ncclSuccess);
        assert_int_equal(async, ncclRemoteError);
        assert_int_equal(ncclAllReduce(memory, memory, 16, ncclFloat32, ncclSum, rig->comm[0], STREAM(1)),
                         ncclRemoteError);
        CHECK(ncclCommGetAsyncError(rig->comm[0], &async));
        assert_int_equal(async, ncclRemoteError);
}

static void *destroy(void *userdata) {
        return ncclCommDestroy(userdata) == ncclSuccess ? userdata : NULL;
}

struct finalizer {
        ncclComm_t comm;
        bool grouped;
        ncclResult_t result;
        _Atomic bool over;
};

static void *finalize(void *userdata) {
        struct finalizer *f = userdata;

        if (f->grouped)
                CHECK(ncclGroupStart());
        CHECK(ncclAllReduce(memory, memory, 16, ncclFloat32, ncclSum, f->comm, STREAM(1)));
        f->result = ncclCommFinalize(f->comm);
        if (f->grouped) {
                CHECK(f->result);
                f->result = ncclGroupEnd();
        }
        f->over = true;
        return NULL;
}

static void set_stuck(struct rig *rig, bool stuck) {
        pthread_mutex_lock(&rig->gpu->mutex);
        rig->gpu->stuck = stuck;
        pthread_mutex_unlock(&rig->gpu->mutex);
}

static uint32_t asked(struct rig *rig) {
        uint32_t n;

        pthread_mutex_lock(&rig->gpu->mutex);
        n = rig->gpu->asked;
        pthread_mutex_unlock(&rig->gpu->mutex);
        return n;
}

/* It waits in a thread of its own. */
static void start_finalize(struct rig *rig, struct finalizer *f, bool grouped, ncclComm_t comm[2], pthread_t *thread) {
        uint32_t before;

        (void)blocks_of(rig, NCCL_CONFIG_UNDEF_INT, comm);
        *f = (struct finalizer){.comm = comm[0], .grouped = grouped};
        set_stuck(rig, true);
        before = asked(rig);
        assert_int_equal(pthread_create(thread, NULL, finalize, f), 0);
        while (asked(rig) < before + 3 && !f->over)
                sched_yield();
        assert_false(f->over);
}

/* What is under way when a communicator is finalized is over when that is, or at the end of its group. */
static void test_finalize(struct rig *rig) {
        for (int grouped = 0; grouped < 2; grouped++) {
                struct finalizer f;
                ncclComm_t comm[2];
                pthread_t thread;

                start_finalize(rig, &f, grouped, comm, &thread);
                set_stuck(rig, false);
                pthread_join(thread, NULL);
                assert_int_equal(f.result, ncclSuccess);
                comms_end(comm);
        }
}

/* What was under way fails meanwhile, or is aborted: then there is no result, and it says so. */
static void test_finalize_failed(struct rig *rig) {
        rig->fake.tells_aborts = true;
        for (int turn = 0; turn < 4; turn++) {
                const bool grouped = turn & 1, aborted = turn & 2;
                struct finalizer f;
                ncclComm_t comm[2];
                pthread_t thread;

                start_finalize(rig, &f, grouped, comm, &thread);
                if (aborted)
                        CHECK(ncclCommAbort(comm[0]));
                else
                        fake_comm_failed_one(&rig->fake, fake_comm_of(&rig->fake, rig->fake.comms->member[0].handle),
                                             RMX_E_PEER_LOST, 1);
                pthread_join(thread, NULL);
                assert_int_equal(f.result, ncclRemoteError);
                set_stuck(rig, false);
                for (int r = aborted; r < 2; r++)
                        CHECK(ncclCommAbort(comm[r]));
        }
        rig->fake.tells_aborts = false;
}

static ncclResult_t state_of(ncclComm_t comm) {
        ncclResult_t async;

        CHECK(ncclCommGetAsyncError(comm, &async));
        return async;
}

/* Both ranks, which do not block. */
static void patient_pair(ncclComm_t *comm) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclUniqueId id;

        config.blocking = 0;
        CHECK(ncclGetUniqueId(&id));
        for (int r = 0; r < 2; r++) {
                current = DEVICES - 1 - r;
                assert_int_equal(ncclCommInitRankConfig(&comm[r], 2, id, r, &config), ncclInProgress);
        }
        current = 0;
        for (int r = 0; r < 2; r++)
                while (state_of(comm[r]) == ncclInProgress)
                        sched_yield();
}

/* Without blocking its state says when. */
static void test_finalize_patiently(struct rig *rig) {
        ncclComm_t comm[2];

        patient_pair(comm);
        set_stuck(rig, true);
        CHECK(ncclAllReduce(memory, memory, 16, ncclFloat32, ncclSum, comm[0], STREAM(1)));
        assert_int_equal(state_of(comm[0]), ncclSuccess);
        assert_int_equal(ncclCommFinalize(comm[0]), ncclInProgress);
        assert_int_equal(state_of(comm[0]), ncclInProgress);
        CHECK(ncclCommFinalize(comm[1]));
        assert_int_equal(state_of(comm[1]), ncclSuccess);
        set_stuck(rig, false);
        assert_int_equal(state_of(comm[0]), ncclSuccess);
        comms_end(comm);
}

static void *look(void *userdata) {
        return state_of(userdata) == ncclSuccess ? userdata : NULL;
}

/* In a group it begins at the end, behind what is issued there, also if another thread asks for the state before. */
static void test_finalize_watched(struct rig *rig) {
        ncclComm_t comm[2];
        pthread_t thread;
        void *result;

        patient_pair(comm);
        set_stuck(rig, true);
        CHECK(ncclGroupStart());
        CHECK(ncclAllReduce(memory, memory, 16, ncclFloat32, ncclSum, comm[0], STREAM(1)));
        CHECK(ncclCommFinalize(comm[0]));
        assert_int_equal(pthread_create(&thread, NULL, look, comm[0]), 0);
        pthread_join(thread, &result);
        assert_ptr_equal(result, comm[0]);
        assert_int_equal(ncclGroupEnd(), ncclInProgress);
        assert_int_equal(state_of(comm[0]), ncclInProgress);
        set_stuck(rig, false);
        assert_int_equal(state_of(comm[0]), ncclSuccess);
        CHECK(ncclGroupStart());
        CHECK(ncclCommFinalize(comm[1]));
        CHECK(ncclGroupEnd());
        assert_int_equal(state_of(comm[1]), ncclSuccess);
        comms_end(comm);
}

/* Its state may be asked for in a group of others. */
static void test_finalize_beside(struct rig *rig) {
        ncclComm_t comm[2];

        patient_pair(comm);
        set_stuck(rig, true);
        CHECK(ncclAllReduce(memory, memory, 16, ncclFloat32, ncclSum, comm[0], STREAM(1)));
        assert_int_equal(ncclCommFinalize(comm[0]), ncclInProgress);
        CHECK(ncclGroupStart());
        CHECK(ncclAllReduce(memory, memory, 16, ncclFloat32, ncclSum, rig->comm[0], STREAM(1)));
        assert_int_equal(state_of(comm[0]), ncclInProgress);
        set_stuck(rig, false);
        assert_int_equal(state_of(comm[0]), ncclSuccess);
        CHECK(ncclGroupEnd());
        comms_end(comm);
}

/* A kernel waits for a peer that does not come, a destroy for the kernel, and an abort ends both. */
static void test_broken(struct rig *rig) {
        ncclComm_t comm[2];
        pthread_t thread;
        void *result;
        int n;

        (void)blocks_of(rig, NCCL_CONFIG_UNDEF_INT, comm);
        rig->gpu->stuck = true;
        rig->fake.tells_aborts = true;
        CHECK(ncclAllReduce(memory, memory, 16, ncclFloat32, ncclSum, comm[0], STREAM(1)));
        assert_int_equal(pthread_create(&thread, NULL, destroy, comm[0]), 0);
        while (!ncclCommCount(comm[0], &n)) /* the destroy has begun when it is refused */
                continue;
        CHECK(ncclCommAbort(comm[0]));
        pthread_join(thread, &result);
        assert_ptr_equal(result, comm[0]);
        CHECK(ncclCommAbort(comm[1]));
        rig->fake.tells_aborts = false;
}

/* A destroy that waits for the daemon alone. */
static void test_deaf(struct rig *rig) {
        ncclComm_t comm[2];
        pthread_t thread;
        void *result;

        (void)blocks_of(rig, NCCL_CONFIG_UNDEF_INT, comm);
        fake_deafen(&rig->fake, true);
        assert_int_equal(pthread_create(&thread, NULL, destroy, comm[0]), 0);
        fake_wait_unread(&rig->fake);
        CHECK(ncclCommAbort(comm[0]));
        pthread_join(thread, &result); /* otherwise the time limit of the test ends it */
        assert_ptr_equal(result, comm[0]);
        CHECK(ncclCommAbort(comm[0]));
        fake_deafen(&rig->fake, false);
        CHECK(ncclCommAbort(comm[1]));
}

static void test_all(void **state) {
        static void (*const parts[])(struct rig *) = {test_places,
                                                      test_streams,
                                                      test_factor,
                                                      test_memory,
                                                      test_blocks,
                                                      test_gone,
                                                      test_finalize,
                                                      test_finalize_failed,
                                                      test_finalize_patiently,
                                                      test_finalize_watched,
                                                      test_finalize_beside,
                                                      test_broken,
                                                      test_deaf,
                                                      test_error};
        struct rig rig;

        (void)state;
        rig_start(&rig);
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
                parts[i](&rig);
        fake_gpu_stream_destroy(rig.gpu, STREAM(1));
        fake_gpu_stream_destroy(rig.gpu, STREAM(2));
        rig_stop(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};

        return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
