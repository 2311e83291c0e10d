/* SPDX-License-Identifier: MIT */
#pragma once
/* Sleeping on the sequence half of a completion word. Private to ring/. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RING_FUTEX_WAKES 16 /* threads, by one wake-up */

/* CLOCK_MONOTONIC in ns at which a wait of timeout_ns that starts now ends; < 0 if it never does. */
int64_t ring_futex_deadline(int64_t timeout_ns);
/* Sleeps while the low half of the word equals `expected`; may also return early for no reason. False: the deadline (<
 * 0: none) has passed. The word may lie in a read-only mapping. */
bool ring_futex_wait(const _Atomic uint64_t *word, uint32_t expected, int64_t deadline_ns);
/* Wakes threads of any processes that sleep on the word, RING_FUTEX_WAKES at most. */
void ring_futex_wake(const _Atomic uint64_t *word);
