/* SPDX-License-Identifier: MIT */
/*
 * A send and a receive are done when they have met, so what does not finish is a request whose other half was not
 * called, or is called and not served yet. Which of them it is cannot be told here, where only one side may be:
 * railmuxd puts together what the executors of both ranks say (daemon/executor_report.c).
 *
 * The plane gives two numbers of each pair and direction, and so do the ranks' own kernels where they exchange
 * (plane_exchanges.c). How long the oldest of them has waited is measured here, from
 * when it was first seen to be the oldest.
 */
#include "executor/plane_pairs.h"

#include <stdlib.h>
#include <string.h>

#include "executor/plane_executor.h"
#include "ring/line.h"
#include "util/clock.h"

#define PAIRS_MAX     1024u /* that wait on one GPU; what is beyond is not seen */
#define PAIRS_RUNNING 64u   /* requests of a session that can be begun and not finished on a GPU */

/* From *at on, and then where it was found: they come in the same order each time. */
static const struct plane_pair *find(const struct plane_pair *pairs, size_t n, const struct plane_pair *like,
                                     size_t *at) {
        for (size_t i = 0; i < n; i++) {
                const size_t k = (*at + i) % n;

                if (pairs[k].rank != like->rank || pairs[k].peer != like->peer || pairs[k].sends != like->sends)
                        continue;
                *at = k + 1;
                return &pairs[k];
        }
        return NULL;
}

/* An executor that is new to a pair does not know what was finished before it. */
static uint32_t oldest(const struct plane_pair_report *report) {
        return report->rung - report->finished <= PAIRS_RUNNING ? report->finished + 1 : report->rung;
}

/* Takes over the reports on this comm, of n. */
static void take(struct plane_attached *comm, const struct plane_pair_report *reports, uint32_t n, uint64_t now_ns) {
        struct plane_pair *pairs = NULL;
        size_t count = 0, at = 0;

        for (uint32_t i = 0; i < n; i++)
                count += reports[i].comm == comm->id;
        if (count && !(pairs = malloc(count * sizeof(*pairs))))
                return; /* what was known before is nearly as good */
        count = 0;
        for (uint32_t i = 0; i < n; i++) {
                const struct plane_pair_report *from = &reports[i];
                const struct plane_pair *before;
                struct plane_pair *to;

                if (from->comm != comm->id || from->rank >= comm->n_ranks || from->peer >= comm->n_ranks)
                        continue;
                to = &pairs[count++];
                *to = (struct plane_pair){.rank = from->rank,
                                          .peer = from->peer,
                                          .sends = from->sends,
                                          .sequence = oldest(from),
                                          .rung = from->rung,
                                          .since_ns = now_ns};
                before = find(comm->pairs, comm->n_pairs, to, &at);
                if (before && before->sequence == to->sequence) {
                        to->since_ns = before->since_ns;
                        to->told = before->told;
                }
        }
        free(comm->pairs);
        comm->pairs = pairs;
        comm->n_pairs = count;
}

void plane_pairs_look(struct plane_executor *executor) {
        static struct plane_pair_report reports[PAIRS_MAX]; /* too large for a stack; control thread only */
        uint32_t n = executor->ops->pairs ? executor->ops->pairs(executor->plane, reports, PAIRS_MAX) : 0;
        uint64_t now_ns = clock_now_ns();

        if (n > PAIRS_MAX)
                n = PAIRS_MAX;
        n += plane_exchanges_pairs(executor, reports + n, PAIRS_MAX - n);
        if (n == 0 && !executor->any_pairs)
                return;
        executor->any_pairs = n > 0;
        for (struct plane_attached *comm = executor->comms; comm; comm = comm->hh.next)
                take(comm, reports, n, now_ns);
}

void plane_pairs_free(struct plane_attached *comm) {
        free(comm->pairs);
        comm->pairs = NULL;
        comm->n_pairs = 0;
}

void plane_pairs_rows(const struct plane_attached *comm, Railmux__Executor__PairWait rows[PLANE_PAIRS_ROWS],
                      Railmux__Executor__PairWait *pointers[PLANE_PAIRS_ROWS], size_t *ret_n) {
        const struct plane_pair *chosen[PLANE_PAIRS_ROWS];
        uint64_t now_ns = clock_now_ns();
        size_t n = 0;

        for (size_t i = 0; i < comm->n_pairs; i++) {
                const struct plane_pair *pair = &comm->pairs[i];
                size_t at = n;

                while (at > 0 && pair->since_ns < chosen[at - 1]->since_ns)
                        at--;
                if (at == PLANE_PAIRS_ROWS)
                        continue;
                n += n < PLANE_PAIRS_ROWS;
                memmove(&chosen[at + 1], &chosen[at], (n - 1 - at) * sizeof(chosen[0]));
                chosen[at] = pair;
        }
        for (size_t i = 0; i < n; i++) {
                railmux__executor__pair_wait__init(pointers[i] = &rows[i]);
                rows[i].rank = chosen[i]->rank;
                rows[i].peer = chosen[i]->peer;
                rows[i].sends = chosen[i]->sends;
                rows[i].sequence = chosen[i]->sequence;
                rows[i].rung = chosen[i]->rung;
                rows[i].waiting_ns = now_ns - chosen[i]->since_ns;
        }
        *ret_n = n;
}

int plane_pairs_stalls(struct plane_executor *executor, struct plane_attached *comm, report_send send, void *userdata) {
        uint64_t now_ns = clock_now_ns();

        for (size_t i = 0; i < comm->n_pairs && !comm->code; i++) {
                Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
                Railmux__Executor__Stall stall = RAILMUX__EXECUTOR__STALL__INIT;
                struct plane_pair *pair = &comm->pairs[i];
                int r;

                if (pair->told || now_ns < pair->since_ns + executor->stall_ns)
                        continue;
                stall.comm = comm->id;
                stall.sequence = pair->sequence;
                stall.operation = pair->sends ? RING_OP_SEND : RING_OP_RECV;
                stall.waiting_ns = now_ns - pair->since_ns;
                stall.rank = pair->rank;
                stall.peer = pair->peer;
                message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_STALL;
                message.stall = &stall;
                r = send(userdata, &message);
                if (r)
                        return r;
                pair->told = true;
        }
        return 0;
}
