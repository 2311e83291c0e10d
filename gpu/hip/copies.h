/* SPDX-License-Identifier: MIT */
#pragma once
/* The host's half of how copies are begun or found taken back (gpu/device/copies.h). C and C++. */
#include <stdbool.h>
#include <stdint.h>

#include "gpu/device/tables.h"

#ifndef COPIES_BETWEEN /* where the other side is to have a turn */
#define COPIES_BETWEEN() ((void)0)
#endif

/* The copies of this number are to be moved, and the host is about to. False: they have been taken back, and are not to
 * be looked at, since they may be another number's by now. */
static inline bool copies_begin(struct table_report *report, uint32_t number) {
        uint64_t *begun = &report->begun[number % TABLE_BURSTS];
        uint32_t withdrawn;

        __atomic_store_n(begun, (uint64_t)number << 32 | TABLE_BEGUN_YES, __ATOMIC_RELAXED);
        /* Partner: the worker's fence between `withdrawn` and `begun`. */
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        COPIES_BETWEEN();
        withdrawn = __atomic_load_n(&report->copies[number % TABLE_BURSTS].withdrawn, __ATOMIC_RELAXED);
        if ((int32_t)(withdrawn - number) < 0)
                return true;
        __atomic_store_n(begun, (uint64_t)number << 32 | TABLE_BEGUN_PASSED, __ATOMIC_RELEASE);
        return false;
}
