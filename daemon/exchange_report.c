/* SPDX-License-Identifier: MIT */
/*
 * Requests that the ranks' own kernels exchange are seen by no executor but for one word of each rank: how many it has
 * begun (executor/plane_exchanges.c). None is over before all ranks have begun it, so who has begun fewer than another
 * is who is waited for, and nobody is ahead by more than one. That holds for a rank that has left, too: the word stays
 * as it was at its last request.
 *
 * Executors are asked one after the other and the ranks go on meanwhile, so numbers of a moment may differ by more than
 * what is true at any one time. What counts is a difference that stays.
 */
#include "daemon/exchange_report.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/comm.h"
#include "daemon/executor_link.h"
#include "daemon/tenant.h"
#include "plan/plan.h"
#include "ring/line.h"
#include "util/clock.h"
#include "util/log.h"

void exchange_report(const struct executor_link *link, const Railmux__Executor__CommStatistics *from,
                     struct comm *comm) {
        struct comm_exchanged *exchanged = comm->statistics.exchanged;
        const uint64_t now = clock_now_ns();
        struct exchange_wait wait;

        for (uint32_t r = 0; r < comm->n_ranks && r < EXCHANGE_RANKS_MAX; r++)
                if (!comm->members[r].away && comm->members[r].gpu - link->first_gpu < link->n_gpus)
                        exchanged[r].known = false; /* it may have gone with its session */
        for (size_t i = 0; i < from->n_exchanged; i++) {
                const Railmux__Executor__Exchanged *row = from->exchanged[i];

                if (row->rank >= comm->n_ranks || row->rank >= EXCHANGE_RANKS_MAX)
                        continue;
                exchanged[row->rank] = (struct comm_exchanged){
                        .known = true, .calls = row->calls, .operation = row->operation, .since_ns = now - row->age_ns};
        }
        if (comm->exchange_stall.stalled && !exchange_waits(comm, &wait))
                comm->exchange_stall = (struct comm_exchange_stall){0};
}

/* The least that ranks have begun. False: none is known to exchange. */
static bool least(const struct comm *comm, uint32_t *ret_calls) {
        const struct comm_exchanged *exchanged = comm->statistics.exchanged;
        bool any = false;

        for (uint32_t r = 0; r < comm->n_ranks && r < EXCHANGE_RANKS_MAX; r++) {
                if (!exchanged[r].known)
                        continue;
                if (!any || ring_sequence_before(exchanged[r].calls, *ret_calls))
                        *ret_calls = exchanged[r].calls;
                any = true;
        }
        return any;
}

uint32_t exchange_calls(const struct comm *comm) {
        uint32_t calls = 0;

        (void)least(comm, &calls);
        return calls;
}

bool exchange_waits(const struct comm *comm, struct exchange_wait *ret_wait) {
        const struct comm_exchanged *exchanged = comm->statistics.exchanged;
        struct exchange_wait wait = {.left = true};
        bool ahead = false;
        uint32_t calls;

        if (comm->state != COMM_READY || comm->code || !least(comm, &calls))
                return false;
        for (uint32_t r = 0; r < comm->n_ranks && r < EXCHANGE_RANKS_MAX; r++) {
                if (!exchanged[r].known)
                        continue;
                if (exchanged[r].calls == calls) {
                        wait.missing |= UINT64_C(1) << r;
                        wait.left = wait.left && (comm->members[r].leaving || comm->members[r].left);
                } else if (!ahead || exchanged[r].since_ns < wait.since_ns) {
                        wait.operation = exchanged[r].operation;
                        wait.since_ns = exchanged[r].since_ns;
                        ahead = true;
                }
        }
        wait.number = calls + 1;
        *ret_wait = wait;
        return ahead;
}

void exchange_wait_text(const struct exchange_wait *wait, char text[EXCHANGE_WAIT_TEXT]) {
        snprintf(text, EXCHANGE_WAIT_TEXT, "exchange %u (%s)", wait->number, plan_operation_name(wait->operation));
}

/* ---- stalls ------------------------------------------------------------------------------------------------------ */
bool exchange_stalls(struct comm *comm) {
        comm->exchange_stall.asked = !comm->exchange_stall.stalled;
        return comm->exchange_stall.asked;
}

void exchange_stall_answered(struct comm *comm) {
        char number[24], ranks[128] = "", text[EXCHANGE_WAIT_TEXT];
        struct exchange_wait wait;
        size_t used = 0;

        if (!comm->exchange_stall.asked)
                return;
        comm->exchange_stall = (struct comm_exchange_stall){.stalled = exchange_waits(comm, &wait)};
        if (!comm->exchange_stall.stalled)
                return;
        for (uint32_t r = 0; r < comm->n_ranks && r < EXCHANGE_RANKS_MAX; r++)
                if (wait.missing >> r & 1)
                        used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, " %u", r);
        snprintf(number, sizeof(number), "%" PRIu64, comm->number);
        exchange_wait_text(&wait, text);
        log_fields(LOG_LEVEL_NOTICE, (const char *const[]){"COMM", number, "TENANT", comm->tenant->name, NULL},
                   "comm %s: %s has waited %.1f s for rank%s%s", number, text,
                   (double)(clock_now_ns() - wait.since_ns) / 1e9, ranks,
                   wait.left ? ", which left the communicator" : "");
}
