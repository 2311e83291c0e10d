/* SPDX-License-Identifier: MIT */
#include "gpu/plane.h"

#include <errno.h>

#include "gpu/device/bell.h"
#include "gpu/device/staging.h"
#include "gpu/mirror.h"
#include "ring/net.h"

_Static_assert(PLANE_EXCHANGED == BELL_HANDLES, "a place for each handle slot");
_Static_assert(WIRE_LINE == NET_LINE && sizeof(struct wire_line) == NET_LINE, "mirrors are made of the fabric's lines");

uint64_t plane_staging_bytes(uint32_t n_ranks) {
        struct staging_layout layout;

        if (n_ranks < 1 || n_ranks > STAGING_RANKS_MAX)
                return 0;
        staging_layout_init(&layout, n_ranks);
        return layout.bytes;
}

/* A batch stands in the queue once for each time that its slot was free, and so does its credit: not more than there
 * are slots, of either, for each strand of each pair of a rank here and one elsewhere. */
int plane_net_size(uint32_t n_ranks, const struct plan_nodes *nodes, uint32_t *ret_capacity,
                   uint64_t *ret_memory_bytes) {
        uint32_t pairs = 0, capacity = 1;

        if (n_ranks < 2 || n_ranks > STAGING_RANKS_MAX)
                return -EINVAL;
        for (uint32_t i = 0; i < nodes->n_nodes; i++) {
                const uint32_t here = plan_nodes_size(nodes, i);

                pairs = here * (n_ranks - here) > pairs ? here * (n_ranks - here) : pairs;
        }
        while (capacity < 2 * WIRE_BATCHES * WIRE_STRANDS * pairs)
                capacity *= 2;
        *ret_capacity = capacity;
        *ret_memory_bytes = (uint64_t)WIRE_STRANDS * wire_mirrors(nodes, n_ranks) * sizeof(struct wire_mirror);
        return 0;
}

uint64_t plane_wire_bytes(uint32_t n_here, uint32_t n_far) {
        return (uint64_t)n_here * n_far * sizeof(struct wire);
}

uint32_t plane_lanes(uint32_t n_workers) {
        if (n_workers < 2) /* not told, or one worker, which has whatever there is */
                return n_workers;
        return n_workers - 1 < STAGING_DATA_LANES ? n_workers - 1 : STAGING_DATA_LANES;
}

uint64_t plane_bell_bytes(void) {
        return BELL_AREA_BYTES;
}

uint64_t plane_latch_bytes(void) {
        return BELL_LATCH_BYTES;
}

uint64_t plane_bell_host_bytes(void) {
        return sizeof(struct bell_host);
}

bool plane_exchanged(const void *host, uint32_t place, struct plane_exchanged *ret_exchanged) {
        const struct bell_exchanged *from = &((const struct bell_host *)host)->exchanged[place];
        /* acquire, twice; partner: rank_name() in the client, which takes a handle away before it changes the other
         * word. So if it is still the same, the word was that rank's. */
        const uint32_t handle = __atomic_load_n(&from->handle, __ATOMIC_ACQUIRE);
        const uint64_t begun = __atomic_load_n(&from->begun, __ATOMIC_ACQUIRE);

        /* acquire; partner: exchange_differs() in the client's kernels. */
        const uint32_t differs = __atomic_load_n(&from->differs, __ATOMIC_ACQUIRE);
        const uint64_t pair = __atomic_load_n(&from->pair, __ATOMIC_RELAXED);

        *ret_exchanged = (struct plane_exchanged){.handle = handle,
                                                  .calls = (uint32_t)(begun >> 32),
                                                  .operation = (uint32_t)begun & 0xffu,
                                                  .differs = differs - 1 < BELL_RANKS ? (int32_t)differs - 1 : -1,
                                                  .waits = pair & 1,
                                                  .sends = pair >> 1 & 1,
                                                  .peer = (uint32_t)pair >> 8,
                                                  .turn = (uint32_t)(pair >> 32)};
        if (ret_exchanged->differs >= 0) {
                const uint32_t head = __atomic_load_n(&from->head, __ATOMIC_RELAXED);

                ret_exchanged->operation = head >> 16 & 0xffu;
                ret_exchanged->type = head >> 8 & 0xffu;
                ret_exchanged->redop = head & 0xffu;
                ret_exchanged->root = __atomic_load_n(&from->root, __ATOMIC_RELAXED);
                ret_exchanged->count = __atomic_load_n(&from->count, __ATOMIC_RELAXED);
        }
        return handle && __atomic_load_n(&from->handle, __ATOMIC_RELAXED) == handle;
}
