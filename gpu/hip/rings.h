/* SPDX-License-Identifier: MIT */
#pragma once
/* Sessions and their bell areas. */
#include <stdbool.h>
#include <stdint.h>

#include "gpu/plane.h"

struct bell_host;
struct plane;

/* The session's place, taken if it has none: it stays while the session has an area, buffers or ranks. -ENOSPC. */
int rings_take(struct plane *plane, uint64_t session, uint32_t *ret_index, char *error);
/* TABLE_RINGS: it has none. */
uint32_t rings_find(const struct plane *plane, uint64_t session);
/* Frees the place if nothing is left of the session. */
void rings_drop(struct plane *plane, uint32_t index);

int rings_attach(struct plane *plane, uint64_t session, const struct plane_memory *area, const void *host, int soon_fd,
                 char *error);
/* Its buffers go with it; whoever waits there is told that nobody will serve this area again. */
void rings_detach(struct plane *plane, uint64_t session);
/* All of them, without a word: another executor may serve them. After a fault, only what is ours is freed. */
void rings_close(struct plane *plane);

/* Had all workers seen all lines when the kernel ended, up to where the counters are (rings_counters)? Once for each
 * end, since counters that have been wrong too often are left out. */
bool rings_seen(struct plane *plane);
/* Writes plane->parked into all areas. */
int rings_tell_parked(struct plane *plane, char *error);
/* Reads all areas' counters; *ret_rang: one is not what it was at the last reading. */
int rings_counters(struct plane *plane, bool *ret_rang, char *error);
/* Reads all wake words; has one counted since the last reading? */
bool rings_wakes(struct plane *plane);
