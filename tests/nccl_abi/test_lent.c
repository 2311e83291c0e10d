/* SPDX-License-Identifier: MIT */
/* Memory of the library that RAILMUX_FALLBACK names goes back to it. The process's own runtime is this program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/nccl/nccl.h"

#define EXPORT __attribute__((visibility("default")))

static int freed, refused;
static char own[64];

EXPORT int cudaGetDeviceCount(int *count);
EXPORT int cudaGetDevice(int *device);
EXPORT int cudaDeviceGetPCIBusId(char *pci, int size, int device);
EXPORT int cudaFree(void *ptr);

int cudaGetDeviceCount(int *count) {
        *count = 1;
        return 0;
}
int cudaGetDevice(int *device) {
        *device = 0;
        return 0;
}
int cudaDeviceGetPCIBusId(char *pci, int size, int device) {
        (void)pci;
        (void)size;
        (void)device;
        return 1;
}
int cudaFree(void *ptr) {
        freed += ptr == own;
        refused += ptr != own;
        return ptr != own;
}

static void test_lent(void **state) {
        void *ptr;

        (void)state;
        assert_int_equal(ncclMemAlloc(&ptr, 65), ncclUnhandledCudaError);
        assert_int_equal(ncclMemAlloc(&ptr, 64), ncclSuccess);
        /* The runtime is not asked: it would remember an error that the program did not make. */
        assert_int_equal(ncclMemFree(ptr), ncclSuccess);
        assert_int_equal(freed + refused, 0);
        assert_int_equal(ncclMemFree(own), ncclSuccess);
        assert_int_equal(freed, 1);
        assert_int_equal(refused, 0);
        /* What the library has given to others. */
        assert_int_equal(ncclMemFree((char *)ptr + 1), ncclSuccess);
        assert_int_equal(refused, 1);
        assert_int_equal(ncclMemFree(&ptr), ncclInvalidArgument);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_lent)};

        setenv("RAILMUX_SOCKET", "/nonexistent/railmux.sock", 1);
        setenv("RAILMUX_FALLBACK", LENDER, 1);
        return cmocka_run_group_tests_name("lent", tests, NULL, NULL);
}
