/* SPDX-License-Identifier: MIT */
/*
 * Communicators whose requests the ranks' own kernels execute (exchange_run.h says how), in memory that they map from
 * each other (exchange_area.c).
 *
 * A program that is wrong may have a rank call once more in a communicator that another rank has left, and then write
 * to an area that serves another one by now. So rounds and calls are not numbered from 0 but from a random number,
 * which is that of rank 0's area: packets that come astray have the wrong flag, but for one chance in 2^32 (lines on
 * AMD's GPUs: in 65,535), and are waited for no less than before. That does not hold for chunks, whose data carry no
 * number: those may become part of another communicator's result, and a packet or flag that comes after the right one
 * hides it for ever.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/hip/exchange_area.h"
#include "client/hip/exchange_kernel.h"

#define OFFER_MAGIC 0x31584552u /* "REX1" */
/* Ranks whose libraries differ in these would not exchange with one another. */
#define OFFER_LAYOUT(n_ranks)                                                                                          \
        (CLIENT_GPU_EXCHANGE_VERSION << 24 | EXCHANGE_BLOCKS_OF(n_ranks) << 16 | EXCHANGE_DEPTH(n_ranks) << 12 |       \
         EXCHANGE_THREADS)

/* What another rank needs to know. */
struct offer {
        uint32_t magic;
        uint32_t layout;
        uint64_t process[2];
        struct exchange_offer area;
        struct exchange_offer heads; /* memory that the area's head is in, */
        uint64_t head;               /* so many bytes behind its beginning */
        uint64_t first;              /* of rounds and calls, if it is rank 0's */
        uint32_t max_blocks;         /* that this rank allows, at least 1 */
        uint32_t lines;              /* 1: they arrive whole, as far as this rank knows */
};
_Static_assert(sizeof(struct offer) <= CLIENT_GPU_OFFER_BYTES, "an offer fits");

struct client_gpu_exchange {
        struct client_gpu *gpu;
        struct exchange_area *area;
        uint32_t slot, n_ranks, rank;
        uint32_t max_blocks;           /* that all ranks allow */
        bool lines;                    /* all ranks have said that they arrive whole */
        bool clusters;                 /* may blocks be made to lie side by side? */
        bool transfers;                /* there have been some */
        char *address[EXCHANGE_RANKS]; /* by rank, */
        char *head[EXCHANGE_RANKS];    /* too */
};

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

/* See exchange_leave.h. */
static bool may_cluster(void) {
        const char *word = getenv("RAILMUX_GPU_CLUSTERS");

        return word && strcmp(word, "1") == 0;
}

static uint32_t blocks_bound(uint32_t max_blocks) {
        return max_blocks ? max_blocks : UINT32_MAX;
}

static hipError_t kernels_load(struct client_gpu *gpu) {
        hipFuncAttributes attributes;
        hipError_t r = hipSuccess;

        for (uint32_t n = 2; n <= EXCHANGE_RANKS; n++)
                for (uint32_t i = 0; i < EXCHANGE_WAYS * EXCHANGE_KINDS && r == hipSuccess; i++)
                        r = hipFuncGetAttributes(&attributes, exchange_kernel(n, i / EXCHANGE_WAYS,
                                                                              (enum exchange_way)(i % EXCHANGE_WAYS)));
        if (r == hipSuccess)
                r = hipFuncGetAttributes(&attributes, pair_kernel());
        if (r == hipSuccess)
                r = hipFuncGetAttributes(&attributes, pair_ahead_kernel());
        if (r == hipSuccess)
                __atomic_store_n(&gpu->exchanges_loaded, true, __ATOMIC_RELEASE); /* partner: calls_prepare() */
        return r;
}

/* What calls of the slot need. A kernel that is loaded at its first launch waits until no other one runs in the
 * process, and those may wait for ranks that are as far by then. So all are loaded with the first communicator,
 * whatever ranks it has, which takes 6 ms more (H200). */
static int calls_prepare(struct client_gpu *gpu, uint32_t slot, char *error) {
        struct scope scope;
        hipError_t r;

        r = scope_enter(&scope, gpu->device);
        if (r == hipSuccess && !__atomic_load_n(&gpu->exchanges_loaded, __ATOMIC_ACQUIRE)) /* partner: kernels_load() */
                r = kernels_load(gpu);
        if (r == hipSuccess)
                r = gpu_ended_open(gpu, slot);
        scope_leave(&scope);
        return r == hipSuccess ? RMX_OK : gpu_fail(r, "preparing exchange kernels", error);
}

/* ---- opening, connecting, closing -------------------------------------------------------------------------------- */
/* Whose words of this slot's kernels the executor reads. No kernel of the slot is about. */
static void rank_name(const struct client_gpu *gpu, uint32_t slot, uint32_t handle) {
        struct bell_exchanged *exchanged = &gpu->host->exchanged[slot];

        /* relaxed, then release; partner: plane_exchanged() in the executor, which must not take one rank's
         * number for another one's. */
        __atomic_store_n(&exchanged->handle, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&exchanged->differs, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&exchanged->pair, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&exchanged->begun, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&exchanged->handle, handle, __ATOMIC_RELEASE);
}

/* Do lines go from and to every other device there is over links that deliver 128 bytes as one? NVIDIA's NVLink does;
 * over PCIe, where parts of them may arrive in any order, chunks it is. Who the other ranks are is not known yet, and
 * where no other device is to be seen, nothing is. */
static bool lines_arrive_whole(int device) {
#if defined(RAILMUX_CUDA)
        int n = 0, whole = 0;

        if (hipGetDeviceCount(&n) != hipSuccess)
                n = 0;
        for (int other = 0; other < n; other++) {
                if (other == device)
                        continue;
                if (hipDeviceGetP2PAttribute(&whole, hipDevP2PAttrNativeAtomicSupported, device, other) != hipSuccess ||
                    !whole) {
                        (void)hipGetLastError();
                        return false;
                }
        }
        return whole;
#else
        (void)device; /* AMD's have a flag in each eight bytes */
        return true;
#endif
}

int gpu_exchange_open(struct client_gpu *gpu, uint32_t slot, uint32_t handle, uint32_t n_ranks, uint32_t rank,
                      uint32_t max_blocks, struct client_gpu_exchange **ret_exchange, unsigned char *ret_offer,
                      char *error) {
        struct offer offer = {.magic = OFFER_MAGIC,
                              .layout = OFFER_LAYOUT(n_ranks),
                              .max_blocks = blocks_bound(max_blocks),
                              .lines = lines_arrive_whole(gpu->device)};
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
        *exchange = (struct client_gpu_exchange){.gpu = gpu,
                                                 .slot = slot,
                                                 .n_ranks = n_ranks,
                                                 .rank = rank,
                                                 .max_blocks = blocks_bound(max_blocks),
                                                 .lines = offer.lines,
                                                 .clusters = may_cluster()};
        r = calls_prepare(gpu, slot, error);
        if (!r)
                r = exchange_area_take(gpu, EXCHANGE_AREA_BYTES(n_ranks), &exchange->area, error);
        if (r) {
                free(exchange);
                return r;
        }
        exchange_area_offer(exchange->area, &offer.area, &offer.heads, &offer.head);
        memset(ret_offer, 0, CLIENT_GPU_OFFER_BYTES);
        memcpy(ret_offer, &offer, sizeof(offer));
        /* relaxed; no kernel of this slot is about. */
        __atomic_store_n(&gpu->pinned->stop[slot], 0, __ATOMIC_RELAXED);
        rank_name(gpu, slot, handle);
        *ret_exchange = exchange;
        return RMX_OK;
}

static void head_number(char *head, uint32_t first, uint32_t n_ranks) {
        struct exchange_header *header = (struct exchange_header *)(void *)head;
        struct pair_words *pairs = (struct pair_words *)(void *)(head + EXCHANGE_OFFSET_PAIR);
        uint32_t *lanes = (uint32_t *)(void *)(head + EXCHANGE_OFFSET_LANES);
        uint32_t *warps = (uint32_t *)(void *)(head + EXCHANGE_OFFSET_WARPS);

        header->first = header->calls = first;
        for (uint32_t block = 0; block < EXCHANGE_BLOCKS; block++)
                header->sequence[block] = first;
        for (uint32_t block = 0; block < 2 * EXCHANGE_BLOCKS; block++)
                header->chunks[block] = first;
        for (uint32_t warp = 0; warp < EXCHANGE_LINE_BLOCKS(n_ranks) * EXCHANGE_LANES; warp++)
                warps[warp] = first;
        for (uint32_t rank = 0; rank < n_ranks; rank++) {
                pairs[rank].sends = pairs[rank].receives = first;
                for (uint32_t cell = 0; cell < PAIR_CELLS; cell++) /* of no turn that is near */
                        pairs[rank].told[cell] = (uint64_t)first << 32;
        }
        for (size_t i = 0; i < PAIR_LANE_WORDS(n_ranks); i++)
                lanes[i] = first;
}

/* The first numbers of rounds, calls and transfers; even, so that the next ones are odd on all ranks. */
static int connect_number(struct client_gpu_exchange *exchange, const unsigned char *offers, char *error) {
        struct client_gpu *gpu = exchange->gpu;
        char *head = calloc(1, EXCHANGE_HEAD_BYTES);
        struct offer first;
        hipError_t r;

        if (!head)
                return gpu_say(RMX_E_NO_MEMORY, error, "out of memory");
        memcpy(&first, offers, sizeof(first));
        head_number(head, (uint32_t)first.first & ~UINT32_C(1), exchange->n_ranks);
        pthread_mutex_lock(&gpu->copies);
        r = hipMemcpyAsync(exchange->area->head, head, EXCHANGE_HEAD_BYTES, hipMemcpyHostToDevice, gpu->stream);
        if (r == hipSuccess)
                r = hipStreamSynchronize(gpu->stream);
        pthread_mutex_unlock(&gpu->copies);
        free(head);
        return r == hipSuccess ? RMX_OK : gpu_fail(r, "numbering an exchange area", error);
}

/* What a rank offers, in memory of this process or another one. With the device current. */
static int connect_rank(struct client_gpu_exchange *exchange, uint32_t rank, const struct offer *offer,
                        const uint64_t name[static 2], char *error) {
        const bool here = !memcmp(offer->process, name, sizeof(offer->process));
        int r;

        if (offer->magic != OFFER_MAGIC || offer->layout != OFFER_LAYOUT(exchange->n_ranks) ||
            offer->area.bytes != exchange->area->memory.bytes || offer->heads.bytes != EXCHANGE_HEADS_BYTES ||
            offer->max_blocks < 1 || offer->head % EXCHANGE_HEAD_BYTES ||
            offer->head > EXCHANGE_HEADS_BYTES - EXCHANGE_HEAD_BYTES)
                return gpu_say(RMX_E_UNSUPPORTED, error, "rank %u has no exchange area of this version", rank);
        r = exchange_area_map(exchange->gpu, &offer->area, here, &exchange->address[rank], error);
        if (!r)
                r = exchange_area_map(exchange->gpu, &offer->heads, here, &exchange->head[rank], error);
        if (!r)
                exchange->head[rank] += offer->head;
        if (!r && offer->max_blocks < exchange->max_blocks)
                exchange->max_blocks = offer->max_blocks;
        if (!r && !offer->lines)
                exchange->lines = false;
        return r;
}

int gpu_exchange_connect(struct client_gpu_exchange *exchange, const unsigned char *offers, char *error) {
        struct client_gpu *gpu = exchange->gpu;
        uint64_t name[2];
        struct scope scope;
        hipError_t r;
        int code = RMX_OK;

        if (process_name(name))
                return gpu_say(RMX_E_NO_MEMORY, error, "out of memory");
        exchange->address[exchange->rank] = exchange->area->memory.address;
        exchange->head[exchange->rank] = exchange->area->head;
        pthread_mutex_lock(&gpu->exchanges_mutex);
        r = scope_enter(&scope, gpu->device);
        if (r != hipSuccess)
                code = gpu_fail(r, "hipSetDevice", error);
        for (uint32_t rank = 0; rank < exchange->n_ranks && !code; rank++) {
                struct offer offer;

                memcpy(&offer, offers + (size_t)rank * CLIENT_GPU_OFFER_BYTES, sizeof(offer));
                if (rank != exchange->rank)
                        code = connect_rank(exchange, rank, &offer, name, error);
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
                exchange_area_give(exchange->gpu, exchange->area, exchange->transfers ? exchange->n_ranks : 0);
        else if (exchange->transfers)
                exchange_area_keep(exchange->gpu, exchange->area);
        free(exchange);
}

/* ---- setting up -------------------------------------------------------------------------------------------------- */
/* Of the highest priority: what is started beside the program's kernels keeps the other ranks waiting, and they do not.
 * So its blocks are the first where processors become free. */
static hipError_t own_stream_create(hipStream_t *ret_stream) {
        int least, greatest;
        hipError_t r;

        r = hipDeviceGetStreamPriorityRange(&least, &greatest);
        return r == hipSuccess ? hipStreamCreateWithPriority(ret_stream, hipStreamNonBlocking, greatest) : r;
}

void *gpu_own_stream(struct client_gpu *gpu, uint32_t slot) {
        hipStream_t *stream = &gpu->own_stream[slot];
        struct scope scope;

        pthread_mutex_lock(&gpu->exchanges_mutex);
        if (!*stream) {
                hipError_t r = scope_enter(&scope, gpu->device);

                if (r == hipSuccess)
                        r = own_stream_create(stream);
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
        exchange_areas_free(gpu);
}

uint32_t *gpu_exchange_gate(const struct client_gpu_exchange *exchange) {
        return &((struct exchange_header *)(void *)exchange->head[exchange->rank])->failed;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */
/* What every kernel has to know. */
static void call_place(const struct client_gpu_exchange *exchange, struct exchange_arguments *a) {
        const struct client_gpu *gpu = exchange->gpu;

        memcpy(a->area, exchange->address, sizeof(a->area));
        memcpy(a->head, exchange->head, sizeof(a->head));
        a->bell_area = gpu->area;
        a->host = gpu->host_there;
        a->stop = &gpu->pinned_there->stop[exchange->slot];
        a->slot = exchange->slot;
}

static int pairs_launch(struct client_gpu_exchange *exchange, struct pair_arguments *p,
                        const struct client_gpu_bell *bell, void *stream, char *error) {
        struct client_gpu_bell behind = *bell;
        int r;

        exchange->transfers = true; /* with the device's lock, as all calls of a comm */
        call_place(exchange, &p->all);
        if (gpu_ended_records(exchange->gpu, bell))
                p->all.number = 0;
        if (p->ahead) {
                r = gpu_launch_ahead(exchange->gpu, pair_ahead_kernel(), p, bell, stream, error);
                if (r)
                        return r;
                behind.after = 0;
        }
        r = gpu_launch_exchange(exchange->gpu, pair_kernel(), p->all.blocks, 1, p, &behind, stream, error);
        if (r && r != CLIENT_GPU_UNTOLD && p->ahead && !bell->captured)
                gpu_exchange_stop(exchange); /* or one warp would stand on the stream until something comes */
        return r;
}

int gpu_exchange_call(struct client_gpu_exchange *exchange, const struct client_gpu_bell *bell, void *stream,
                      char *error) {
        struct client_gpu *gpu = exchange->gpu;
        struct exchange_arguments a;
        struct pair_arguments p;
        uint32_t kind;

        if (pair_cut_collective(&p, bell, exchange->n_ranks, exchange->rank, exchange->max_blocks))
                return pairs_launch(exchange, &p, bell, stream, error);
        if (!exchange_cut(&a, bell, exchange->n_ranks, exchange->rank, exchange->max_blocks, exchange->lines, &kind))
                return gpu_say(RMX_E_INTERNAL, error, "no exchange for this operation");
        call_place(exchange, &a);
        a.gated = bell->gate != NULL;
        if (gpu_ended_records(gpu, bell))
                a.number = 0;
        return gpu_launch_exchange(gpu, exchange_kernel(a.n_ranks, kind, exchange_way_of(&a)), a.blocks,
                                   exchange->clusters ? exchange_together(&a) : 1, &a, bell, stream, error);
}

int gpu_exchange_pairs(struct client_gpu_exchange *exchange, const struct client_gpu_bell *bells, uint32_t n,
                       void *stream, char *error) {
        struct pair_arguments p;

        pair_cut(&p, bells, n, exchange->n_ranks, exchange->rank, exchange->max_blocks);
        return pairs_launch(exchange, &p, bells, stream, error);
}
