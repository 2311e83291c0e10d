/* SPDX-License-Identifier: MIT */
/*
 * Statistics for operators
 *
 * Who asks gets numbers that executors took after that. An executor has one query at a time: what is asked for while
 * it has not answered an earlier one waits for that answer, which may be older, and for the next one. Each who asks
 * waits for 250 ms at most, whatever others wait for, and gets what is known by then.
 */
#include "daemon/manager.h"

#include "daemon/executor_link.h"
#include "util/clock.h"
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#define REFRESH_NS UINT64_C(250000000)

struct manager_refresh {
        struct manager_refresh *next, *prev; /* in the order of due_ns */
        void (*done)(void *data);
        void *data;
        uint64_t due_ns;
        uint64_t waits; /* executors, by index, whose next answer it waits for */
        uint64_t later; /* ... or the one after that */
};

static int refresh_arm(struct manager *manager) {
        const uint64_t now = clock_now_ns(), due = manager->refreshes->due_ns;
        const uint64_t us = due > now ? (due - now) / 1000 + 1 : 0;

        return evtimer_add(manager->refresh_event, &(struct timeval){.tv_usec = (suseconds_t)us});
}

static void refresh_finish(struct manager *manager, struct manager_refresh *refresh) {
        void (*done)(void *data) = refresh->done;
        void *data = refresh->data;

        DL_DELETE(manager->refreshes, refresh);
        free(refresh);
        done(data);
}

void manager_refresh_turn(evutil_socket_t fd, short what, void *data) {
        struct manager *manager = data;
        struct manager_refresh *refresh = manager->refreshes;

        (void)fd;
        (void)what;
        while (refresh) {
                struct manager_refresh *next = refresh->next;
                const bool over = !(refresh->waits | refresh->later) || clock_now_ns() >= refresh->due_ns;

                if (over)
                        refresh_finish(manager, refresh);
                refresh = over ? manager->refreshes : next; /* done() may have cancelled any */
        }
        while (manager->refreshes && refresh_arm(manager) < 0)
                refresh_finish(manager, manager->refreshes); /* better old numbers than no answer */
}

static void refresh_check(struct manager *manager) {
        const struct manager_refresh *refresh;

        DL_FOREACH(manager->refreshes, refresh) {
                if (!(refresh->waits | refresh->later)) { /* from the loop, never from below a caller */
                        event_active(manager->refresh_event, EV_TIMEOUT, 0);
                        return;
                }
        }
}

void manager_refresh_answered(struct executor_link *link) {
        struct manager *manager = link->manager;
        const uint64_t bit = executor_link_mask(link);
        struct manager_refresh *refresh;
        bool again = false;

        DL_FOREACH(manager->refreshes, refresh) {
                refresh->waits = (refresh->waits & ~bit) | (refresh->later & bit);
                refresh->later &= ~bit;
                again = again || refresh->waits & bit;
        }
        if (again)
                executor_link_query(link);
        refresh_check(manager);
}

void manager_refresh_dropped(struct executor_link *link) {
        struct manager_refresh *refresh;

        DL_FOREACH(link->manager->refreshes, refresh) {
                refresh->waits &= ~executor_link_mask(link);
                refresh->later &= ~executor_link_mask(link);
        }
        refresh_check(link->manager);
}

int manager_refresh(struct manager *manager, void (*done)(void *data), void *data) {
        struct manager_refresh *refresh = calloc(1, sizeof(*refresh));
        struct executor_link *link;

        if (!refresh)
                return -ENOMEM;
        refresh->done = done;
        refresh->data = data;
        refresh->due_ns = clock_now_ns() + REFRESH_NS;
        DL_APPEND(manager->refreshes, refresh);
        if (refresh_arm(manager) < 0) {
                DL_DELETE(manager->refreshes, refresh);
                free(refresh);
                return -ENOMEM;
        }
        DL_FOREACH(manager->links, link) {
                if (!executor_link_connected(link))
                        continue;
                if (executor_link_queried(link)) {
                        refresh->later |= executor_link_mask(link);
                } else {
                        refresh->waits |= executor_link_mask(link);
                        executor_link_query(link);
                }
        }
        refresh_check(manager);
        return 0;
}

void manager_refresh_cancel(struct manager *manager, void *data) {
        struct manager_refresh *refresh, *tmp;

        DL_FOREACH_SAFE(manager->refreshes, refresh, tmp) {
                if (refresh->data != data)
                        continue;
                DL_DELETE(manager->refreshes, refresh);
                free(refresh);
        }
}

void manager_refresh_free(struct manager *manager) {
        while (manager->refreshes)
                manager_refresh_cancel(manager, manager->refreshes->data);
}
