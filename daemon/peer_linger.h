/* SPDX-License-Identifier: MIT */
#pragma once
/* Daemons of other nodes that are held for a while, so that they hear what was said to them while they were away. Owned
 * by the cluster, loop thread. See peer_linger.c. */
#include <stdint.h>

struct event;
struct event_base;
struct peer;

#define PEER_LINGER_MAX     64u
#define PEER_LINGER_SECONDS 30

struct peer_lingers {
        struct event *timer;
        uint32_t n;
        struct {
                struct peer *peer; /* held */
                uint64_t until_ns;
        } entries[PEER_LINGER_MAX]; /* the one that goes first comes first */
};

/* 0 or -ENOMEM. */
int peer_lingers_init(struct peer_lingers *lingers, struct event_base *base);
/* All zero is fine. */
void peer_lingers_deinit(struct peer_lingers *lingers);

/* It is dialled for PEER_LINGER_SECONDS from now on while it is not connected, and keeps what waits for it. */
void peer_linger(struct peer_lingers *lingers, struct peer *peer);
/* What is said of `peer` belongs to `into` now (struct peer_events). */
void peer_lingers_merged(struct peer_lingers *lingers, const struct peer *peer, struct peer *into);
