/* SPDX-License-Identifier: MIT */
/*
 * Staging channels of the host backend
 *
 * A channel (region, source, destination) carries numbered chunks in order through a few slots. Number c lies in the
 * slot after number c - 1's, cyclically, and the first chunk has the number start + 1 (start is 0 outside tests). Two
 * words synchronise it:
 *
 *   flag of a slot  the number of the chunk last written into it. The source stores it with release after the data; the
 *                   destination, which knows what number comes next, loads it with acquire and compares for equality.
 *   released        how many chunks the destination has given back. It stores it with release after its last read of
 *                   the slot; the source loads it with acquire before it overwrites one, and may be `slots` ahead.
 *
 * Both ends count privately and never read back what they wrote. The source also remembers the last credit it saw, so
 * it reads the destination's line only when it seems to be out of slots.
 *
 * Wrap-around. Counters are 32 bits and are compared for equality or by unsigned difference. A slot's old flag is at
 * most a few laps behind the number expected there, so it cannot be mistaken for it after 2^32 chunks: by then the slot
 * has been rewritten. The slot's index is counted on its own, since 2^32 need not be a multiple of the number of slots.
 * Only a slot that was never written could mislead, by its flag 0, if counting started shortly before 0; tests that do
 * that set the flags too.
 *
 * Memory. One anonymous mapping per communicator: all credits, a cache line each, then all slots, each a line for the
 * flag and the data behind it. The kernel backs a page when it is first touched, and a communicator of 64 ranks that
 * only ever sends short messages touches little. A chunk without data touches only its flag. The flag's line in front
 * of the data also keeps the n sources of a reduction from lying a power of two apart, where they would compete for the
 * same cache sets.
 */
#include "gpu/host/channel.h"

#include <assert.h>
#include <errno.h>
#include <sys/mman.h>

int channel_set_init(struct channel_set *set, uint32_t n_ranks, const struct plan_geometry *geometry) {
        struct channel_set s = CHANNEL_SET_NULL;
        size_t n_channels, slots_bytes;
        void *memory;

        if (n_ranks < 1 || n_ranks > PLAN_RANKS_MAX || geometry->slots < 1 || geometry->part_bytes < CHANNEL_LINE ||
            geometry->part_bytes % CHANNEL_LINE != 0)
                return -EINVAL;
        s.n_ranks = n_ranks;
        s.n_slots = geometry->slots;
        s.part_bytes = geometry->part_bytes;
        s.slot_stride = sizeof(struct channel_slot) + (size_t)geometry->part_bytes;
        n_channels = (size_t)PLAN_REGIONS_MAX * n_ranks * n_ranks;
        s.slot_offset = n_channels * sizeof(struct channel_credit);
        if (__builtin_mul_overflow(n_channels * geometry->slots, s.slot_stride, &slots_bytes) ||
            __builtin_add_overflow(s.slot_offset, slots_bytes, &s.size))
                return -EOVERFLOW;

        memory = mmap(NULL, s.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
                return -ENOMEM;
        /* Huge pages would back two megabytes for the sake of one line. A refusal changes nothing but that. */
        (void)madvise(memory, s.size, MADV_NOHUGEPAGE);
        s.memory = memory;
        *set = s;
        return 0;
}

void channel_set_deinit(struct channel_set *set) {
        if (set->memory)
                munmap(set->memory, set->size);
        *set = (struct channel_set)CHANNEL_SET_NULL;
}

void channel_set_restart(struct channel_set *set, uint32_t start) {
        for (uint32_t region = 0; region < PLAN_REGIONS_MAX; region++)
                for (uint32_t source = 0; source < set->n_ranks; source++)
                        for (uint32_t destination = 0; destination < set->n_ranks; destination++) {
                                struct channel_id id = {region, source, destination};

                                /* Before any use: no partner. */
                                atomic_store_explicit(&channel_credit(set, id)->released, start, memory_order_relaxed);
                                for (uint32_t slot = 0; slot < set->n_slots; slot++)
                                        /* Before any use: no partner. */
                                        atomic_store_explicit(&channel_slot(set, id, slot)->flag, start,
                                                              memory_order_relaxed);
                        }
}

static void channel_end_advance(const struct channel_set *set, struct channel_end *end) {
        end->count++;
        if (++end->slot == set->n_slots)
                end->slot = 0;
}

bool channel_may_push(const struct channel_set *set, struct channel_id id, struct channel_end *end) {
        if ((uint32_t)(end->count - end->seen) < set->n_slots)
                return true;
        /* Acquire; partner: the release store in channel_release. The destination's reads of the slot come before our
         * writes. */
        end->seen = atomic_load_explicit(&channel_credit(set, id)->released, memory_order_acquire);
        return (uint32_t)(end->count - end->seen) < set->n_slots;
}

void *channel_push_data(const struct channel_set *set, struct channel_id id, const struct channel_end *end) {
        return channel_slot(set, id, end->slot) + 1;
}

void channel_push(const struct channel_set *set, struct channel_id id, struct channel_end *end) {
        struct channel_slot *slot = channel_slot(set, id, end->slot);

        assert((uint32_t)(end->count - end->seen) < set->n_slots);
        channel_end_advance(set, end);
        /* Release; partner: the acquire load in channel_has_chunk. The data is there when the flag is. */
        atomic_store_explicit(&slot->flag, end->count, memory_order_release);
}

bool channel_has_chunk(const struct channel_set *set, struct channel_id id, const struct channel_end *end) {
        /* Acquire; partner: the release store in channel_push. */
        return atomic_load_explicit(&channel_slot(set, id, end->slot)->flag, memory_order_acquire) == end->count + 1u;
}

const void *channel_chunk_data(const struct channel_set *set, struct channel_id id, const struct channel_end *end) {
        return channel_slot(set, id, end->slot) + 1;
}

void channel_release(const struct channel_set *set, struct channel_id id, struct channel_end *end) {
        channel_end_advance(set, end);
        /* Release; partner: the acquire load in channel_may_push. Our reads of the slot are done. */
        atomic_store_explicit(&channel_credit(set, id)->released, end->count, memory_order_release);
}
