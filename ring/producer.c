/* SPDX-License-Identifier: MIT */
/* The client's side of a ring. The essay is in ring.c. */
#include <assert.h>

#include "ring/futex.h"
#include "ring/order.h"
#include "ring/ring.h"

/* How often a waiter gives its CPU away before it sleeps. Measured with an executor and 1 to 8 ranks on two CPUs:
 * yielding lets whoever has work run, and four times cut a round of 8 ranks from 50 us to 7 us; spinning on a pause
 * instruction instead keeps the CPU from those we wait for (500 pauses: 100 us and more). It is bounded, so a long wait
 * costs nothing. */
#ifndef RING_WAIT_YIELDS
#define RING_WAIT_YIELDS 4
#endif

static uint32_t producer_slot(const struct ring_producer *p, uint32_t sequence) {
        return sequence & (p->layout.depth - 1);
}

void ring_producer_init(struct ring_producer *p, const struct ring_layout *layout, void *client_area,
                        const void *executor_area, uint32_t first) {
        *p = (struct ring_producer){
                .layout = *layout,
                .lines = client_area,
                .waiting = (void *)((char *)client_area + layout->waiting_offset),
                .header = executor_area,
                .completion = (const void *)((const char *)executor_area + layout->completion_offset),
                .next = first ? first : RING_FIRST_SEQUENCE,
        };
}

int ring_producer_publish(struct ring_producer *p, const struct ring_request *request, uint32_t *ret_sequence) {
        uint32_t sequence = p->next, slot = producer_slot(p, sequence);
        struct ring_line *line = &p->lines[slot];

        if (p->in_flight[slot / 64] & ring_slot_bit(slot))
                return RING_E_FULL;
        p->in_flight[slot / 64] |= ring_slot_bit(slot);
        p->next = ring_sequence_next(sequence);
        /* Partner: the acquire fence of line_read in consumer.c. Who finds this sequence in a cell sees the inputs. */
        atomic_thread_fence(memory_order_release);
        for (uint32_t i = 0; i < RING_WORDS; i++)
                /* Partner: the load of the same cell in line_read. */
                atomic_store_explicit(&line->cell[i], (uint64_t)sequence << 32 | request->word[i], RING_CELL_STORE);
        *ret_sequence = sequence;
        return RING_OK;
}

bool ring_producer_must_wake(struct ring_producer *p) {
        /* Partner: the full fence of ring_consumer_sleep. Either that side's look at the line finds it, or we find
         * need_wake set. */
        atomic_thread_fence(memory_order_seq_cst);
        /* Partner: the stores in ring_consumer_sleep and ring_consumer_awake. */
        return atomic_load_explicit(&p->header->need_wake, memory_order_relaxed) != 0;
}

void ring_producer_release(struct ring_producer *p, uint32_t sequence) {
        uint32_t slot = producer_slot(p, sequence);

        assert(p->in_flight[slot / 64] & ring_slot_bit(slot));
        p->in_flight[slot / 64] &= ~ring_slot_bit(slot);
}

int ring_producer_poll(const struct ring_producer *p, uint32_t sequence, uint32_t *ret_status) {
        /* Partner: the release store in ring_consumer_publish. */
        uint64_t word = atomic_load_explicit(&p->completion[producer_slot(p, sequence)], memory_order_acquire);

        if ((uint32_t)word != sequence)
                return RING_E_AGAIN;
        *ret_status = (uint32_t)(word >> 32);
        return RING_OK;
}

int ring_producer_wait(struct ring_producer *p, uint32_t sequence, int64_t timeout_ns, uint32_t *ret_status) {
        uint32_t slot = producer_slot(p, sequence);
        bool in_time = true;
        int64_t deadline;
        uint64_t word;

        for (int i = 0;; i++) {
                if (ring_producer_poll(p, sequence, ret_status) == RING_OK)
                        return RING_OK;
                if (timeout_ns == 0)
                        return RING_E_AGAIN;
                if (i == RING_WAIT_YIELDS || !yielder_yield(&p->yielder))
                        break;
        }
        deadline = ring_futex_deadline(timeout_ns);
        /* A count, not a flag: a thread that is about to leave must not wipe out the sign of one that has just come.
         * Partner: the load in ring_consumer_wake and in consumer_wake_completed. */
        atomic_fetch_add_explicit(&p->waiting[slot], 1, memory_order_relaxed);
        /* Partner: the full fence of ring_consumer_fence. Either that side finds us in waiting[], or our look below
         * finds the completion. */
        atomic_thread_fence(memory_order_seq_cst);
        for (;;) {
                /* Partner: the release store in ring_consumer_publish. */
                word = atomic_load_explicit(&p->completion[slot], memory_order_acquire);
                if ((uint32_t)word == sequence || !in_time)
                        break;
                /* The kernel compares once more while it enters us among the sleepers, so a wake-up between our look
                 * and its look is not lost. */
                in_time = ring_futex_wait(&p->completion[slot], (uint32_t)word, deadline);
        }
        /* Partner: as for the addition above. */
        atomic_fetch_sub_explicit(&p->waiting[slot], 1, memory_order_relaxed);
        if ((uint32_t)word != sequence)
                return RING_E_AGAIN;
        *ret_status = (uint32_t)(word >> 32);
        return RING_OK;
}
