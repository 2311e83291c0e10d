/* SPDX-License-Identifier: MIT */
#pragma once
/* What railmux-perf shows: the table, the progress line, the summary and the JSON document. */
#include "tools/perf/bench.h"

void report_begin(const struct bench *bench);
/* Runs in rank 0. */
void report_line(const struct bench *bench, size_t index, const struct bench_result *out_of_place,
                 const struct bench_result *in_place);
void report_progress(const struct bench *bench, size_t index, uint32_t in_place);
/* Runs in the parent. Returns whether every element was right. */
bool report_end(const struct bench *bench, const struct bench_shared *shared);
/* 0 or -EIO. */
int report_json(const struct bench *bench, const struct bench_shared *shared, const char *path);
