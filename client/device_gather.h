/* SPDX-License-Identifier: MIT */
#pragma once
/* Small requests of a communicator's own, with which its ranks settle something at the end of a join. */
#include <stddef.h>
#include <stdint.h>

struct rmx_cancel;
struct rmx_comm;

struct device_gather {
        const char *what;
        struct rmx_cancel *cancel; /* NULL is allowed */
        uint64_t deadline_ns;
        /* Of device_gather_begin. */
        void *stream; /* the communicator's own */
        void *memory; /* CLIENT_GPU_OWN_BYTES, which the device reads and writes; the communicator's, as long as it
                         lives */
};

/* Finds what the gathers need. RMX_*; text set. */
int device_gather_begin(const struct rmx_comm *comm, struct device_gather *gather);
/* Gives every rank what each has at its place of `all`, in gather->memory: of each rank so many bytes. Through the
 * executors, as any request; waits for the other ranks, until the deadline, or until the cancel is set. RMX_*; text
 * set; on an error a kernel of the comm may be left on the device. */
int device_gather(struct rmx_comm *comm, const struct device_gather *gather, void *all, size_t bytes);
