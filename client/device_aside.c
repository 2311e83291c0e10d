/* SPDX-License-Identifier: MIT */
/*
 * An exchange is one kernel that ends when its result is there. On the stream of its start it would hold up what comes
 * after it, and where ranks start requests of several communicators in different orders on one stream, each would stand
 * before the one that the other rank waits for. So a start puts it on a stream of the communicator's own (the one that
 * served the join, made before anything is captured): that is put behind the caller's, the kernel comes, then a flag;
 * the wait puts a stream behind the flag. A call is not started: it stays on the caller's stream, and so does a start
 * for which there is no stream or no flag.
 *
 * Order. A communicator has one order, that of the calls, wherever they go: of its exchanges two must never run at a
 * time, and numbers are told in their order (device_call.c). The own stream keeps those that are on it. For what is put
 * on any other stream `last` says that the last launch is on the own one: then that stream is put behind the own one,
 * unless the number has been told; also if it is the very stream of the start, as long as its wait is not there. The
 * caller's stream remains comm->stream, since waits for requests that were rung stand there. Nothing is different for
 * calls where nothing was started.
 *
 * Captures. What is captured has no number, and is in order by the streams of its capture. A start takes the own stream
 * into the capture of its stream; the wait joins it again, and so does a call that comes after it, also one on another
 * stream of the capture. While it is in a capture, nothing that runs at once can be put on it, nor what is in another
 * capture: such starts are carried out at their place on the caller's stream, as if there was no own one, and a call
 * that has to come after something on it waits by its kernel (client_gpu_bell.after). A replay is in no order that the
 * library sees; before one whose graph has exchanges of this communicator, the caller waits on the stream for what was
 * started.
 *
 * Flags (events, of which the device has some from the beginning, since none may have to be made under capture). A
 * flag is what its stream had when it was set. A stream that is put behind it takes that over at once, so a flag may be
 * set anew as soon as the wait has been put on a stream, however far that has come, and whether either is captured. A
 * request has its flag from its start until then; or until it is known to have ended, or its communicator goes. (One
 * that was captured, and whose wait is missing in its capture, keeps the flag until the communicator goes.)
 *
 * Groups that are not started take the whole stream instead (device_group.c), and then nobody's start goes there.
 */
#include "client/device_aside.h"

#include "client/comm.h"
#include "client/device.h"

_Static_assert(CLIENT_GPU_FLAGS == 64, "a word has a bit for each flag");

bool device_aside_can(const struct rmx_comm *comm, bool captured, void *stream) {
        const struct client_gpu_ops *ops = comm->device->ops;
        uint64_t capture;

        if (!comm->aside.stream || comm->aside.taken)
                return false;
        capture = ops->capture(comm->device->handle, comm->aside.stream);
        return !capture || (captured && capture == ops->capture(comm->device->handle, stream));
}

void device_aside_open(struct rmx_comm *comm, uint32_t cell, void *caller) {
        struct device_aside *aside = &comm->aside;

        aside->captured = !aside->captured || (aside->captured == 1 && aside->caller == caller) ? 1 : 2;
        aside->caller = caller;
        aside->cell = cell;
}

void device_aside_joined(struct rmx_comm *comm, uint32_t cell, void *stream) {
        struct device_aside *aside = &comm->aside;

        if (aside->captured == 1 && aside->caller == stream && aside->cell == cell)
                aside->captured = 0;
}

int device_aside_close(struct rmx_comm *comm, void *stream, char *error) {
        const struct client_gpu_ops *ops = comm->device->ops;
        uint64_t capture;
        int r;

        if (!comm->aside.captured || stream == comm->aside.stream)
                return RMX_OK;
        capture = ops->capture(comm->device->handle, comm->aside.stream);
        if (!capture) /* it is over */
                comm->aside.captured = 0;
        if (!capture || capture != ops->capture(comm->device->handle, stream))
                return RMX_OK;
        r = ops->order(comm->device->handle, comm->aside.stream, stream, error);
        if (!r)
                device_aside_joined(comm, comm->aside.cell, stream);
        return r;
}

bool device_flag_take(struct device *device, uint32_t *ret_flag) {
        if (!~device->flags)
                return false;
        *ret_flag = (uint32_t)__builtin_ctzll(~device->flags);
        device->flags |= UINT64_C(1) << *ret_flag;
        return true;
}

void device_flag_give(struct device *device, uint32_t flag) {
        device->flags &= ~(UINT64_C(1) << flag);
}
