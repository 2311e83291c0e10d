/* SPDX-License-Identifier: MIT */
/*
 * What every call leaves as it was: the thread's device, its context and its capture mode
 *
 * Calls come from any thread of the program, also from such that have used no GPU: those that wait, watch or destroy.
 * On NVIDIA's GPUs such a thread has no context, and is taken to be on device 0. To set that device afterwards would
 * make a context there, of half a gigabyte for each rank of a host whose processes see all GPUs; and to leave the
 * thread on ours would send what the program does next to another GPU. So what is kept and put back is the context, and
 * none is one as well. It also is one that the program has made itself, which no number of a device leads back to.
 *
 * On AMD's GPUs a device is all that there is.
 */
#include "client/hip/private.h"

#ifndef SCOPE_CONTEXTS /* tests */
#ifdef RAILMUX_CUDA
#define SCOPE_CONTEXTS 1
#else
#define SCOPE_CONTEXTS 0
#endif
#endif

#if SCOPE_CONTEXTS
/* If the driver does not say, the device has to do. */
static void scope_look(struct scope *scope) {
        hipCtx_t context = NULL;

        scope->known = hipCtxGetCurrent(&context) == hipSuccess;
        scope->context = context;
}

static bool scope_without_context(const struct scope *scope) {
        return scope->known && !scope->context;
}

static void scope_back(const struct scope *scope) {
        if (!scope->known || hipCtxSetCurrent((hipCtx_t)scope->context) != hipSuccess)
                (void)hipSetDevice(scope->device);
}
#else
static void scope_look(struct scope *scope) {
        (void)scope;
}

static bool scope_without_context(const struct scope *scope) {
        (void)scope;
        return false;
}

static void scope_back(const struct scope *scope) {
        (void)hipSetDevice(scope->device);
}
#endif

hipError_t scope_device(struct scope *scope, int device) {
        hipError_t r;

        *scope = (struct scope){.device = device};
        r = hipGetDevice(&scope->device);
        if (r != hipSuccess)
                return r;
        scope_look(scope);
        if (scope->device != device || scope_without_context(scope)) {
                r = hipSetDevice(device);
                scope->moved = r == hipSuccess;
        }
        return r;
}

hipError_t scope_enter(struct scope *scope, int device) {
        hipError_t r = scope_device(scope, device);

        if (r != hipSuccess)
                return r;
        scope->mode = hipStreamCaptureModeRelaxed;
        r = hipThreadExchangeStreamCaptureMode(&scope->mode);
        scope->relaxed = r == hipSuccess;
        return r;
}

void scope_leave(struct scope *scope) {
        if (scope->relaxed)
                (void)hipThreadExchangeStreamCaptureMode(&scope->mode);
        if (scope->moved)
                scope_back(scope);
}
