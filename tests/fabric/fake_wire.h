/* SPDX-License-Identifier: MIT */
#pragma once
/* What goes from queue pair to queue pair. All but fake_wire_run() with the lock. */
#include "tests/fabric/fake_world.h"

/* The thread: does what is due until world.stopping. */
void *fake_wire_run(void *unused);
/* Throws away what FAKE_HOLD keeps for a device that is gone, or all of it (NULL). */
void fake_wire_drop_packets(const struct fake_device *device);
/* The queue pair is in ERR from now on: what is posted will be flushed. After world_quiet(). */
void fake_qp_error(struct fake_qp *qp);
/* When it should look at the queue pair: after its device's delay. */
void fake_qp_schedule(struct fake_qp *qp);

static inline struct fake_wr *fake_qp_wr(struct fake_qp *qp, uint64_t number) {
        return &qp->wrs[number % qp->cap.max_send_wr];
}
