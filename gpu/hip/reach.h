/* SPDX-License-Identifier: MIT */
#pragma once
/* Buffers of sessions on other GPUs, for requests that read or write them in place. See reach.c. */
#include <stdbool.h>
#include <stdint.h>

#include "gpu/plane.h"

struct plane;
struct table_rank;

/* Does this runtime let kernels of one GPU work on ordinary memory of another? */
bool reach_able(void);
/* The other planes that have a buffer of this GPU's. */
int reach_tell(struct plane *plane, uint64_t session, uint32_t id, uint64_t gpus, char *error);
int reach_import(struct plane *plane, uint64_t session, uint32_t id, const struct plane_memory *memory, char *error);
/* id 0: all of the session's. */
void reach_retire(struct plane *plane, uint64_t session, uint32_t id);
/* The end of the plane: mappings are given back, tables left as they are. */
void reach_close(struct plane *plane);
/* What a rank's entry says of it. */
void reach_rank(const struct plane_comm *comm, uint32_t rank, struct table_rank *entry);
