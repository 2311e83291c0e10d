/* SPDX-License-Identifier: MIT */
#pragma once
/* Work that makes or ends communicators: done at once, at the end of a group, or in a thread of its own. */
#include <pthread.h>
#include <stdbool.h>

#include "client/nccl/comm.h"
#include "client/nccl/nccl.h"

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
        uint64_t number; /* DERIVE: which of the ids of the parent */
        int colour, key;
        bool spread; /* JOIN: the device was named, and is not just the thread's */
        bool abort;

        /* private to create.c */
        bool taken, started;
        bool pends; /* the parent is in progress */
        pthread_t thread;
        ncclResult_t result;
};

/* Does the job now, in a thread, or when the group ends. Takes the job, whatever the result. */
ncclResult_t job_submit(struct job *job);
/* A group ends: does those that make communicators, or those that end them. */
ncclResult_t jobs_run(struct job **jobs, bool ends);
/* The group has failed: communicators are not made. */
void jobs_drop(struct job **jobs);
struct job *job_new(enum job_kind kind, const char *what);

void turns_free(struct ncclComm *comm);
