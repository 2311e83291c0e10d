/* SPDX-License-Identifier: MIT */
/*
 * All ranks of this process on one GPU share a ring, so its producer side is under a mutex: held for the time of
 * writing the lines of one call or of taking back one slot, never while blocking. Sequences, of comms and of pairs, are
 * counted under it too, so that their order is the ring's.
 *
 * Slots are used in ring order. A request that takes long keeps its slot, and when the ring has come round to it,
 * nothing can be published until it is harvested. A blocking call waits for that for a while, if a thread sleeps on the
 * request right now (it is attended), or if another thread than the caller's has started it and will rmx_wait for it.
 * If the caller's own thread has, it is this very thread that should do so: it gets SESSION_RING_E_FULL at once, and so
 * does whoever only starts a request. Requests that were given up, or whose comm was destroyed after a failure, are
 * orphans: whoever meets one in its way harvests it when it completes, and a blocking call waits for that too, whoever
 * has started it. The argument space is the same with blocks for slots, but that a block can come free behind any
 * request.
 *
 * A group goes to several rings, and all of it or nothing: a group of which one half was issued could neither be tried
 * again nor be given up. So the mutexes of all its rings are taken, in the order of their addresses, and there is room
 * everywhere before the first line is written.
 */
#include <assert.h>
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
                if (ring->slots[i].busy)
                        session_slot_drop(ring->session, &ring->slots[i]);
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
        argument_space_deinit(&ring->arguments);
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
        r = ring->slots ? argument_space_init(&ring->arguments, ring->producer.layout.argument_bytes) : -ENOMEM;
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

int session_ring_get(struct rmx_session *session, const char *what, uint32_t gpu, struct rmx_cancel *cancel,
                     uint64_t deadline_ns, struct session_ring **ret_ring) {
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
        r = session_call_until(session, what, &call, RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY, cancel, deadline_ns);
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

void session_slot_drop(struct rmx_session *session, struct session_slot *slot) {
        bounce_release(&session->bounce, slot->regions[0]);
        bounce_release(&session->bounce, slot->regions[1]);
        free(slot->copies);
        slot->regions[0] = slot->regions[1] = NULL;
        slot->copies = NULL;
        slot->n_copies = 0;
}

static void ring_release(struct session_ring *ring, struct session_slot *slot) {
        if (slot->argument_offset)
                argument_give(&ring->arguments, slot->argument_offset, slot->argument_bytes);
        slot->argument_offset = 0;
        slot->busy = false;
        ring_producer_release(&ring->producer, slot->sequence);
        pthread_cond_broadcast(&ring->released);
}

/* Frees a slot if it is an orphan's that has completed. */
static bool ring_reap(struct session_ring *ring, struct session_slot *slot) {
        uint32_t status;

        if (!slot->busy || slot->comm || ring_producer_poll(&ring->producer, slot->sequence, &status) != RING_OK)
                return false;
        session_slot_drop(ring->session, slot);
        ring_release(ring, slot);
        return true;
}

/* Waits a while for a slot to come free, without the mutex. */
static void ring_sleep(struct session_ring *ring) {
        uint64_t until_ns = clock_now_ns() + SESSION_LOOK_NS;
        struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};

        pthread_cond_timedwait(&ring->released, &ring->mutex, &until);
}

/* Will it come free without this thread having to rmx_wait? */
static bool slot_waits(const struct session_slot *slot) {
        return !slot->comm || slot->attended || !pthread_equal(slot->caller, pthread_self());
}

/* ---- publishing -------------------------------------------------------------------------------------------------- */
/* The rings of the items one by one, by address. NULL: that was the last. */
static struct session_ring *items_next_ring(const struct session_item *items, uint32_t n_items,
                                            const struct session_ring *after) {
        struct session_ring *next = NULL;

        for (uint32_t i = 0; i < n_items; i++) {
                struct session_ring *ring = items[i].ring;

                if ((uintptr_t)ring > (uintptr_t)after && (!next || (uintptr_t)ring < (uintptr_t)next))
                        next = ring;
        }
        return next;
}

static void items_lock(const struct session_item *items, uint32_t n_items) {
        struct session_ring *ring = NULL;

        while ((ring = items_next_ring(items, n_items, ring)))
                pthread_mutex_lock(&ring->mutex);
}

static void items_unlock(const struct session_item *items, uint32_t n_items, const struct session_ring *but) {
        struct session_ring *ring = NULL;

        while ((ring = items_next_ring(items, n_items, ring))) {
                if (ring != but)
                        pthread_mutex_unlock(&ring->mutex);
        }
}

/* Are the slots free that the items of this ring will get? *ret_waits: what is in the way will come free. */
static int ring_room(struct session_ring *ring, const struct session_item *items, uint32_t n_items,
                     const struct session_item **ret_item, bool *ret_waits) {
        uint32_t sequence = ring->producer.next;

        for (uint32_t i = 0; i < n_items; i++) {
                struct session_slot *slot = ring_slot(ring, sequence);

                if (items[i].ring != ring)
                        continue;
                if (slot->busy && !ring_reap(ring, slot)) {
                        *ret_item = &items[i];
                        *ret_waits = slot_waits(slot);
                        return SESSION_RING_E_FULL;
                }
                sequence = ring_sequence_next(sequence);
        }
        return 0;
}

/* Frees what orphans hold of the argument space. *ret_waits: some block will come free. True if one came free now. */
static bool ring_reap_arguments(struct session_ring *ring, bool *ret_waits) {
        bool reaped = false;

        *ret_waits = false;
        for (uint32_t i = 0; i < ring->producer.layout.depth; i++) {
                struct session_slot *slot = &ring->slots[i];

                if (!slot->busy || !slot->argument_offset)
                        continue;
                if (ring_reap(ring, slot))
                        reaped = true;
                else
                        *ret_waits |= slot_waits(slot);
        }
        return reaped;
}

static int item_take_argument(struct session_item *item, bool *ret_waits) {
        struct session_ring *ring = item->ring;
        uint32_t offset;

        while (argument_take(&ring->arguments, item->argument_bytes, &offset)) {
                if (!ring_reap_arguments(ring, ret_waits))
                        return SESSION_RING_E_ARGUMENT;
        }
        item->slot.argument_offset = item->line.word[RING_W_ARGUMENT] = offset;
        item->slot.argument_bytes = item->argument_bytes;
        return 0;
}

/* Takes the blocks of the items in front of *ret_item. */
static int items_try_arguments(struct session_item *items, uint32_t n_items, uint32_t *ret_item, bool *ret_waits) {
        for (uint32_t i = 0; i < n_items; i++) {
                if (items[i].argument_bytes && item_take_argument(&items[i], ret_waits)) {
                        *ret_item = i;
                        return SESSION_RING_E_ARGUMENT;
                }
        }
        return 0;
}

/* Takes the blocks of all items, or none. What orphans had may have come free only when the first were placed around
 * it; if nothing is in use then but by these, they are placed anew, which succeeds: their ring has room for all. */
static int items_take_arguments(struct session_item *items, uint32_t n_items, const struct session_item **ret_item,
                                bool *ret_waits) {
        for (uint32_t tries = 0; tries <= n_items; tries++) {
                uint32_t failed;

                if (!items_try_arguments(items, n_items, &failed, ret_waits))
                        return 0;
                *ret_item = &items[failed];
                for (uint32_t i = 0; i < failed; i++) {
                        if (items[i].argument_bytes)
                                argument_give(&items[i].ring->arguments, items[i].slot.argument_offset,
                                              items[i].argument_bytes);
                }
                if (!argument_space_empty(&items[failed].ring->arguments))
                        break;
        }
        return SESSION_RING_E_ARGUMENT;
}

/* Can all be published now? With all mutexes held. */
static int items_ready(struct session_item *items, uint32_t n_items, const struct session_item **ret_item,
                       bool *ret_waits) {
        struct session_ring *ring = NULL;
        int r;

        *ret_waits = false;
        for (uint32_t i = 0; i < n_items; i++) {
                /* Looked at last, so that no line follows a failure that this process knows of. */
                if (comm_status(items[i].slot.comm)) {
                        *ret_item = &items[i];
                        return SESSION_RING_E_FAILED;
                }
        }
        while ((ring = items_next_ring(items, n_items, ring))) {
                r = ring_room(ring, items, n_items, ret_item, ret_waits);
                if (r)
                        return r;
        }
        return items_take_arguments(items, n_items, ret_item, ret_waits);
}

static uint32_t comm_next_sequence(struct rmx_comm *comm, uint32_t op, uint32_t peer) {
        switch (op) {
        case RING_OP_SEND:
                return ++comm->sent[peer];
        case RING_OP_RECV:
                return ++comm->received[peer];
        case RING_OP_GROUP:
                return 0;
        default:
                return ++comm->last_sequence;
        }
}

/* There is room. */
static void item_publish(struct session_item *item) {
        struct session_ring *ring = item->ring;
        struct rmx_comm *comm = item->slot.comm;
        uint32_t op = ring_request_op(&item->line);
        struct session_slot *slot;
        int r;

        item->line.word[RING_W_SEQUENCE] = comm_next_sequence(comm, op, item->line.word[RING_W_PEER]);
        if (op == RING_OP_GROUP) {
                struct ring_group_entry *entry = item->argument;

                for (uint32_t i = 0; i < item->line.word[RING_W_COUNT_LO]; i++)
                        entry[i].sequence = comm_next_sequence(comm, entry[i].operation, entry[i].peer);
        }
        if (item->argument_bytes)
                memcpy((char *)ring->client_area + ring->producer.layout.argument_offset + item->slot.argument_offset,
                       item->argument, item->argument_bytes);
        r = ring_producer_publish(&ring->producer, &item->line, &item->sequence);
        assert(r == RING_OK);
        (void)r;
        slot = ring_slot(ring, item->sequence);
        *slot = item->slot;
        slot->sequence = item->sequence;
        slot->caller = pthread_self();
        slot->busy = true;
}

/* Publishing in this ring is over: unlocks it and wakes its executor. */
static void ring_unlock_wake(struct session_ring *ring) {
        static const uint64_t one = 1;
        bool wake = ring_producer_must_wake(&ring->producer);

        pthread_mutex_unlock(&ring->mutex);
        if (wake) /* EAGAIN: the counter is at its end, so the executor has been told often enough. */
                (void)!write(ring->wake_fd, &one, sizeof(one));
}

static void items_unlock_wake(const struct session_item *items, uint32_t n_items) {
        struct session_ring *ring = NULL;

        while ((ring = items_next_ring(items, n_items, ring)))
                ring_unlock_wake(ring);
}

int session_ring_publish(struct session_item *items, uint32_t n_items, const struct session_item **ret_item) {
        const struct session_item *item = NULL;
        uint64_t give_up_ns = 0;
        bool waits;
        int r;

        for (;;) {
                items_lock(items, n_items);
                r = items_ready(items, n_items, &item, &waits);
                if (!r)
                        break;
                if (r == SESSION_RING_E_FAILED || !waits || !item->slot.attended)
                        goto failed;
                if (!give_up_ns)
                        give_up_ns = clock_now_ns() + SLOT_WAIT_NS;
                /* relaxed; partner: the store in request_lose. A hint to stop waiting. */
                if (clock_now_ns() >= give_up_ns ||
                    atomic_load_explicit(&item->ring->session->dead, memory_order_relaxed))
                        goto failed;
                items_unlock(items, n_items, item->ring);
                ring_sleep(item->ring);
                pthread_mutex_unlock(&item->ring->mutex);
        }
        for (uint32_t i = 0; i < n_items; i++)
                item_publish(&items[i]);
        items_unlock_wake(items, n_items);
        return 0;

failed:
        items_unlock(items, n_items, NULL);
        *ret_item = item;
        return r;
}

uint32_t session_ring_ask(struct session_ring *ring) {
        struct ring_request line = {0}; /* handle 0 names no comm */
        struct session_slot *slot;
        uint32_t sequence;
        int r;

        ring_request_set_head(&line, RING_OP_BARRIER, 0, 0);
        pthread_mutex_lock(&ring->mutex);
        slot = ring_slot(ring, ring->producer.next);
        if (slot->busy && !ring_reap(ring, slot)) {
                sequence = slot->sequence;
                pthread_mutex_unlock(&ring->mutex);
                return sequence;
        }
        r = ring_producer_publish(&ring->producer, &line, &sequence);
        assert(r == RING_OK);
        (void)r;
        *slot = (struct session_slot){.sequence = sequence, .busy = true, .attended = true}; /* an orphan */
        ring_unlock_wake(ring);
        return sequence;
}

bool session_ring_answered(struct session_ring *ring, uint32_t sequence) {
        struct session_slot *slot = ring_slot(ring, sequence);
        uint32_t status;
        bool answered;

        pthread_mutex_lock(&ring->mutex);
        /* Whoever needs the slot harvests it, too. A request that stood for the question is somebody's. */
        answered = !slot->busy || slot->sequence != sequence || ring_reap(ring, slot) ||
                   ring_producer_poll(&ring->producer, sequence, &status) == RING_OK;
        pthread_mutex_unlock(&ring->mutex);
        return answered;
}

/* ---- after publishing -------------------------------------------------------------------------------------------- */
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

static void ring_abandon(struct session_ring *ring, struct session_slot *slot) {
        slot->comm = NULL;
        slot->attended = false;
        (void)ring_reap(ring, slot);
        pthread_cond_broadcast(&ring->released);
}

void session_ring_abandon(struct session_ring *ring, uint32_t sequence) {
        struct session_slot *slot;

        pthread_mutex_lock(&ring->mutex);
        slot = ring_find(ring, sequence);
        if (slot)
                ring_abandon(ring, slot);
        pthread_mutex_unlock(&ring->mutex);
}

int session_ring_check(struct session_ring *ring, uint32_t sequence) {
        struct session_slot *slot;
        int r = 0;

        pthread_mutex_lock(&ring->mutex);
        slot = ring_find(ring, sequence);
        if (!slot) {
                r = SESSION_RING_E_UNKNOWN;
        } else if (comm_is_cut(slot->comm)) {
                ring_abandon(ring, slot);
                r = SESSION_RING_E_CUT;
        }
        pthread_mutex_unlock(&ring->mutex);
        return r;
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
