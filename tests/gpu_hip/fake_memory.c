/* SPDX-License-Identifier: MIT */
/* Memory of the runtime in fake.c: allocations of planes and of clients, what is pinned, and handles. */
#include "tests/cmocka_all.h"

#include "fake.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_parts.h"
#include "gpu/device/bell.h"

struct allocation {
        struct allocation *next;
        char *base;
        size_t bytes;
        uint64_t number; /* of all that have lain here: this one's */
        uint64_t mapped; /* ... the one that is open; what is mapped may be gone */
        uint32_t opened; /* as an IPC handle */
        bool client;
};
static struct allocation *allocations;
static uint64_t last_number;

static struct allocation *allocation_at(const void *address) {
        for (struct allocation *a = allocations; a; a = a->next)
                if ((const char *)address >= a->base && (const char *)address < a->base + a->bytes)
                        return a;
        return NULL;
}

size_t fake_bytes_at(const void *address) {
        const struct allocation *a = allocation_at(address);

        return a ? (size_t)(a->base + a->bytes - (const char *)address) : 0;
}

static void *allocate(size_t bytes, bool client) {
        struct allocation *a = calloc(1, sizeof(*a));

        assert_non_null(a);
        a->base = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        assert_non_null(a->base);
        a->bytes = bytes;
        a->number = ++last_number;
        a->client = client;
        a->next = allocations;
        allocations = a;
        memset(a->base, client ? 0 : 0xa5, bytes);
        fake.n_allocations += !client;
        return a->base;
}

static hipError_t release(void *address, bool client) {
        for (struct allocation **at = &allocations; *at; at = &(*at)->next) {
                struct allocation *a = *at;

                if (a->base != address || a->client != client)
                        continue;
                *at = a->next;
                fake.n_allocations -= !client;
                fake.violations += a->opened != 0;
                free(a->base);
                free(a);
                return hipSuccess;
        }
        fake.violations++;
        return hipErrorInvalidValue;
}

hipError_t hipExtMallocWithFlags(void **address, size_t bytes, unsigned int flags) {
        (void)flags;
        if (fake.refuse_above && bytes > fake.refuse_above)
                return hipErrorOutOfMemory;
        *address = allocate(bytes, false);
        return hipSuccess;
}

hipError_t hipFree(void *address) {
        if (!address)
                return hipSuccess;
        fake_must_be_parked();
        return release(address, false);
}

hipError_t hipHostMalloc(void **address, size_t bytes, unsigned int flags) {
        (void)flags;
        fake_must_be_parked();
        if (fake.refuse_host)
                return hipErrorOutOfMemory;
        *address = allocate(bytes, false);
        return hipSuccess;
}

hipError_t hipHostFree(void *address) {
        return hipFree(address);
}

/* Is all of it mapped? */
static bool is_mapped(void *address, size_t bytes) {
        unsigned char *there = malloc(bytes / 4096 + 1);
        bool mapped;

        assert_non_null(there);
        mapped = !mincore(address, bytes, there);
        free(there);
        return mapped;
}

bool fake_pins_running;

hipError_t hipHostRegister(void *address, size_t bytes, unsigned int flags) {
        (void)flags;
        if (!fake_pins_running)
                fake_must_be_parked();
        if (fake.refuse_host)
                return hipErrorOutOfMemory;
        assert_true(fake.n_pinned < FAKE_PINNED);
        fake.violations += !is_mapped(address, bytes);
        fake.pinned[fake.n_pinned].address = address;
        fake.pinned[fake.n_pinned++].bytes = bytes;
        return hipSuccess;
}

hipError_t hipHostUnregister(void *address) {
        fake_must_be_parked();
        for (uint32_t i = 0; i < fake.n_pinned; i++) {
                if (fake.pinned[i].address != address)
                        continue;
                fake.violations += !is_mapped(address, fake.pinned[i].bytes);
                fake.pinned[i] = fake.pinned[--fake.n_pinned];
                return hipSuccess;
        }
        fake.violations++;
        return hipErrorInvalidValue;
}

bool fake_is_pinned(const void *at) {
        if (fake.elsewhere && (size_t)((const char *)at - (const char *)fake.elsewhere) < BELL_LATCH_BYTES)
                return true;
        for (uint32_t i = 0; i < fake.n_pinned; i++)
                if ((size_t)((const char *)at - (const char *)fake.pinned[i].address) < fake.pinned[i].bytes)
                        return true;
        return false;
}

hipError_t hipHostGetDevicePointer(void **device, void *host, unsigned int flags) {
        (void)flags;
        *device = fake.elsewhere && fake_is_pinned(host) ? fake.elsewhere : host;
        return hipSuccess;
}

hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total) {
        *free_bytes = fake.free_bytes;
        *total = fake.free_bytes;
        return hipSuccess;
}

hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *bytes, hipDeviceptr_t at) {
        struct allocation *a = allocation_at(at);

        if (!a)
                return hipErrorInvalidValue;
        *base = a->base;
        *bytes = a->bytes;
        return hipSuccess;
}

hipError_t hipDrvPointerGetAttributes(unsigned int n, hipPointer_attribute *attributes, void **data,
                                      hipDeviceptr_t at) {
        assert_int_equal(n, 1);
        assert_int_equal(attributes[0], HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
        *(int *)data[0] = fake.mark_elsewhere && *(const uint32_t *)at == fake.mark_elsewhere ? 3 : 0;
        return fake_context();
}

static void client_export(void *address, size_t bytes, struct plane_memory *ret_memory) {
        hipIpcMemHandle_t handle;

        assert_int_equal(hipIpcGetMemHandle(&handle, address), hipSuccess);
        *ret_memory =
                (struct plane_memory){.kind = PLANE_MEMORY_IPC, .n_handle = sizeof(handle), .bytes = bytes, .fd = -1};
        memcpy(ret_memory->handle, &handle, sizeof(handle));
}

void *fake_client_alloc(size_t bytes, struct plane_memory *ret_memory) {
        void *address = allocate(bytes, true);

        client_export(address, bytes, ret_memory);
        return address;
}

void fake_client_replace(void *address, size_t bytes, struct plane_memory *ret_memory) {
        struct allocation *a = allocation_at(address);

        assert_true(a && a->client && bytes <= a->bytes);
        a->bytes = bytes;
        a->number = ++last_number;
        memset(a->base, 0, bytes);
        client_export(address, bytes, ret_memory);
}

void fake_client_free(void *address) {
        assert_int_equal(release(address, true), hipSuccess);
}

/* ---- IPC handles: address and number behind a word that garbage does not have ------------------------------------ */
static const uint64_t handle_magic = 0x6b7a6c4e21903f5du;

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *address) {
        memset(handle, 0, sizeof(*handle));
        memcpy(handle->reserved, &handle_magic, sizeof(handle_magic));
        memcpy(handle->reserved + FAKE_HANDLE_ADDRESS, &address, sizeof(address));
        memcpy(handle->reserved + 16, &allocation_at(address)->number, sizeof(uint64_t));
        return hipSuccess;
}

hipError_t hipIpcOpenMemHandle(void **address, hipIpcMemHandle_t handle, unsigned int flags) {
        struct allocation *a;
        uint64_t number;
        void *base;

        (void)flags;
        if (fake_context() != hipSuccess)
                return fake_context();
        if (memcmp(handle.reserved, &handle_magic, sizeof(handle_magic)) != 0)
                return hipErrorInvalidValue;
        memcpy(&base, handle.reserved + FAKE_HANDLE_ADDRESS, sizeof(base));
        memcpy(&number, handle.reserved + 16, sizeof(number));
        a = allocation_at(base);
        assert_non_null(a);
        if (number != a->number)
                return hipErrorInvalidValue; /* the memory is gone */
        if (a->opened && a->mapped != number) {
                fake.collisions++;
                if (fake.at_collision)
                        fake.at_collision();
                return hipErrorAlreadyMapped;
        }
        if (a->opened || !a->client) {
                fake.violations++;
                return hipErrorInvalidHandle;
        }
        *address = base;
        a->mapped = number;
        a->opened++;
        fake.opens++;
        fake.n_open++;
        return hipSuccess;
}

hipError_t hipIpcCloseMemHandle(void *address) {
        struct allocation *a = allocation_at(address);

        fake_must_be_parked();
        assert_non_null(a);
        if (!a->opened) {
                fake.violations++;
                return hipErrorInvalidHandle;
        }
        a->opened--;
        fake.closes++;
        fake.n_open--;
        return hipSuccess;
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */
hipError_t hipMemImportFromShareableHandle(hipMemGenericAllocationHandle_t *handle, void *os_handle,
                                           hipMemAllocationHandleType type) {
        (void)type;
        *handle = dup((int)(intptr_t)os_handle);
        return *handle < 0 ? hipErrorInvalidValue : hipSuccess;
}

hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle) {
        return close(handle) ? hipErrorInvalidValue : hipSuccess;
}

/* Only memfds are memory. */
hipError_t hipMemGetAllocationPropertiesFromHandle(hipMemAllocationProp *ret, hipMemGenericAllocationHandle_t handle) {
        *ret = (hipMemAllocationProp){.type = fcntl(handle, F_GET_SEALS) < 0 ? 0 : hipMemAllocationTypePinned,
                                      .location.type = hipMemLocationTypeDevice};
        return hipSuccess;
}

hipError_t hipMemAddressReserve(void **address, size_t bytes, size_t alignment, void *wanted,
                                unsigned long long flags) {
        (void)alignment, (void)wanted, (void)flags;
        *address = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return *address == MAP_FAILED ? hipErrorOutOfMemory : hipSuccess;
}

hipError_t hipMemAddressFree(void *address, size_t bytes) {
        return munmap(address, bytes) ? hipErrorInvalidValue : hipSuccess;
}

hipError_t hipMemMap(void *address, size_t bytes, size_t offset, hipMemGenericAllocationHandle_t handle,
                     unsigned long long flags) {
        struct stat st;

        (void)flags;
        if (fstat(handle, &st) || (size_t)st.st_size != bytes || offset)
                return hipErrorInvalidValue;
        if (mmap(address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, handle, 0) == MAP_FAILED)
                return hipErrorMapFailed;
        fake.opens++;
        fake.n_open++;
        return hipSuccess;
}

hipError_t hipMemSetAccess(void *address, size_t bytes, const hipMemAccessDesc *access, size_t n) {
        assert_int_equal(n, 1);
        assert_int_equal(access->flags, hipMemAccessFlagsProtReadWrite);
        return mprotect(address, bytes, PROT_READ | PROT_WRITE) ? hipErrorInvalidValue : hipSuccess;
}

hipError_t hipMemUnmap(void *address, size_t bytes) {
        fake_must_be_parked();
        fake.closes++;
        fake.n_open--;
        return mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED
                       ? hipErrorInvalidValue
                       : hipSuccess;
}
