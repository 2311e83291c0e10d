/* SPDX-License-Identifier: MIT */
/*
 * What executors say of themselves.
 *
 * The host executor knows all ranks of its comms. The executor of a GPU knows the ranks on it alone, so what it says is
 * put together here: numbers of ranks come from the executor that has them, a comm is as far as its slowest rank, and
 * it waits for as long as the one that waits longest. A stall of theirs names nobody; all executors of the node are
 * then asked how far their ranks are, and those who are behind the sequence that stalls are the missing ones.
 *
 * Sends and receives are numbered by pairs. Each executor tells which of its ranks' wait for their other half; the peer
 * is missing if its executor tells of no such request of the peer: one that has met its other half is over for both.
 *
 * Of ranks on other nodes nobody here knows anything. Where no rank here is missing it is they who are waited for.
 */
#include "daemon/executor_report.h"

#include "daemon/comm.h"
#include "daemon/exchange_report.h"
#include "daemon/executor_link.h"
#include "daemon/manager.h"
#include "daemon/tenant.h"
#include "plan/plan.h"
#include "ring/line.h"
#include "util/clock.h"
#include "util/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* How far the slowest rank is, of those that still take part. */
static uint32_t report_final(const struct comm *comm) {
        uint32_t final = 0;
        bool any = false;

        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                if (comm->members[r].leaving || comm->members[r].lost || comm->members[r].away)
                        continue;
                if (!any || ring_sequence_before(comm->statistics.finished[r], final))
                        final = comm->statistics.finished[r];
                any = true;
        }
        return final;
}

static void report_wait(struct executor_link *link, const Railmux__Executor__CommStatistics *from,
                        struct comm_statistics *to) {
        if (to->waiting_operation && to->waiting_link != link->index &&
            (!from->waiting_operation || from->waiting_ns < to->waiting_ns))
                return;
        to->waiting_operation = from->waiting_operation;
        to->waiting_ns = from->waiting_ns;
        to->waiting_link = link->index;
}

/* Its place; n: none. */
static uint32_t pair_find(const struct comm_pair_wait *waits, uint32_t n, uint32_t rank, uint32_t peer, bool sends) {
        uint32_t i = 0;

        while (i < n && (waits[i].rank != rank || waits[i].peer != peer || waits[i].sends != sends))
                i++;
        return i;
}

/* What this executor does not say any more is over. */
static void report_pairs(struct executor_link *link, const Railmux__Executor__CommStatistics *from,
                         const struct comm *comm, struct comm_statistics *to) {
        struct comm_pair_wait before[COMM_PAIR_WAITS];
        uint32_t n_before = to->n_pair_waits, n = 0;

        memcpy(before, to->pair_waits, n_before * sizeof(before[0]));
        for (uint32_t i = 0; i < n_before; i++)
                if (before[i].link != link->index)
                        to->pair_waits[n++] = before[i];
        for (size_t i = 0; i < from->n_pairs && n < COMM_PAIR_WAITS; i++) {
                const Railmux__Executor__PairWait *wait = from->pairs[i];
                const uint32_t known = pair_find(before, n_before, wait->rank, wait->peer, wait->sends);
                const bool same = known < n_before && before[known].sequence == wait->sequence;

                if (wait->rank >= comm->n_ranks || wait->peer >= comm->n_ranks)
                        continue;
                to->pair_waits[n++] = (struct comm_pair_wait){.link = link->index,
                                                              .rank = wait->rank,
                                                              .peer = wait->peer,
                                                              .sends = wait->sends,
                                                              .sequence = wait->sequence,
                                                              .rung = wait->rung,
                                                              .since_ns = to->at_ns - wait->waiting_ns,
                                                              .stalled = same && before[known].stalled,
                                                              .told = same && before[known].told};
        }
        to->n_pair_waits = n;
}

bool executor_report_stalled(const struct comm *comm) {
        struct exchange_wait wait;

        if (comm->stall.at_ns || (comm->exchange_stall.stalled && exchange_waits(comm, &wait)))
                return true;
        for (uint32_t i = 0; i < comm->statistics.n_pair_waits && !comm->code; i++)
                if (comm->statistics.pair_waits[i].stalled)
                        return true;
        return false;
}

bool executor_report_pair_called(const struct comm *comm, const struct comm_pair_wait *wait) {
        const struct comm_statistics *known = &comm->statistics;
        uint32_t other = pair_find(known->pair_waits, known->n_pair_waits, wait->peer, wait->rank, !wait->sends);

        return other < known->n_pair_waits && !ring_sequence_before(known->pair_waits[other].rung, wait->sequence);
}

void executor_report_pair_text(const struct comm *comm, const struct comm_pair_wait *wait, char text[COMM_PAIR_TEXT]) {
        snprintf(text, COMM_PAIR_TEXT, "rank %u has waited in %s %u %s rank %u%s", wait->rank,
                 wait->sends ? "send" : "recv", wait->sequence, wait->sends ? "to" : "from", wait->peer,
                 executor_report_pair_called(comm, wait) ? ", which has called it," : "");
}

/* From an executor that knows some of the ranks. */
static void report_part(struct executor_link *link, const Railmux__Executor__CommStatistics *from, struct comm *comm) {
        struct comm_statistics *to = &comm->statistics;

        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                if (comm->members[r].away || comm->members[r].gpu - link->first_gpu >= link->n_gpus)
                        continue;
                if (r < from->n_rung)
                        to->rung[r] = from->rung[r];
                if (r < from->n_finished)
                        to->finished[r] = from->finished[r];
        }
        to->operations = to->final_sequence = report_final(comm);
        report_wait(link, from, to);
        report_pairs(link, from, comm, to);
        exchange_report(link, from, comm);
        to->operations += exchange_calls(comm);
        if (comm->stall.at_ns && !ring_sequence_before(to->final_sequence, comm->stall.sequence))
                comm->stall.at_ns = 0; /* that wait is over */
}

static void report_gpus(struct executor_link *link, const Railmux__Executor__Counters *counters) {
        for (size_t i = 0; i < counters->n_gpus; i++) {
                for (uint32_t k = 0; k < link->n_gpu_infos; k++) {
                        if (link->gpus[k].index != counters->gpus[i]->index)
                                continue;
                        link->gpus[k].policy = counters->gpus[i]->policy;
                        link->gpus[k].resident_blocks = counters->gpus[i]->resident_blocks;
                        link->gpus[k].parked = counters->gpus[i]->parked;
                }
        }
}

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
                if (link->manager->on_device) {
                        report_part(link, from, comm);
                        continue;
                }
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
                        .parks = from->parks,
                };
                report_gpus(link, from);
        }
}

static void pair_log(struct comm *comm, struct comm_pair_wait *wait, uint64_t now_ns) {
        char number[24], text[COMM_PAIR_TEXT];

        wait->told = true;
        executor_report_pair_text(comm, wait, text);
        snprintf(number, sizeof(number), "%" PRIu64, comm->number);
        log_fields(LOG_LEVEL_NOTICE, (const char *const[]){"COMM", number, "TENANT", comm->tenant->name, NULL},
                   "comm %s: %s for %.1f s", number, text, (double)(now_ns - wait->since_ns) / 1e9);
}

static void stall_log(struct comm *comm) {
        char ranks[128] = "";
        char number[24];
        size_t used = 0;

        comm->stall.told = true;
        for (uint32_t r = 0; r < comm->n_ranks; r++)
                if (comm->stall.missing_ranks >> r & 1 && used < sizeof(ranks) - 8)
                        used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, " %u", r);
        snprintf(number, sizeof(number), "%" PRIu64, comm->number);
        log_fields(LOG_LEVEL_NOTICE, (const char *const[]){"COMM", number, "TENANT", comm->tenant->name, NULL},
                   "comm %s: %s %u has waited %.1f s for %s%s", number, plan_operation_name(comm->stall.operation),
                   comm->stall.sequence, (double)comm->stall.waiting_ns / 1e9,
                   used               ? "rank"
                   : comm_spans(comm) ? "ranks of other nodes"
                                      : "its executors",
                   ranks);
}

/* All executors have said how far their ranks are. */
static void stalls_answered(void *data) {
        struct manager *manager = data;

        manager->stalls_asked = false;
        for (struct comm *comm = manager->comms; comm; comm = comm->hh.next) {
                for (uint32_t i = 0; i < comm->statistics.n_pair_waits; i++) {
                        struct comm_pair_wait *wait = &comm->statistics.pair_waits[i];

                        if (wait->stalled && !wait->told)
                                pair_log(comm, wait, clock_now_ns());
                }
                exchange_stall_answered(comm);
                if (!comm->stall.at_ns || comm->stall.told)
                        continue;
                for (uint32_t r = 0; r < comm->n_ranks; r++)
                        if (!comm->members[r].leaving && !comm->members[r].lost && !comm->members[r].away &&
                            ring_sequence_before(comm->statistics.rung[r], comm->stall.sequence))
                                comm->stall.missing_ranks |= UINT64_C(1) << r;
                stall_log(comm);
        }
}

static void stalls_ask(struct manager *manager) {
        if (!manager->stalls_asked)
                manager->stalls_asked = manager_refresh(manager, stalls_answered, manager) == 0;
}

/* The statistics that are asked for now tell the rest. */
static void report_stalled_pair(struct executor_link *link, struct comm *comm, const Railmux__Executor__Stall *stall) {
        const bool sends = stall->operation == RING_OP_SEND;
        struct comm_statistics *to = &comm->statistics;
        uint32_t at = pair_find(to->pair_waits, to->n_pair_waits, stall->rank, stall->peer, sends);

        if (stall->rank >= comm->n_ranks || stall->peer >= comm->n_ranks || at == COMM_PAIR_WAITS)
                return;
        to->n_pair_waits += at == to->n_pair_waits;
        to->pair_waits[at] = (struct comm_pair_wait){.link = link->index,
                                                     .rank = stall->rank,
                                                     .peer = stall->peer,
                                                     .sends = sends,
                                                     .sequence = stall->sequence,
                                                     .rung = stall->sequence,
                                                     .since_ns = clock_now_ns() - stall->waiting_ns,
                                                     .stalled = true};
        stalls_ask(link->manager);
}

void executor_report_stall(struct executor_link *link, const Railmux__Executor__Stall *stall) {
        struct manager *manager = link->manager;
        struct comm *comm = manager_comm(manager, stall->comm);

        if (comm && manager->on_device && stall->exchanged) {
                if (exchange_stalls(comm))
                        stalls_ask(manager);
                return;
        }
        if (comm && manager->on_device && (stall->operation == RING_OP_SEND || stall->operation == RING_OP_RECV)) {
                report_stalled_pair(link, comm, stall);
                return;
        }
        if (!comm || (manager->on_device && comm->stall.at_ns && comm->stall.sequence == stall->sequence))
                return; /* another executor has said so */
        comm->stall = (struct comm_stall){.at_ns = clock_now_ns(),
                                          .sequence = stall->sequence,
                                          .operation = stall->operation,
                                          .waiting_ns = stall->waiting_ns};
        for (size_t i = 0; i < stall->n_missing_ranks; i++)
                if (stall->missing_ranks[i] < comm->n_ranks)
                        comm->stall.missing_ranks |= UINT64_C(1) << stall->missing_ranks[i];
        if (!manager->on_device)
                stall_log(comm);
        else
                stalls_ask(manager);
}
