/* SPDX-License-Identifier: MIT */
#pragma once
/* Names that are to leave the fd store, also if that does not work at once. Owned by the manager (loop thread). */
#include <event2/event.h>
#include <stdbool.h>

#define FORGET_NAME_MAX 64u

struct forget;
struct notify;

int forget_new(struct event_base *base, struct notify *notify, struct forget **ret_forget);
struct forget *forget_free(struct forget *forget); /* what is left stays in the store */

void forget_name(struct forget *forget, const char *name);
/* Tries once more; false: the name is still in the store, and must not be put there anew. */
bool forget_settle(struct forget *forget, const char *name);
