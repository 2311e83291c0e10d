/* SPDX-License-Identifier: MIT */
#pragma once
/* What the daemon tells operators about daemons of other nodes. */
struct control_answer;
struct manager;
struct peers;

void control_rows_peers(struct control_answer *answer, struct manager *manager);
/* The same of any struct peers; NULL: no rows. */
void control_peers_rows(struct control_answer *answer, const struct peers *peers);
