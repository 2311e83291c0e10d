/* SPDX-License-Identifier: MIT */
#pragma once
/* Single steps of phases on host memory. See step.c. */
#include "gpu/host/interpret.h"

/* Tries the current step of phase p, or a piece of it. False: it is not ready, and nothing has changed. True: something
 * was done, its bytes are added to *bytes, and the cursor has moved if the step is complete. */
bool step_run(struct interpret_rank *rank, struct interpret_work *work, uint32_t p, uint64_t *bytes);
