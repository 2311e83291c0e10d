/* SPDX-License-Identifier: MIT */
#pragma once
/* The sends and receives of a group on the host backend. See transfer.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/nccl/nccl.h"

struct transfer {
        struct ncclComm *comm;
        void *address;
        size_t count;
        uint32_t type;
        uint32_t peer;
        bool sends;
        /* Its place. */
        uint32_t turn, distance, sender;
        uint32_t index;
};

struct transfers {
        struct transfer *list;
        uint32_t n, capacity;
};

/* Checks it, and keeps it for the end. */
ncclResult_t transfers_add(struct transfers *transfers, const char *what, const struct transfer *transfer);
/* The first transfer behind `first` of another communicator, where they are sorted by communicator. */
uint32_t transfers_next_comm(const struct transfers *transfers, uint32_t first);
/* Are they few enough for one group of librailmux? Then this records them in it, opening it unless it is open. RMX_*.
 */
bool transfers_are_few(struct transfers *transfers);
int transfer_record(const struct transfer *transfer);
int transfers_record(const struct transfers *transfers, bool grouped);
/* Issues all and waits for them; those that are many it takes. grouped: librailmux's group is open and has the
 * collectives, which come first. *ret_code is what librailmux said. */
ncclResult_t transfers_run(struct transfers *transfers, const char *what, bool grouped, int *ret_code);
void transfers_free(struct transfers *transfers);
