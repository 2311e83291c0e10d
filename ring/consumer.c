/* SPDX-License-Identifier: MIT */
/* The executor's side of a ring. The essay is in ring.c. */
#include <assert.h>

#include "ring/futex.h"
#include "ring/order.h"
#include "ring/ring.h"

static uint32_t consumer_slot(const struct ring_consumer *c, uint32_t sequence) {
        return sequence & (c->layout.depth - 1);
}

static bool consumer_busy(const struct ring_consumer *c, uint32_t slot) {
        /* Partner: the release in ring_consumer_publish: its thread is done with the slot before another fills it. */
        return atomic_load_explicit(&c->busy[slot / 64], memory_order_acquire) & ring_slot_bit(slot);
}

static void consumer_set_busy(struct ring_consumer *c, uint32_t slot) {
        /* Partner: the clearing in ring_consumer_publish. Relaxed: consumer_busy has acquired the slot just before,
         * and the word is atomic only because other slots share it. */
        atomic_fetch_or_explicit(&c->busy[slot / 64], ring_slot_bit(slot), memory_order_relaxed);
}

/* Copies a line; false unless each of its cells carries the sequence. The client may write while we read: then the copy
 * is any mixture that it chose, but it is one copy. */
static bool line_read(const struct ring_line *line, uint32_t sequence, struct ring_request *ret_request) {
        struct ring_request request;

        for (uint32_t i = 0; i < RING_WORDS; i++) {
                /* Partner: the store of the same cell in ring_producer_publish. */
                uint64_t cell = atomic_load_explicit(&line->cell[i], RING_CELL_LOAD);

                if ((uint32_t)(cell >> 32) != sequence)
                        return false;
                request.word[i] = (uint32_t)cell;
        }
        /* Partner: the release fence of ring_producer_publish. */
        atomic_thread_fence(memory_order_acquire);
        *ret_request = request;
        return true;
}

/* The line first, the busy bit after it (and after the fence in line_read): an honest client writes a line only after
 * it saw the slot's completion, which comes after the bit was cleared, so its line is never taken for an early one. */
static bool consumer_look(const struct ring_consumer *c, uint32_t sequence, struct ring_request *ret_request) {
        uint32_t slot = consumer_slot(c, sequence);
        struct ring_request request;

        if (!line_read(&c->lines[slot], sequence, &request) || consumer_busy(c, slot))
                return false;
        *ret_request = request;
        return true;
}

static bool consumer_completed(const struct ring_consumer *c, uint32_t sequence) {
        /* Partner: the store in ring_consumer_publish of the dead executor, ordered by its death. */
        return (uint32_t)atomic_load_explicit(&c->completion[consumer_slot(c, sequence)], memory_order_relaxed) ==
               sequence;
}

/* The sequences that may have been latched and not completed are the last one of each slot: the `depth` sequences
 * before next. Just after the wrap there is an exception: 0 is left out, so its slot still belongs to -depth until the
 * sequence `depth` comes. A walk from consumer_oldest to next meets them all in order of age; consumer_is_last leaves
 * the others out. */
static uint32_t consumer_oldest(const struct ring_consumer *c, uint32_t next) {
        return next <= c->layout.depth ? -c->layout.depth : next - c->layout.depth;
}

static bool consumer_is_last(const struct ring_consumer *c, uint32_t sequence, uint32_t next) {
        uint32_t later = sequence + c->layout.depth; /* of the same slot */

        return sequence && (!later || !ring_sequence_before(later, next));
}

/* A predecessor that died between a completion and its wake-up left a sleeper behind. */
static void consumer_wake_completed(struct ring_consumer *c) {
        /* Partner: none, this is the only thread yet. */
        uint32_t next = atomic_load_explicit(&c->next, memory_order_relaxed);

        /* Partner: the full fence of ring_producer_wait, as in ring_consumer_fence. */
        atomic_thread_fence(memory_order_seq_cst);
        for (uint32_t s = consumer_oldest(c, next); ring_sequence_before(s, next); s++) {
                uint32_t slot = consumer_slot(c, s);

                if (!consumer_is_last(c, s, next) || !consumer_completed(c, s))
                        continue;
                /* Partner: the additions in ring_producer_wait. */
                if (atomic_load_explicit(&c->waiting[slot], memory_order_relaxed))
                        ring_futex_wake(&c->completion[slot]);
        }
}

void ring_consumer_init(struct ring_consumer *c, const struct ring_layout *layout, const void *client_area,
                        void *executor_area, uint32_t first) {
        uint32_t next;

        c->layout = *layout;
        c->lines = client_area;
        c->waiting = (const void *)((const char *)client_area + layout->waiting_offset);
        c->header = executor_area;
        c->completion = (void *)((char *)executor_area + layout->completion_offset);
        for (uint32_t i = 0; i < RING_DEPTH_MAX / 64; i++)
                atomic_init(&c->busy[i], 0);
        /* Partner: the store in ring_consumer_latch of the dead executor, ordered by its death. */
        next = atomic_load_explicit(&c->header->next, memory_order_relaxed);
        atomic_init(&c->next, next ? next : first ? first : RING_FIRST_SEQUENCE);
        /* Partner: whoever shows it to an operator; it orders nothing. */
        atomic_fetch_add_explicit(&c->header->epoch_hint, 1, memory_order_relaxed);
        if (next)
                consumer_wake_completed(c);
}

int ring_consumer_relatch(struct ring_consumer *c, uint32_t *cursor, struct ring_request *ret_request,
                          uint32_t *ret_sequence) {
        /* Partner: none, only this thread stores it. */
        uint32_t next = atomic_load_explicit(&c->next, memory_order_relaxed), sequence;

        while (ring_sequence_before(sequence = consumer_oldest(c, next) + *cursor, next)) {
                ++*cursor;
                if (!consumer_is_last(c, sequence, next) || consumer_completed(c, sequence))
                        continue;
                /* A line that its client has destroyed since it was latched is gone: nobody else waits for it. */
                if (!consumer_look(c, sequence, ret_request))
                        continue;
                consumer_set_busy(c, consumer_slot(c, sequence));
                *ret_sequence = sequence;
                return RING_OK;
        }
        return RING_E_EMPTY;
}

int ring_consumer_latch(struct ring_consumer *c, struct ring_request *ret_request, uint32_t *ret_sequence) {
        /* Partner: the store below; a hint for other threads, private truth for this one. */
        uint32_t sequence = atomic_load_explicit(&c->next, memory_order_relaxed), next = ring_sequence_next(sequence);

        if (!consumer_look(c, sequence, ret_request))
                return RING_E_EMPTY;
        consumer_set_busy(c, consumer_slot(c, sequence));
        /* Partner: the loads in ring_consumer_sleep and ring_consumer_peek. */
        atomic_store_explicit(&c->next, next, memory_order_relaxed);
        /* Partner: the load in ring_consumer_init of a successor, after our death. */
        atomic_store_explicit(&c->header->next, next, memory_order_release);
        /* The caller marks and begins the request only after a successor would find it latched. A kill keeps program
         * order; this makes the compiler keep it. */
        atomic_signal_fence(memory_order_seq_cst);
        *ret_sequence = sequence;
        return RING_OK;
}

int ring_consumer_peek(const struct ring_consumer *c, struct ring_request *ret_request) {
        /* Partner: the store in ring_consumer_latch. An old value shows an old line, which is taken or answered: the
         * caller looks once more than needed. */
        uint32_t sequence = atomic_load_explicit(&c->next, memory_order_relaxed);

        return consumer_look(c, sequence, ret_request) ? RING_OK : RING_E_EMPTY;
}

void ring_consumer_publish(struct ring_consumer *c, uint32_t sequence, uint32_t status) {
        uint32_t slot = consumer_slot(c, sequence);

        assert(consumer_busy(c, slot));
        /* Before the completion: the client's next line in this slot must find it free. Partner: consumer_busy. */
        atomic_fetch_and_explicit(&c->busy[slot / 64], ~ring_slot_bit(slot), memory_order_release);
        /* Partner: the acquire loads in ring_producer_poll and ring_producer_wait: who sees the sequence sees the
         * outputs. */
        atomic_store_explicit(&c->completion[slot], (uint64_t)status << 32 | sequence, memory_order_release);
}

void ring_consumer_fence(void) {
        /* Partner: the full fence of ring_producer_wait. */
        atomic_thread_fence(memory_order_seq_cst);
}

void ring_consumer_wake(const struct ring_consumer *c, uint32_t sequence) {
        uint32_t slot = consumer_slot(c, sequence);

        /* Partner: the additions in ring_producer_wait. Read once; a lie costs its client a wake-up. */
        if (atomic_load_explicit(&c->waiting[slot], memory_order_relaxed))
                ring_futex_wake(&c->completion[slot]);
}

void ring_consumer_complete(struct ring_consumer *c, uint32_t sequence, uint32_t status) {
        ring_consumer_publish(c, sequence, status);
        ring_consumer_fence();
        ring_consumer_wake(c, sequence);
}

bool ring_consumer_sleep(struct ring_consumer *c) {
        struct ring_request request;

        /* Partner: the load in ring_producer_must_wake. */
        atomic_store_explicit(&c->header->need_wake, 1, memory_order_relaxed);
        /* Partner: the full fence of ring_producer_must_wake. */
        atomic_thread_fence(memory_order_seq_cst);
        return ring_consumer_peek(c, &request) == RING_OK;
}

void ring_consumer_awake(struct ring_consumer *c) {
        /* Partner: the load in ring_producer_must_wake. A client that still reads 1 writes its eventfd for nothing. */
        atomic_store_explicit(&c->header->need_wake, 0, memory_order_relaxed);
}
