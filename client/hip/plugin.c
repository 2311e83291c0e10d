/* SPDX-License-Identifier: MIT */
/*
 * The library's GPU half: finds the process's device, makes the bell area, launches the bell kernels (launch.c).
 *
 * A program that captures a graph forbids in that time, in all its threads, whatever could synchronise. What is done
 * here does not touch the caller's streams, so each call but launches and queries declares itself harmless (relaxed
 * capture mode) and works on a stream of its own, which does not wait for the legacy default stream either: a bell may
 * be waiting there for a rank whose turn it is to come in here.
 *
 * All kernels are loaded when the first area is opened. A kernel that is loaded at its first launch waits until no
 * other one runs in the process, and bells that wait run.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/hip/private.h"

/* ---- errors ------------------------------------------------------------------------------------------------------ */
int gpu_say(int code, char *error, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(error, CLIENT_GPU_TEXT, format, arguments);
        va_end(arguments);
        return code;
}

/* The runtime remembers a failure for whoever asks next, and that is not our caller. */
int gpu_fail(hipError_t r, const char *call, char *error) {
        (void)hipGetLastError();
        switch (r) {
        case hipErrorOutOfMemory:
                return gpu_say(RMX_E_NO_MEMORY, error, "%s: no memory on the GPU", call);
        case hipErrorNoDevice:
        case hipErrorInsufficientDriver:
        case hipErrorInvalidDevice:
                return gpu_say(RMX_E_DENIED, error, "%s: this process can use no such GPU (%s)", call,
                               hipGetErrorString(r));
        case hipErrorLaunchOutOfResources:
                return gpu_say(RMX_E_INTERNAL, error, "%s: a launch asks for more than the GPU has (%s)", call,
                               hipGetErrorString(r));
        case hipErrorInvalidValue:
        case hipErrorInvalidHandle:
        case hipErrorStreamCaptureUnsupported: /* the caller's capture is at fault, and the context is well */
        case hipErrorStreamCaptureInvalidated:
        case hipErrorStreamCaptureMerge:
        case hipErrorStreamCaptureUnmatched:
        case hipErrorStreamCaptureUnjoined:
        case hipErrorStreamCaptureIsolation:
        case hipErrorStreamCaptureImplicit:
        case hipErrorStreamCaptureWrongThread:
        case hipErrorCapturedEvent:
                return gpu_say(RMX_E_INVALID, error, "%s: %s", call, hipGetErrorString(r));
        default:
                return gpu_say(RMX_E_DEVICE_LOST, error, "%s: %s", call, hipGetErrorString(r));
        }
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */
static bool gpu_capturing(struct client_gpu *gpu, void *stream) {
        hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
        struct scope scope;
        hipError_t r;

        r = scope_device(&scope, gpu->device);
        if (r == hipSuccess)
                r = hipStreamIsCapturing(stream, &status);
        if (r != hipSuccess)
                (void)hipGetLastError();
        scope_leave(&scope);
        /* Of the default stream, while one that waits for it is being captured: nothing may be put on it either. */
        return r == hipErrorStreamCaptureImplicit || (r == hipSuccess && status != hipStreamCaptureStatusNone);
}

static int gpu_order(struct client_gpu *gpu, void *from, void *to, char *error) {
        struct scope scope;
        hipError_t r;

        r = scope_device(&scope, gpu->device);
        if (r == hipSuccess)
                r = hipEventRecord(gpu->event, from);
        if (r == hipSuccess)
                r = hipStreamWaitEvent(to, gpu->event, 0);
        scope_leave(&scope);
        return r == hipSuccess ? RMX_OK : gpu_fail(r, "ordering two streams", error);
}

/* (One that cannot be asked is in none: calls on it say what is wrong. A capture that has become invalid has no id any
 * more, and is still one.) */
static uint64_t gpu_capture(struct client_gpu *gpu, void *stream) {
        hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
        unsigned long long id = 0;
        struct scope scope;
        hipError_t r;

        r = scope_device(&scope, gpu->device);
        if (r == hipSuccess)
                r = hipStreamGetCaptureInfo(stream, &status, &id);
        if (r != hipSuccess)
                (void)hipGetLastError();
        scope_leave(&scope);
        if (r != hipSuccess || status == hipStreamCaptureStatusNone)
                return 0;
        return id ? id : UINT64_MAX;
}

static int gpu_set(struct client_gpu *gpu, uint32_t flag, void *stream, char *error) {
        struct scope scope;
        hipError_t r;

        r = scope_device(&scope, gpu->device);
        if (r == hipSuccess)
                r = hipEventRecord(gpu->flag[flag], stream);
        scope_leave(&scope);
        return r == hipSuccess ? RMX_OK : gpu_fail(r, "recording an event", error);
}

static int gpu_await(struct client_gpu *gpu, uint32_t flag, void *stream, char *error) {
        struct scope scope;
        hipError_t r;

        r = scope_device(&scope, gpu->device);
        if (r == hipSuccess)
                r = hipStreamWaitEvent(stream, gpu->flag[flag], 0);
        scope_leave(&scope);
        return r == hipSuccess ? RMX_OK : gpu_fail(r, "putting a stream behind an event", error);
}

/* Whatever the own stream is doing. */
static bool gpu_alive(struct client_gpu *gpu) {
        struct scope scope;
        hipError_t r;

        r = scope_enter(&scope, gpu->device);
        if (r == hipSuccess)
                r = hipStreamQuery(gpu->stream);
        if (r != hipSuccess)
                (void)hipGetLastError();
        scope_leave(&scope);
        return r == hipSuccess || r == hipErrorNotReady;
}

static bool gpu_poll(const struct client_gpu *gpu, uint32_t cell, uint32_t turn, uint32_t *ret_status) {
        /* acquire; partner: the fence and the store at the end of the wait kernel. */
        uint64_t word = __atomic_load_n(&gpu->pinned->ended[cell], __ATOMIC_ACQUIRE);

        if (word >> 32 != turn)
                return false;
        *ret_status = (uint32_t)word;
        return true;
}

extern const struct client_gpu_ops railmux_client_gpu;
__attribute__((visibility("default"))) const struct client_gpu_ops railmux_client_gpu = {
        .version = CLIENT_GPU_VERSION,
        .name = "hip",
        .queues = QUEUES,
        .find = gpu_find,
        .open = gpu_open,
        .attach = gpu_attach,
        .lift = gpu_lift,
        .close = gpu_close,
        .release = gpu_release,
        .comm_end = gpu_comm_end,
        .comm_reset = gpu_comm_reset,
        .comm_sequence = gpu_comm_sequence,
        .comm_status = gpu_comm_status,
        .comm_finished = gpu_comm_finished,
        .locate = gpu_locate,
        .export_memory = gpu_export,
        .export_chunk = gpu_export_chunk,
        .alloc = gpu_alloc,
        .free = gpu_free,
        .copy = gpu_copy,
        .capturing = gpu_capturing,
        .capture = gpu_capture,
        .order = gpu_order,
        .set = gpu_set,
        .await = gpu_await,
        .alive = gpu_alive,
        .call = gpu_call,
        .start = gpu_start,
        .wait = gpu_wait,
        .behind = gpu_behind,
        .mark = gpu_mark,
        .poll = gpu_poll,
        .handle = gpu_handle,
        .exchange_open = gpu_exchange_open,
        .exchange_pairs = gpu_exchange_pairs,
        .exchange_connect = gpu_exchange_connect,
        .exchange_stop = gpu_exchange_stop,
        .exchange_close = gpu_exchange_close,
        .exchange_call = gpu_exchange_call,
        .own_stream = gpu_own_stream,
        .own_memory = gpu_own_memory,
};
