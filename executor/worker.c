/* SPDX-License-Identifier: MIT */
/*
 * Workers.
 *
 * A worker makes rounds: latch from every bell, then one step of every comm that has requests (comm_rest, comm_run.c).
 * As long as a round moves anything it makes another. Progress has only two sources, a client's line and another
 * worker's step, and a worker that made a step makes another round; so it is enough that the last worker awake does not
 * miss a line when it goes to sleep.
 *
 * Sleeping. `awake` counts workers that are not asleep. The one that takes it to zero sets need_wake in every ring,
 * fences, and looks at every ring once more (bell_sleep); only then it waits. A client publishes, fences, reads
 * need_wake and writes its eventfd if it is set. One of both sees the other. Eventfds are watched edge-triggered and
 * are never read: every write is an edge, whatever the counter or the flags that a client may have changed on the
 * shared file description.
 *
 * What comes from other nodes is announced in the same way. The fabric stores a word, counts it in the area
 * (`arrivals`), fences, and looks whether we sleep. A worker notes the sum of these counts before a round; the one that
 * goes to sleep last says so in every area, fences, and compares. What came before the note was seen in the round (or
 * by the worker that held the rank at that time, which is awake), and what came later has changed the sum. Comms come
 * and go only with a kick.
 *
 * A worker that wakes clears need_wake again, so clients of a busy executor make no system call.
 *
 * More workers are woken only when a round had much data in hand: for small requests a second thread costs more than it
 * brings.
 */
#include "executor/worker.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "executor/bell.h"
#include "executor/comm.h"
#include "executor/executor.h"
#include "topology/place.h"
#include "util/clock.h"
#include "util/yield.h"

/* Before going to sleep: empty rounds with a yield between them, at least so many and for so long. Where all ranks fit
 * the CPUs a yield returns at once, and a worker that sleeps between two small requests makes them three times as slow
 * (4 ranks on 2 CPUs: 8 us or 22 us); more than 50 us brought nothing. */
#define WORKER_SPIN_ROUNDS    4u
#define WORKER_SPIN_NS        UINT64_C(50000)
#define WORKER_PARALLEL_BYTES (512u << 10) /* data in hand from which another worker is worth a wake-up */

struct worker {
        struct worker_pool *pool;
        uint32_t index;
        uint32_t numa;     /* node that it works for first, and stays on if there are several */
        uint32_t arrivals; /* from other nodes, before the last round */
        struct yielder yielder;
        pthread_t thread;
};

struct worker_pool {
        struct executor *executor;
        int epoll_fd;
        int kick_fd;
        _Atomic uint32_t awake; /* seq_cst: see worker_sleep */
        _Atomic bool stop;      /* release in worker_pool_stop, acquire in worker_main */
        uint32_t n_workers, n_started;
        struct worker workers[];
};

void worker_pool_kick(struct worker_pool *pool) {
        const uint64_t one = 1;

        /* Never full: nobody else writes this eventfd, and 2^64 kicks do not happen. */
        (void)!write(pool->kick_fd, &one, sizeof(one));
}

/* Runs the comms that have something to do from the worker's own place on, or those in front of it. The lock is given
 * back between two, for the control thread. */
static bool worker_run_comms(struct worker *worker, bool behind, uint64_t *ret_bytes) {
        struct executor *executor = worker->pool->executor;
        bool moved = false, any = true;

        for (uint32_t i = behind ? worker->index : 0; any; i++) {
                uint32_t n, own;

                pthread_rwlock_rdlock(&executor->tables);
                n = executor->n_comms;
                own = worker->index < n ? worker->index : n;
                i = executor_busy_next(executor, i, behind ? n : own);
                any = i < (behind ? n : own);
                if (any)
                        moved |= comm_run(executor->comm_list[i], worker->index * (PLAN_RANKS_MAX / 4), worker->numa,
                                          ret_bytes);
                pthread_rwlock_unlock(&executor->tables);
        }
        return moved;
}

static bool worker_round(struct worker *worker, uint64_t *ret_bytes) {
        struct executor *executor = worker->pool->executor;
        bool moved = false;

        for (uint32_t i = 0;; i++) {
                pthread_rwlock_rdlock(&executor->tables);
                if (i == 0)
                        worker->arrivals = comm_nodes_arrivals(executor);
                if (i >= executor->n_bells) {
                        pthread_rwlock_unlock(&executor->tables);
                        break;
                }
                /* several at a time: the lock costs more than looking at an empty ring */
                for (uint32_t k = 0; k < 16 && i < executor->n_bells; k++, i++)
                        moved |= bell_serve(executor->bells[(i + worker->index) % executor->n_bells]);
                i--;
                pthread_rwlock_unlock(&executor->tables);
        }
        moved |= worker_run_comms(worker, true, ret_bytes);
        return worker_run_comms(worker, false, ret_bytes) || moved;
}

/* Sets need_wake everywhere; true if a line or something from another node was there after all. */
static bool worker_announce_sleep(const struct worker *worker) {
        struct executor *executor = worker->pool->executor;
        bool found = false;

        pthread_rwlock_rdlock(&executor->tables);
        for (uint32_t i = 0; i < executor->n_bells; i++)
                found |= bell_sleep(executor->bells[i]);
        /* While draining, lines that stay in their rings on purpose are no reason to stay awake. */
        if (atomic_load_explicit(&executor->draining, memory_order_relaxed)) /* ordered by the table lock */
                found = false;
        comm_nodes_sleep(executor);
        ring_consumer_fence(); /* with net_area_wake_executor */
        found |= comm_nodes_arrivals(executor) != worker->arrivals;
        pthread_rwlock_unlock(&executor->tables);
        return found;
}

static void worker_announce_awake(struct executor *executor) {
        pthread_rwlock_rdlock(&executor->tables);
        for (uint32_t i = 0; i < executor->n_bells; i++)
                ring_consumer_awake(&executor->bells[i]->consumer);
        comm_nodes_awake(executor);
        pthread_rwlock_unlock(&executor->tables);
}

static void worker_sleep(struct worker *worker) {
        struct worker_pool *pool = worker->pool;
        struct epoll_event events[16];

        /* seq_cst, with the fetch_add below: exactly one worker sees itself as the last */
        if (atomic_fetch_sub(&pool->awake, 1) == 1 && worker_announce_sleep(worker)) {
                atomic_fetch_add(&pool->awake, 1); /* with the fetch_sub above */
                worker_announce_awake(pool->executor);
                return;
        }
        executor_count(pool->executor, sleeps, 1);
        while (epoll_wait(pool->epoll_fd, events, 16, -1) < 0 && errno == EINTR)
                ;
        executor_count(pool->executor, wakes, 1);
        if (atomic_fetch_add(&pool->awake, 1) == 0) /* with the fetch_sub above */
                worker_announce_awake(pool->executor);
}

static void *worker_main(void *argument) {
        struct worker *worker = argument;
        struct worker_pool *pool = worker->pool;
        uint32_t empty = 0;
        uint64_t since_ns = 0;

        if (topology_place_count(pool->executor->place) > 1)
                (void)topology_place_thread(pool->executor->place, worker->numa); /* refused: it wanders */
        while (!atomic_load_explicit(&pool->stop, memory_order_acquire)) {        /* with worker_pool_stop */
                uint64_t bytes = 0;

                if (worker_round(worker, &bytes)) {
                        empty = 0;
                        if (bytes >= WORKER_PARALLEL_BYTES &&
                            atomic_load_explicit(&pool->awake, memory_order_relaxed) < pool->n_workers) /* a hint */
                                worker_pool_kick(pool);
                        continue;
                }
                if (empty++ == 0)
                        since_ns = clock_now_ns();
                if (empty > WORKER_SPIN_ROUNDS && clock_now_ns() - since_ns >= WORKER_SPIN_NS) {
                        empty = 0;
                        worker_sleep(worker);
                } else {
                        (void)yielder_yield(&worker->yielder); /* or looks again at once */
                }
        }
        return NULL;
}

int worker_pool_watch(struct worker_pool *pool, int event_fd) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = event_fd};

        return epoll_ctl(pool->epoll_fd, EPOLL_CTL_ADD, event_fd, &event) < 0 ? -errno : 0;
}

void worker_pool_unwatch(struct worker_pool *pool, int event_fd) {
        epoll_ctl(pool->epoll_fd, EPOLL_CTL_DEL, event_fd, NULL);
}

uint32_t worker_pool_size(const struct worker_pool *pool) {
        return pool->n_workers;
}

void worker_pool_stop(struct worker_pool *pool) {
        if (!pool)
                return;
        atomic_store_explicit(&pool->stop, true, memory_order_release); /* with the acquire in worker_main */
        for (uint32_t i = 0; i < pool->n_started; i++) {
                /* one edge may wake only one sleeper: kick until this one is gone */
                while (pthread_tryjoin_np(pool->workers[i].thread, NULL)) {
                        worker_pool_kick(pool);
                        sched_yield();
                }
        }
        pool->n_started = 0;
}

struct worker_pool *worker_pool_free(struct worker_pool *pool) {
        if (!pool)
                return NULL;
        worker_pool_stop(pool);
        if (pool->epoll_fd >= 0)
                close(pool->epoll_fd);
        if (pool->kick_fd >= 0)
                close(pool->kick_fd);
        free(pool);
        return NULL;
}

int worker_pool_new(struct executor *executor, uint32_t n_workers, struct worker_pool **ret_pool) {
        struct worker_pool *pool;
        int r;

        pool = calloc(1, sizeof(*pool) + n_workers * sizeof(pool->workers[0]));
        if (!pool)
                return -ENOMEM;
        pool->executor = executor;
        pool->n_workers = n_workers;
        pool->kick_fd = -1;
        atomic_init(&pool->awake, n_workers);
        pool->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (pool->epoll_fd < 0)
                goto error;
        pool->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (pool->kick_fd < 0)
                goto error;
        r = worker_pool_watch(pool, pool->kick_fd);
        if (r < 0) {
                worker_pool_free(pool);
                return r;
        }
        for (uint32_t i = 0; i < n_workers; i++) {
                struct worker *worker = &pool->workers[i];

                *worker = (struct worker){.pool = pool, .index = i, .numa = i % topology_place_count(executor->place)};
                errno = pthread_create(&worker->thread, NULL, worker_main, worker);
                if (errno)
                        goto error;
                pool->n_started++;
        }
        *ret_pool = pool;
        return 0;
error:
        r = -errno;
        worker_pool_free(pool);
        return r;
}
