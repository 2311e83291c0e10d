/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Gathering the ranks of a communicator over several nodes, at the daemon that made its id. See comm_root.c. What comes
 * from peers (NULL: this daemon's own part) is believed only as far as it concerns ranks of that peer.
 */
#include "daemon/comm_id.h"
#include "proto/peer.pb-c.h"
#include <stdbool.h>

struct cluster;
struct peer;

void comm_root_join(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Join *body);
void comm_root_ready(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Ready *body);
/* A node's part has failed. False: nothing is gathered here under that id. */
bool comm_root_failed(struct cluster *cluster, struct peer *peer, const Railmux__Peer__JoinFailed *body);
void comm_root_lost(struct cluster *cluster, struct peer *peer, const char *text);
void comm_root_merged(struct cluster *cluster, struct peer *peer, struct peer *into);
/* Do ranks of other nodes wait for this communicator? */
bool comm_root_gathers(const struct cluster *cluster, const uint8_t id[COMM_ID_BYTES]);
void comm_root_free(struct cluster *cluster);
