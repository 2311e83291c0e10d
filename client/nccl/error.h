/* SPDX-License-Identifier: MIT */
#pragma once
/* Results and their texts. */
#include "client/nccl/nccl.h"

/* Remembers the sentence for ncclGetLastError, logs it, returns result. */
ncclResult_t error_raise(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What a call of librailmux returned: its code as a result, its sentence as ours. */
ncclResult_t error_adopt(const char *what, int code);
/* The same of one that was met earlier, with the sentence that was its own then. */
ncclResult_t error_adopt_text(const char *what, int code, const char *text);
ncclResult_t error_of_code(int code);
/* In the child of a fork, which has only one thread. */
void error_forked(void);
