/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The executor's object tree and who may touch it.
 *
 * Two kinds of threads: one control thread (libevent; talks to railmuxd) and the workers. `tables` is a read-write
 * lock: workers hold it for reading during one bounded step, the control thread for writing while it changes what
 * exists (sessions, bells, buffers, comms). So nothing a worker looks at disappears under it, and under the write lock
 * no worker touches client memory. One more thread verifies plans, and sees nothing of all this (plan/plans.h).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"
#include "plan/plans.h"

struct bell;
struct buffer;
struct comm;
struct session;
struct topology_place;
struct worker_pool;

struct executor_counters { /* relaxed: statistics only, no partner */
        _Atomic uint64_t operations;
        _Atomic uint64_t bytes;
        _Atomic uint64_t invalid_requests;
        _Atomic uint64_t sleeps;
        _Atomic uint64_t wakes;
        _Atomic uint64_t lost;
        _Atomic uint64_t mismatches;
};

struct executor {
        /* identity */
        uint64_t instance;
        uint64_t started_ns;
        uint64_t stall_ns;

        /* owned */
        const struct gpu_ops *ops;
        struct gpu *gpu;
        struct plans plans;
        struct topology_place *place; /* NULL: unknown */
        struct worker_pool *workers;
        int attention_fd; /* eventfd: a comm failed, a retired buffer is free or a plan has been verified; the control
                             thread looks and tells */

        /* the control thread's */
        struct buffer *retired;      /* utlist: retired while in use */
        struct buffer *gone_buffers; /* utlist: in no table any more, to be unmapped without the lock */
        struct comm *gone_comms;     /* utlist: the same */

        /* tables, guarded by the lock */
        pthread_rwlock_t tables;
        struct session *sessions; /* uthash by id */
        struct comm *comms;       /* uthash by id */
        struct bell **bells;      /* flat for scanning */
        uint32_t n_bells;
        struct comm **comm_list; /* flat for scanning */
        uint32_t n_comms;
        _Atomic uint64_t *busy; /* a bit for each of comm_list: workers have to look at it (comm_rest) */
        uint32_t n_busy_words;
        struct comm *net_comms; /* utlist: those over several nodes */

        /* state */
        _Atomic bool
                draining; /* set by the control thread; read by workers that hold the table lock, which orders it */
        struct executor_counters counters;
};

int executor_init(struct executor *executor, const struct gpu_ops *ops, uint32_t n_gpus, uint32_t n_workers,
                  uint64_t stall_ns);
void executor_deinit(struct executor *executor);

/* Control thread, without the lock: unmaps and frees what has gone out of the tables, which may take long. */
void executor_tidy(struct executor *executor);
/* Any thread: asks the control thread to look for comms that failed and buffers that are free. */
void executor_attention(struct executor *executor);
/* Flat lists, write lock held. 0 or -ENOMEM. */
int executor_list_bell(struct executor *executor, struct bell *bell);
void executor_unlist_bell(struct executor *executor, struct bell *bell);
int executor_list_comm(struct executor *executor, struct comm *comm);
void executor_unlist_comm(struct executor *executor, struct comm *comm);
/* Read lock. That workers have to look at the comm of this place in comm_list, or need not (COMM_UNLISTED: nothing).
 * The first of those that they have to look at in [from, to), or a number that is not in it. */
void executor_busy_set(struct executor *executor, uint32_t index);
void executor_busy_clear(struct executor *executor, uint32_t index);
uint32_t executor_busy_next(const struct executor *executor, uint32_t from, uint32_t to);
/* Control thread, without the lock, which it takes: is no begun request left? */
bool executor_quiet(struct executor *executor);

#define executor_count(executor, member, n)                                                                            \
        atomic_fetch_add_explicit(&(executor)->counters.member, (n), memory_order_relaxed) /* statistics: no partner   \
                                                                                            */
