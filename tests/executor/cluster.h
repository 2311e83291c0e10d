/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Several nodes in one process: an executor for each, one communicator over all of them, clients as in fixture.h, and a
 * thread that carries between the nodes' areas. An executor may be in a child instead, to be killed.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "fixture.h"
#include "tests/gpu/carrier.h"

struct cluster_node {
        struct executor executor;
        bool attached;
        pid_t child;
        int marks_fd, wake_fd;
        struct comm *comm; /* in this process */
};

struct cluster {
        struct fixture f; /* rings and buffers of all ranks; its own executor is not used */
        uint32_t n_nodes;
        uint8_t node[FIXTURE_RANKS_MAX]; /* by rank */
        struct plan_geometry geometry;
        const struct plan_choice *choices;
        uint32_t n_choices;
        struct cluster_node nodes[CARRIER_NODES_MAX];

        struct carrier carrier; /* of the thread while it runs */
        int doorbell_fd;
        pthread_t thread;
        bool carrying;
        _Atomic bool stop;        /* release / acquire */
        _Atomic uint64_t n_waits; /* of the thread, for the doorbell; relaxed */
};

#define CLUSTER_BYTES (1u << 20) /* of each rank's buffer */
#define CLUSTER_HALF  (CLUSTER_BYTES / 2)
#define CLUSTER_OK    ring_status(RMX_OK, -1)

/* How ranks lie on nodes. */
struct cluster_placement {
        uint32_t n_ranks;
        uint8_t node[FIXTURE_RANKS_MAX];
};
extern const struct cluster_placement cluster_placements[];
extern const uint32_t n_cluster_placements;

/* Channel plans of every operation. */
extern const struct plan_choice cluster_choices[];
extern const uint32_t n_cluster_choices;

void cluster_init(struct cluster *cluster, uint32_t n_ranks, const uint8_t *node, size_t buffer_bytes);
void cluster_deinit(struct cluster *cluster);
/* What comm_attach is asked for on a node. */
void cluster_parameters(struct cluster *cluster, uint32_t node, struct comm_parameters *p,
                        struct comm_member members[FIXTURE_RANKS_MAX]);
/* Runs the executor of a node here / in a child, with everything attached. */
void cluster_attach(struct cluster *cluster, uint32_t node);
void cluster_detach(struct cluster *cluster, uint32_t node);
void cluster_spawn(struct cluster *cluster, uint32_t node);
void cluster_kill(struct cluster *cluster, uint32_t node);
/* The thread that carries. */
void cluster_carry(struct cluster *cluster);
void cluster_carry_stop(struct cluster *cluster);
/* As railmuxd tells an executor (CommAbort). */
void cluster_abort(struct cluster *cluster, uint32_t node, uint32_t status);

/* All of the above. */
void cluster_start(struct cluster *cluster, const struct cluster_placement *placement);
/* comm_oldest_wait. */
bool cluster_oldest_wait(struct comm *comm, struct comm_wait *wait);
/* Until the executor of a node sleeps; it may be about to wake up. */
void cluster_wait_asleep(struct cluster *cluster, uint32_t node);

/* ---- data: int32, inputs in the first half of each buffer, outputs in the second --------------------------------- */
int32_t cluster_value(uint32_t rank, uint64_t i, uint32_t salt);
void cluster_fill(struct fixture *f, uint32_t salt);
const int32_t *cluster_out(const struct fixture *f, uint32_t rank);
/* Fails the test unless all outputs are those of the operation, and what lies behind them is untouched. */
void cluster_check(const struct fixture *f, uint32_t op, uint64_t count, uint32_t root, uint32_t salt);
/* Rings it on all ranks (sum); q gets the ring sequences. */
void cluster_ring(struct fixture *f, uint32_t op, uint64_t count, uint32_t root, uint32_t *q);
void cluster_wait(struct fixture *f, const uint32_t *q, uint32_t status);
/* RING_OP_SEND or RING_OP_RECV, from or to element `element`. */
struct ring_group_entry cluster_entry(uint32_t op, uint32_t peer, uint32_t sequence, uint64_t count, uint64_t element);
