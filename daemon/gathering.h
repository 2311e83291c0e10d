/* SPDX-License-Identifier: MIT */
#pragma once
/* A communicator over nodes whose ranks this node's railmuxd gathers, since the id was made here. Loop thread, owned by
 * the cluster. See gathering.c, and comm_root.c for what happens to it. */
#include "daemon/cluster.h"
#include "daemon/comm.h"
#include "daemon/comm_id.h"
#include "daemon/comm_turn.h"
#include "daemon/peer.h"
#include "plan/cost.h"
#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

enum gathering_state {
        GATHERING_OPEN,
        GATHERING_ASSIGNED,
        GATHERING_FAILED,
};

struct gathering {
        UT_hash_handle hh; /* cluster->gatherings by id, in the order in which they began */
        struct cluster *cluster;
        struct comm_turn turn; /* OPEN: all have come */
        enum gathering_state state;
        uint8_t id[COMM_ID_BYTES];
        uint8_t begun_by[PEER_NODE_BYTES]; /* the node whose rank came first */
        uint64_t key;                      /* once assigned */
        char tenant[PEER_NAME_MAX], name[PEER_NAME_MAX];
        uint32_t n_ranks, n_joined, n_nodes;
        bool device;             /* its ranks are on GPUs */
        struct plan_known known; /* to all nodes */
        uint32_t code;           /* FAILED */
        char text[160];
        struct {
                bool joined;
                uint8_t node;
                uint32_t gpu;
        } ranks[COMM_RANKS_MAX];
        struct {
                struct peer *peer; /* held; NULL: this daemon */
                uint64_t attempt;  /* the number of its part */
                bool ready;
        } nodes[COMM_RANKS_MAX];
        struct {
                uint8_t node[PEER_NODE_BYTES];
                uint64_t boot, attempt;
        } told[COMM_RANKS_MAX]; /* the parts that have heard that it, or one before it with this id, has FAILED */
        uint32_t n_told;
};

/* By id; by key, of one that is assigned. NULL: none. */
struct gathering *gathering_find(const struct cluster *cluster, const uint8_t id[COMM_ID_BYTES]);
struct gathering *gathering_of_key(const struct cluster *cluster, uint64_t key);
/* Is there a place for one more that this tenant and node (NULL: this one) begin? */
bool gatherings_have_room(const struct cluster *cluster, const struct peer *peer, const char *tenant);
/* The first rank of it has come. NULL: no memory. */
struct gathering *gathering_new(struct cluster *cluster, const struct peer *peer, const Railmux__Peer__Join *body);
/* It has failed, and those who know try again. Of what others have sent before they were told something may still be on
 * its way: the new one knows these parts, too. NULL as gathering_new; the old one has gone. */
struct gathering *gathering_again(struct gathering *gathering, const struct peer *peer,
                                  const Railmux__Peer__Join *body);
void gathering_free(struct gathering *gathering);
/* It is FAILED from now on; the tenant's oldest of these goes when there are too many. */
void gathering_bury(struct gathering *gathering, uint32_t code);

/* Which of its nodes (peer NULL: this one); n_nodes if it is none of them. */
uint32_t gathering_node(const struct gathering *gathering, const struct peer *peer);
const uint8_t *gathering_node_id(const struct cluster *cluster, const struct peer *peer);
/* Of what a node was told of its failure: the number of the node's part; NULL: nothing. A daemon that was started anew
 * knows nothing. */
const uint64_t *gathering_told(const struct gathering *gathering, const struct peer *peer);
void gathering_note_told(struct gathering *gathering, const struct peer *peer, uint64_t attempt);
