/* SPDX-License-Identifier: MIT */
#pragma once
/* Checked operations of communicators on GPUs. RMX_*; text set. */
#include "client/device_bounce.h"
#include "client/device_request.h"

struct operation;

/* Puts the request on the stream: it is done, and its result there, when the stream has come past it. */
int device_run(const struct operation *o, void *stream);
/* Puts only its ringing on the stream; one that is exchanged, as a whole, beside the stream if there is a way. */
int device_begin(const struct operation *o, void *stream, struct device_handle *ret_handle);

/* The same in two steps. A request with all that it needs on the device; it must not move. */
struct device_launch {
        struct client_gpu_bell bell;
        uint64_t factor;
        struct device_region *region[DEVICE_BOUNCES]; /* NULL: the memory is used where it is */
        bool exchanged;                               /* the ranks' kernels carry it out, see device_exchange.c; or */
        bool alone;                                   /* nobody but this rank is needed (device_alone.c) */
        uint32_t n_hosts;                             /* of its two memories, how many are the host's */
        bool made;                                    /* of several; this is the one between nodes (device_nodes.c) */
};

int device_prepare(const struct operation *o, bool capturing, struct device_launch *launch);
/* The same of one that executors carry out, whatever is done with calls of the host's. */
int device_prepare_rung(const struct operation *o, struct device_launch *launch);
int device_call(const struct operation *o, struct device_launch *launch, void *stream);
/* Sends and receives of a communicator that are exchanged, up to CLIENT_GPU_PAIRS, as one. */
int device_call_pairs(struct operation *const *o, struct device_launch *const *launch, uint32_t n, void *stream);
/* RMX_E_BUSY: too much is started. */
int device_start(const struct operation *o, struct device_launch *launch, bool grouped, void *stream,
                 struct device_handle *ret_handle);
