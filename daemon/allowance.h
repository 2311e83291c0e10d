/* SPDX-License-Identifier: MIT */
#pragma once
/* So many of something at once, and as many in each second after that. All that is kept is the time at which what was
 * taken is made good; 0 to begin with. */
#include <stdbool.h>
#include <stdint.h>

/* Takes one. false: too many were taken in a short time, and nothing is changed. per_s: 1 at least; now_ns: of a clock
 * that does not go back. */
static inline bool allowance_take(uint64_t *good_ns, uint32_t per_s, uint64_t now_ns) {
        const uint64_t second_ns = UINT64_C(1000000000);

        if (*good_ns < now_ns)
                *good_ns = now_ns;
        if (*good_ns - now_ns > second_ns - second_ns / per_s)
                return false;
        *good_ns += second_ns / per_s;
        return true;
}
