/* SPDX-License-Identifier: MIT */
/*
 * NVIDIA's driver can be seen before the process has a runtime, and knows which GPU a device is. It is asked only until
 * there is one, though: the driver cannot select devices, and counts them by itself.
 */
#include <dlfcn.h>
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

/* ---- a driver with two devices, of which the second is current, or, with HIP_SEEN, HIP ------------------------------
 */
#ifdef HIP_SEEN
#define CALL(hip, cuda) hip
#else
#define CALL(hip, cuda) cuda
#endif
EXPORT int CALL(hipGetDeviceCount, cuDeviceGetCount)(int *count);
EXPORT int CALL(hipGetDevice, cuCtxGetDevice)(int *device);
EXPORT int CALL(hipDeviceGetPCIBusId, cuDeviceGetPCIBusId)(char *pci, int size, int device);

int CALL(hipGetDeviceCount, cuDeviceGetCount)(int *count) {
        *count = 2;
        return 0;
}
int CALL(hipGetDevice, cuCtxGetDevice)(int *device) {
        *device = 1;
        return 0;
}
int CALL(hipDeviceGetPCIBusId, cuDeviceGetPCIBusId)(char *pci, int size, int device) {
        snprintf(pci, (size_t)size, "0000:%02x:00.0", 0xa0 + device);
        return 0;
}

/* ---- a daemon that has them -----------------------------------------------------------------------------------------
 */
uint32_t rmx_session_gpu_count(const struct rmx_session *session) {
        (void)session;
        return 2;
}
const char *rmx_session_gpu_pci(const struct rmx_session *session, uint32_t gpu) {
        (void)session;
        return gpu ? "0000:a1:00.0" : "0000:a0:00.0";
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

#ifdef HIP_SEEN
/* Whoever calls us sees a runtime; that something else in the process has another one for itself does not matter. */
static void test_late(void **state) {
        int32_t gpu;

        (void)state;
        assert_non_null(dlopen(LATE_RUNTIME, RTLD_NOW | RTLD_LOCAL));
        assert_int_equal(device_current(), 1);
        assert_int_equal(device_match("test", NULL, 0, &gpu), ncclSuccess);
        assert_int_equal(gpu, 0);
}
#else
static void test_late(void **state) {
        void *library;
        int32_t gpu;

        (void)state;
        for (int i = 0; i < 2; i++) { /* again and again */
                assert_true(device_present());
                assert_int_equal(device_current(), 1);
                assert_int_equal(device_match("test", NULL, 0, &gpu), ncclSuccess);
                assert_int_equal(gpu, 0);
                assert_int_equal(device_select("test", 0), ncclUnhandledCudaError);
        }
        library = dlopen(LATE_RUNTIME, RTLD_NOW | RTLD_LOCAL);
        assert_non_null(library);
        assert_int_equal(device_select("test", 0), ncclSuccess);
        assert_int_equal(device_current(), 0);
        assert_int_equal(device_match("test", NULL, 0, &gpu), ncclSuccess);
        assert_int_equal(gpu, 1);
        assert_int_equal(device_select("test", 1), ncclUnhandledCudaError);
}
#endif

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_late)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
