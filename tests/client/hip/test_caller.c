/* SPDX-License-Identifier: MIT */
/*
 * Kernels that make calls by themselves (railmux_device.h) on a GPU, beside bell kernels of the same communicator,
 * against the stand-in for the executor (serve.hip). Without a GPU it says so and is skipped.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/hip/private.h"
#include "ring/line.h"
#include "tests/client/hip/caller.h"
#include "tests/client/hip/serve.h"

extern const struct client_gpu_ops railmux_client_gpu;

#define SKIPPED 77
#define WORDS   (CALLER_BLOCKS * CALLER_WORDS)
#define MEMORY  32768u
#define CALLS   8u

#define must(condition)                                                                                                \
        do {                                                                                                           \
                if (!(condition)) {                                                                                    \
                        fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, error);                    \
                        exit(1);                                                                                       \
                }                                                                                                      \
        } while (0)

static char error[CLIENT_GPU_TEXT];
static const struct client_gpu_ops *ops = &railmux_client_gpu;
static struct client_gpu *gpu;
static struct serve_shared *shared;
static hipStream_t serving, stream;
static unsigned char *in, *out, *after; /* on the device */
static unsigned char here[MEMORY], there[MEMORY];
static int *results;                 /* pinned: [CALLS][CALLER_THREADS_MAX] */
static uint32_t *tickets, *finished; /* on the device */

static void serve_begin(void) {
        char *area = gpu->area;
        void *parameters[] = {&area, &shared};

        shared->stop = 0;
        must(hipLaunchKernel(serve_kernel(), (dim3){1, 1, 1}, (dim3){serve_threads(), 1, 1}, parameters, 0, serving) ==
             hipSuccess);
}

static void serve_end(void) {
        __atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
        must(hipStreamSynchronize(serving) == hipSuccess);
}

static void settle(void) {
        must(hipStreamSynchronize(stream) == hipSuccess);
}

static void copy(void *to, const void *from, size_t bytes) {
        must(hipMemcpyAsync(to, from, bytes, hipMemcpyDefault, stream) == hipSuccess);
        settle();
}

static void setup(void) {
        hipFuncAttributes attributes;
        struct client_gpu_export area;
        void *host, *latch;

        /* Nothing is loaded while the server is resident. */
        must(hipFuncGetAttributes(&attributes, caller_call_kernel()) == hipSuccess);
        must(hipFuncGetAttributes(&attributes, caller_start_kernel()) == hipSuccess);
        must(hipFuncGetAttributes(&attributes, caller_wait_kernel()) == hipSuccess);
        must(hipFuncGetAttributes(&attributes, caller_fused_kernel()) == hipSuccess);
        must(!ops->open(0, &gpu, &area, error));
        host = mmap(NULL, sizeof(struct bell_host), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        latch = mmap(NULL, BELL_LATCH_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        must(host != MAP_FAILED && latch != MAP_FAILED);
        must(!ops->attach(gpu, host, sizeof(struct bell_host), latch, BELL_LATCH_BYTES, error));
        must(hipStreamCreateWithFlags(&serving, hipStreamNonBlocking) == hipSuccess);
        must(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking) == hipSuccess);
        must(hipMalloc((void **)&in, MEMORY) == hipSuccess && hipMalloc((void **)&out, MEMORY) == hipSuccess);
        must(hipMalloc((void **)&after, MEMORY) == hipSuccess);
        must(hipMalloc((void **)&tickets, 2 * CALLER_THREADS_MAX * sizeof(*tickets)) == hipSuccess);
        must(hipMalloc((void **)&finished, sizeof(*finished)) == hipSuccess);
        must(hipMemset(finished, 0, sizeof(*finished)) == hipSuccess);
        must(hipHostMalloc((void **)&results, CALLS * CALLER_THREADS_MAX * sizeof(int), hipHostMallocMapped) ==
             hipSuccess);
        must(hipHostMalloc((void **)&shared, sizeof(*shared), hipHostMallocMapped) == hipSuccess);
        memset(shared, 0, sizeof(*shared));
        shared->next = 1;
        must(!ops->comm_reset(gpu, 0, error));
}

static struct client_gpu_bell request(uint32_t in_bytes, uint32_t out_bytes, bool inlined) {
        struct client_gpu_bell bell = {
                .inlined = inlined, .in = in, .out = out, .in_bytes = in_bytes, .out_bytes = out_bytes};

        bell.word[RING_W_HEAD] = RING_ABI << 24 | RING_OP_ALL_REDUCE << 16;
        bell.word[SERVE_W_IN] = in_bytes;
        bell.word[SERVE_W_OUT] = out_bytes;
        return bell;
}

static void fill(uint32_t salt) {
        for (uint32_t i = 0; i < MEMORY; i++)
                here[i] = (unsigned char)(i * 7 + (i >> 8) * 13 + salt);
        memset(there, 0x5a, MEMORY);
        copy(in, here, MEMORY);
        copy(out, there, MEMORY);
        copy(after, there, MEMORY);
        memset(results, 0x5a, CALLS * CALLER_THREADS_MAX * sizeof(int));
}

/* of: what was copied to `there`. */
static void check_result(uint32_t from, uint32_t bytes) {
        for (uint32_t i = 0; i < MEMORY; i++) {
                unsigned char expected = 0x5a;
                uint64_t payload = 0;

                if (i < bytes) {
                        for (uint32_t k = 0; k < 8 && i / 8 * 8 + k < bytes; k++)
                                payload |= (uint64_t)here[from + i / 8 * 8 + k] << (8 * k);
                        expected = (unsigned char)(serve_result(payload, i / 8) >> (8 * (i % 8)));
                }
                if (there[i] != expected) {
                        fprintf(stderr, "byte %u of %u: %02x, must be %02x\n", i, bytes, there[i], expected);
                        exit(1);
                }
        }
}

static void check_results(const char *what, uint32_t n, uint32_t threads, int expected) {
        for (uint32_t i = 0; i < n * threads; i++)
                if (results[i] != expected) {
                        fprintf(stderr, "%s: result of thread %u in call %u of %u: %d, must be %d\n", what, i % threads,
                                i / threads, n, results[i], expected);
                        exit(1);
                }
}

static void launch(const void *kernel, uint32_t blocks, dim3 threads, void **parameters) {
        must(hipLaunchKernel(kernel, (dim3){blocks, 1, 1}, threads, parameters, 0, stream) == hipSuccess);
}

static void test_call(void) {
        static const uint32_t sizes[] = {0, 8, 13, 1024, 4099, 16384};
        uint32_t sequence, n = CALLS, made;

        for (uint32_t i = 0; i < 12; i++) {
                uint32_t bytes = sizes[i % 6], shift = i < 6 ? 0 : 3;
                dim3 threads = i % 2 ? (dim3){64, 1, 1} : (dim3){32, 4, 2};
                struct client_gpu_bell bell = request(bytes, bytes, true);
                struct rmx_device_handle handle;
                void *parameters[] = {&handle, &results, &n};

                bell.in = in + shift;
                ops->handle(gpu, &bell, &handle);
                fill(i);
                launch(caller_call_kernel(), 1, threads, parameters);
                must(!ops->call(gpu, &bell, stream, error)); /* ours, behind it */
                settle();
                check_results("call", n, threads.x * threads.y * threads.z, RMX_OK);
                copy(there, out, MEMORY);
                check_result(shift, bytes);
        }
        must(!ops->comm_sequence(gpu, 0, &sequence, error));
        made = 12 * (CALLS + 1);
        must(sequence == made && shared->log[made].word[RING_W_SEQUENCE] == made);
}

static void test_start_wait(void) {
        struct client_gpu_bell small = request(512, 512, true), large = request(30000, 30000, false);
        struct rmx_device_handle first, second;
        void *start[] = {&first, &second, &tickets}, *wait[] = {&first, &second, &tickets, &results};

        ops->handle(gpu, &small, &first);
        large.word[SERVE_W_STATUS] = ring_status(RMX_E_ABORTED, 2);
        ops->handle(gpu, &large, &second);
        fill(77);
        launch(caller_start_kernel(), 1, (dim3){64, 1, 1}, start);
        launch(caller_wait_kernel(), 1, (dim3){64, 1, 1}, wait);
        settle();
        check_results("start and wait", 1, 64, RMX_OK);
        for (uint32_t i = 0; i < 64; i++)
                must(results[64 + i] == RMX_E_ABORTED);
        must(ops->comm_status(gpu, 0, true) == ring_status(RMX_E_ABORTED, 2));
        copy(there, out, MEMORY);
        check_result(0, 512);
}

/* What other blocks have written is in the request, and the block reads the result; also in replays of a graph. */
static void test_fused(void) {
        struct client_gpu_bell bell = request(WORDS * 4, WORDS * 4, true);
        struct rmx_device_handle handle;
        void *parameters[] = {&handle, &in, &out, &after, &finished, &results};
        hipGraphExec_t exec;
        hipGraph_t graph;

        ops->handle(gpu, &bell, &handle);
        fill(3);
        must(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal) == hipSuccess);
        launch(caller_fused_kernel(), CALLER_BLOCKS, (dim3){CALLER_WORDS, 1, 1}, parameters);
        must(!ops->call(gpu, &bell, stream, error));
        launch(caller_fused_kernel(), CALLER_BLOCKS, (dim3){CALLER_WORDS, 1, 1}, parameters);
        must(hipStreamEndCapture(stream, &graph) == hipSuccess);
        must(hipGraphInstantiateWithFlags(&exec, graph, 0) == hipSuccess);
        for (uint32_t replay = 0; replay < 20; replay++)
                must(hipGraphLaunch(exec, stream) == hipSuccess);
        settle();
        must(results[0] == RMX_OK);
        for (uint32_t i = 0; i < WORDS; i++) {
                uint32_t word;

                memcpy(&word, here + 4 * i, sizeof(word));
                word += 40;
                memcpy(here + 4 * i, &word, sizeof(word));
        }
        copy(there, after, MEMORY);
        check_result(0, WORDS * 4);
        must(hipGraphExecDestroy(exec) == hipSuccess && hipGraphDestroy(graph) == hipSuccess);
}

/* Nobody serves: whoever waits ends, and whoever comes later. */
static void test_over(void) {
        struct client_gpu_bell bell = request(256, 256, true);
        struct rmx_device_handle handle;
        uint32_t one = 1;
        void *parameters[] = {&handle, &results, &one};

        ops->handle(gpu, &bell, &handle);
        serve_end();
        fill(1);
        launch(caller_call_kernel(), 1, (dim3){64, 1, 1}, parameters);
        must(hipStreamQuery(stream) == hipErrorNotReady);
        ops->comm_end(gpu, 0);
        settle();
        check_results("ended while it waits", 1, 64, RMX_E_DEVICE_LOST);
        must(ops->comm_status(gpu, 0, true) == RMX_E_DEVICE_LOST);
        ops->release(gpu);
        fill(2);
        launch(caller_call_kernel(), 1, (dim3){64, 1, 1}, parameters);
        settle();
        check_results("ended before", 1, 64, RMX_E_DEVICE_LOST);
}

int main(void) {
        int n = 0;

        setvbuf(stdout, NULL, _IOLBF, 0);
        setenv("CUDA_MODULE_LOADING", "EAGER", 1);
        if (hipGetDeviceCount(&n) != hipSuccess || !n) {
                printf("no GPU: skipped\n");
                return SKIPPED;
        }
        must(hipSetDevice(0) == hipSuccess);
        setup();
        serve_begin();
        test_call();
        test_start_wait();
        test_fused();
        test_over();
        ops->close(gpu);
        printf("all right\n");
        return 0;
}
