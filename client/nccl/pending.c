/* SPDX-License-Identifier: MIT */
/*
 * On the host backend a call is over when its result is in the caller's memory, and librailmux brings it there when it
 * is waited for. A communicator that does not block has nobody who waits. But its program has to ask for its state
 * anyway (ncclCommGetAsyncError) until that is no longer ncclInProgress; whoever asks looks after the calls that are
 * under way. A program that does not ask does not get its results: it has no stream that it could wait for instead. The
 * end of a communicator waits for its calls, too.
 *
 * A pending is what one communicator has called at once: a request of librailmux, or a run (run.c). Those of a group
 * are one for each communicator, since communicators do not share their fate: one may fail, or be aborted, and the
 * others' calls go on and say how they ended. So a group of several is made of runs; only that of one can be a single
 * request, as a single call is. One thread at a time has a pending busy.
 *
 * The requests of a run are started as there is room. Who looks has more started, for all communicators, since two
 * ranks may look at two of them in different order; but not inside a group of its own, whose requests they could
 * become. It is done by a thread of its own (starter.c), lest a look waits for the daemon. That one takes turns
 * (run.c), and looks after everything first, since what is over keeps its room until somebody does.
 *
 * All ranks of a communicator have to start its calls in the same order. So whatever is called while an earlier call of
 * the communicator is not started becomes a run as well, and starts when all before it have: no call ever waits here
 * for that, so a thread that drives several ranks comes to call for the others. For the same reason nothing is started
 * behind a run that was given up: it would meet, on other ranks, what was called before.
 *
 * A run that finds no room has patience: what others have under way will end, and so will calls that wait, of other
 * threads. When nothing is under way at all, nothing makes room any more, and the refusal is the run's error; also when
 * those calls have not moved for long, since they may wait for just this. One is told at a time; there may be room for
 * the next then. The end of a group that waits has the same patience with all that others have under way (transfer.c).
 *
 * What this cannot see: two rings, each full of requests whose other halves are refused by the other. Room for
 * arguments does not come to that, since no run takes more than its communicator's share of it (run.c). Places of a
 * ring, which are taken in their order, can: where a request waits for long for its other half, and so many others are
 * called meanwhile that the ring comes round to it.
 */
#include "client/nccl/pending.h"

#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

#include "client/nccl/clock.h"
#include "client/nccl/comm.h"
#include "client/nccl/error.h"
#include "client/nccl/export.h"
#include "client/nccl/group.h"
#include "client/nccl/room.h"
#include "client/nccl/run.h"
#include "client/nccl/session.h"
#include "client/nccl/starter.h"
#include "client/nccl/waits.h"

#define LOOK_MS 1u
#define TURNS   4u    /* of a look: enough to start what there is room for; what comes free meanwhile is for the next */
#define ROOM_MS 1000u /* without anything coming free: then this thread may be what the others wait for */
#define REST_MS 10000u /* so long nothing moves, while calls wait that may have the room */

struct pending {
        struct pending *next, *prev;
        struct ncclComm *comm;
        const char *what;
        struct rmx_request request; /* of who has it busy */
        struct run *run;            /* NULL: it is one request. The same */
        bool silent;                /* the failure of one before it is all that there is to tell. The same */
        bool busy;                  /* under comm_lock, as what follows: a thread looks or starts */
        uint64_t visited;           /* the latest visit that was here */
};

/* Of the process, under comm_lock. */
static struct pending *pendings; /* oldest first */
static uint32_t n_starting;      /* requests that may be under way and are not in the list yet */
static uint64_t n_begun, n_over; /* so far: requests that were started, pendings that are over */

FORKED void pendings_forked(void) {
        pendings = NULL;
        n_starting = 0;
        starter_forked();
        waits_forked();
}

bool pending_wanted(const struct ncclComm *comm) {
        return comm->host && !comm->config.blocking && !group_active();
}

struct pending *pending_new(const char *what, struct ncclComm *comm, struct run *run) {
        struct pending *pending = calloc(1, sizeof(*pending));

        if (!pending) {
                run_free(run);
                (void)error_raise(ncclSystemError, "%s: out of memory", what);
                return NULL;
        }
        pending->what = what;
        pending->comm = comm;
        pending->run = run;
        return pending;
}

struct pending *pending_free(struct pending *pending) {
        if (pending)
                run_free(pending->run);
        free(pending);
        return NULL;
}

/* ---- under comm_lock --------------------------------------------------------------------------------------------- */
/* Nothing may be started behind it: also while what a run began ends whose rest was given up. */
static bool pending_is_unstarted(const struct pending *pending) {
        return pending->run && (!run_is_started(pending->run) || run_is_torn(pending->run));
}

/* The communicator's first that is not started wholly. */
static const struct pending *pending_first(const struct ncclComm *comm) {
        const struct pending *pending;

        DL_FOREACH(pendings, pending) {
                if (pending->comm == comm && pending_is_unstarted(pending))
                        break;
        }
        return pending;
}

/* One of the communicator's that nobody is at. *ret_any: there are some at all. */
static struct pending *pending_find(const struct ncclComm *comm, bool *ret_any) {
        struct pending *pending, *found = NULL;

        *ret_any = false;
        DL_FOREACH(pendings, pending) {
                if (pending->comm != comm)
                        continue;
                *ret_any = true;
                if (!pending->busy && !found)
                        found = pending;
        }
        return found;
}

static void pending_over(struct pending *pending, int code) {
        struct ncclComm *comm = pending->comm;

        if (!comm->call_code)
                comm->call_code = code;
        if (pending->run && run_is_torn(pending->run))
                atomic_store(&comm->torn, true); /* partner: pending_refuse */
        DL_DELETE(pendings, pending);
        pending_free(pending);
        n_over++;
}

/* Is nothing under way, or may be? */
static bool pendings_are_idle(void) {
        const struct pending *pending;

        DL_FOREACH(pendings, pending) {
                if (pending->busy || !pending->run || !run_is_idle(pending->run))
                        return false;
        }
        return !n_starting;
}

/* ---- under comm_lock, which they give up meanwhile --------------------------------------------------------------- */
/* A look at one request. RMX_E_TIMEOUT: it is under way. */
static int request_look(struct rmx_request *request, uint32_t wait_ms) {
        int done = 0, r;

        if (wait_ms)
                return rmx_wait_for(request, wait_ms);
        r = rmx_test(request, &done);
        return r || done ? r : RMX_E_TIMEOUT;
}

/* True: it is over, and gone. Its failure is told here, since no other call will. */
static bool pending_step(struct pending *pending, bool push, uint32_t wait_ms, bool *ret_pushed) {
        int r = RMX_OK;
        bool over;

        pending->busy = true;
        comm_unlock();
        *ret_pushed = push && run_push(pending->run);
        if (pending->run) {
                over = run_look(pending->run, wait_ms, &r);
        } else {
                r = request_look(&pending->request, wait_ms);
                over = r != RMX_E_TIMEOUT;
        }
        if (over && r && r != RMX_E_ABORTED && !pending->silent)
                (void)error_adopt_text(pending->what, r, pending->run ? run_text(pending->run) : rmx_last_error());
        comm_lock();
        pending->busy = false;
        n_begun += *ret_pushed;
        if (over)
                pending_over(pending, r);
        comm_changed();
        return over;
}

static bool pending_look(struct pending *pending, uint32_t wait_ms) {
        bool pushed;

        return pending_step(pending, false, wait_ms, &pushed);
}

/* Numbers grow, so that two threads that visit at once cannot send each other round for ever. */
static uint64_t visit_new(void) {
        static uint64_t last; /* under comm_lock */

        return ++last;
}

/* The next that nobody is at, and that has something under way; unstarted: that may start something. */
static struct pending *visit_next(uint64_t visit, bool unstarted) {
        static uint64_t scans; /* under comm_lock */
        uint64_t scan = ++scans;
        struct pending *pending;

        DL_FOREACH(pendings, pending) {
                bool fits = !unstarted && !pending->busy && !(pending->run && run_is_idle(pending->run));

                /* Only the communicator's first. */
                if (unstarted && pending_is_unstarted(pending) && pending->comm->scan != scan) {
                        pending->comm->scan = scan;
                        fits = !pending->busy;
                }
                if (fits && pending->visited < visit)
                        break;
        }
        if (pending)
                pending->visited = visit;
        return pending;
}

/* A look at each. */
static void pendings_harvest(void) {
        uint64_t visit = visit_new();
        struct pending *pending;

        while ((pending = visit_next(visit, false)))
                (void)pending_look(pending, 0);
}

/* One more request of each run that has none under way, or of each. *ret_refused: some found no room. True: it was of
 * use to try. */
static bool pendings_turn_of(bool idle, bool *ret_refused) {
        uint64_t visit = visit_new();
        struct pending *pending;
        bool moved = false, pushed;

        while ((pending = visit_next(visit, true))) {
                bool over;

                if (idle && !run_is_idle(pending->run))
                        continue;
                if (atomic_load(&pending->comm->torn)) { /* no partner: under comm_lock, as the stores */
                        run_stop(pending->run, pending->comm->call_code, "");
                        pending->silent = moved = true;
                }
                over = pending_step(pending, true, 0, &pushed);
                moved |= over || pushed;
                *ret_refused |= !over && !pushed;
        }
        return moved;
}

/* Those that have nothing under way come first: what others have may wait for just that. */
static bool pendings_turn(void) {
        bool refused = false, moved = pendings_turn_of(true, &refused);

        return refused ? moved : pendings_turn_of(false, &refused) || moved;
}

/* Calls that wait may have had the room since `before`. It comes free when they end; but they may wait for what this
 * process calls only when its runs have ended, so this is not for ever. */
static bool pendings_have_patience(struct waits before) {
        static uint64_t moves, since_ms; /* under comm_lock */
        struct waits waits = waits_now();
        uint64_t seen = n_begun + n_over + waits.begun + waits.over;

        if (!waits_any(before) && waits.begun == before.begun)
                return false;
        if (seen != moves) {
                moves = seen;
                since_ms = clock_now_ms();
        }
        return clock_now_ms() - since_ms < REST_MS;
}

/* One that was refused is given up. */
static bool pendings_give_up(void) {
        struct pending *pending;

        DL_FOREACH(pendings, pending) {
                if (!pending->busy && run_give_up(pending->run)) {
                        (void)pending_look(pending, 0);
                        return true;
                }
        }
        return false;
}

bool pendings_any_unstarted(void) {
        const struct pending *pending;

        DL_FOREACH(pendings, pending) {
                if (pending_is_unstarted(pending))
                        break;
        }
        return pending;
}

void pendings_push(void) {
        bool idle, more = true;
        uint64_t begun;

        pendings_harvest();
        for (uint32_t i = 0; i < TURNS && more; i++) {
                struct waits waits = waits_now();

                idle = pendings_are_idle();
                begun = n_begun;
                more = pendings_turn();
                /* What was refused while nothing was under way, before or since, always will be. */
                if (!more && idle && begun == n_begun && pendings_are_idle() && !pendings_have_patience(waits))
                        more = pendings_give_up();
        }
}

/* Is there anything that a starter could begin with? */
static bool pendings_may_push(void) {
        const struct pending *pending;

        DL_FOREACH(pendings, pending) {
                if (!pending->busy && pending_is_unstarted(pending) && run_may_push(pending->run))
                        break;
        }
        return pending;
}

/* Has others start what there is room for. */
static void pendings_start(void) {
        if (group_active() || !pendings_any_unstarted())
                return;
        pendings_harvest();
        if (pendings_may_push() && !starter_call())
                pendings_push(); /* then it takes what it takes */
}

/* So far: what has begun or come to its end. What begins has taken what came free, so that there is some going on. */
static uint64_t moves_now(void) {
        return n_over + n_begun + waits_now().over;
}

bool pendings_any(void) {
        bool any;

        comm_lock();
        any = pendings;
        comm_unlock();
        return any;
}

uint64_t pendings_moves(void) {
        uint64_t moves;

        comm_lock();
        moves = moves_now();
        comm_unlock();
        return moves;
}

bool pendings_make_room(uint64_t before, bool patient) {
        uint64_t until_ms = clock_now_ms() + (patient ? REST_MS : ROOM_MS);
        bool over;

        comm_lock();
        pendings_harvest();
        while ((pendings || waits_any_other()) && moves_now() == before && clock_now_ms() < until_ms) {
                struct pending *pending;

                pendings_start(); /* others may wait for that before they end */
                DL_FOREACH(pendings, pending) {
                        if (!pending->busy && !(pending->run && run_is_idle(pending->run)))
                                break;
                }
                if (moves_now() == before && pending)
                        (void)pending_look(pending, LOOK_MS);
                else if (moves_now() == before)
                        comm_wait(LOOK_MS);
                pendings_harvest();
        }
        over = moves_now() != before;
        comm_unlock();
        return over;
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */
bool pendings_unstarted(const struct ncclComm *comm) {
        bool any;

        comm_lock();
        any = pending_first(comm) != NULL;
        comm_unlock();
        return any;
}

ncclResult_t pending_refuse(struct ncclComm *comm, const char *what) {
        int code;

        if (!atomic_load(&comm->torn)) /* partner: the stores in pending_over and pending_tear */
                return ncclSuccess;
        comm_lock();
        code = comm->call_code;
        comm_unlock();
        return error_adopt_text(what, code,
                                "an earlier call on this communicator was given up, and this one would come in its "
                                "place on other ranks; abort the communicator");
}

ncclResult_t pending_check(struct ncclComm *comm, const char *what, bool *ret_behind) {
        comm_lock();
        *ret_behind = pending_first(comm);
        comm_unlock();
        return pending_refuse(comm, what);
}

void pending_tear(struct ncclComm *comm, int code) {
        comm_lock();
        if (!comm->call_code)
                comm->call_code = code;
        atomic_store(&comm->torn, true); /* partner: pending_refuse */
        comm_unlock();
}

/* Returns moves_now(). */
static uint64_t starting(int change) {
        uint64_t moves;

        comm_lock();
        n_starting += (uint32_t)change;
        moves = moves_now();
        comm_unlock();
        return moves;
}

ncclResult_t pending_start(struct pending *pending, int (*start)(const void *userdata, struct rmx_request *request),
                           const void *userdata) {
        char text[ROOM_TEXT_BYTES];
        ncclResult_t result;
        uint64_t moves;
        bool over;
        int r;

        do {
                moves = starting(1);
                r = start(userdata, &pending->request);
                if (r)
                        (void)starting(-1);
                if (r == RMX_E_BUSY)
                        snprintf(text, sizeof(text), "%s", rmx_last_error());
        } while (r == RMX_E_BUSY && pendings_make_room(moves, false));
        if (r) {
                result = r == RMX_E_BUSY ? error_adopt_text(pending->what, r, text)
                                         : comm_result(pending->comm, pending->what, r);
                pending_free(pending);
                return result;
        }
        comm_lock();
        n_starting--;
        n_begun++;
        DL_APPEND(pendings, pending);
        over = pending_look(pending, 0);
        comm_unlock();
        return over ? ncclSuccess : ncclInProgress; /* a failure shows in the communicator's state */
}

ncclResult_t pendings_begin(struct pending **begun, uint32_t n) {
        struct pending *pending;
        bool left = false;

        comm_lock();
        for (uint32_t i = 0; i < n; i++)
                DL_APPEND(pendings, begun[i]);
        pendings_start();
        DL_FOREACH(pendings, pending) {
                for (uint32_t i = 0; i < n; i++)
                        left |= pending == begun[i]; /* nobody else's: memory that is free is not in the list */
        }
        comm_unlock();
        return left ? ncclInProgress : ncclSuccess;
}

/* ---- look and end ------------------------------------------------------------------------------------------------ */
bool pendings_look(struct ncclComm *comm, int *ret_code) {
        struct pending *pending;
        bool any;

        comm_lock();
        /* They end in their order, as a rule: the first that is not over is the last to look at. */
        do
                pending = pending_find(comm, &any);
        while (pending && pending_look(pending, 0));
        pendings_start();
        *ret_code = comm->call_code;
        comm_unlock();
        return any;
}

/* Under comm_lock, which it gives up: it has been aborted, so what is under way ends. Then it is gone. */
static void pending_fetch(struct pending *pending) {
        int r;

        DL_DELETE(pendings, pending);
        n_starting++; /* it keeps its room until then */
        comm_unlock();
        if (pending->run) {
                run_stop(pending->run, RMX_E_ABORTED, "");
                while (!run_look(pending->run, LOOK_MS, &r))
                        ;
        } else {
                (void)rmx_wait(&pending->request, NULL);
        }
        pending_free(pending);
        comm_lock();
        n_starting--;
        n_over++;
        comm_changed();
}

void pendings_end(struct ncclComm *comm, bool aborted) {
        struct pending *pending;
        bool any = true;

        comm_lock();
        while (any) {
                pending = pending_find(comm, &any);
                if (pending && (aborted || comm->broken))
                        pending_fetch(pending);
                else if (pending && !(pending_is_unstarted(pending) && run_is_idle(pending->run)))
                        (void)pending_look(pending, LOOK_MS * 100);
                else if (any)
                        comm_wait(LOOK_MS);
                if (!aborted)
                        pendings_start();
        }
        comm_unlock();
}
