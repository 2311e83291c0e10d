/* SPDX-License-Identifier: MIT */
#pragma once
/* Builds with a sanitizer are slower. What a test waits for may take that many times as long (RailmuxTest.cmake). */
#include <stdint.h>
#include <stdlib.h>

static inline uint64_t time_scale(void) {
        const char *text = getenv("RAILMUX_TIME_SCALE");
        const uint64_t scale = text ? strtoull(text, NULL, 10) : 1;

        return scale > 0 ? scale : 1;
}
