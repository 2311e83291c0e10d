/* SPDX-License-Identifier: MIT */
/*
 * What calls of the plug-in leave as it was (client/hip/scope.c) against a runtime of this file's: that of NVIDIA,
 * where a thread's device is its context's, and to set one makes a context there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SCOPE_CONTEXTS 1
#include "client/hip/scope.c"

#define DEVICES 4

struct fake_context {
        int device;
};

/* Of a thread, and of the process. */
static struct {
        struct fake_context *context;
        int device; /* where the thread is without a context, as far as this runtime knows */
        hipStreamCaptureMode mode;
        struct fake_context primary[DEVICES];
        bool made[DEVICES]; /* contexts of devices */
        bool mute;          /* the driver does not say */
        uint32_t set;
} fake;

/* ---- the runtime ------------------------------------------------------------------------------------------------- */
hipError_t hipGetDevice(int *device) {
        *device = fake.context ? fake.context->device : fake.device;
        return hipSuccess;
}

hipError_t hipSetDevice(int device) {
        if (device < 0 || device >= DEVICES)
                return hipErrorInvalidDevice;
        fake.set++;
        fake.device = device;
        fake.made[device] = true;
        fake.primary[device].device = device;
        fake.context = &fake.primary[device];
        return hipSuccess;
}

hipError_t hipCtxGetCurrent(hipCtx_t *context) {
        if (fake.mute)
                return hipErrorInvalidValue;
        *context = fake.context;
        return hipSuccess;
}

hipError_t hipCtxSetCurrent(hipCtx_t context) {
        fake.context = context;
        return hipSuccess;
}

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode) {
        const hipStreamCaptureMode before = fake.mode;

        fake.mode = *mode;
        *mode = before;
        return hipSuccess;
}

static int setup(void **state) {
        (void)state;
        memset(&fake, 0, sizeof(fake));
        return 0;
}

static uint32_t contexts(void) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < DEVICES; i++)
                n += fake.made[i];
        return n;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
/* A thread that has used no GPU has used none afterwards, and gets no context where its device seems to be. */
static void test_without(void **state) {
        struct scope scope;
        int device;

        (void)state;
        for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(scope_enter(&scope, 3), hipSuccess);
                assert_ptr_equal(fake.context, &fake.primary[3]);
                assert_int_equal(fake.mode, hipStreamCaptureModeRelaxed);
                scope_leave(&scope);
                assert_null(fake.context);
                assert_int_equal(fake.mode, hipStreamCaptureModeGlobal);
        }
        assert_int_equal(contexts(), 1);
        assert_int_equal(hipGetDevice(&device), hipSuccess);
        assert_int_equal(device, 3); /* so says this runtime, and must not be believed next time */
}

static void test_other_device(void **state) {
        struct scope scope;

        (void)state;
        assert_int_equal(hipSetDevice(1), hipSuccess);
        assert_int_equal(scope_device(&scope, 3), hipSuccess);
        assert_ptr_equal(fake.context, &fake.primary[3]);
        scope_leave(&scope);
        assert_ptr_equal(fake.context, &fake.primary[1]);
        assert_int_equal(contexts(), 2);
}

/* The usual case changes nothing. */
static void test_same_device(void **state) {
        struct scope scope;

        (void)state;
        assert_int_equal(hipSetDevice(3), hipSuccess);
        fake.set = 0;
        assert_int_equal(scope_device(&scope, 3), hipSuccess);
        scope_leave(&scope);
        assert_int_equal(fake.set, 0);
        assert_ptr_equal(fake.context, &fake.primary[3]);
}

/* A context that the program has made itself. */
static void test_own_context(void **state) {
        struct fake_context own = {.device = 2};
        struct scope scope;

        (void)state;
        fake.context = &own;
        assert_int_equal(scope_device(&scope, 3), hipSuccess);
        assert_ptr_equal(fake.context, &fake.primary[3]);
        scope_leave(&scope);
        assert_ptr_equal(fake.context, &own);
        assert_int_equal(contexts(), 1);
}

static void test_mute(void **state) {
        struct scope scope;

        (void)state;
        fake.mute = true;
        assert_int_equal(hipSetDevice(1), hipSuccess);
        assert_int_equal(scope_device(&scope, 3), hipSuccess);
        assert_ptr_equal(fake.context, &fake.primary[3]);
        scope_leave(&scope);
        assert_ptr_equal(fake.context, &fake.primary[1]);
}

static void test_no_device(void **state) {
        struct scope scope;

        (void)state;
        assert_int_equal(hipSetDevice(1), hipSuccess);
        assert_int_equal(scope_enter(&scope, DEVICES), hipErrorInvalidDevice);
        scope_leave(&scope);
        assert_ptr_equal(fake.context, &fake.primary[1]);
        assert_int_equal(fake.mode, hipStreamCaptureModeGlobal);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_without, setup),     cmocka_unit_test_setup(test_other_device, setup),
                cmocka_unit_test_setup(test_same_device, setup), cmocka_unit_test_setup(test_own_context, setup),
                cmocka_unit_test_setup(test_mute, setup),        cmocka_unit_test_setup(test_no_device, setup),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
