/* SPDX-License-Identifier: MIT */
#pragma once
/* When the resident kernel goes between two large requests, and how it comes back. With the plane's lock. See leave.c.
 */
#include <stdbool.h>
#include <stdint.h>

struct plane;

/* All times by clock_now_ns. */
struct leave {
        uint64_t served_ns; /* when the last large request had been; 0: none yet */
        uint64_t served;    /* requests of any size, then */
        uint64_t opened_ns; /* the same when the one that is open was heard of */
        uint64_t opened;
        uint64_t later_ns; /* no leaving until then: the last time was of no use */
        uint64_t asked_ns; /* the kernel has been told to end when it has nothing to do; 0: it has not */
        bool open;         /* a large request is under way */
        bool wanted;       /* when it has been served, the kernel is to end */
        bool left;         /* it has, and the plane is parked */
        bool untold;       /* areas may say that the plane is parked, and it is not */
};

void leave_init(struct leave *leave);
/* What cannot wait for the next tick. kib: of the largest burst that was launched since the last call, 0: none was.
 * soon: somebody is about to ring after a silence. True: it should be called again at once, for the kernel has gone or
 * come back, or is about to. A failure is a fault. Called all the time by the thread of watch.c. */
bool leave_watch(struct plane *plane, uint32_t kib, bool soon);
