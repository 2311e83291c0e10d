/* SPDX-License-Identifier: MIT */
#pragma once
/* The sends and receives of a group on the host backend. See transfer.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/nccl/nccl.h"

struct calls;
struct rmx_request;

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
int transfer_record(const struct transfer *transfer);
/* Are they, with the calls before them, few enough for one group of librailmux? Then this makes it of them, behind the
 * calls, which are in it if it is open, and ends it. request, NULL: none, has it only started. RMX_*. */
bool transfers_are_few(const struct transfers *transfers, const struct calls *calls, struct ncclComm *const *comms,
                       uint32_t n_comms);
int transfers_issue(const struct transfers *transfers, const struct calls *calls, bool open,
                    struct rmx_request *request);
/* Issues the group of the communicators, and waits for it: transfers, behind calls, which are in librailmux's group if
 * that is open, and of which it may take some. *ret_code is what librailmux said. */
ncclResult_t transfers_run(const struct transfers *transfers, struct calls *calls, bool open,
                           struct ncclComm *const *comms, uint32_t n_comms, const char *what, int *ret_code);
void transfers_free(struct transfers *transfers);
