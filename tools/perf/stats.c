/* SPDX-License-Identifier: MIT */
#include "tools/perf/stats.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

        return (x > y) - (x < y);
}

void stats_sort(uint64_t *values, size_t n) {
        qsort(values, n, sizeof(*values), compare);
}

void stats_keep_max(uint64_t *into, const uint64_t *from, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (from[i] > into[i])
                        into[i] = from[i];
}

uint64_t stats_percentile(const uint64_t *sorted, size_t n, double percent) {
        size_t place = (size_t)ceil(percent / 100 * (double)n);

        return sorted[place > 0 ? (place <= n ? place - 1 : n - 1) : 0];
}
