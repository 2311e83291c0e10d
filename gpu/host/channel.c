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
 * it reads the destination's line only when it seems to be out of slots. A rank's channel to itself is like any other,
 * but longer.
 *
 * Wrap-around. Counters are 32 bits and are compared for equality or by unsigned difference. A slot's old flag is at
 * most a few laps behind the number expected there, so it cannot be mistaken for it after 2^32 chunks: by then the slot
 * has been rewritten. The slot's index is counted on its own, since 2^32 need not be a multiple of the number of slots.
 * Only a slot that was never written could mislead, by its flag 0, if counting started shortly before 0; tests that do
 * that set the flags too.
 *
 * Memory. One anonymous mapping per communicator (over several nodes: part of a net area): all credits, a line each;
 * all slots, a line each for the flag and what fits beside it; then the data of the slots, region by region. The kernel
 * backs a page when it is first touched. Signals and chunks of a few bytes stay in the lines of the slots, which lie
 * close together: one line goes from source to destination per chunk, and a barrier of 64 ranks does not walk through
 * as many pages as it has flags. A slot's data has an empty line behind it; otherwise the n sources of a reduction
 * would lie a power of two apart and compete for the same cache sets.
 */
#include "gpu/host/channel.h"

#include <errno.h>
#include <sys/mman.h>

/* The offset of a new area of n * stride bytes behind what there is. */
static bool set_add(struct channel_set *set, size_t n, size_t stride, size_t *ret_offset) {
        size_t bytes, size;

        if (__builtin_mul_overflow(n, stride, &bytes) || __builtin_add_overflow(set->size, bytes, &size))
                return false;
        *ret_offset = set->size;
        set->size = size;
        return true;
}

static bool set_layout(struct channel_set *set, const struct plan_geometry *geometry, bool net) {
        size_t n_channels = (size_t)PLAN_REGIONS_MAX * set->n_ranks * set->n_ranks, n_slots, credit_offset;
        uint64_t n_rank_slots = (uint64_t)set->n_slots * (set->n_ranks - 1) + set->n_self_slots;

        if (n_rank_slots > UINT32_MAX)
                return false;
        set->n_rank_slots = (uint32_t)n_rank_slots;
        n_slots = (size_t)n_rank_slots * set->n_ranks;
        if (!set_add(set, n_channels, sizeof(struct channel_credit), &credit_offset) ||
            !set_add(set, PLAN_REGIONS_MAX * n_slots, sizeof(struct channel_slot), &set->slot_offset))
                return false;
        for (uint32_t region = 0; region < PLAN_REGIONS_MAX; region++) {
                set->slot_bytes[region] = net && region == CHANNEL_REGION_SENDS ? geometry->part_bytes
                                                                                : plan_slot_bytes(geometry, region);
                set->data_stride[region] = (size_t)set->slot_bytes[region] + CHANNEL_LINE;
                if (!set_add(set, n_slots, set->data_stride[region], &set->data_offset[region]))
                        return false;
        }
        return true;
}

/* Everything but the memory. */
static int set_describe(uint32_t n_ranks, const struct plan_geometry *geometry, bool net, struct channel_set *ret_set) {
        struct channel_set s = CHANNEL_SET_NULL;

        if (n_ranks < 1 || n_ranks > PLAN_RANKS_MAX || geometry->slots < 1 || geometry->part_bytes < CHANNEL_LINE ||
            geometry->part_bytes % CHANNEL_LINE != 0)
                return -EINVAL;
        s.n_ranks = n_ranks;
        s.n_slots = plan_channel_slots(geometry, n_ranks, false);
        s.n_self_slots = plan_channel_slots(geometry, n_ranks, true);
        if (!set_layout(&s, geometry, net))
                return -EOVERFLOW;
        *ret_set = s;
        return 0;
}

int channel_set_init(struct channel_set *set, uint32_t n_ranks, const struct plan_geometry *geometry) {
        struct channel_set s;
        void *memory;
        int r;

        r = set_describe(n_ranks, geometry, false, &s);
        if (r < 0)
                return r;
        memory = mmap(NULL, s.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
                return -ENOMEM;
        /* Huge pages would back two megabytes for the sake of one line. A refusal changes nothing but that. */
        (void)madvise(memory, s.size, MADV_NOHUGEPAGE);
        s.memory = memory;
        *set = s;
        return 0;
}

int channel_set_init_net(struct channel_set *set, uint32_t n_ranks, const struct plan_geometry *geometry, void *memory,
                         size_t size) {
        struct channel_set s;
        int r;

        r = set_describe(n_ranks, geometry, true, &s);
        if (r < 0)
                return r;
        if (s.size != size || (uintptr_t)memory % CHANNEL_LINE != 0)
                return -EINVAL;
        s.memory = memory;
        s.borrowed = true;
        *set = s;
        return 0;
}

int channel_set_net_bytes(uint32_t n_ranks, const struct plan_geometry *geometry, size_t *ret_size) {
        struct channel_set s;
        int r;

        r = set_describe(n_ranks, geometry, true, &s);
        if (r < 0)
                return r;
        *ret_size = s.size;
        return 0;
}

void channel_set_deinit(struct channel_set *set) {
        if (set->memory && !set->borrowed)
                munmap(set->memory, set->size);
        *set = (struct channel_set)CHANNEL_SET_NULL;
}

void channel_set_restart(struct channel_set *set, uint32_t start) {
        size_t n_credits = (size_t)PLAN_REGIONS_MAX * set->n_ranks * set->n_ranks;
        size_t n_slots = (size_t)PLAN_REGIONS_MAX * set->n_ranks * set->n_rank_slots;
        struct channel_credit *credits = channel_credit(set, (struct channel_id){0});
        struct channel_slot *slots = channel_slot(set, (struct channel_id){0}, 0);

        for (size_t i = 0; i < n_credits; i++)
                /* Before any use: no partner. */
                atomic_store_explicit(&credits[i].released, start, memory_order_relaxed);
        for (size_t i = 0; i < n_slots; i++)
                /* Before any use: no partner. */
                atomic_store_explicit(&slots[i].flag, start, memory_order_relaxed);
}
