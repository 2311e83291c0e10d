/* SPDX-License-Identifier: MIT */
#pragma once
/* A buffer with guard bytes around what a call may touch. On GPUs it is made twice, here and there. */
#include <stddef.h>
#include <stdint.h>

#define AREA_GUARD_BYTES 64u

struct area {
        char *here;  /* what the rank writes and looks at */
        char *there; /* what the calls get; the same in host memory */
        size_t bytes;
};

/* Guards before and after [first, first + size), poison in it. */
void area_prepare(const struct area *area, char *first, size_t size);
/* Bytes outside [first, first + size) that are no longer what area_prepare wrote there. */
uint64_t area_broken(const struct area *area, const char *first, size_t size);
/* Where calls find it. */
static inline void *area_there(const struct area *area, const char *address) {
        return area->there + (address - area->here);
}
