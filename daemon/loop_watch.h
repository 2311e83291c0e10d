/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Who held the event loop for too long. While one callback runs nobody else is heard: clients wait, and other nodes,
 * which hear no heartbeat, give this one up in the end. Loop thread only; no allocation, so it may be used anywhere.
 */
#include "util/cleanup.h"
#include <stdbool.h>
#include <stdint.h>

struct loop_watch {
        uint64_t bound_ns; /* longer than this is too long */
        uint64_t lost_ns;  /* for the text: when other nodes give this one up; 0: there are none */
        uint64_t n_held;   /* callbacks, or turns, that were */
        uint64_t longest_ns;
        uint64_t told_ns, n_untold; /* of the log, which has one line in a second */
        /* Of this turn of the loop: callbacks that were not too long, each by itself. */
        struct {
                uint64_t held_ns, cpu_ns, longest_ns;
                uint32_t n;
                const char *longest;
        } turn;
};

/* peer_lost_ms: of the configuration; a callback may take a quarter of that. */
void loop_watch_init(struct loop_watch *watch, uint32_t peer_lost_ms, bool has_peers);

/* A callback that runs. */
struct loop_hold {
        struct loop_watch *watch;
        const char *what;
        uint64_t began_ns, began_cpu_ns;
};

/* what: for people, as in "held for 300 ms by ..."; it must outlive the hold. */
struct loop_hold loop_hold_begin(struct loop_watch *watch, const char *what);
void loop_hold_end(struct loop_hold *hold);
/* After each turn of the loop: were its callbacks too long together? Those that are not measured do not count. */
void loop_watch_turn(struct loop_watch *watch);

/* At the beginning of a callback: until it returns, on whichever way. The watch must outlive that. */
#define LOOP_HOLD(watch, what)                                                                                         \
        _cleanup_(loop_hold_end) __attribute__((unused)) struct loop_hold loop_hold = loop_hold_begin((watch), (what))
