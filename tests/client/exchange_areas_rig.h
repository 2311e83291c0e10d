/* SPDX-License-Identifier: MIT */
#pragma once
/* A runtime of the test's own, and ranks that have exchange areas in it. One file includes it. */
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

#define MAX_CALLS 400u
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
#define OFFER_LINES   220u
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
        uint32_t together;
        uint32_t launches, aheads;
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

const void *pair_ahead_kernel(void) {
        return "ahead";
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

bool gpu_ended_records(const struct client_gpu *gpu, const struct client_gpu_bell *bell) {
        (void)gpu;
        (void)bell;
        return false;
}

int gpu_launch_ahead(struct client_gpu *gpu, const void *kernel, void *arguments, const struct client_gpu_bell *bell,
                     void *stream, char *error) {
        (void)gpu;
        (void)bell;
        (void)stream;
        (void)error;
        assert_ptr_equal(kernel, pair_ahead_kernel());
        assert_int_equal(((const struct pair_arguments *)arguments)->ahead, 1);
        fake.aheads++;
        return RMX_OK;
}

int gpu_launch_exchange(struct client_gpu *gpu, const void *kernel, uint32_t blocks, uint32_t together, void *arguments,
                        const struct client_gpu_bell *bell, void *stream, char *error) {
        (void)gpu;
        (void)bell;
        (void)stream;
        (void)error;
        fake.launched = *(struct exchange_arguments *)arguments; /* with which those of transfers begin */
        assert_int_equal(fake.launched.blocks, blocks);
        if (kernel == pair_kernel())
                fake.pairs = *(struct pair_arguments *)arguments;
        assert_true(together && blocks % together == 0);
        fake.together = together;
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
                        assert_int_equal(words[rank].told[i], (uint64_t)first << 32);
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
