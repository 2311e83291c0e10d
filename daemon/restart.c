/* SPDX-License-Identifier: MIT */
/*
 * A service that ended is wanted back at once: its clients wait. Two things must not happen: a program that cannot even
 * start must not burn a core, and one that lives just long enough must not fill the log for ever.
 *
 *  - Who dies before RESTART_EARLY_NS has not come up at all: the delay doubles each time. The first restart is
 * immediate all the same.
 *  - All others share a budget: a burst of RESTART_BURST immediate restarts, refilled at one per RESTART_PRICE_NS.
 */
#include "daemon/restart.h"

#define NS_PER_MS            UINT64_C(1000000)
#define RESTART_EARLY_NS     (10 * NS_PER_MS)
#define RESTART_DELAY_MIN_MS 100u
#define RESTART_DELAY_MAX_MS 5000u
#define RESTART_PRICE_NS     (500 * NS_PER_MS)
#define RESTART_BURST        20u

uint64_t restart_delay_ns(struct restart *restart, uint64_t now_ns, uint64_t life_ns) {
        uint64_t delay_ns = 0, debt_ns;

        if (life_ns >= RESTART_EARLY_NS) {
                restart->delay_ms = 0;
        } else {
                delay_ns = restart->delay_ms * NS_PER_MS;
                restart->delay_ms = restart->delay_ms ? restart->delay_ms * 2 : RESTART_DELAY_MIN_MS;
                if (restart->delay_ms > RESTART_DELAY_MAX_MS)
                        restart->delay_ms = RESTART_DELAY_MAX_MS;
        }
        if (restart->paid_until_ns < now_ns)
                restart->paid_until_ns = now_ns;
        restart->paid_until_ns += RESTART_PRICE_NS;
        debt_ns = restart->paid_until_ns - now_ns;
        if (debt_ns > RESTART_BURST * RESTART_PRICE_NS && debt_ns - RESTART_BURST * RESTART_PRICE_NS > delay_ns)
                delay_ns = debt_ns - RESTART_BURST * RESTART_PRICE_NS;
        return delay_ns;
}
