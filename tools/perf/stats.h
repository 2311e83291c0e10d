/* SPDX-License-Identifier: MIT */
#pragma once
/* Percentiles of a set of times. */
#include <stddef.h>
#include <stdint.h>

void stats_sort(uint64_t *values, size_t n);
/* into[i] = max(into[i], from[i]) */
void stats_keep_max(uint64_t *into, const uint64_t *from, size_t n);
/* Nearest rank: the smallest of n > 0 sorted values that at least `percent` per cent of them do not exceed. */
uint64_t stats_percentile(const uint64_t *sorted, size_t n, double percent);
