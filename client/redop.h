/* SPDX-License-Identifier: MIT */
#pragma once
/* Reductions made by rmx_redop_create_premul_sum, and the form in which factors travel. */
#include <stdint.h>

struct rmx_comm;

/* Handles: below are the constants of the header, above is what is no int, which NCCL's numbers are. */
#define REDOP_FIRST 256u
#define REDOP_LAST  0x7fffffffu

/* The handle that was given last in this process. Here for tests, which cannot make so many. */
extern _Atomic uint32_t redop_last;

/* A factor as it was found: its bits, or where to read it when the request is issued. */
struct redop_factor {
        const void *memory; /* NULL: bits */
        uint64_t bits;
};

/* What a handle of comm stands for. RMX_*; text set. */
int redop_find(struct rmx_comm *comm, const char *what, uint32_t handle, uint32_t type,
               struct redop_factor *ret_factor);
/* The word for an argument block: see ring.h. */
uint64_t redop_encode(const void *scalar, uint32_t type);
static inline uint64_t redop_factor_bits(const struct redop_factor *factor, uint32_t type) {
        return factor->memory ? redop_encode(factor->memory, type) : factor->bits;
}
/* Frees all of a comm's. */
void redops_free(struct rmx_comm *comm);
