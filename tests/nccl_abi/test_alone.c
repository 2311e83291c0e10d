/* SPDX-License-Identifier: MIT */
/*
 * Memory of GPUs where there is no daemon, or none any more. Daemon and plug-in are those of the client's tests; the
 * process's own runtime is this program.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/nccl/nccl.h"
#include "tests/client/crew.h"
#include "tests/client/fake_gpu.h"

#define EXPORT     __attribute__((visibility("default")))
#define NOWHERE    "/nonexistent/railmux.sock"
#define BODY(name) RAILMUX__SESSION__MESSAGE__BODY_##name
#define CHECK(call)                                                                                                    \
        do {                                                                                                           \
                ncclResult_t result_ = (call);                                                                         \
                                                                                                                       \
                if (result_ != ncclSuccess)                                                                            \
                        fail_msg("%s: %d, %s", #call, result_, ncclGetLastError(NULL));                                \
        } while (0)

/* ---- the process's runtime ------------------------------------------------------------------------------------------
 */
static int allocated, freed, n_devices = 1;
static char memory[1 << 16];

EXPORT int cudaGetDeviceCount(int *count);
EXPORT int cudaGetDevice(int *device);
EXPORT int cudaDeviceGetPCIBusId(char *pci, int size, int device);
EXPORT int cudaMalloc(void **ptr, size_t size);
EXPORT int cudaFree(void *ptr);

int cudaGetDeviceCount(int *count) {
        *count = n_devices;
        return 0;
}
int cudaGetDevice(int *device) {
        *device = 0;
        return 0;
}
int cudaDeviceGetPCIBusId(char *pci, int size, int device) {
        (void)device;
        snprintf(pci, (size_t)size, "0000:00:00.0");
        return 0;
}
int cudaMalloc(void **ptr, size_t size) {
        if (size > sizeof(memory))
                return 2;
        allocated++;
        *ptr = memory;
        return 0;
}
int cudaFree(void *ptr) {
        if (ptr != memory)
                return 1;
        freed++;
        return 0;
}

static void count_from_zero(void) {
        allocated = freed = 0;
}

/* ---- tests ----------------------------------------------------------------------------------------------------------
 */
static void test_never(void **state) {
        void *ptr;

        (void)state;
        setenv("RAILMUX_SOCKET", NOWHERE, 1);
        count_from_zero();
        CHECK(ncclMemAlloc(&ptr, 4096));
        assert_ptr_equal(ptr, memory);
        assert_int_equal(allocated, 1);
        CHECK(ncclMemFree(ptr));
        assert_int_equal(freed, 1);
        /* What the program has taken there itself, and what is nobody's. */
        assert_int_equal(cudaMalloc(&ptr, 64), 0);
        CHECK(ncclMemFree(ptr));
        assert_int_equal(freed, 2);
        assert_int_equal(ncclMemFree(&ptr), ncclUnhandledCudaError);
        ptr = &ptr;
        assert_int_equal(ncclMemAlloc(&ptr, sizeof(memory) + 1), ncclUnhandledCudaError);
        assert_null(ptr);
}

/* A runtime without a device in it is none. */
static void test_no_device(void **state) {
        void *ptr = &ptr;

        (void)state;
        setenv("RAILMUX_SOCKET", NOWHERE, 1);
        count_from_zero();
        n_devices = 0;
        assert_int_equal(ncclMemAlloc(&ptr, 4096), ncclSystemError);
        assert_null(ptr);
        assert_non_null(strstr(ncclGetLastError(NULL), NOWHERE));
        assert_int_equal(ncclMemFree(memory), ncclInvalidArgument);
        assert_int_equal(allocated + freed, 0);
        n_devices = 1;
}

/* Who frees does not look for a daemon, which may be slow to answer. */
static void test_free_alone(void **state) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        struct pollfd listening = {.events = POLLIN};
        char directory[] = "/tmp/railmux-alone-XXXXXX";
        void *ptr;

        (void)state;
        assert_non_null(mkdtemp(directory));
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", directory);
        listening.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_true(listening.fd >= 0);
        assert_int_equal(bind(listening.fd, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(listen(listening.fd, 1), 0);
        setenv("RAILMUX_SOCKET", address.sun_path, 1);
        count_from_zero();
        assert_int_equal(cudaMalloc(&ptr, 64), 0);
        CHECK(ncclMemFree(ptr));
        assert_int_equal(freed, 1);
        assert_int_equal(poll(&listening, 1, 0), 0);
        close(listening.fd);
        unlink(address.sun_path);
        rmdir(directory);
}

/* A registration that is left goes with the last communicator: in GPU memory it stays known until then. */
static void leave_registered(struct fake *fake) {
        uint32_t before = fake_calls(fake, BODY(BUFFER_DESTROY));
        ncclComm_t comm[2];
        ncclUniqueId id;
        void *handle;

        for (int i = 0; i < 2; i++) {
                CHECK(ncclGetUniqueId(&id));
                CHECK(ncclCommInitRank(&comm[i], 1, id, 0));
        }
        CHECK(ncclCommRegister(comm[0], memory, sizeof(memory), &handle));
        CHECK(ncclCommDestroy(comm[0]));
        assert_int_equal(fake_calls(fake, BODY(BUFFER_DESTROY)), before);
        CHECK(ncclCommDestroy(comm[1]));
        assert_int_equal(fake_calls(fake, BODY(BUFFER_DESTROY)), before + 1);
}

/* The daemon goes while there is memory, and a registration. Nothing of the session is left. */
static void test_lost(void **state) {
        struct fake_gpu *gpu = fake_gpu_load();
        void *ptr, *handle;
        struct fake fake;
        ncclUniqueId id;
        ncclComm_t comm;

        (void)state;
        fake_start(&fake);
        fake.backend = "hip";
        setenv("RAILMUX_SOCKET", fake.path, 1);
        fake_gpu_add(gpu, memory, sizeof(memory), 1);
        count_from_zero();
        leave_registered(&fake);
        CHECK(ncclMemAlloc(&ptr, 4096));
        assert_int_equal(allocated, 1);
        CHECK(ncclGetUniqueId(&id));
        CHECK(ncclCommInitRank(&comm, 1, id, 0));
        CHECK(ncclCommRegister(comm, memory, sizeof(memory), &handle));
        assert_non_null(handle);
        fake_hang_up(&fake);
        setenv("RAILMUX_SOCKET", NOWHERE, 1);
        assert_int_equal(ncclGetUniqueId(&id), ncclSystemError);
        CHECK(ncclMemFree(ptr));
        assert_int_equal(freed, 1);
        assert_true(gpu->opened > gpu->closed);
        CHECK(ncclCommAbort(comm));
        assert_int_equal(gpu->opened, gpu->closed);
        assert_int_equal(ncclCommDeregister(comm, handle), ncclInvalidArgument);
        fake_stop(&fake);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_never),
                cmocka_unit_test(test_no_device),
                cmocka_unit_test(test_free_alone),
                cmocka_unit_test(test_lost),
        };

        unsetenv("RAILMUX_FALLBACK");
        unsetenv("NCCL_COMM_BLOCKING");
        return cmocka_run_group_tests_name("alone", tests, NULL, NULL);
}
