/* SPDX-License-Identifier: MIT */
/*
 * The latch is one word for all sessions on a GPU, and each may write it at any time, so nothing depends on it but when
 * a kernel begins (park.c).
 *
 * Who lifts it for no reason has rung in vain. Who holds it down makes others wait for the look at their wake words,
 * and then for a millisecond, after which we insist. He can write the word as often as we do, so we write it many
 * times. He can also punch a hole into the file: pages that are pinned stay what the GPUs see, while processors see
 * another one from then on. So the GPU writes it, too.
 *
 * That would go on for as long as the executor lives, also when the tenant is gone: with a hole the GPU may find the
 * latch lifted for ever, so each kernel that is queued begins at once, and the GPU is never parked. So we remember how
 * kernels have begun. If MISUSED_MOST in a row were held down, or had begun and nobody had said anything, none is
 * queued for SHUNNED_NS, and whoever has to wake waits for a launch, as on GPUs that have no latch.
 *
 * Who lifts it as he should says so: a bell kernel raises its wake word before that, and the library writes its eventfd
 * right after it. (Should a tick come between those two, that is one kernel, and not MISUSED_MOST in a row.) Whether he
 * has rung by the time at which we park again does not count: his call may stand behind others of his own for long.
 *
 * Is there a hole? Of an insisting that has been carried out a token shows it: the GPU was to write that as well, and
 * we do not find it. (A kernel that has no room is insisted on, too, and nobody is to blame for that.)
 *
 * Only on NVIDIA's GPUs: AMD's runtime wants the word in memory of its own kind, and may have a kernel poll it.
 */
#include "gpu/hip/latch.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "gpu/device/bell.h"
#include "gpu/hip/error.h"
#include "util/clock.h"

#define LATE_NS      UINT64_C(1000000) /* for a kernel that has been let go to begin, if it has room */
#define INSISTS      1000u             /* so many times the word is written then */
#define MISUSED_MOST 4u
#define SHUNNED_NS   UINT64_C(60000000000)

#ifndef LATCH_EXISTS /* tests */
#ifdef RAILMUX_CUDA
#define LATCH_EXISTS true
#else
#define LATCH_EXISTS false
#endif
#endif

int latch_open(struct latch *latch, hipStream_t control, void *page, char *error) {
        const char *wish = getenv("RAILMUX_GPU_QUEUE");
        int r;

        if (!LATCH_EXISTS || latch->page || (wish && *wish == '0'))
                return 0;
        r = runtime_check(hipHostRegister(page, BELL_LATCH_BYTES, hipHostRegisterMapped), "pinning the latch", error);
        if (r)
                return r;
        r = runtime_check(hipHostGetDevicePointer(&latch->there, page, 0), "mapping the latch", error);
        if (r) {
                (void)hipHostUnregister(page);
                return r;
        }
        latch->page = page;
        latch->control = control;
        return 0;
}

void latch_close(struct latch *latch) {
        if (latch->page)
                (void)hipHostUnregister(latch->page);
        *latch = (struct latch){0};
}

bool latch_usable(const struct latch *latch) {
        return latch->page && !latch->refused && clock_now_ns() >= latch->shunned_ns;
}

bool latch_wait(struct latch *latch, hipStream_t stream) {
        latch->waited_for =
                hipStreamWaitValue32(stream, latch->there, 1, hipStreamWaitValueEq, UINT32_MAX) == hipSuccess;
        latch->refused = !latch->waited_for;
        if (latch->refused)
                (void)hipGetLastError();
        return latch->waited_for;
}

void latch_arm(struct latch *latch) {
        if (!latch->page)
                return;
        latch->waited_for = latch->lifted = latch->held = latch->alone = false;
        latch->token = 0;
        __atomic_store_n(&latch->page->lifted, 0, __ATOMIC_RELAXED);
        atomic_thread_fence(memory_order_seq_cst); /* partner: rmx_bell_look, which writes two words the other way */
}

/* release; partner: the GPU's front end, and the kernel behind it, which sees what stands in the tables. */
static void lift(struct latch *latch) {
        __atomic_store_n(&latch->page->lifted, 1, __ATOMIC_RELEASE);
}

void latch_lift(struct latch *latch) {
        lift(latch);
        latch->lifted = true;
        latch->lifted_ns = clock_now_ns();
}

void latch_insist(struct latch *latch) {
        const uint64_t now = clock_now_ns();

        if (!latch->lifted || now - latch->lifted_ns < LATE_NS)
                return;
        latch->lifted_ns = now;
        latch->held |= __atomic_load_n(&latch->page->lifted, __ATOMIC_RELAXED) != 1;
        latch->token = ++latch->n_insisted;
        if (hipStreamWriteValue32(latch->control, latch->there, 1, 0) != hipSuccess ||
            hipStreamWriteValue32(latch->control, (char *)latch->there + offsetof(struct bell_latch, token),
                                  latch->token, 0) != hipSuccess) {
                (void)hipGetLastError();
                latch->token = 0; /* it says nothing */
        }
        for (uint32_t i = 0; i < INSISTS; i++)
                lift(latch);
}

void latch_judge(struct latch *latch) {
        if (!latch->waited_for)
                return;
        if (latch->token) /* (written long ago: the kernel has begun, and there has been a silence) */
                latch->held |= __atomic_load_n(&latch->page->token, __ATOMIC_RELAXED) != latch->token;
        latch->n_misused = latch->held || latch->alone ? latch->n_misused + 1 : 0;
        if (latch->n_misused < MISUSED_MOST)
                return;
        latch->n_misused = 0;
        latch->n_shunned++;
        latch->shunned_ns = clock_now_ns() + SHUNNED_NS;
}
