/* SPDX-License-Identifier: MIT */
/*
 * The device's reductions on a GPU against the host backend: the cases of test_reduce.cc, where conversions and
 * arithmetic are the hardware's. Exits with 1 and says what differs.
 *
 * Built by CMake; where there is nvcc and nothing else, by
 *
 *   N="nvcc -O3 -I. -Iinclude -D_GNU_SOURCE -DREDUCE_X86=0 -DRAILMUX_CUDA=1"
 *   $N -Xcompiler -ffp-contract=off -c gpu/host/reduce.c gpu/host/reduce_base.c
 *   $N -std=c++17 -arch=sm_90 -x cu -c tests/device/reduce_on_gpu.hip
 *   $N -o reduce_on_gpu reduce_on_gpu.o reduce.o reduce_base.o
 */
#ifdef RAILMUX_CUDA
#include "gpu/device/hip_on_cuda.h"
#else
#include <hip/hip_runtime_api.h>
#endif

#include "reduce_cases.h"

#define BLOCK_THREADS 128u

static struct reduce_case *device_case;
static uint64_t *device_in, *device_out;

extern "C" KERNEL void reduce_case_kernel(const struct reduce_case *c, const uint64_t *in, uint64_t *out) {
        uint32_t u = block_index() * BLOCK_THREADS + block_thread();

        if (u < c->units)
                out[u] = case_unit(*c, in, u);
}

static bool done(hipError_t result, const char *what) {
        if (result != hipSuccess)
                printf("%s: %s\n", what, hipGetErrorString(result));
        return result == hipSuccess;
}

static bool on_gpu(const struct reduce_case *c, const uint64_t *in, uint64_t *out) {
        void *parameters[] = {&device_case, &device_in, &device_out};
        const uint32_t blocks = (c->units + BLOCK_THREADS - 1) / BLOCK_THREADS;
        size_t bytes = c->units * sizeof(uint64_t);

        return done(hipMemcpy(device_case, c, sizeof(*c), hipMemcpyHostToDevice), "copying the case") &&
               done(hipMemcpy(device_in, in, c->n * bytes, hipMemcpyHostToDevice), "copying the input") &&
               done(hipMemset(device_out, 0xad, bytes), "poisoning the output") &&
               done(hipLaunchKernel((const void *)reduce_case_kernel, dim3(blocks), dim3(BLOCK_THREADS), parameters, 0,
                                    NULL),
                    "starting the kernel") &&
               done(hipDeviceSynchronize(), "running the kernel") &&
               done(hipMemcpy(out, device_out, bytes, hipMemcpyDeviceToHost), "copying the output");
}

int main(void) {
        static const struct {
                const char *name;
                bool (*run)(case_evaluate *evaluate);
        } tests[] = {
                {"all kinds", cases_of_all_kinds},
                {"16 bits", cases_of_16_bits},
                {"8 bits", cases_of_8_bits},
                {"rounding", cases_of_rounding},
        };
        bool good = true;

        if (!done(hipMalloc((void **)&device_case, sizeof(*device_case)), "memory for the case") ||
            !done(hipMalloc((void **)&device_in, sizeof(case_in)), "memory for the input") ||
            !done(hipMalloc((void **)&device_out, sizeof(case_out)), "memory for the output"))
                return 1;
        for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
                bool same = tests[i].run(on_gpu);

                printf("%s: %s\n", tests[i].name, same ? "the same bits" : "DIFFERENT");
                good = good && same;
        }
        return good ? 0 : 1;
}
