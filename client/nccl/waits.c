/* SPDX-License-Identifier: MIT */
/*
 * Two numbers that only grow, lest a call that waits takes a lock for this. Who looks reads first how many are over, so
 * that, if the numbers are equal, none was under way when it read the other.
 */
#include "client/nccl/waits.h"

#include <stdatomic.h>

#include "client/nccl/session.h"

static _Atomic uint64_t n_begun, n_over;
static _Thread_local uint64_t n_own; /* of this thread, under way */

FORKED void waits_forked(void) {
        n_own = 0;
        atomic_store(&n_begun, 0); /* both without a partner: the child has one thread, which waits for nothing */
        atomic_store(&n_over, 0);
}

void waits_begin(void) {
        n_own++;
        atomic_fetch_add(&n_begun, 1); /* partner: the load in waits_now */
}

void waits_end(void) {
        n_own--;
        atomic_fetch_add(&n_over, 1); /* partner: the load in waits_now */
}

void waits_move(void) {
        waits_begin();
        waits_end();
}

bool waits_any_other(void) {
        struct waits waits = waits_now();

        return waits.begun - waits.over > n_own;
}

struct waits waits_now(void) {
        struct waits waits;

        waits.over = atomic_load(&n_over);   /* partner: waits_end */
        waits.begun = atomic_load(&n_begun); /* partner: waits_begin */
        return waits;
}
