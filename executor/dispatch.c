/* SPDX-License-Identifier: MIT */
#include "executor/dispatch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "executor/bell.h"
#include "executor/comm.h"
#include "executor/executor.h"
#include "executor/session.h"
#include "executor/worker.h"
#include "railmux/railmux.h"

static void result_set(struct dispatch_result *result, uint32_t code, const char *text) {
        result->code = code;
        snprintf(result->message, sizeof(result->message), "%s", text);
}

/* -errno of our own side as a result; an object that is there already is fine, since calls are idempotent. */
static void result_errno(struct dispatch_result *result, int r, const char *what) {
        if (!r || r == -EEXIST)
                return;
        result->code = r == -ENOMEM || r == -EMFILE ? RMX_E_NO_MEMORY : RMX_E_INTERNAL;
        snprintf(result->message, sizeof(result->message), "%s: %s", what, strerror(-r));
}

static struct session *find(struct executor *executor, uint64_t id, struct dispatch_result *result) {
        struct session *session = session_find(executor, id);

        if (!session)
                result_set(result, RMX_E_INVALID, "unknown session");
        return session;
}

static void call_ring(struct executor *executor, const Railmux__Executor__RingAttach *m, int *fds, unsigned int n_fds,
                      struct dispatch_result *result) {
        struct session *session = find(executor, m->session, result);
        int r;

        if (!session)
                return;
        if (n_fds != 3) {
                result_set(result, RMX_E_INVALID, "ring_attach needs 3 file descriptors");
                return;
        }
        r = bell_attach(session, m->gpu, m->depth, m->argument_bytes, fds);
        if (!r)
                fds[2] = -1; /* the bell owns the eventfd */
        result_errno(result, r, "attaching a ring");
}

static void call_buffer(struct executor *executor, const Railmux__Executor__BufferImport *m, int *fds,
                        unsigned int n_fds, struct dispatch_result *result) {
        struct session *session = find(executor, m->session, result);

        if (!session)
                return;
        if (n_fds != 1) {
                result_set(result, RMX_E_INVALID, "buffer_import needs 1 file descriptor");
                return;
        }
        result_errno(result, session_buffer_import(session, m->buffer, m->bytes, fds[0]), "importing a buffer");
}

static bool here(const Railmux__Executor__CommAttach *m, const Railmux__Executor__Member *member) {
        return m->n_nodes <= 1 || member->node == m->node;
}

static void call_comm(struct executor *executor, const Railmux__Executor__CommAttach *m, int *fds, unsigned int n_fds,
                      struct dispatch_result *result) {
        struct plan_choice choices[PLAN_CHOICES_MAX];
        struct comm_member members[PLAN_RANKS_MAX];
        struct comm_parameters p = {
                .id = m->comm,
                .name = m->name,
                .n_ranks = m->n_ranks,
                .geometry = {m->part_bytes, m->slots},
                .ring_depth = m->ring_depth,
                .epoch = m->epoch,
                .code = m->code,
                .failed_rank = m->failed_rank,
                .choices = choices,
                .n_nodes = m->n_nodes,
                .node = m->node,
        };
        unsigned int n_wanted = m->n_nodes > 1 ? 4 : 1;
        struct comm *comm = comm_find(executor, m->comm);
        int r;

        if (comm) {
                result->epoch = comm->epoch;
                return;
        }
        if (n_fds != n_wanted) {
                snprintf(result->message, sizeof(result->message),
                         "comm_attach over %u nodes needs %u file descriptors, not %u", m->n_nodes, n_wanted, n_fds);
                result->code = RMX_E_INVALID;
                return;
        }
        if (m->n_nodes > 1) {
                p.area_fd = fds[1];
                p.doorbell_fd = fds[2];
                p.wake_fd = fds[3];
        }
        if (m->n_members != m->n_ranks || m->n_members > PLAN_RANKS_MAX || m->n_choices > PLAN_CHOICES_MAX ||
            m->ring_depth > RING_DEPTH_MAX || (m->ring_depth & (m->ring_depth - 1))) {
                result_set(result, RMX_E_INVALID, "comm_attach out of bounds");
                return;
        }
        for (size_t i = 0; i < m->n_choices; i++)
                choices[p.n_choices++] = (struct plan_choice){
                        .operation = m->choices[i]->operation,
                        .algorithm = m->choices[i]->algorithm,
                        .max_bytes = m->choices[i]->max_bytes,
                        .widening = m->choices[i]->widening,
                };
        for (size_t i = 0; i < m->n_members; i++) {
                const Railmux__Executor__Member *member = m->members[i];

                members[i] = (struct comm_member){
                        .session = member->left || !here(m, member) ? NULL : session_find(executor, member->session),
                        .node = member->node,
                        .handle = member->handle,
                        .gpu = member->gpu,
                        .left = member->left,
                        .last_sequence = member->last_sequence,
                };
        }
        r = comm_attach(executor, &p, members, fds[0], &comm, &result->lost, result->message, sizeof(result->message));
        if (r > 0)
                result->code = r == COMM_E_PLAN ? RMX_E_UNSUPPORTED : RMX_E_INVALID;
        else if (r < 0)
                result_errno(result, r, "attaching a comm");
        else
                result->epoch = comm->epoch;
}

void dispatch_call(struct executor *executor, const Railmux__Executor__Message *message, int *fds, unsigned int n_fds,
                   struct dispatch_result *ret_result) {
        struct dispatch_result *result = ret_result;
        struct session *session;
        struct comm *comm;

        *result = (struct dispatch_result){0};
        pthread_rwlock_wrlock(&executor->tables);
        switch (message->body_case) {
        case RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_ATTACH:
                result_errno(result,
                             session_attach(executor, message->session_attach->session, message->session_attach->pid,
                                            &session),
                             "attaching a session");
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_DETACH:
                session_detach(session_find(executor, message->session_detach->session));
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_RING_ATTACH:
                call_ring(executor, message->ring_attach, fds, n_fds, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_IMPORT:
                call_buffer(executor, message->buffer_import, fds, n_fds, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_RETIRE:
                session = session_find(executor, message->buffer_retire->session);
                if (session)
                        result->in_use = session_buffer_retire(session, message->buffer_retire->buffer,
                                                               message->buffer_retire->tell);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH:
                call_comm(executor, message->comm_attach, fds, n_fds, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ABORT:
                comm = comm_find(executor, message->comm_abort->comm);
                if (!comm)
                        break;
                comm->told_error = comm->told_error || !comm_failed(comm);
                comm_fail(comm, ring_status(message->comm_abort->code, message->comm_abort->rank), "aborted");
                comm->reported_error = comm->reported_error || comm->told_error;
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_DETACH:
                comm_detach(comm_find(executor, message->comm_detach->comm));
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_RANK_LEAVE:
                comm = comm_find(executor, message->rank_leave->comm);
                if (!comm || message->rank_leave->rank >= comm->n_ranks)
                        break;
                comm_rank_leave(&comm->ranks[message->rank_leave->rank], message->rank_leave->last_sequence);
                result->has_rung = comm->ranks[message->rank_leave->rank].here;
                result->rung = comm->ranks[message->rank_leave->rank].last_sequence;
                break;
        default:
                result_set(result, RMX_E_UNSUPPORTED, "unknown call");
                break;
        }
        pthread_rwlock_unlock(&executor->tables);
        executor_tidy(executor);
        worker_pool_kick(executor->workers); /* what exists has changed: nobody sleeps on an old view */
}
