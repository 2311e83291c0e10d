/* SPDX-License-Identifier: MIT */
#pragma once
/* An operator replaces an executor as planned, and waits for the new one. See control_drain.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct comm;
struct control_answer;
struct executor_link;
struct manager;

struct control_drain_comm {
        uint64_t number;
        bool lost;
};

struct control_drain {
        struct control_drain *next, *prev; /* manager->drains */
        struct executor_link *link;        /* NULL: none under way. It lives as long as the manager */
        uint64_t instance;                 /* that is asked to end */
        uint32_t pid;
        uint64_t started_ns;
        struct control_drain_comm *comms; /* that had a rank there and were in force */
        size_t n_comms;
};
#define CONTROL_DRAIN_INIT                                                                                             \
        { 0 }

/* Asks the executor of this name to end. RMX_*, with a sentence. *ret_drain stays where it is from then on. */
uint32_t control_drain_begin(struct manager *manager, const char *name, struct control_drain *ret_drain, char *text,
                             size_t text_size);
/* The communicator has failed, or is about to. */
void control_drains_note(const struct comm *comm);
/* Is it over? Then the answer says how it went. */
bool control_drain_over(const struct control_drain *drain, struct manager *manager, struct control_answer *answer);
void control_drain_deinit(struct control_drain *drain);
