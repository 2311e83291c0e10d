/* SPDX-License-Identifier: MIT */
#pragma once
/* What a node holds: the same before and after, whatever clients did in between. */
#include <stdbool.h>
#include <stdint.h>

#include "tests/e2e/node.h"

#define FOOTPRINT_TENANTS_MAX 1024u

struct footprint {
        struct node_pids pids;
        int keeper_fds, daemon_fds, executor_fds;
        int daemon_mappings, executor_mappings; /* of memfds */
        int daemon_threads, executor_threads;
        long daemon_rss_kib, executor_rss_kib;
        char tenants[FOOTPRINT_TENANTS_MAX]; /* "default sessions=3 comms=3 ..." */
};

/* Starts a node like node_start, with a library in its processes. */
void node_start_preloaded(struct node *node, const char *test, const char *library, bool keep);
/* railmuxd's and the executor's log on stderr. */
void node_show_log(const struct node *node);

/* Looks until nothing changes any more. */
struct footprint footprint_take(const struct node *node);
/* Waits until it is as before, residents within a bound; false with what it is instead. */
bool footprint_await(const struct node *node, const struct footprint *before, uint32_t timeout_ms,
                     struct footprint *ret_now);
void footprint_show(const struct footprint *before, const struct footprint *now);
