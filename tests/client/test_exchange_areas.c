/* SPDX-License-Identifier: MIT */
/* Exchange areas (client/hip/exchange.c, exchange_area.c) against a runtime of this file's, without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/hip/exchange_area.h"
#include "client/hip/exchange_kernel.h"
#include "gpu/device/bell.h"
#include "ring/line.h"

#define MAX_CALLS 64u
#define HANDLE    7u /* of the rank in slot 0 */

/* The offset of what an offer says first of all of its process, see struct offer. */
#define OFFER_PROCESS 8u
#define OFFER_NUMBER  24u
#define OFFER_ADDRESS 32u
#define OFFER_BYTES   40u
#define OFFER_HANDLE  48u
#define OFFER_HEADS   88u /* behind the same of the area */
#define OFFER_HEAD    200u
#define OFFER_BLOCKS  216u
#define BEFORE        64u /* an allocation its length stands */

static struct {
        uint32_t allocations, opens, closes, streams, host, loaded, peers; /* now, or so often */
        uint32_t fail_at;                                                  /* the n-th call that can fail; 0: none */
        uint32_t calls;
        bool no_peer, peer_enabled, elsewhere, short_head;
        size_t short_by, inside; /* what is mapped is shorter, or begins before */
        int device;
        struct exchange_arguments launched;
        struct pair_arguments pairs;
        const void *kernel;
        uint32_t launches;
} fake;

static hipError_t may_fail(void) {
        return ++fake.calls == fake.fail_at ? hipErrorOutOfMemory : hipSuccess;
}

/* ---- the runtime ------------------------------------------------------------------------------------------------- */
hipError_t hipGetLastError(void) {
        return hipSuccess;
}

hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer) {
        assert_int_not_equal(device, peer);
        *can = !fake.no_peer;
        return may_fail();
}

hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int flags) {
        (void)peer;
        assert_int_equal(flags, 0);
        fake.peers++;
        return fake.peer_enabled ? hipErrorPeerAccessAlreadyEnabled : may_fail();
}

hipError_t hipExtMallocWithFlags(void **address, size_t bytes, unsigned int flags) {
        hipError_t r = may_fail();

        (void)flags;
        if (r != hipSuccess)
                return r;
        *address = malloc(BEFORE + bytes);
        assert_non_null(*address);
        memcpy(*address, &bytes, sizeof(bytes));
        *address = (char *)*address + BEFORE;
        memset(*address, 0xa5, bytes);
        fake.allocations++;
        return hipSuccess;
}

hipError_t hipFree(void *address) {
        free((char *)address - BEFORE);
        fake.allocations--;
        return hipSuccess;
}

hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *bytes, hipDeviceptr_t at) {
        *base = (char *)at - fake.inside;
        memcpy(bytes, (char *)at - BEFORE, sizeof(*bytes));
        *bytes = fake.short_by > *bytes ? 0 : *bytes - fake.short_by;
        if (fake.short_head && *bytes == EXCHANGE_HEADS_BYTES)
                *bytes -= 1;
        return may_fail();
}

hipError_t hipHostMalloc(void **address, size_t bytes, unsigned int flags) {
        hipError_t r = may_fail();

        assert_int_equal(flags, hipHostMallocMapped);
        if (r != hipSuccess)
                return r;
        *address = malloc(bytes);
        memset(*address, 0xa5, bytes);
        fake.host++;
        return hipSuccess;
}

hipError_t hipHostFree(void *address) {
        free(address);
        fake.host--;
        return hipSuccess;
}

hipError_t hipHostGetDevicePointer(void **there, void *address, unsigned int flags) {
        (void)flags;
        *there = fake.elsewhere ? (char *)address + 64 : address;
        return may_fail();
}

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *address) {
        memset(handle, 0, sizeof(*handle));
        memcpy(handle, &address, sizeof(address));
        return may_fail();
}

/* The mapping is the memory itself. */
hipError_t hipIpcOpenMemHandle(void **address, hipIpcMemHandle_t handle, unsigned int flags) {
        hipError_t r = may_fail();

        assert_int_equal(flags, hipIpcMemLazyEnablePeerAccess);
        if (r != hipSuccess)
                return r;
        memcpy(address, &handle, sizeof(*address));
        fake.opens++;
        return hipSuccess;
}

hipError_t hipIpcCloseMemHandle(void *address) {
        (void)address;
        fake.closes++;
        return hipSuccess;
}

hipError_t hipMemsetAsync(void *to, int value, size_t bytes, hipStream_t stream) {
        (void)stream;
        memset(to, value, bytes);
        return may_fail();
}

hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
        (void)kind;
        (void)stream;
        memcpy(to, from, bytes);
        return may_fail();
}

hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest) {
        *least = 0;
        *greatest = -5;
        return may_fail();
}

hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned int flags, int priority) {
        hipError_t r = may_fail();

        assert_int_equal(flags, hipStreamNonBlocking);
        assert_int_equal(priority, -5);
        if (r == hipSuccess)
                *stream = (hipStream_t)(uintptr_t)(0x100 + 16 * ++fake.streams);
        return r;
}

hipError_t hipStreamDestroy(hipStream_t stream) {
        assert_non_null(stream);
        fake.streams--;
        return hipSuccess;
}

hipError_t hipStreamSynchronize(hipStream_t stream) {
        (void)stream;
        return may_fail();
}

hipError_t hipFuncGetAttributes(hipFuncAttributes *attributes, const void *function) {
        attributes->registers = 64;
        assert_non_null(function);
        fake.loaded++;
        return may_fail();
}

/* ---- what other files of the plug-in have ------------------------------------------------------------------------ */
int gpu_say(int code, char *error, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(error, CLIENT_GPU_TEXT, format, arguments);
        va_end(arguments);
        return code;
}

int gpu_fail(hipError_t r, const char *call, char *error) {
        return gpu_say(r == hipErrorOutOfMemory ? RMX_E_NO_MEMORY : RMX_E_INTERNAL, error, "%s: %d", call, r);
}

hipError_t scope_enter(struct scope *scope, int device) {
        *scope = (struct scope){.device = fake.device, .moved = true};
        fake.device = device;
        return hipSuccess;
}

void scope_leave(struct scope *scope) {
        if (scope->moved)
                fake.device = scope->device;
}

const void *pair_kernel(void) {
        return "pairs";
}

const void *exchange_kernel(uint32_t n_ranks, uint32_t kind, enum exchange_way way) {
        static const char kernels[EXCHANGE_RANKS + 1][EXCHANGE_KINDS][EXCHANGE_WAYS];

        return &kernels[n_ranks][kind][way];
}

hipError_t gpu_ended_open(struct client_gpu *gpu, uint32_t slot) {
        (void)gpu;
        assert_true(slot < CLIENT_GPU_SLOTS);
        return may_fail();
}

bool gpu_ended_records(const struct client_gpu_bell *bell) {
        (void)bell;
        return false;
}

int gpu_launch_exchange(struct client_gpu *gpu, const void *kernel, uint32_t blocks, void *arguments,
                        const struct client_gpu_bell *bell, void *stream, char *error) {
        (void)gpu;
        (void)bell;
        (void)stream;
        (void)error;
        fake.launched = *(struct exchange_arguments *)arguments; /* with which those of transfers begin */
        assert_int_equal(fake.launched.blocks, blocks);
        if (kernel == pair_kernel())
                fake.pairs = *(struct pair_arguments *)arguments;
        fake.kernel = kernel;
        fake.launches++;
        return RMX_OK;
}

/* ---- a process --------------------------------------------------------------------------------------------------- */
static struct client_gpu *gpu_new(int device) {
        struct client_gpu *gpu = calloc(1, sizeof(*gpu));

        gpu->device = device;
        gpu->pinned = gpu->pinned_there = calloc(1, sizeof(*gpu->pinned));
        gpu->host = calloc(1, sizeof(*gpu->host));
        gpu->host_there = (struct bell_host *)(uintptr_t)0x7000;
        gpu->area = (char *)(uintptr_t)0x9000;
        pthread_mutex_init(&gpu->copies, NULL);
        pthread_mutex_init(&gpu->exchanges_mutex, NULL);
        return gpu;
}

static void gpu_end(struct client_gpu *gpu) {
        gpu_exchanges_free(gpu);
        pthread_mutex_destroy(&gpu->copies);
        pthread_mutex_destroy(&gpu->exchanges_mutex);
        free(gpu->pinned);
        free(gpu->host);
        free(gpu);
}

static char error[CLIENT_GPU_TEXT];

static uint32_t max_blocks; /* of ranks that are opened from now on */

static struct client_gpu_exchange *open_rank(struct client_gpu *gpu, uint32_t slot, uint32_t n, uint32_t rank,
                                             unsigned char *offers) {
        struct client_gpu_exchange *exchange = NULL;

        assert_int_equal(gpu_exchange_open(gpu, slot, HANDLE + slot, n, rank, max_blocks, &exchange,
                                           offers + (size_t)rank * CLIENT_GPU_OFFER_BYTES, error),
                         RMX_OK);
        return exchange;
}

/* Makes an offer that of another process. */
static void far(unsigned char *offers, uint32_t rank) {
        offers[(size_t)rank * CLIENT_GPU_OFFER_BYTES + OFFER_PROCESS] ^= 0xff;
}

static void launch(struct client_gpu_exchange *exchange, size_t bytes) {
        static char in[8], out[8];
        struct client_gpu_bell bell = {.in = in, .out = out, .in_bytes = bytes, .out_bytes = bytes};

        bell.word[RING_W_HEAD] = RING_ABI << 24 | RING_OP_ALL_REDUCE << 16 | RMX_BFLOAT16 << 8 | RMX_SUM;
        bell.word[RING_W_COUNT_LO] = (uint32_t)(bytes / 2);
        assert_int_equal(gpu_exchange_call(exchange, &bell, NULL, error), RMX_OK);
}

/* Of three ranks: nobody has been told anything, all counts are this. */
static void transfers_begin(const char *head, uint32_t first) {
        const struct pair_words *words = (const struct pair_words *)(const void *)(head + EXCHANGE_OFFSET_PAIR);
        const uint32_t *lanes = (const uint32_t *)(const void *)(head + EXCHANGE_OFFSET_LANES);

        for (uint32_t rank = 0; rank < 3; rank++) {
                for (uint32_t i = 0; i < PAIR_CELLS; i++)
                        assert_int_equal(words[rank].told[i], 0);
                assert_int_equal(words[rank].sends, first);
                assert_int_equal(words[rank].receives, first);
        }
        for (size_t i = 0; i < PAIR_LANE_WORDS(3); i++)
                assert_int_equal(lanes[i], first);
}

static int setup(void **state) {
        (void)state;
        memset(&fake, 0, sizeof(fake));
        return 0;
}

/* Everything was given back. */
static int teardown(void **state) {
        (void)state;
        assert_int_equal(fake.allocations, 0);
        assert_int_equal(fake.host, 0);
        assert_int_equal(fake.streams, 0);
        assert_int_equal(fake.opens, fake.closes);
        assert_int_equal(fake.device, 0);
        return 0;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
/* Two ranks of one process on two devices: no handle is opened. */
static void test_here(void **state) {
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[2] = {gpu_new(0), gpu_new(1)};
        struct client_gpu_exchange *x[2];

        (void)state;
        for (uint32_t r = 0; r < 2; r++)
                x[r] = open_rank(gpu[r], 5 + r, 2, r, offers);
        for (uint32_t r = 0; r < 2; r++)
                assert_int_equal(gpu_exchange_connect(x[r], offers, error), RMX_OK);
        assert_int_equal(fake.opens, 0);
        assert_int_equal(fake.peers, 4); /* each: for the area, and for its head */
        launch(x[1], 4096);
        assert_ptr_equal(fake.launched.area[0], gpu[0]->areas->memory.address);
        assert_ptr_equal(fake.launched.area[1], gpu[1]->areas->memory.address);
        assert_ptr_equal(fake.launched.head[0], gpu[0]->areas->head);
        assert_ptr_equal(fake.launched.head[1], gpu[1]->areas->head);
        assert_ptr_equal(fake.launched.bell_area, gpu[1]->area);
        assert_ptr_equal(fake.launched.host, gpu[1]->host_there);
        assert_ptr_equal(fake.launched.stop, &gpu[1]->pinned->stop[6]);
        assert_int_equal(fake.launched.slot, 6);
        assert_int_equal(fake.launched.rank, 1);
        assert_ptr_equal(fake.kernel, exchange_kernel(2, EXCHANGE_BFLOAT16, EXCHANGE_SHALLOW));
        assert_int_equal(fake.launched.units, 0);
        launch(x[1], 512 << 10);
        assert_ptr_equal(fake.kernel, exchange_kernel(2, EXCHANGE_BFLOAT16, EXCHANGE_DEEP));
        assert_true(fake.launched.blocks <= EXCHANGE_BLOCKS_OF(2));
        launch(x[1], 10 << 20);
        assert_ptr_equal(fake.kernel, exchange_kernel(2, EXCHANGE_BFLOAT16, EXCHANGE_BULK));
        assert_true(fake.launched.blocks <= EXCHANGE_CHUNK_BLOCKS(2));
        assert_true(fake.launched.units && fake.launched.units <= EXCHANGE_UNITS(2));
        assert_true((uint64_t)fake.launched.blocks * EXCHANGE_THREADS * fake.launched.units * fake.launched.tiles *
                            16 >=
                    10 << 20);

        gpu_exchange_stop(x[0]);
        assert_int_equal(gpu[0]->pinned->stop[5], 1);
        assert_int_equal(gpu[1]->pinned->stop[6], 0);
        for (uint32_t r = 0; r < 2; r++) {
                gpu_exchange_close(x[r], true);
                gpu_end(gpu[r]);
        }
}

/* Areas are zeroes but for their first numbers, which are the same on all ranks and others in the next communicator. */
static void test_numbers(void **state) {
        unsigned char offers[3 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[3] = {gpu_new(0), gpu_new(0), gpu_new(0)};
        uint32_t first[2];

        (void)state;
        for (uint32_t round = 0; round < 2; round++) {
                struct client_gpu_exchange *x[3];

                for (uint32_t r = 0; r < 3; r++)
                        x[r] = open_rank(gpu[r], 0, 3, r, offers);
                for (uint32_t r = 0; r < 3; r++) {
                        const char *area = gpu[r]->areas->memory.address, *head = gpu[r]->areas->head;
                        const struct exchange_header *header = (const struct exchange_header *)(const void *)head;

                        assert_int_equal(gpu_exchange_connect(x[r], offers, error), RMX_OK);
                        if (r == 0)
                                first[round] = header->first;
                        assert_int_equal(header->first, first[round]);
                        assert_int_equal(header->first % 2, 0);
                        assert_int_equal(header->calls, header->first);
                        for (uint32_t b = 0; b < EXCHANGE_BLOCKS; b++)
                                assert_int_equal(header->sequence[b], first[round]);
                        for (size_t b = 0; b < 2 * EXCHANGE_BLOCKS; b++)
                                assert_int_equal(header->chunks[b], first[round]);
                        for (size_t i = sizeof(*header); i < EXCHANGE_OFFSET_PAIR; i++)
                                if (head[i])
                                        fail_msg("byte %zu of a head is not 0", i);
                        transfers_begin(head, first[round]);
                        for (size_t i = 0; i < EXCHANGE_AREA_BYTES(3); i++)
                                if (area[i])
                                        fail_msg("byte %zu of an area is not 0", i);
                        memset(gpu[r]->areas->memory.address, 0x77, EXCHANGE_AREA_BYTES(3)); /* used */
                        memset(gpu[r]->areas->head, 0x77, EXCHANGE_HEAD_BYTES);
                        assert_null(gpu[r]->areas->next);
                        gpu_exchange_close(x[r], true);
                }
        }
        assert_int_not_equal(first[0], first[1]);
        for (uint32_t r = 0; r < 3; r++)
                gpu_end(gpu[r]);
}

/* Another process's area is mapped once, however many communicators it serves in turn. */
static void test_there(void **state) {
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu = gpu_new(0), *other = gpu_new(0);
        struct client_gpu_exchange *x, *y;

        (void)state;
        for (uint32_t i = 0; i < 3; i++) {
                x = open_rank(gpu, 0, 2, 0, offers);
                y = open_rank(other, 0, 2, 1, offers);
                far(offers, 1);
                assert_int_equal(gpu_exchange_connect(x, offers, error), RMX_OK);
                assert_int_equal(fake.opens, 2); /* the area, and what its head is in */
                launch(x, 4096);
                assert_ptr_equal(fake.launched.area[1], other->areas->memory.address);
                assert_ptr_equal(fake.launched.head[1], other->areas->head);
                gpu_exchange_close(x, true);
                gpu_exchange_close(y, true);
        }
        /* The same handle of another area: memory was given back, and came again at its place. */
        x = open_rank(gpu, 0, 2, 0, offers);
        y = open_rank(other, 0, 2, 1, offers);
        far(offers, 1);
        offers[CLIENT_GPU_OFFER_BYTES + OFFER_NUMBER] ^= 1;
        assert_int_equal(gpu_exchange_connect(x, offers, error), RMX_OK);
        assert_int_equal(fake.opens, 3);
        gpu_exchange_close(x, true);
        gpu_exchange_close(y, true);
        assert_int_equal(fake.closes, 0);
        gpu_end(gpu);
        gpu_end(other);
}

/* One whose kernels were given up is not used again before the end. */
static void test_kept(void **state) {
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu = gpu_new(0);
        struct client_gpu_exchange *x = open_rank(gpu, 0, 2, 0, offers);
        const char *first = gpu->areas->memory.address;

        (void)state;
        gpu_exchange_close(x, false);
        x = open_rank(gpu, 0, 2, 0, offers);
        assert_int_equal(fake.allocations, 3); /* and their heads */
        assert_ptr_not_equal(gpu->areas->memory.address, first);
        gpu_exchange_close(x, true);
        x = open_rank(gpu, 0, 2, 0, offers);
        assert_int_equal(fake.allocations, 3);
        gpu_exchange_stop(x);
        gpu_exchange_close(x, true);
        gpu_exchange_close(NULL, true);
        x = open_rank(gpu, 0, 2, 0, offers); /* the word of the one before does not stop it */
        assert_int_equal(gpu->pinned->stop[0], 0);
        gpu_exchange_close(x, true);
        gpu_end(gpu);
}

/* Heads of many areas share memory, and no two are the same. */
static void test_heads(void **state) {
        const uint32_t n = (uint32_t)(EXCHANGE_HEADS_BYTES / EXCHANGE_HEAD_BYTES) + 2;
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu = gpu_new(0);
        struct client_gpu_exchange *x[64];

        (void)state;
        assert_true(n < 64 && n <= CLIENT_GPU_SLOTS);
        for (uint32_t i = 0; i < n; i++) {
                x[i] = open_rank(gpu, i, 8, 0, offers);
                memset(gpu->areas->head, (int)i + 1, EXCHANGE_HEAD_BYTES);
        }
        assert_int_equal(fake.allocations, n + 2);
        for (struct exchange_area *area = gpu->areas; area; area = area->next)
                for (size_t i = 1; i < EXCHANGE_HEAD_BYTES; i++)
                        assert_int_equal(area->head[i], area->head[0]);
        for (struct exchange_area *a = gpu->areas; a; a = a->next)
                for (struct exchange_area *b = a->next; b; b = b->next)
                        assert_int_not_equal(a->head[0], b->head[0]);
        for (uint32_t i = 0; i < n; i++)
                gpu_exchange_close(x[i], true);
        gpu_end(gpu);
}

/* Offers are the other ranks' words. */
static void test_wrong(void **state) {
        static const struct {
                uint32_t at, rank;
        } spoilt[] = {
                {0, 1},
                {4, 1},
                {OFFER_NUMBER, 1},
                {OFFER_ADDRESS, 1},
                {OFFER_BYTES, 1},
                {OFFER_HEADS + OFFER_NUMBER, 1},
                {OFFER_HEADS + OFFER_ADDRESS, 1},
                {OFFER_HEADS + OFFER_BYTES, 1},
                {OFFER_HEAD, 1},     /* between two heads, */
                {OFFER_HEAD + 7, 1}, /* and far behind the last one */
        };
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[2] = {gpu_new(0), gpu_new(1)};
        struct client_gpu_exchange *x[2];

        (void)state;
        for (uint32_t r = 0; r < 2; r++)
                x[r] = open_rank(gpu[r], 0, 2, r, offers);
        for (uint32_t i = 0; i < sizeof(spoilt) / sizeof(spoilt[0]); i++) {
                unsigned char *byte = offers + spoilt[i].rank * CLIENT_GPU_OFFER_BYTES + spoilt[i].at;

                *byte ^= 0x10;
                assert_int_equal(gpu_exchange_connect(x[0], offers, error), RMX_E_UNSUPPORTED);
                *byte ^= 0x10;
        }
        for (uint64_t last = EXCHANGE_HEADS_BYTES / EXCHANGE_HEAD_BYTES, i = last - 1; i <= last; i++) {
                const uint64_t at = i * EXCHANGE_HEAD_BYTES;

                memcpy(offers + CLIENT_GPU_OFFER_BYTES + OFFER_HEAD, &at, sizeof(at));
                assert_int_equal(gpu_exchange_connect(x[0], offers, error), i < last ? RMX_OK : RMX_E_UNSUPPORTED);
        }
        memset(offers + CLIENT_GPU_OFFER_BYTES, 0, CLIENT_GPU_OFFER_BYTES); /* a rank that has none */
        assert_int_equal(gpu_exchange_connect(x[0], offers, error), RMX_E_UNSUPPORTED);
        assert_int_equal(fake.opens, 0);
        for (uint32_t r = 0; r < 2; r++) {
                gpu_exchange_close(x[r], true);
                gpu_end(gpu[r]);
        }
}

/* An offer with number, address and handle of another one's. */
static void forge(unsigned char *offers, uint32_t rank, const unsigned char *of) {
        unsigned char *to = offers + (size_t)rank * CLIENT_GPU_OFFER_BYTES;

        memcpy(to + OFFER_NUMBER, of + OFFER_NUMBER, 8);
        memcpy(to + OFFER_ADDRESS, of + OFFER_ADDRESS, 8);
        memcpy(to + OFFER_HANDLE, of + OFFER_HANDLE, sizeof(hipIpcMemHandle_t));
}

/* An area of four ranks is shorter than one of two, and is not taken for one of two, whatever is said of it. */
static void test_forged(void **state) {
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES], four[4 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[2] = {gpu_new(0), gpu_new(1)};
        struct client_gpu_exchange *x[2], *y[4];

        (void)state;
        for (uint32_t r = 0; r < 4; r++)
                y[r] = open_rank(gpu[r % 2], r, 4, r, four);
        for (uint32_t r = 0; r < 2; r++)
                x[r] = open_rank(gpu[r], 4, 2, r, offers);
        forge(offers, 1, four + CLIENT_GPU_OFFER_BYTES);
        assert_int_equal(gpu_exchange_connect(x[0], offers, error), RMX_E_UNSUPPORTED);
        for (uint32_t r = 1; r < 4; r++)
                far(four, r);
        far(offers, 1);
        assert_int_equal(gpu_exchange_connect(x[0], offers, error), RMX_E_UNSUPPORTED); /* mapped, and measured */
        assert_int_equal(gpu_exchange_connect(y[0], four, error), RMX_OK);
        assert_int_equal(gpu_exchange_connect(x[0], offers, error), RMX_E_UNSUPPORTED); /* mapped already */
        for (uint32_t r = 0; r < 4; r++)
                gpu_exchange_close(y[r], true);
        for (uint32_t r = 0; r < 2; r++) {
                gpu_exchange_close(x[r], true);
                gpu_end(gpu[r]);
        }
}

/* Mapped memory that is not all of it: nothing stays open. */
static void test_short(void **state) {
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu = gpu_new(0), *other = gpu_new(0);
        struct client_gpu_exchange *x = open_rank(gpu, 0, 2, 0, offers), *y = open_rank(other, 0, 2, 1, offers);

        (void)state;
        far(offers, 1);
        fake.short_by = 1;
        assert_int_equal(gpu_exchange_connect(x, offers, error), RMX_E_UNSUPPORTED);
        fake.short_by = 0;
        fake.inside = 4096;
        assert_int_equal(gpu_exchange_connect(x, offers, error), RMX_E_UNSUPPORTED);
        fake.inside = 0;
        assert_int_equal(fake.opens, 2);
        assert_int_equal(fake.closes, 2);
        fake.short_head = true;
        assert_int_equal(gpu_exchange_connect(x, offers, error), RMX_E_UNSUPPORTED);
        fake.short_head = false;
        assert_int_equal(fake.opens, 4); /* the area stays */
        assert_int_equal(fake.closes, 3);
        assert_int_equal(gpu_exchange_connect(x, offers, error), RMX_OK);
        gpu_exchange_close(x, true);
        gpu_exchange_close(y, true);
        gpu_end(gpu);
        gpu_end(other);
}

static void test_peer(void **state) {
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[2] = {gpu_new(0), gpu_new(1)};
        struct client_gpu_exchange *x[2];

        (void)state;
        for (uint32_t r = 0; r < 2; r++)
                x[r] = open_rank(gpu[r], 0, 2, r, offers);
        fake.no_peer = true;
        assert_int_equal(gpu_exchange_connect(x[0], offers, error), RMX_E_UNSUPPORTED);
        fake.no_peer = false;
        fake.peer_enabled = true;
        assert_int_equal(gpu_exchange_connect(x[0], offers, error), RMX_OK);
        for (uint32_t r = 0; r < 2; r++) {
                gpu_exchange_close(x[r], true);
                gpu_end(gpu[r]);
        }
}

/* Whichever call of the runtime fails, nothing is lost, and the next one goes. */
static void test_failures(void **state) {
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu = gpu_new(0), *other = gpu_new(0);
        bool failed = true;
        uint32_t n = 0;

        (void)state;
        for (uint32_t at = 1; failed; at++) {
                struct client_gpu_exchange *x = NULL, *y = open_rank(other, 0, 2, 1, offers);
                int r;

                fake.calls = 0;
                fake.fail_at = at;
                r = gpu_exchange_open(gpu, 0, HANDLE, 2, 0, 0, &x, offers, error);
                far(offers, 1);
                offers[CLIENT_GPU_OFFER_BYTES + OFFER_NUMBER] = (unsigned char)at; /* another one each time */
                if (!r)
                        r = gpu_exchange_connect(x, offers, error);
                fake.fail_at = 0;
                failed = r != RMX_OK;
                n += failed;
                gpu_exchange_close(x, true);
                gpu_exchange_close(y, true);
                assert_true(at < MAX_CALLS);
        }
        assert_true(n > 2 * EXCHANGE_KINDS); /* kernels, and more */
        assert_true(fake.allocations <= 5);  /* two each, and one that could not be cleared */
        gpu_end(gpu);
        gpu_end(other);
}

static struct client_gpu_bell transfer(uint32_t operation, uint32_t peer, void *memory, size_t bytes) {
        struct client_gpu_bell bell = {.in = operation == RING_OP_SEND ? memory : NULL,
                                       .out = operation == RING_OP_RECV ? memory : NULL};

        bell.word[RING_W_HEAD] = RING_ABI << 24 | operation << 16 | RMX_BFLOAT16 << 8;
        bell.word[RING_W_COUNT_LO] = (uint32_t)(bytes / 2);
        bell.word[RING_W_PEER] = peer;
        bell.in_bytes = bell.in ? bytes : 0;
        bell.out_bytes = bell.out ? bytes : 0;
        return bell;
}

/* Transfers: a channel for each rank and direction with blocks by the largest, whose two ends agree. */
static void test_transfers(void **state) {
        static char a[32] __attribute__((aligned(16)));
        unsigned char offers[3 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[3] = {gpu_new(0), gpu_new(1), gpu_new(2)};
        struct client_gpu_exchange *x[3];
        const struct client_gpu_bell bells[] = {
                transfer(RING_OP_SEND, 1, a, 100), transfer(RING_OP_SEND, 2, a + 2, 4 << 20),
                transfer(RING_OP_SEND, 1, a, 70000), transfer(RING_OP_RECV, 2, a + 1, 0)};
        const struct pair_arguments *p = &fake.pairs;

        (void)state;
        max_blocks = 40;
        for (uint32_t r = 0; r < 3; r++)
                x[r] = open_rank(gpu[r], 0, 3, r, offers);
        for (uint32_t r = 0; r < 3; r++)
                assert_int_equal(gpu_exchange_connect(x[r], offers, error), RMX_OK);
        assert_int_equal(gpu_exchange_pairs(x[0], bells, 4, NULL, error), RMX_OK);
        assert_ptr_equal(fake.kernel, pair_kernel());
        assert_ptr_equal(p->all.area[2], gpu[2]->areas->memory.address);
        assert_ptr_equal(p->all.stop, &gpu[0]->pinned->stop[0]);
        assert_int_equal(p->n_channels, 3);
        assert_int_equal(p->channel[0].peer, 1);
        assert_int_equal(p->channel[0].sends, 1);
        assert_int_equal(p->channel[0].op, 0);
        assert_int_equal(p->op[0].next, 2); /* in their order */
        assert_int_equal(p->op[2].next, PAIR_OPS);
        assert_int_equal(p->op[0].blocks, 1);
        assert_int_equal(p->op[2].blocks, 3); /* of 32 KiB */
        assert_int_equal(p->channel[0].blocks, 3);
        assert_int_equal(p->channel[1].blocks, PAIR_BLOCKS(3)); /* less than 40 for four channels */
        assert_int_equal(p->channel[2].sends, 0);
        assert_int_equal(p->channel[2].blocks, 1); /* of nothing, too */
        assert_int_equal(p->channel[2].begin, 3 + PAIR_BLOCKS(3));
        assert_int_equal(p->all.blocks, 4 + PAIR_BLOCKS(3));
        assert_int_equal(p->op[0].aligned, 1);
        assert_int_equal(p->op[1].aligned, 0);
        assert_int_equal(p->op[1].element_bytes, 2);
        assert_int_equal(p->op[3].element_bytes, 1);
        assert_int_equal(p->op[1].count, 2 << 20);
        for (uint32_t r = 0; r < 3; r++) {
                gpu_exchange_close(x[r], true);
                gpu_end(gpu[r]);
        }
        max_blocks = 0;
}

/* The smallest number that a rank says is all ranks', wherever they are. */
static void test_blocks(void **state) {
        static const struct {
                uint32_t said[3], all;
        } cases[] = {{{0, 0, 0}, EXCHANGE_BLOCKS_OF(3)},
                     {{7, 0, 0}, 7},
                     {{0, 0, 7}, 7},
                     {{9, 1, 3}, 1},
                     {{100, 200, 300}, EXCHANGE_BLOCKS_OF(3)}};
        unsigned char offers[3 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[3] = {gpu_new(0), gpu_new(1), gpu_new(2)};

        (void)state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct client_gpu_exchange *x[3];

                for (uint32_t r = 0; r < 3; r++) {
                        max_blocks = cases[i].said[r];
                        x[r] = open_rank(gpu[r], 0, 3, r, offers);
                }
                for (uint32_t r = 0; r < 3; r++) {
                        assert_int_equal(gpu_exchange_connect(x[r], offers, error), RMX_OK);
                        launch(x[r], 10 << 20);
                        assert_int_equal(fake.launched.blocks, cases[i].all);
                }
                for (uint32_t r = 0; r < 3; r++)
                        gpu_exchange_close(x[r], true);
        }
        max_blocks = 0;
        for (uint32_t r = 0; r < 3; r++)
                gpu_end(gpu[r]);
}

/* A rank that allows no block has another version, or is wrong. */
static void test_no_blocks(void **state) {
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[2] = {gpu_new(0), gpu_new(1)};
        struct client_gpu_exchange *x = open_rank(gpu[0], 0, 2, 0, offers), *y = open_rank(gpu[1], 0, 2, 1, offers);

        (void)state;
        memset(offers + CLIENT_GPU_OFFER_BYTES + OFFER_BLOCKS, 0, 8);
        assert_int_equal(gpu_exchange_connect(x, offers, error), RMX_E_UNSUPPORTED);
        gpu_exchange_close(x, true);
        gpu_exchange_close(y, true);
        gpu_end(gpu[0]);
        gpu_end(gpu[1]);
}

/* What was sent and not taken keeps the area from others until it is. */
static void test_owed(void **state) {
        static char a[64];
        const struct client_gpu_bell bell = transfer(RING_OP_SEND, 1, a, 8);
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[2] = {gpu_new(0), gpu_new(1)};
        struct client_gpu_exchange *x[2];
        const char *first;
        uint32_t *words;

        (void)state;
        for (uint32_t round = 0; round < 3; round++) { /* nothing sent, sent and taken, sent */
                for (uint32_t r = 0; r < 2; r++)
                        x[r] = open_rank(gpu[r], 0, 2, r, offers);
                for (uint32_t r = 0; r < 2; r++)
                        assert_int_equal(gpu_exchange_connect(x[r], offers, error), RMX_OK);
                assert_null(gpu[0]->areas->next);
                words = (uint32_t *)(void *)(gpu[0]->areas->head + EXCHANGE_OFFSET_LANES);
                if (round)
                        assert_int_equal(gpu_exchange_pairs(x[0], &bell, 1, NULL, error), RMX_OK);
                words[(PAIR_SENT * 2 + 1) * PAIR_LANES(2) + 3] += round > 0; /* lane 3 to rank 1 */
                words[(PAIR_CREDIT * 2 + 1) * PAIR_LANES(2) + 3] += round == 1;
                for (uint32_t r = 0; r < 2; r++)
                        gpu_exchange_close(x[r], true);
        }
        first = gpu[0]->areas->head;
        x[0] = open_rank(gpu[0], 0, 2, 0, offers);
        assert_ptr_not_equal(gpu[0]->areas->head, first); /* a second one, since the first is owed something */
        gpu_exchange_close(x[0], true);
        words[(PAIR_CREDIT * 2 + 1) * PAIR_LANES(2) + 3]++; /* now it is taken */
        x[0] = open_rank(gpu[0], 0, 2, 0, offers);
        x[1] = open_rank(gpu[0], 1, 2, 0, offers);
        assert_null(gpu[0]->areas->next->next); /* both are used again */
        gpu_exchange_close(x[0], true);
        gpu_exchange_close(x[1], true);
        gpu_end(gpu[0]);
        gpu_end(gpu[1]);
}

static void test_limits(void **state) {
        unsigned char offer[CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu = gpu_new(0);
        struct client_gpu_exchange *x;

        (void)state;
        assert_int_equal(gpu_exchange_open(gpu, 0, HANDLE, 1, 0, 0, &x, offer, error), RMX_E_UNSUPPORTED);
        assert_int_equal(gpu_exchange_open(gpu, 0, HANDLE, EXCHANGE_RANKS + 1, 0, 0, &x, offer, error),
                         RMX_E_UNSUPPORTED);
        assert_int_equal(gpu_exchange_open(gpu, 0, HANDLE, 4, 4, 0, &x, offer, error), RMX_E_UNSUPPORTED);
        for (uint32_t n = 2; n <= EXCHANGE_RANKS; n++)
                assert_true(EXCHANGE_AREA_BYTES(n) <= (18u << 20));
        for (uint32_t n = 2; n <= EXCHANGE_RANKS; n++)
                assert_true(EXCHANGE_OFFSET_FLAGS + EXCHANGE_FLAGS(n) * 4 <= EXCHANGE_HEAD_BYTES);
        for (uint32_t n = 2; n <= EXCHANGE_RANKS; n++)
                assert_true(EXCHANGE_OFFSET_LANES + PAIR_LANE_WORDS(n) * 4 <= EXCHANGE_HEAD_BYTES);
        for (uint32_t n = 2; n <= EXCHANGE_RANKS; n++)
                assert_true(PAIR_BLOCKS(n) * 2 * (n - 1) <= 2 * EXCHANGE_BLOCKS); /* have room on a GPU at once */
        assert_true(sizeof(struct pair_arguments) <= 4096); /* of parameters that a kernel may have */
        assert_true(sizeof(struct exchange_header) <= EXCHANGE_OFFSET_PROGRESS);
        gpu_end(gpu);
}

/* What the executor reads of a slot says whose it is: of the one that has it, or had it last. */
static void test_named(void **state) {
        unsigned char offers[CLIENT_GPU_OFFER_BYTES * 2];
        struct client_gpu *gpu = gpu_new(0);
        struct client_gpu_exchange *x = open_rank(gpu, 5, 2, 0, offers);

        (void)state;
        assert_int_equal(gpu->host->exchanged[5].handle, HANDLE + 5);
        assert_int_equal(gpu->host->exchanged[4].handle, 0);
        gpu->host->exchanged[5].begun = 9; /* a kernel's */
        gpu_exchange_close(x, true);
        assert_int_equal(gpu->host->exchanged[5].handle, HANDLE + 5);
        assert_int_equal(gpu->host->exchanged[5].begun, 9);
        assert_int_equal(gpu_exchange_open(gpu, 5, HANDLE, 2, 0, 0, &x, offers, error), RMX_OK);
        assert_int_equal(gpu->host->exchanged[5].handle, HANDLE);
        assert_int_equal(gpu->host->exchanged[5].begun, 0);
        gpu_exchange_close(x, true);
        gpu_end(gpu);
}

/* For setting up: each slot has a stream and memory of its own, the same each time. */
static void test_own(void **state) {
        struct client_gpu *gpu = gpu_new(0);
        void *stream = gpu_own_stream(gpu, 3), *memory = gpu_own_memory(gpu, 3);

        (void)state;
        assert_non_null(stream);
        assert_non_null(memory);
        for (uint32_t i = 0; i < CLIENT_GPU_OWN_BYTES; i++)
                assert_int_equal(((char *)memory)[i], 0);
        assert_ptr_equal(gpu_own_stream(gpu, 3), stream);
        assert_ptr_equal(gpu_own_memory(gpu, 3), memory);
        assert_ptr_not_equal(gpu_own_stream(gpu, 4), stream);
        assert_int_equal((char *)gpu_own_memory(gpu, 4) - (char *)memory, CLIENT_GPU_OWN_BYTES);
        gpu_end(gpu);

        gpu = gpu_new(0);
        fake.elsewhere = true; /* the device knows it by another address */
        assert_null(gpu_own_memory(gpu, 0));
        fake.elsewhere = false;
        fake.calls = 0;
        fake.fail_at = 1;
        assert_null(gpu_own_memory(gpu, 0));
        fake.calls = 0;
        assert_null(gpu_own_stream(gpu, 0));
        fake.fail_at = 0;
        assert_non_null(gpu_own_stream(gpu, 0));
        assert_non_null(gpu_own_memory(gpu, 0));
        gpu_end(gpu);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_here, setup, teardown),
                cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
                cmocka_unit_test_setup_teardown(test_there, setup, teardown),
                cmocka_unit_test_setup_teardown(test_kept, setup, teardown),
                cmocka_unit_test_setup_teardown(test_heads, setup, teardown),
                cmocka_unit_test_setup_teardown(test_wrong, setup, teardown),
                cmocka_unit_test_setup_teardown(test_forged, setup, teardown),
                cmocka_unit_test_setup_teardown(test_short, setup, teardown),
                cmocka_unit_test_setup_teardown(test_peer, setup, teardown),
                cmocka_unit_test_setup_teardown(test_failures, setup, teardown),
                cmocka_unit_test_setup_teardown(test_transfers, setup, teardown),
                cmocka_unit_test_setup_teardown(test_owed, setup, teardown),
                cmocka_unit_test_setup_teardown(test_blocks, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_blocks, setup, teardown),
                cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
                cmocka_unit_test_setup_teardown(test_named, setup, teardown),
                cmocka_unit_test_setup_teardown(test_own, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
