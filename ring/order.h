/* SPDX-License-Identifier: MIT */
#pragma once
/* Memory order of the cells of a line, and the bit of a slot in a bitmap. Private to ring/. */
#include <stdatomic.h>
#include <stdint.h>

/* A line is sixteen relaxed stores after one release fence, and sixteen relaxed loads before one acquire fence.
 * ThreadSanitizer does not follow fences, so for it every cell is a release store and an acquire load: more than
 * needed, and the same program order. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RING_CELL_STORE memory_order_release
#define RING_CELL_LOAD  memory_order_acquire
#endif
#endif
#if defined(__SANITIZE_THREAD__) && !defined(RING_CELL_STORE)
#define RING_CELL_STORE memory_order_release
#define RING_CELL_LOAD  memory_order_acquire
#endif
#ifndef RING_CELL_STORE
#define RING_CELL_STORE memory_order_relaxed
#define RING_CELL_LOAD  memory_order_relaxed
#endif

/* Other processes share these words: a lock inside the compiler's library would not be theirs. */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2, "32 and 64 bit atomics are lock-free");

static inline uint64_t ring_slot_bit(uint32_t slot) {
        return UINT64_C(1) << (slot % 64);
}
