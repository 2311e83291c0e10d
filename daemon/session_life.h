/* SPDX-License-Identifier: MIT */
#pragma once
/* What ends when a client's process begins to end. See session_life.c. */
#include "util/charge.h"
#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>

struct manager;
struct session;

#define SESSION_LIVES 2u /* pipes of a session */

enum {
        _SESSION_LIFE_E_SUCCESS,
        SESSION_LIFE_E_LIMIT,    /* of the tenant, or it has asked too often */
        SESSION_LIFE_E_RESOURCE, /* no descriptors, no memory */
};

struct session_life {
        struct session *session;
        int fd;     /* the reading end; -1: none */
        int end;    /* its other end, until the client is sent it; else -1 */
        bool armed; /* a thread that will close the other end has it, and nobody else; is in the fd store */
        struct event *event;
        struct charge charge;
};

void session_life_init(struct session *session);
/* Makes the pipes, in place of those before. Text on failure. */
int session_life_open(struct session *session, char *text, size_t text_size);
/* The ends that the client is to be sent. False: there are none. */
bool session_life_ends(const struct session *session, int ret_fds[SESSION_LIVES]);
void session_life_sent(struct session *session); /* they were */
/* Takes fd over, of a predecessor, which had been told that it is armed. 0 or SESSION_LIFE_E_*: then it stays the
 * caller's. */
int session_life_adopt(struct session *session, unsigned int i, int fd);
void session_life_close(struct session *session);
/* Ends sessions whose processes dump core. Once a second. */
void session_life_look(struct manager *manager);
