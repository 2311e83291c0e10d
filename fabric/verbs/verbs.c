/* SPDX-License-Identifier: MIT */
#include "fabric/verbs/verbs.h"

const struct transport transport_verbs = {
        .kind = "verbs",
        .rail_open = nic_open,
        .rail_close = nic_close,
        .rail_event = nic_event,
        .rail_poll = nic_poll,
        .rail_sleep = nic_sleep,
        .conn_begin = link_begin,
        .conn_pair = link_pair,
        .conn_end = link_end,
        .conn_send = link_send,
        .conn_receive = link_receive,
        .conn_ready = link_ready,
        .conn_work = link_work,
        .conn_heard = link_heard,
        .area_add = nic_region_add,
        .area_free = nic_region_free,
};
