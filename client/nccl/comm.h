/* SPDX-License-Identifier: MIT */
#pragma once
/* One rank of one communicator, as programs hold it. See comm.c for how it lives and ends, ask.c for what it
 * tells. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/nccl/config.h"
#include "client/nccl/nccl.h"

/* A destroy, and whether an abort can break it: see comm_claim. */
enum comm_destroy {
        DESTROY_NONE,
        DESTROY_BREAKABLE,
        DESTROY_LEAVES, /* what an abort would work on is being freed */
};

struct ending;
struct fallback;
struct job;
struct rmx_comm;
struct scalar;
struct session;
struct turn;

struct ncclComm {
        _Atomic uint64_t magic;
        struct ncclComm *next; /* free ones */
        struct ncclComm *ready_next, *ready_prev;
        struct ncclComm *finalized_next; /* of those that one thread's group has finalized, until its end */
        uint32_t generation;             /* of the process that made it */

        /* Where it is served: by the daemon, or by another library. */
        struct session *session;
        struct rmx_comm *rmx;
        const struct fallback *fallback;
        _Atomic(ncclComm_t) real;
        bool late;               /* the other library may store that after the call that makes it */
        bool begun;              /* ... which has said ncclInProgress */
        struct ncclComm *origin; /* of a late one: what it comes from, with its real one; only to be asked */
        ncclComm_t real_origin;

        int rank, n_ranks;
        int device; /* of the process's runtime; on the host backend the emulated GPU */
        int32_t gpu;
        bool host;
        struct config config;

        _Atomic int state;       /* ncclInProgress while it is made, then ncclSuccess or why it could not be made */
        _Atomic int error;       /* sticky */
        _Atomic bool closed;     /* finalized or revoked: no calls any more */
        _Atomic bool finalizing; /* on GPUs: finalized, and something may be under way; looking: a thread looks */
        _Atomic bool looking;
        _Atomic uint32_t n_revokes; /* that the daemon has not answered */
        _Atomic bool aborted;       /* the other ranks know */
        _Atomic bool quieted;       /* by its program, which goes on with it: that ranks have ended it is no error */
        _Atomic bool ending;        /* it is to be destroyed or aborted, perhaps when a group ends */
        _Atomic bool suspended;     /* for what it is worth */

        /* Under comm_lock. */
        bool ready;             /* in the list of those */
        bool aborting;          /* the daemon is told that it is over, and has not answered */
        bool abandoned;         /* aborted while it was made or held: the maker or the last holder ends it */
        uint32_t n_held;        /* those that it is not waited for: others made from it, groups, calls to the daemon */
        uint32_t n_pending;     /* communicators that are being made from it without blocking */
        uint32_t n_grown;       /* see derive.c */
        struct job *maker;      /* what makes it now; for this and the next three see cancel.c */
        struct job *derived;    /* those that make others from it now */
        bool unwanted;          /* it is not to be made any more */
        bool barren;            /* nor are others from it */
        int call_code;          /* RMX_*: what the first failed call said; see pending.c */
        uint64_t scan;          /* private to pending.c */
        _Atomic bool torn;      /* ... and some were never started: later ones would come in their place */
        struct turn *turns;     /* see derive.c */
        struct scalar *scalars; /* see redop.c */
        enum comm_destroy destroy;
        pthread_t destroyer;    /* who has begun that */
        struct ending *leaving; /* that destroy, when it waits for the daemon only; see end.c */
        bool broken;            /* an abort has come while a destroy was under way */
        uint32_t n_breakers;    /* aborts of that kind that are at work in it: it stays until they are through */

        _Atomic uint32_t users; /* calls at work in it; COMM_CLOSING: it ends. The last member: outlives its use */
};

#define COMM_MAGIC   UINT64_C(0x726d784e43434c21)
#define COMM_CLOSING 0x80000000u

#define ABORT_WAIT_MS 800u /* how long an abort waits for the daemon, and so does who was given up */

/* A fresh one, in progress, with one user: whoever makes it. NULL: no memory. */
struct ncclComm *comm_new(void);
/* Ends what has come by now from the other library for handles that are gone, which then are free. */
void comm_sweep(void);
/* Nobody has the handle, and its maker, a user no more, has made nothing. */
void comm_recycle(struct ncclComm *comm);
/* The making is over, well or not; the maker is a user no more. false: it was aborted meanwhile, and is gone. */
bool comm_made(struct ncclComm *comm, ncclResult_t result);

/* Where the other library stores what it makes. */
static inline ncclComm_t *comm_place(struct ncclComm *comm) {
        return (ncclComm_t *)&comm->real;
}

/* Gives the handle to the program. Another of its threads may be looking for it, lest it is never made. */
static inline void comm_give(ncclComm_t *place, struct ncclComm *comm) {
        __atomic_store_n(place, comm, __ATOMIC_RELEASE);
}

/* Is this a communicator, of this process? For calls that do not care what state it is in. */
ncclResult_t comm_valid(const struct ncclComm *comm, const char *what);
/* The same, and it is ready to be used. Goes with comm_exit if it is ncclSuccess. */
ncclResult_t comm_enter(struct ncclComm *comm, const char *what);
/* As comm_enter, for one that may be failed or revoked. */
ncclResult_t comm_enter_any(struct ncclComm *comm, const char *what);
void comm_exit(struct ncclComm *comm);
/* error_adopt, for what a call on comm returned. */
ncclResult_t comm_result(struct ncclComm *comm, const char *what, int code);
/* How many of this process share its ring with it, itself among them. */
uint32_t comm_count_neighbours(const struct ncclComm *comm);
/* What the stream argument is for librailmux. */
static inline void *comm_stream(const struct ncclComm *comm, ncclStream_t stream) {
        return comm->host ? NULL : (void *)stream;
}

/* This one, which has been entered, is used for longer than a call. Goes with comm_drop, which exits. */
void comm_hold(struct ncclComm *comm);
void comm_drop(struct ncclComm *comm);
/* Another is made from this one without blocking; while any is, its asynchronous state is ncclInProgress. */
void comm_pend(struct ncclComm *comm);
void comm_unpend(struct ncclComm *comm);
bool comm_is_pending(struct ncclComm *comm);

/* What a call that ends it is to do. */
enum comm_claim {
        CLAIM_REFUSED, /* nothing: the end is somebody else's */
        CLAIM_END,
        CLAIM_BREAK,   /* a destroy of another thread is under way, which this abort is to break; goes with comm_unbreak
                        */
        CLAIM_NOTHING, /* it is, and waits for the daemon at most, and that no longer: all is well */
};
enum comm_claim comm_claim(struct ncclComm *comm, bool abort);
/* The end was claimed, and does not come. */
void comm_unclaim(struct ncclComm *comm);
void comm_unbreak(struct ncclComm *comm);
/* No call may begin any more. Waits until those at work are over. With `abandon`, or when it is broken, it does not
 * wait while this one is made or held: then it returns false, and the maker or the last holder ends it. */
bool comm_close(struct ncclComm *comm, bool abandon);
/* Of a destroy: waits for what has been called. True: it was broken. */
bool comm_drain(struct ncclComm *comm);
/* On GPUs: waits until nothing is under way, or it has failed. */
void comm_settle(struct ncclComm *comm);
/* On GPUs, of a closed one of which everything is issued: waits until nothing is under way, or it has failed, and says
 * so. Without blocking its state says when. */
ncclResult_t comm_finalize(struct ncclComm *comm, const char *what);
/* Ends what is at work in it, on all ranks; it stays to be left. When it returns nobody touches its memory any more,
 * also where another thread had begun that. Nothing for one that is being made. */
int comm_abort(struct ncclComm *comm);
/* Leaves, and frees the object. Not where librailmux's group is open. */
ncclResult_t comm_end(struct ncclComm *comm, const char *what, bool abort);
/* The same of one that was aborted, anywhere and in a limited time. See end.c. */
void comm_end_apart(struct ncclComm *comm, const char *what);
/* Under comm_lock: a destroy that waits for the daemon waits no longer than an abort. */
void ending_break(struct ending *ending);
/* All of that, as ncclCommDestroy or ncclCommAbort. See end.c. */
ncclResult_t comm_finish(struct ncclComm *comm, const char *what, bool abort);

/* This one, which has been entered, takes no calls any more, and its program hears no more of what was under way. In a
 * limited time, too. */
ncclResult_t comm_revoke(struct ncclComm *comm, const char *what);

/* Guards what its comments say; held for moments. */
void comm_lock(void);
void comm_unlock(void);
/* Under it: something has changed that others wait for; waits for that, a while. */
void comm_changed(void);
void comm_wait(uint32_t limit_ms);
/* The same for a condition of one's own, which is made where it is declared. */
void comm_wait_for(pthread_cond_t *condition, uint32_t limit_ms);
/* In the child of a fork, which has only one thread: the parent's handles are forgotten. */
void comm_forked(void);
