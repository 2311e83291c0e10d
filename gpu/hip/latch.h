/* SPDX-License-Identifier: MIT */
#pragma once
/* What holds a queued kernel back: a word in a page that clients share with us. With the plane's lock (hip.h). See
 * latch.c. */
#include <stdbool.h>
#include <stdint.h>

#include "gpu/hip/runtime.h"

struct bell_latch;

struct latch {
        struct bell_latch *page; /* NULL: nothing is ever queued */
        void *there;             /* the same for the GPU */
        hipStream_t control;     /* of the plane */
        bool refused;            /* the runtime has no wait for it */
        bool waited_for;         /* since it was armed, as all that follows: a kernel has been queued; */
        bool lifted;             /* by us, */
        uint64_t lifted_ns;      /* last at this time; */
        bool held;               /* somebody has put it down again; */
        bool alone;              /* the kernel has begun, and nobody has said that he would ring */
        uint32_t n_insisted;     /* in all, each with this token */
        uint32_t token;          /* 0: not since it was armed */
        uint32_t n_misused;      /* kernels in a row */
        uint64_t shunned_ns;     /* nothing is queued before, */
        uint64_t n_shunned;      /* and so often that was set */
};

/* Pins the page, once; RAILMUX_GPU_QUEUE=0 or a GPU without such waits: nothing happens. */
int latch_open(struct latch *latch, hipStream_t control, void *page, char *error);
void latch_close(struct latch *latch);
/* May a kernel be queued behind it? */
bool latch_usable(const struct latch *latch);
/* What is put on the stream from now on begins when it is lifted. False: not with this runtime, now or ever. */
bool latch_wait(struct latch *latch, hipStream_t stream);
/* Nothing is queued, and what runs has begun: it will hold what is queued next. Before clients are told that they have
 * to lift it, or before it is read whether they have rung. */
void latch_arm(struct latch *latch);
void latch_lift(struct latch *latch);
/* It was lifted, and the kernel has not begun: lifts it again, if that is late. */
void latch_insist(struct latch *latch);
/* Before it is armed for the next kernel: how has the one before begun? */
void latch_judge(struct latch *latch);
