/* SPDX-License-Identifier: MIT */
#pragma once
/* Closes what clients sent or hold, on a thread of its own. See closer.c. */

struct closer;

int closer_new(struct closer **ret_closer);
struct closer *closer_free(struct closer *closer); /* does not wait for a close that hangs; NULL is fine */
/* Takes fd over. NULL or a full queue: closes it here. */
void closer_close(struct closer *closer, int fd);
