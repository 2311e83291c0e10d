/* SPDX-License-Identifier: MIT */
/*
 * Exchange areas: a rank's own memory, which the ranks of one communicator map from each other.
 *
 * An area belongs to the device in the session's use and serves one communicator at a time. It is kept until the device
 * is closed, since others may still have it mapped: to free memory that somebody has mapped is not defined. Nobody
 * writes to it when its communicator is over, so it may then serve the next one; if a kernel was given up, it may not,
 * because others' kernels may still write what that one would have waited for. (One exception is known: who goes on
 * with a part that was left sends its packets again, and whoever has the first ones may be through, and gone, before
 * the second ones come. They would have to come to the next communicator, which takes a millisecond to make.)
 *
 * A sender of transfers may have gone before its receiver comes, which says then what it has taken: in the sender's
 * head. An area whose head waits for such words is not used again before they are there, and if the device is closed
 * meanwhile the memory of the head is not freed.
 *
 * An area has its head for as long as it lives. Heads are 36 KiB, and lie in memory of 2 MiB, which is what allocations
 * are rounded up to, so that an area takes no more than its places, rounded up.
 * So who is in one communicator with this rank can write to the heads of all of this rank's communicators, of those
 * that it is not in as well: all are of one tenant, and what they can spoil are results (docs/gpu.md).
 *
 * Mappings are kept as well, and used again when the same area comes back with another communicator: closing one waits
 * for all kernels of the process, which may be waiting for ranks that wait for this thread. Memory has a number that
 * nothing else has (handles are used again by the runtime), so a mapping is never taken for another one.
 *
 * Ranks of the same process use the memory's own address: a handle cannot be opened where it was made. An offer is
 * another rank's word, so such an address is used only if there is memory of that number and length there, which is all
 * in one list. Lengths are asked of the runtime where memory is mapped: kernels write wherever their number of ranks
 * has them write.
 */
#include "client/hip/exchange_area.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client/hip/exchange_kernel.h"

struct exchange_heads {
        struct exchange_heads *next; /* of this device */
        struct exchange_memory memory;
        uint32_t used;
        uint32_t kept; /* of its areas, to whose heads others may still write, whenever */
};

struct exchange_mapping {
        struct exchange_mapping *next;
        uint64_t number;
        hipIpcMemHandle_t handle;
        char *address;
        size_t bytes;
};

_Static_assert(EXCHANGE_HEADS_BYTES >= EXCHANGE_HEAD_BYTES, "room for a head");

static struct {
        pthread_mutex_t mutex;
        struct exchange_memory *memories;
} process = {PTHREAD_MUTEX_INITIALIZER, NULL};

/* ---- memory ------------------------------------------------------------------------------------------------------ */
static hipError_t memory_alloc(size_t bytes, void **ret_address) {
#if defined(RAILMUX_CUDA)
        return hipMalloc(ret_address, bytes);
#elif defined(hipDeviceMallocUncached) /* ordinary memory may stay in the caches of one GPU while others look at it */
        return hipExtMallocWithFlags(ret_address, bytes, hipDeviceMallocUncached);
#else
        return hipExtMallocWithFlags(ret_address, bytes, hipDeviceMallocFinegrained);
#endif
}

/* With gpu->exchanges_mutex, and the device current. */
static int memory_make(const struct client_gpu *gpu, size_t bytes, struct exchange_memory *memory, char *error) {
        void *address = NULL;
        hipError_t r;

        if (getrandom(&memory->number, sizeof(memory->number), 0) != (ssize_t)sizeof(memory->number))
                return gpu_say(RMX_E_NO_MEMORY, error, "no random number for an exchange area");
        r = memory_alloc(bytes, &address);
        if (r == hipSuccess)
                r = hipIpcGetMemHandle(&memory->handle, address);
        if (r != hipSuccess) {
                if (address)
                        (void)hipFree(address);
                return gpu_fail(r, "making an exchange area", error);
        }
        memory->address = address;
        memory->bytes = bytes;
        memory->device = gpu->device;
        pthread_mutex_lock(&process.mutex);
        memory->other = process.memories;
        process.memories = memory;
        pthread_mutex_unlock(&process.mutex);
        return RMX_OK;
}

static void memory_forget(struct exchange_memory *memory) {
        pthread_mutex_lock(&process.mutex);
        for (struct exchange_memory **at = &process.memories; *at; at = &(*at)->other) {
                if (*at == memory) {
                        *at = memory->other;
                        break;
                }
        }
        pthread_mutex_unlock(&process.mutex);
}

static void memory_free(struct exchange_memory *memory) {
        memory_forget(memory);
        (void)hipFree(memory->address);
}

/* Is there such memory in this process, and on which device? */
static bool memory_is_here(const struct exchange_offer *offer, int *ret_device) {
        const struct exchange_memory *memory;

        pthread_mutex_lock(&process.mutex);
        for (memory = process.memories; memory; memory = memory->other) {
                if (memory->number == offer->number && (uintptr_t)memory->address == offer->address &&
                    memory->bytes == offer->bytes) {
                        *ret_device = memory->device;
                        break;
                }
        }
        pthread_mutex_unlock(&process.mutex);
        return memory;
}

static struct exchange_offer memory_offer(const struct exchange_memory *memory) {
        return (struct exchange_offer){.number = memory->number,
                                       .address = (uintptr_t)memory->address,
                                       .bytes = memory->bytes,
                                       .handle = memory->handle};
}

/* ---- areas ------------------------------------------------------------------------------------------------------- */
/* Memory in which there is room for a head, with the lock and the device current. */
static int heads_find(struct client_gpu *gpu, struct exchange_heads **ret_heads, char *error) {
        struct exchange_heads *heads = gpu->heads;
        int r;

        if (!heads || (heads->used + 1) * EXCHANGE_HEAD_BYTES > EXCHANGE_HEADS_BYTES) {
                heads = calloc(1, sizeof(*heads));
                if (!heads)
                        return gpu_say(RMX_E_NO_MEMORY, error, "out of memory");
                r = memory_make(gpu, EXCHANGE_HEADS_BYTES, &heads->memory, error);
                if (r) {
                        free(heads);
                        return r;
                }
                heads->next = gpu->heads;
                gpu->heads = heads;
        }
        *ret_heads = heads;
        return RMX_OK;
}

static int area_make(struct client_gpu *gpu, size_t bytes, struct exchange_area **ret_area, char *error) {
        struct exchange_area *area;
        int r;

        area = calloc(1, sizeof(*area));
        if (!area)
                return gpu_say(RMX_E_NO_MEMORY, error, "out of memory");
        r = heads_find(gpu, &area->heads, error);
        if (!r)
                r = memory_make(gpu, bytes, &area->memory, error);
        if (r) {
                free(area);
                return r;
        }
        area->head = area->heads->memory.address + (size_t)area->heads->used++ * EXCHANGE_HEAD_BYTES;
        area->next = gpu->areas;
        gpu->areas = area;
        *ret_area = area;
        return RMX_OK;
}

static hipError_t area_clear(struct client_gpu *gpu, const struct exchange_area *area) {
        hipError_t r;

        pthread_mutex_lock(&gpu->copies);
        r = hipMemsetAsync(area->memory.address, 0, area->memory.bytes, gpu->stream);
        if (r == hipSuccess)
                r = hipMemsetAsync(area->head, 0, EXCHANGE_HEAD_BYTES, gpu->stream);
        if (r == hipSuccess)
                r = hipStreamSynchronize(gpu->stream);
        pthread_mutex_unlock(&gpu->copies);
        return r;
}

/* Has all been taken that this area's rank has sent? Who takes it later says so in the head. With exchanges_mutex, and
 * the device current. */
static bool area_is_settled(struct client_gpu *gpu, const struct exchange_area *area, uint32_t n_ranks) {
        const size_t lanes = (size_t)n_ranks * PAIR_LANES(n_ranks), words = PAIR_LANE_WORDS(n_ranks);
        uint32_t *word = malloc(words * sizeof(*word));
        hipError_t r;
        bool taken;

        if (!word)
                return false;
        pthread_mutex_lock(&gpu->copies);
        r = hipMemcpyAsync(word, area->head + EXCHANGE_OFFSET_LANES, words * sizeof(*word), hipMemcpyDeviceToHost,
                           gpu->stream);
        if (r == hipSuccess)
                r = hipStreamSynchronize(gpu->stream);
        pthread_mutex_unlock(&gpu->copies);
        if (r != hipSuccess)
                (void)hipGetLastError();
        taken = r == hipSuccess;
        for (size_t i = 0; i < lanes && taken; i++)
                taken = word[PAIR_SENT * lanes + i] == word[PAIR_CREDIT * lanes + i];
        free(word);
        return taken;
}

void exchange_area_give(struct client_gpu *gpu, struct exchange_area *area, uint32_t n_ranks) {
        bool settled = true;
        struct scope scope;

        pthread_mutex_lock(&gpu->exchanges_mutex);
        if (n_ranks) {
                settled = scope_enter(&scope, gpu->device) == hipSuccess && area_is_settled(gpu, area, n_ranks);
                scope_leave(&scope);
        }
        if (settled) {
                area->taken = false;
        } else {
                area->owes = n_ranks;
                area->heads->kept++;
        }
        pthread_mutex_unlock(&gpu->exchanges_mutex);
}

void exchange_area_keep(struct client_gpu *gpu, struct exchange_area *area) {
        pthread_mutex_lock(&gpu->exchanges_mutex);
        area->heads->kept++;
        pthread_mutex_unlock(&gpu->exchanges_mutex);
}

/* One that is free, if only since others have taken what they had to. As above. */
static struct exchange_area *area_find(struct client_gpu *gpu, size_t bytes) {
        struct exchange_area *area;

        for (area = gpu->areas; area; area = area->next)
                if (!area->taken && area->memory.bytes == bytes)
                        return area;
        for (area = gpu->areas; area; area = area->next) {
                if (!area->owes || area->memory.bytes != bytes || !area_is_settled(gpu, area, area->owes))
                        continue;
                area->owes = 0;
                area->heads->kept--;
                return area;
        }
        return NULL;
}

int exchange_area_take(struct client_gpu *gpu, size_t bytes, struct exchange_area **ret_area, char *error) {
        struct exchange_area *area = NULL;
        struct scope scope;
        hipError_t r;
        int code = RMX_OK;

        pthread_mutex_lock(&gpu->exchanges_mutex);
        r = scope_enter(&scope, gpu->device);
        area = r == hipSuccess ? area_find(gpu, bytes) : NULL;
        if (r != hipSuccess)
                code = gpu_fail(r, "hipSetDevice", error);
        else if (!area)
                code = area_make(gpu, bytes, &area, error);
        if (!code)
                area->taken = true;
        pthread_mutex_unlock(&gpu->exchanges_mutex);
        if (!code) {
                r = area_clear(gpu, area);
                if (r != hipSuccess) {
                        code = gpu_fail(r, "clearing an exchange area", error);
                        exchange_area_give(gpu, area, 0);
                }
        }
        scope_leave(&scope);
        if (!code)
                *ret_area = area;
        return code;
}

void exchange_area_offer(const struct exchange_area *area, struct exchange_offer *ret_area,
                         struct exchange_offer *ret_heads, uint64_t *ret_at) {
        *ret_area = memory_offer(&area->memory);
        *ret_heads = memory_offer(&area->heads->memory);
        *ret_at = (uint64_t)(area->head - area->heads->memory.address);
}

/* ---- others' ----------------------------------------------------------------------------------------------------- */
/* Of this process, perhaps on another device. */
static int map_here(const struct client_gpu *gpu, const struct exchange_offer *offer, char **ret_address, char *error) {
        int device, can = 1;
        hipError_t r = hipSuccess;

        if (!memory_is_here(offer, &device))
                return gpu_say(RMX_E_UNSUPPORTED, error, "another rank offers an area that is not there");
        if (device != gpu->device)
                r = hipDeviceCanAccessPeer(&can, gpu->device, device);
        if (r == hipSuccess && !can)
                return gpu_say(RMX_E_UNSUPPORTED, error, "device %d cannot reach device %d", gpu->device, device);
        if (r == hipSuccess && device != gpu->device) {
                r = hipDeviceEnablePeerAccess(device, 0);
                if (r == hipErrorPeerAccessAlreadyEnabled) {
                        (void)hipGetLastError();
                        r = hipSuccess;
                }
        }
        if (r != hipSuccess)
                return gpu_fail(r, "enabling access to another device", error);
        *ret_address = (char *)(uintptr_t)offer->address;
        return RMX_OK;
}

/* Of another process. */
static int map_there(struct client_gpu *gpu, const struct exchange_offer *offer, char **ret_address, char *error) {
        struct exchange_mapping *mapping;
        void *address, *base = NULL;
        size_t bytes = 0;
        hipError_t r;

        for (mapping = gpu->mappings; mapping; mapping = mapping->next) {
                if (mapping->number == offer->number &&
                    !memcmp(&mapping->handle, &offer->handle, sizeof(offer->handle))) {
                        if (mapping->bytes < offer->bytes)
                                return gpu_say(RMX_E_UNSUPPORTED, error, "another rank offers an area too short");
                        *ret_address = mapping->address;
                        return RMX_OK;
                }
        }
        mapping = calloc(1, sizeof(*mapping));
        if (!mapping)
                return gpu_say(RMX_E_NO_MEMORY, error, "out of memory");
        r = hipIpcOpenMemHandle(&address, offer->handle, hipIpcMemLazyEnablePeerAccess);
        if (r != hipSuccess) {
                free(mapping);
                return gpu_fail(r, "hipIpcOpenMemHandle of an exchange area", error);
        }
        /* What its owner says of its length is its word only. */
        r = hipMemGetAddressRange((hipDeviceptr_t *)&base, &bytes, address);
        if (r != hipSuccess || base != address || bytes < offer->bytes) {
                (void)hipIpcCloseMemHandle(address);
                free(mapping);
                return r != hipSuccess ? gpu_fail(r, "asking for the size of an exchange area", error)
                                       : gpu_say(RMX_E_UNSUPPORTED, error, "another rank offers an area too short");
        }
        *mapping = (struct exchange_mapping){.next = gpu->mappings,
                                             .number = offer->number,
                                             .handle = offer->handle,
                                             .address = address,
                                             .bytes = bytes};
        gpu->mappings = mapping;
        *ret_address = address;
        return RMX_OK;
}

int exchange_area_map(struct client_gpu *gpu, const struct exchange_offer *offer, bool here, char **ret_address,
                      char *error) {
        return here ? map_here(gpu, offer, ret_address, error) : map_there(gpu, offer, ret_address, error);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */
void exchange_areas_free(struct client_gpu *gpu) {
        while (gpu->mappings) {
                struct exchange_mapping *mapping = gpu->mappings;

                gpu->mappings = mapping->next;
                (void)hipIpcCloseMemHandle(mapping->address);
                free(mapping);
        }
        while (gpu->areas) {
                struct exchange_area *area = gpu->areas;

                gpu->areas = area->next;
                if (area->owes && area_is_settled(gpu, area, area->owes))
                        area->heads->kept--;
                memory_free(&area->memory);
                free(area);
        }
        while (gpu->heads) {
                struct exchange_heads *heads = gpu->heads;

                gpu->heads = heads->next;
                if (heads->kept)
                        memory_forget(&heads->memory);
                else
                        memory_free(&heads->memory);
                free(heads);
        }
}
