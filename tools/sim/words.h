/* SPDX-License-Identifier: MIT */
#pragma once
/* Plans in words. All return `out`. */
#include <stddef.h>

#include "plan/plan.h"

#define WORDS_PHASE_MAX 256
#define WORDS_TREE_MAX  2048

/* "all ranks push the peer's shard of their input to the others, region 0" */
const char *words_phase(const struct plan *plan, uint32_t phase, char out[WORDS_PHASE_MAX]);
/* "((x0 + x1) + x2) + x3"; for shards that differ, shard 0's. "" if nothing is reduced. */
const char *words_tree(const struct plan *plan, uint32_t root, char out[WORDS_TREE_MAX]);
const char *words_who(uint32_t who, bool p2p);
const char *words_peers(uint32_t peers, bool p2p);
const char *words_range(uint32_t range);
const char *words_schedule(uint32_t schedule);
