/* SPDX-License-Identifier: MIT */
/* The bell area: made, initialised, given back; small copies to and from it. */
#include <stdlib.h>
#include <string.h>

#include "client/hip/private.h"

/* ---- opening ----------------------------------------------------------------------------------------------------- */
int gpu_find(const char *pci, int32_t *ret_device, char *error) {
        int device, n;
        hipError_t r;

        r = hipGetDeviceCount(&n);
        if (r != hipSuccess)
                return gpu_fail(r, "hipGetDeviceCount", error);
        r = hipDeviceGetByPCIBusId(&device, pci);
        if (r != hipSuccess) {
                (void)hipGetLastError();
                return gpu_say(RMX_E_DENIED, error,
                               "the GPU at %s is not among the %d that this process sees (" VISIBLE_DEVICES ")", pci,
                               n);
        }
        *ret_device = device;
        return RMX_OK;
}

static hipError_t area_init(struct client_gpu *gpu) {
        struct pinned *p = gpu->pinned;
        hipError_t r;

        p->one = 1;
        p->header = (struct bell_header){.magic = BELL_MAGIC, .depth = BELL_DEPTH};
        for (uint32_t i = 0; i < BELL_DEPTH; i++)
                p->released[i] = bell_released_first(i);
        r = hipMemsetAsync(gpu->area, 0, BELL_AREA_BYTES, gpu->stream);
        if (r == hipSuccess)
                r = hipMemsetAsync(gpu->cells, 0, CLIENT_GPU_CELLS * sizeof(*gpu->cells), gpu->stream);
        if (r == hipSuccess)
                r = hipMemcpyAsync(gpu->area + BELL_OFFSET_RELEASED, p->released, sizeof(p->released),
                                   hipMemcpyHostToDevice, gpu->stream);
        if (r == hipSuccess)
                r = hipMemcpyAsync(gpu->area + BELL_OFFSET_HEADER, &p->header, sizeof(p->header), hipMemcpyHostToDevice,
                                   gpu->stream);
        return r == hipSuccess ? hipStreamSynchronize(gpu->stream) : r;
}

static hipError_t kernels_load(void) {
        hipFuncAttributes attributes;
        hipError_t r = hipSuccess;

        for (uint32_t i = 0; i < BELL_KERNELS && r == hipSuccess; i++) {
                if (bell_kernel(i))
                        r = hipFuncGetAttributes(&attributes, bell_kernel(i));
        }
        return r;
}

/* With the device current. */
static hipError_t gpu_make(struct client_gpu *gpu, hipIpcMemHandle_t *ret_handle, const char **ret_call) {
        hipError_t r;

        *ret_call = "loading the kernels";
        r = kernels_load();
        if (r == hipSuccess) {
                *ret_call = "hipStreamCreateWithFlags";
                r = hipStreamCreateWithFlags(&gpu->stream, hipStreamNonBlocking);
        }
        if (r == hipSuccess) {
                *ret_call = "hipEventCreateWithFlags";
                r = hipEventCreateWithFlags(&gpu->event, hipEventDisableTiming);
        }
        for (uint32_t i = 0; i < CLIENT_GPU_FLAGS && r == hipSuccess; i++)
                r = hipEventCreateWithFlags(&gpu->flag[i], hipEventDisableTiming);
        if (r == hipSuccess) {
                *ret_call = "hipHostMalloc";
                r = hipHostMalloc((void **)&gpu->pinned, sizeof(*gpu->pinned), hipHostMallocMapped);
        }
        if (r == hipSuccess) {
                memset(gpu->pinned, 0, sizeof(*gpu->pinned));
                r = hipHostGetDevicePointer((void **)&gpu->pinned_there, gpu->pinned, 0);
        }
        if (r == hipSuccess) {
                *ret_call = "hipMalloc";
                r = hipMalloc((void **)&gpu->cells, CLIENT_GPU_CELLS * sizeof(*gpu->cells));
        }
        if (r == hipSuccess)
                r = hipMalloc((void **)&gpu->area, BELL_AREA_BYTES);
        if (r == hipSuccess) {
                *ret_call = "initialising the bell area";
                r = area_init(gpu);
        }
        if (r == hipSuccess) {
                *ret_call = "hipIpcGetMemHandle";
                r = hipIpcGetMemHandle(ret_handle, gpu->area);
        }
        return r;
}

/* With the device current. Freeing waits for the kernels, so those that wait themselves are told to give up first. */
static void gpu_destroy(struct client_gpu *gpu) {
        if (gpu->area && gpu->pinned && gpu->stream) {
                (void)hipMemcpyAsync(gpu->area + offsetof(struct bell_header, closed), &gpu->pinned->one,
                                     sizeof(uint32_t), hipMemcpyHostToDevice, gpu->stream);
                (void)hipStreamSynchronize(gpu->stream);
        }
        gpu_exchanges_free(gpu);
        if (gpu->area)
                (void)hipFree(gpu->area);
        if (gpu->cells)
                (void)hipFree(gpu->cells);
        if (gpu->latch)
                (void)hipHostUnregister(gpu->latch);
        if (gpu->host)
                (void)hipHostUnregister(gpu->host);
        if (gpu->pinned)
                (void)hipHostFree(gpu->pinned);
        for (uint32_t i = 0; i < CLIENT_GPU_FLAGS; i++)
                if (gpu->flag[i])
                        (void)hipEventDestroy(gpu->flag[i]);
        if (gpu->event)
                (void)hipEventDestroy(gpu->event);
        gpu_ended_free(gpu);
        if (gpu->stream)
                (void)hipStreamDestroy(gpu->stream);
        (void)hipGetLastError();
        pthread_mutex_destroy(&gpu->edge.mutex);
        pthread_mutex_destroy(&gpu->exchanges_mutex);
        pthread_mutex_destroy(&gpu->copies);
        free(gpu);
}

int gpu_open(int32_t device, struct client_gpu **ret_gpu, struct client_gpu_export *ret_area, char *error) {
        const char *call = "hipSetDevice";
        struct client_gpu *gpu;
        hipIpcMemHandle_t handle;
        struct scope scope;
        hipError_t r;
        int code;

        _Static_assert(sizeof(handle) <= CLIENT_GPU_HANDLE_BYTES, "a handle fits");
        gpu = calloc(1, sizeof(*gpu));
        if (!gpu)
                return gpu_say(RMX_E_NO_MEMORY, error, "out of memory");
        gpu->device = device;
        pthread_mutex_init(&gpu->copies, NULL);
        pthread_mutex_init(&gpu->exchanges_mutex, NULL);
        pthread_mutex_init(&gpu->edge.mutex, NULL);
        r = scope_enter(&scope, device);
        if (r == hipSuccess)
                r = gpu_make(gpu, &handle, &call);
        if (r != hipSuccess) {
                code = gpu_fail(r, call, error);
                gpu_destroy(gpu);
                scope_leave(&scope);
                return code;
        }
        scope_leave(&scope);
        *ret_area = (struct client_gpu_export){.kind = EXPORT_IPC,
                                               .n_handle = sizeof(handle),
                                               .allocation_bytes = BELL_AREA_BYTES,
                                               .bytes = BELL_AREA_BYTES};
        memcpy(ret_area->handle, &handle, sizeof(handle));
        *ret_gpu = gpu;
        return RMX_OK;
}

void gpu_close(struct client_gpu *gpu) {
        struct scope scope;

        if (!gpu)
                return;
        (void)scope_enter(&scope, gpu->device);
        gpu_destroy(gpu);
        scope_leave(&scope);
}

/* ---- small copies to and from the area --------------------------------------------------------------------------- */
static int area_copy(struct client_gpu *gpu, void *to, const void *from, size_t bytes, bool here, char *error) {
        struct scope scope;
        hipError_t r;

        r = scope_enter(&scope, gpu->device);
        if (r == hipSuccess)
                r = hipMemcpyAsync(to, from, bytes, here ? hipMemcpyDeviceToHost : hipMemcpyHostToDevice, gpu->stream);
        if (r == hipSuccess)
                r = hipStreamSynchronize(gpu->stream);
        scope_leave(&scope);
        return r == hipSuccess ? RMX_OK : gpu_fail(r, "copying to the bell area", error);
}

/* Memory of the daemon that the device is to see. With the device current. */
static hipError_t pin(void *memory, size_t bytes, void **ret_there) {
        hipError_t r = hipHostRegister(memory, bytes, hipHostRegisterMapped);

        if (r != hipSuccess)
                return r;
        r = hipHostGetDevicePointer(ret_there, memory, 0);
        if (r != hipSuccess)
                (void)hipHostUnregister(memory);
        return r;
}

/* Where the device can write the latch, for its kernels. */
static int latch_take(struct client_gpu *gpu, void *latch, const struct bell_latch *there, char *error) {
        int code;

        gpu->latch = latch;
        pthread_mutex_lock(&gpu->copies);
        gpu->pinned->header.latch = (uint64_t)(uintptr_t)&there->lifted;
        code = area_copy(gpu, gpu->area + BELL_OFFSET_HEADER + offsetof(struct bell_header, latch),
                         &gpu->pinned->header.latch, sizeof(gpu->pinned->header.latch), false, error);
        pthread_mutex_unlock(&gpu->copies);
        return code;
}

int gpu_attach(struct client_gpu *gpu, void *host, size_t bytes, void *latch, size_t latch_bytes, char *error) {
        void *latch_there = NULL;
        struct scope scope;
        hipError_t r;

        if (bytes < sizeof(struct bell_host))
                return gpu_say(RMX_E_INTERNAL, error, "the daemon sent %zu bytes of host memory, %zu are needed", bytes,
                               sizeof(struct bell_host));
        r = scope_enter(&scope, gpu->device);
        if (r == hipSuccess && !gpu->host) /* else it is once more, since the latch came to nothing */
                r = pin(host, bytes, (void **)&gpu->host_there);
        if (r == hipSuccess)
                gpu->host = host;
        /* Without the latch executors only wake later. */
        if (r == hipSuccess && latch && latch_bytes >= sizeof(struct bell_latch) &&
            pin(latch, latch_bytes, &latch_there) != hipSuccess)
                latch_there = NULL;
        (void)hipGetLastError();
        scope_leave(&scope);
        if (r != hipSuccess)
                return gpu_fail(r, "hipHostRegister", error);
        return latch_there ? latch_take(gpu, latch, latch_there, error) : RMX_OK;
}

/* Partner: the GPU's front end, before a kernel of the executor's; whoever rings has told it elsewhere, too. */
void gpu_lift(struct client_gpu *gpu) {
        if (gpu->latch)
                __atomic_store_n(&gpu->latch->lifted, 1, __ATOMIC_RELEASE);
}

void gpu_release(struct client_gpu *gpu) {
        char error[CLIENT_GPU_TEXT];

        pthread_mutex_lock(&gpu->copies);
        (void)area_copy(gpu, gpu->area + offsetof(struct bell_header, closed), &gpu->pinned->one, sizeof(uint32_t),
                        false, error);
        pthread_mutex_unlock(&gpu->copies);
}

static char *ended_word(const struct client_gpu *gpu, uint32_t slot) {
        return gpu->area + BELL_OFFSET_ENDED + (size_t)slot * sizeof(uint32_t);
}

void gpu_comm_end(struct client_gpu *gpu, uint32_t slot) {
        char error[CLIENT_GPU_TEXT];

        pthread_mutex_lock(&gpu->copies);
        (void)area_copy(gpu, ended_word(gpu, slot), &gpu->pinned->one, sizeof(uint32_t), false, error);
        pthread_mutex_unlock(&gpu->copies);
}

int gpu_comm_reset(struct client_gpu *gpu, uint32_t slot, char *error) {
        uint32_t *sequence = (uint32_t *)(gpu->area + BELL_OFFSET_SEQUENCE) + slot;
        uint32_t *pair = (uint32_t *)(gpu->area + BELL_OFFSET_PAIR) + (size_t)slot * 2 * BELL_RANKS;
        struct scope scope;
        int code;

        pthread_mutex_lock(&gpu->copies);
        code = area_copy(gpu, sequence, gpu->pinned->zero, sizeof(*sequence), false, error);
        if (!code)
                code = area_copy(gpu, pair, gpu->pinned->zero, sizeof(gpu->pinned->zero), false, error);
        if (!code)
                code = area_copy(gpu, ended_word(gpu, slot), gpu->pinned->zero, sizeof(uint32_t), false, error);
        pthread_mutex_unlock(&gpu->copies);
        /* relaxed, both; partner: the kernels' stores. None is about for this slot. */
        __atomic_store_n(&gpu->host->status[slot], 0, __ATOMIC_RELAXED);
        __atomic_store_n(&gpu->host->finished[slot], 0, __ATOMIC_RELAXED);
        gpu_ended_told(gpu, slot);
        if (scope_enter(&scope, gpu->device) != hipSuccess || gpu_ended_open(gpu, slot) != hipSuccess)
                (void)hipGetLastError(); /* then kernels tell numbers */
        scope_leave(&scope);
        return code;
}

int gpu_comm_sequence(struct client_gpu *gpu, uint32_t slot, uint32_t *ret_sequence, char *error) {
        const uint32_t *sequence = (const uint32_t *)(gpu->area + BELL_OFFSET_SEQUENCE) + slot;
        int code;

        pthread_mutex_lock(&gpu->copies);
        code = area_copy(gpu, &gpu->pinned->sequence, sequence, sizeof(*sequence), true, error);
        if (!code)
                *ret_sequence = gpu->pinned->sequence;
        pthread_mutex_unlock(&gpu->copies);
        return code;
}

uint32_t gpu_comm_status(const struct client_gpu *gpu, uint32_t slot, bool forget) {
        /* relaxed, both; partner: finish() in the kernels. The word says all there is. */
        uint32_t status = __atomic_load_n(&gpu->host->status[slot], __ATOMIC_RELAXED);

        if (status && forget)
                __atomic_store_n(&gpu->host->status[slot], 0, __ATOMIC_RELAXED);
        return status;
}
