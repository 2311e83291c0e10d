/* SPDX-License-Identifier: MIT */
#pragma once
/* What the fixture's loop calls in its parts. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct client;
struct fixture;

/* Directory and files of a fixture; nothing runs yet. */
void fixture_prepare(struct fixture *fixture, const char *config, bool managed);
void fixture_notified(struct fixture *fixture);
void fixture_hear(struct fixture *fixture); /* all notifications that have come */
void executor_readable(struct fixture *fixture);
void client_readable(struct client *client);
/* Nothing that the daemon listens at comes after this. */
bool control_listens(const struct fixture *fixture);
/* What railmuxctl has printed last, if it has run. */
void ctl_show_printed(void);
/* Has it been that long without a sign that a process has heard the signal, and would it hear it now? For
 * ThreadSanitizer, see there. */
bool signal_is_lost(pid_t pid, int number, uint64_t *again_ns);
uint64_t signal_again_ns(void);
void plane_repeat_signals(struct fixture *fixture);
