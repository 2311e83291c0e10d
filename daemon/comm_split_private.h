/* SPDX-License-Identifier: MIT */
#pragma once
/* A split while it is under way, for comm_split.c and comm_split_far.c. Loop thread. */
#include "daemon/comm.h"
#include "proto/peer.pb-c.h"
#include "util/charge.h"
#include <stdbool.h>
#include <stdint.h>

struct call;

struct split_place {
        bool joined, grouped;
        bool gave_up; /* it waits no more, and the first node has not decided yet */
        int32_t colour, key, gpu;
        uint32_t exchange; /* as in the call */
        bool spare;        /* the same */
        char name[SESSION_NAME_MAX];
        struct session *session;    /* NULL: not joined, gone, or on another node */
        struct comm_member *member; /* in the child, once formed */
        struct call *calls;
};

struct comm_split {
        struct comm_split *next, *prev; /* parent->splits */
        struct comm *parent;
        uint32_t number;
        uint32_t n_joined;     /* of those that are here */
        bool formed;           /* the children are made, or being made */
        bool ready;            /* over nodes: the first one knows that they are made here */
        bool complained;       /* ... or that they cannot be */
        bool decided;          /* ... and what it has decided is known here */
        struct comm *children; /* utlist */
        struct charge charge_bytes;
        struct split_place places[]; /* by rank of the parent */
};

#define SPLIT_WINDOW 32u

/* Splits that are over, as a word (comm_split.c): may this one still come? It is not over then. */
bool comm_split_open(uint64_t word, uint32_t number);
/* This one, which was open, is over as well: in the words of those that are over and of those that have failed. */
void comm_split_mark(uint64_t *done, uint64_t *failed, uint32_t number, bool fails);
/* Has this one, which is over, failed? */
bool comm_split_failed(uint64_t done, uint64_t failed, uint32_t number);
struct comm_split *comm_split_find(const struct comm *parent, uint32_t number);
/* The ranks of one colour in the order of the new comm, which are `grouped` from then on. How many. */
uint32_t comm_split_group(struct split_place *places, uint32_t n_ranks, int32_t colour,
                          uint32_t ret_ranks[COMM_RANKS_MAX]);
/* Makes the children that have ranks here; all places are filled in. over: what the first node says of those over
 * several nodes, NULL: there is one node only. Fails the split, or goes on to comm_split_check. */
void comm_split_form(struct comm_split *split, const Railmux__Peer__SplitForm *over);
/* All children of this node are made, on all nodes too: answers everybody. Frees the split. */
void comm_split_finish(struct comm_split *split);
/* It is over here, without success: tells all joined ranks, frees the children and the split. */
void comm_split_end(struct comm_split *split, uint32_t code, const char *text);
/* The same of a split that no rank here has joined: for those that come late. */
void comm_split_end_unknown(struct comm *parent, uint32_t number, uint32_t code, const char *text);
