/* SPDX-License-Identifier: MIT */
/*
 * Requests that the ranks' own kernels exchange (client/hip/exchange_run.h) never come by an executor. Their kernels
 * leave a word in the host memory of the bell, which request each has begun last, so that railmuxd can tell who waits
 * for whom.
 *
 * Whether a rank waits cannot be told from its word: it may have nothing to do. A rank is waited for if it has begun
 * fewer requests than another one, since none is over before all have begun it; its word is in another process's memory
 * and perhaps on another GPU. So what has stood still for the stall bound is told, and railmuxd asks all executors how
 * far their ranks are. Not all of them may be there then, so it is told again, each time after twice as long: an idle
 * communicator costs some twenty such questions in a week.
 *
 * Kernels that find that their ranks called different things end with an error, and leave what their own rank called.
 * The comm fails then for railmuxd, too, in words that say so; each executor tells of its own ranks.
 *
 * The words are the client's own, so a client can have itself or its peers blamed, end its own communicators, and
 * nothing else.
 */
#include "executor/plane_exchanges.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "executor/plane_executor.h"
#include "plan/plan.h"
#include "ring/line.h"
#include "util/clock.h"
#include "util/type.h"

static const char *root_text(const struct plane_exchanged *now, char text[24]) {
        text[0] = 0;
        if (now->operation == RING_OP_BROADCAST || now->operation == RING_OP_REDUCE)
                snprintf(text, 24, ", root %" PRIu32, now->root);
        return text;
}

/* Transfers name the other rank, and are not counted. (It is the receiver that tells.) */
static bool is_transfer(const struct plane_exchanged *now) {
        switch (now->operation) {
        case RING_OP_SEND:
        case RING_OP_RECV:
        case RING_OP_ALL_TO_ALL_V:
        case RING_OP_GATHER:
        case RING_OP_SCATTER:
                return true;
        default:
                return false;
        }
}

static const char *peer_text(const struct plane_exchanged *now, char text[24]) {
        text[0] = 0;
        if (is_transfer(now))
                snprintf(text, 24, " from rank %" PRIu32, now->root);
        return text;
}

static const char *redop_text(const struct plane_exchanged *now, char text[24]) {
        text[0] = 0;
        if (now->operation == RING_OP_ALL_REDUCE || now->operation == RING_OP_REDUCE_SCATTER ||
            now->operation == RING_OP_REDUCE)
                snprintf(text, 24, ", %s", type_redop_name(now->redop));
        return text;
}

/* The rank that a session knows by this handle; NULL: none. The handle is the client's word, so this takes no time. */
static struct plane_rank *rank_find(const struct plane_executor *executor, const struct plane_session *session,
                                    uint32_t handle) {
        const struct plane_rank like = {.session = session->id, .handle = handle};
        struct plane_rank *rank;

        HASH_FIND(hh, executor->ranks, &like, PLANE_RANK_KEY, rank);
        return rank;
}

/* A rank of this session has called what `now` says, and another one something else. */
static void differ(struct plane_executor *executor, const struct plane_session *session,
                   const struct plane_exchanged *now) {
        const struct plane_rank *rank = rank_find(executor, session, now->handle);
        struct plane_attached *comm = rank ? rank->comm : NULL;
        char redop[24], root[24], peer[24];

        if (!comm || (uint32_t)now->differs >= comm->n_ranks)
                return;
        executor->mismatches += !comm->code;
        plane_comm_fail(executor, comm, RMX_E_MISMATCH, now->differs,
                        "%s %" PRIu32 " of rank %" PRIu32 ": %s of %" PRIu64 " %s%s%s%s; rank %" PRId32
                        " called something else",
                        is_transfer(now) ? "behind exchange" : "exchange", now->calls, (uint32_t)(rank - comm->ranks),
                        plan_operation_name(now->operation), now->count, type_name(now->type), redop_text(now, redop),
                        root_text(now, root), peer_text(now, peer), now->differs);
}

static void look_at(struct plane_executor *executor, struct plane_session *session, uint64_t now_ns) {
        struct plane_exchanges *exchanges = session->exchanges;

        for (uint32_t i = 0; i < PLANE_EXCHANGED; i++) {
                struct plane_exchanged now;

                if (!plane_exchanged(session->host, i, &now))
                        continue;
                if (!exchanges)
                        exchanges = session->exchanges = calloc(1, sizeof(*exchanges));
                if (!exchanges)
                        return; /* the next look may find memory */
                exchanges->place[i].waits = now.waits;
                exchanges->place[i].sends = now.sends;
                exchanges->place[i].peer = now.peer;
                exchanges->place[i].turn = now.turn;
                if (exchanges->place[i].handle != now.handle)
                        exchanges->place[i].differs = false;
                if (now.differs >= 0 && !exchanges->place[i].differs) {
                        exchanges->place[i].differs = true;
                        differ(executor, session, &now);
                }
                if (exchanges->place[i].handle == now.handle && exchanges->place[i].calls == now.calls)
                        continue;
                exchanges->place[i].handle = now.handle;
                exchanges->place[i].calls = now.calls;
                exchanges->place[i].operation = now.operation;
                exchanges->place[i].since_ns = now_ns;
                exchanges->place[i].tell_ns = now_ns + executor->stall_ns;
                exchanges->place[i].again_ns = executor->stall_ns;
        }
}

void plane_exchanges_look(struct plane_executor *executor) {
        const uint64_t now_ns = clock_now_ns();

        for (struct plane_session *session = executor->sessions; session; session = session->hh.next)
                if (session->host)
                        look_at(executor, session, now_ns);
}

uint32_t plane_exchanges_pairs(const struct plane_executor *executor, struct plane_pair_report *ret_reports,
                               uint32_t capacity) {
        uint32_t n = 0;

        for (const struct plane_session *session = executor->sessions; session; session = session->hh.next)
                for (uint32_t i = 0; session->exchanges && i < PLANE_EXCHANGED && n < capacity; i++) {
                        const struct plane_rank *rank;

                        if (!session->exchanges->place[i].waits)
                                continue;
                        rank = rank_find(executor, session, session->exchanges->place[i].handle);
                        if (!rank)
                                continue;
                        ret_reports[n++] =
                                (struct plane_pair_report){.comm = rank->comm->id,
                                                           .rank = (uint32_t)(rank - rank->comm->ranks),
                                                           .peer = session->exchanges->place[i].peer,
                                                           .sends = session->exchanges->place[i].sends,
                                                           .rung = session->exchanges->place[i].turn,
                                                           .finished = session->exchanges->place[i].turn - 1};
                }
        return n;
}

/* The place of a rank; PLANE_EXCHANGED: it is not here, or exchanges nothing. */
static uint32_t place_of(struct plane_executor *executor, const struct plane_rank *rank,
                         struct plane_exchanges **ret_exchanges) {
        const struct plane_session *session = rank->here ? plane_session_find(executor, rank->session) : NULL;
        uint32_t i = 0;

        if (!session || !session->exchanges)
                return PLANE_EXCHANGED;
        *ret_exchanges = session->exchanges;
        while (i < PLANE_EXCHANGED && session->exchanges->place[i].handle != rank->handle)
                i++;
        return i;
}

void plane_exchanges_rows(struct plane_executor *executor, const struct plane_attached *comm,
                          Railmux__Executor__Exchanged rows[PLANE_EXCHANGES_ROWS],
                          Railmux__Executor__Exchanged *pointers[PLANE_EXCHANGES_ROWS], size_t *ret_n) {
        const uint64_t now_ns = clock_now_ns();
        size_t n = 0;

        for (uint32_t r = 0; r < comm->n_ranks && n < PLANE_EXCHANGES_ROWS; r++) {
                struct plane_exchanges *exchanges;
                const uint32_t i = place_of(executor, &comm->ranks[r], &exchanges);

                if (i == PLANE_EXCHANGED)
                        continue;
                railmux__executor__exchanged__init(pointers[n] = &rows[n]);
                rows[n].rank = r;
                rows[n].calls = exchanges->place[i].calls;
                rows[n].operation = exchanges->place[i].operation;
                rows[n].age_ns = now_ns - exchanges->place[i].since_ns;
                n++;
        }
        *ret_n = n;
}

void plane_exchanges_stalls_again(struct plane_executor *executor) {
        const uint64_t now_ns = clock_now_ns();

        for (struct plane_session *session = executor->sessions; session; session = session->hh.next)
                for (uint32_t i = 0; session->exchanges && i < PLANE_EXCHANGED; i++) {
                        if (session->exchanges->place[i].tell_ns > now_ns + executor->stall_ns)
                                session->exchanges->place[i].tell_ns = now_ns;
                        session->exchanges->place[i].again_ns = executor->stall_ns;
                }
}

int plane_exchanges_stalls(struct plane_executor *executor, const struct plane_attached *comm, report_send send,
                           void *userdata) {
        const uint64_t now_ns = clock_now_ns();

        for (uint32_t r = 0; r < comm->n_ranks && !comm->code; r++) {
                Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
                Railmux__Executor__Stall stall = RAILMUX__EXECUTOR__STALL__INIT;
                struct plane_exchanges *exchanges;
                const uint32_t i = place_of(executor, &comm->ranks[r], &exchanges);
                int error;

                if (i == PLANE_EXCHANGED || !exchanges->place[i].calls || now_ns < exchanges->place[i].tell_ns)
                        continue;
                stall.comm = comm->id;
                stall.rank = r;
                stall.sequence = exchanges->place[i].calls;
                stall.operation = exchanges->place[i].operation;
                stall.waiting_ns = now_ns - exchanges->place[i].since_ns;
                stall.exchanged = true;
                message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_STALL;
                message.stall = &stall;
                error = send(userdata, &message);
                if (error)
                        return error;
                exchanges->place[i].tell_ns = now_ns + exchanges->place[i].again_ns;
                exchanges->place[i].again_ns *= 2;
        }
        return 0;
}
