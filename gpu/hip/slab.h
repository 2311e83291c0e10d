/* SPDX-License-Identifier: MIT */
#pragma once
/* Wires (gpu/device/wire.h): pinned host memory that is taken when it is first needed, and kept. Control thread only.
 */
#include <stdbool.h>
#include <stdint.h>

struct plane;
struct slab;
struct wire;

struct slabs {
        struct slab *slabs; /* utlist */
        uint32_t n_free;
};

/* So many are free afterwards. The resident kernel is stopped for a moment if there are not: memory cannot be had while
 * it runs. */
int slabs_reserve(struct plane *plane, uint32_t n, char *error);
/* A zeroed one, which there is, and where the kernel sees it. */
struct wire *slabs_take(struct plane *plane, uint64_t *ret_device);
/* Neither kernel nor proxy uses it any more. */
void slabs_give(struct plane *plane, struct wire *wire);
/* No kernel may be resident. abandon: the context is not to be touched any more. */
void slabs_close(struct plane *plane, bool abandon);
