/* SPDX-License-Identifier: MIT */
#pragma once
/* Requests on a GPU whose ringing and waiting are two kernels. See device_request.c. */
#include <stdbool.h>
#include <stdint.h>

#include "client/gpu.h"
#include "railmux/railmux.h"

struct device;
struct rmx_comm;

enum device_request_state {
        DEVICE_REQUEST_FREE,
        DEVICE_REQUEST_STARTED, /* rung; no kernel waits */
        DEVICE_REQUEST_WHOLE,   /* on a stream as a whole: ends with its number, and no kernel will wait */
        DEVICE_REQUEST_WAITING, /* a kernel waits, and the user may ask for its result */
        DEVICE_REQUEST_ENDING,  /* a kernel waits, nobody will ask */
        DEVICE_REQUEST_KEPT,    /* in a captured graph, for ever */
        DEVICE_REQUEST_SPARE,   /* in a captured graph, and for the comm's captured groups to come */
};

/* One per cell of the bell area; under device->mutex. */
struct device_request {
        struct rmx_comm *comm; /* NULL: destroyed */
        const char *what;
        void *stream;                /* of the start, the caller's; not touched after the wait is on one */
        struct client_gpu_bell bell; /* for the wait */
        uint32_t number;             /* WHOLE: of the launch */
        uint32_t flag;               /* aside: set behind it */
        uint64_t capture;            /* aside: that it is in, 0: none */
        uint32_t state;
        uint32_t turn; /* counts the requests of this cell */
        bool captured;
        bool grouped; /* its wait is put on its stream before anything else of the comm is */
        bool aside;   /* WHOLE, and on the communicator's own stream: see device_aside.c */
};

/* What the user's struct rmx_request holds. */
struct device_handle {
        struct device *device;
        uint32_t cell;
        uint32_t turn;
};

/* Takes a cell for a request that is about to be started: STARTED, or WHOLE. grouped: see struct device_request. With
 * device->mutex. RMX_*; text set. */
int device_request_take(struct device *device, struct rmx_comm *comm, const char *what, uint32_t state, bool grouped,
                        struct client_gpu_bell *bell, void *stream, struct device_handle *ret_handle);
/* A WHOLE one, not launched yet, goes on its comm's own stream, if that can be had: its flag is to be set behind it.
 * With device->mutex. */
bool device_request_aside(struct device *device, const struct device_handle *handle);
/* The number of a WHOLE one's launch; 0: captured. With device->mutex. */
void device_request_number(struct device *device, const struct device_handle *handle, uint32_t number);
/* It was not started after all. With device->mutex. */
void device_request_drop(struct device *device, const struct device_handle *handle);

/* Puts the waiting kernel on the stream (NULL: that of the start), unless there is one, and waits until it has ended.
 * *ret_done: the request is over, and what is returned is its result. RMX_*; text set. */
int device_request_wait(const struct device_handle *handle, const char *what, void *stream, uint64_t deadline_ns,
                        bool *ret_done);
/* Puts the waiting kernel on this stream, or the stream behind a WHOLE one, and forgets the request. RMX_*; text set.
 */
int device_request_enqueue(const struct device_handle *handle, const char *what, void *stream);
/* Can it be waited for? Not if that was done before, or its comm is gone. */
bool device_request_known(const struct device_handle *handle);

/* Puts waiting kernels behind all that the comm has started. */
void device_requests_wait(struct device *device, const struct rmx_comm *comm);
/* Does a wait stand on the stream of the comm's last call, behind that? With device->mutex. */
bool device_request_tail(struct device *device, const struct rmx_comm *comm);
/* Is any request of the comm not known to have ended? With device->mutex. */
bool device_requests_any(struct device *device, const struct rmx_comm *comm);
/* The comm goes away. over: all of its kernels are known to have ended. With device->mutex. */
void device_requests_orphan(struct device *device, const struct rmx_comm *comm, bool over);
