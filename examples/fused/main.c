/* SPDX-License-Identifier: MIT */
/*
 * A fused layer (fused.hip) on N GPUs, one process each, checked against the same sum on the host.
 *
 *   fused [N]      (default: as many as the daemon serves; $RAILMUX_SOCKET names the daemon's client socket)
 */
#include <railmux/railmux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fused.h"

#ifdef RAILMUX_CUDA
#include <cuda_runtime_api.h>
#define hipDeviceGetByPCIBusId cudaDeviceGetByPCIBusId
#define hipError_t             cudaError_t
#define hipGetErrorString      cudaGetErrorString
#define hipLaunchKernel        cudaLaunchKernel
#define hipMalloc              cudaMalloc
#define hipMemcpy              cudaMemcpy
#define hipMemcpyDefault       cudaMemcpyDefault
#define hipMemset              cudaMemset
#define hipSetDevice           cudaSetDevice
#else
#include <hip/hip_runtime_api.h>
#endif

#define COLUMNS  1024u /* of the whole matrix */
#define LAUNCHES 10

static int gpu_failed(hipError_t r, const char *what) {
        if (r)
                fprintf(stderr, "%s: %s\n", what, hipGetErrorString(r));
        return r != 0;
}

/* Small integers, so that sums are exact in any order. */
static float weight(uint32_t row, uint32_t column) {
        return (float)((row * 7 + column * 3) % 17) - 8;
}
static float input(uint32_t column, int launch) {
        return (float)((column + (uint32_t)launch) % 5) - 2;
}

/* This rank's part of the layer, on its GPU. */
static int layer_make(struct layer *layer, uint32_t rank, uint32_t n, float **ret_input) {
        uint32_t columns = COLUMNS / n;
        size_t bytes = (size_t)ROWS * columns * sizeof(float);
        float *weights = malloc(bytes), *there = NULL;
        int failed;

        if (!weights)
                return 1;
        for (uint32_t row = 0; row < ROWS; row++)
                for (uint32_t k = 0; k < columns; k++)
                        weights[row * columns + k] = weight(row, rank * columns + k);
        failed = gpu_failed(hipMalloc((void **)&there, bytes), "weights") ||
                 gpu_failed(hipMemcpy(there, weights, bytes, hipMemcpyDefault), "weights") ||
                 gpu_failed(hipMalloc((void **)ret_input, columns * sizeof(float)), "input") ||
                 gpu_failed(hipMalloc((void **)&layer->output, ROWS * sizeof(float)), "output") ||
                 gpu_failed(hipMalloc((void **)&layer->finished, sizeof(uint32_t)), "counter") ||
                 gpu_failed(hipMemset(layer->finished, 0, sizeof(uint32_t)), "counter") ||
                 gpu_failed(hipMalloc((void **)&layer->result, sizeof(int)), "result");
        layer->weights = there;
        layer->input = *ret_input;
        layer->columns = columns;
        free(weights);
        return failed;
}

/* One launch: the kernel itself exchanges the sums. */
static int layer_run(struct layer *layer, struct rmx_device_handle *handle, float *there, uint32_t rank, int launch) {
        void *parameters[] = {layer, handle};
        float x[COLUMNS], y[ROWS];
        int result, wrong = 0;

        for (uint32_t k = 0; k < layer->columns; k++)
                x[k] = input(rank * layer->columns + k, launch);
        if (gpu_failed(hipMemcpy(there, x, layer->columns * sizeof(float), hipMemcpyDefault), "input") ||
            gpu_failed(hipLaunchKernel(layer_kernel(), (dim3){BLOCKS, 1, 1}, (dim3){BLOCK_THREADS, 1, 1}, parameters, 0,
                                       NULL),
                       "launch") ||
            gpu_failed(hipMemcpy(&result, layer->result, sizeof(result), hipMemcpyDefault), "result") ||
            gpu_failed(hipMemcpy(y, layer->output, sizeof(y), hipMemcpyDefault), "output"))
                return 1;
        if (result) {
                fprintf(stderr, "rank %u: %s\n", rank, rmx_error_name(result));
                return 1;
        }
        for (uint32_t row = 0; row < ROWS; row++) {
                float expected = 0;

                for (uint32_t k = 0; k < COLUMNS; k++)
                        expected += weight(row, k) * input(k, launch);
                wrong += y[row] != (expected > 0 ? expected : 0);
        }
        return wrong != 0;
}

static int run_rank(uint32_t rank, uint32_t n, int pipes[][2]) {
        struct rmx_comm_options options = {.size = sizeof(options), .flags = RMX_COMM_DEVICE_CALLS};
        struct rmx_device_call call = {.size = sizeof(call),
                                       .version = RMX_DEVICE_VERSION,
                                       .operation = RMX_OP_ALL_REDUCE,
                                       .count = ROWS,
                                       .type = RMX_FLOAT32,
                                       .redop = RMX_SUM};
        struct rmx_device_handle handle;
        struct rmx_session *session;
        struct layer layer = {0};
        struct rmx_comm *comm;
        struct rmx_id id;
        int r, device, failed = 0;
        float *there;

        r = rmx_session_open(NULL, &session);
        if (!r && !strcmp(rmx_session_backend(session), "host")) {
                fprintf(stderr, "the daemon serves no GPUs\n");
                return 1;
        }
        if (!r && rank == 0) {
                r = rmx_get_id(session, &id);
                for (uint32_t i = 1; !r && i < n; i++)
                        if (write(pipes[i][1], &id, sizeof(id)) != sizeof(id))
                                return 1;
        } else if (!r && read(pipes[rank][0], &id, sizeof(id)) != sizeof(id)) {
                return 1;
        }
        if (r)
                goto failed;
        options.gpu = (int32_t)(rank % rmx_session_gpu_count(session));
        if (gpu_failed(hipDeviceGetByPCIBusId(&device, rmx_session_gpu_pci(session, (uint32_t)options.gpu)), "GPU") ||
            gpu_failed(hipSetDevice(device), "GPU") || layer_make(&layer, rank, n, &there))
                return 1;
        r = rmx_comm_create(session, &id, n, rank, &options, &comm);
        if (r)
                goto failed;

        call.in = call.out = layer.output;
        r = rmx_device_prepare(comm, &call, &handle); /* once; then any number of launches */
        if (r)
                goto failed;
        for (int launch = 0; launch < LAUNCHES && !failed; launch++)
                failed = layer_run(&layer, &handle, there, rank, launch);
        r = rmx_comm_error(comm);
        if (r)
                goto failed;
        if (rank == 0)
                printf("%d launches on %u ranks: %s\n", LAUNCHES, n, failed ? "wrong" : "right");
        rmx_comm_destroy(comm);
        rmx_session_close(session);
        return failed;

failed:
        fprintf(stderr, "rank %u: %s: %s\n", rank, rmx_error_name(r), rmx_last_error());
        return 1;
}

/* In a process of its own: neither a session nor a GPU's runtime survives a fork. */
static int gpu_count(void) {
        struct rmx_session *session;
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                if (rmx_session_open(NULL, &session)) {
                        fprintf(stderr, "%s\n", rmx_last_error());
                        _exit(0);
                }
                _exit((int)rmx_session_gpu_count(session));
        }
        return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

int main(int argc, char **argv) {
        int n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : gpu_count(), failed = 0, status;
        int pipes[32][2];

        if (n < 1 || n > 32 || COLUMNS % (unsigned int)n) {
                fprintf(stderr, "usage: fused [1|2|4|8|16|32], with a daemon that serves GPUs\n");
                return 2;
        }
        for (int i = 0; i < n; i++)
                if (pipe(pipes[i]) != 0) {
                        perror("pipe");
                        return 1;
                }
        for (int i = 0; i < n; i++) {
                pid_t pid = fork();

                if (pid < 0) {
                        perror("fork");
                        return 1;
                }
                if (pid == 0) {
                        for (int k = 0; k < n; k++)
                                if (i != 0)
                                        close(pipes[k][1]);
                        return run_rank((uint32_t)i, (uint32_t)n, pipes);
                }
        }
        for (int i = 0; i < n; i++)
                close(pipes[i][1]);
        while (wait(&status) > 0)
                failed |= status != 0;
        return failed;
}
