/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What becomes of wires (gpu/device/wire.h) in the net area (ring/net.h), between the proxies of two nodes.
 *
 * Strands. What a pair's channels carry is more than one thread can copy in time, so it is dealt out: sixteen channels
 * side by side, a line of words, belong to one strand, the next sixteen to the next one. A strand has mirrors of its
 * own and, on each side, a proxy thread of its own, and strands know nothing of each other.
 *
 * In the net area, for each strand and ordered pair of ranks on different nodes, a mirror (wire_mirror_of), at the same
 * place on both of them. A third node has no use for it, so pairs of different pairs of nodes share a place: with a and
 * b their nodes, those for which a + b is the same modulo the number of nodes, and a < b or not. No node takes part in
 * two such pairs. (Four nodes of eight need half of the places that all pairs would, eight nodes of eight a quarter.)
 * Where nodes are so uneven, or so few, that this were more places than pairs, each pair has one. A mirror is a FIFO of
 * batches: what one look of the source's proxy
 * found, chunks and credits alike. A batch is a row of entries, each with its data behind it, padded to 8 bytes; it
 * lies in its line if it fits there, else in one piece in the ring. The source alone deals out the ring: a batch's
 * place is free when the destination has taken the batch. That it has it says in each batch of the other direction, and
 * in a word of its own when there are none.
 *
 * Whoever changes any of this, or the entries, changes PEER_PROTOCOL_MIN (daemon/peer.h): executors of two nodes do not
 * speak of it.
 */
#include "gpu/device/wire.h"
#include "plan/nodes.h"

#define WIRE_LINE        64u /* NET_LINE */
#define WIRE_LINE_BYTES  48u /* that a line has room for */
#define WIRE_STRANDS     2u
#define WIRE_BATCHES     32u    /* a power of two */
#define WIRE_BATCH_BYTES 34816u /* most in one: sixteen of the longest chunks, and some credits */
#define WIRE_RING_BYTES  327680u
#define WIRE_CREDIT      0xffffu

struct wire_entry {
        uint16_t channel;
        uint16_t bytes;  /* of the chunk's data, without flags. WIRE_CREDIT: it is no chunk */
        uint32_t number; /* of the chunk; or how many of the other direction's chunks have been taken */
};

struct wire_mirror {
        struct wire_line {
                uint32_t number; /* of the batch */
                uint32_t bytes;
                uint32_t at;    /* in the ring; of one that does not fit the line */
                uint32_t taken; /* batches of the other direction that the source's proxy has done with */
                unsigned char data[WIRE_LINE_BYTES];
        } line[WIRE_BATCHES];
        uint32_t taken; /* batches that the destination's proxy has done with, if it has nothing to send */
        uint32_t zero[WIRE_LINE / 4 - 1];
        unsigned char ring[WIRE_RING_BYTES];
};

/* Is a place shared by pairs of ranks of different nodes? */
static inline bool wire_mirrors_shared(const struct plan_nodes *nodes, uint32_t n_ranks) {
        const uint32_t most = plan_nodes_largest(nodes);

        return 2 * nodes->n_nodes * most * most < n_ranks * n_ranks;
}

/* Mirrors of a strand. */
static inline uint32_t wire_mirrors(const struct plan_nodes *nodes, uint32_t n_ranks) {
        const uint32_t most = plan_nodes_largest(nodes);

        return wire_mirrors_shared(nodes, n_ranks) ? 2 * nodes->n_nodes * most * most : n_ranks * n_ranks;
}

/* Which of them is that from a rank to one of another node. */
static inline uint32_t wire_mirror_of(const struct plan_nodes *nodes, uint32_t n_ranks, uint32_t source,
                                      uint32_t destination) {
        const uint32_t a = nodes->node[source], b = nodes->node[destination], most = plan_nodes_largest(nodes);
        const uint32_t pair = (a < b ? 0 : nodes->n_nodes) + (a + b) % nodes->n_nodes;

        if (!wire_mirrors_shared(nodes, n_ranks))
                return source * n_ranks + destination;
        return (pair * most + nodes->local[source]) * most + nodes->local[destination];
}

/* Whose channel it is. */
static inline uint32_t wire_strand(uint32_t channel) {
        return channel / 16 % WIRE_STRANDS;
}
