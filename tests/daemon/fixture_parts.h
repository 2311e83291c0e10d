/* SPDX-License-Identifier: MIT */
#pragma once
/* What the fixture's loop calls in its parts. */
#include <stdbool.h>

struct client;
struct fixture;

/* Directory and files of a fixture; nothing runs yet. */
void fixture_prepare(struct fixture *fixture, const char *config, bool managed);
void fixture_notified(struct fixture *fixture);
void executor_readable(struct fixture *fixture);
void client_readable(struct client *client);
/* Nothing that the daemon listens at comes after this. */
bool control_listens(const struct fixture *fixture);
/* What railmuxctl has printed last, if it has run. */
void ctl_show_printed(void);
