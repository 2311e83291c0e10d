/* SPDX-License-Identifier: MIT */
#pragma once
/* What a client may say, and what is done about it. */
#include "daemon/comm_id.h"
#include "daemon/session.h"
#include <stdint.h>

struct call;

/* One message. It may end the session (session_end), never free it. */
void session_dispatch(struct session *session, const Railmux__Session__Message *message);
/* Remembers a call that is answered later. A session with too many of them ends. */
void session_wait_for(struct session *session, uint64_t id, struct call **list);
/* Copies a name for operators, bounded and printable. */
void session_clean_name(char ret_name[SESSION_NAME_MAX], const char *name);
/* The answer to IdCreate. */
void session_send_comm_id(struct session *session, uint64_t id, const uint8_t bytes[COMM_ID_BYTES]);
