/* SPDX-License-Identifier: MIT */
/*
 * Memory and windows.
 *
 * Registration is a hint: what was not registered becomes known at its first use. Programs register one range with
 * several communicators, and the daemon wants to hear of it once, so the library counts, for each communicator by
 * itself: what one has not given back by its end goes with it. In a GPU's memory the end of the last registration says
 * little: captured graphs and other communicators may use the buffer on, and would find it gone from the executor.
 * There it is taken back when no communicator is left. Another allocation in its place is found by librailmux itself.
 *
 * librailmux may wait for the daemon there, for good if that stands still. Who only gives a share back must not wait
 * behind that: it may be about to abort. So the lock is held for moments, and a registration about which librailmux is
 * called is busy meanwhile: who wants the same range waits for that one, and a share goes without.
 *
 * Memory of the daemon is mapped as long as its session, so each block holds the one that it was taken from: that may
 * outlive its daemon. Memory of a GPU is the runtime's from the beginning, and neither takes nor frees with a session:
 * a program frees after the daemon has gone, too. Only whether that is what it wants is the daemon's to say, if there
 * is one.
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

/* What a communicator has of a registration. */
struct share {
        struct share *next;
        const struct ncclComm *comm;
        uint32_t n; /* times, not 0 */
};

struct registration {
        struct registration *next, *prev;
        struct session *session;
        void *address;
        size_t size;
        struct share *shares; /* NULL: only kept, or on its way out */
        bool busy;            /* a thread calls librailmux about it */
};

struct block {
        struct block *next, *prev;
        struct session *session;         /* that it was taken from, or */
        const struct fallback *fallback; /* the library */
        void *address;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* for moments */
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;    /* one is no longer busy */
static struct registration *registrations;                /* under mutex, as is n_comms of sessions */
static struct block *blocks;                              /* of ncclMemAlloc, but for a GPU's runtime's; under mutex */

FORKED void memory_forked(void) {
        mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        idle = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
        registrations = NULL;
        blocks = NULL;
}

/* ---- registration ------------------------------------------------------------------------------------------------ */
static void registration_begin(struct registration *registration) {
        registration->busy = true;
        pthread_mutex_unlock(&mutex);
}

static void registration_done(struct registration *registration) {
        pthread_mutex_lock(&mutex);
        registration->busy = false;
        pthread_cond_broadcast(&idle);
}

/* It is not busy and has no shares. Gives the mutex up meanwhile. */
static int registration_free(struct registration *registration) {
        int r;

        registration_begin(registration);
        r = rmx_buffer_unregister(registration->session->rmx, registration->address);
        registration_done(registration);
        DL_DELETE(registrations, registration);
        pthread_mutex_unlock(&mutex);
        session_put(registration->session); /* may close it */
        free(registration);
        pthread_mutex_lock(&mutex);
        return r == RMX_E_DAEMON_LOST ? RMX_OK : r;
}

static struct share *registration_share(const struct registration *registration, const struct ncclComm *comm) {
        struct share *share;

        LL_SEARCH_SCALAR(registration->shares, share, comm, comm);
        return share;
}

/* False: no memory. */
static bool registration_add(struct registration *registration, const struct ncclComm *comm) {
        struct share *share = registration_share(registration, comm);

        if (!share) {
                share = calloc(1, sizeof(*share));
                if (!share)
                        return false;
                share->comm = comm;
                LL_PREPEND(registration->shares, share);
        }
        share->n++;
        return true;
}

static void registration_remove(struct registration *registration, struct share *share) {
        LL_DELETE(registration->shares, share);
        free(share);
}

/* Nobody has it any more, it need not be kept, and nobody is at work on it. */
static bool registration_is_over(const struct registration *registration) {
        return !registration->busy && !registration->shares &&
               (registration->session->host || !registration->session->n_comms);
}

/* A new one, in the list, without the daemon's knowledge. NULL: no memory. */
static struct registration *registration_new(const struct ncclComm *comm, void *address, size_t size) {
        struct registration *registration = calloc(1, sizeof(*registration));

        if (!registration || !registration_add(registration, comm)) {
                free(registration);
                return NULL;
        }
        registration->session = session_ref(comm->session);
        registration->address = address;
        registration->size = size;
        DL_APPEND(registrations, registration);
        return registration;
}

/* The daemon does not know it: it has only the share of who wanted it. */
static void registration_cancel(struct registration *registration) {
        DL_DELETE(registrations, registration);
        session_put(registration->session); /* not the last: a communicator has it */
        free(registration->shares);
        free(registration);
}

static struct registration *registration_find(const struct ncclComm *comm, const void *address) {
        struct registration *found;

        DL_FOREACH(registrations, found) {
                if (found->session == comm->session && found->address == address)
                        break;
        }
        return found;
}

/* *ret_handle is NULL if the daemon cannot know it, or has no room for it: then it is used as if it were not
 * registered. With the mutex, which it gives up meanwhile.
 */
static int registration_take(const struct ncclComm *comm, void *address, size_t size,
                             struct registration **ret_handle) {
        struct registration *found = registration_find(comm, address);
        bool known;
        int r;

        *ret_handle = NULL;
        while (found && found->busy) {
                pthread_cond_wait(&idle, &mutex);
                found = registration_find(comm, address);
        }
        known = found;
        if (found && found->shares) {
                if (size <= found->size && registration_add(found, comm))
                        *ret_handle = found;
                return RMX_OK;
        }
        if (!known)
                found = registration_new(comm, address, size);
        else if (!registration_add(found, comm))
                found = NULL;
        if (!found)
                return RMX_OK;
        registration_begin(found);
        r = rmx_buffer_register(comm->session->rmx, address, size);
        registration_done(found);
        found->size = size;
        if (known) /* kept; that has failed, but has looked whether the same allocation is there */
                r = RMX_OK;
        if (!r)
                *ret_handle = found;
        else
                registration_cancel(found);
        if (r != RMX_E_UNSUPPORTED && r != RMX_E_LIMIT && r != RMX_E_NO_MEMORY)
                return r;
        log_line(LOG_INFO, "ncclCommRegister: %s", rmx_last_error());
        return RMX_OK;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle) {
        ncclResult_t result = comm_enter_any(comm, __func__);
        struct registration *registration;

        if (result)
                return group_note(result);
        comm_hold(comm); /* who ends it need not wait for the daemon with us */
        if (comm->real) {
                result = FALLBACK(comm->fallback, ncclCommRegister, comm->real, buff, size, handle);
        } else if (!handle || !buff || !size) {
                result = error_raise(ncclInvalidArgument, "%s: %s", __func__,
                                     handle ? "the range is empty" : "handle is NULL");
        } else {
                pthread_mutex_lock(&mutex);
                result = error_adopt(__func__, registration_take(comm, buff, size, &registration));
                pthread_mutex_unlock(&mutex);
                if (!result)
                        *handle = registration;
        }
        comm_drop(comm);
        return group_note(result);
}
TWIN(ncclCommRegister);

/* The handle may be any number: it is met in the list, or not. */
static ncclResult_t registration_drop(const char *what, const struct ncclComm *comm, const void *handle) {
        struct registration *found;
        struct share *share;

        DL_FOREACH(registrations, found) {
                if (found == handle)
                        break;
        }
        share = found ? registration_share(found, comm) : NULL;
        if (!share)
                return error_raise(ncclInvalidArgument, "%s: handle %p is none that ncclCommRegister gave for comm %p",
                                   what, handle, (const void *)comm);
        if (--share->n)
                return ncclSuccess;
        registration_remove(found, share);
        return registration_is_over(found) ? error_adopt(what, registration_free(found)) : ncclSuccess;
}

void memory_comm_new(struct session *session) {
        pthread_mutex_lock(&mutex);
        session->n_comms++;
        pthread_mutex_unlock(&mutex);
}

void memory_comm_gone(const struct ncclComm *comm) {
        struct registration *registration, *next;
        struct session *session = comm->session;

        if (!session)
                return;
        pthread_mutex_lock(&mutex);
        session->n_comms--;
        DL_FOREACH(registrations, registration) {
                struct share *share = registration_share(registration, comm);

                if (share)
                        registration_remove(registration, share);
        }
        for (registration = registrations; registration; registration = next) {
                bool over = registration->session == session && registration_is_over(registration);

                if (over)
                        (void)registration_free(registration);
                next = over ? registrations : registration->next; /* the list may be another one then */
        }
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
        result = registration_drop(__func__, comm, handle);
        pthread_mutex_unlock(&mutex);
        return group_note(result);
}
TWIN(ncclCommDeregister);

/* ---- allocation -------------------------------------------------------------------------------------------------- */
static void block_add(struct block *block) {
        pthread_mutex_lock(&mutex);
        DL_APPEND(blocks, block);
        pthread_mutex_unlock(&mutex);
}

static int block_new(struct session *session, size_t size, void **ret_address) {
        struct block *block = calloc(1, sizeof(*block));
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
        block_add(block);
        return RMX_OK;
}

static ncclResult_t block_new_fallback(const char *what, const struct fallback *fallback, size_t size,
                                       void **ret_address) {
        struct block *block = calloc(1, sizeof(*block));
        ncclResult_t result;

        if (!block)
                return error_raise(ncclSystemError, "%s: out of memory", what);
        result = FALLBACK(fallback, ncclMemAlloc, &block->address, size);
        if (result) {
                free(block);
                return result;
        }
        block->fallback = fallback;
        *ret_address = block->address;
        block_add(block);
        return ncclSuccess;
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
        ncclResult_t result = block->session ? error_adopt(what, rmx_mem_free(block->session->rmx, block->address))
                                             : FALLBACK(block->fallback, ncclMemFree, block->address);

        session_put(block->session);
        free(block);
        return result;
}

/* There is no session to be had. code: why. */
static ncclResult_t alloc_alone(const char *what, int code, size_t size, void **ret_ptr) {
        const struct fallback *fallback = fallback_get();

        if (fallback)
                return block_new_fallback(what, fallback, size, ret_ptr);
        if (!device_present())
                return error_adopt(what, code);
        log_line(LOG_INFO, "%s: memory of the GPU without a daemon: %s", what, rmx_last_error());
        return device_alloc(what, size, ret_ptr);
}

ncclResult_t ncclMemAlloc(void **ptr, size_t size) {
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
                return alloc_alone(__func__, r, size, ptr);
        result = session->host ? error_adopt(__func__, r) : device_alloc(__func__, size, ptr);
        session_put(session);
        return result;
}
TWIN(ncclMemAlloc);

/* What is no block may be the runtime's, whoever has taken it there, or of another library's own. */
ncclResult_t ncclMemFree(void *ptr) {
        const struct fallback *fallback;
        ncclResult_t result = ncclInvalidArgument;
        struct block *block;
        bool present;

        if (!ptr)
                return ncclSuccess;
        block = block_take(ptr);
        if (block)
                return block_free(__func__, block);
        fallback = fallback_get();
        present = device_present();
        if (present)
                result = device_release(__func__, ptr);
        if (result && fallback)
                return FALLBACK(fallback, ncclMemFree, ptr);
        if (!present)
                return error_raise(result, "%s: %p is none that ncclMemAlloc gave", __func__, ptr);
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
