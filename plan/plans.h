/* SPDX-License-Identifier: MIT */
#pragma once
/* Plans that an executor has expanded and verified, shared by all comms of the same shape. One thread only, the
 * executor's control thread; the one that verifies is its own. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "plan/nodes.h"
#include "plan/plan.h"
#include "plan/verify.h"

#define PLANS_IDLE_MAX     512u /* kept though no comm uses them, and nobody waits for them */
#define PLANS_OLDEST_EVERY 16u  /* so many are taken by size, the last of them by age */

struct plans_shape {
        uint32_t operation, algorithm, n_ranks;
        struct plan_geometry geometry;
        const struct plan_nodes *nodes; /* how the ranks lie on nodes; NULL: all on one. Copied */
        bool alike;                     /* all ranks make calls that are alike (plan_verify_alike), else any */
};

enum {
        PLANS_OK = 0,
        PLANS_E_REFUSED = 1, /* does not exist, or the verifier found a fault */
        PLANS_E_LATER = 2,   /* is being verified */
};

struct plans_entry;

struct plans {
        struct plans_entry *entries; /* uthash by shape, the one that was used longest ago first */
        uint32_t n_entries;
        uint32_t n_idle; /* of those, how many no comm has */
        uint64_t round;  /* counts plans_round() */
        int told_fd;     /* an eventfd that is written when one has been verified; -1: nobody waits. The caller's */

        /* shared with the thread, guarded by the mutex */
        pthread_mutex_t mutex;
        pthread_cond_t changed;
        struct plans_entry *queue;              /* utlist: to be verified, small ones first */
        struct plans_entry *busy;               /* the thread is at it */
        uint64_t n_queued, n_taken, n_verified; /* ever */
        bool stop;

        pthread_t thread;
        bool started;
};

void plans_init(struct plans *plans);
void plans_deinit(struct plans *plans);
/* May plans_get() be called without its having to verify anything? If not, PLANS_E_LATER, and it is seen to.
 * -ENOMEM. */
int plans_want(struct plans *plans, const struct plans_shape *shape);
/* All who were told PLANS_E_LATER and still wait ask again now, each for all of theirs. What nobody asks for in this
 * round or the next may be dropped. */
void plans_round(struct plans *plans);
/* *ret_plan lives until plans_put(). What has not been verified yet is verified here and now. -ENOMEM;
 * PLANS_E_REFUSED with the verdict's text. */
int plans_get(struct plans *plans, const struct plans_shape *shape, const struct plan **ret_plan,
              struct plan_verdict *ret_verdict);
void plans_put(struct plans *plans, const struct plan *plan); /* NULL: nothing */
/* How many have been verified so far, those included that are not kept any more. */
uint64_t plans_verified(struct plans *plans);
