/* SPDX-License-Identifier: MIT */
/*
 * Measured are callbacks, since an operator wants to know who it was; and those of a turn together, for many short ones
 * hold the loop as one long one does (a socket's messages are taken many at a time). The processor's time in
 * the line tells apart what looks the same from outside: a callback that computes, one that waits for a disk or a lock,
 * and a machine that did not let the daemon run.
 */
#include "daemon/loop_watch.h"

#include "util/clock.h"
#include "util/log.h"
#include <inttypes.h>
#include <stdio.h>

#define TELL_NS UINT64_C(1000000000)

static uint64_t loop_cpu_ns(void) {
        struct timespec ts;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
        return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void loop_watch_init(struct loop_watch *watch, uint32_t peer_lost_ms, bool has_peers) {
        *watch = (struct loop_watch){.bound_ns = peer_lost_ms * UINT64_C(250000),
                                     .lost_ns = has_peers ? peer_lost_ms * UINT64_C(1000000) : 0};
}

struct loop_hold loop_hold_begin(struct loop_watch *watch, const char *what) {
        return (struct loop_hold){
                .watch = watch, .what = what, .began_ns = clock_now_ns(), .began_cpu_ns = loop_cpu_ns()};
}

static void loop_tell(struct loop_watch *watch, uint64_t held_ns, uint64_t cpu_ns, const char *who) {
        uint64_t now_ns = clock_now_ns();
        char others[48] = "", lost[80] = "";

        watch->n_held++;
        if (held_ns > watch->longest_ns)
                watch->longest_ns = held_ns;
        if (watch->told_ns && now_ns < watch->told_ns + TELL_NS) {
                watch->n_untold++;
                return;
        }
        if (watch->n_untold)
                snprintf(others, sizeof(others), " (and %" PRIu64 " times before)", watch->n_untold);
        if (watch->lost_ns)
                snprintf(lost, sizeof(lost), "; other nodes give this one up after %" PRIu64 " ms (peer.lost_ms)",
                         watch->lost_ns / 1000000u);
        watch->told_ns = now_ns;
        watch->n_untold = 0;
        log_warning("the event loop was held for %" PRIu64 " ms by %s, %" PRIu64 " ms of it processor time%s%s",
                    held_ns / 1000000u, who, cpu_ns / 1000000u, others, lost);
}

void loop_hold_end(struct loop_hold *hold) {
        struct loop_watch *watch = hold->watch;
        uint64_t held_ns = clock_now_ns() - hold->began_ns, cpu_ns = loop_cpu_ns() - hold->began_cpu_ns;

        if (held_ns > watch->bound_ns) {
                loop_tell(watch, held_ns, cpu_ns, hold->what);
                return;
        }
        watch->turn.n++;
        watch->turn.held_ns += held_ns;
        watch->turn.cpu_ns += cpu_ns;
        if (held_ns >= watch->turn.longest_ns) {
                watch->turn.longest_ns = held_ns;
                watch->turn.longest = hold->what;
        }
}

void loop_watch_turn(struct loop_watch *watch) {
        char who[128];

        if (watch->turn.held_ns > watch->bound_ns) {
                snprintf(who, sizeof(who), "%u callbacks together, of which %s was the longest", watch->turn.n,
                         watch->turn.longest);
                loop_tell(watch, watch->turn.held_ns, watch->turn.cpu_ns, who);
        }
        watch->turn.held_ns = watch->turn.cpu_ns = watch->turn.longest_ns = 0;
        watch->turn.n = 0;
}
