/* SPDX-License-Identifier: MIT */
#pragma once
/* A communicator with ranks on this GPU: for comms.c, comm_far.c and comm_report.c alone. Control thread only. */
#include <stdbool.h>
#include <stdint.h>

#include <uthash.h>

#include "gpu/mirror.h"
#include "gpu/plane.h"

struct plane;
struct table_rank;
struct wires;

struct comm {
        uint64_t id;
        uint32_t choices;
        uint32_t n_ranks;
        struct wires *wires[WIRE_STRANDS]; /* NULL: all ranks are on this node */
        uint64_t far;                      /* ranks that are not, a bit each */
        uint64_t leaving;                  /* of these: have left, and are not believed yet */
        uint64_t leaving_ns;               /* when the last of them did */
        UT_hash_handle hh;
};

/* Is the rank one of this GPU's, and its process still there? */
static inline bool member_here(const struct plane_comm *what, uint32_t rank) {
        return what->members[rank].here && what->members[rank].session && !what->members[rank].far;
}

/* ---- comm_far.c -------------------------------------------------------------------------------------------------- */
/* A wire for each rank here and each elsewhere, and the proxies work on them; nothing if all ranks are on this node, or
 * the communicator has failed before. What it has got when it fails, comm_far_detach gives back. -EINVAL; as
 * slabs_reserve. */
int comm_far_attach(struct plane *plane, struct comm *comm, const struct plane_comm *what, char *error);
/* Where the rank's channels to other nodes are. */
void comm_far_rank(const struct comm *comm, uint32_t rank, struct table_rank *entry);
/* From now on nobody touches the net area; first of all what ends a communicator, and whatever has happened. What
 * kernels had pushed before is still handed to the fabric. Again is fine. */
void comm_far_stop(struct plane *plane, const struct comm *comm);
/* The kernels' tables know nothing of the wires any more: gives them back. Fine if there are none. */
void comm_far_detach(struct plane *plane, struct comm *comm);
/* A rank elsewhere has left. */
void comm_far_leave(struct comm *comm, uint32_t rank);
/* Those that have left a while ago are believed. A failure is a fault. */
int comm_far_tick(struct plane *plane, struct comm *comm);
/* A wire is broken: the status that ends the communicator, and why; 0: none is. */
uint32_t comm_far_status(const struct comm *comm, const char **ret_why);
