/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Giving the processor away between two looks, or looking on without a pause, as long as that is worth it.
 *
 * Where ranks and workers have the processors for themselves, sched_yield is the quickest way to wait: it returns at
 * once, or when whoever we wait for has run. Where somebody else computes on them it is the slowest: who yields comes
 * back after a time slice of that neighbour, 3 to 4 ms, whatever has happened meanwhile, since Linux takes the
 * yielder's right to run from it (6.6: its deadline moves behind the neighbour's; 6.18 and what was made of older ones
 * since: its whole slice counts as used). A thread that sleeps keeps that right and is put before the neighbour when it
 * is woken. Two processors with a neighbour on each, all_reduce of 1 KiB between four ranks of the host backend: 3.4 ms
 * with yields, 0.09 ms without.
 *
 * So a yield that took long is the last one for a while, and its caller goes on to the next way to wait.
 *
 * Who looks on without yielding learns the same from its clock: if much time went by between two looks, somebody else
 * had the processor. Then looking on takes from those what they are waited for, and it is time to sleep.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/clock.h"

#define YIELDER_LONG_NS UINT64_C(500000)    /* more than a turn of all ranks takes, less than a time slice */
#define YIELDER_REST_NS UINT64_C(200000000) /* so that the slices lost by asking again are 2 % */
/* Of looking on. To ask again costs us nothing, and where a machine is virtual its host may have had the processor. */
#define YIELDER_LOOKS_REST_NS UINT64_C(20000000)

/* Zeroed at first. Threads may share one: what it knows is about the processors. */
struct yielder {
        _Atomic uint64_t rest_until_ns; /* relaxed throughout: a hint */
};

/* Others hold the processors too long: neither yield nor look on. */
static inline bool yielder_rests(const struct yielder *yielder, uint64_t now_ns) {
        return now_ns < atomic_load_explicit(&yielder->rest_until_ns, memory_order_relaxed);
}

/* What takes next to nothing was begun and ended at these times: a yield, a look. If it took long, rests so long. */
static inline void yielder_note(struct yielder *yielder, uint64_t began_ns, uint64_t ended_ns, uint64_t rest_ns) {
        if (ended_ns - began_ns > YIELDER_LONG_NS)
                atomic_store_explicit(&yielder->rest_until_ns, ended_ns + rest_ns, memory_order_relaxed);
}

/* False, at once: it rests. */
static inline bool yielder_yield(struct yielder *yielder) {
        uint64_t began_ns = clock_now_ns();

        if (yielder_rests(yielder, began_ns))
                return false;
        sched_yield();
        yielder_note(yielder, began_ns, clock_now_ns(), YIELDER_REST_NS);
        return true;
}
