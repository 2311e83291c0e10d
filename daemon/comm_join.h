/* SPDX-License-Identifier: MIT */
#pragma once
/* CommCreate: gathering the ranks of a comm by its id. */
#include "daemon/comm_id.h"
#include "proto/session.pb-c.h"
#include <stdint.h>

struct comm;
struct comm_member;
struct manager;
struct session;
struct tenant;

/* Why an id's gathering failed, kept so that ranks that come later do not wait for ever. */
struct tombstone {
        struct tombstone *next, *prev; /* manager->tombstones */
        struct tenant *tenant;
        uint8_t id[COMM_ID_BYTES];
        uint32_t n_ranks;
        uint64_t told; /* bit per rank */
        uint32_t code;
        char text[160];
};

void comm_join(struct session *session, uint64_t call, const Railmux__Session__CommCreate *body);
/* CommAbort of a rank that joins: the gathering fails for all ranks, those that come late included. If the comm has
 * been made meanwhile, it is aborted and the rank leaves. Answers. */
void comm_join_cancel(struct session *session, uint64_t call, const Railmux__Session__CommAbort *body);
/* What became of a rank that gives up, if it has been answered already. */
void comm_member_give_up(struct comm_member *member);
/* Tells all joined ranks and frees the comm (for a split: all comms of it). */
void comm_join_fail(struct comm *comm, uint32_t code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* NULL: none. */
const struct tombstone *tombstone_find(const struct manager *manager, const uint8_t id[COMM_ID_BYTES]);
void tombstones_free(struct manager *manager);
