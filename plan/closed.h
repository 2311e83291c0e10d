/* SPDX-License-Identifier: MIT */
#pragma once
/* Closed forms of plans over many equal nodes, for more ranks than plans can have. See closed.c. */
#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"

#define CLUSTER_CUTS_MAX 16u

struct cluster {
        const char *name;         /* for people */
        uint32_t n_nodes, n_gpus; /* of each node */
        uint32_t n_rails;         /* of each node */
        double gpu_gbs;           /* GB/s, which is bytes per nanosecond: a GPU to all others of its node, each way */
        double link_gbs;    /* of it, to each of the others, where links are direct; 0: they are through a switch */
        double rail_gbs;    /* a rail, each way */
        double base_ns;     /* a request, with what happens inside nodes */
        double hop_ns;      /* an exchange between nodes */
        double near_ns;     /* a hop of a ring inside a node */
        double message_ns;  /* each message of a rail but those that it waits for */
        double factor;      /* bytes on wires for each byte of data: 2 where each word has a flag beside it */
        bool staged;        /* chunks wait where channels are full (plan_geometry_choose_nodes); else never */
        const char *source; /* of the constants, for people */
        struct {
                double hop_ns;      /* an exchange */
                double factor;      /* how many times as long as gpu_gbs says bytes take; 0: nothing is known */
                double nominal;     /* how many times gpu_gbs links have nominally */
                const char *source; /* as above */
        } one;                      /* one node alone, by kernels of its GPUs */
        /* Boxes on one fabric, CLUSTER_CUTS_MAX at most: the smallest cut that parts any k of them from the others, in
         * rails; n_rails is the smallest of all. 0: each node has its rails, and nothing else is shared. */
        double cuts[CLUSTER_CUTS_MAX];
};

/* Rings of all GPUs, one for each rail, as libraries build them; there is no such plan, see closed.c. */
#define CLUSTER_RINGS PLAN_ALGORITHM_COUNT

/* What one algorithm asks of the wires; bytes are those of data. */
struct cluster_load {
        double hops;        /* exchanges between nodes, one after another */
        double near_hops;   /* of rings, and of one node alone: inside it; of others base_ns has them */
        double messages;    /* of the busiest GPU, in one direction, if nothing has to be cut into parts */
        double gpu_bytes;   /* between nodes, of the busiest GPU, in its busier direction */
        double rail_bytes;  /* the same of the busiest rail */
        double local_bytes; /* from or to other GPUs of the node, of the busiest GPU, in its busier direction */
        bool overlapped;    /* inside and between nodes at once; otherwise one after the other */
};
/* bytes: a request's count, as in struct options. PLAN_E_UNSUPPORTED if there is no such thing. */
int cluster_load_of(const struct cluster *cluster, uint32_t operation, uint32_t algorithm, double bytes,
                    struct cluster_load *ret_load);
double cluster_ns(const struct cluster *cluster, const struct cluster_load *load);
/* Bytes that have to leave or enter some of the nodes, whatever the algorithm, over all rails that they have; in
 * nanoseconds. *ret_part: how many nodes these are, those of the tightest cut (NULL: not asked). Of one node alone GPUs
 * are meant, and what each has of its links. */
double cluster_bound_ns(const struct cluster *cluster, uint32_t operation, double bytes, uint32_t *ret_part);
/* The same of n ranks that are not alike: what has to go one way at least between the root and k - 1 more ranks and the
 * n - k others. Of a send the root is the sender. */
double ranks_cut_bytes(uint32_t operation, double k, double n, double bytes);
/* What all n ranks have to send at least, together; 0: no more than cuts say. */
double ranks_sent_bytes(uint32_t operation, double n, double bytes);
/* Bus bandwidth in GB/s as nccl-tests count it; 0 for a barrier, and for what takes no time. */
double cluster_bus_gbs(const struct cluster *cluster, uint32_t operation, double bytes, double ns);
/* May it be chosen where results must not depend on sizes? See plan_choose_nodes. */
bool cluster_algorithm_ordered(uint32_t operation, uint32_t algorithm);
const char *cluster_algorithm_name(uint32_t algorithm); /* "hierarchical", "rings" */
