/* SPDX-License-Identifier: MIT */
#pragma once
/* The process's session with the daemon, opened when first needed. See session.c. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/nccl/nccl.h"

struct rmx_session;

struct session {
        struct rmx_session *rmx;
        uint32_t refs;       /* under the mutex of session.c */
        uint32_t n_comms;    /* under the mutex of memory.c */
        uint32_t generation; /* of the process that opened it */
        bool host;           /* the backend has no streams */
        _Atomic bool lost;   /* a call has found the daemon gone */
};

/* Opens it if there is none. The caller gives it back with session_put. */
ncclResult_t session_get(const char *what, struct session **ret_session);
/* RMX_*; the text is librailmux's. */
int session_try(struct session **ret_session);
struct session *session_ref(struct session *session);
struct session *session_put(struct session *session);
/* The daemon has gone: the next session_get opens another. */
void session_lose(struct session *session);
/* Asks the daemon, if it is there; sets `lost` if not. */
void session_probe(struct session *session);
/* Of functions that run in a child right after fork(). There is one thread, and the thread sanitizer, which remembers
 * those of the parent, would see races with them. */
#define FORKED __attribute__((no_sanitize("thread")))
/* Counts the forks between this process and the first. */
uint32_t session_generation(void);
