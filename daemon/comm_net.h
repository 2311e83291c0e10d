/* SPDX-License-Identifier: MIT */
#pragma once
/* What a communicator over several nodes has on this one besides: its net area (ring/net.h), and the eventfd that wakes
 * its executor. Owned by struct comm_remote. */
#include "fabric/fabric.h"
#include "util/charge.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct comm;
struct manager;
struct net_area;
struct plan_geometry;

struct comm_net {
        int area_fd, wake_fd;  /* -1: none */
        struct net_area *area; /* NULL when the fabric has taken it over */
        size_t bytes;
        enum fabric_class class; /* of what is sent from here */
        bool in_fabric, ready;   /* rails' adapters know it */
        struct charge charge_fds, charge_bytes;
};
#define COMM_NET_NULL                                                                                                  \
        { .area_fd = -1, .wake_fd = -1 }

/* Of a communicator that another node has put together: may it want such staging? (With all ranks on one node nothing
 * is charged but what comm_member_join charges.) */
bool comm_net_geometry_right(const struct manager *manager, uint32_t n_ranks, uint32_t n_nodes,
                             const struct plan_geometry *geometry);
/* The comm's geometry is known. nodes: of each rank. 0, or COMM_E_* with a text. What came of making it known to the
 * rails' adapters, comm_heard_area() hears later. */
int comm_net_new(struct comm_net *net, struct comm *comm, struct fabric *fabric, uint64_t key,
                 const struct fabric_node *nodes, char *text, size_t text_size);
/* Nothing more is carried: before peers go, and at the end. */
void comm_net_stop(struct comm_net *net, struct fabric *fabric, uint64_t key);
void comm_net_deinit(struct comm_net *net, struct fabric *fabric, uint64_t key);
