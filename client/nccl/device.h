/* SPDX-License-Identifier: MIT */
#pragma once
/* The process's own GPU runtime, of which a few calls are used if it is there. See device.c. */
#include <stddef.h>
#include <stdint.h>

#include "client/nccl/nccl.h"

struct rmx_session;

/* Has the process a runtime with a device in it? */
int device_present(void);
/* How many; -1: unknown. */
int device_count(void);
/* The calling thread's device, -1: unknown. */
int device_current(void);
/* Makes it the thread's. */
ncclResult_t device_select(const char *what, int device);
/* Which GPU of the daemon is this device? */
ncclResult_t device_match(const char *what, struct rmx_session *session, int device, int32_t *ret_gpu);

ncclResult_t device_alloc(const char *what, size_t size, void **ret_ptr);
ncclResult_t device_release(const char *what, void *ptr);
/* What lies at `from` when the device's stream has come to this point; waits for the stream. */
ncclResult_t device_read(const char *what, int device, void *to, const void *from, size_t size, void *stream);

/* In the child of a fork, which has only one thread. */
void device_forked(void);
