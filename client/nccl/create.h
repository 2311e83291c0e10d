/* SPDX-License-Identifier: MIT */
#pragma once
/* Work that makes or ends communicators: done at once, at the end of a group, or in a thread of its own. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/nccl/comm.h"
#include "client/nccl/nccl.h"

struct batch;
struct rmx_cancel;
struct session;

enum job_kind {
        JOB_JOIN,   /* all ranks have the id */
        JOB_SPLIT,  /* of parent */
        JOB_DERIVE, /* from parent, by an id that all its ranks can make */
        JOB_END,    /* comm is destroyed or aborted */
};

struct job {
        struct job *next;
        enum job_kind kind;
        const char *what; /* the public call */
        struct ncclComm *comm;
        struct ncclComm *parent;
        ncclComm_t *ret_comm; /* where the handle is */
        ncclUniqueId id;
        uint64_t number; /* DERIVE: which of the ids of the parent. SPLIT: 0, or as that: see run_regroup */
        uint32_t *count; /* of the parent's, under comm_lock: it was raised for the number; NULL: nothing was */
        int colour, key;
        uint32_t timeout_ms;
        bool blocking; /* of those that make from a parent: as the config says, also where nothing comes of it */
        bool spread;   /* JOIN: the device was named, and is not just the thread's */
        bool abort;
        bool held; /* the parent is by the caller, whose hold it takes over */

        /* private to cancel.c */
        struct rmx_cancel *cancel; /* of those that make */
        struct batch *batch;       /* under comm_lock, as what follows */
        struct job *companion;     /* the next of the batch */
        struct job *sibling;       /* the next one that makes from the same parent now */
        bool cancelled;
        uint64_t until; /* when it is left, by clock_now_ms; 0: it was not stuck yet */

        /* private to create.c */
        bool started;
        struct job *rest;      /* of its parent's, those that come behind all that are waited for */
        ncclResult_t detached; /* how they were started */
        bool pends;            /* the parent is in progress */
        pthread_t thread;
        struct job *beside; /* the first one of what is done at the same time; next: of what is done after this one */
        bool over, left;    /* under comm_lock: it has run; nobody waits for it, so its thread finishes it */
        bool answered;      /* as these: it will be over in a moment, and is not left any more */
        ncclResult_t result;
};

/* Does the job now, in a thread, or when the group ends. Takes the job, whatever the result. */
ncclResult_t job_submit(struct job *job);
/* A group ends: does those that make communicators, or those that end them. */
ncclResult_t jobs_run(struct job **jobs, bool ends);
/* The group has failed: communicators are not made. */
void jobs_drop(struct job **jobs);
struct job *job_new(enum job_kind kind, const char *what);

/* Is it over before its call, or the group's end, returns? */
bool job_blocks(const struct job *job);
/* Does it ask the daemon for an id, which cannot be given up? */
bool job_meets(const struct job *job);
/* Frees a job that has been finished, or never begun. */
struct job *job_free(struct job *job);

/* ---- giving up, see cancel.c ---- */
/* Those of the list that make belong together: if one fails, the others are given up. */
void jobs_bind(struct job *jobs);
/* What the bound ones came to: the result of the first that failed. */
ncclResult_t jobs_verdict(const struct job *jobs);
/* The job makes from here on, and may be given up. */
void job_enter(struct job *job);
/* It has made, or not: job->result. */
void job_exit(struct job *job);
/* It has failed before it could begin. */
void job_fail(struct job *job);
/* Waits until all of these are over, which are linked by `beside`, each with those after it. What was given up and does
 * not end, since the daemon does not answer, is left to its thread, and taken out; then this is why. */
ncclResult_t chains_await(struct job **chains);
/* error_adopt, but that one which was given up has nothing to say, and what was left behind writes over nothing
 * (but that it cannot end what it has made, if the daemon stands still again). */
ncclResult_t job_adopt(struct job *job, int code);
/* The communicator is not to be made any more; derived: nor are others from it. */
void jobs_cancel(struct ncclComm *comm, bool derived);

void turns_free(struct ncclComm *comm);
