/* SPDX-License-Identifier: MIT */
/*
 * A GPU runtime without a GPU
 *
 * Device memory is the process's own. A stream is a queue of copies, of which each look at the stream executes one: so
 * code that changes the source of a copy before it has waited is found out. The kernel (gpu/hip/kernel.h) is a thread
 * that does what every resident kernel does about its tables: it acknowledges versions, and ends when it is told to.
 * Calls that wait for all kernels of a context are counted as violations while it runs, and so is opening an IPC handle
 * that is open. Opening the handle of an allocation that lies where one is mapped that was there before is an error, as
 * with NVIDIA's driver.
 *
 * The clock goes forward when the control thread pauses and when the test says so (the linker wraps clock_gettime and
 * nanosleep, and prctl, to see what is asked for). So what a test sees does not depend on how busy the machine is.
 *
 * Memory, streams and the kernel are files of their own (fake_*.c).
 */
#include "tests/cmocka_all.h"

#include "fake.h"

#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "fake_parts.h"

struct fake fake;
static _Atomic uint64_t clock_ns = 1000000000u; /* the proxy reads it, too */
static pthread_t control;                       /* the test's thread */

/* ---- time -------------------------------------------------------------------------------------------------------- */
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __real_nanosleep(const struct timespec *time, struct timespec *rest);
int __wrap_nanosleep(const struct timespec *time, struct timespec *rest);

bool fake_is_control(void) {
        return pthread_equal(pthread_self(), control);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret) {
        const uint64_t now_ns = clock_ns;

        (void)clock;
        *ret = (struct timespec){.tv_sec = (time_t)(now_ns / 1000000000u), .tv_nsec = (long)(now_ns % 1000000000u)};
        return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *rest) {
        if (fake_is_control()) {
                clock_ns += (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
                if (fake.at_pause)
                        fake.at_pause();
        }
        return __real_nanosleep(time, rest);
}

int __wrap_prctl(int option, ...);

int __wrap_prctl(int option, ...) {
        va_list arguments;

        va_start(arguments, option);
        if (option == PR_SET_TIMERSLACK)
                atomic_store(&fake.slack_ns, va_arg(arguments, unsigned long));
        va_end(arguments);
        return 0;
}

void fake_clock_advance_us(uint64_t us) {
        clock_ns += us * 1000u;
}

void fake_clock_advance_ms(uint64_t ms) {
        fake_clock_advance_us(1000 * ms);
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */
hipError_t hipGetLastError(void) {
        return hipSuccess;
}

const char *hipGetErrorName(hipError_t error) {
        return error == hipErrorIllegalAddress ? "hipErrorIllegalAddress" : "hipError";
}

const char *hipGetErrorString(hipError_t error) {
        return error == hipErrorIllegalAddress ? "an illegal address" : "something else";
}

hipError_t hipRuntimeGetVersion(int *version) {
        *version = 60241133;
        return hipSuccess;
}

hipError_t hipGetDeviceCount(int *count) {
        *count = fake.n_devices;
        return fake.n_devices < 0 ? hipErrorInsufficientDriver : fake.n_devices ? hipSuccess : hipErrorNoDevice;
}

hipError_t hipGetDeviceProperties(hipDeviceProp_t *properties, int device) {
        memset(properties, 0, sizeof(*properties));
        memset(properties->name, 'x', sizeof(properties->name)); /* no end */
        properties->totalGlobalMem = fake.free_bytes;
        properties->multiProcessorCount = 100 + device;
        properties->pciBusID = 0x1a + device;
        return device < fake.n_devices ? hipSuccess : hipErrorInvalidDevice;
}

hipError_t hipSetDevice(int device) {
        return device < fake.n_devices ? hipSuccess : hipErrorInvalidDevice;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
void fake_reset(void) {
        fake = (struct fake){.n_devices = 1, .free_bytes = (size_t)1 << 30};
        control = pthread_self();
}

void fake_must_be_parked(void) {
        if (atomic_load(&fake.running) || atomic_load(&fake.queued))
                fake.violations++;
}

hipError_t fake_context(void) {
        return fake.lost ? hipErrorIllegalAddress : hipSuccess;
}

void fake_reap(void) {
        bool any;

        do {
                any = false;
                for (struct fake_stream *s = fake_streams; s; s = s->next) {
                        (void)hipStreamQuery(s);
                        any = any || s->launched;
                }
        } while (any);
}

void fake_assert_clean(void) {
        assert_int_equal(fake.violations, 0);
        assert_int_equal(fake.n_open, 0);
        assert_int_equal(fake.n_allocations, 0);
        assert_int_equal(fake.n_pinned, 0);
        assert_false(atomic_load(&fake.running));
        assert_false(atomic_load(&fake.queued));
}
