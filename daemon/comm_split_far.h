/* SPDX-License-Identifier: MIT */
#pragma once
/* One node's part of a split of a communicator over several nodes. Loop thread. See comm_split_far.c. */
#include "proto/peer.pb-c.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cluster;
struct comm;
struct comm_split;
struct peer;

/* Where the ranks of a colour are. */
enum comm_split_where {
        COMM_SPLIT_HERE,      /* all of them on this node */
        COMM_SPLIT_ELSEWHERE, /* all of them on another one */
        COMM_SPLIT_OVER,      /* on several, of which this is one */
        COMM_SPLIT_WITHOUT,   /* on several others */
};

/* Are there several nodes with ranks of it? */
bool comm_split_is_far(const struct comm *parent);
/* ranks: n of the parent's. */
enum comm_split_where comm_split_place(const struct comm *parent, const uint32_t *ranks, uint32_t n);

/* ---- called by comm_split.c ---- */
/* A rank of this node has said what it wants. */
void comm_split_far_join(struct comm_split *split, uint32_t rank);
/* It fails here: the first node is told, and decides for all. */
void comm_split_far_complain(struct comm_split *split, uint32_t code, const char *text);
/* The same where there is no part of it: a rank cannot take part. */
void comm_split_far_refuse(struct comm *parent, uint32_t number, uint32_t code, const char *text);
/* All children that have ranks here are made. */
void comm_split_far_ready(struct comm_split *split);
/* Makes the child, whose ranks have joined, one over several nodes. 0, or COMM_E_RESOURCE with a text. */
int comm_split_far_child(struct comm *child, const struct comm *parent, const uint32_t *ranks,
                         const Railmux__Peer__SplitChild *over, char *text, size_t text_size);
/* The child is not to be, and is about to be freed. */
void comm_split_far_drop(const struct comm_split *split, struct comm *child);

/* ---- called by the cluster: what the first node says ---- */
void comm_split_far_form(struct cluster *cluster, struct peer *peer, const Railmux__Peer__SplitForm *body);
void comm_split_far_go(struct cluster *cluster, struct peer *peer, const Railmux__Peer__SplitGo *body);
void comm_split_far_failed(struct cluster *cluster, struct peer *peer, const Railmux__Peer__SplitFailed *body);
