/* SPDX-License-Identifier: MIT */
#pragma once
/* The executor's connection to railmuxd: connects for ever, tells what it holds, does what it is told. Control thread.
 */
#include <stdbool.h>
#include <stdint.h>

struct event_base;
struct executor;
struct link;

struct link_options {
        const char *socket;    /* railmuxd's executor socket */
        const char *name;      /* "host" */
        bool exit_with_daemon; /* leave the loop when the connection ends instead of connecting again */
};

int link_new(struct event_base *base, struct executor *executor, const struct link_options *options,
             struct link **ret_link);
struct link *link_free(struct link *link);
/* Planned end: no new sequence is begun; the loop is left when begun ones are settled, or after a bound. */
void link_drain(struct link *link);
