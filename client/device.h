/* SPDX-License-Identifier: MIT */
#pragma once
/* A GPU in a session's use: the bell area, the comms' places in it, the memory that is known there. See device.c. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/device_memory.h"
#include "client/gpu.h"
#include "util/yield.h"

struct device_region;
struct device_request;
struct rmx_cancel;
struct rmx_comm;
struct rmx_session;

struct device {
        struct rmx_session *session;
        uint32_t gpu;   /* of the daemon */
        int32_t number; /* of the runtime */
        const struct client_gpu_ops *ops;
        struct client_gpu *handle;
        struct client_gpu_export area; /* for the daemon */
        _Atomic bool announced;        /* it has that, and what it gave for it is mapped; set under devices_mutex */
        void *host;                    /* what the daemon made for struct bell_host */
        size_t host_bytes;
        void *latch; /* ... for struct bell_latch */
        size_t latch_bytes;
        struct device_memory memory;
        pthread_mutex_t registering; /* rmx_buffer_register and _unregister, see memory.c; taken before all others */
        pthread_mutex_t regions_mutex;
        struct device_region *regions; /* see device_bounce.c */
        _Atomic bool lost;             /* its kernels were told to give up */
        _Atomic uint64_t looked_ns;    /* when its context was there, see device_alive */
        struct yielder yielder;        /* of device_pause */
        int soon_fd;                   /* written before something is rung after a silence; -1: not */

        pthread_mutex_t mutex; /* guards what follows; held while launching, so that it is the order of a comm */
        uint64_t slots[CLIENT_GPU_SLOTS / 64]; /* taken */
        uint32_t n_spare;                      /* of these by communicators that others are made of */
        struct device_request *requests;       /* [CLIENT_GPU_CELLS], see device_request.c */
        uint32_t next_cell;                    /* where to look for a free one */
        uint32_t n_started;                    /* requests that were rung and have no kernel that waits */
        uint64_t flags;                        /* taken, see device_aside.c */
        uint64_t rung_ns;                      /* the last launch that was not captured */
};

/* Gives a comm that has just been joined its place on its GPU. The daemon, if it is asked, has until the deadline, or
 * until the cancel (NULL: none) is set. RMX_*; text set. */
int device_join(struct rmx_comm *comm, const char *what, struct rmx_cancel *cancel, uint64_t deadline_ns);
/* Gives the place back. Comms without one are fine. */
void device_part(struct rmx_comm *comm);
/* Ranks that have a place on it, but for those of communicators that others are made of: these start nothing. */
uint32_t device_ranks(struct device *device);
/* Have the comm's launches with a number ended? Then their stream may be gone. With device->mutex. */
bool device_over(const struct rmx_comm *comm);
/* Waits until nothing of the comm is on the device any more, and sets its last_sequence. False: the deadline has
 * passed, or there is no hope. A comm with a sticky error is waited for a moment only; a lost context is one. */
bool device_finish(struct rmx_comm *comm, uint64_t deadline_ns);
/* Status that a kernel of this rank met. A sticky one is the comm's from now on; another one is given once if `take`,
 * else not at all. 0: none. */
uint32_t device_status(struct rmx_comm *comm, bool take);
/* If its daemon and executor are gone the comm fails, before what its kernels say. Any lock. */
void device_lost(struct rmx_comm *comm);
/* The daemon has said that the comm has failed: no executor touches its requests any more. */
void device_may_end(struct rmx_comm *comm);
/* Then its kernels need not wait for an executor, of which there may be none; ends them, once. */
void device_end(struct rmx_comm *comm);
/* The daemon is gone: after a moment its executors count as gone too, and what waits on the devices is ended. */
void devices_lose(struct rmx_session *session);
struct device *device_free(struct device *device); /* returns NULL; after the connection was closed */
/* On which device these bytes lie, and what its runtime tells of them. *ret_device is NULL if it is none. RMX_*; text
 * set. */
int device_locate(struct rmx_session *session, const char *what, const void *address, size_t bytes,
                  struct device **ret_device, struct client_gpu_memory *ret_memory);
/* Looks, at most once in SESSION_LOOK_NS while it is there, whether the GPU's context is, of which a waiting thread
 * hears in no other way. */
bool device_alive(struct device *device);
/* Is what a launch has met (RMX_*) the loss of the context? Runtimes have many words for it, and for other things too.
 */
bool device_is_lost(const struct device *device, int r);
/* What a launch for this comm has met, once more: a lost context is the comm's sticky error from now on. */
int device_judge(struct rmx_comm *comm, int r);
/* One moment of waiting for a kernel: reads events, then lets others run. started_ns: since when. */
void device_pause(struct device *device, uint64_t started_ns);
