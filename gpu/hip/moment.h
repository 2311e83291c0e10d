/* SPDX-License-Identifier: MIT */
#pragma once
/* A moment without a resident kernel, for what cannot be done while there is one. Control thread only. See moment.c. */
#include <stdbool.h>
#include <stdint.h>

struct plane;

struct moment {
        bool asked;        /* somebody has not got it in time: it will be, in tick */
        bool resumes;      /* between begin and end: one ran before */
        uint64_t since_ns; /* asked: when the kernel was told to end */
};

/* The resident kernel has ended, and none is queued; moment_end() is to be called. -EBUSY: it has not in time, and ends
 * by itself; what is wanted is done in tick, or another try finds none. All other failures are faults. what: what it is
 * for, for the error's text. */
int moment_begin(struct plane *plane, const char *what, char *error);
/* Launches what ran before. A failure is a fault. */
int moment_end(struct plane *plane, char *error);
/* Of tick. *ret_busy: the kernel is still to end, and nobody should change that. A failure is a fault. */
int moment_tick(struct plane *plane, bool *ret_busy, char *error);
