/* SPDX-License-Identifier: MIT */
#pragma once
/* Sends and receives as a job. See messages.c. */
#include "harness.h"

/* Memory of a rank with its sizes filled in. In harness.c. */
void job_rank_memory(struct job *job, uint32_t rank);
/* job_prepare() of an operation RING_OP_SEND. */
void messages_prepare(struct job *job);
