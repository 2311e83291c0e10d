/* SPDX-License-Identifier: MIT */
#pragma once
/* Memory on a GPU as its owner exported it. railmuxd only passes it on, and keeps it for executors that come later. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_MEMORY_HANDLE_BYTES 64u
#define DEVICE_MEMORY_IPC          1u
#define DEVICE_MEMORY_CHUNKS       2u /* a bundle of descriptors goes with it (chunks.h); all of them are meant */

/* Elements are aligned where the memory is: an executor's kernels would end with a word at an odd address. */
#define DEVICE_MEMORY_ALIGNMENT 16u

/* Plain data without padding: it stands in records of the state as it is. */
struct device_memory {
        uint32_t kind; /* 0: none */
        uint32_t n_handle;
        uint8_t handle[DEVICE_MEMORY_HANDLE_BYTES]; /* of chunks: what tells them from others of its session */
        uint64_t allocation_bytes;
        uint64_t offset;
        uint64_t bytes;
};
_Static_assert(sizeof(struct device_memory) == 96, "no padding");

enum {
        _DEVICE_MEMORY_E_SUCCESS,
        DEVICE_MEMORY_E_INVALID, /* text says what */
};

/* The fields of a DeviceMemory of any protocol; kind 0 is fine and gives zeros. */
int device_memory_take(uint32_t kind, const void *handle, size_t n_handle, uint64_t allocation_bytes, uint64_t offset,
                       uint64_t bytes, struct device_memory *ret_memory, char *text, size_t text_size);
/* A number for it that other memory does not have but by chance. */
uint64_t device_memory_identity(const struct device_memory *memory);
bool device_memory_equal(const struct device_memory *a, const struct device_memory *b);
