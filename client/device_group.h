/* SPDX-License-Identifier: MIT */
#pragma once
/* The part of a group that is on GPUs. See device_group.c. */
#include <stdint.h>

#include "client/device_request.h"

struct device_member;
struct operation;

struct device_group {
        const char *what; /* the public call that ends the group */
        struct device_member *members;
        uint32_t n_members;
};

/* Takes the operations of communicators on GPUs, which must stay where they are; marks them as issued. Nothing is put
 * on a stream yet. RMX_*; text set; device_group_free follows in any case. */
int device_group_prepare(struct device_group *group, struct operation *operations, uint32_t n);
/* Can all of them be started and left for later? RMX_*; text set. */
int device_group_room(const struct device_group *group);
/* Puts all on their streams, waiting included. RMX_*; text set. */
int device_group_run(struct device_group *group);
/* Puts only their ringing there; a handle for each. RMX_*; text set. */
int device_group_begin(struct device_group *group, struct device_handle *ret_handles);
void device_group_free(struct device_group *group);
