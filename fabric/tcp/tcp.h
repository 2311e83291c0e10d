/* SPDX-License-Identifier: MIT */
#pragma once
/* Rails whose frames go over the sockets of their connections. */
#include "fabric/private.h"
#include "fabric/transport.h"

void tcp_send(struct fabric_conn *conn);
void tcp_receive(struct fabric_conn *conn, uint64_t now_ns);
