/* SPDX-License-Identifier: MIT */
/*
 * How the host knows which of a communicator's launches have ended, without touching their streams, which may be gone
 * by then (client/device_call.c).
 *
 * A bell kernel tells its number in a word of the host's memory when it ends. For an exchange that is dear: the blocks
 * have to count each other, and before the number goes to the host fences have to wait for all that was written, also
 * to other GPUs and to the host: 3 to 4.5 us of each call, on a GPU that has nothing else to do meanwhile (H100). An
 * event behind the kernel costs the GPU nothing that can be measured, and the host one us. So an exchange that is
 * called does not tell its number; an event says when it has ended, and so it does behind copies, where it saves a
 * kernel. There is one for a communicator, which is recorded anew by each such call, since calls are asked for only as
 * long as they are the last launch.
 *
 * A request that was started may be asked for when other launches have come after it, which may wait for this very
 * rank to go on; so those tell their numbers themselves.
 *
 * Numbers are told in their order, as each launch comes after the one before. The event's number stands in
 * `ended.number` as long as that call is the last launch of its slot; one that tells its number itself takes it away.
 * So when somebody asks and it stands there, nothing is under way that could tell another number: if the event is over,
 * the number becomes what was told. Calls on one stream are never asked for, so one in many tells its number itself,
 * and what was told is never so old that numbers have come round to it.
 *
 * Somebody who cannot ask (a kernel behind a launch on a stream that is being captured by now) is put behind the event.
 *
 * If an event cannot be recorded, the kernel is under way all the same: a kernel behind it tells its number.
 *
 * On AMD's GPUs kernels tell their numbers: what an event costs there has not been measured.
 */
#include "client/hip/private.h"

#ifndef ENDED_EVENTS /* tests */
#ifdef RAILMUX_CUDA
#define ENDED_EVENTS true
#else
#define ENDED_EVENTS false
#endif
#endif

#define ENDED_TELLS 65536u /* of so many calls one tells its number */

hipError_t gpu_ended_open(struct client_gpu *gpu, uint32_t slot) {
        if (!ENDED_EVENTS || gpu->ended[slot].event)
                return hipSuccess;
        return hipEventCreateWithFlags(&gpu->ended[slot].event, hipEventDisableTiming);
}

void gpu_ended_told(struct client_gpu *gpu, uint32_t slot) {
        gpu->ended[slot].number = 0;
}

void gpu_ended_free(struct client_gpu *gpu) {
        for (uint32_t slot = 0; slot < CLIENT_GPU_SLOTS; slot++)
                if (gpu->ended[slot].event)
                        (void)hipEventDestroy(gpu->ended[slot].event);
}

bool gpu_ended_records(const struct client_gpu *gpu, const struct client_gpu_bell *bell) {
        return gpu->ended[bell->slot].event && bell->number % ENDED_TELLS && !bell->started;
}

hipError_t gpu_ended_record(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream) {
        struct ended *ended = &gpu->ended[bell->slot];
        hipError_t r;

        r = hipEventRecord(ended->event, stream);
        if (r == hipSuccess)
                ended->number = bell->number;
        return r;
}

hipError_t gpu_ended_await(struct client_gpu *gpu, uint32_t slot, uint32_t number, void *stream, bool *ret_done) {
        const struct ended *ended = &gpu->ended[slot];

        *ret_done = ended->number && ended->number == number;
        return *ret_done ? hipStreamWaitEvent(stream, ended->event, 0) : hipSuccess;
}

/* The event of the last call is over. */
static bool ended_over(struct client_gpu *gpu, uint32_t slot) {
        struct scope scope;
        hipError_t r;

        r = scope_enter(&scope, gpu->device);
        if (r == hipSuccess)
                r = hipEventQuery(gpu->ended[slot].event);
        if (r != hipSuccess)
                (void)hipGetLastError();
        scope_leave(&scope);
        return r == hipSuccess;
}

uint32_t gpu_comm_finished(struct client_gpu *gpu, uint32_t slot) {
        uint32_t *word = &gpu->host->finished[slot];
        struct ended *ended = &gpu->ended[slot];

        if (ended->number && ended_over(gpu, slot)) {
                /* relaxed; kernels that stored before have ended, and none that will is there. */
                __atomic_store_n(word, ended->number, __ATOMIC_RELAXED);
                ended->number = 0;
        }
        /* acquire; partner: number_tell() in the kernels. */
        return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
