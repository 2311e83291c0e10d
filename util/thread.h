/* SPDX-License-Identifier: MIT */
#pragma once
#include <pthread.h>
#include <signal.h>

/* pthread_create(), with all signals blocked in the new thread: they are for the threads of whoever asks for this one,
 * and SIGPIPE may come from under a library. attributes may be NULL. 0 or errno. */
static inline int thread_start(pthread_t *ret_thread, const pthread_attr_t *attributes, void *(*run)(void *),
                               void *data) {
        sigset_t all, before;
        int r;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        r = pthread_create(ret_thread, attributes, run, data);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return r;
}
