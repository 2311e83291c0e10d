/* SPDX-License-Identifier: MIT */
/*
 * Memory and windows.
 *
 * Registration is a hint: what was not registered becomes known at its first use. Programs register one range with
 * several communicators, and the daemon wants to hear of it once, so the library counts. In a GPU's memory the end of
 * the last registration says little: captured graphs and other communicators may use the buffer on, and would find it
 * gone from the executor. There it is taken back when no communicator is left. Another allocation in its place is found
 * by librailmux itself.
 *
 * Memory of the daemon is mapped as long as its session, so each block holds the one that it was taken from: that may
 * outlive its daemon.
 *
 * Windows are answered as NCCL answers where it cannot have them: with success, and NULL for the window. Programs take
 * that as "use the buffer as any other".
 */
#include "client/nccl/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <utlist.h>

#include "client/nccl/comm.h"
#include "client/nccl/device.h"
#include "client/nccl/error.h"
#include "client/nccl/export.h"
#include "client/nccl/fallback.h"
#include "client/nccl/group.h"
#include "client/nccl/log.h"
#include "client/nccl/session.h"
#include "railmux/railmux.h"

struct registration {
        struct registration *next, *prev;
        struct session *session;
        void *address;
        size_t size;
        uint32_t n; /* 0: only kept */
        uint64_t magic;
};

#define REGISTRATION_MAGIC UINT64_C(0x726d782d72656731)

struct block {
        struct block *next, *prev;
        struct session *session;
        void *address;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* held during calls of librailmux: one range, one caller */
static struct registration *registrations;                /* under mutex */
static struct block *blocks;                              /* of ncclMemAlloc in sessions; under mutex */

FORKED void memory_forked(void) {
        mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        registrations = NULL;
        blocks = NULL;
}

/* ---- registration ------------------------------------------------------------------------------------------------ */
/* *ret_handle is NULL if the daemon cannot know it, or has no room for it: then it is used as if it were not
 * registered.
 */
static int registration_take(struct session *session, void *address, size_t size, struct registration **ret_handle) {
        struct registration *found;
        int r;

        *ret_handle = NULL;
        DL_FOREACH(registrations, found) {
                if (found->session != session || found->address != address)
                        continue;
                if (!found->n) { /* kept; this fails, but looks whether the same allocation is there */
                        (void)rmx_buffer_register(session->rmx, address, size);
                        found->size = size;
                }
                if (size <= found->size) {
                        found->n++;
                        *ret_handle = found;
                }
                return RMX_OK;
        }
        r = rmx_buffer_register(session->rmx, address, size);
        if (r == RMX_E_UNSUPPORTED || r == RMX_E_LIMIT || r == RMX_E_NO_MEMORY) {
                log_line(LOG_INFO, "ncclCommRegister: %s", rmx_last_error());
                return RMX_OK;
        }
        if (r)
                return r;
        found = calloc(1, sizeof(*found));
        if (!found) {
                (void)rmx_buffer_unregister(session->rmx, address);
                return RMX_OK;
        }
        *found = (struct registration){
                .session = session_ref(session), .address = address, .size = size, .n = 1, .magic = REGISTRATION_MAGIC};
        DL_APPEND(registrations, found);
        *ret_handle = found;
        return RMX_OK;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle) {
        ncclResult_t result = comm_enter_any(comm, __func__);
        struct registration *registration;

        if (result)
                return group_note(result);
        if (comm->real) {
                result = FALLBACK(comm->fallback, ncclCommRegister, comm->real, buff, size, handle);
        } else if (!handle || !buff || !size) {
                result = error_raise(ncclInvalidArgument, "%s: %s", __func__,
                                     handle ? "the range is empty" : "handle is NULL");
        } else {
                pthread_mutex_lock(&mutex);
                result = error_adopt(__func__, registration_take(comm->session, buff, size, &registration));
                pthread_mutex_unlock(&mutex);
                if (!result)
                        *handle = registration;
        }
        comm_exit(comm);
        return group_note(result);
}
TWIN(ncclCommRegister);

static int registration_free(struct registration *registration) {
        int r = rmx_buffer_unregister(registration->session->rmx, registration->address);

        DL_DELETE(registrations, registration);
        session_put(registration->session);
        free(registration);
        return r == RMX_E_DAEMON_LOST ? RMX_OK : r;
}

static ncclResult_t registration_drop(const char *what, struct registration *registration) {
        struct registration *found;

        DL_SEARCH_SCALAR(registrations, found, magic, REGISTRATION_MAGIC);
        for (; found && found != registration; found = found->next)
                ;
        if (!found || !found->n)
                return error_raise(ncclInvalidArgument, "%s: handle %p is none that ncclCommRegister gave", what,
                                   (void *)registration);
        if (--found->n || !found->session->host)
                return ncclSuccess;
        return error_adopt(what, registration_free(found));
}

void memory_comm_new(struct session *session) {
        pthread_mutex_lock(&mutex);
        session->n_comms++;
        pthread_mutex_unlock(&mutex);
}

void memory_comm_gone(struct session *session) {
        struct registration *registration, *next;

        if (!session)
                return;
        pthread_mutex_lock(&mutex);
        session->n_comms--;
        DL_FOREACH_SAFE(registrations, registration, next)
        if (!session->n_comms && !registration->n && registration->session == session)
                (void)registration_free(registration);
        pthread_mutex_unlock(&mutex);
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
        ncclResult_t result = comm_valid(comm, __func__);

        if (result)
                return group_note(result);
        if (comm->real)
                return group_note(FALLBACK(comm->fallback, ncclCommDeregister, comm->real, handle));
        if (!handle) /* what could not be registered */
                return ncclSuccess;
        pthread_mutex_lock(&mutex);
        result = registration_drop(__func__, handle);
        pthread_mutex_unlock(&mutex);
        return group_note(result);
}
TWIN(ncclCommDeregister);

/* ---- allocation -------------------------------------------------------------------------------------------------- */
static int block_new(struct session *session, size_t size, void **ret_address) {
        struct block *block = malloc(sizeof(*block));
        int r;

        if (!block)
                return RMX_E_NO_MEMORY;
        r = rmx_mem_alloc(session->rmx, size, &block->address);
        if (r) {
                free(block);
                return r;
        }
        block->session = session_ref(session);
        *ret_address = block->address;
        pthread_mutex_lock(&mutex);
        DL_APPEND(blocks, block);
        pthread_mutex_unlock(&mutex);
        return RMX_OK;
}

/* NULL: there is no such block. */
static struct block *block_take(void *address) {
        struct block *block;

        pthread_mutex_lock(&mutex);
        DL_SEARCH_SCALAR(blocks, block, address, address);
        if (block)
                DL_DELETE(blocks, block);
        pthread_mutex_unlock(&mutex);
        return block;
}

static ncclResult_t block_free(const char *what, struct block *block) {
        ncclResult_t result = error_adopt(what, rmx_mem_free(block->session->rmx, block->address));

        session_put(block->session);
        free(block);
        return result;
}

ncclResult_t ncclMemAlloc(void **ptr, size_t size) {
        const struct fallback *fallback = fallback_get();
        struct session *session = NULL;
        ncclResult_t result;
        int r;

        if (!ptr)
                return error_raise(ncclInvalidArgument, "%s: ptr is NULL", __func__);
        *ptr = NULL;
        if (!size)
                return ncclSuccess;
        r = session_try(&session);
        if (!r && session->host) {
                r = block_new(session, size, ptr);
                if (r == RMX_E_DAEMON_LOST) { /* and perhaps replaced */
                        session_lose(session);
                        session = session_put(session);
                        r = session_try(&session);
                        r = r || !session->host ? r : block_new(session, size, ptr);
                }
        }
        if (!session)
                return fallback ? FALLBACK(fallback, ncclMemAlloc, ptr, size) : error_adopt(__func__, r);
        result = session->host ? error_adopt(__func__, r) : device_alloc(__func__, size, ptr);
        session_put(session);
        return result;
}
TWIN(ncclMemAlloc);

ncclResult_t ncclMemFree(void *ptr) {
        const struct fallback *fallback = fallback_get();
        struct session *session;
        struct block *block;
        ncclResult_t result;
        int r;

        if (!ptr)
                return ncclSuccess;
        block = block_take(ptr);
        if (block)
                return block_free(__func__, block);
        r = session_try(&session);
        if (!r && !session->host)
                result = device_release(__func__, ptr);
        else
                result = error_of_code(r ? r : rmx_mem_free(session->rmx, ptr));
        if (result && fallback)
                result = FALLBACK(fallback, ncclMemFree, ptr);
        else if (result && (r || session->host))
                result = error_raise(result, "%s: %s", __func__, rmx_last_error());
        if (!r)
                session_put(session);
        return result;
}
TWIN(ncclMemFree);

/* ---- windows ----------------------------------------------------------------------------------------------------- */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags) {
        ncclResult_t result = comm_enter(comm, __func__);

        if (result)
                return group_note(result);
        if (comm->real) {
                result = FALLBACK(comm->fallback, ncclCommWindowRegister, comm->real, buff, size, win, winFlags);
        } else if (!win) {
                result = error_raise(ncclInvalidArgument, "%s: win is NULL", __func__);
        } else {
                *win = NULL;
                log_line(LOG_INFO, "%s: there are no windows; the buffer is used as any other", __func__);
        }
        comm_exit(comm);
        return group_note(result);
}
TWIN(ncclCommWindowRegister);

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
        ncclResult_t result = comm_valid(comm, __func__);

        if (result)
                return group_note(result);
        if (comm->real)
                return group_note(FALLBACK(comm->fallback, ncclCommWindowDeregister, comm->real, win));
        return win ? group_note(error_raise(ncclInvalidArgument, "%s: %p is no window", __func__, (void *)win))
                   : ncclSuccess;
}
TWIN(ncclCommWindowDeregister);

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **outUserPtr) {
        ncclResult_t result = comm_valid(comm, __func__);

        if (result)
                return group_note(result);
        if (comm->real)
                return group_note(FALLBACK(comm->fallback, ncclWinGetUserPtr, comm->real, win, outUserPtr));
        return group_note(error_raise(ncclInvalidArgument, "%s: %p is no window", __func__, (void *)win));
}
TWIN(ncclWinGetUserPtr);
