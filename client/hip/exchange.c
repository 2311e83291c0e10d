/* SPDX-License-Identifier: MIT */
/*
 * Exchange areas: a rank's own memory, which the ranks of one communicator map from each other, and the kernels that
 * use it (exchange_run.h says how).
 *
 * An area belongs to the device in the session's use and serves one communicator at a time. It is kept until the device
 * is closed, since others may still have it mapped: to free memory that somebody has mapped is not defined. Nobody
 * writes to it when its communicator is over, so it may then serve the next one; if a kernel was given up, it may not,
 * because others' kernels may still write what that one would have waited for.
 *
 * Mappings are kept as well, and used again when the same area comes back with another communicator: closing one waits
 * for all kernels of the process, which may be waiting for ranks that wait for this thread. An area has a number that
 * nothing else has (handles are used again by the runtime), so a mapping is never taken for another one.
 *
 * A program that is wrong may have a rank call once more in a communicator that another rank has left, and then write
 * to an area that serves another one by now. So rounds and calls are not numbered from 0 but from a random number,
 * which is that of rank 0's area: packets that come astray have the wrong flag, but for one chance in 2^32, and are
 * waited for no less than before. That does not hold for chunks, whose data carry no number: those may become part of
 * another communicator's result, and a packet or flag that comes after the right one hides it for ever.
 *
 * Ranks of the same process use the area's own address: a handle cannot be opened where it was made. An offer is
 * another rank's word, so such an address is used only if there is an area of that number and length there, which are
 * all in one list. Lengths are asked of the runtime where memory is mapped: kernels write wherever their number of
 * ranks has them write.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/hip/exchange_kernel.h"
#include "client/hip/private.h"

#define OFFER_MAGIC 0x31584552u /* "REX1" */
/* Ranks whose libraries differ in these would not exchange with one another. */
#define OFFER_LAYOUT(n_ranks)                                                                                          \
        (CLIENT_GPU_EXCHANGE_VERSION << 24 | EXCHANGE_BLOCKS_OF(n_ranks) << 16 | EXCHANGE_DEPTH(n_ranks) << 12 |       \
         EXCHANGE_THREADS)

/* What another rank needs to map an area. */
struct offer {
        uint32_t magic;
        uint32_t layout;
        uint64_t process[2];
        uint64_t number; /* of the area */
        uint64_t first;  /* of rounds and calls, if it is rank 0's */
        uint64_t address;
        uint64_t bytes;
        hipIpcMemHandle_t handle;
};
_Static_assert(sizeof(struct offer) <= CLIENT_GPU_OFFER_BYTES, "an offer fits");

struct exchange_mapping {
        struct exchange_mapping *next;
        uint64_t number;
        hipIpcMemHandle_t handle;
        char *address;
        size_t bytes;
};

struct client_gpu_exchange {
        struct client_gpu *gpu;
        struct exchange_area *area;
        uint32_t slot, n_ranks, rank;
        char *address[EXCHANGE_RANKS]; /* by rank */
};

static struct {
        pthread_mutex_t mutex;
        struct exchange_area *areas;
} process = {PTHREAD_MUTEX_INITIALIZER, NULL};

/* ---- areas ------------------------------------------------------------------------------------------------------- */
/* Random, and the process's own: a child of fork() has the same bytes, but another number. */
static int process_name(uint64_t ret_name[static 2]) {
        static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        static uint64_t random;
        int r = 0;

        pthread_mutex_lock(&mutex);
        if (!random && getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
                r = -1;
        ret_name[0] = random;
        ret_name[1] = (uint64_t)getpid();
        pthread_mutex_unlock(&mutex);
        return r;
}

static hipError_t area_alloc(size_t bytes, void **ret_address) {
#if defined(RAILMUX_CUDA)
        return hipMalloc(ret_address, bytes);
#elif defined(hipDeviceMallocUncached) /* ordinary memory may stay in the caches of one GPU while others look at it */
        return hipExtMallocWithFlags(ret_address, bytes, hipDeviceMallocUncached);
#else
        return hipExtMallocWithFlags(ret_address, bytes, hipDeviceMallocFinegrained);
#endif
}

/* With gpu->exchanges_mutex, and the device current. */
static int area_new(struct client_gpu *gpu, size_t bytes, struct exchange_area **ret_area, char *error) {
        struct exchange_area *area;
        void *address = NULL;
        hipError_t r;

        area = calloc(1, sizeof(*area));
        if (!area || getrandom(&area->number, sizeof(area->number), 0) != (ssize_t)sizeof(area->number)) {
                free(area);
                return gpu_say(RMX_E_NO_MEMORY, error, "out of memory");
        }
        r = area_alloc(bytes, &address);
        if (r == hipSuccess)
                r = hipIpcGetMemHandle(&area->handle, address);
        if (r != hipSuccess) {
                int code = gpu_fail(r, "making an exchange area", error);

                if (address)
                        (void)hipFree(address);
                free(area);
                return code;
        }
        area->address = address;
        area->bytes = bytes;
        area->device = gpu->device;
        area->next = gpu->areas;
        gpu->areas = area;
        pthread_mutex_lock(&process.mutex);
        area->other = process.areas;
        process.areas = area;
        pthread_mutex_unlock(&process.mutex);
        *ret_area = area;
        return RMX_OK;
}

/* Is there such an area in this process, and on which device? */
static bool area_is_here(const struct offer *offer, int *ret_device) {
        const struct exchange_area *area;

        pthread_mutex_lock(&process.mutex);
        for (area = process.areas; area; area = area->other) {
                if (area->number == offer->number && (uintptr_t)area->address == offer->address &&
                    area->bytes == offer->bytes) {
                        *ret_device = area->device;
                        break;
                }
        }
        pthread_mutex_unlock(&process.mutex);
        return area;
}

static void area_forget(const struct exchange_area *area) {
        pthread_mutex_lock(&process.mutex);
        for (struct exchange_area **at = &process.areas; *at; at = &(*at)->other) {
                if (*at == area) {
                        *at = area->other;
                        break;
                }
        }
        pthread_mutex_unlock(&process.mutex);
}

static void area_give(struct client_gpu *gpu, struct exchange_area *area) {
        pthread_mutex_lock(&gpu->exchanges_mutex);
        area->taken = false;
        pthread_mutex_unlock(&gpu->exchanges_mutex);
}

static int area_take(struct client_gpu *gpu, size_t bytes, struct exchange_area **ret_area, char *error) {
        struct exchange_area *area = NULL;
        struct scope scope;
        hipError_t r;
        int code = RMX_OK;

        pthread_mutex_lock(&gpu->exchanges_mutex);
        r = scope_enter(&scope, gpu->device);
        for (area = gpu->areas; area && (area->taken || area->bytes != bytes);)
                area = area->next;
        if (r != hipSuccess)
                code = gpu_fail(r, "hipSetDevice", error);
        else if (!area)
                code = area_new(gpu, bytes, &area, error);
        if (!code)
                area->taken = true;
        pthread_mutex_unlock(&gpu->exchanges_mutex);
        if (!code) {
                pthread_mutex_lock(&gpu->copies);
                r = hipMemsetAsync(area->address, 0, bytes, gpu->stream);
                if (r == hipSuccess)
                        r = hipStreamSynchronize(gpu->stream);
                pthread_mutex_unlock(&gpu->copies);
                if (r != hipSuccess) {
                        code = gpu_fail(r, "clearing an exchange area", error);
                        area_give(gpu, area);
                }
        }
        scope_leave(&scope);
        if (!code)
                *ret_area = area;
        return code;
}

/* What calls of the slot need. A kernel that is loaded at its first launch waits until no other one runs in the
 * process. */
static int calls_prepare(struct client_gpu *gpu, uint32_t slot, uint32_t n_ranks, char *error) {
        hipFuncAttributes attributes;
        struct scope scope;
        hipError_t r;

        r = scope_enter(&scope, gpu->device);
        for (uint32_t i = 0; i < EXCHANGE_WAYS * EXCHANGE_KINDS && r == hipSuccess; i++)
                r = hipFuncGetAttributes(&attributes, exchange_kernel(n_ranks, i / EXCHANGE_WAYS,
                                                                      (enum exchange_way)(i % EXCHANGE_WAYS)));
        if (r == hipSuccess)
                r = gpu_ended_open(gpu, slot);
        scope_leave(&scope);
        return r == hipSuccess ? RMX_OK : gpu_fail(r, "preparing exchange kernels", error);
}

/* ---- opening, connecting, closing -------------------------------------------------------------------------------- */
/* Whose words of this slot's kernels the executor reads. No kernel of the slot is about. */
static void rank_name(const struct client_gpu *gpu, uint32_t slot, uint32_t handle) {
        struct bell_exchanged *exchanged = &gpu->host->exchanged[slot];

        /* relaxed, then release, twice; partner: plane_exchanged() in the executor, which must not take one rank's
         * number for another one's. */
        __atomic_store_n(&exchanged->handle, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&exchanged->begun, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&exchanged->handle, handle, __ATOMIC_RELEASE);
}

int gpu_exchange_open(struct client_gpu *gpu, uint32_t slot, uint32_t handle, uint32_t n_ranks, uint32_t rank,
                      struct client_gpu_exchange **ret_exchange, unsigned char *ret_offer, char *error) {
        struct offer offer = {.magic = OFFER_MAGIC, .layout = OFFER_LAYOUT(n_ranks)};
        struct client_gpu_exchange *exchange;
        int r;

        if (n_ranks < 2 || n_ranks > EXCHANGE_RANKS || rank >= n_ranks)
                return gpu_say(RMX_E_UNSUPPORTED, error, "rank %u of %u: exchange is for 2 to %u ranks", rank, n_ranks,
                               EXCHANGE_RANKS);
        exchange = calloc(1, sizeof(*exchange));
        if (!exchange || process_name(offer.process) ||
            getrandom(&offer.first, sizeof(offer.first), 0) != (ssize_t)sizeof(offer.first)) {
                free(exchange);
                return gpu_say(RMX_E_NO_MEMORY, error, "out of memory");
        }
        *exchange = (struct client_gpu_exchange){.gpu = gpu, .slot = slot, .n_ranks = n_ranks, .rank = rank};
        r = calls_prepare(gpu, slot, n_ranks, error);
        if (!r)
                r = area_take(gpu, EXCHANGE_AREA_BYTES(n_ranks), &exchange->area, error);
        if (r) {
                free(exchange);
                return r;
        }
        offer.number = exchange->area->number;
        offer.address = (uintptr_t)exchange->area->address;
        offer.bytes = exchange->area->bytes;
        offer.handle = exchange->area->handle;
        memset(ret_offer, 0, CLIENT_GPU_OFFER_BYTES);
        memcpy(ret_offer, &offer, sizeof(offer));
        /* relaxed; no kernel of this slot is about. */
        __atomic_store_n(&gpu->pinned->stop[slot], 0, __ATOMIC_RELAXED);
        rank_name(gpu, slot, handle);
        *ret_exchange = exchange;
        return RMX_OK;
}

/* Of this process, perhaps on another device. With the device current. */
static int connect_here(const struct client_gpu *gpu, const struct offer *offer, char **ret_address, char *error) {
        int device, can = 1;
        hipError_t r = hipSuccess;

        if (!area_is_here(offer, &device))
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

/* Of another process. With the device current. */
static int connect_there(struct client_gpu *gpu, const struct offer *offer, char **ret_address, char *error) {
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

/* The first numbers of rounds and calls; even, so that the next ones are odd on all ranks. */
static int connect_number(struct client_gpu_exchange *exchange, const unsigned char *offers, char *error) {
        struct client_gpu *gpu = exchange->gpu;
        struct exchange_header header = {0};
        struct offer first;
        hipError_t r;

        memcpy(&first, offers, sizeof(first));
        header.first = (uint32_t)first.first & ~UINT32_C(1);
        header.calls = header.first;
        for (uint32_t block = 0; block < EXCHANGE_BLOCKS; block++)
                header.sequence[block] = header.first;
        for (uint32_t block = 0; block < 2 * EXCHANGE_BLOCKS; block++)
                header.chunks[block] = header.first;
        pthread_mutex_lock(&gpu->copies);
        r = hipMemcpyAsync(exchange->area->address, &header, sizeof(header), hipMemcpyHostToDevice, gpu->stream);
        if (r == hipSuccess)
                r = hipStreamSynchronize(gpu->stream);
        pthread_mutex_unlock(&gpu->copies);
        return r == hipSuccess ? RMX_OK : gpu_fail(r, "numbering an exchange area", error);
}

int gpu_exchange_connect(struct client_gpu_exchange *exchange, const unsigned char *offers, char *error) {
        struct client_gpu *gpu = exchange->gpu;
        uint64_t name[2];
        struct scope scope;
        hipError_t r;
        int code = RMX_OK;

        if (process_name(name))
                return gpu_say(RMX_E_NO_MEMORY, error, "out of memory");
        pthread_mutex_lock(&gpu->exchanges_mutex);
        r = scope_enter(&scope, gpu->device);
        if (r != hipSuccess)
                code = gpu_fail(r, "hipSetDevice", error);
        for (uint32_t rank = 0; rank < exchange->n_ranks && !code; rank++) {
                char **address = &exchange->address[rank];
                struct offer offer;

                memcpy(&offer, offers + (size_t)rank * CLIENT_GPU_OFFER_BYTES, sizeof(offer));
                if (rank == exchange->rank)
                        *address = exchange->area->address;
                else if (offer.magic != OFFER_MAGIC || offer.layout != OFFER_LAYOUT(exchange->n_ranks) ||
                         offer.bytes != exchange->area->bytes)
                        code = gpu_say(RMX_E_UNSUPPORTED, error, "rank %u has no exchange area of this version", rank);
                else if (!memcmp(offer.process, name, sizeof(name)))
                        code = connect_here(gpu, &offer, address, error);
                else
                        code = connect_there(gpu, &offer, address, error);
        }
        if (!code)
                code = connect_number(exchange, offers, error);
        scope_leave(&scope);
        pthread_mutex_unlock(&gpu->exchanges_mutex);
        return code;
}

void gpu_exchange_stop(struct client_gpu_exchange *exchange) {
        /* relaxed; partner: exchange_over() in the kernels. The word says all there is. */
        __atomic_store_n(&exchange->gpu->pinned->stop[exchange->slot], 1, __ATOMIC_RELAXED);
}

void gpu_exchange_close(struct client_gpu_exchange *exchange, bool over) {
        if (!exchange)
                return;
        if (over)
                area_give(exchange->gpu, exchange->area);
        free(exchange);
}

/* ---- setting up -------------------------------------------------------------------------------------------------- */
void *gpu_own_stream(struct client_gpu *gpu, uint32_t slot) {
        hipStream_t *stream = &gpu->own_stream[slot];
        struct scope scope;

        pthread_mutex_lock(&gpu->exchanges_mutex);
        if (!*stream) {
                hipError_t r = scope_enter(&scope, gpu->device);

                if (r == hipSuccess)
                        r = hipStreamCreateWithFlags(stream, hipStreamNonBlocking);
                if (r != hipSuccess) {
                        (void)hipGetLastError();
                        *stream = NULL;
                }
                scope_leave(&scope);
        }
        pthread_mutex_unlock(&gpu->exchanges_mutex);
        return *stream;
}

/* (Device and host know it by the same address wherever host memory is mapped at all, but for old systems.) */
void *gpu_own_memory(struct client_gpu *gpu, uint32_t slot) {
        char *memory = NULL;

        pthread_mutex_lock(&gpu->exchanges_mutex);
        if (!gpu->own_memory) {
                const size_t bytes = (size_t)CLIENT_GPU_SLOTS * CLIENT_GPU_OWN_BYTES;
                struct scope scope;
                void *there = NULL;
                hipError_t r;

                r = scope_enter(&scope, gpu->device);
                if (r == hipSuccess)
                        r = hipHostMalloc((void **)&gpu->own_memory, bytes, hipHostMallocMapped);
                if (r == hipSuccess)
                        r = hipHostGetDevicePointer(&there, gpu->own_memory, 0);
                if (gpu->own_memory && (r != hipSuccess || there != gpu->own_memory)) {
                        (void)hipHostFree(gpu->own_memory);
                        gpu->own_memory = NULL;
                }
                if (r != hipSuccess) {
                        (void)hipGetLastError();
                        gpu->own_memory = NULL;
                }
                scope_leave(&scope);
                if (gpu->own_memory)
                        memset(gpu->own_memory, 0, bytes);
        }
        if (gpu->own_memory)
                memory = gpu->own_memory + (size_t)slot * CLIENT_GPU_OWN_BYTES;
        pthread_mutex_unlock(&gpu->exchanges_mutex);
        return memory;
}

void gpu_exchanges_free(struct client_gpu *gpu) {
        for (uint32_t slot = 0; slot < CLIENT_GPU_SLOTS; slot++)
                if (gpu->own_stream[slot])
                        (void)hipStreamDestroy(gpu->own_stream[slot]);
        if (gpu->own_memory)
                (void)hipHostFree(gpu->own_memory);
        while (gpu->mappings) {
                struct exchange_mapping *mapping = gpu->mappings;

                gpu->mappings = mapping->next;
                (void)hipIpcCloseMemHandle(mapping->address);
                free(mapping);
        }
        while (gpu->areas) {
                struct exchange_area *area = gpu->areas;

                gpu->areas = area->next;
                area_forget(area);
                (void)hipFree(area->address);
                free(area);
        }
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */
int gpu_exchange_call(struct client_gpu_exchange *exchange, const struct client_gpu_bell *bell, void *stream,
                      char *error) {
        struct client_gpu *gpu = exchange->gpu;
        struct exchange_arguments a;
        uint32_t kind;

        if (!exchange_cut(&a, bell, exchange->n_ranks, exchange->rank, &kind))
                return gpu_say(RMX_E_INTERNAL, error, "no exchange for this operation");
        memcpy(a.area, exchange->address, sizeof(a.area));
        a.bell_area = gpu->area;
        a.host = gpu->host_there;
        a.stop = &gpu->pinned_there->stop[exchange->slot];
        a.slot = exchange->slot;
        if (gpu_ended_records(bell))
                a.number = 0;
        return gpu_launch_exchange(gpu, exchange_kernel(a.n_ranks, kind, exchange_way_of(&a)), &a, bell, stream, error);
}
