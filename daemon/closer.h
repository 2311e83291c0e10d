/* SPDX-License-Identifier: MIT */
#pragma once
/* Closes what clients sent or hold, on threads of its own. See closer.c. */
#include <stdint.h>

struct charge_account;
struct closer;
struct event_base;

int closer_new(struct closer **ret_closer);
/* Does not wait for a close that hangs, but releases its charge; NULL is fine. */
struct closer *closer_free(struct closer *closer);
/* From now on the loop releases charges as descriptors are closed, and not closer_settle() alone. 0 or -errno. */
int closer_watch(struct closer *closer, struct event_base *base);
/* Takes fd over. NULL, or no memory: closes it here. */
void closer_close(struct closer *closer, int fd);
/* The same; until it is closed it is one of the account's descriptors, whose limit is for others to keep. */
void closer_close_for(struct closer *closer, int fd, struct charge_account *account);
/* Releases the charges of what is closed. By whoever charges. */
void closer_settle(struct closer *closer);
/* Descriptors that are not closed yet. */
uint32_t closer_waiting(struct closer *closer);
