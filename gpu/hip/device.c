/* SPDX-License-Identifier: MIT */
/*
 * MPS
 *
 * On NVIDIA the kernels of several processes run on a GPU at the same time only under MPS. Without it the GPU switches
 * between the processes every few milliseconds, and so long does every request take. A process becomes a client of MPS
 * when its runtime starts, if the control daemon runs at that moment; the runtime then says so (an attribute of the
 * device). Runtimes that cannot say it leave the daemon's pid file, which is worth less: in a container the pid means
 * nothing. Either is believed.
 */
#include "gpu/hip/device.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/hip/error.h"
#include "gpu/hip/runtime.h"

/* Before the first call of the runtime. */
static void device_environment(void) {
#if defined(RAILMUX_CUDA)
        /* A module loaded later, at its first launch, would wait for the resident kernel. */
        setenv("CUDA_MODULE_LOADING", "EAGER", 1);
#endif
}

static int device_count(uint32_t *ret_n, char *error) {
        hipError_t result;
        int n = 0, r;

        device_environment();
        result = hipGetDeviceCount(&n);
        if (result == hipErrorInsufficientDriver)
                r = error_set(-ENODEV, error, "no GPU driver, or one that is too old for this runtime");
        else
                r = runtime_check(result, "counting GPUs", error);
        if (r)
                return r;
        if (n <= 0)
                return error_set(-ENODEV, error, "there is no GPU");
        *ret_n = n > (int)PLANE_GPUS_MAX ? PLANE_GPUS_MAX : (uint32_t)n;
        return 0;
}

static int device_describe(uint32_t device, struct plane_gpu *ret_gpu, char *error) {
        hipDeviceProp_t properties;
        int r = runtime_check(hipGetDeviceProperties(&properties, (int)device), "asking for a GPU's properties", error);

        if (r)
                return r;
        *ret_gpu = (struct plane_gpu){.memory_bytes = properties.totalGlobalMem,
                                      .processors = (uint32_t)properties.multiProcessorCount};
        snprintf(ret_gpu->name, sizeof(ret_gpu->name), "%.*s", (int)sizeof(ret_gpu->name) - 1, properties.name);
        snprintf(ret_gpu->pci, sizeof(ret_gpu->pci), "%04x:%02x:%02x.0", (unsigned int)properties.pciDomainID,
                 (unsigned int)properties.pciBusID, (unsigned int)properties.pciDeviceID);
        return 0;
}

/* ---- MPS --------------------------------------------------------------------------------------------------------- */
#if defined(RAILMUX_CUDA)
static bool mps_daemon_alive(void) {
        const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
        char path[512];
        FILE *file;
        int pid = 0;

        snprintf(path, sizeof(path), "%s/nvidia-cuda-mps-control.pid", directory ? directory : "/tmp/nvidia-mps");
        file = fopen(path, "re");
        if (!file)
                return false;
        if (fscanf(file, "%d", &pid) != 1)
                pid = 0;
        fclose(file);
        return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

static bool mps_enabled(void) {
#if CUDART_VERSION >= 12020
        int enabled = 0;

        if (cudaDeviceGetAttribute(&enabled, cudaDevAttrMpsEnabled, 0) != cudaSuccess)
                (void)cudaGetLastError();
        if (enabled)
                return true;
#endif
        return mps_daemon_alive();
}

static void device_problem(struct plane_probe *probe) {
        if (!mps_enabled())
                error_set(0, probe->problem,
                          "MPS is not running, so the GPU's time would be sliced between processes: start it with "
                          "nvidia-cuda-mps-control -d (several uids: with -multiuser-server), then restart");
}
#else
static void device_problem(struct plane_probe *probe) {
        (void)probe;
}
#endif

static void device_runtime(char *text, size_t size) {
        int version = 0;

        if (hipRuntimeGetVersion(&version) != hipSuccess)
                (void)hipGetLastError();
#if defined(RAILMUX_CUDA)
        snprintf(text, size, "CUDA %d.%d", version / 1000, version % 1000 / 10);
#else
        snprintf(text, size, "HIP %d.%d", version / 10000000, version / 100000 % 100);
#endif
}

int device_probe(struct plane_probe *ret_probe, char *error) {
        struct plane_probe probe = {0};
        int r = device_count(&probe.n_gpus, error);

        for (uint32_t i = 0; !r && i < probe.n_gpus; i++)
                r = device_describe(i, &probe.gpu[i], error);
        if (r)
                return r;
        device_runtime(probe.runtime, sizeof(probe.runtime));
        device_problem(&probe);
        *ret_probe = probe;
        return 0;
}

int device_select(uint32_t device, struct plane_gpu *ret_gpu, char *error) {
        uint32_t n;
        int r = device_count(&n, error);

        if (r)
                return r;
        if (device >= n)
                return error_set(-ENODEV, error, "there is no GPU %u, only %u of them", device, n);
        r = device_describe(device, ret_gpu, error);
        if (!r)
                r = runtime_check(hipSetDevice((int)device), "taking a GPU into use", error);
        /* The context may come into being with the first allocation only; here is the place to hear that it cannot. */
        return r ? r : runtime_check(hipFree(NULL), "making a GPU context", error);
}
