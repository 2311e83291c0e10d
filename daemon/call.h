/* SPDX-License-Identifier: MIT */
#pragma once
/* Calls of clients that wait for something: a short list in the object that will answer them. */
#include <stdbool.h>
#include <stdint.h>

struct session;

struct call {
        struct call *next, *prev;
        struct session *session;
        uint64_t id;
};

enum { _CALL_E_SUCCESS, CALL_E_TOO_MANY };

/* Adds (session, id) unless it is there already. CALL_E_TOO_MANY beyond what one session may have waiting, -ENOMEM. */
int call_add(struct call **list, struct session *session, uint64_t id);
/* Takes the first call off the list; false when the list is empty. */
bool call_pop(struct call **list, struct session **ret_session, uint64_t *ret_id);
/* Forgets the calls of a session, or all with NULL. */
void call_drop(struct call **list, struct session *session);
