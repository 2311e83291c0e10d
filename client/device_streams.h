/* SPDX-License-Identifier: MIT */
#pragma once
/* Streams that communicators are used on, against the queues that the runtime has for them. See device_streams.c. */
#include <stdint.h>

struct rmx_comm;

#define DEVICE_STREAMS 16u /* remembered of one communicator */

struct device_streams {
        struct device_streams *next,
                *prev;  /* of all communicators of the process; under the lock in device_streams.c */
        int32_t number; /* of the runtime's device */
        uint32_t n;
        uint32_t oldest; /* what the next new one replaces when all are taken */
        void *stream[DEVICE_STREAMS];
};

/* The communicator has a kernel on this stream, or one waits there for it. With device->mutex. */
void device_streams_note(struct rmx_comm *comm, void *stream);
/* The communicator goes away. Fine without a note before. */
void device_streams_forget(struct rmx_comm *comm);
