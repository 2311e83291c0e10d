/* SPDX-License-Identifier: MIT */
#pragma once
/* What is tried in the guest: each scenario is a test of cmocka over daemons of its own. The list is in main.c. */
#include <stdint.h>

struct fleet;

struct scenario {
        const char *name; /* "loss-2x2": what, and nodes x rails */
        void (*run)(struct fleet *fleet, const struct scenario *scenario);
        uint32_t kind; /* one of those of `run` */
        uint32_t n_nodes, n_rails, n_ranks;
};

/* ---- collectives.c: every collective, with types, reductions and roots drawn by lot; kind: number of them, 0: all */
void collectives_run(struct fleet *fleet, const struct scenario *scenario);

/* ---- faults.c: one rail of node a is broken under a verified load; nothing is lost or wrong */
enum fault {
        FAULT_DOWN,  /* the cable is pulled, and plugged in again */
        FAULT_DROP,  /* all that the node sends there vanishes, for a while */
        FAULT_FLAP,  /* pulled and plugged in at once, again and again */
        FAULT_STILL, /* all that the node sends anywhere vanishes, until all ranks wait; but nobody is lost */
        FAULT_LOSS,  /* 1 % vanishes, of what all nodes send over the rail */
        FAULT_DELAY, /* 5 ms later, of all nodes */
};
void faults_run(struct fleet *fleet, const struct scenario *scenario);

/* ---- losses.c: what cannot be mended; every rank gets a typed error in time */
enum loss {
        LOSS_RAILS,  /* all cables of node a */
        LOSS_DROP,   /* the same without a word */
        LOSS_KILL,   /* railmuxd, executor and ranks of the last node */
        LOSS_SILENT, /* they stand still, and the cables are pulled */
};
void losses_run(struct fleet *fleet, const struct scenario *scenario);

/* ---- strangers.c: who has no certificate of the cluster, or no secret, gets in nowhere */
void strangers_run(struct fleet *fleet, const struct scenario *scenario);

/* ---- rkeys.c, if built with libibverbs: a part of strangers_run over RDMA. Nodes a and b run, c and d have adapters.
 */
void rkeys_try(struct fleet *fleet);
