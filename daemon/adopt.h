/* SPDX-License-Identifier: MIT */
#pragma once
/* Taking over from a predecessor: state records and stored fds become objects again. */
struct manager;

/* Fills the manager from its state and fd store; what is incomplete is dropped. Logs a summary. */
void adopt(struct manager *manager);
