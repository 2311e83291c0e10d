/* SPDX-License-Identifier: MIT */
#pragma once
/* What other nodes say of communicators over several nodes, to this node's part of them. Called by the cluster, in the
 * loop thread. What does not fit, or comes from a node that takes no part, changes nothing. See comm_heard.c. */
#include "proto/peer.pb-c.h"
#include <stdbool.h>

struct cluster;
struct peer;

void comm_heard_assign(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Assign *body);
void comm_heard_go(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Go *body);
void comm_heard_join_failed(struct cluster *cluster, struct peer *peer, const Railmux__Peer__JoinFailed *body);
void comm_heard_failed(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Failed *body);
void comm_heard_left(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Left *body);
void comm_heard_ended(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Ended *body);
/* What came of comm_remote_attach(), and becomes of it later, as fabric_callbacks.area. */
void comm_heard_area(struct cluster *cluster, uint64_t key, int condition, const char *text);
/* The fabric reaches the peer from now on. */
void comm_heard_reached(struct cluster *cluster, const struct peer *peer);
void comm_heard_lost(struct cluster *cluster, const struct peer *peer, const char *text);
/* Something that was for the peer does not arrive, though it may be reached. Communicators that are only being made go
 * on: the fabric has nothing of theirs yet. */
void comm_heard_messages_lost(struct cluster *cluster, const struct peer *peer, const char *text);
/* No rail that its tenant may take reaches a node, for which there is something to be carried. False: that ends
 * nothing, as nobody is left there, or has done so before. */
bool comm_heard_cut_off(struct cluster *cluster, const struct peer *peer, uint64_t key);
void comm_heard_merged(struct cluster *cluster, const struct peer *peer, struct peer *into);
