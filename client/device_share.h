/* SPDX-License-Identifier: MIT */
#pragma once
/* Bell areas of their own for ranks of one communicator on one GPU in one session. See device_share.c. */
#include <pthread.h>
#include <stdint.h>

#include "railmux/railmux.h"

#define DEVICE_SHARES 8u /* areas of a session on one GPU, the first included, which is the session's own */

struct client_gpu_memory;
struct device;
struct rmx_session;

/* A rank that is joining; lives on its caller's stack. */
struct device_share {
        struct device_share *next, *prev; /* device_shares.joining */
        struct rmx_id id;
        uint32_t gpu;
        uint32_t number; /* which of the areas, 0: the session's own */
};

/* Of a session that a program has opened. */
struct device_shares {
        pthread_mutex_t mutex;                        /* guards what follows; never held while blocking */
        struct device_share *joining;                 /* utlist */
        struct rmx_session *annex[DEVICE_SHARES - 1]; /* by number - 1, NULL: not opened; then constant */
        pthread_mutex_t opening;                      /* one at a time; taken first */
};

void device_shares_init(struct device_shares *shares);
void device_shares_deinit(struct device_shares *shares); /* the annexes have been closed */
/* The session in which this rank is to join: `session` itself for all but the second and later ranks of the id on its
 * GPU. Waits for the daemon for those; never fails: what cannot be opened is done without. gpu: as the daemon will say.
 * Threads: any. Pairs with device_share_leave, after the join, whatever became of it. */
struct rmx_session *device_share_enter(struct rmx_session *session, const struct rmx_id *id, uint32_t gpu,
                                       struct rmx_cancel *cancel, struct device_share *share);
void device_share_leave(struct rmx_session *session, struct device_share *share);
/* Annex number i, counted from 0, NULL: it is not open. Until the session is closed. */
struct rmx_session *device_share_annex(struct rmx_session *session, uint32_t i);
/* Makes memory of the device known to the daemon for the annexes' ranks too, or takes it back. RMX_*; text set. */
int device_shares_name(struct device *device, const char *what, const struct client_gpu_memory *memory);
int device_shares_forget(struct device *device, const char *what, const void *address);
