/* SPDX-License-Identifier: MIT */
#pragma once
/* Virtual memory of clients: chunks, each of which a descriptor stands for. See chunks.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
        _CHUNKS_E_SUCCESS,
        CHUNKS_E_INVALID,  /* of another size, or too many; text says what */
        CHUNKS_E_STRANGE,  /* there is something else among them */
        CHUNKS_E_RESOURCE, /* they cannot be packed; text says what */
};

/* Is this a descriptor of memory on a GPU as NVIDIA's driver or the kernel (dma-buf) make them? Never blocks. */
bool chunks_is_memory(int fd);
/* Packs a client's descriptors, which stay the caller's, into a bundle; each has its size, and all are so many bytes.
 */
int chunks_pack(const int *fds, uint32_t n, const uint64_t *sizes, size_t n_sizes, uint64_t bytes, int *ret_fd,
                char *text, size_t text_size);
/* How many there are in a bundle; 0: it is none. */
uint32_t chunks_count(int fd);
