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
 * notify.h puts and removes them.
 */
struct notify;
struct fdstore; /* what was handed over at start and not yet taken */

/* Reads and clears LISTEN_FDS; sets CLOEXEC. */
int fdstore_new(struct notify *notify, struct fdstore **ret_store);
/* Removes from the store (and from the manager) what nobody took. Returns NULL. */
struct fdstore *fdstore_free(struct fdstore *store);
/* Closes what nobody took but leaves the manager's store as it is (a start that failed). Returns NULL. */
struct fdstore *fdstore_abandon(struct fdstore *store);
int fdstore_take(struct fdstore *store, const char *name); /* fd or -ENOENT */
