/* SPDX-License-Identifier: MIT */
#pragma once
/* Memory of other processes on GPUs, mapped here. Control thread only. See memory.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/plane.h"

struct memory_mapping;

struct memory {
        uint32_t device;
        struct memory_mapping *handles; /* uthash by IPC handle; retired ones included */
        struct memory_mapping *retired; /* utlist, oldest first */
        uint32_t n_retired;
};

void memory_init(struct memory *memory, uint32_t device);
/* Everything has been released, and no kernel is resident; abandon: the context is not to be touched any more. */
void memory_deinit(struct memory *memory, bool abandon);
#define MEMORY_ALL_RINGS UINT32_MAX
/* *ret_address is where memory->offset is, of memory->bytes. rings: whose tasks may name it still when it is released,
 * a bit each. -EINVAL: not what it says. -EBUSY: an earlier allocation in the same place is still mapped, perhaps one
 * that was released and not yet closed. */
int memory_import(struct memory *memory, uint32_t rings, const struct plane_memory *what,
                  struct memory_mapping **ret_mapping, uint64_t *ret_address, char *error);
/* -EINVAL if the runtime says that some of it lies on another GPU than the kernels. */
int memory_check_here(const struct memory *memory, const struct memory_mapping *mapping, char *error);
/* No kernel uses it any more. It stays mapped until memory_close. NULL is allowed. */
void memory_release(struct memory *memory, struct memory_mapping *mapping);
/* Nanoseconds since the oldest one was released; 0 if there is none. */
uint64_t memory_oldest(const struct memory *memory, uint64_t now_ns);
/* Unmaps what was released and has not been imported for one of these rings, a bit each, until there is none or
 * budget_ns have passed. No kernel may be resident. */
int memory_close(struct memory *memory, uint32_t kept_rings, uint64_t budget_ns, char *error);
