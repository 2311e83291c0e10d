/* SPDX-License-Identifier: MIT */
/* They go on the communicator's own stream: ranks may join several at a time, in different orders. */
#include "client/device_gather.h"

#include "client/cancel.h"
#include "client/comm.h"
#include "client/device.h"
#include "client/device_call.h"
#include "client/error.h"
#include "client/operation.h"
#include "ring/line.h"
#include "util/clock.h"

int device_gather_begin(const struct rmx_comm *comm, struct device_gather *gather) {
        const struct client_gpu_ops *ops = comm->device->ops;

        gather->stream = ops->own_stream(comm->device->handle, comm->slot);
        gather->memory = ops->own_memory(comm->device->handle, comm->slot);
        if (!gather->stream || !gather->memory)
                return error_set(RMX_E_NO_MEMORY, "%s: GPU %u has no stream or pinned memory for the join",
                                 gather->what, comm->device->gpu);
        if (ops->capturing(comm->device->handle, gather->stream))
                return error_set(RMX_E_INVALID,
                                 "%s: a request of an earlier communicator was started in a capture that is not over; "
                                 "end that first",
                                 gather->what);
        return RMX_OK;
}

/* Until what was launched has ended, and well. */
static int gather_wait(struct rmx_comm *comm, const struct device_gather *gather) {
        struct device *device = comm->device;
        uint64_t started_ns = clock_now_ns();

        for (;;) {
                uint32_t status;
                bool over;

                pthread_mutex_lock(&device->mutex);
                over = device_over(comm);
                pthread_mutex_unlock(&device->mutex);
                status = device_status(comm, true); /* which a kernel leaves before it tells its number */
                if (comm_status(comm))
                        status = comm_status(comm);
                if (status)
                        return comm_report(comm, gather->what, status);
                if (over)
                        return RMX_OK;
                if (cancel_is_set(gather->cancel))
                        return error_set(RMX_E_ABORTED, "%s: it was given up (rmx_cancel_set)", gather->what);
                if (clock_now_ns() >= gather->deadline_ns)
                        return error_set(RMX_E_TIMEOUT, "%s: not all ranks have joined in time", gather->what);
                if (!device_alive(device))
                        return error_set(RMX_E_DEVICE_LOST, "%s: the context of GPU %u is lost", gather->what,
                                         device->gpu);
                device_pause(device, started_ns);
        }
}

int device_gather(struct rmx_comm *comm, const struct device_gather *gather, void *all, size_t bytes) {
        struct operation o = {.what = gather->what,
                              .comm = comm,
                              .op = RING_OP_ALL_GATHER,
                              .type = RMX_UINT8,
                              .in = (char *)all + comm->rank * bytes,
                              .out = all,
                              .count = bytes};
        int r;

        r = operation_check(&o, gather->stream);
        if (!r)
                r = device_run(&o, gather->stream);
        return r ? r : gather_wait(comm, gather);
}
