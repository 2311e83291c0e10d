/* SPDX-License-Identifier: MIT */
#pragma once
/* Wires (gpu/device/wire.h): pinned host memory that is taken when it is first needed, and kept. Control thread only.
 * See slab.c. */
#include <stdbool.h>
#include <stdint.h>

struct pages;
struct plane;
struct slab;
struct wire;

#define SLABS_WIRES_MAX 512u /* of one executor: 3.7 GiB */

struct slabs {
        struct slab *slabs;  /* utlist */
        struct pages *pages; /* for the next one; NULL: there was none */
        uint32_t n, n_free;  /* wires */
        uint32_t n_wanted;   /* to be taken when the kernel has ended, which has been told to; 0: none */
};

/* So many are free afterwards. On AMD's GPUs the resident kernel is stopped for a moment if there are not. -ENOSPC:
 * SLABS_WIRES_MAX. -EBUSY: the kernel has not ended yet; it goes on by itself, and another try finds the memory there.
 * -ENOMEM. Everything else is a fault. */
int slabs_reserve(struct plane *plane, uint32_t n, char *error);
/* No kernel is resident: takes what was wanted when one did not end. */
void slabs_moment(struct plane *plane);
/* A zeroed one, which there is, and where the kernel sees it. */
struct wire *slabs_take(struct plane *plane, uint64_t *ret_device);
/* Neither kernel nor proxy uses it any more. */
void slabs_give(struct plane *plane, struct wire *wire);
/* No kernel may be resident. abandon: the context is not to be touched any more. */
void slabs_close(struct plane *plane, bool abandon);
