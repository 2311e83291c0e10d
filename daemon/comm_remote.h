/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * This node's part of a communicator over several nodes. See comm_remote.c. struct comm has it as `remote`; NULL there
 * means that all ranks are here.
 */
#include "daemon/comm_id.h"
#include "daemon/comm_net.h"
#include "proto/peer.pb-c.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cluster;
struct comm;
struct comm_member;
struct manager;
struct peer;

#define COMM_NODES_MAX 64u

struct comm_remote {
        struct cluster *cluster;
        struct peer *root; /* who gathers; NULL: this daemon. Held until GO */
        bool has_root;
        bool assigned;
        bool attached; /* executors have it, and the root knows */
        bool over;     /* the gathering has failed, or we have told that it has: nobody is told any more */
        bool heard;    /* that it failed: from another node */
        bool ended;    /* no rank of this node is left, and the others know */
        uint64_t key;
        uint32_t own, n_nodes;
        struct {
                struct peer *peer; /* held; NULL: this one */
                uint8_t id[16];
                bool ended;
        } nodes[COMM_NODES_MAX];
        uint8_t node[COMM_NODES_MAX]; /* of each rank */
        struct comm_net net;
};

/* ---- called where communicators are made and end ------------------------------------------------------------------
 */
/* Does an id, or what other nodes have said of it, make a communicator with it one over several nodes? */
bool comm_remote_is(const struct manager *manager, const uint8_t id[COMM_ID_BYTES]);
/* Makes the part of a comm that is indexed. 0, or COMM_E_RESOURCE with a text. */
int comm_remote_begin(struct comm *comm, char *text, size_t text_size);
/* A rank of this node has joined: the root is told. 0, or COMM_E_RESOURCE with a text. */
int comm_remote_join(struct comm_member *member, char *text, size_t text_size);
/* Geometry and choices are set already (comm_attach); makes the net area. 0, or COMM_E_* with a text. */
int comm_remote_attach(struct comm *comm, char *text, size_t text_size);
/* Executors have acknowledged: in place of answering the ranks. */
void comm_remote_attached(struct comm *comm);
/* The making has failed here (comm_join_fail). */
void comm_remote_join_ended(struct comm *comm, uint32_t rank, uint32_t code, const char *text);
/* comm_fail, comm_member_left: the others are told. */
void comm_remote_failed(struct comm *comm);
void comm_remote_left(const struct comm_member *member);
/* Name of the node that a rank is on, for people. */
const char *comm_remote_node(const struct comm *comm, uint32_t rank);
/* No rank of this node is left. True: the others still need what it has sent; comm_settle comes again. */
bool comm_remote_keeps(struct comm *comm);
void comm_remote_free(struct comm *comm);

/* ---- called by the cluster ----------------------------------------------------------------------------------------
 */
/* Another node brings ranks of a communicator whose id was made here. */
void comm_remote_here(struct cluster *cluster, const uint8_t id[COMM_ID_BYTES]);
void comm_remote_assign(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Assign *body);
void comm_remote_go(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Go *body);
void comm_remote_join_failed(struct cluster *cluster, struct peer *peer, const Railmux__Peer__JoinFailed *body);
void comm_remote_hear_failed(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Failed *body);
void comm_remote_hear_left(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Left *body);
void comm_remote_hear_ended(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Ended *body);
/* The fabric reaches the peer from now on. */
void comm_remote_reached(struct cluster *cluster, const struct peer *peer);
/* gone: the connection is, not only what it was wanted for. */
void comm_remote_lost(struct cluster *cluster, const struct peer *peer, const char *text, bool gone);
void comm_remote_merged(struct cluster *cluster, const struct peer *peer, struct peer *into);
