/* SPDX-License-Identifier: MIT */
#pragma once
/* Shared memory made and sealed by the daemon. All fds are O_CLOEXEC. Return 0 or negative errno. */
#include <stddef.h>

/* A memfd of exactly `size` bytes (page-rounded by the caller), mode 0600, sealed SHRINK|GROW|SEAL. */
int memfd_new(const char *name, size_t size, int *ret_fd);
/* A second, read-only open file description of the same memfd (for clients). */
int memfd_reopen_readonly(int fd, int *ret_fd);
/* Maps [0, size) after checking with fstat that the file is at least that long and (if must_seal) sealed against
 * shrinking. */
int memfd_map(int fd, size_t size, int writable, int must_seal, void **ret_address);
void memfd_unmap(void *address, size_t size); /* NULL is fine */
