/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * One strand of the wires (gpu/device/wire.h) of one communicator's ranks on this GPU, as its proxy sees it. No GPU
 * runtime. One thread at a time: the control thread makes it, the proxy's works on it (proxy.h).
 */
#include <stdbool.h>
#include <stdint.h>

#include "gpu/mirror.h"
#include "gpu/plane.h"

/* The strand of one wire: between a rank here and one elsewhere. How far things have been carried, by channel and in
 * batches. */
struct wire_end {
        struct wire *wire; /* not owned */
        uint64_t device;   /* the same for the kernel; not used here */
        uint32_t rank, peer;
        const char *broken;           /* why nothing more is carried, a sentence; NULL: it is */
        uint32_t sent, acked;         /* batches handed to the fabric, and of these taken by the other side */
        uint32_t taken, told;         /* batches taken from the fabric, and of these the other side knows of */
        uint32_t untold_bytes;        /* in the ring, of the others */
        uint64_t paced_ns;            /* what has been sent was due until then */
        uint64_t head, tail;          /* of the ring, counted on for ever */
        uint64_t after[WIRE_BATCHES]; /* where head stood after each batch */
        uint32_t first;               /* channel that the next look for chunks begins with */
        _Alignas(16) uint32_t pushed[WIRE_WORDS]; /* chunks handed to the fabric */
        _Alignas(16) uint32_t given[WIRE_WORDS];  /* credit handed to the fabric */
        uint32_t come[WIRE_WORDS];                /* chunks brought to the kernel */
};

struct wires {
        struct net_area *area;      /* not owned */
        struct wire_mirror *mirror; /* the strand's */
        uint32_t strand;
        int doorbell_fd; /* not owned */
        uint32_t n_ranks;
        struct plan_nodes nodes;   /* where they are */
        uint32_t arrivals;         /* the area's, when its mirrors were looked at */
        bool looked;               /* they have been */
        uint64_t now_ns;           /* of the look */
        bool waits;                /* something, for its time */
        uint32_t turn;             /* the end that the next look begins with */
        _Atomic uint32_t n_broken; /* the first broken end's number, from 1; 0: none is. Any thread may look. */
        uint32_t n_ends;
        struct wire_end end[]; /* rank, peer and wires are for the caller to fill in: zeroed memory */
};

/* Room for so many ends. strand: below WIRE_STRANDS. -EINVAL, with a sentence (PLANE_TEXT bytes): the area is not one
 * for so many ranks. */
int wires_new(const struct plane_net *net, uint32_t n_ranks, const struct plan_nodes *nodes, uint32_t n_ends,
              uint32_t strand, struct wires **ret_wires, char *error);
/* NULL is allowed; returns NULL. */
struct wires *wires_free(struct wires *wires);
/* The end of a rank here towards a peer; NULL: there is none. */
struct wire_end *wires_end(struct wires *wires, uint32_t rank, uint32_t peer);
/* Carries what there is, both ways, and wakes the fabric if it sleeps. Bounded. False: nothing moved. */
bool wires_step(struct wires *wires);
/* The same, but of what is little at a time some waits for more (see wires.c), by a clock that does not go backwards.
 * False: nothing moved, and nothing waits. */
bool wires_step_at(struct wires *wires, uint64_t now_ns);
/* Have kernels pushed what is not handed to the fabric yet, and can be? */
bool wires_pending(const struct wires *wires);
/* Of any thread: a wire over which nothing is carried any more, and its `broken` says why; NULL: there is none. */
const struct wire_end *wires_broken(const struct wires *wires);
