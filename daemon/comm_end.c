/* SPDX-License-Identifier: MIT */
/*
 * How a communicator fails, and how its ranks hear of it.
 *
 * A client may free what its requests used as soon as it is told of an error, so nobody is told before no executor
 * touches that memory any more. The host executor has ended a comm when it reports a failure. With one executor per GPU
 * the others have to end it too, and are given the chance (comm_abort, COMM_ABORT) before the comm counts as failed;
 * one that has died touches nothing. Requests that let others reach their memory are answered only then, too, and the
 * executors are told so (reach_thaw).
 *
 * Other nodes are told when the abort begins: nothing there touches memory here, and an executor that does not end it
 * keeps nobody else waiting.
 */
#include "daemon/call.h"
#include "daemon/comm.h"
#include "daemon/comm_device.h"
#include "daemon/comm_remote.h"
#include "daemon/comm_split.h"
#include "daemon/comm_split_root.h"
#include "daemon/comm_unserved.h"
#include "daemon/control_drain.h"
#include "daemon/executor_link.h"
#include "daemon/executor_op.h"
#include "daemon/handover.h"
#include "daemon/manager.h"
#include "daemon/reach.h"
#include "daemon/record.h"
#include "railmux/railmux.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/result.h"
#include <stdio.h>
#include <utlist.h>

/* Told to every rank that takes part; kind decides what. */
static void comm_tell_member(struct comm_member *member, bool failed) {
        Railmux__Session__Event event = RAILMUX__SESSION__EVENT__INIT;
        Railmux__Session__CommFailed comm_failed = RAILMUX__SESSION__COMM_FAILED__INIT;
        Railmux__Session__EpochChanged epoch_changed = RAILMUX__SESSION__EPOCH_CHANGED__INIT;
        struct comm *comm = member->comm;

        if (failed) {
                comm_failed.handle = member->handle;
                comm_failed.code = comm_member_code(member);
                comm_failed.rank = comm->failed_rank;
                comm_failed.message = comm->reason;
                event.body_case = RAILMUX__SESSION__EVENT__BODY_COMM_FAILED;
                event.comm_failed = &comm_failed;
        } else {
                epoch_changed.handle = member->handle;
                epoch_changed.epoch = comm->epoch;
                event.body_case = RAILMUX__SESSION__EVENT__BODY_EPOCH_CHANGED;
                event.epoch_changed = &epoch_changed;
        }
        session_send_event(member->session, &event);
}

/* On GPUs those who are about to leave are told, too: what they have shared with the others serves another communicator
 * next, unless they know that this one has failed (device_exchange_part). */
static bool comm_tells(const struct comm_member *member) {
        return member->session && (!member->leaving || member->comm->manager->on_device);
}

/* A program that computes does not read its socket, and need not: completions carry the same facts. So events never
 * fill a queue up. */
void comm_tell(struct comm *comm, bool failed) {
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                struct comm_member *member = &comm->members[r];

                if (comm_tells(member) && session_takes_events(member->session))
                        comm_tell_member(member, failed);
        }
}

void comm_tell_again(struct session *session) {
        struct comm_member *member;

        DL_FOREACH(session->members, member) {
                if (member->comm->code && comm_tells(member) && session_takes_events(session))
                        comm_tell_member(member, true);
        }
}

void comm_abort(struct comm *comm, uint32_t code, int32_t rank, const char *message, uint64_t acked) {
        struct executor_link *link;

        if (!comm->aborting) {
                handover_forget(comm);
                comm->aborting = true;
                comm->abort_code = code;
                comm->abort_rank = rank;
                snprintf(comm->abort_text, sizeof(comm->abort_text), "%s", message ? message : "");
                comm->abort_acked = acked;
                comm->abort_ns = clock_now_ns();
                control_drains_note(comm);
                DL_FOREACH(comm->manager->links, link) {
                        if (comm_needed(comm) & ~acked & executor_link_mask(link))
                                executor_op_push(link, EXECUTOR_OP_COMM_ABORT, comm->number, (uint32_t)rank);
                }
                if (comm->remote) /* whose executors keep none of the others waiting if they do not answer */
                        comm_remote_failing(comm);
        }
        if (comm->manager->on_device)
                comm_aborted(comm, acked | comm_device_dead(comm->manager));
}

void comm_aborted(struct comm *comm, uint64_t mask) {
        struct session *session;
        uint64_t id;

        comm->abort_acked |= mask;
        if (!comm->aborting || (comm->abort_acked & comm_needed(comm)) != comm_needed(comm) || comm_unserved(comm))
                return;
        comm->aborting = false;
        comm_fail(comm, comm->abort_code, comm->abort_rank, comm->abort_text);
        reach_thaw(comm, UINT64_MAX);
        comm_device_ended(comm);
        manager_place_later(comm->manager); /* an executor may have waited for that, to end */
        for (uint32_t r = 0; r < comm->n_ranks; r++)
                while (call_pop(&comm->members[r].abort_calls, &session, &id))
                        session_send_ack(session, id);
}

/* What ranks called that does not go together comes from several executors: together it says what is wrong. */
static void comm_broken_more(struct comm *comm, const char *message) {
        char *text = comm->code ? comm->reason : comm->abort_text;
        const size_t length = strlen(text);

        if (!message || !*message || strstr(text, message))
                return;
        if (length) /* else a predecessor has logged it, which did not leave its reason */
                log_error("communicator %" PRIu64 ": %s", comm->number, message);
        if (length + 2 + strlen(message) < sizeof(comm->reason))
                snprintf(text + length, sizeof(comm->reason) - length, "%s%s", length ? "; " : "", message);
}

void comm_broken(struct comm *comm, uint64_t mask, uint32_t code, int32_t rank, const char *message) {
        /* The host's executor that was told to end it says so, and not why. */
        const bool echo = !comm->manager->on_device && comm->aborting && comm->abort_code == code;

        if (comm->code && comm->code == code && !comm->reason[0]) /* of a predecessor, which had no time to keep it */
                comm_broken_more(comm, message);
        else if (code == RMX_E_MISMATCH && !echo &&
                 (comm->code       ? comm->code
                  : comm->aborting ? comm->abort_code
                                   : 0) == code)
                comm_broken_more(comm, message);
        if (comm->code || code == 0)
                return;
        if (comm->manager->on_device && comm->state == COMM_READY)
                comm_abort(comm, code, rank, message, mask);
        else
                comm_fail(comm, code, rank, echo ? comm->abort_text : message);
}

uint32_t comm_member_code(const struct comm_member *member) {
        const struct comm *comm = member->comm;

        return comm->code == RMX_E_LOST && comm->lost_gpu >= 0 && member->gpu == (uint32_t)comm->lost_gpu
                       ? RMX_E_DEVICE_LOST
                       : comm->code;
}

/* Which rank it was, for the log. Processes of other nodes are not known here. */
static void comm_whose(const struct comm *comm, uint32_t rank, char *text, size_t text_size) {
        const struct comm_member *member = &comm->members[rank];

        if (!member->away)
                snprintf(text, text_size, " by rank %u (pid %d)", rank, (int)member->pid);
        else if (!comm->remote) /* a predecessor knew */
                snprintf(text, text_size, " by rank %u on another node", rank);
        else
                snprintf(text, text_size, " by rank %u on node %s", rank, comm_remote_node(comm, rank));
}

void comm_fail(struct comm *comm, uint32_t code, int32_t rank, const char *message) {
        char text[384], whose[128] = "";

        if (comm->code || code == 0)
                return;
        comm->code = code;
        comm->failed_rank = rank >= 0 && (uint32_t)rank < comm->n_ranks ? rank : -1;
        snprintf(comm->reason, sizeof(comm->reason), "%s", message ? message : "");
        comm->stall.at_ns = 0;
        comm->manager->counters.comms_failed++;
        control_drains_note(comm);
        record_comm_status(comm);
        if (comm->failed_rank >= 0)
                comm_whose(comm, (uint32_t)rank, whose, sizeof(whose));
        snprintf(text, sizeof(text), "failed: %s%s%s%.160s", result_name(code), whose, message[0] ? ": " : "", message);
        comm_log(comm, code == RMX_E_ABORTED ? LOG_LEVEL_INFO : LOG_LEVEL_NOTICE, text);
        if (comm->state == COMM_READY)
                comm_tell(comm, true);
        if (comm->remote)
                comm_remote_failed(comm);
        comm_split_end_all(comm, code, "the parent communicator has failed"); /* who has not joined yet never will */
        if (comm->remote)
                comm_split_root_free(comm);
}
