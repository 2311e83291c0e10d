/* SPDX-License-Identifier: MIT */
#pragma once
/* The sentences of `railmuxctl status`: what an operator should look at now. */
#include "proto/control.pb-c.h"
#include <stdint.h>

struct control_answer;
struct manager;

void control_notes_add(struct control_answer *answer, Railmux__Control__Status *status, struct manager *manager);

#define CONTROL_RANKS_TEXT 160u
/* "rank 3", "ranks 3, 5 and 12 more". */
const char *control_ranks(uint64_t ranks, char out[CONTROL_RANKS_TEXT]);
double control_seconds(uint64_t ns);
