/* SPDX-License-Identifier: MIT */
#pragma once
/* The operators' view of rails and routes. Nothing where this node is alone. */
#include "proto/control.pb-c.h"
#include <stdbool.h>

struct comm;
struct control_answer;
struct manager;

/* What rails have carried for it; nothing if all of it is on this node. */
void control_comm_carried(struct control_answer *answer, Railmux__Control__Comm *row, const struct comm *comm);
void control_rows_rails(struct control_answer *answer, struct manager *manager);
void control_rows_routes(struct control_answer *answer, struct manager *manager);
/* Drains a rail, or takes it back; a failure is in the answer. */
void control_rail_drain(struct control_answer *answer, struct manager *manager, const char *rail, bool undo);
