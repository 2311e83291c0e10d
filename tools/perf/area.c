/* SPDX-License-Identifier: MIT */
#include "tools/perf/area.h"

#include <string.h>

#define GUARD  0xa5
#define POISON 0x5a

void area_prepare(const struct area *area, char *first, size_t size) {
        size_t begin = (size_t)(first - area->here), end = begin + size;

        memset(area->here, GUARD, begin);
        memset(first, POISON, size);
        memset(area->here + end, GUARD, end + AREA_GUARD_BYTES <= area->bytes ? AREA_GUARD_BYTES : area->bytes - end);
}

uint64_t area_broken(const struct area *area, const char *first, size_t size) {
        size_t begin = (size_t)(first - area->here), end = begin + size, stop = end + AREA_GUARD_BYTES;
        uint64_t broken = 0;

        if (stop > area->bytes)
                stop = area->bytes;
        for (size_t i = 0; i < begin; i++)
                broken += (unsigned char)area->here[i] != GUARD;
        for (size_t i = end; i < stop; i++)
                broken += (unsigned char)area->here[i] != GUARD;
        return broken;
}
