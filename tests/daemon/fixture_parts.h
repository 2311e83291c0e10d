/* SPDX-License-Identifier: MIT */
#pragma once
/* What the fixture's loop calls in its parts. */
struct client;
struct fixture;

void fixture_notified(struct fixture *fixture);
void executor_readable(struct fixture *fixture);
void client_readable(struct client *client);
