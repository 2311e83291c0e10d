/* SPDX-License-Identifier: MIT */
#pragma once
/* Closes what clients sent or hold, on threads of its own. See closer.c. */
#include <stdint.h>

struct closer;

int closer_new(struct closer **ret_closer);
struct closer *closer_free(struct closer *closer); /* does not wait for a close that hangs; NULL is fine */
/* Takes fd over. NULL, or no memory: closes it here. */
void closer_close(struct closer *closer, int fd);
/* Descriptors that are not closed yet. */
uint32_t closer_waiting(struct closer *closer);
