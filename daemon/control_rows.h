/* SPDX-License-Identifier: MIT */
#pragma once
/* What the daemon tells operators about each kind of object. */
struct control_answer;
struct manager;

void control_rows_status(struct control_answer *answer, struct manager *manager);
void control_rows_tenants(struct control_answer *answer, struct manager *manager);
void control_rows_sessions(struct control_answer *answer, struct manager *manager);
void control_rows_comms(struct control_answer *answer, struct manager *manager);
void control_rows_gpus(struct control_answer *answer, struct manager *manager);
void control_rows_version(struct control_answer *answer);
