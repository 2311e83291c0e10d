/* SPDX-License-Identifier: MIT */
/*
 * The waiting of a destroy, by itself. A destroy cannot be aborted, since nobody else may use what it frees. So who may
 * have to be told to stop waits here first, and destroys when there is nothing to wait for.
 */
#include "client/comm.h"
#include "client/device.h"
#include "client/error.h"
#include "client/group.h"
#include "railmux/railmux.h"
#include "util/clock.h"

int rmx_comm_finish(struct rmx_comm *comm, uint32_t timeout_ms) {
        int r = comm_check(comm, __func__);

        if (!r && (timeout_ms || group_has(comm))) /* what the group has of it is not even launched */
                r = group_refuse(__func__);
        if (r || !comm->device) /* on the host each request has a thread that waits, or has been given up */
                return r;
        if (device_finish(comm, clock_now_ns() + timeout_ms * UINT64_C(1000000)) || comm_status(comm))
                return RMX_OK;
        return error_set(RMX_E_TIMEOUT, "%s: this rank's requests are not over after %u ms", __func__, timeout_ms);
}
