/* SPDX-License-Identifier: MIT */
#pragma once
/* What every file with public calls needs. */
#include "client/nccl/nccl.h"

/* The call that begins with p is the same one under another name; must stand in the file that defines the call. */
#define TWIN(name) extern __typeof__(name) p##name __attribute__((alias(#name), visibility("default")))
