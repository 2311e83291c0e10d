/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * File descriptors that must survive railmuxd, kept by the service manager (systemd or our keeper) under names:
 *   state            the state memfd
 *   client, control, executor   listening sockets (socket activation uses the same names)
 *   s<S>             socket of session S
 *   l<S>.<I>         pipe that ends with the process of session S
 *   w<G>             latch of GPU G
 *   r<S>.<G>.c|x|e   ring of session S on GPU G: client area, executor area (emulated GPUs), eventfd
 *   b<S>.<B>         buffer B of session S
 *   m<C>             marks of comm C
 * Without a manager (no NOTIFY_SOCKET) every call succeeds and does nothing.
 */
#include <stdbool.h>
#include <stdint.h>

struct fdstore; /* what was handed over at start and not yet taken */

int fdstore_new(struct fdstore **ret_store); /* reads and clears LISTEN_FDS; sets CLOEXEC */
/* Removes from the store (and from the manager) what nobody took. Returns NULL. */
struct fdstore *fdstore_free(struct fdstore *store);
/* Closes what nobody took but leaves the manager's store as it is (a start that failed). Returns NULL. */
struct fdstore *fdstore_abandon(struct fdstore *store);
bool fdstore_present(void);                                /* is there a manager that keeps fds */
int fdstore_take(struct fdstore *store, const char *name); /* fd or -ENOENT */
int fdstore_put(const char *name, int fd);                 /* keeps a duplicate; 0 or -errno */
int fdstore_remove(const char *name);
/* Returns when the manager has seen all earlier puts and removes; -ETIMEDOUT if it takes longer than that. */
int fdstore_barrier(uint64_t timeout_us);
