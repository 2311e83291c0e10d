/* SPDX-License-Identifier: MIT */
/*
 * Serving a ring.
 *
 * Everything in the client area can change at any moment and lie at any moment. A line is copied once
 * (ring_consumer_latch), the copy is validated, and nothing of the line is looked at again. A request that names an
 * unknown handle or has a wrong sequence harms nobody: only its own line is answered with RMX_E_INVALID. A request in
 * proper sequence that is otherwise wrong has no right answer for the other ranks, which wait for it: the comm is ended
 * for all with the rank named.
 *
 * After a takeover the lines that the dead executor had latched and not answered are served first, oldest first; the
 * comm decides from its marks what becomes of them.
 */
#include "executor/bell.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <utlist.h>

#include "executor/comm.h"
#include "executor/executor.h"
#include "executor/session.h"
#include "executor/validate.h"
#include "executor/worker.h"
#include "railmux/railmux.h"
#include "util/memfd.h"

#define BELL_LINES_MAX   64u /* taken from one ring in one round; and no more when they had so many entries */
#define BELL_ENTRIES_MAX 512u

int bell_attach(struct session *session, uint32_t gpu, uint32_t depth, uint32_t argument_bytes, const int fds[3]) {
        struct ring_layout layout;
        struct bell *bell;
        int r;

        DL_FOREACH(session->bells, bell) {
                if (bell->gpu == gpu)
                        return -EEXIST;
        }
        if (ring_layout_init(&layout, depth, argument_bytes))
                return -EINVAL;
        bell = calloc(1, sizeof(*bell));
        if (!bell)
                return -ENOMEM;
        bell->executor = session->executor;
        bell->session = session;
        bell->gpu = gpu;
        bell->event_fd = -1;
        bell->taking_over = true;
        bell->consumer.layout = layout; /* bell_detach unmaps by it, also half-way */
        atomic_flag_clear(&bell->latching);
        DL_APPEND(session->bells, bell);
        bell->requests = calloc(depth, sizeof(*bell->requests));
        if (!bell->requests) {
                r = -ENOMEM;
                goto error;
        }
        r = memfd_map(fds[0], layout.client_bytes, 0, 1, &bell->client_area);
        if (r < 0)
                goto error;
        r = memfd_map(fds[1], layout.executor_bytes, 1, 1, &bell->executor_area);
        if (r < 0)
                goto error;
        ring_consumer_init(&bell->consumer, &layout, bell->client_area, bell->executor_area, RING_FIRST_SEQUENCE);
        r = executor_list_bell(bell->executor, bell);
        if (r < 0)
                goto error;
        r = worker_pool_watch(bell->executor->workers, fds[2]);
        if (r < 0)
                goto error;
        bell->event_fd = fds[2];
        worker_pool_kick(bell->executor->workers);
        return 0;
error:
        bell_detach(bell);
        return r;
}

struct bell *bell_detach(struct bell *bell) {
        if (!bell)
                return NULL;
        executor_unlist_bell(bell->executor, bell);
        DL_DELETE(bell->session->bells, bell);
        if (bell->event_fd >= 0) {
                worker_pool_unwatch(bell->executor->workers, bell->event_fd);
                close(bell->event_fd);
        }
        memfd_unmap(bell->client_area, bell->consumer.layout.client_bytes);
        memfd_unmap(bell->executor_area, bell->consumer.layout.executor_bytes);
        free(bell->requests);
        free(bell);
        return NULL;
}

/*
 * An honest client keeps every block where it is until its request is answered, so all copies together are never larger
 * than the argument space; one that frees and re-uses blocks early would otherwise make us hold any amount.
 */
uint32_t bell_copy_argument(struct request *request, uint32_t offset, uint64_t bytes, uint64_t room) {
        struct bell *bell = request->bell;
        const struct ring_layout *layout = &bell->consumer.layout;
        const _Atomic uint64_t *from;
        uint64_t *to;

        if (!offset || offset % RING_ARGUMENT_ALIGN || bytes > layout->argument_bytes ||
            offset > layout->argument_bytes - bytes || bytes % sizeof(*to))
                return RMX_E_INVALID;
        /* relaxed: a bound, no data is ordered by it; partner: the fetch_sub in bell_publish */
        if (atomic_fetch_add_explicit(&bell->argument_bytes, bytes, memory_order_relaxed) + bytes >
            layout->argument_bytes) {
                atomic_fetch_sub_explicit(&bell->argument_bytes, bytes, memory_order_relaxed); /* not taken */
                return RMX_E_INVALID;
        }
        request->argument_bytes = (uint32_t)bytes;
        to = request->memory = calloc(1, bytes + room);
        if (!to)
                return RMX_E_NO_MEMORY;
        from = (const _Atomic uint64_t *)(const void *)((const char *)bell->client_area + layout->argument_offset +
                                                        offset);
        for (uint64_t i = 0; i < bytes / sizeof(*to); i++)
                to[i] = atomic_load_explicit(&from[i],
                                             memory_order_relaxed); /* each once; the line's latch is before */
        return RMX_OK;
}

void bell_publish(struct request *request, uint32_t status) {
        struct bell *bell = request->bell;
        uint32_t sequence = request->ring_sequence;

        request_release(request);
        if (request->argument_bytes)
                atomic_fetch_sub_explicit(&bell->argument_bytes, request->argument_bytes,
                                          memory_order_relaxed);  /* see bell_copy_argument */
        ring_consumer_publish(&bell->consumer, sequence, status); /* the slot may be reused from here on */
}

void bell_wake(struct bell *bell, uint32_t ring_sequence) {
        ring_consumer_wake(&bell->consumer, ring_sequence);
}

void bell_complete(struct request *request, uint32_t status) {
        struct bell *bell = request->bell;
        uint32_t sequence = request->ring_sequence;

        bell_publish(request, status);
        ring_consumer_fence();
        bell_wake(bell, sequence);
}

static void bell_take(struct bell *bell, const struct ring_request *line, uint32_t ring_sequence) {
        struct request *request = &bell->requests[ring_sequence & (bell->consumer.layout.depth - 1)];
        struct comm_rank *rank;

        *request = (struct request){.bell = bell, .ring_sequence = ring_sequence};
        rank = session_rank(bell->session, line->word[RING_W_COMM]);
        if (!rank || rank->gpu != bell->gpu || ring_request_abi(line) != RING_ABI) {
                executor_count(bell->executor, invalid_requests, 1);
                bell_complete(request, ring_status(RMX_E_INVALID, -1));
                return;
        }
        comm_rank_ring(rank, request, line);
}

/* While draining, a ring is read on only as long as somebody waits for a call that is to come through it, whatever
 * stands before that call. So what has begun is finished, and the executor ends with nothing in flight. */
static bool bell_may_take(struct bell *bell) {
        struct ring_request line;
        struct comm_rank *rank;

        /* relaxed: the table lock orders it with the store in link.c */
        if (!atomic_load_explicit(&bell->executor->draining, memory_order_relaxed))
                return true;
        if (ring_consumer_peek(&bell->consumer, &line))
                return false;
        rank = session_rank(bell->session, line.word[RING_W_COMM]);
        if (!rank || comm_failed(rank->comm))
                return true; /* answered at once */
        for (rank = bell->session->ranks; rank; rank = rank->hh.next)
                if (rank->gpu == bell->gpu && comm_rank_awaited(rank))
                        return true;
        return false;
}

static uint32_t bell_entries(const struct ring_request *line) {
        uint64_t n = ring_request_u64(line, RING_W_COUNT_LO);

        return n < RING_GROUP_MAX ? (uint32_t)n : RING_GROUP_MAX;
}

bool bell_serve(struct bell *bell) {
        struct ring_request line;
        uint32_t ring_sequence, n_entries = 0;
        bool any = false;

        /* acquire, with the clear below: the former thread's private ring state */
        if (atomic_flag_test_and_set_explicit(&bell->latching, memory_order_acquire))
                return false;
        while (bell->taking_over) {
                if (ring_consumer_relatch(&bell->consumer, &bell->cursor, &line, &ring_sequence)) {
                        bell->taking_over = false;
                } else {
                        bell_take(bell, &line, ring_sequence);
                        any = true;
                }
        }
        /* Bounded: a client that rings as fast as it is answered must not hold the worker, and the table lock, for
         * ever. What is looked up for a group's entry takes as long as for a line. */
        for (uint32_t n = 0; n < BELL_LINES_MAX && n_entries < BELL_ENTRIES_MAX && bell_may_take(bell); n++) {
                if (ring_consumer_latch(&bell->consumer, &line, &ring_sequence))
                        break;
                if (ring_request_op(&line) == RING_OP_GROUP)
                        n_entries += bell_entries(&line);
                bell_take(bell, &line, ring_sequence);
                any = true;
        }
        atomic_flag_clear_explicit(&bell->latching, memory_order_release); /* with the test_and_set above */
        return any;
}

bool bell_sleep(struct bell *bell) {
        bool found;

        /* acquire, with the clear in bell_serve and below. Whoever holds the flag may be on its way to sleep as we are,
         * with its look at the ring behind it; so we wait and look ourselves. It holds the table lock already and never
         * waits for us. */
        while (atomic_flag_test_and_set_explicit(&bell->latching, memory_order_acquire))
                sched_yield();
        found = ring_consumer_sleep(&bell->consumer);
        atomic_flag_clear_explicit(&bell->latching,
                                   memory_order_release); /* with the test_and_set above and in bell_serve */
        return found;
}
