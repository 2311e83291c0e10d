/* SPDX-License-Identifier: MIT */
/*
 * From a request to a bell kernel on the caller's stream, or to a handle for a kernel of the caller's. Whatever of a
 * request is known here is decided here, so that the kernel need not: the counter that numbers it, how its payload
 * goes, how many threads it takes.
 */
#include <string.h>

#include "client/hip/exchange_kernel.h"
#include "client/hip/private.h"
#include "ring/line.h"

/* ---- the request ------------------------------------------------------------------------------------------------- */
/* What numbers it: the comm's collectives, or what is sent to, or received from, one peer. */
static char *counter_of(const struct client_gpu *gpu, const struct client_gpu_bell *bell) {
        uint32_t operation = bell->word[RING_W_HEAD] >> 16 & 0xffu;
        size_t index = bell->slot, pair = (size_t)bell->slot * 2 + (operation == RING_OP_RECV);

        if (operation == RING_OP_SEND || operation == RING_OP_RECV) {
                index = pair * BELL_RANKS + bell->word[RING_W_PEER] % BELL_RANKS;
                return gpu->area + BELL_OFFSET_PAIR + index * sizeof(uint32_t);
        }
        return gpu->area + BELL_OFFSET_SEQUENCE + index * sizeof(uint32_t);
}

/* Nearly all payload is aligned and consists of whole packets. */
static uint32_t payload_of(const struct client_gpu_bell *bell) {
        uint64_t in = (uintptr_t)bell->in | bell->in_bytes, out = (uintptr_t)bell->out | bell->out_bytes;

        if (!bell->inlined)
                return 0;
        return ((bell->in_bytes ? in : 0) | (bell->out_bytes ? out : 0)) % 8 ? BELL_BYTES : BELL_ALIGNED;
}

void gpu_handle(struct client_gpu *gpu, const struct client_gpu_bell *bell, struct rmx_device_handle *ret_handle) {
        uint32_t lanes = bell_lanes(bell->in_bytes, bell->out_bytes);

        *ret_handle = (struct rmx_device_handle){.area = gpu->area,
                                                 .host = gpu->host_there,
                                                 .counter = counter_of(gpu, bell),
                                                 .lanes = lanes,
                                                 .slot = bell->slot,
                                                 .payload = payload_of(bell),
                                                 .version = RMX_DEVICE_VERSION};
        if (bell->inlined) {
                ret_handle->in = bell->in;
                ret_handle->out = bell->out;
                ret_handle->in_bytes = (uint32_t)bell->in_bytes;
                ret_handle->out_bytes = (uint32_t)bell->out_bytes;
        }
        memcpy(ret_handle->word, bell->word, sizeof(ret_handle->word));
        ret_handle->word[RING_W_FLAGS] = lanes << BELL_LANES_SHIFT | (bell->inlined ? BELL_FLAG_INLINE : 0);
}

/* ---- launching --------------------------------------------------------------------------------------------------- */
#define WARP_MOST 64u /* threads, of NVIDIA's 32 are one */

/* On NVIDIA GPUs a kernel may be brought to its processor while the one before it on the stream ends; ours wait there
 * for that end (await_stream in bell.hip). It saves 0.9 us of a call that is not captured. In graphs it saves nothing,
 * and edges of that kind are not for all of them.
 *
 * Ours do not let the next one begin before they have ended (griddepcontrol.launch_dependents). While a bell waits, the
 * executor's kernel may have to be launched, by another process; if the blocks of the next kernel stood on all
 * processors by then, waiting for the bell, there would be no room for it, and nobody would ever go on. What is left
 * after the answer are some twenty instructions. And a kernel that was launched so, but does not wait itself, is right
 * today, if only by luck.
 *
 * A kernel that is queued behind one that waits for another rank (a bell, an exchange, what stands ahead of a transfer)
 * takes a hardware queue with it, which others may need, unless it was launched in this way (H200: with 8 queues the
 * 8th stream with an ordinary kernel behind one that waits keeps all others).
 *
 * together: so many of the blocks, which divide them, are to lie side by side (NVIDIA). */
static hipError_t launch_together(const void *kernel, uint32_t blocks, uint32_t together, uint32_t threads,
                                  void **parameters, bool captured, void *stream) {
#ifdef RAILMUX_CUDA
        cudaLaunchAttribute attributes[2];
        cudaLaunchConfig_t config = {
                .gridDim = {blocks, 1, 1}, .blockDim = {threads, 1, 1}, .stream = stream, .attrs = attributes};

        if (!captured)
                attributes[config.numAttrs++] =
                        (cudaLaunchAttribute){.id = cudaLaunchAttributeProgrammaticStreamSerialization,
                                              .val = {.programmaticStreamSerializationAllowed = 1}};
        if (together > 1)
                attributes[config.numAttrs++] = (cudaLaunchAttribute){.id = cudaLaunchAttributeClusterDimension,
                                                                      .val = {.clusterDim = {together, 1, 1}}};
        return cudaLaunchKernelExC(&config, kernel, parameters);
#else
        (void)captured;
        (void)together;
        return hipLaunchKernel(kernel, (dim3){blocks, 1, 1}, (dim3){threads, 1, 1}, parameters, 0, stream);
#endif
}

static hipError_t launch_kernel(const void *kernel, uint32_t blocks, uint32_t threads, void **parameters, bool captured,
                                void *stream) {
        return launch_together(kernel, blocks, 1, threads, parameters, captured, stream);
}

/* One that only looks at, or tells, a number of the slot's. */
static hipError_t launch_number(struct client_gpu *gpu, uint32_t kernel, uint32_t slot, uint32_t number, bool captured,
                                void *stream) {
        struct bell_arguments arguments = {.request = {.area = gpu->area, .host = gpu->host_there, .slot = slot},
                                           .number = number};
        void *parameters[] = {&arguments};

        return launch_kernel(bell_kernel(kernel), 1, bell_threads(&arguments, kernel), parameters, captured, stream);
}

/* What comes next on the stream is behind the launch that bell->after names. */
static hipError_t launch_after(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream) {
        bool done = false;
        hipError_t r;

        if (!bell->after)
                return hipSuccess;
        r = gpu_ended_await(gpu, bell->slot, bell->after, stream, &done);
        return done ? r : launch_number(gpu, BELL_AWAIT, bell->slot, bell->after, bell->captured, stream);
}

/* Somebody will know when what has just been put on the stream has ended: a kernel behind it tells. */
static hipError_t launch_mark(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream) {
        const hipError_t r = launch_number(gpu, BELL_MARK, bell->slot, bell->number, true, stream);

        if (r == hipSuccess)
                gpu_ended_told(gpu, bell->slot);
        return r;
}

/* The same by an event, if it can be recorded. */
static hipError_t launch_record(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream) {
        if (gpu_ended_record(gpu, bell, stream) == hipSuccess)
                return hipSuccess;
        (void)hipGetLastError();
        return launch_mark(gpu, bell, stream);
}

static int launch(struct client_gpu *gpu, const struct client_gpu_bell *bell, uint32_t kernel, void *stream,
                  char *error) {
        struct bell_arguments arguments = {.cell = gpu->cells + bell->cell,
                                           .turn = bell->turn,
                                           .number = bell->number,
                                           .n_arguments = bell->n_arguments};
        struct bell_block block;
        void *parameters[] = {&arguments, &block};
        struct scope scope;
        hipError_t r;

        gpu_handle(gpu, bell, &arguments.request);
        kernel |= arguments.request.payload;
        if (bell->turn)
                arguments.ended = gpu->pinned_there->ended + bell->cell;
        if (bell->gate) {
                kernel |= BELL_GATE;
                arguments.gate = gpu_exchange_gate(bell->gate);
        }
        if (bell->n_arguments && !(kernel & BELL_WAIT)) {
                if (bell->inlined) /* (there is no kernel for both) */
                        kernel = (kernel & ~(uint32_t)BELL_ALIGNED) | BELL_BYTES;
                kernel |= BELL_BLOCK;
                memcpy(block.word, bell->argument, bell->n_arguments * sizeof(block.word[0]));
        }

        r = scope_device(&scope, gpu->device);
        if (r == hipSuccess && bell->captured)
                gpu_edge(gpu, stream);
        if (r == hipSuccess)
                r = launch_after(gpu, bell, stream);
        if (r == hipSuccess)
                r = launch_kernel(bell_kernel(kernel), 1, bell_threads(&arguments, kernel), parameters, bell->captured,
                                  stream);
        if (r == hipSuccess && bell->number && !(kernel & BELL_WAIT))
                gpu_ended_told(gpu, bell->slot);
        scope_leave(&scope);
        return r == hipSuccess ? RMX_OK : gpu_fail(r, "launching the bell kernel", error);
}

int gpu_call(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream, char *error) {
        return launch(gpu, bell, BELL_CALL, stream, error);
}

int gpu_start(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream, char *error) {
        return launch(gpu, bell, BELL_START, stream, error);
}

int gpu_wait(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream, char *error) {
        struct client_gpu_bell wait = *bell;

        wait.after = 0; /* that was the start's */
        return launch(gpu, &wait, BELL_WAIT, stream, error);
}

int gpu_behind(struct client_gpu *gpu, uint32_t slot, uint32_t number, void *stream, char *error) {
        const struct client_gpu_bell bell = {.slot = slot, .after = number};
        struct scope scope;
        hipError_t r;

        r = scope_device(&scope, gpu->device);
        if (r == hipSuccess)
                r = launch_after(gpu, &bell, stream);
        scope_leave(&scope);
        return r == hipSuccess ? RMX_OK : gpu_fail(r, "launching the kernel before a copy", error);
}

int gpu_mark(struct client_gpu *gpu, uint32_t slot, uint32_t number, bool started, void *stream, char *error) {
        const struct client_gpu_bell bell = {.slot = slot, .number = number, .started = started};
        struct scope scope;
        hipError_t r;

        r = scope_device(&scope, gpu->device);
        if (r == hipSuccess && gpu_ended_records(gpu, &bell))
                r = launch_record(gpu, &bell, stream);
        else if (r == hipSuccess)
                r = launch_mark(gpu, &bell, stream);
        scope_leave(&scope);
        return r == hipSuccess ? RMX_OK : gpu_fail(r, "launching the kernel behind a copy", error);
}

int gpu_launch_exchange(struct client_gpu *gpu, const void *kernel, uint32_t blocks, uint32_t together, void *arguments,
                        const struct client_gpu_bell *bell, void *stream, char *error) {
        void *parameters[] = {arguments};
        struct scope scope;
        bool untold = false;
        hipError_t r;

        r = scope_device(&scope, gpu->device);
        if (r == hipSuccess && bell->captured)
                gpu_edge(gpu, stream);
        if (r == hipSuccess)
                r = launch_after(gpu, bell, stream);
        if (r == hipSuccess)
                r = launch_together(kernel, blocks, together, EXCHANGE_THREADS, parameters, bell->captured, stream);
        if (r == hipSuccess && gpu_ended_records(gpu, bell))
                untold = launch_record(gpu, bell, stream) != hipSuccess;
        else if (r == hipSuccess && bell->number)
                gpu_ended_told(gpu, bell->slot);
        scope_leave(&scope);
        if (untold) {
                (void)hipGetLastError();
                return CLIENT_GPU_UNTOLD;
        }
        return r == hipSuccess ? RMX_OK : gpu_fail(r, "launching an exchange kernel", error);
}

int gpu_launch_ahead(struct client_gpu *gpu, const void *kernel, void *arguments, const struct client_gpu_bell *bell,
                     void *stream, char *error) {
        void *parameters[] = {arguments};
        struct scope scope;
        hipError_t r;

        r = scope_device(&scope, gpu->device);
        if (r == hipSuccess && bell->captured)
                gpu_edge(gpu, stream);
        if (r == hipSuccess)
                r = launch_after(gpu, bell, stream);
        if (r == hipSuccess)
                r = launch_kernel(kernel, 1, WARP_MOST, parameters, bell->captured, stream);
        scope_leave(&scope);
        return r == hipSuccess ? RMX_OK : gpu_fail(r, "launching the kernel ahead of a transfer", error);
}
