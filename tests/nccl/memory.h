/* SPDX-License-Identifier: MIT */
#pragma once
/* The memory that calls work on, and the streams that they are ordered on. See memory.c. */
#include <stddef.h>
#include <stdint.h>

#include "tests/nccl/abi.h"

enum memory_kind {
        MEMORY_HOST,   /* of malloc */
        MEMORY_ALLOC,  /* of ncclMemAlloc, which the host can reach */
        MEMORY_DEVICE, /* of the GPU runtime */
        MEMORY_KINDS,
};

/* -1 for no kind. */
int memory_kind_of(const char *name);
const char *memory_kind_name(enum memory_kind kind);

/* All calls return 0, or -1 with a sentence on stderr. */
/* Once in each process, before anything else. */
int memory_init(enum memory_kind kind, const struct nccl_api *api);
/* GPUs that there are; 0 for the other kinds. */
int memory_devices(void);
/* Makes a device the calling thread's; numbers beyond the last begin again. */
int memory_use(uint32_t device);
int memory_new(size_t bytes, void **ret_address);
int memory_free(void *address);
/* Between host and memory of the kind; returns when the bytes are there. */
int memory_write(void *to, const void *from, size_t bytes);
int memory_read(void *to, const void *from, size_t bytes);
/* A stream is NULL where there are none. */
int memory_stream_new(void **ret_stream);
int memory_stream_free(void *stream);
/* 1: all work on it is done, 0: not yet, -1: it failed. Never waits. */
int memory_stream_idle(void *stream);
