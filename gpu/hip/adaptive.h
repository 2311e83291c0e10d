/* SPDX-License-Identifier: MIT */
#pragma once
/* When to park, when to wake, when to close a window for mappings. See adaptive.c. */
#include <stdbool.h>
#include <stdint.h>

struct plane;

/* For how long nobody has rung. */
struct adaptive {
        uint64_t since_ns;    /* 0: never looked */
        uint64_t fingerprint; /* of all ranks' sequences */
        bool looked;          /* counters were noted in this silence */
};

/* Returns for how long the fingerprint has been the same; 0 while busy. */
uint64_t adaptive_silence(struct adaptive *adaptive, uint64_t now_ns, uint64_t fingerprint, bool busy);

/* All that ranks on this GPU have begun and finished; *ret_busy: some more begun than finished. *ret_finished: their
 * number, which counts on as long as ranks stay. Sends and receives are left out. */
uint64_t adaptive_fingerprint(const struct plane *plane, bool *ret_busy, uint64_t *ret_finished);
/* Of tick: all three policies. 0, or a fault. */
int adaptive_tick(struct plane *plane, char *error);
/* Closes retired mappings now, stopping the kernel for a moment if it runs; for a few milliseconds at most.
 * *ret_closed: one was. 0, or a fault. */
int adaptive_window(struct plane *plane, bool *ret_closed, char *error);
/* Ends the parking, if it is on: something new has come. 0, or a fault. */
int adaptive_wake(struct plane *plane, char *error);
/* Parked: what can be done for the next launch. 0, or a fault. */
int adaptive_rest(struct plane *plane, char *error);
/* The same as adaptive_wake, but areas are not told yet (rings_tell_parked): who rings raises wake words in vain. */
int adaptive_launch(struct plane *plane, char *error);
