/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * How far the sends and receives of the ranks on a GPU are, for reports on what waits. They are numbered by pairs, so
 * the words of table_report say nothing of them. In the same host memory, behind the report. C and device code.
 *
 * Lane 0 writes both, which is one worker for all of a rank's requests: `rung` when it takes the line, `finished` when
 * both sides have met. They are no part of any exchange.
 */
#include "gpu/device/tables.h"

struct table_pair {
        uint32_t rung;     /* sequence of the pair that was begun last */
        uint32_t finished; /* ... and finished */
};

struct table_pairs {
        struct table_pair pair[TABLE_RANKS][2][STAGING_RANKS_MAX]; /* rank of this GPU; 1: it sends; the peer */
};

STAGING_INLINE struct table_pairs *table_pairs(struct table_report *report) {
        return (struct table_pairs *)(report + 1);
}
