/* SPDX-License-Identifier: MIT */
#pragma once
/* Communicators: their ranks on this GPU in the kernels' tables. */
#include <stdbool.h>
#include <stdint.h>

#include "gpu/plane.h"

struct comm;
struct plane;

/* NULL: there is none. */
struct comm *comms_find(const struct plane *plane, uint64_t id);
/* See plane_ops.comm_ready. Without the plane's lock. */
bool comms_ready(struct plane *plane, const struct plane_comm *comm);
int comms_attach(struct plane *plane, const struct plane_comm *comm, char *error);
void comms_abort(struct plane *plane, uint64_t id, uint32_t status);
void comms_thaw(struct plane *plane, uint64_t id);
void comms_detach(struct plane *plane, uint64_t id);
int comms_move(struct plane *plane, const struct plane_comm *comm, char *error);
void comms_close(struct plane *plane); /* detaches all; after a fault, only frees them */
/* Ranks of other nodes that have left a while ago are believed. A failure is a fault. */
int comms_tick(struct plane *plane);
/* No kernel is resident: the next one is such as was wanted when one did not end (moment.h). */
void comms_moment(struct plane *plane);
/* Does it have ranks on other nodes? */
bool comms_spans(const struct comm *comm);
void comms_leave(struct plane *plane, uint64_t id, uint32_t rank, uint32_t last);
uint32_t comms_report(const struct plane *plane, struct plane_rank_report *reports, uint32_t max);
uint32_t comms_pairs(const struct plane *plane, struct plane_pair_report *reports, uint32_t max);
/* Has its communicator failed, so that its requests are only answered? */
bool comms_rank_ended(const struct plane *plane, uint32_t index);
/* How many sends and receives have finished, as long as ranks stay. *ret_waits: some are under way. */
uint64_t comms_pairs_finished(const struct plane *plane, bool *ret_waits);
/* The session of this ring is gone: no line finds its ranks any more. The caller commits. */
int comms_forget_handles(struct plane *plane, uint32_t ring);

int comms_peer_add(struct plane *plane, uint32_t gpu, uint64_t instance, const struct plane_memory *pool, char *error);
void comms_peer_remove(struct plane *plane, uint32_t gpu);
