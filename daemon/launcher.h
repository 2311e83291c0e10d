/* SPDX-License-Identifier: MIT */
#pragma once
/* Starts executors: over D-Bus under systemd (railmux-executor@NAME.service), through the keeper with --keep, else as a
 * child. */
struct config;
struct event_base;
struct launcher;
struct notify;

int launcher_new(struct event_base *base, struct notify *notify, const struct config *config,
                 struct launcher **ret_launcher);
struct launcher *launcher_free(struct launcher *launcher); /* child mode: terminates and reaps its executors */
/* Asks for executor `name` ("host"). Idempotent. 0 means asked for, not yet connected. -errno is logged by the caller,
 * who tries again later. In child mode the launcher restarts a dead executor by itself (restart.c says when). */
int launcher_start(struct launcher *launcher, const char *name);
const char *launcher_kind(const struct launcher *launcher); /* "systemd", "keeper", "child" */
