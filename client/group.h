/* SPDX-License-Identifier: MIT */
#pragma once
/* What a thread has recorded between rmx_group_start and rmx_group_end. */
#include <stdbool.h>

struct operation;
struct rmx_comm;
struct rmx_session;

/* Is this thread in a group? */
bool group_is_open(void);
/* RMX_E_INVALID if it is, for calls that are not possible there; text set. */
int group_refuse(const char *what);
/* Has it calls of this communicator? */
bool group_has(const struct rmx_comm *comm);
/* A call in the group has failed with this code; the text is set. Returns the code. */
int group_spoil(int code);
/* Keeps a checked operation. RMX_*; text set. */
int group_record(const struct operation *o);
/* The session is closing: drops what was recorded on it, and spoils the group if there was anything. */
void group_forget(const struct rmx_session *session);
