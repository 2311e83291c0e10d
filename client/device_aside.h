/* SPDX-License-Identifier: MIT */
#pragma once
/* Started exchanges run beside the caller's stream, on one of their communicator's own. See device_aside.c. All calls
 * with device->mutex. */
#include <stdbool.h>
#include <stdint.h>

struct device;
struct rmx_comm;

/* Of a communicator; under device->mutex. */
struct device_aside {
        void *stream; /* the own one; NULL: there is none, for there is no exchange */
        bool taken;   /* a group uses it as the communicator's only one */
        bool last;    /* the last launch with a number is there, and comm->stream is not behind it */
        /* The same of starts that were captured there. */
        uint32_t captured; /* how many streams of theirs are not known to be behind them: none, one, two or more */
        void *caller;      /* the one */
        uint32_t cell;     /* of the last one */
};

/* Can a start on `stream` go to the own one? That may be in a capture, which must be the one that `stream` is in. */
bool device_aside_can(const struct rmx_comm *comm, bool captured, void *stream);
/* A request was put there, and captured; its stream is put behind it. */
void device_aside_open(struct rmx_comm *comm, uint32_t cell, void *caller);
void device_aside_joined(struct rmx_comm *comm, uint32_t cell, void *stream);
/* What is captured on `stream` from now on comes after what was captured on the own stream, if it is one capture.
 * RMX_*; text in `error`. */
int device_aside_close(struct rmx_comm *comm, void *stream, char *error);

/* A flag that nobody has; false: there is none. */
bool device_flag_take(struct device *device, uint32_t *ret_flag);
void device_flag_give(struct device *device, uint32_t flag);
