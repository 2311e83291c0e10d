/* SPDX-License-Identifier: MIT */
#include "gpu/hip/runtime.h"

#include <errno.h>
#include <time.h>

#include "gpu/hip/error.h"
#include "util/clock.h"

#define PAUSE_NS 5000 /* about what a copy takes */

/* What a call can fail with while the context stays usable. Everything else is taken for a lost context: the runtimes
 * have dozens of codes for that, and all of them stick. */
static int runtime_errno(hipError_t result) {
        switch ((int)result) {
        case hipErrorOutOfMemory:
                return -ENOMEM;
        case hipErrorNoDevice:
        case hipErrorInvalidDevice:
        case hipErrorInsufficientDriver:
        case hipErrorNotInitialized:
                return -ENODEV;
        case hipErrorInvalidValue:
        case hipErrorInvalidHandle:
        case hipErrorInvalidContext:
        case hipErrorMapFailed:
                return -EINVAL;
        case hipErrorAlreadyMapped:
                return -EBUSY;
        case hipErrorNotSupported:
                return -ENOTSUP;
        default:
                return -EIO;
        }
}

int runtime_check(hipError_t result, const char *what, char *error) {
        if (result == hipSuccess)
                return 0;
        (void)hipGetLastError(); /* said once; a later launch must not be blamed for it */
        return error_set(runtime_errno(result), error, "%s: %s (%s)", what, hipGetErrorString(result),
                         hipGetErrorName(result));
}

/* AMD: ordinary device memory may stay in the caches of one GPU while others look at it. NVIDIA's is coherent for the
 * kind of access that gpu/device/order.h makes. */
int runtime_alloc_shared(size_t bytes, void **ret_address, const char *what, char *error) {
        void *address = NULL;
        int r;

#if defined(RAILMUX_CUDA)
        r = runtime_check(hipMalloc(&address, bytes), what, error);
#elif defined(hipDeviceMallocUncached)
        r = runtime_check(hipExtMallocWithFlags(&address, bytes, hipDeviceMallocUncached), what, error);
#else
        r = runtime_check(hipExtMallocWithFlags(&address, bytes, hipDeviceMallocFinegrained), what, error);
#endif
        if (!r)
                *ret_address = address;
        return r;
}

void runtime_pause(void) {
        const struct timespec pause = {.tv_nsec = PAUSE_NS};

        nanosleep(&pause, NULL);
}

int runtime_done(hipStream_t stream, bool *ret_done, const char *what, char *error) {
        hipError_t result = hipStreamQuery(stream);

        if (result == hipErrorNotReady) {
                *ret_done = false;
                return 0;
        }
        if (result != hipSuccess)
                return runtime_check(result, what, error);
        *ret_done = true;
        return 0;
}

int runtime_wait(hipStream_t stream, const char *what, char *error) {
        uint64_t end = clock_now_ns() + RUNTIME_LOST_MS * UINT64_C(1000000);
        bool done;
        int r;

        for (;;) {
                r = runtime_done(stream, &done, what, error);
                if (r || done)
                        return r;
                if (clock_now_ns() > end)
                        return error_set(-ETIMEDOUT, error, "%s: not done after %u ms", what, RUNTIME_LOST_MS);
                runtime_pause();
        }
}
