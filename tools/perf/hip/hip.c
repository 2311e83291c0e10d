/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>

#ifdef RAILMUX_CUDA
#include "gpu/device/hip_on_cuda.h"
#else
#include <hip/hip_runtime_api.h>
#endif
#include "tools/perf/gpu.h"

struct gpu {
        hipStream_t stream;
        hipEvent_t marks[GPU_MARKS];
        hipGraphExec_t graphs[GPU_GRAPHS];
};

static int check(hipError_t r, const char *call, char *error) {
        if (r == hipSuccess)
                return 0;
        snprintf(error, GPU_ERROR_MAX, "%s: %s", call, hipGetErrorString(r));
        return -1;
}

static void hip_close(struct gpu *gpu) {
        for (uint32_t i = 0; i < GPU_GRAPHS; i++)
                if (gpu->graphs[i])
                        (void)hipGraphExecDestroy(gpu->graphs[i]);
        for (uint32_t i = 0; i < GPU_MARKS; i++)
                if (gpu->marks[i])
                        (void)hipEventDestroy(gpu->marks[i]);
        if (gpu->stream)
                (void)hipStreamDestroy(gpu->stream);
        free(gpu);
}

static int hip_open(const char *pci, struct gpu **ret_gpu, char *error) {
        struct gpu *gpu = calloc(1, sizeof(*gpu));
        int device, r;

        if (!gpu) {
                snprintf(error, GPU_ERROR_MAX, "out of memory");
                return -1;
        }
        r = check(hipDeviceGetByPCIBusId(&device, pci), "hipDeviceGetByPCIBusId", error);
        if (!r)
                r = check(hipSetDevice(device), "hipSetDevice", error);
        if (!r)
                r = check(hipStreamCreateWithFlags(&gpu->stream, hipStreamNonBlocking), "hipStreamCreate", error);
        for (uint32_t i = 0; !r && i < GPU_MARKS; i++)
                r = check(hipEventCreateWithFlags(&gpu->marks[i], hipEventDefault), "hipEventCreate", error);
        if (r) {
                hip_close(gpu);
                return r;
        }
        *ret_gpu = gpu;
        return 0;
}

static void *hip_stream(struct gpu *gpu) {
        return gpu->stream;
}

static int hip_alloc(struct gpu *gpu, size_t bytes, void **ret_address, char *error) {
        (void)gpu;
        return check(hipMalloc(ret_address, bytes), "hipMalloc", error);
}

static void hip_free(struct gpu *gpu, void *address) {
        (void)gpu;
        (void)hipFree(address);
}

static int hip_copy(struct gpu *gpu, void *to, const void *from, size_t bytes, char *error) {
        int r = check(hipMemcpyAsync(to, from, bytes, hipMemcpyDefault, gpu->stream), "hipMemcpyAsync", error);

        return r ? r : check(hipStreamSynchronize(gpu->stream), "hipStreamSynchronize", error);
}

static int hip_idle(struct gpu *gpu, char *error) {
        hipError_t r = hipStreamQuery(gpu->stream);

        if (r == hipErrorNotReady)
                return 0;
        return check(r, "hipStreamQuery", error) ? -1 : 1;
}

static int hip_mark(struct gpu *gpu, uint32_t mark, char *error) {
        return check(hipEventRecord(gpu->marks[mark], gpu->stream), "hipEventRecord", error);
}

static int hip_elapsed(struct gpu *gpu, uint32_t from, uint32_t to, uint64_t *ret_ns, char *error) {
        float ms = 0;
        int r = check(hipEventElapsedTime(&ms, gpu->marks[from], gpu->marks[to]), "hipEventElapsedTime", error);

        if (!r)
                *ret_ns = (uint64_t)((double)ms * 1e6);
        return r;
}

static int hip_capture_begin(struct gpu *gpu, char *error) {
        return check(hipStreamBeginCapture(gpu->stream, hipStreamCaptureModeThreadLocal), "hipStreamBeginCapture",
                     error);
}

static int hip_capture_end(struct gpu *gpu, uint32_t graph, char *error) {
        hipGraph_t captured = NULL;
        int r;

        r = check(hipStreamEndCapture(gpu->stream, &captured), "hipStreamEndCapture", error);
        if (r)
                return r;
        if (gpu->graphs[graph])
                (void)hipGraphExecDestroy(gpu->graphs[graph]);
        gpu->graphs[graph] = NULL;
        r = check(hipGraphInstantiateWithFlags(&gpu->graphs[graph], captured, 0), "hipGraphInstantiate", error);
        (void)hipGraphDestroy(captured);
        return r;
}

static int hip_replay(struct gpu *gpu, uint32_t graph, char *error) {
        return check(hipGraphLaunch(gpu->graphs[graph], gpu->stream), "hipGraphLaunch", error);
}

extern const struct gpu_ops railmux_perf_gpu;
__attribute__((visibility("default"))) const struct gpu_ops railmux_perf_gpu = {
        .version = GPU_VERSION,
        .open = hip_open,
        .close = hip_close,
        .stream = hip_stream,
        .alloc = hip_alloc,
        .free = hip_free,
        .copy = hip_copy,
        .idle = hip_idle,
        .mark = hip_mark,
        .elapsed = hip_elapsed,
        .capture_begin = hip_capture_begin,
        .capture_end = hip_capture_end,
        .replay = hip_replay,
};
