/* SPDX-License-Identifier: MIT */
#include "daemon/executor_report.h"

#include "daemon/comm.h"
#include "daemon/executor_link.h"
#include "daemon/manager.h"
#include "daemon/tenant.h"
#include "util/clock.h"
#include "util/log.h"
#include <inttypes.h>
#include <stdio.h>

void executor_report_statistics(struct executor_link *link, const Railmux__Executor__Statistics *statistics) {
        uint64_t now = clock_now_ns();

        for (size_t i = 0; i < statistics->n_comms; i++) {
                const Railmux__Executor__CommStatistics *from = statistics->comms[i];
                struct comm *comm = manager_comm(link->manager, from->comm);
                struct comm_statistics *to;

                if (!comm)
                        continue;
                to = &comm->statistics;
                to->at_ns = now;
                to->final_sequence = from->final_sequence;
                to->operations = from->operations;
                to->bytes = from->bytes;
                to->lost = from->lost;
                to->waiting_operation = from->waiting_operation;
                to->waiting_ns = from->waiting_ns;
                for (size_t r = 0; r < from->n_rung && r < comm->n_ranks; r++)
                        to->rung[r] = from->rung[r];
                if (from->waiting_operation != comm->stall.operation || from->waiting_sequence != comm->stall.sequence)
                        comm->stall.at_ns = 0; /* that wait is over */
        }
        if (statistics->counters) {
                const Railmux__Executor__Counters *from = statistics->counters;

                link->counters = (struct executor_counters){
                        .at_ns = now,
                        .operations = from->operations,
                        .bytes = from->bytes,
                        .invalid_requests = from->invalid_requests,
                        .sleeps = from->sleeps,
                        .wakes = from->wakes,
                        .plans = from->plans,
                        .lost = from->lost,
                        .mismatches = from->mismatches,
                        .uptime_ns = from->uptime_ns,
                        .cpu_ns = from->cpu_ns,
                };
        }
}

void executor_report_stall(struct executor_link *link, const Railmux__Executor__Stall *stall) {
        struct comm *comm = manager_comm(link->manager, stall->comm);
        char ranks[128] = "";
        char number[24];
        size_t used = 0;

        if (!comm)
                return;
        comm->stall = (struct comm_stall){.at_ns = clock_now_ns(),
                                          .sequence = stall->sequence,
                                          .operation = stall->operation,
                                          .waiting_ns = stall->waiting_ns};
        for (size_t i = 0; i < stall->n_missing_ranks; i++) {
                if (stall->missing_ranks[i] >= comm->n_ranks)
                        continue;
                comm->stall.missing_ranks |= UINT64_C(1) << stall->missing_ranks[i];
                if (used < sizeof(ranks) - 8)
                        used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, " %u", stall->missing_ranks[i]);
        }
        snprintf(number, sizeof(number), "%" PRIu64, comm->number);
        log_fields(LOG_LEVEL_NOTICE, (const char *const[]){"COMM", number, "TENANT", comm->tenant->name, NULL},
                   "comm %s: %s %u has waited %.1f s for rank%s", number, plan_operation_name(stall->operation),
                   stall->sequence, (double)stall->waiting_ns / 1e9, ranks);
}
