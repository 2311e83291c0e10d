/* SPDX-License-Identifier: MIT */
/*
 * From a call on a GPU to a kernel on the caller's stream. The call returns at once; what it says is that the kernel
 * was launched, and errors of the request are the communicator's later (rmx_comm_error).
 *
 * Small requests are inlined: the kernel itself carries the payload to the executor and the result back, so the memory
 * may be anything that the device reaches, and need not be known to the daemon. The rule is part of the executor's
 * protocol: up to CLIENT_GPU_INLINE_BYTES each way, and pieces of whole packets where an operation has several.
 *
 * Those that are exchanged (device_exchange.c) are a kernel each, too, and in the same order; a start puts all of it on
 * a stream of the communicator's own (device_aside.c). So does one of a request that is made of others, which is
 * several kernels one behind the other (device_nodes_put.c); and a rank's that is alone, which is a copy
 * (device_alone.c), at its place on the caller's.
 *
 * Requests of one communicator are in the order of the calls. On one stream they are by themselves; when another stream
 * comes, it first waits for what is on the last one. That is not possible with streams that are being captured; there
 * the caller orders.
 *
 * The last stream may be gone by then, if its work was over, and must not be touched. So what is launched is numbered,
 * 1, 2, .. without 0, for each communicator, and each number is told when its kernel has ended (client/hip/ended.c):
 * when the last one has been told there is nothing to wait for. This holds as long as numbers are told in their order,
 * that is, as long as each launch comes after the one before.
 * - What is captured has no number: it runs when it likes, and ends more than once.
 * - If the last stream is being captured now, with a call from before still under way on it, no stream can wait for
 *   that; the kernel itself does.
 * - Copies (device_bounce.c) tell nothing. A kernel behind them does, with a number of its own. And they wait for
 *   nothing: where a kernel would, there is one before them.
 * - Kernels that only wait have no number, since they may be on any stream. A word of theirs tells their end
 *   (device_request.c), and is asked for the last one on the communicator's stream.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/comm.h"
#include "client/device.h"
#include "client/device_alone.h"
#include "client/device_aside.h"
#include "client/device_bounce.h"
#include "client/device_call.h"
#include "client/device_chunks.h"
#include "client/device_exchange.h"
#include "client/device_nodes_put.h"
#include "client/device_streams.h"
#include "client/error.h"
#include "client/operation.h"
#include "client/session.h"
#include "ring/line.h"
#include "util/clock.h"
#include "util/type.h"

#define PACKET_BYTES 8u
#define SILENCE_NS   UINT64_C(150000000) /* no executor parks before its clients have been silent for longer */

static bool can_inline(const struct operation *o) {
        if (o->in_bytes > CLIENT_GPU_INLINE_BYTES || o->out_bytes > CLIENT_GPU_INLINE_BYTES)
                return false;
        switch (o->op) {
        case RING_OP_ALL_REDUCE:
        case RING_OP_REDUCE:
        case RING_OP_BROADCAST:
        case RING_OP_BARRIER:
        case RING_OP_SEND:
        case RING_OP_RECV:
                return true;
        case RING_OP_ALL_TO_ALL_V:
                return false;
        default:
                return o->count * type_size(o->type) % PACKET_BYTES == 0;
        }
}

_Static_assert(CLIENT_GPU_RANKS >= COMM_RANKS_MAX, "an argument block has room for all ranks");

/* ---- memory ------------------------------------------------------------------------------------------------------ */
/* What the pointer points into, which must be of use on this device. */
static int locate(const struct operation *o, const char *name, const void *address, size_t bytes, bool inlined,
                  struct client_gpu_memory *ret_memory) {
        struct device *device = o->comm->device;
        char error[CLIENT_GPU_TEXT] = "";
        int r;

        r = device->ops->locate(address, ret_memory, error);
        if (r)
                return error_set(r, "%s: %s: %s", o->what, name, error);
        if (ret_memory->residence == CLIENT_GPU_ORDINARY || (!inlined && ret_memory->residence == CLIENT_GPU_HOST))
                return error_set(RMX_E_INVALID,
                                 "%s: %s: %p is host memory; a communicator on GPUs needs memory of GPU %u", o->what,
                                 name, address, device->gpu);
        if (ret_memory->residence != CLIENT_GPU_DEVICE)
                return RMX_OK;
        if (ret_memory->device != device->number)
                return error_set(RMX_E_INVALID, "%s: %s: %p is memory of device %d; this rank's is device %d (GPU %u)",
                                 o->what, name, address, ret_memory->device, device->number, device->gpu);
        if (ret_memory->chunk)
                return device_chunks_check(device->ops, o->what, name, ret_memory, address, bytes);
        if ((uintptr_t)address - ret_memory->base > ret_memory->bytes ||
            bytes > ret_memory->bytes - ((uintptr_t)address - ret_memory->base))
                return error_set(RMX_E_INVALID, "%s: %s: %zu bytes at %p run over the end of their allocation", o->what,
                                 name, bytes, address);
        return RMX_OK;
}

/* Names the memory in the line: its allocation's buffer, or a region's. */
static int place(const struct operation *o, struct device_launch *launch, uint32_t direction) {
        bool in = direction == DEVICE_BOUNCE_IN;
        uint32_t word = in ? RING_W_IN_BUFFER : RING_W_OUT_BUFFER, buffer = 0;
        const void *address = in ? o->in : o->out;
        const char *name = in ? "in" : "out";
        size_t size = type_size(o->type), bytes = in ? o->in_bytes : o->out_bytes;
        struct client_gpu_memory memory;
        uint64_t offset = 0;
        int r;

        if (!bytes)
                return RMX_OK;
        /* Host memory will do for what is small, whichever way it goes. */
        r = locate(o, name, address, bytes, can_inline(o), &memory);
        launch->n_hosts += !r && memory.residence == CLIENT_GPU_HOST;
        if (r || launch->bell.inlined)
                return r;
        /* (What could be inlined may lie anywhere, whichever way it goes.) */
        if ((uintptr_t)address % size && !can_inline(o))
                return error_set(RMX_E_INVALID, "%s: %s: %p is not aligned to the %zu bytes of type %u", o->what, name,
                                 address, size, o->type);
        if (launch->exchanged)
                return RMX_OK;
        if (memory.residence == CLIENT_GPU_DEVICE)
                r = device_memory_name(o->comm->device, o->what, o->comm->cancel, &memory, address, bytes, &buffer,
                                       &offset);
        if (r)
                return r;
        if (!buffer) {
                r = device_bounce_get(o->comm, o->what, direction, bytes, &launch->region[direction]);
                if (r)
                        return r;
                buffer = launch->region[direction]->buffer;
                offset = 0;
        }
        launch->bell.word[word] = buffer;
        launch->bell.word[word + 1] = (uint32_t)offset;
        launch->bell.word[word + 2] = (uint32_t)(offset >> 32);
        return RMX_OK;
}

/* ---- the request ------------------------------------------------------------------------------------------------- */
static int prepare(const struct operation *o, bool capturing, bool exchanged, struct device_launch *launch) {
        struct client_gpu_bell *bell = &launch->bell;
        struct rmx_comm *comm = o->comm;
        struct ring_request line = {0};
        int r;

        session_look_seldom(comm->session); /* or nobody would, where a program only calls and waits for streams */
        (void)device_status(comm, false);
        if (comm_status(comm))
                return comm_report(comm, o->what, comm_status(comm));
        ring_request_set_head(&line, o->op, o->type, o->redop);
        line.word[RING_W_COMM] = comm->handle;
        ring_request_set_u64(&line, RING_W_COUNT_LO, o->count);
        line.word[RING_W_PEER] = o->peer;
        line.word[RING_W_EPOCH] = comm_epoch(comm);
        *launch = (struct device_launch){.exchanged = exchanged,
                                         .bell = {.slot = comm->slot,
                                                  .captured = capturing,
                                                  .inlined = !exchanged && can_inline(o),
                                                  .in = o->in,
                                                  .out = o->out,
                                                  .in_bytes = o->in_bytes,
                                                  .out_bytes = o->out_bytes}};
        _Static_assert(sizeof(bell->word) == sizeof(line.word), "a line is 16 words");
        memcpy(bell->word, line.word, sizeof(bell->word));
        if (o->vector) {
                bell->argument = o->vector;
                bell->n_arguments = 4 * comm->n_ranks;
        } else if (o->redop == RMX_PREMUL_SUM) {
                launch->factor = redop_factor_bits(&o->factor, o->type);
                bell->argument = &launch->factor;
                bell->n_arguments = 1;
        }
        r = place(o, launch, DEVICE_BOUNCE_IN);
        return r ? r : place(o, launch, DEVICE_BOUNCE_OUT);
}

int device_prepare(const struct operation *o, bool capturing, struct device_launch *launch) {
        struct operation between;
        int r;

        if (device_alone_takes(o)) {
                r = prepare(o, capturing, true, launch);
                launch->alone = r || launch->n_hosts < 2 || o->in == o->out;
                return launch->alone ? r : prepare(o, capturing, false, launch);
        }
        if (!device_nodes_takes(o))
                return prepare(o, capturing, device_exchange_takes(o), launch);
        r = prepare(o, capturing, true, launch); /* looks at all of the memory */
        if (r)
                return r;
        r = device_nodes_between(o, &between);
        if (!r)
                r = prepare(&between, capturing, false, launch);
        if (r && device_status(o->comm, false)) /* not as the part has it */
                return comm_report(o->comm, o->what, comm_status(o->comm));
        launch->exchanged = launch->made = true;
        return r;
}

int device_prepare_rung(const struct operation *o, struct device_launch *launch) {
        return prepare(o, false, false, launch);
}

static uint32_t number_next(const struct rmx_comm *comm) {
        return comm->number + 1 ? comm->number + 1 : 1;
}

/* With device->mutex: the kernel on `to` comes after what is on `from`, the last launch included unless it is over. */
static int follow(const struct operation *o, struct client_gpu_bell *bell, void *from, void *to, bool over) {
        struct device *device = o->comm->device;
        char error[CLIENT_GPU_TEXT] = "";
        int r;

        if (device->ops->capturing(device->handle, from)) {
                if (!over)
                        bell->after = o->comm->number;
                return RMX_OK;
        }
        r = device->ops->order(device->handle, from, to, error);
        return r ? error_set(r, "%s: %s", o->what, error) : RMX_OK;
}

/* With device->mutex: what is launched next, on this stream, comes after the comm's requests before. It comes after all
 * that is on `caller` already, the stream of the call or start. */
static int order(const struct operation *o, struct client_gpu_bell *bell, void *stream, void *caller) {
        struct device *device = o->comm->device;
        struct rmx_comm *comm = o->comm;
        char error[CLIENT_GPU_TEXT] = "";
        bool over;
        int r = RMX_OK;

        if (!device_alone_takes(o)) /* which waits for nobody */
                device_streams_note(comm, stream);
        if (bell->captured) {
                r = device_aside_close(comm, stream, error);
                return r ? error_set(r, "%s: %s", o->what, error) : RMX_OK;
        }
        bell->number = number_next(comm);
        if ((!comm->number && !comm->adrift) || (comm->stream == stream && !comm->aside.last))
                return RMX_OK;
        over = device_over(comm) && !comm->adrift;
        if (comm->aside.last) { /* behind all launches before */
                if (!over && stream != comm->aside.stream)
                        r = follow(o, bell, comm->aside.stream, stream, over);
                over = true;
        }
        if (r || comm->stream == stream || comm->stream == caller || (over && !device_request_tail(device, comm)))
                return r;
        return follow(o, bell, comm->stream, stream, over);
}

/* With device->mutex: the last thing that was launched is on the stream of the call or start, or aside. */
static void stands(struct rmx_comm *comm, void *stream, bool aside) {
        if (comm->stream != stream)
                comm->tail_turn = 0;
        comm->stream = stream;
        comm->aside.last = aside;
}

/* And has this number; 0: none. */
static void launched(struct rmx_comm *comm, uint32_t number, void *stream, bool aside) {
        if (!number)
                return;
        comm->number = number;
        comm->finished = false; /* whatever a look at it has said before */
        stands(comm, stream, aside);
}

/* With device->mutex: the end of the copies that are on the stream will be told. */
static void mark(struct rmx_comm *comm, void *stream) {
        struct device *device = comm->device;
        uint32_t number = number_next(comm);
        char error[CLIENT_GPU_TEXT];

        if (device->ops->mark(device->handle, comm->slot, number, false, stream, error))
                comm->adrift = true;
        else
                launched(comm, number, stream, false);
}

/* With device->mutex: something is about to be rung. After a silence the executor may have parked. If its next kernel
 * is queued, that begins while the bell kernel is launched; the executor is told, too, since what the bell kernel does
 * is looked at now and then only (docs/gpu.md). */
static void announce(struct device *device, const struct client_gpu_bell *bell) {
        const uint64_t one = 1, now_ns = bell->captured ? 0 : clock_now_ns();

        if (bell->captured)
                return;
        if (now_ns - device->rung_ns >= SILENCE_NS && device->soon_fd >= 0) {
                device->ops->lift(device->handle);
                (void)!write(device->soon_fd, &one, sizeof(one));
        }
        device->rung_ns = now_ns;
}

/* With device->mutex: what the plug-in says of a launch for a call or start on `caller`. */
static int put_told(const struct operation *o, uint32_t number, void *stream, void *caller, int r, const char *error) {
        if (r && r != CLIENT_GPU_UNTOLD) /* "": what it called has said it */
                return *error ? error_set(r, "%s: %s", o->what, error) : r;
        if (r) { /* nobody is to wait for its number, so it has had none */
                o->comm->adrift = true;
                stands(o->comm, caller, stream != caller);
        } else {
                launched(o->comm, number, caller, stream != caller);
        }
        return RMX_OK;
}

/* With device->mutex: if the launch itself would wait for one before it, and copies come before that, they wait, too:
 * the one before may still use their region. (Of what is made of others device_nodes_put sees to it.) */
static int put_behind(const struct operation *o, struct device_launch *launch, void *stream) {
        struct device *device = o->comm->device;
        char error[CLIENT_GPU_TEXT] = "";
        int r;

        if (!launch->bell.after || launch->made ||
            !(launch->region[DEVICE_BOUNCE_IN] || launch->region[DEVICE_BOUNCE_OUT]))
                return RMX_OK;
        r = device->ops->behind(device->handle, o->comm->slot, launch->bell.after, stream, error);
        if (r)
                return error_set(r, "%s: %s", o->what, error);
        launch->bell.after = 0;
        return RMX_OK;
}

/* With device->mutex: puts it on the stream whole, in its order, for a call or start on `caller`. */
static int put(const struct operation *o, struct device_launch *launch, void *stream, void *caller) {
        const struct client_gpu_ops *ops = o->comm->device->ops;
        struct device *device = o->comm->device;
        const bool adrift = o->comm->adrift;
        char error[CLIENT_GPU_TEXT] = "";
        int r;

        o->comm->adrift = false; /* to see whether something of this one is there */
        if (launch->made || !launch->exchanged)
                announce(device, &launch->bell);
        if (launch->made) {
                r = device_nodes_put(o, launch, stream, error);
        } else if (!launch->exchanged) {
                r = ops->call(device->handle, &launch->bell, stream, error);
        } else if (launch->alone) {
                r = device_alone_put(o, launch, stream, error);
        } else if (operation_is_p2p(o)) {
                r = ops->exchange_pairs(o->comm->exchange, &launch->bell, 1, stream, error);
        } else {
                r = ops->exchange_call(o->comm->exchange, &launch->bell, stream, error);
        }
        if (r && o->comm->adrift)
                stands(o->comm, caller, stream != caller);
        o->comm->adrift |= adrift;
        return put_told(o, launch->bell.number, stream, caller, r, error);
}

/* Other ranks hear at once of a request that is there in part (device_nodes_tear). */
static int told(const struct operation *o, const struct device_launch *launch, int r) {
        char text[ERROR_TEXT_BYTES];

        if (!r || !launch->made)
                return r;
        snprintf(text, sizeof(text), "%s", rmx_last_error()); /* stays */
        (void)device_status(o->comm, false);
        return error_set(r, "%s", text);
}

int device_call(const struct operation *o, struct device_launch *launch, void *stream) {
        struct device_region *in = launch->made ? NULL : launch->region[DEVICE_BOUNCE_IN];
        struct device_region *out = launch->made ? NULL : launch->region[DEVICE_BOUNCE_OUT];
        struct device *device = o->comm->device;
        int r, ordered;

        pthread_mutex_lock(&device->mutex);
        r = ordered = order(o, &launch->bell, stream, stream);
        if (!r)
                r = ordered = put_behind(o, launch, stream);
        if (!r)
                r = device_bounce_copy_in(o, in, stream);
        if (!r)
                r = put(o, launch, stream, stream);
        if (!r)
                r = device_bounce_copy_out(o, out, stream);
        if (!ordered && (in || out) && !launch->bell.captured) /* also if only some of the copies are there */
                mark(o->comm, stream);
        pthread_mutex_unlock(&device->mutex);
        return device_judge(o->comm, told(o, launch, r));
}

int device_call_pairs(struct operation *const *o, struct device_launch *const *launch, uint32_t n, void *stream) {
        struct rmx_comm *comm = o[0]->comm;
        struct device *device = comm->device;
        struct client_gpu_bell bells[CLIENT_GPU_PAIRS];
        char error[CLIENT_GPU_TEXT] = "";
        int r;

        pthread_mutex_lock(&device->mutex);
        r = order(o[0], &launch[0]->bell, stream, stream);
        for (uint32_t i = 0; i < n; i++)
                bells[i] = launch[i]->bell;
        if (!r) {
                r = device->ops->exchange_pairs(comm->exchange, bells, n, stream, error);
                r = put_told(o[0], bells[0].number, stream, stream, r, error);
        }
        pthread_mutex_unlock(&device->mutex);
        return device_judge(comm, r);
}

int device_run(const struct operation *o, void *stream) {
        struct device *device = o->comm->device;
        struct device_launch launch;
        int r;

        r = device_prepare(o, device->ops->capturing(device->handle, stream), &launch);
        return r ? r : device_call(o, &launch, stream);
}

/* With device->mutex: a start on this stream that is carried out beside it. The capture that the own stream comes into
 * has to be joined even if the request is not there. */
static int start_aside(const struct operation *o, struct device_launch *launch, void *stream, uint32_t flag) {
        struct device *device = o->comm->device;
        char error[CLIENT_GPU_TEXT] = "", ignored[CLIENT_GPU_TEXT];
        void *own = o->comm->aside.stream;
        int r;

        r = device->ops->order(device->handle, stream, own, error);
        if (r)
                return error_set(r, "%s: %s", o->what, error);
        r = order(o, &launch->bell, own, stream);
        if (!r)
                r = put(o, launch, own, stream);
        if (!r) {
                r = device->ops->set(device->handle, flag, own, error);
                if (r)
                        r = error_set(r, "%s: %s", o->what, error);
        }
        if (!r && launch->bell.captured)
                device_aside_open(o->comm, launch->bell.cell, stream);
        if (r && launch->bell.captured)
                (void)device->ops->order(device->handle, own, stream, ignored);
        return r;
}

/* With device->mutex: puts the ringing, or a whole exchange, where it belongs. */
static int start(const struct operation *o, struct device_launch *launch, void *stream,
                 const struct device_handle *handle) {
        struct device *device = o->comm->device;
        char error[CLIENT_GPU_TEXT] = "";
        int r;

        if (launch->exchanged && device_request_aside(device, handle)) {
                r = start_aside(o, launch, stream, device->requests[handle->cell].flag);
        } else {
                r = order(o, &launch->bell, stream, stream);
                if (!r && launch->exchanged) {
                        r = put(o, launch, stream, stream);
                } else if (!r) {
                        announce(device, &launch->bell);
                        r = device->ops->start(device->handle, &launch->bell, stream, error);
                        if (r)
                                return error_set(r, "%s: %s", o->what, error);
                        launched(o->comm, launch->bell.number, stream, false);
                }
        }
        if (!r && launch->exchanged)
                device_request_number(device, handle, launch->bell.number);
        return r;
}

int device_start(const struct operation *o, struct device_launch *launch, bool grouped, void *stream,
                 struct device_handle *ret_handle) {
        struct device *device = o->comm->device;
        int r;

        launch->bell.started = true;
        pthread_mutex_lock(&device->mutex);
        r = device_request_take(device, o->comm, o->what,
                                launch->exchanged ? DEVICE_REQUEST_WHOLE : DEVICE_REQUEST_STARTED, grouped,
                                &launch->bell, stream, ret_handle);
        if (!r) {
                r = start(o, launch, stream, ret_handle);
                if (r)
                        device_request_drop(device, ret_handle);
        }
        pthread_mutex_unlock(&device->mutex);
        return device_judge(o->comm, told(o, launch, r));
}

int device_begin(const struct operation *o, void *stream, struct device_handle *ret_handle) {
        struct device *device = o->comm->device;
        struct device_launch launch;
        int r;

        r = device_prepare(o, device->ops->capturing(device->handle, stream), &launch);
        if (r)
                return r;
        if (launch.region[DEVICE_BOUNCE_IN] || launch.region[DEVICE_BOUNCE_OUT])
                return error_set(RMX_E_UNSUPPORTED,
                                 "%s: this memory has to be copied, for no other process can map it, and that goes "
                                 "with calls that wait only",
                                 o->what);
        return device_start(o, &launch, false, stream, ret_handle);
}
