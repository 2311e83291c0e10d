/* SPDX-License-Identifier: MIT */
#pragma once
/* From plans over nodes to the programs that kernels run (gpu/device/program.h). No GPU runtime, no state. */
#include <stdint.h>

#include "gpu/device/program.h"
#include "plan/plan.h"

/* Entries that the programs of these ranks (a bit each) take. 0: kernels cannot run the plan. */
uint32_t programs_size(const struct plan *plan, uint64_t here);
/* Fills so many of them; `first` is where in the table they are going to be. */
void programs_fill(const struct plan *plan, uint64_t here, uint32_t first, union program_entry *ret_entries,
                   struct program_row *ret_row);
