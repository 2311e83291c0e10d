/* SPDX-License-Identifier: MIT */
#pragma once
/* Bringing an executor that (re)connected to what the daemon knows. */
#include "proto/executor.pb-c.h"

struct executor_link;

/* Notes what it holds; what the daemon does not know is remembered for detaching. */
void executor_sync_inventory(struct executor_link *link, const Railmux__Executor__Inventory *inventory);
/* READY: attaches what it lacks, repeats what it was told and has not confirmed. */
void executor_sync_ready(struct executor_link *link);
/* The connection is gone: forgets what it acknowledged. */
void executor_sync_forget(struct executor_link *link);
