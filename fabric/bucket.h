/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * A rate limit. What is sent may overdraw it by one message, and then nothing is sent until that is made good, so over
 * any time t not more than rate * t + burst + one message goes out.
 */
#include <stdint.h>

struct bucket {
        uint64_t rate;  /* bytes per second; 0: no limit */
        uint64_t burst; /* bytes */
        int64_t tokens;
        uint64_t filled_ns; /* tokens are right for this time */
};

static inline void bucket_init(struct bucket *bucket, uint64_t rate, uint64_t now_ns) {
        uint64_t burst = rate / 250; /* 4 ms: more than a thread sleeps by mistake */

        if (burst < 65536)
                burst = 65536;
        *bucket = (struct bucket){.rate = rate, .burst = burst, .tokens = (int64_t)burst, .filled_ns = now_ns};
}

/* 0: may send; else the time when it may. */
static inline uint64_t bucket_wait(struct bucket *bucket, uint64_t now_ns) {
        uint64_t passed = now_ns > bucket->filled_ns ? now_ns - bucket->filled_ns : 0;
        unsigned __int128 gain = (unsigned __int128)passed * bucket->rate / 1000000000u;

        if (bucket->rate == 0)
                return 0;
        if (gain > 0) { /* else the time is kept for the next call */
                if (gain >= (unsigned __int128)((int64_t)bucket->burst - bucket->tokens)) {
                        bucket->tokens = (int64_t)bucket->burst;
                        bucket->filled_ns = now_ns;
                } else {
                        bucket->tokens += (int64_t)gain;
                        /* Rounded up, as each rounding down would be a gift. */
                        bucket->filled_ns += (uint64_t)((gain * 1000000000u + bucket->rate - 1) / bucket->rate);
                }
        }
        if (bucket->tokens > 0)
                return 0;
        return bucket->filled_ns + (uint64_t)((unsigned __int128)(1 - bucket->tokens) * 1000000000u / bucket->rate) + 1;
}

static inline void bucket_spend(struct bucket *bucket, uint64_t bytes) {
        if (bucket->rate)
                bucket->tokens -= (int64_t)bytes;
}
