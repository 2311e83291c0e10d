/* SPDX-License-Identifier: MIT */
/*
 * To start a request may take a call to the daemon, for memory, and there is no way to tell before. Who asks for the
 * state of a communicator must not wait for that, whosever request it is. So requests of runs are started by a thread
 * that is made for it. Who looks waits for it for a moment, since as a rule it takes no longer; then a program that
 * does nothing but ask does not turn round in vain.
 *
 * A starter that has not come back for longer is left to itself: what it starts is busy, and another starter is made,
 * which goes past that. So there are as many as there are communicators whose starts take long, and one more; but not
 * more than the limit, beyond which starts wait. They end when nothing is left to be started.
 */
#include "client/nccl/starter.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "client/nccl/clock.h"
#include "client/nccl/comm.h"
#include "client/nccl/pending.h"
#include "client/nccl/session.h"

#define STARTERS 16u
#define TAKE_MS  2u /* until somebody begins with it: then there is another starter */
#define WAIT_MS  10u
#define IDLE_MS  1000u

/* Of the process, under comm_lock. */
static uint32_t n_starters, n_idle;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static uint64_t n_asked, n_taken, n_done; /* calls so far; those before are served with the last one */

FORKED void starter_forked(void) {
        asked = done = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
        n_starters = n_idle = 0;
        n_taken = n_done = n_asked;
}

static void *starter_main(void *userdata) {
        (void)userdata;
        comm_lock();
        while (pendings_any_unstarted()) {
                uint64_t call = n_asked;

                if (n_taken == call) {
                        comm_wait_for(&asked, IDLE_MS);
                        continue;
                }
                n_taken = call;
                n_idle--;
                pendings_push();
                n_idle++;
                if (n_done < call)
                        n_done = call;
                pthread_cond_broadcast(&done);
        }
        n_idle--;
        n_starters--;
        comm_unlock();
        return NULL;
}

/* Idle from the beginning, though it may be a while before it runs. The program's signals are for its own threads. */
static bool starter_new(void) {
        pthread_attr_t attributes;
        sigset_t all, before;
        pthread_t thread;
        int r;

        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        r = pthread_create(&thread, &attributes, starter_main, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
        n_starters += !r;
        n_idle += !r;
        return !r;
}

bool starter_call(void) {
        const uint64_t call = ++n_asked, begun_ms = clock_now_ms();
        uint64_t passed_ms = 0;

        pthread_cond_signal(&asked);
        for (; n_done < call && passed_ms < WAIT_MS && pendings_any_unstarted();
             passed_ms = clock_now_ms() - begun_ms) {
                bool late = !n_starters || passed_ms >= TAKE_MS;

                if (n_taken < call && !n_idle && late && n_starters < STARTERS && !starter_new() && !n_starters)
                        return false;
                comm_wait_for(&done, 1);
        }
        return true;
}
