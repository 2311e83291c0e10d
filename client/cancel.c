/* SPDX-License-Identifier: MIT */
/*
 * Who gives up does not know how far the joining thread has come: it may be about to call, wait for its answer, or be
 * just past that. So this object is a word that stays said, with a list of those to whom it matters. A call is entered
 * before it is made; rpc_cancel() takes one that is not listed yet, and one that is over.
 *
 * Locks: a cancel's mutex before that of an rpc.
 *
 * In a child of fork() it is a copy that concerns nobody: the threads that wait are the parent's, and so is the eventfd
 * that would call them. There everything is as if it were not given at all, and nothing is locked, as a mutex may have
 * been copied locked.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

#include "client/cancel.h"
#include "client/error.h"
#include "railmux/railmux.h"

struct rmx_cancel {
        pid_t pid; /* whose it is */
        pthread_mutex_t mutex;
        struct cancel_entry *entries; /* under mutex */
        bool set;                     /* under mutex */
};

/* NULL if there is none here. */
static struct rmx_cancel *cancel_here(const struct rmx_cancel *cancel) {
        return cancel && cancel->pid == getpid() ? (struct rmx_cancel *)cancel : NULL; /* not const, for its mutex */
}

int rmx_cancel_new(struct rmx_cancel **ret_cancel) {
        struct rmx_cancel *cancel;

        if (!ret_cancel)
                return error_set(RMX_E_INVALID, "%s: ret_cancel is NULL", __func__);
        cancel = calloc(1, sizeof(*cancel));
        if (!cancel || pthread_mutex_init(&cancel->mutex, NULL)) {
                free(cancel);
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", __func__);
        }
        cancel->pid = getpid();
        *ret_cancel = cancel;
        return RMX_OK;
}

void rmx_cancel_set(struct rmx_cancel *cancel) {
        struct cancel_entry *entry;

        cancel = cancel_here(cancel);
        if (!cancel)
                return;
        pthread_mutex_lock(&cancel->mutex);
        cancel->set = true;
        DL_FOREACH(cancel->entries, entry)
                rpc_cancel(entry->rpc, entry->call);
        pthread_mutex_unlock(&cancel->mutex);
}

void rmx_cancel_free(struct rmx_cancel *cancel) {
        if (cancel_here(cancel))
                pthread_mutex_destroy(&cancel->mutex);
        free(cancel);
}

bool cancel_enter(struct rmx_cancel *cancel, struct cancel_entry *entry, struct rpc *rpc, struct rpc_call *call) {
        bool set;

        *entry = (struct cancel_entry){.rpc = rpc, .call = call};
        cancel = cancel_here(cancel);
        if (!cancel)
                return true;
        pthread_mutex_lock(&cancel->mutex);
        set = cancel->set;
        if (!set)
                DL_APPEND(cancel->entries, entry);
        pthread_mutex_unlock(&cancel->mutex);
        return !set;
}

bool cancel_is_set(const struct rmx_cancel *cancel) {
        struct rmx_cancel *locked = cancel_here(cancel);
        bool set;

        if (!locked)
                return false;
        pthread_mutex_lock(&locked->mutex);
        set = locked->set;
        pthread_mutex_unlock(&locked->mutex);
        return set;
}

void cancel_exit(struct rmx_cancel *cancel, struct cancel_entry *entry) {
        cancel = cancel_here(cancel);
        if (!cancel)
                return;
        pthread_mutex_lock(&cancel->mutex);
        DL_DELETE(cancel->entries, entry);
        pthread_mutex_unlock(&cancel->mutex);
}
