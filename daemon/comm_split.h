/* SPDX-License-Identifier: MIT */
#pragma once
/* CommSplit: one gathering over a parent's ranks that makes several comms at once. */
#include "proto/session.pb-c.h"
#include <stdbool.h>
#include <stdint.h>

struct comm;
struct comm_member;
struct comm_split;
struct session;

void comm_split_call(struct session *session, uint64_t call, const Railmux__Session__CommSplit *body);
/* CommAbort of a rank that takes part in a split: as comm_join_cancel. Answers. */
void comm_split_cancel(struct session *session, uint64_t call, const Railmux__Session__CommAbort *body);
/* A child has been acknowledged by its executors; answers everybody when all have. */
void comm_split_check(struct comm_split *split);
/* It cannot be: tells all joined ranks, frees the children and the split; over several nodes the first of them decides
 * on that, and it stays until then. */
void comm_split_fail(struct comm_split *split, uint32_t code, const char *text);
/* The same for all of a parent. */
void comm_split_fail_all(struct comm *parent, uint32_t code, const char *text);
/* The parent has failed, or goes: all of its splits are over, whatever other nodes say. */
void comm_split_end_all(struct comm *parent, uint32_t code, const char *text);
/* A rank leaves the parent: its splits fail, and its own calls are answered. */
void comm_split_leave(struct comm_member *member);
/* A rank of the parent has gone: nobody is there to be answered for it. */
void comm_split_forget(struct comm_member *member);
/* Without telling anybody (the manager stops). */
struct comm_split *comm_split_free(struct comm_split *split);
/* Does the word of a parent say that this split has been answered or has failed? */
bool comm_split_done(uint64_t word, uint32_t number);
