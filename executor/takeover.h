/* SPDX-License-Identifier: MIT */
#pragma once
/* What the marks of a dead executor say about the sequences of a comm. */
#include <stdbool.h>
#include <stdint.h>

#include "ring/marks.h"

struct takeover {
        uint32_t epoch;
        uint32_t settled;    /* everything up to here is final or lost */
        uint32_t lost_after; /* (lost_after, lost_until] is lost */
        uint32_t lost_until;
        uint32_t n_lost; /* newly declared lost */
        uint32_t error;  /* sticky status, 0: none */
        bool used;       /* an executor has served the comm before */
};

/* What became of the sequences that one set of words counts: a comm's collectives, or the sends of a pair. */
struct takeover_range {
        uint32_t settled, lost_after, lost_until;
        uint32_t n_lost; /* newly declared lost */
};

/* Reads the marks, declares what was in flight lost, writes the decision back. Safe to be killed anywhere: repeating it
 * gives the same or a larger lost range, and nobody has been told anything before it is written. False if the marks are
 * of an unknown version. */
bool takeover_read(struct marks *marks, uint32_t n_ranks, uint32_t epoch, struct takeover *ret_takeover);

/* The same for one pair; comm_failed: nothing is declared lost, the comm's error stands for it. */
struct takeover_range takeover_read_pair(struct marks_pair *marks, bool comm_failed);

enum takeover_outcome { TAKEOVER_RUN, TAKEOVER_FINAL, TAKEOVER_LOST };
enum takeover_outcome takeover_outcome(uint32_t sequence, uint32_t settled, uint32_t lost_after, uint32_t lost_until);
