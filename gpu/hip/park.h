/* SPDX-License-Identifier: MIT */
#pragma once
/* The resident kernel's life: launch, stop, launch again. With the plane's lock (hip.h). See park.c. */
#include <stdbool.h>
#include <stdint.h>

#include "gpu/hip/kernel.h"
#include "gpu/hip/latch.h"
#include "gpu/hip/runtime.h"

struct tables;

/* table.stop */
enum park_stop {
        PARK_RUN = 0,
        PARK_WHEN_IDLE = 1,
        PARK_AT_ONCE = 2,
        PARK_WHEN_SERVED = 3, /* each worker by itself, when it has nothing to do (gpu/device/worker.h) */
};

struct park {
        hipStream_t stream; /* the kernel's */
        struct kernel_arguments arguments;
        uint32_t n_blocks;
        uint32_t n_workers;
        bool wide;          /* with room for more than STAGING_RANKS_NARROW ranks (kernel.h); of the next launch */
        bool launched_wide; /* of the last one */
        uint32_t asked;     /* enum park_stop; the kernel is told when all of it has begun */
        bool running;       /* launched, and not yet seen to have ended */
        bool queued;        /* launched behind the latch, and as far as we know it has not begun */
        struct latch latch;
        struct tables *tables;
};

/* Loads the kernel and allocates what it keeps; nothing runs yet. */
int park_open(struct park *park, uint32_t n_blocks, struct tables *tables, char *error);
/* No kernel may be resident (park_stop). */
void park_close(struct park *park);

/* None is running: what can be done beforehand, so that the next launch is quick. */
int park_ready(struct park *park, struct tables *tables, char *error);
int park_launch(struct park *park, struct tables *tables, char *error);
/* The same, and more: the next launch only has to let it go. Where that cannot be had it is park_ready. */
int park_queue(struct park *park, struct tables *tables, char *error);
/* What is queued, if anything, runs from now on. */
void park_let_go(struct park *park);
/* Until that has begun: lifts the latch again, which others may have put down, or taken the memory of. */
void park_insist(struct park *park);
/* Has what was queued or launched last begun? */
bool park_begun(const struct park *park);
/* Has all of it? (None runs: yes.) What has not found room cannot end either. */
bool park_has_room(const struct park *park);
/* Asks the kernel to end, also one that is queued. It goes on for a while, until park_ended, and until all of it has
 * begun as if it had not been asked. */
int park_ask(struct park *park, struct tables *tables, uint32_t stop, char *error);
/* Has it ended? Never launched counts. Who has asked it to end goes on calling this, since it tells a kernel that has
 * begun since then. -EIO: it ended, or the context is lost, without having been asked. */
int park_ended(struct park *park, bool *ret_ended, char *error);
/* Asks and waits. -ETIMEDOUT. Fine if none is running; none is queued afterwards. */
int park_stop(struct park *park, struct tables *tables, uint32_t stop, uint32_t timeout_ms, char *error);
/* Tasks that the workers of the kernel that ended put aside. */
uint64_t park_kept(const struct park *park, const struct tables *tables);
/* Had every worker seen all lines of the ring, up to the one that `counter` is the number of, when the kernel ended? */
bool park_saw(const struct park *park, const struct tables *tables, uint32_t ring, uint32_t counter);
/* The line of the ring that the first worker looked for when the kernel ended. */
uint32_t park_next(const struct tables *tables, uint32_t ring);
/* Another session's ring has the entry from now on: no worker has seen a line of it. */
void park_forget_ring(const struct park *park, const struct tables *tables, uint32_t ring);
/* The rings that these tasks came from, a bit each. */
uint32_t park_kept_rings(const struct park *park, const struct tables *tables);
