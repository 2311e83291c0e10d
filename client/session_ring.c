/* SPDX-License-Identifier: MIT */
/*
 * All ranks of this process on one GPU share a ring, so its producer side is under a mutex: held for the time of
 * writing one line or of taking back one slot, never while blocking.
 *
 * Slots are used in ring order. A request that takes long keeps its slot, and when the ring has come round to it,
 * nothing can be published until it is harvested. Two cases: a thread sleeps on that request right now (it is
 * attended); then a blocking call may wait for the slot. Or it was started and left lying; then waiting could be for
 * ever, if it is this very thread that should rmx_wait for it, and the caller gets SESSION_RING_E_FULL. Requests whose
 * comm was destroyed after a failure are orphans: whoever meets one in its way harvests it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/comm.h"
#include "client/error.h"
#include "client/session.h"
#include "client/session_ring.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/memfd.h"

/* How long a call waits for a slot that another thread's request holds. That request may itself wait for a rank of this
 * process that cannot ring because the ring is full, so the wait must end. */
#define SLOT_WAIT_NS (10 * SESSION_LOOK_NS)

struct session_ring *session_ring_free(struct session_ring *ring) {
        bool ours;

        if (!ring)
                return NULL;
        /* In a forked child, locks may have been copied locked and their waiters do not exist: only memory is given
         * back. */
        ours = session_is_ours(ring->session);
        /* Requests that never completed (their daemon and executor are gone) still hold their regions. */
        for (uint32_t i = 0; ours && ring->slots && i < ring->producer.layout.depth; i++) {
                if (!ring->slots[i].busy)
                        continue;
                bounce_release(&ring->session->bounce, ring->slots[i].regions[0]);
                bounce_release(&ring->session->bounce, ring->slots[i].regions[1]);
        }
        if (ring->client_area)
                memfd_unmap(ring->client_area, ring->producer.layout.client_bytes);
        if (ring->executor_area)
                memfd_unmap(ring->executor_area, ring->producer.layout.executor_bytes);
        cleanup_close(&ring->wake_fd);
        if (ours) {
                pthread_cond_destroy(&ring->released);
                pthread_mutex_destroy(&ring->mutex);
        }
        free(ring->slots);
        free(ring);
        return NULL;
}

/* Maps what the daemon sent. fds: client area, executor area, wake eventfd; closes or keeps them all. The producer is
 * not initialised yet, but for its layout. */
static int ring_map(struct rmx_session *session, const char *what, const struct rpc_answer *answer,
                    struct session_ring **ret_ring) {
        _cleanup_close_ int client_fd = answer->fds[0], executor_fd = answer->fds[1];
        struct session_ring *ring;
        pthread_condattr_t attributes;
        int r;

        ring = calloc(1, sizeof(*ring));
        if (!ring) {
                close(answer->fds[2]);
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", what);
        }
        ring->session = session;
        ring->gpu = answer->ring.gpu;
        ring->wake_fd = answer->fds[2];
        pthread_mutex_init(&ring->mutex, NULL);
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(&ring->released, &attributes);
        pthread_condattr_destroy(&attributes);
        if (ring_layout_init(&ring->producer.layout, answer->ring.depth, answer->ring.argument_bytes)) {
                session_ring_free(ring);
                return error_set(RMX_E_INTERNAL, "%s: the daemon sent a ring of depth %u", what, answer->ring.depth);
        }
        ring->slots = calloc(answer->ring.depth, sizeof(*ring->slots));
        r = ring->slots ? 0 : -ENOMEM;
        if (!r)
                r = memfd_map(client_fd, ring->producer.layout.client_bytes, 1, 1, &ring->client_area);
        if (!r)
                r = memfd_map(executor_fd, ring->producer.layout.executor_bytes, 0, 1, &ring->executor_area);
        /* The executor's watcher must never make us block; the daemon set this already, but it costs nothing to be
         * sure. */
        if (!r && fcntl(ring->wake_fd, F_SETFL, O_NONBLOCK) < 0)
                r = -errno;
        if (r) {
                session_ring_free(ring);
                return error_set(r == -ENOMEM ? RMX_E_NO_MEMORY : RMX_E_INTERNAL,
                                 "%s: the request ring cannot be mapped (errno %d)", what, -r);
        }
        *ret_ring = ring;
        return RMX_OK;
}

int session_ring_get(struct rmx_session *session, const char *what, uint32_t gpu, struct session_ring **ret_ring) {
        Railmux__Session__RingOpen body = RAILMUX__SESSION__RING_OPEN__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        struct rpc_call call = {.message = &message, .n_fds = 3};
        struct session_ring *ring;
        int r;

        if (gpu >= session->n_gpus)
                return error_set(RMX_E_INTERNAL, "%s: the daemon placed this rank on GPU %u of %u", what, gpu,
                                 session->n_gpus);
        pthread_mutex_lock(&session->rpc.mutex);
        ring = session->rings[gpu];
        pthread_mutex_unlock(&session->rpc.mutex);
        if (ring) {
                *ret_ring = ring;
                return RMX_OK;
        }
        body.gpu = gpu;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_RING_OPEN;
        message.ring_open = &body;
        r = session_call(session, what, &call, RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY, RPC_NO_DEADLINE);
        if (r)
                return r;
        if (call.answer.ring.gpu != gpu) {
                frame_close_fds(call.answer.fds, call.answer.n_fds);
                return error_set(RMX_E_INTERNAL, "%s: the daemon answered with another ring", what);
        }
        r = ring_map(session, what, &call.answer, &ring);
        if (r)
                return r;
        /* Two threads may have opened it at once; both were sent the same ring. Only the first one's mapping is set up
         * and used: setting up twice would forget lines that were published between. */
        pthread_mutex_lock(&session->rpc.mutex);
        if (!session->rings[gpu]) {
                struct ring_layout layout = ring->producer.layout;

                ring_producer_init(&ring->producer, &layout, ring->client_area, ring->executor_area,
                                   RING_FIRST_SEQUENCE);
                session->rings[gpu] = ring;
                ring = NULL;
        }
        *ret_ring = session->rings[gpu];
        pthread_mutex_unlock(&session->rpc.mutex);
        session_ring_free(ring);
        return RMX_OK;
}

static struct session_slot *ring_slot(struct session_ring *ring, uint32_t sequence) {
        return &ring->slots[sequence & (ring->producer.layout.depth - 1)];
}

static struct session_slot *ring_find(struct session_ring *ring, uint32_t sequence) {
        struct session_slot *slot = ring_slot(ring, sequence);

        return slot->busy && slot->sequence == sequence && slot->comm ? slot : NULL;
}

static void ring_release(struct session_ring *ring, struct session_slot *slot) {
        slot->busy = false;
        ring_producer_release(&ring->producer, slot->sequence);
        pthread_cond_broadcast(&ring->released);
}

/* Frees the slot in the way if it is an orphan that has completed. */
static bool ring_reap(struct session_ring *ring, struct session_slot *slot) {
        uint32_t status;

        if (slot->comm || ring_producer_poll(&ring->producer, slot->sequence, &status) != RING_OK)
                return false;
        bounce_release(&ring->session->bounce, slot->regions[0]);
        bounce_release(&ring->session->bounce, slot->regions[1]);
        ring_release(ring, slot);
        return true;
}

/* Waits a while for a slot to come free, without the mutex. */
static void ring_sleep(struct session_ring *ring) {
        uint64_t until_ns = clock_now_ns() + SESSION_LOOK_NS;
        struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};

        pthread_cond_timedwait(&ring->released, &ring->mutex, &until);
}

int session_ring_publish(struct session_ring *ring, struct ring_request *request, const struct session_slot *slot,
                         uint32_t *ret_sequence) {
        struct rmx_comm *comm = slot->comm;
        uint64_t give_up_ns = 0;
        uint32_t sequence;
        int r = 0;

        pthread_mutex_lock(&ring->mutex);
        for (;;) {
                struct session_slot *old;

                /* Looked at last, so that no line follows a failure that this process knows of. */
                if (comm_status(comm)) {
                        r = SESSION_RING_E_FAILED;
                        break;
                }
                request->word[RING_W_SEQUENCE] = comm->last_sequence + 1;
                if (ring_producer_publish(&ring->producer, request, &sequence) == RING_OK)
                        break;
                old = ring_slot(ring, ring->producer.next);
                if (ring_reap(ring, old))
                        continue;
                /* relaxed; partner: the store in request_lose. A hint to stop waiting. */
                if (!give_up_ns)
                        give_up_ns = clock_now_ns() + SLOT_WAIT_NS;
                if (!slot->attended || !old->attended || clock_now_ns() >= give_up_ns ||
                    atomic_load_explicit(&ring->session->dead, memory_order_relaxed)) {
                        r = SESSION_RING_E_FULL;
                        break;
                }
                ring_sleep(ring);
        }
        if (!r) {
                struct session_slot *mine = ring_slot(ring, sequence);
                bool wake;

                comm->last_sequence++;
                *mine = *slot;
                mine->sequence = sequence;
                mine->busy = true;
                wake = ring_producer_must_wake(&ring->producer);
                pthread_mutex_unlock(&ring->mutex);
                if (wake) {
                        static const uint64_t one = 1;

                        /* EAGAIN: the counter is at its end, so the executor has been told often enough. */
                        (void)!write(ring->wake_fd, &one, sizeof(one));
                }
                *ret_sequence = sequence;
                return 0;
        }
        pthread_mutex_unlock(&ring->mutex);
        return r;
}

int session_ring_attend(struct session_ring *ring, uint32_t sequence, bool attended) {
        struct session_slot *slot;

        pthread_mutex_lock(&ring->mutex);
        slot = ring_find(ring, sequence);
        if (slot && slot->attended != attended) {
                slot->attended = attended;
                pthread_cond_broadcast(&ring->released); /* who waits for this slot decides anew */
        }
        pthread_mutex_unlock(&ring->mutex);
        return slot ? 0 : SESSION_RING_E_UNKNOWN;
}

int session_ring_harvest(struct session_ring *ring, uint32_t sequence, struct session_slot *ret_slot) {
        struct session_slot *slot;

        pthread_mutex_lock(&ring->mutex);
        slot = ring_find(ring, sequence);
        if (slot) {
                *ret_slot = *slot;
                ring_release(ring, slot);
        }
        pthread_mutex_unlock(&ring->mutex);
        return slot ? 0 : SESSION_RING_E_UNKNOWN;
}

void session_ring_abandon(struct session_ring *ring, uint32_t sequence) {
        struct session_slot *slot;

        pthread_mutex_lock(&ring->mutex);
        slot = ring_find(ring, sequence);
        if (slot) {
                slot->comm = NULL;
                slot->attended = false;
                (void)ring_reap(ring, slot);
        }
        pthread_cond_broadcast(&ring->released);
        pthread_mutex_unlock(&ring->mutex);
}

bool session_ring_oldest(struct session_ring *ring, const struct rmx_comm *comm, uint32_t *ret_sequence) {
        uint32_t i, depth = ring->producer.layout.depth;
        bool found = false;

        pthread_mutex_lock(&ring->mutex);
        for (i = 0; i < depth; i++) {
                const struct session_slot *slot = ring_slot(ring, ring->producer.next + i);

                if (slot->busy && slot->comm == comm) {
                        *ret_sequence = slot->sequence;
                        found = true;
                        break;
                }
        }
        pthread_mutex_unlock(&ring->mutex);
        return found;
}
