/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Several nodes for the emulator: the ranks of a communicator are dealt out to nodes, each with its net area; each rank
 * has a proxy of its own, as if each GPU had an executor, and a fabric carries between the areas in any order. C, since
 * ring/net.h is; it knows nothing of the emulator, which gives memory and turns. One thread.
 */
#include <stdbool.h>
#include <stdint.h>

#ifndef NODES_RANKS_MAX /* more where there shall be many */
#define NODES_RANKS_MAX 8u
#endif

/* What the fabric may get wrong. */
enum nodes_fault {
        NODES_RIGHT,
        NODES_FLAG_FIRST,   /* a chunk's number before its data */
        NODES_DROP,         /* a chunk is lost */
        NODES_DROP_CREDITS, /* no credit for batches comes any more, from one on */
        NODES_SHORT,        /* the last bytes of the data are not carried */
        NODES_LATE_LINE,    /* nothing of the line is carried but the number */
        NODES_FAULTS,
};

struct nodes;

#ifdef __cplusplus
extern "C" {
#endif
/* node[rank]: where the ranks are. memory(context, bytes): zeroed, lives as long as the nodes. `chunks`: so many have
 * passed through each channel before. */
struct nodes *nodes_new(uint32_t n_ranks, const uint8_t *node, uint32_t chunks, uint64_t seed,
                        void *(*memory)(void *context, uint64_t bytes), void *context);
void nodes_free(struct nodes *nodes);
/* The ranks elsewhere than this one, a bit each, and the wires to them. */
uint64_t nodes_wires(const struct nodes *nodes, uint32_t rank, void *ret_wire[NODES_RANKS_MAX]);
/* The rank's proxy looks once. True: something moved, or waits for its time. */
bool nodes_proxy(struct nodes *nodes, uint32_t rank);
/* So long a look takes from now on; 0: time does not count. At first it depends on the seed. */
void nodes_look(struct nodes *nodes, uint64_t look_ns);
/* The fabric looks once. True: it has something, or had. */
bool nodes_fabric(struct nodes *nodes);
/* Chunk number `at` or the next one goes wrong. */
void nodes_break(struct nodes *nodes, enum nodes_fault fault, uint64_t at);
/* Does nothing stand in a queue or wait to be carried? */
bool nodes_quiet(const struct nodes *nodes);
/* What ranks have sent to other nodes so far: bytes of data of collectives, and what lane 0 tells, in chunks. */
uint64_t nodes_data(const struct nodes *nodes, uint32_t rank, uint64_t *ret_told);
/* Messages that a rank's proxy has made of what it found, those for credit alone too, and the chunks in them. */
uint64_t nodes_messages(const struct nodes *nodes, uint32_t rank, uint64_t *ret_chunks);
/* Batches carried so far, and their bytes beyond the lines. */
uint64_t nodes_chunks(const struct nodes *nodes, uint64_t *ret_bytes);
#ifdef __cplusplus
}
#endif
