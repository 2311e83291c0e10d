/* SPDX-License-Identifier: MIT */
#pragma once
/* Joins that another thread may give up. See cancel.c. */
#include <stdbool.h>

#include "client/rpc.h"

struct rmx_cancel;

/* A call that waits; lives on its caller's stack. */
struct cancel_entry {
        struct cancel_entry *next, *prev; /* of the cancel; under its mutex */
        struct rpc *rpc;
        struct rpc_call *call;
};

/* The call is about to be made: from here on the cancel ends it. false: it has been set already. cancel may be NULL. */
bool cancel_enter(struct rmx_cancel *cancel, struct cancel_entry *entry, struct rpc *rpc, struct rpc_call *call);
/* Has it been set? cancel may be NULL: no. */
bool cancel_is_set(const struct rmx_cancel *cancel);
/* The call has returned. */
void cancel_exit(struct rmx_cancel *cancel, struct cancel_entry *entry);
