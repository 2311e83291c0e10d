/* SPDX-License-Identifier: MIT */
/* What ranks on this GPU have begun and finished, as the control thread finds it in memory that kernels write. */
#include "gpu/device/pairs.h"
#include "gpu/hip/comm_private.h"
#include "gpu/hip/comms.h"
#include "gpu/hip/hip.h"

bool comms_rank_ended(const struct plane *plane, uint32_t index) {
        const struct table_rank *entry = &plane->tables.shadow.table->ranks[index];

        return entry->abort && !entry->has_last;
}

/* What ends the rank's communicator: what its kernel has found, or the proxy. */
static uint32_t rank_status(const struct plane *plane, uint32_t index, const char **ret_why) {
        uint32_t status;

        if (comms_rank_ended(plane, index))
                return 0; /* it has been told, or knows itself. What asks for an abort is told although a rank has left
                             (gpu/device/reach.h). */
        status = __atomic_load_n(&plane->tables.report->rank[index].status, __ATOMIC_RELAXED);
        return status ? status : comm_far_status(plane->ranks[index].comm, ret_why);
}

uint32_t comms_report(const struct plane *plane, struct plane_rank_report *reports, uint32_t max) {
        const struct table_report *from = plane->tables.report;
        uint32_t n = 0;

        for (uint32_t i = 0; i < TABLE_RANKS && n < max; i++) {
                const struct plane_rank *rank = &plane->ranks[i];

                if (!rank->comm)
                        continue;
                /* Statistics; each is one word, and they need not fit each other. */
                reports[n] = (struct plane_rank_report){
                        .comm = rank->comm->id,
                        .rank = rank->rank,
                        .rung = __atomic_load_n(&from->rank[i].rung, __ATOMIC_RELAXED),
                        .finished = __atomic_load_n(&from->rank[i].finished, __ATOMIC_RELAXED),
                        .operation = __atomic_load_n(&from->rank[i].operation, __ATOMIC_RELAXED),
                };
                reports[n].status = rank_status(plane, i, &reports[n].why);
                n++;
        }
        return n;
}

/* A lane that takes a line while this is read: rung is read last, so no pair is ever ahead of itself. */
static bool pair_waits(const struct table_pair *pair, uint32_t *ret_rung, uint32_t *ret_finished) {
        *ret_finished = __atomic_load_n(&pair->finished, __ATOMIC_RELAXED);
        *ret_rung = __atomic_load_n(&pair->rung, __ATOMIC_RELAXED);
        return *ret_rung != *ret_finished;
}

uint32_t comms_pairs(const struct plane *plane, struct plane_pair_report *reports, uint32_t max) {
        const struct table_pairs *from = table_pairs(plane->tables.report);
        uint32_t n = 0, rung, finished;

        for (uint32_t i = 0; i < TABLE_RANKS; i++) {
                const struct plane_rank *rank = &plane->ranks[i];

                for (uint32_t k = 0; rank->comm && k < 2 * rank->comm->n_ranks; k++) {
                        const uint32_t peer = k / 2, sends = k % 2;

                        if (n < max && pair_waits(&from->pair[i][sends][peer], &rung, &finished))
                                reports[n++] = (struct plane_pair_report){.comm = rank->comm->id,
                                                                          .rank = rank->rank,
                                                                          .peer = peer,
                                                                          .sends = sends,
                                                                          .rung = rung,
                                                                          .finished = finished};
                }
        }
        return n;
}

uint64_t comms_pairs_finished(const struct plane *plane, bool *ret_waits) {
        const struct table_pairs *from = table_pairs(plane->tables.report);
        uint32_t rung, finished;
        uint64_t sum = 0;

        *ret_waits = false;
        for (uint32_t i = 0; i < plane->ranks_end; i++) {
                const struct plane_rank *rank = &plane->ranks[i];
                const bool ended = comms_rank_ended(plane, i); /* its pairs may stay open */

                for (uint32_t k = 0; rank->comm && k < 2 * rank->comm->n_ranks; k++) {
                        *ret_waits |= pair_waits(&from->pair[i][k % 2][k / 2], &rung, &finished) && !ended;
                        sum += finished;
                }
        }
        return sum;
}
