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
struct id_wait;
struct manager;
struct peer;
struct split_root;

#define COMM_NODES_MAX 64u

struct comm_remote {
        struct cluster *cluster;
        struct peer *root; /* who gathers; NULL: this daemon. Held until GO */
        bool has_root;
        bool assigned; /* its key is known, and finds it */
        bool attached; /* executors have it, and the root knows */
        bool over;     /* the gathering has failed, or we have told that it has: nobody is told any more */
        bool heard;    /* that the gathering has failed: from the root, which tells all */
        bool ended;    /* no rank of this node is left, and the others know */
        uint64_t key;
        uint32_t own, n_nodes;
        uint64_t told; /* the nodes that have said that it failed, a bit for each */
        struct {
                struct peer *peer; /* held; NULL: this one */
                uint8_t id[16];
                bool ended;
                bool lost; /* it was, as far as is known; whatever has become of it since */
                bool gone; /* ... and this node has noticed that itself */
        } nodes[COMM_NODES_MAX];
        uint8_t node[COMM_NODES_MAX]; /* of each rank */
        struct comm_net net;
        struct id_wait *id_waits;       /* utlist, see comm_remote_id.c */
        struct split_root *split_roots; /* utlist: on the first node, see comm_split_root.c; the next four also */
        uint64_t split_verdicts;        /* which splits were decided on, as comm.splits_done */
        uint64_t split_failures;        /* ... and which of them have failed, as comm.splits_failed */
        uint32_t split_code;            /* why the last one of these did */
        char split_text[160];
};

/* ---- called where communicators are made and end ------------------------------------------------------------------
 */
/* Does an id, or what other nodes have said of it, make a communicator with it one over several nodes? */
bool comm_remote_is(const struct manager *manager, const uint8_t id[COMM_ID_BYTES]);
/* Makes the part of a comm that is indexed. 0, or COMM_E_* with a text. */
int comm_remote_begin(struct comm *comm, char *text, size_t text_size);
/* A rank of this node has joined: the root is told. 0, or COMM_E_RESOURCE with a text. */
int comm_remote_join(struct comm_member *member, char *text, size_t text_size);
/* Geometry and choices are set already (comm_attach); makes the net area. 0, or COMM_E_* with a text. */
int comm_remote_attach(struct comm *comm, char *text, size_t text_size);
/* Executors have acknowledged: in place of answering the ranks. */
void comm_remote_attached(struct comm *comm);
/* The making has failed here (comm_join_fail). */
void comm_remote_join_ended(struct comm *comm, uint32_t rank, uint32_t code, const char *text);
/* It is being aborted, comm_fail, comm_member_left: the others are told. */
void comm_remote_failing(struct comm *comm);
void comm_remote_failed(struct comm *comm);
/* It has become READY: what has happened to it before. */
void comm_remote_catch_up(struct comm *comm);
void comm_remote_left(const struct comm_member *member);
/* Makes `child`, which comes of a split of `parent` and has its ranks, the part of a communicator over several nodes.
 * ranks: those of the child by their numbers in the parent. 0 or -ENOMEM. */
int comm_remote_inherit(struct comm *child, const struct comm *parent, const uint32_t *ranks, uint64_t key);
/* Name of the node that a rank is on, for people. */
const char *comm_remote_node(const struct comm *comm, uint32_t rank);
/* No rank of this node is left. True: the others still need what it has sent; comm_settle comes again. */
bool comm_remote_keeps(struct comm *comm);
void comm_remote_free(struct comm *comm);
/* A daemon is connected: if it gathers communicators it is told of the ranks here. */
void comm_remote_up(struct cluster *cluster, const struct peer *peer);
/* Another node brings ranks of a communicator whose id was made here. false: those of this node have failed. */
bool comm_remote_here(struct cluster *cluster, const uint8_t id[COMM_ID_BYTES]);

/* ---- for comm_heard.c, comm_split_far.c and the like --------------------------------------------------------------
 */
/* Its key is known: comm_remote_of_key finds it from now on. 0 or -ENOMEM. */
int comm_remote_assign(struct comm *comm, uint64_t key);
/* NULL: no communicator here has that key. */
struct comm *comm_remote_of_key(const struct cluster *cluster, uint64_t key);
/* Which of the nodes a peer (NULL: this one) is; n_nodes if it is none of them. */
uint32_t comm_remote_index(const struct comm_remote *remote, const struct peer *peer);
/* What another daemon says goes to executors and into the state, where only what is known has a place. */
uint32_t comm_remote_code(uint32_t code);
/* To all other nodes that are connected. One that cannot be told is not heard any more either. */
void comm_remote_tell(struct comm_remote *remote, const Railmux__Peer__Message *message);
/* It has failed here: to those that have not said so themselves. lost: a node that this one has lost, and then it is
 * for all of them; -1: none. */
void comm_remote_tell_failed(struct comm *comm, uint32_t code, int32_t rank, const char *text, int32_t lost);
void comm_remote_release_root(struct comm_remote *remote);
