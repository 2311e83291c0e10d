/* SPDX-License-Identifier: MIT */
/*
 * One session serves all communicators of the process. It is kept when the last of them has gone, since the next one
 * will want it, and memory of ncclMemAlloc lives in it. When the daemon has been lost for good, the session is left to
 * the communicators that still hold it, and the next one opens another.
 *
 * After fork() the child must not touch what it has inherited: generation tells the two apart without a system call.
 * The parent's session is given up in the child, not freed: a thread of the parent may have been at work in it. For the
 * same reason all mutexes of the library are made anew there.
 */
#include "client/nccl/session.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/nccl/comm.h"
#include "client/nccl/device.h"
#include "client/nccl/error.h"
#include "client/nccl/log.h"
#include "client/nccl/memory.h"
#include "railmux/railmux.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct session *current; /* under mutex, with a reference */
static uint32_t generation;     /* written by the only thread of a new process */

FORKED static void fork_child(void) {
        generation++;
        current = NULL;
        mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        comm_forked();
        device_forked();
        error_forked();
        memory_forked();
}

/* When the library is loaded: a fork may come before the first session. */
__attribute__((constructor)) static void fork_watch(void) {
        (void)pthread_atfork(NULL, NULL, fork_child);
}

uint32_t session_generation(void) {
        return generation;
}

static int session_open(struct session **ret_session) {
        struct session *session;
        int r;

        session = calloc(1, sizeof(*session));
        if (!session)
                return RMX_E_NO_MEMORY;
        r = rmx_session_open(NULL, &session->rmx);
        if (r) {
                free(session);
                return r;
        }
        session->refs = 1;
        session->generation = generation;
        session->host = !strcmp(rmx_session_backend(session->rmx), "host");
        log_line(LOG_INFO, "connected to the daemon, which serves %u GPUs (%s)", rmx_session_gpu_count(session->rmx),
                 rmx_session_backend(session->rmx));
        *ret_session = session;
        return RMX_OK;
}

int session_try(struct session **ret_session) {
        int r = RMX_OK;

        pthread_mutex_lock(&mutex);
        if (!current)
                r = session_open(&current);
        if (!r) {
                current->refs++;
                *ret_session = current;
        }
        pthread_mutex_unlock(&mutex);
        return r;
}

ncclResult_t session_get(const char *what, struct session **ret_session) {
        return error_adopt(what, session_try(ret_session));
}

struct session *session_ref(struct session *session) {
        pthread_mutex_lock(&mutex);
        session->refs++;
        pthread_mutex_unlock(&mutex);
        return session;
}

struct session *session_put(struct session *session) {
        bool last;

        if (!session || session->generation != generation)
                return NULL;
        pthread_mutex_lock(&mutex);
        last = --session->refs == 0;
        pthread_mutex_unlock(&mutex);
        if (last) {
                rmx_session_close(session->rmx);
                free(session);
        }
        return NULL;
}

void session_probe(struct session *session) {
        struct rmx_id id;

        if (rmx_get_id(session->rmx, &id) == RMX_E_DAEMON_LOST)
                atomic_store(&session->lost, true);
}

void session_lose(struct session *session) {
        bool ours;

        pthread_mutex_lock(&mutex);
        ours = current == session;
        if (ours)
                current = NULL;
        pthread_mutex_unlock(&mutex);
        if (ours)
                session_put(session);
}
