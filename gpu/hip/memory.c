/* SPDX-License-Identifier: MIT */
/*
 * Imported memory
 *
 * One process may open an IPC handle once per device; several buffers of a client often lie in the same allocation. So
 * open handles are kept by their bytes with a count of references. (A handle names an allocation, not an address:
 * memory that was freed and allocated again has another handle. But the runtime may refuse to open it while the handle
 * of the memory that lay there before is open: see buffers.c.)
 *
 * Unmapping waits for all kernels of the context, and one of ours never ends by itself. So what nobody refers to any
 * more is queued, and memory_close unmaps it when no kernel is resident. Meanwhile it can be taken into use again.
 * Kernels that end put unfinished tasks aside, which the next one goes on with. One that still named memory that is
 * unmapped would end the context. So each mapping remembers which rings' tasks could name it when it is released, and
 * stays while a task of such a ring is kept: an area those of its ring, staging all. Buffers none: tasks that name one
 * are answered before the table without it is acknowledged (gpu/device/update.h), and only then it is released; or,
 * where that was not waited for, before anything is done for them.
 *
 * Chunks of virtual memory (a bundle of descriptors) are mapped side by side into addresses of their own, each time
 * anew: chunks have no name by which one would know that they are open already, and to map one twice costs addresses
 * only.
 *
 * What the client says of offset and size is checked against the size that the runtime knows of the allocation: a
 * kernel that reads beyond it would end the context, and with it everybody else's work. So would one that reads a word
 * at an odd address: offsets in lines are multiples of the element's size, and so the buffer has to begin at one, too.
 */
#include "gpu/hip/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>
#include <utlist.h>

#include "gpu/device/tables.h"
#include "gpu/hip/error.h"
#include "gpu/hip/runtime.h"
#include "util/bundle.h"
#include "util/clock.h"

#define MEMORY_ALIGNMENT 16u /* of an element at least */

_Static_assert(sizeof(hipIpcMemHandle_t) == PLANE_HANDLE_BYTES, "an IPC handle fits plane_memory");
_Static_assert(TABLE_RINGS <= 32, "a word has a bit for each ring");

struct memory_mapping {
        unsigned char handle[PLANE_HANDLE_BYTES]; /* IPC */
        uint32_t kind;
        uint32_t references;
        uint32_t rings; /* that it was imported for since it was opened */
        void *base;
        uint64_t bytes; /* of the whole allocation */
        uint64_t released_ns;
        UT_hash_handle hh;
        struct memory_mapping *prev, *next;
        uint32_t n_chunks;      /* that are mapped, of a bundle, */
        uint64_t chunk_bytes[]; /* and their sizes; BUNDLE_FDS_MAX have room */
};

void memory_init(struct memory *memory, uint32_t device) {
        *memory = (struct memory){.device = device};
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */
static int ipc_of_no_use(char *error) {
        return error_set(-EINVAL, error, "an IPC handle does not name the start of an allocation");
}

/* What is open and of no use keeps 0 bytes: it cannot be closed at once, and may be named again before it is. */
static int open_ipc(struct memory_mapping *mapping, char *error) {
        hipIpcMemHandle_t handle;
        hipDeviceptr_t base = NULL;
        size_t bytes = 0;
        int r;

        memcpy(&handle, mapping->handle, sizeof(handle));
        r = runtime_check(hipIpcOpenMemHandle(&mapping->base, handle, hipIpcMemLazyEnablePeerAccess),
                          "opening an IPC handle", error);
        if (r)
                return r;
        r = runtime_check(hipMemGetAddressRange(&base, &bytes, mapping->base), "asking for an allocation's size",
                          error);
        if (!r && base != mapping->base)
                r = ipc_of_no_use(error);
        if (!r)
                mapping->bytes = bytes;
        return r;
}

/* Of what there are descriptors, only plain memory of a GPU is taken: what its owner can take away from under it, as
 * multicast objects' memory, would end the context. */
static int chunk_import(int fd, hipMemGenericAllocationHandle_t *ret_chunk, char *error) {
        hipMemAllocationProp properties;
        int r;

        r = runtime_check(
                hipMemImportFromShareableHandle(ret_chunk, (void *)(uintptr_t)fd, hipMemHandleTypePosixFileDescriptor),
                "importing a descriptor", error);
        if (r)
                return r;
        memset(&properties, 0, sizeof(properties));
        r = runtime_check(hipMemGetAllocationPropertiesFromHandle(&properties, *ret_chunk),
                          "asking for the kind of memory", error);
        if (!r &&
            (properties.type != hipMemAllocationTypePinned || properties.location.type != hipMemLocationTypeDevice))
                r = error_set(-EINVAL, error, "a descriptor is not of memory on a GPU");
        if (r)
                (void)hipMemRelease(*ret_chunk);
        return r;
}

/* mapping->base is set when there is something to close. */
static int chunks_map(struct memory_mapping *mapping, const struct bundle *bundle,
                      const hipMemGenericAllocationHandle_t *chunks, char *error) {
        const uint64_t bytes = bundle_bytes(bundle);
        char *at;
        int r;

        r = runtime_check(hipMemAddressReserve(&mapping->base, bytes, 0, NULL, 0), "reserving addresses", error);
        if (r) {
                mapping->base = NULL;
                return r;
        }
        mapping->bytes = bytes;
        at = mapping->base;
        for (uint32_t i = 0; !r && i < bundle->n; i++) {
                /* Fails if the chunk has another size. */
                r = runtime_check(hipMemMap(at, bundle->bytes[i], 0, chunks[i], 0), "mapping memory", error);
                if (!r)
                        mapping->chunk_bytes[mapping->n_chunks++] = bundle->bytes[i];
                at += bundle->bytes[i];
        }
        if (r && !mapping->n_chunks) { /* nothing that a kernel could see */
                (void)hipMemAddressFree(mapping->base, bytes);
                mapping->base = NULL;
        }
        return r;
}

static int open_bundle(struct memory_mapping *mapping, uint32_t device, const struct plane_memory *what, char *error) {
        hipMemGenericAllocationHandle_t chunks[BUNDLE_FDS_MAX];
        size_t free_bytes, total_bytes;
        hipMemAccessDesc access;
        struct bundle bundle;
        uint32_t n = 0;
        int r;

        r = bundle_peek(what->fd, &bundle);
        if (r)
                return error_set(r, error, "opening the descriptors of chunks: %s",
                                 r == -EINVAL ? "it is no bundle" : strerror(-r));
        r = runtime_check(hipMemGetInfo(&free_bytes, &total_bytes), "asking for the memory of the GPU", error);
        if (!r && (bundle_bytes(&bundle) != what->allocation_bytes || what->allocation_bytes > total_bytes))
                r = error_set(-EINVAL, error, "chunks of other sizes than was said, or of more than a GPU has");
        while (!r && n < bundle.n) {
                r = chunk_import(bundle.fd[n], &chunks[n], error);
                n += !r;
        }
        if (!r)
                r = chunks_map(mapping, &bundle, chunks, error);
        for (uint32_t i = 0; i < n; i++)
                (void)hipMemRelease(chunks[i]); /* the mapping holds it */
        bundle_close(&bundle);
        if (r)
                return r;
        memset(&access, 0, sizeof(access));
        access.location.type = hipMemLocationTypeDevice;
        access.location.id = (int)device;
        access.flags = hipMemAccessFlagsProtReadWrite;
        return runtime_check(hipMemSetAccess(mapping->base, mapping->bytes, &access, 1), "allowing access to memory",
                             error);
}

/* ---- closing ----------------------------------------------------------------------------------------------------- */
static int mapping_close(struct memory_mapping *mapping, char *error) {
        char *at = mapping->base;
        int r = 0, r2;

        if (mapping->kind == PLANE_MEMORY_IPC)
                return runtime_check(hipIpcCloseMemHandle(mapping->base), "closing an IPC handle", error);
        for (uint32_t i = 0; !r && i < mapping->n_chunks; i++) {
                r = runtime_check(hipMemUnmap(at, mapping->chunk_bytes[i]), "unmapping memory", error);
                at += mapping->chunk_bytes[i];
        }
        r2 = runtime_check(hipMemAddressFree(mapping->base, mapping->bytes), "freeing addresses", r ? NULL : error);
        return r ? r : r2;
}

static void retire(struct memory *memory, struct memory_mapping *mapping) {
        mapping->released_ns = clock_now_ns();
        DL_APPEND(memory->retired, mapping);
        memory->n_retired++;
}

static void unretire(struct memory *memory, struct memory_mapping *mapping) {
        DL_DELETE(memory->retired, mapping);
        memory->n_retired--;
}

void memory_release(struct memory *memory, struct memory_mapping *mapping) {
        if (mapping && --mapping->references == 0)
                retire(memory, mapping);
}

uint64_t memory_oldest(const struct memory *memory, uint64_t now_ns) {
        return memory->retired ? now_ns - memory->retired->released_ns : 0;
}

/* It leaves the queue for good. */
static void forget_retired(struct memory *memory, struct memory_mapping *mapping) {
        unretire(memory, mapping);
        if (mapping->hh.tbl)
                HASH_DEL(memory->handles, mapping);
}

int memory_close(struct memory *memory, uint32_t kept_rings, uint64_t budget_ns, char *error) {
        uint64_t end = clock_now_ns() + budget_ns;
        struct memory_mapping *mapping, *next;
        int r = 0;

        DL_FOREACH_SAFE(memory->retired, mapping, next) {
                if (mapping->rings & kept_rings)
                        continue;
                forget_retired(memory, mapping);
                r = mapping_close(mapping, error);
                free(mapping);
                if (r || clock_now_ns() > end)
                        break;
        }
        return r;
}

void memory_deinit(struct memory *memory, bool abandon) {
        struct memory_mapping *mapping, *next;

        DL_FOREACH_SAFE(memory->retired, mapping, next) {
                forget_retired(memory, mapping);
                if (!abandon)
                        (void)mapping_close(mapping, NULL);
                free(mapping);
        }
        assert(!memory->handles);
}

/* ---- import ------------------------------------------------------------------------------------------------------ */
/* A handle that is open, or a new one. */
static int import_mapping(struct memory *memory, const struct plane_memory *what, struct memory_mapping **ret_mapping,
                          char *error) {
        struct memory_mapping *mapping = NULL;
        int r;

        if (what->kind == PLANE_MEMORY_IPC) {
                if (what->n_handle != PLANE_HANDLE_BYTES)
                        return error_set(-EINVAL, error, "an IPC handle of %u bytes", what->n_handle);
                HASH_FIND(hh, memory->handles, what->handle, PLANE_HANDLE_BYTES, mapping);
                if (mapping && !mapping->bytes)
                        return ipc_of_no_use(error);
                if (mapping) {
                        if (mapping->references++ == 0)
                                unretire(memory, mapping);
                        *ret_mapping = mapping;
                        return 0;
                }
        } else if (what->kind != PLANE_MEMORY_BUNDLE || what->fd < 0) {
                return error_set(-EINVAL, error, "no memory is named");
        }
        mapping = calloc(1, sizeof(*mapping) + (what->kind == PLANE_MEMORY_BUNDLE
                                                        ? BUNDLE_FDS_MAX * sizeof(mapping->chunk_bytes[0])
                                                        : 0));
        if (!mapping)
                return error_set(-ENOMEM, error, "out of memory");
        mapping->kind = what->kind;
        mapping->references = 1;
        if (what->kind == PLANE_MEMORY_IPC) {
                memcpy(mapping->handle, what->handle, sizeof(mapping->handle));
                r = open_ipc(mapping, error);
        } else {
                r = open_bundle(mapping, memory->device, what, error);
        }
        if (!mapping->base) {
                free(mapping);
                return r;
        }
        if (mapping->kind == PLANE_MEMORY_IPC) {
                HASH_ADD(hh, memory->handles, handle, sizeof(mapping->handle), mapping);
                if (!mapping->hh.tbl)
                        r = error_set(-ENOMEM, error, "out of memory");
        }
        if (r)
                memory_release(memory, mapping); /* open, but of no use */
        else
                *ret_mapping = mapping;
        return r;
}

int memory_import(struct memory *memory, uint32_t rings, const struct plane_memory *what,
                  struct memory_mapping **ret_mapping, uint64_t *ret_address, char *error) {
        struct memory_mapping *mapping;
        int r;

        if (what->offset % MEMORY_ALIGNMENT)
                return error_set(-EINVAL, error, "memory at %llu of an allocation; it has to be at a multiple of %u",
                                 (unsigned long long)what->offset, MEMORY_ALIGNMENT);
        r = import_mapping(memory, what, &mapping, error);
        if (r)
                return r;
        mapping->rings |= rings;
        if (!what->bytes || what->offset > mapping->bytes || what->bytes > mapping->bytes - what->offset) {
                error_set(0, error, "%llu bytes at %llu are not inside of an allocation of %llu",
                          (unsigned long long)what->bytes, (unsigned long long)what->offset,
                          (unsigned long long)mapping->bytes);
                memory_release(memory, mapping);
                return -EINVAL;
        }
        *ret_mapping = mapping;
        *ret_address = (uint64_t)(uintptr_t)mapping->base + what->offset;
        return 0;
}

/* What the runtime cannot tell is taken for memory that is here. */
static bool lies_elsewhere(const struct memory *memory, const void *at) {
        hipPointer_attribute attribute = HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        int device = -1;
        void *data = &device;

        if (hipDrvPointerGetAttributes(1, &attribute, &data, (hipDeviceptr_t)(uintptr_t)at) != hipSuccess) {
                (void)hipGetLastError();
                return false;
        }
        return device >= 0 && (uint32_t)device != memory->device;
}

int memory_check_here(const struct memory *memory, const struct memory_mapping *mapping, char *error) {
        const char *at = mapping->base;
        bool elsewhere = !mapping->n_chunks && lies_elsewhere(memory, at);

        for (uint32_t i = 0; !elsewhere && i < mapping->n_chunks; i++) {
                elsewhere = lies_elsewhere(memory, at);
                at += mapping->chunk_bytes[i];
        }
        return elsewhere ? error_set(-EINVAL, error, "the memory lies on another GPU") : 0;
}
