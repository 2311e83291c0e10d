/* SPDX-License-Identifier: MIT */
#pragma once
/* Reductions with a factor. See redop.c. */
#include <stdint.h>

#include "client/nccl/nccl.h"

/* The reduction for librailmux: `op` itself, or one that was made for this call and goes with redop_drop. */
struct redop_use {
        uint32_t redop;
        int made;
};
ncclResult_t redop_take(struct ncclComm *comm, const char *what, ncclRedOp_t op, ncclDataType_t type,
                        ncclStream_t stream, struct redop_use *ret_use);
void redop_drop(struct ncclComm *comm, const struct redop_use *use);
/* On the host backend: makes the same reduction once more, which goes with rmx_redop_destroy. */
ncclResult_t redop_copy(struct ncclComm *comm, const char *what, uint32_t redop, uint32_t *ret_redop);
void scalars_free(struct ncclComm *comm);
