/* SPDX-License-Identifier: MIT */
/*
 * A rank alone
 *
 * Programs make communicators of one rank where a degree of parallelism is 1, and call them like any other. What is
 * there to do is a copy, or nothing in place, and no executor is needed for it: rung, such a request takes 12 us in a
 * graph, and keeps a kernel on the GPU. So it is a copy on the stream of the caller, whole at its place, as an exchange
 * is (device_exchange.c); one that is captured and in place leaves nothing in the graph.
 *
 * Any reduction of one value is that value, bit for bit, also an average. Only those with a factor compute something,
 * and are rung as ever. So are sends to itself, which are matched in groups, calls that kernels make
 * (device_handle.c), and those from host memory to host memory, which is small: such a copy of NVIDIA's runtime waits
 * for all that is on the stream before it, in the call.
 *
 * Other requests of the communicator come before it and after it by its number, which is told as that of any launch
 * (device_call.c); a copy waits for no number by itself, so where one has to, a kernel before it does. Executors know
 * nothing of it, so neither do their counters.
 */
#include "client/device_alone.h"

#include "client/comm.h"
#include "client/device.h"
#include "client/device_call.h"
#include "client/operation.h"
#include "ring/line.h"
#include "util/type.h"

bool device_alone_takes(const struct operation *o) {
        return o->comm->n_ranks == 1 && !operation_is_p2p(o) && o->redop != RMX_PREMUL_SUM;
}

static int copy(const struct operation *o, size_t to, size_t from, size_t bytes, void *stream, char *error) {
        const struct device *device = o->comm->device;
        const char *in = (const char *)o->in + from;
        char *out = (char *)o->out + to;

        if (!bytes || in == out)
                return RMX_OK;
        return device->ops->copy(device->handle, out, in, bytes, stream, error);
}

int device_alone_put(const struct operation *o, const struct device_launch *launch, void *stream, char *error) {
        const struct device *device = o->comm->device;
        const uint64_t *vector = o->vector; /* one count or offset of each kind */
        const size_t size = type_size(o->type);
        const bool waits = launch->bell.after;
        int r = RMX_OK;

        if (waits)
                r = device->ops->behind(device->handle, o->comm->slot, launch->bell.after, stream, error);
        if (r)
                return r;
        if (vector)
                r = copy(o, vector[3] * size, vector[1] * size, vector[0] * size, stream, error);
        else
                r = copy(o, 0, 0, o->in_bytes, stream, error);
        o->comm->adrift |= r && waits;
        if (r || !launch->bell.number)
                return r;
        r = device->ops->mark(device->handle, o->comm->slot, launch->bell.number, launch->bell.started, stream, error);
        o->comm->adrift |= r != RMX_OK;
        return r && !launch->bell.started ? CLIENT_GPU_UNTOLD : r; /* a start has to be waited for */
}
