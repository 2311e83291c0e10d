/* SPDX-License-Identifier: MIT */
#pragma once
/* When to start a process again that ended unasked. See restart.c. */
#include <stdint.h>

struct restart {
        uint32_t delay_ms;      /* after the next early death */
        uint64_t paid_until_ns; /* restarts are paid for at a steady rate */
};

/* The process lived for life_ns and ended now: nanoseconds to wait before it is started again. */
uint64_t restart_delay_ns(struct restart *restart, uint64_t now_ns, uint64_t life_ns);
