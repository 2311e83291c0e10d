/* SPDX-License-Identifier: MIT */
/* What the caller's pointers point into, and how other processes get at it. */
#include <string.h>

#include "client/hip/private.h"

int gpu_locate(const void *address, struct client_gpu_memory *ret_memory, char *error) {
        unsigned int type = 0, managed = 0;
        unsigned long long id = 0;
        hipDeviceptr_t base = 0;
        size_t bytes = 0;
        int device = -1;
        hipPointer_attribute attribute[] = {HIP_POINTER_ATTRIBUTE_MEMORY_TYPE,      HIP_POINTER_ATTRIBUTE_IS_MANAGED,
                                            HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   HIP_POINTER_ATTRIBUTE_BUFFER_ID,
                                            HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR, HIP_POINTER_ATTRIBUTE_RANGE_SIZE};
        void *data[] = {&type, &managed, &device, &id, &base, &bytes};
        hipError_t r;

        r = hipDrvPointerGetAttributes(sizeof(data) / sizeof(data[0]), attribute, data,
                                       (hipDeviceptr_t)(uintptr_t)address);
        *ret_memory = (struct client_gpu_memory){.residence = CLIENT_GPU_ORDINARY, .device = -1};
        if (r == hipErrorInvalidValue) { /* how some versions say that it is none of theirs */
                (void)hipGetLastError();
                return RMX_OK;
        }
        if (r != hipSuccess)
                return gpu_fail(r, "hipDrvPointerGetAttributes", error);
        if (!type && !base) /* (host memory has type 0 in some versions) */
                return RMX_OK;
        ret_memory->device = device;
        if (managed)
                ret_memory->residence = CLIENT_GPU_MANAGED;
        else if (type != MEMORY_ON_DEVICE)
                ret_memory->residence = CLIENT_GPU_HOST;
        else
                *ret_memory = (struct client_gpu_memory){.residence = CLIENT_GPU_DEVICE,
                                                         .device = device,
                                                         .base = (uint64_t)(uintptr_t)base,
                                                         .bytes = bytes,
                                                         .id = id};
        return RMX_OK;
}

int gpu_export(const struct client_gpu_memory *memory, struct client_gpu_export *ret_export, char *error) {
        hipIpcMemHandle_t handle;
        struct scope scope;
        hipError_t r;

        r = scope_enter(&scope, memory->device);
        if (r == hipSuccess)
                r = hipIpcGetMemHandle(&handle, (void *)(uintptr_t)memory->base);
        scope_leave(&scope);
        if (r != hipSuccess) {
                (void)hipGetLastError();
                return gpu_say(
                        RMX_E_UNSUPPORTED, error,
                        "no other process can map this memory (%s): it comes from a stream-ordered allocator or from "
                        "virtual memory management (expandable segments); use plain allocations",
                        hipGetErrorString(r));
        }
        *ret_export = (struct client_gpu_export){.kind = EXPORT_IPC,
                                                 .n_handle = sizeof(handle),
                                                 .allocation_bytes = memory->bytes,
                                                 .bytes = memory->bytes};
        memcpy(ret_export->handle, &handle, sizeof(handle));
        return RMX_OK;
}

int gpu_alloc(struct client_gpu *gpu, size_t bytes, struct client_gpu_memory *ret_memory, char *error) {
        void *address = NULL;
        struct scope scope;
        hipError_t r;

        r = scope_enter(&scope, gpu->device);
        if (r == hipSuccess)
                r = hipMalloc(&address, bytes);
        scope_leave(&scope);
        return r == hipSuccess ? gpu_locate(address, ret_memory, error) : gpu_fail(r, "hipMalloc", error);
}

void gpu_free(struct client_gpu *gpu, const struct client_gpu_memory *memory) {
        struct scope scope;

        (void)scope_enter(&scope, gpu->device);
        if (hipFree((void *)(uintptr_t)memory->base) != hipSuccess)
                (void)hipGetLastError();
        scope_leave(&scope);
}

int gpu_copy(struct client_gpu *gpu, void *to, const void *from, size_t bytes, void *stream, char *error) {
        struct scope scope;
        hipError_t r;

        r = scope_device(&scope, gpu->device);
        if (r == hipSuccess)
                r = hipMemcpyAsync(to, from, bytes, hipMemcpyDeviceToDevice, stream);
        scope_leave(&scope);
        return r == hipSuccess ? RMX_OK : gpu_fail(r, "hipMemcpyAsync", error);
}
