/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * This daemon's place among those of other nodes: the control channel (peer.h), the fabric (fabric/fabric.h), and what
 * goes from the one to the other. Owned by the manager, loop thread; there is none unless the daemon listens for
 * others.
 */
#include "daemon/comm_turn.h"
#include "daemon/last_word.h"
#include "daemon/peer.h"
#include "daemon/rails.h"
#include "fabric/fabric.h"
#include <stdbool.h>
#include <stdint.h>

struct cluster_rail;
struct comm;
struct config;
struct gathering;
struct manager;

#define CLUSTER_TEXT_MAX  256u
#define CLUSTER_RAIL_NAME (RAILS_NAME_MAX + 1)

struct cluster {
        struct manager *manager;
        struct peers *peers;
        struct fabric *fabric;
        struct event *fabric_event;
        struct event *self_event;         /* messages to itself are waiting */
        struct cluster_node *nodes;       /* utlist: daemons that are connected */
        struct cluster_self *selves;      /* utlist: messages to itself */
        struct comm *comms_by_key;        /* uthash: those that are assigned, see comm_remote.c */
        struct gathering *gatherings;     /* uthash by comm id, see comm_root.c */
        struct comm_turns turns;          /* gatherings and splits that are complete */
        struct last_words words;          /* for other daemons, when they are back */
        char (*rails)[CLUSTER_RAIL_NAME]; /* [n_rails], as configured: those that wait included */
        uint32_t n_rails;
        struct cluster_rail *waiting; /* utlist: rails that cannot be opened yet, see cluster_rails.c */
        struct event *rails_event;    /* tries them again */
};

/* As the configuration says. 0, -errno or CLUSTER_E_REFUSED, both with a text. */
enum {
        _CLUSTER_E_SUCCESS,
        CLUSTER_E_REFUSED,
};
int cluster_new(struct manager *manager, char error[CLUSTER_TEXT_MAX], struct cluster **ret_cluster);
/* The certificates of a configuration that is about to be in force are read, for connections from now on. 0, -errno or
 * CLUSTER_E_REFUSED, both with a text, and nothing is changed. */
int cluster_reload(struct cluster *cluster, const struct config *config, char error[CLUSTER_TEXT_MAX]);
/* After all communicators. NULL is fine. */
struct cluster *cluster_free(struct cluster *cluster);

/* This node has a rail that it had not: its peers are told. */
void cluster_rails_changed(struct cluster *cluster);

/* To another daemon, or (peer NULL) to this one, from the loop. 0, -errno, PEER_E_*. */
int cluster_send(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Message *message);
/* Takes one of the ids that another daemon may ask for. false: it has asked for too many in a short time. (That one
 * lets each of its tenants ask for far fewer, tenant_takes_id: this is for daemons that do not.) */
bool cluster_takes_ask(struct cluster *cluster, const struct peer *peer);
#define CLUSTER_ASKS 1024u /* at once, and in each second after that */
/* Connected, and the fabric knows its rails. NULL, which is this daemon: always. */
bool cluster_reaches(const struct cluster *cluster, const struct peer *peer);
