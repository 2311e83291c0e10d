/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What a plan puts on the wires between nodes. A message takes the rail of the rank that it comes from, at both ends:
 * rank i of a node (plan_nodes.local) has rail i modulo the number of rails (on GPUs it goes by the GPU, which is the
 * same where ranks are on all GPUs in order). The fabric does so with all that it does not stripe; the rest takes the
 * rail that has least to do. See rails.c.
 */
#include <stdbool.h>

#include "plan/nodes.h"
#include "plan/plan.h"

/* What things take between nodes, in nanoseconds; all >= 0. */
struct plan_net {
        double hop_ns;       /* one chunk, from flag set to seen on the other node, without its bytes */
        double ns_per_chunk; /* a chunk or signal on a rail, in either direction: how soon the next one can follow */
        double ns_per_byte;  /* of a rail, in either direction */
        uint32_t n_rails;    /* of each node, >= 1 */
        bool any_rail;       /* what is long is striped: a node's rails share what there is */
};
/* TCP on a host; nothing is known of the wires, so these are those of a loopback interface with TLS. */
void plan_net_host(struct plan_net *net);
/* The same between GPUs: with what proxies and the bus take. */
void plan_net_device(struct plan_net *net);

/* Data of a chunk that is not larger, and no partial sum, lies beside the flag. */
#define PLAN_LINE_BYTES 56u

/*
 * Of one rank, or of one rail of one node. Chunks are with and without data (signals); each is followed by a credit in
 * the other direction. Bytes are those of data, without heads and credits; those that lie beside flags are a part of
 * them, and counted once more as lines. What a fabric counts (fabric/fabric.h, struct fabric_traffic) is bytes - lines.
 */
struct plan_load {
        uint64_t chunks_out, chunks_in;
        uint64_t credits_out, credits_in;
        uint64_t bytes_out, bytes_in;
        uint64_t lines_out, lines_in;
};

/* Counts one request exactly, for all ranks whose shapes are alike (vectors: NULL is as much for each pair, `count`).
 * ret_load[n_ranks]. Plans without nodes load nothing. Takes no longer for a large request than for a small one. */
void plan_load_ranks(const struct plan *plan, const struct plan_geometry *geometry, const struct plan_shape *shape,
                     struct plan_load *ret_load);
/* The same by rail: ret_load[n_nodes * n_rails], node by node. n_rails >= 1. */
void plan_load_rails(const struct plan *plan, const struct plan_geometry *geometry, const struct plan_shape *shape,
                     uint32_t n_rails, struct plan_load *ret_load);
