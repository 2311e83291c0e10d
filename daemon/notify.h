/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What railmuxd tells its service manager (systemd, or our keeper): notifications of sd_notify(3), in order, without
 * ever waiting for a manager that does not read. Without one (no NOTIFY_SOCKET) every call succeeds and does nothing.
 * Owned by the manager (loop thread). -errno: it has not been said, and will not be.
 */
#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

struct notify;

bool notify_present(void); /* is there a manager */
int notify_new(struct event_base *base, struct notify **ret_notify);
/* Waits a while for the manager to take what is queued. */
struct notify *notify_free(struct notify *notify);

int notify_say(struct notify *notify, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* That it lives: takes the place of one that waits, as only the newest matters. */
int notify_beat(struct notify *notify, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The fd store: a duplicate of fd is kept under a name that is not there yet; and is not kept any more. */
int notify_put(struct notify *notify, const char *name, int fd);
int notify_remove(struct notify *notify, const char *name);
/* Returns when nothing is queued here: the kernel has it all, and the manager gets it even if this process ends. */
int notify_flush(struct notify *notify, uint64_t timeout_us);
/* Returns when the manager has seen all that was said; -ETIMEDOUT if it takes longer than that. */
int notify_barrier(struct notify *notify, uint64_t timeout_us);
