/* SPDX-License-Identifier: MIT */
/*
 * What the caller's pointers point into, and how other processes get at it.
 *
 * Chunks. A program may reserve addresses and map physical memory there, chunk by chunk (PyTorch's expandable segments
 * do). Such memory has no IPC handle, but each chunk can be exported as a descriptor if it was made to be.
 *
 * NVIDIA's driver gives the reserved range as the range of such a pointer, and the chunk as its "address range"; each
 * mapping has a buffer id of its own, so another chunk at the same place is seen (tried with driver 580). Memory that
 * is not fit for IPC handles and may be exported as a descriptor is taken for chunks. AMD's runtime has the same calls,
 * but older ones take the handle from memory of another kind without looking, and give back one reference more than
 * they took; nobody has tried newer ones here. So there it is done only if the environment says so.
 *
 * Chunks that can be shared in neither way are copied through a region, so it does not matter which of a range's it is:
 * all of them are one allocation without an id, as large as the range.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "client/hip/private.h"

enum { NO_CHUNKS, CHUNKS_AS_USUAL, CHUNKS };

/* What $RAILMUX_GPU_CHUNKS wants: 0 or 1, or nothing. */
static int chunks_wanted(void) {
        static _Atomic int wanted = -1;
        int is = atomic_load_explicit(&wanted, memory_order_relaxed);

        if (is < 0) {
                const char *wish = getenv("RAILMUX_GPU_CHUNKS");

                is = !wish || !wish[0] ? CHUNKS_AS_USUAL : strcmp(wish, "0") ? CHUNKS : NO_CHUNKS;
                atomic_store_explicit(&wanted, is, memory_order_relaxed);
        }
        return is;
}

#ifdef RAILMUX_CUDA
static bool is_chunk(const void *address, unsigned long long handle_types) {
        (void)address;
        return handle_types & hipMemHandleTypePosixFileDescriptor && chunks_wanted() != NO_CHUNKS;
}
#else
static bool is_chunk(const void *address, unsigned long long handle_types) {
        hipMemGenericAllocationHandle_t handle;

        (void)handle_types;
        if (chunks_wanted() != CHUNKS)
                return false;
        if (hipMemRetainAllocationHandle(&handle, (void *)address) != hipSuccess) {
                (void)hipGetLastError();
                return false;
        }
        (void)hipMemRelease(handle);
        return true;
}
#endif

/* A thread that has no device current may be refused, and asks once more with one. */
static hipError_t address_range(int device, const void *address, hipDeviceptr_t *ret_base, size_t *ret_bytes) {
        hipError_t r = hipMemGetAddressRange(ret_base, ret_bytes, (hipDeviceptr_t)(uintptr_t)address);
        struct scope scope;

        if (r == hipSuccess)
                return r;
        (void)hipGetLastError();
        r = scope_enter(&scope, device);
        if (r == hipSuccess)
                r = hipMemGetAddressRange(ret_base, ret_bytes, (hipDeviceptr_t)(uintptr_t)address);
        scope_leave(&scope);
        return r;
}

/* What is not fit for IPC handles. */
static int locate_virtual(const void *address, bool chunk, struct client_gpu_memory *memory, char *error) {
        hipDeviceptr_t base = 0;
        size_t bytes = 0;
        hipError_t r = address_range(memory->device, address, &base, &bytes);

        if (r != hipSuccess)
                return gpu_fail(r, "hipMemGetAddressRange", error);
        if (chunk) {
                memory->chunk = true;
                memory->range = memory->base;
                memory->base = (uint64_t)(uintptr_t)base;
                memory->bytes = bytes;
        } else if (memory->base != (uint64_t)(uintptr_t)base || memory->bytes != bytes) {
                memory->id = 0; /* one of several, none of which can be shared */
        }
        return RMX_OK;
}

int gpu_locate(const void *address, struct client_gpu_memory *ret_memory, char *error) {
        unsigned int type = 0, managed = 0;
        unsigned long long id = 0, ipc = 0, handle_types = 0; /* some write a word, some two */
        hipDeviceptr_t base = 0;
        size_t bytes = 0;
        int device = -1;
        hipPointer_attribute attribute[] = {HIP_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                            HIP_POINTER_ATTRIBUTE_IS_MANAGED,
                                            HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                            HIP_POINTER_ATTRIBUTE_BUFFER_ID,
                                            HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                            HIP_POINTER_ATTRIBUTE_RANGE_SIZE,
#ifdef RAILMUX_CUDA /* nobody knows which versions of AMD's have these */
                                            HIP_POINTER_ATTRIBUTE_IS_LEGACY_HIP_IPC_CAPABLE,
                                            HIP_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES
#endif
        };
        void *data[] = {&type, &managed, &device, &id, &base, &bytes, &ipc, &handle_types};
        hipError_t r;

        r = hipDrvPointerGetAttributes(sizeof(attribute) / sizeof(attribute[0]), attribute, data,
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
        if (ret_memory->residence != CLIENT_GPU_DEVICE || ipc)
                return RMX_OK;
        return locate_virtual(address, is_chunk(address, handle_types), ret_memory, error);
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
                        "no other process can map this memory (%s): it comes from a stream-ordered allocator, or from "
                        "virtual memory management and cannot be exported; use plain allocations",
                        hipGetErrorString(r));
        }
        *ret_export = (struct client_gpu_export){.kind = EXPORT_IPC,
                                                 .n_handle = sizeof(handle),
                                                 .allocation_bytes = memory->bytes,
                                                 .bytes = memory->bytes};
        memcpy(ret_export->handle, &handle, sizeof(handle));
        return RMX_OK;
}

int gpu_export_chunk(const struct client_gpu_memory *chunk, int *ret_fd, char *error) {
        hipMemGenericAllocationHandle_t handle;
        struct scope scope;
        hipError_t r;
        int fd = -1;

        r = scope_enter(&scope, chunk->device);
        if (r == hipSuccess)
                r = hipMemRetainAllocationHandle(&handle, (void *)(uintptr_t)chunk->base);
        if (r == hipSuccess) {
                r = hipMemExportToShareableHandle(&fd, handle, hipMemHandleTypePosixFileDescriptor, 0);
                (void)hipMemRelease(handle);
        }
        scope_leave(&scope);
        if (r != hipSuccess) {
                (void)hipGetLastError();
                if (r == hipErrorOutOfMemory || r == ERROR_OF_SYSTEM) /* or no descriptor is left */
                        return gpu_say(RMX_E_LIMIT, error, "this memory cannot be exported now: %s",
                                       hipGetErrorString(r));
                return gpu_say(RMX_E_UNSUPPORTED, error,
                               "no other process can map this memory (%s): it was not made to be exported",
                               hipGetErrorString(r));
        }
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
        *ret_fd = fd;
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
                r = hipMemcpyAsync(to, from, bytes, hipMemcpyDefault, stream);
        scope_leave(&scope);
        return r == hipSuccess ? RMX_OK : gpu_fail(r, "hipMemcpyAsync", error);
}
