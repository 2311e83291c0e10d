/* SPDX-License-Identifier: MIT */
#pragma once
/* Ranks that run collectives of several kinds and sizes until they are told to end, and verify every element. */
#include "tests/e2e/team.h"

struct fleet;

/* A script of a team: each operation that has ended well is a step. */
void traffic_script(struct team_rank *rank);

/* ---- the parent; these fail the running cmocka test */
/* Starts n_ranks on all nodes, and waits until each has done some steps. */
void traffic_start(struct fleet *fleet, uint32_t n_ranks);
/* Waits until each rank has done so many steps more than the foremost has now. */
void traffic_await(struct fleet *fleet, uint32_t more, uint32_t timeout_ms);
/* The longest time between two steps of any rank since the last call, in milliseconds. */
double traffic_longest_ms(struct fleet *fleet);
/* Ends it: all must have done the same number of steps, none of them wrong. Returns that number. */
uint32_t traffic_end(struct fleet *fleet);
