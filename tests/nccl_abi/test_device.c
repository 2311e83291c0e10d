/* SPDX-License-Identifier: MIT */
/* Finding the process's GPU runtime, which here is this program, and which GPU of the daemon a device is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "client/nccl/device.h"
#include "railmux/railmux.h"

#define EXPORT __attribute__((visibility("default")))

static int current = 1, allocated, waited;

/* ---- a runtime with three devices -----------------------------------------------------------------------------------
 */
EXPORT int cudaGetDeviceCount(int *count);
EXPORT int cudaGetDevice(int *device);
EXPORT int cudaSetDevice(int device);
EXPORT int cudaDeviceGetPCIBusId(char *pci, int size, int device);
EXPORT int cudaMalloc(void **ptr, size_t size);
EXPORT int cudaFree(void *ptr);
EXPORT int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream);
EXPORT int cudaStreamSynchronize(void *stream);

int cudaGetDeviceCount(int *count) {
        *count = 3;
        return 0;
}
int cudaGetDevice(int *device) {
        *device = current;
        return 0;
}
int cudaSetDevice(int device) {
        if (device < 0 || device > 2)
                return 101;
        current = device;
        return 0;
}
int cudaDeviceGetPCIBusId(char *pci, int size, int device) {
        snprintf(pci, (size_t)size, "00000000:%02X:00.0", 0xA0 + device);
        return device < 3 ? 0 : 101;
}
int cudaMalloc(void **ptr, size_t size) {
        static char memory[64];

        if (size > sizeof(memory))
                return 2;
        allocated++;
        *ptr = memory;
        return 0;
}
int cudaFree(void *ptr) {
        (void)ptr;
        allocated--;
        return 0;
}
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
        if (kind != 4 || stream != &current)
                return 1;
        memcpy(to, from, size);
        return 0;
}
int cudaStreamSynchronize(void *stream) {
        waited += stream == &current;
        return 0;
}

/* ---- a daemon with two of them, in another order --------------------------------------------------------------------
 */
uint32_t rmx_session_gpu_count(const struct rmx_session *session) {
        (void)session;
        return 3;
}
const char *rmx_session_gpu_pci(const struct rmx_session *session, uint32_t gpu) {
        static const char *const pci[] = {"0000:a2:00.0", "", "0000:a0:00.0"};

        (void)session;
        return gpu < 3 ? pci[gpu] : "";
}
const char *rmx_session_backend(const struct rmx_session *session) {
        (void)session;
        return "hip";
}
const char *rmx_last_error(void) {
        return "";
}
const char *rmx_error_name(int code) {
        (void)code;
        return "";
}

static void test_match(void **state) {
        int32_t gpu = -1;

        (void)state;
        assert_true(device_present());
        assert_int_equal(device_current(), 1);
        assert_int_equal(device_match("test", NULL, 0, &gpu), ncclSuccess);
        assert_int_equal(gpu, 2);
        assert_int_equal(device_match("test", NULL, 2, &gpu), ncclSuccess);
        assert_int_equal(gpu, 0);
        assert_int_equal(device_match("test", NULL, 1, &gpu), ncclInvalidUsage);
        assert_int_equal(gpu, 0);
        assert_int_equal(device_match("test", NULL, 3, &gpu), ncclUnhandledCudaError);
        assert_int_equal(device_select("test", 2), ncclSuccess);
        assert_int_equal(device_current(), 2);
        assert_int_equal(device_select("test", 9), ncclUnhandledCudaError);
}

static void test_memory(void **state) {
        uint64_t from = 0x123456789abcdef, to = 0;
        void *ptr;

        (void)state;
        assert_int_equal(device_alloc("test", 64, &ptr), ncclSuccess);
        assert_int_equal(allocated, 1);
        assert_int_equal(device_release("test", ptr), ncclSuccess);
        assert_int_equal(allocated, 0);
        assert_int_equal(device_alloc("test", 65, &ptr), ncclUnhandledCudaError);
        assert_int_equal(device_read("test", 0, &to, &from, 4, &current), ncclSuccess);
        assert_int_equal(to, (uint32_t)from);
        assert_int_equal(waited, 1);
        assert_int_equal(device_read("test", 0, &to, &from, 4, NULL), ncclUnhandledCudaError);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_match), cmocka_unit_test(test_memory)};

        return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
