/* SPDX-License-Identifier: MIT */
#pragma once
/* What a program may say about a communicator, of which the daemon needs little. */
#include <stdbool.h>
#include <stdint.h>

#include "client/nccl/nccl.h"

struct config {
        bool blocking;
        char name[64];       /* "": none */
        uint32_t max_blocks; /* of kernels, maxCTAs; 0: no bound */
};

/* The library's defaults, those of the environment included. */
struct config config_default(void);
/* How long making a communicator waits for other ranks, as the environment says; 0: for ever. */
uint32_t config_timeout_ms(void);
/* Defaults, overlaid by what is given, which may be NULL. */
ncclResult_t config_read(const char *what, const ncclConfig_t *given, struct config defaults,
                         struct config *ret_config);
