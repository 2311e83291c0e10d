/* SPDX-License-Identifier: MIT */
#pragma once
/* The first node's part in splits of a communicator over several nodes: it gathers what ranks want, and decides. Loop
 * thread. See comm_split_root.c. */
#include "proto/peer.pb-c.h"
#include <stdint.h>

struct cluster;
struct comm;
struct comm_member;
struct peer;

void comm_split_root_join(struct cluster *cluster, struct peer *peer, const Railmux__Peer__SplitJoin *body);
void comm_split_root_ready(struct cluster *cluster, struct peer *peer, const Railmux__Peer__SplitReady *body);
void comm_split_root_failed(struct cluster *cluster, struct peer *peer, const Railmux__Peer__SplitFailed *body);
/* A rank leaves the communicator: what is not decided yet fails. */
void comm_split_root_left(const struct comm_member *member);
/* Without telling anybody: the communicator has failed, or goes. */
void comm_split_root_free(struct comm *comm);
