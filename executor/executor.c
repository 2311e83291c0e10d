/* SPDX-License-Identifier: MIT */
#include "executor/executor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <utlist.h>

#include "executor/comm.h"
#include "executor/session.h"
#include "executor/worker.h"
#include "topology/place.h"
#include "util/clock.h"

int executor_init(struct executor *executor, const struct gpu_ops *ops, uint32_t n_gpus, uint32_t n_workers,
                  uint64_t stall_ns) {
        pthread_rwlockattr_t attributes;
        int r;

        *executor =
                (struct executor){.ops = ops, .stall_ns = stall_ns, .started_ns = clock_now_ns(), .attention_fd = -1};
        plans_init(&executor->plans);
        /* Workers take the lock over and over; the control thread must not wait for a moment when none holds it. */
        pthread_rwlockattr_init(&attributes);
        pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
        pthread_rwlock_init(&executor->tables, &attributes);
        pthread_rwlockattr_destroy(&attributes);
        if (getrandom(&executor->instance, sizeof(executor->instance), 0) != sizeof(executor->instance))
                return -EIO;
        executor->attention_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (executor->attention_fd < 0)
                return -errno;
        executor->plans.told_fd = executor->attention_fd;
        r = ops->open(n_gpus, &executor->gpu);
        if (r < 0)
                return r;
        if (topology_place_new(&executor->place) < 0) /* only speed depends on it */
                executor->place = NULL;
        return worker_pool_new(executor, n_workers, &executor->workers);
}

void executor_deinit(struct executor *executor) {
        struct session *session, *next_session;
        struct comm *comm, *next_comm;

        worker_pool_stop(executor->workers);
        HASH_ITER(hh, executor->comms, comm, next_comm) {
                comm_detach(comm);
        }
        HASH_ITER(hh, executor->sessions, session, next_session) {
                session_detach(session);
        }
        executor_tidy(executor);
        executor->workers = worker_pool_free(executor->workers); /* after the bells, which are watched by it */
        free(executor->bells);
        free(executor->comm_list);
        free(executor->busy);
        plans_deinit(&executor->plans);
        if (executor->gpu)
                executor->ops->close(executor->gpu);
        executor->place = topology_place_free(executor->place);
        if (executor->attention_fd >= 0)
                close(executor->attention_fd);
        pthread_rwlock_destroy(&executor->tables);
}

void executor_tidy(struct executor *executor) {
        session_buffers_tidy(executor);
        comms_tidy(executor);
}

void executor_attention(struct executor *executor) {
        const uint64_t one = 1;

        (void)!write(executor->attention_fd, &one,
                     sizeof(one)); /* the control thread drains it; full means it is awake anyway */
}

/* Appends a pointer to a flat list. */
static int list_add(void ***list, uint32_t *n, void *item) {
        void **grown = realloc(*list, (*n + 1) * sizeof(**list));

        if (!grown)
                return -ENOMEM;
        grown[(*n)++] = item;
        *list = grown;
        return 0;
}

static void list_remove(void **list, uint32_t *n, const void *item) {
        for (uint32_t i = 0; i < *n; i++) {
                if (list[i] == item) {
                        list[i] = list[--*n];
                        return;
                }
        }
}

int executor_list_bell(struct executor *executor, struct bell *bell) {
        return list_add((void ***)&executor->bells, &executor->n_bells, bell);
}

void executor_unlist_bell(struct executor *executor, struct bell *bell) {
        list_remove((void **)executor->bells, &executor->n_bells, bell);
}

int executor_list_comm(struct executor *executor, struct comm *comm) {
        int r;

        if (executor->n_comms == 64 * executor->n_busy_words) {
                _Atomic uint64_t *grown =
                        realloc(executor->busy, (executor->n_busy_words + 1) * sizeof(*executor->busy));

                if (!grown)
                        return -ENOMEM;
                atomic_init(&grown[executor->n_busy_words++], 0);
                executor->busy = grown;
        }
        r = list_add((void ***)&executor->comm_list, &executor->n_comms, comm);
        if (r < 0)
                return r;
        comm->index = executor->n_comms - 1;
        executor_busy_set(executor, comm->index); /* whatever has become of it so far */
        if (comm->area)
                DL_APPEND2(executor->net_comms, comm, net_prev, net_next);
        return 0;
}

void executor_unlist_comm(struct executor *executor, struct comm *comm) {
        struct comm *last;

        if (comm->index == COMM_UNLISTED)
                return;
        last = executor->comm_list[--executor->n_comms]; /* takes its place */
        executor_busy_clear(executor, last->index);
        executor->comm_list[last->index = comm->index] = last;
        if (last != comm)
                executor_busy_set(executor, last->index);
        comm->index = COMM_UNLISTED;
        if (comm->area)
                DL_DELETE2(executor->net_comms, comm, net_prev, net_next);
}

void executor_busy_set(struct executor *executor, uint32_t index) {
        if (index != COMM_UNLISTED)
                /* release, with the acquire in executor_busy_clear and executor_busy_next: who sees the bit, or has
                 * cleared it, sees why it was set */
                atomic_fetch_or_explicit(&executor->busy[index / 64], UINT64_C(1) << index % 64, memory_order_release);
}

void executor_busy_clear(struct executor *executor, uint32_t index) {
        if (index != COMM_UNLISTED)
                /* acquire, with the release in executor_busy_set */
                atomic_fetch_and_explicit(&executor->busy[index / 64], ~(UINT64_C(1) << index % 64),
                                          memory_order_acq_rel);
}

uint32_t executor_busy_next(const struct executor *executor, uint32_t from, uint32_t to) {
        while (from < to) {
                /* acquire, with the release in executor_busy_set */
                uint64_t bits = atomic_load_explicit(&executor->busy[from / 64], memory_order_acquire) >> from % 64;

                if (bits)
                        return from + (uint32_t)__builtin_ctzll(bits);
                from = (from / 64 + 1) * 64;
        }
        return to;
}

bool executor_quiet(struct executor *executor) {
        bool quiet = true;

        pthread_rwlock_wrlock(&executor->tables);
        for (uint32_t i = 0; i < executor->n_comms; i++)
                quiet = quiet && comm_quiet(executor->comm_list[i]);
        pthread_rwlock_unlock(&executor->tables);
        return quiet;
}
