/* SPDX-License-Identifier: MIT */
/*
 * On the host backend a call is over when its result is in the caller's memory, and librailmux brings it there when it
 * is waited for. A communicator that does not block has nobody who waits. But its program has to ask for its state
 * anyway (ncclCommGetAsyncError) until that is no longer ncclInProgress; whoever asks looks after the calls that are
 * under way. No thread is needed, and a program that does not ask does not get its results: it has no stream that it
 * could wait for instead. The end of a communicator waits for its calls, too.
 *
 * A call is one request of librailmux; a group is one for all of its communicators. One thread at a time has a request
 * busy. Several communicators may end at the same time in several threads: what one of them waits for stays in the list
 * until then, and each takes itself out. The last of an aborted group fetches the request, which is over by then.
 *
 * A group of many sends and receives takes several requests (transfer_many.c), of which only the first are started at
 * once. Who looks starts more as there is room, but not inside a group of its own, whose requests they would become. It
 * does so for all communicators, since two ranks may look at two of them in different order. Later sends and receives
 * of the same communicators must not overtake them, and start when all before them have.
 */
#include "client/nccl/pending.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <utlist.h>

#include "client/nccl/comm.h"
#include "client/nccl/error.h"
#include "client/nccl/export.h"
#include "client/nccl/group.h"
#include "client/nccl/session.h"
#include "client/nccl/transfer_many.h"

#define LOOK_MS 1u
#define LOOKS   1000u /* without anything coming free: then this thread may be what the others wait for */

static struct pending *pendings; /* of the process, oldest first; under comm_lock */

FORKED void pendings_forked(void) {
        pendings = NULL;
}

bool pending_wanted(const struct ncclComm *comm) {
        return comm->host && !comm->config.blocking && !group_active();
}

struct pending *pending_new(const char *what, struct ncclComm *const *comms, uint32_t n_comms) {
        struct pending *pending = calloc(1, sizeof(*pending) + n_comms * sizeof(struct ncclComm *));

        if (!pending)
                return NULL;
        pending->what = what;
        pending->n_comms = n_comms;
        for (uint32_t i = 0; i < n_comms; i++)
                pending->comms[i] = comms[i];
        return pending;
}

void pending_drop(struct pending *pending) {
        transfer_run_free(pending->run);
        free(pending);
}

static bool pending_has(const struct pending *pending, const struct ncclComm *comm) {
        for (uint32_t i = 0; i < pending->n_comms; i++)
                if (pending->comms[i] == comm)
                        return true;
        return false;
}

/* Under comm_lock: its comms have some that are not started, among those before `end` (NULL: all). */
static bool unstarted_before(const struct pending *end, struct ncclComm *const *comms, uint32_t n_comms) {
        const struct pending *pending;

        DL_FOREACH(pendings, pending) {
                if (pending == end)
                        break;
                for (uint32_t i = 0; pending->run && !transfer_run_started(pending->run) && i < n_comms; i++)
                        if (pending_has(pending, comms[i]))
                                return true;
        }
        return false;
}

bool pendings_unstarted(struct ncclComm *const *comms, uint32_t n_comms) {
        bool any;

        comm_lock();
        any = unstarted_before(NULL, comms, n_comms);
        comm_unlock();
        return any;
}

static void pending_remove(struct pending *pending, const struct ncclComm *comm) {
        for (uint32_t i = 0; i < pending->n_comms; i++)
                if (pending->comms[i] == comm)
                        pending->comms[i--] = pending->comms[--pending->n_comms];
}

/* Under comm_lock, by who had it busy: it is over. */
static void pending_over(struct pending *pending, int code) {
        for (uint32_t i = 0; i < pending->n_comms; i++)
                if (!pending->comms[i]->call_code)
                        pending->comms[i]->call_code = code;
        DL_DELETE(pendings, pending);
        pending_drop(pending);
        comm_changed();
}

/* Under comm_lock: what a look may start of it. */
static enum transfer_start pending_start(const struct pending *pending) {
        if (group_active() || !pending->n_comms || unstarted_before(pending, pending->comms, pending->n_comms))
                return TRANSFER_START_NONE;
        return pendings == pending && !pending->next ? TRANSFER_START : TRANSFER_START_PATIENTLY;
}

/* A look at one request. RMX_E_TIMEOUT: it is under way. */
static int request_look(struct rmx_request *request, uint32_t wait_ms) {
        int done = 0, r;

        if (wait_ms)
                return rmx_wait_for(request, wait_ms);
        r = rmx_test(request, &done);
        return r || done ? r : RMX_E_TIMEOUT;
}

/* Under comm_lock, which it gives up meanwhile: is it over? The text of a failure is kept, since no other call will
 * tell it. */
static bool pending_look(struct pending *pending, uint32_t wait_ms) {
        enum transfer_start start = pending_start(pending);
        int r = RMX_OK;
        bool done;

        pending->busy = true;
        comm_unlock();
        if (pending->run) {
                done = transfer_run_step(pending->run, start, wait_ms, &r);
        } else {
                r = request_look(&pending->request, wait_ms);
                done = r != RMX_E_TIMEOUT;
        }
        if (done && r && r != RMX_E_ABORTED)
                (void)error_adopt(pending->what, r);
        comm_lock();
        /* Its communicators have ended meanwhile: so it has been aborted. */
        if (!done && !pending->n_comms) {
                comm_unlock();
                while (pending->run && !transfer_run_step(pending->run, TRANSFER_START_NONE, LOOK_MS, &r))
                        ;
                if (!pending->run)
                        r = rmx_wait(&pending->request, NULL);
                comm_lock();
                done = true;
        }
        pending->busy = false;
        if (done)
                pending_over(pending, r);
        else if (wait_ms && pending->run && transfer_run_idle(pending->run))
                comm_wait(wait_ms); /* for others to make room; it may be gone then */
        return done;
}

ncclResult_t pending_begin(struct pending *pending, int code) {
        bool over;

        if (code) {
                ncclResult_t result = comm_result(pending->comms[0], pending->what, code);

                pending_drop(pending);
                return result;
        }
        comm_lock();
        DL_APPEND(pendings, pending);
        over = pending_look(pending, 0);
        comm_unlock();
        return over ? ncclSuccess : ncclInProgress; /* a failure shows in the communicator's state */
}

bool pending_make_room(void) {
        bool over = false;

        comm_lock();
        for (uint32_t i = 0; pendings && !over && i < LOOKS; i++) {
                struct pending *pending = NULL;

                DL_SEARCH_SCALAR(pendings, pending, busy, false);
                if (pending)
                        over = pending_look(pending, LOOK_MS);
                else
                        comm_wait(LOOK_MS);
        }
        comm_unlock();
        return over;
}

/* Under comm_lock: one of the communicator's that nobody is at. *ret_any: there are some at all. */
static struct pending *pending_find(const struct ncclComm *comm, bool *ret_any) {
        struct pending *pending, *found = NULL;

        *ret_any = false;
        DL_FOREACH(pendings, pending) {
                if (!pending_has(pending, comm))
                        continue;
                *ret_any = true;
                if (!pending->busy && !found)
                        found = pending;
        }
        return found;
}

/* Under comm_lock, which it gives up meanwhile: starts of all runs what there is room for. */
static void pendings_push(void) {
        static uint32_t pushes; /* under comm_lock */
        uint32_t push = ++pushes;
        struct pending *pending;

        do {
                DL_FOREACH(pendings, pending) {
                        if (pending->run && !pending->busy && pending->pushed != push &&
                            !transfer_run_started(pending->run))
                                break;
                }
                if (pending) {
                        pending->pushed = push;
                        (void)pending_look(pending, 0);
                }
        } while (pending);
}

bool pendings_look(struct ncclComm *comm, int *ret_code) {
        struct pending *pending;
        bool any;

        comm_lock();
        /* They end in their order, as a rule: the first that is not over is the last to look at. */
        do
                pending = pending_find(comm, &any);
        while (pending && pending_look(pending, 0));
        pendings_push();
        *ret_code = comm->call_code;
        comm_unlock();
        return any;
}

/* Under comm_lock: one of the communicator's that is not started wholly. */
static struct pending *pending_running(const struct ncclComm *comm) {
        struct pending *pending;

        DL_FOREACH(pendings, pending) {
                if (pending->run && !transfer_run_started(pending->run) && pending_has(pending, comm))
                        return pending;
        }
        return NULL;
}

void pendings_end(struct ncclComm *comm, bool aborted) {
        struct pending *pending, *next;
        bool any = true;

        comm_lock();
        while (!aborted && any) {
                pending = pending_find(comm, &any);
                if (pending)
                        (void)pending_look(pending, LOOK_MS * 100);
                else if (any)
                        comm_wait(LOOK_MS);
                pendings_push();
        }
        /* Its communicator may be gone when others look after the rest of a group. */
        while ((pending = pending_running(comm)))
                if (pending->busy)
                        comm_wait(LOOK_MS);
                else
                        transfer_run_stop(pending->run);
        DL_FOREACH_SAFE(pendings, pending, next) {
                pending_remove(pending, comm);
        }
        for (;;) {
                DL_FOREACH(pendings, pending) {
                        if (!pending->n_comms && !pending->busy)
                                break;
                }
                if (!pending)
                        break;
                (void)pending_look(pending, 0);
        }
        comm_unlock();
}
