/* SPDX-License-Identifier: MIT */
#pragma once
/* Ids that all ranks of a communicator over several nodes have alike (rmx_comm_id). Loop thread. See comm_remote_id.c.
 */
#include "proto/peer.pb-c.h"
#include <stdint.h>

struct cluster;
struct comm;
struct comm_member;
struct peer;
struct session;

/* IdCreate of a rank of such a communicator: answers the call, now or when the node that makes the id has told it. */
void comm_remote_id_call(struct comm_member *member, struct session *session, uint64_t call, uint64_t number);
/* The rank takes part no more: what it waits for is forgotten. */
void comm_remote_id_drop(struct comm_member *member);
/* A node of the communicator was lost: those who wait for it ask the next one. */
void comm_remote_id_lost(struct comm *comm, uint32_t node);
/* Forgets all that wait. */
void comm_remote_id_free(struct comm *comm);

/* ---- called by the cluster ---- */
void comm_remote_id_asked(struct cluster *cluster, struct peer *peer, const Railmux__Peer__IdAsk *body);
void comm_remote_id_told(struct cluster *cluster, struct peer *peer, const Railmux__Peer__IdTold *body);
