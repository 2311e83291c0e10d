/* SPDX-License-Identifier: MIT */
#pragma once
/* Tells the daemon that this process is ending before it has ended. See life.c. */
#include <stdbool.h>
#include <stdint.h>

struct life_line;
struct rmx_session;

#define LIFE_LINES 2u

struct life {
        struct life_line *line[LIFE_LINES]; /* NULL: there is none */
};

/* Once, when the session is open; takes until the deadline, or a second, at most. A session works without it, so
 * nothing is reported. */
void life_start(struct rmx_session *session, uint64_t deadline_ns);
/* After the connection is closed. ours: false in a child of fork(), where the threads do not exist. */
void life_deinit(struct life *life, bool ours);
