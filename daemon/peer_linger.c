/* SPDX-License-Identifier: MIT */
/*
 * What is queued for a daemon that is not connected goes with it when nobody holds it any more. The last word of a
 * communicator that was not made is such a thing: its part here ends with the word, and with it the hold; but without
 * the word ranks on other nodes would wait for ever. So whoever says it has the daemon held for a while.
 *
 * Whom to dial is said by ids, which clients hand in; so there is a bound, and beyond it the oldest one goes.
 */
#include "daemon/peer_linger.h"

#include "daemon/peer.h"
#include "util/clock.h"
#include <errno.h>
#include <event2/event.h>
#include <string.h>

/* The first one goes. */
static void lingers_drop(struct peer_lingers *lingers) {
        peer_release(lingers->entries[0].peer);
        lingers->n--;
        memmove(&lingers->entries[0], &lingers->entries[1], lingers->n * sizeof(lingers->entries[0]));
}

static void lingers_arm(struct peer_lingers *lingers, uint64_t now_ns) {
        uint64_t rest_us;
        struct timeval time;

        if (!lingers->n)
                return;
        rest_us = lingers->entries[0].until_ns > now_ns ? (lingers->entries[0].until_ns - now_ns) / 1000 + 1 : 1;
        time = (struct timeval){.tv_sec = (time_t)(rest_us / 1000000), .tv_usec = (suseconds_t)(rest_us % 1000000)};
        if (event_add(lingers->timer, &time) < 0)
                lingers_drop(lingers); /* rather too early than never */
}

static void lingers_time(evutil_socket_t fd, short what, void *data) {
        struct peer_lingers *lingers = data;
        uint64_t now_ns = clock_now_ns();

        (void)fd;
        (void)what;
        while (lingers->n && lingers->entries[0].until_ns <= now_ns)
                lingers_drop(lingers);
        lingers_arm(lingers, now_ns);
}

int peer_lingers_init(struct peer_lingers *lingers, struct event_base *base) {
        lingers->timer = evtimer_new(base, lingers_time, lingers);
        return lingers->timer ? 0 : -ENOMEM;
}

void peer_lingers_deinit(struct peer_lingers *lingers) {
        while (lingers->n)
                lingers_drop(lingers);
        if (lingers->timer)
                event_free(lingers->timer);
        lingers->timer = NULL;
}

void peer_linger(struct peer_lingers *lingers, struct peer *peer) {
        uint64_t now_ns = clock_now_ns();
        uint32_t i = 0;

        peer_hold(peer); /* before another hold goes */
        while (i < lingers->n && lingers->entries[i].peer != peer)
                i++;
        if (i < lingers->n) {
                peer_release(peer);
                lingers->n--;
                memmove(&lingers->entries[i], &lingers->entries[i + 1], (lingers->n - i) * sizeof(lingers->entries[0]));
        }
        if (lingers->n == PEER_LINGER_MAX)
                lingers_drop(lingers);
        lingers->entries[lingers->n].peer = peer;
        lingers->entries[lingers->n].until_ns = now_ns + UINT64_C(1000000000) * PEER_LINGER_SECONDS;
        lingers->n++;
        if (!event_pending(lingers->timer, EV_TIMEOUT, NULL))
                lingers_arm(lingers, now_ns);
}

void peer_lingers_merged(struct peer_lingers *lingers, const struct peer *peer, struct peer *into) {
        for (uint32_t i = 0; i < lingers->n; i++)
                if (lingers->entries[i].peer == peer)
                        lingers->entries[i].peer = into;
}
