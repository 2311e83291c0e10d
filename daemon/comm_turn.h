/* SPDX-License-Identifier: MIT */
#pragma once
/* The queue of what needs plans over several nodes: one of it has its turn in a turn of the loop. Owned by the cluster,
 * loop thread. See comm_turn.c. */

#include <stdint.h>

struct comm_turns;
struct event_base;
struct loop_watch;

#define COMM_TURN_TENANTS 64u

/* Part of what waits. All zero: it does not wait. */
struct comm_turn {
        struct comm_turn *next, *prev; /* turns->first */
        struct comm_turns *turns;      /* NULL: it does not wait */
        uint32_t tenant;               /* below COMM_TURN_TENANTS, by its name */
        void (*take)(void *data);
        void *data;
};

struct comm_turns {
        struct loop_watch *watch;
        struct event *event;
        struct comm_turn *first; /* utlist */
        uint64_t n_taken;
        uint64_t last[COMM_TURN_TENANTS]; /* which turn was the last one of a tenant; 0: it had none */
};

/* 0 or -ENOMEM. */
int comm_turns_init(struct comm_turns *turns, struct event_base *base, struct loop_watch *watch);
/* Nothing waits any more. All zero is fine. */
void comm_turns_deinit(struct comm_turns *turns);

/* Behind all others of the tenant; it does not wait yet. `take` is called from the loop, when it waits no more, and may
 * free it. */
void comm_turn_wait(struct comm_turn *turn, struct comm_turns *turns, const char *tenant, void (*take)(void *data),
                    void *data);
/* Nothing is to be done any more. One that does not wait is fine. */
void comm_turn_leave(struct comm_turn *turn);
