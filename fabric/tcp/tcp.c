/* SPDX-License-Identifier: MIT */
#include "fabric/tcp/tcp.h"

const struct transport transport_tcp = {
        .kind = "tcp",
        .conn_begin = conn_up,
        .conn_send = tcp_send,
        .conn_receive = tcp_receive,
};
