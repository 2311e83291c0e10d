/* SPDX-License-Identifier: MIT */
#pragma once
/* The sends and receives of a group on the host backend. See transfer.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/nccl/nccl.h"

struct calls;

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
/* How many are the communicator's. */
uint32_t transfers_count(const struct transfers *transfers, const struct ncclComm *comm);
/* Are they few enough for one group of librailmux? Then this records them in it, opening it unless it is open. RMX_*.
 */
bool transfers_are_few(const struct transfers *transfers, struct ncclComm *const *comms, uint32_t n_comms);
int transfer_record(const struct transfer *transfer);
int transfers_record(const struct transfers *transfers, bool grouped);
/* Issues those of the communicators, which are all, and waits for them. calls: of librailmux's group, which come first;
 * NULL: that is not open. *ret_code is what librailmux said. */
ncclResult_t transfers_run(const struct transfers *transfers, struct ncclComm *const *comms, uint32_t n_comms,
                           const char *what, const struct calls *calls, int *ret_code);
void transfers_free(struct transfers *transfers);
