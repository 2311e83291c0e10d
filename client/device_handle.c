/* SPDX-License-Identifier: MIT */
/*
 * Calls that kernels of the program make by themselves (railmux_device.h). All that the host does for them is done once
 * and before: checks, names of memory, the words of the line. The handle says where the area is and what to write
 * there; numbers come from the same counters on the device as those of our own kernels.
 *
 * We know nothing of such a kernel: neither when it runs nor whether it has ended. So it has no number of ours
 * (device_call.c), other streams are not made to wait for it, and it takes no cell. Order, and no kernel being under
 * way when the comm is destroyed, are the caller's business, as with graphs.
 */
#include "client/comm.h"
#include "client/device.h"
#include "client/device_call.h"
#include "client/device_nodes_put.h"
#include "client/error.h"
#include "client/operation.h"

#define CALL_BYTES_MAX 4096u

_Static_assert(RMX_OP_ALL_REDUCE == RING_OP_ALL_REDUCE && RMX_OP_REDUCE == RING_OP_REDUCE &&
                       RMX_OP_BROADCAST == RING_OP_BROADCAST && RMX_OP_ALL_GATHER == RING_OP_ALL_GATHER &&
                       RMX_OP_REDUCE_SCATTER == RING_OP_REDUCE_SCATTER && RMX_OP_ALL_TO_ALL == RING_OP_ALL_TO_ALL &&
                       RMX_OP_GATHER == RING_OP_GATHER && RMX_OP_SCATTER == RING_OP_SCATTER &&
                       RMX_OP_BARRIER == RING_OP_BARRIER,
               "operations have one number");

/* What operation has which arguments. */
static const struct form {
        bool known, typed, reduces, rooted;
} forms[RING_OP_COUNT] = {
        [RMX_OP_ALL_REDUCE] = {.known = true, .typed = true, .reduces = true},
        [RMX_OP_REDUCE] = {.known = true, .typed = true, .reduces = true, .rooted = true},
        [RMX_OP_BROADCAST] = {.known = true, .typed = true, .rooted = true},
        [RMX_OP_ALL_GATHER] = {.known = true, .typed = true},
        [RMX_OP_REDUCE_SCATTER] = {.known = true, .typed = true, .reduces = true},
        [RMX_OP_ALL_TO_ALL] = {.known = true, .typed = true},
        [RMX_OP_GATHER] = {.known = true, .typed = true, .rooted = true},
        [RMX_OP_SCATTER] = {.known = true, .typed = true, .rooted = true},
        [RMX_OP_BARRIER] = {.known = true},
};

static int check_operation(const char *what, const struct rmx_device_call *call) {
        const struct form *form = call->operation < RING_OP_COUNT ? &forms[call->operation] : &forms[RING_OP_NONE];
        const char *none = NULL;

        if (call->operation == RING_OP_SEND || call->operation == RING_OP_RECV ||
            call->operation == RING_OP_ALL_TO_ALL_V)
                return error_set(RMX_E_UNSUPPORTED,
                                 "%s: kernels make no sends, receives and all_to_all_v; call->operation must be one of "
                                 "RMX_OP_*",
                                 what);
        if (!form->known)
                return error_set(RMX_E_INVALID, "%s: call->operation %u is unknown; it must be one of RMX_OP_*", what,
                                 call->operation);
        /* They are part of what the ranks' calls are compared by. */
        if (!form->typed && (call->count || call->type))
                none = "count and type";
        else if (!form->reduces && call->redop)
                none = "redop";
        else if (!form->rooted && call->root)
                none = "root";
        return none ? error_set(RMX_E_INVALID, "%s: operation %u has no %s, which must be 0", what, call->operation,
                                none)
                    : RMX_OK;
}

/* A larger struct is of a later library, and all right if it asks for nothing that this one does not know. */
static int call_copy(const char *what, const struct rmx_device_call *call, struct rmx_device_call *ret_call) {
        const unsigned char *bytes = (const unsigned char *)call;

        if (call->size < sizeof(*call) || call->size > CALL_BYTES_MAX)
                return error_set(RMX_E_INVALID, "%s: call->size is %zu, must be %zu (sizeof the struct)", what,
                                 call->size, sizeof(*call));
        for (size_t i = sizeof(*call); i < call->size; i++) {
                if (bytes[i])
                        return error_set(RMX_E_UNSUPPORTED, "%s: call has members that this library does not know",
                                         what);
        }
        *ret_call = *call;
        return RMX_OK;
}

static int check_call(const char *what, const struct rmx_comm *comm, const struct rmx_device_call *call,
                      struct rmx_device_call *ret_call) {
        int r;

        if (!comm->device)
                return error_set(RMX_E_UNSUPPORTED,
                                 "%s: a kernel makes calls on communicators of GPUs; this one is on the host backend",
                                 what);
        r = call_copy(what, call, ret_call);
        if (r)
                return r;
        if (ret_call->version != RMX_DEVICE_VERSION)
                return error_set(RMX_E_VERSION,
                                 "%s: the kernel was compiled with version %u of railmux_device.h; this library knows "
                                 "version %u",
                                 what, ret_call->version, RMX_DEVICE_VERSION);
        if (ret_call->reserved)
                return error_set(RMX_E_INVALID, "%s: call->reserved must be 0", what);
        return check_operation(what, ret_call);
}

int rmx_device_prepare(struct rmx_comm *comm, const struct rmx_device_call *call,
                       struct rmx_device_handle *ret_handle) {
        struct rmx_device_call copy;
        struct device_launch launch;
        struct operation o;
        int r;

        r = comm_check(comm, __func__);
        if (r)
                return r;
        if (!call || !ret_handle)
                return error_set(RMX_E_INVALID, "%s: %s is NULL", __func__, call ? "ret_handle" : "call");
        r = check_call(__func__, comm, call, &copy);
        if (r)
                return r;
        o = (struct operation){.what = __func__,
                               .comm = comm,
                               .op = copy.operation,
                               .type = copy.type,
                               .redop = copy.redop,
                               .peer = copy.root,
                               .in = copy.in,
                               .out = copy.out,
                               .count = copy.count};
        r = operation_check(&o, NULL);
        if (r)
                return r;
        if (o.redop == RMX_PREMUL_SUM)
                return error_set(RMX_E_UNSUPPORTED, "%s: kernels make no reductions with a factor", __func__);
        if (device_nodes_takes(&o))
                return error_set(RMX_E_UNSUPPORTED,
                                 "%s: on this communicator over several nodes operation %u of this size is made of "
                                 "several calls of the host's; make it with the flag RMX_COMM_DEVICE_CALLS in "
                                 "rmx_comm_options",
                                 __func__, o.op);
        r = comm->n_ranks == 1 ? device_prepare_rung(&o, &launch) : device_prepare(&o, false, &launch);
        if (r)
                return r;
        if (launch.exchanged)
                return error_set(RMX_E_UNSUPPORTED,
                                 "%s: this communicator exchanges operation %u of %zu to %zu bytes (gpu.exchange of "
                                 "railmuxd), which takes a call of the host's; make it with the flag "
                                 "RMX_COMM_DEVICE_CALLS in rmx_comm_options",
                                 __func__, o.op, (size_t)comm->exchange_min, (size_t)comm->exchange_max);
        if (launch.region[DEVICE_BOUNCE_IN] || launch.region[DEVICE_BOUNCE_OUT])
                return error_set(RMX_E_UNSUPPORTED,
                                 "%s: no other process can map this memory, and a kernel's call is not copied beyond "
                                 "%u bytes",
                                 __func__, CLIENT_GPU_INLINE_BYTES);
        comm->device->ops->handle(comm->device->handle, &launch.bell, ret_handle);
        return RMX_OK;
}
