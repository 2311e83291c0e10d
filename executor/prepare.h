/* SPDX-License-Identifier: MIT */
#pragma once
/* What takes long in railmuxd's calls, beforehand and beside the control thread: the plans of a comm. */
#include <stdbool.h>

#include "proto/executor.pb-c.h"

struct executor;

/* May the call be carried out now, without keeping everybody waiting? If not, what it lacks is being made, and the
 * executor's attention_fd tells when there is more of it. */
bool prepare_call(struct executor *executor, const Railmux__Executor__Message *message);
