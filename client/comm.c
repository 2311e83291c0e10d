/* SPDX-License-Identifier: MIT */
/*
 * Joining and leaving. The daemon's answer to a join is filed as a comm by the thread that reads the socket, in the
 * same step as any other packet: an event about the comm may follow in the very next packet, before the joining thread
 * runs.
 *
 * An abort is answered when no executor touches the memory of requests any more, and waiting threads are told then. If
 * the answer does not come (railmuxd may be stopped), on the host the rank is cut off: its requests are given up with
 * their slots and regions, which come free when they complete. All that an executor still writes lies in memory that it
 * shares, so nothing of the caller's is in danger but the content of rmx_mem_alloc memory. On GPUs, where requests are
 * in the caller's own memory, they go on until the executors have been told.
 *
 * A join that timed out or was given up is taken back at the daemon, which ends it for the other ranks as well. Nobody
 * waits for that: the daemon may be what does not answer. One that does not know the message refuses it, and there the
 * join may still succeed. Its answer then comes as a stray, and the library leaves at once on behalf of the caller who
 * has gone. If another join is under way the stray may be a second answer to the same one (the daemon answers equal
 * calls equally), so it is let be. A join that was answered and came to nothing afterwards ends with an abort and a
 * leave; these are waited for, but a moment only, and then posted.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "client/comm.h"
#include "client/device.h"
#include "client/device_exchange.h"
#include "client/device_nodes.h"
#include "client/error.h"
#include "client/group.h"
#include "client/redop.h"
#include "client/request.h"
#include "client/session.h"
#include "client/session_ring.h"
#include "util/clock.h"

#define ABORT_ANSWER_NS 300000000u /* how long the daemon has for an abort before requests end without it */

int comm_check(const struct rmx_comm *comm, const char *what) {
        if (!comm)
                return error_set(RMX_E_INVALID, "%s: comm is NULL", what);
        return session_check(comm->session, what);
}

void comm_fail(struct rmx_comm *comm, uint32_t status) {
        uint32_t none = 0;

        /* release; partner: the acquire in comm_status. The first error stays. */
        (void)atomic_compare_exchange_strong_explicit(&comm->status, &none, status, memory_order_release,
                                                      memory_order_relaxed);
}

static const char *mismatch_text(uint32_t detail) {
        switch (detail) {
        case RING_DETAIL_OPERATION:
                return "called another operation than the others";
        case RING_DETAIL_TYPE:
                return "gave another type than the others";
        case RING_DETAIL_REDOP:
                return "gave another reduction than the others";
        case RING_DETAIL_COUNT:
                return "gave another count than the others expect";
        case RING_DETAIL_ROOT:
                return "gave another root than the others";
        default:
                return "called another operation, or with another type, reduction, count or root";
        }
}

int comm_report(const struct rmx_comm *comm, const char *what, uint32_t status) {
        int code = error_sanitise(ring_status_code(status));
        int32_t rank = ring_status_rank(status);
        char who[32] = "a rank";

        if (rank >= 0)
                snprintf(who, sizeof(who), "rank %d", rank);
        switch (code) {
        case RMX_E_PEER_LOST:
                return error_set(code, "%s: %s has died or left the communicator%s", what, who,
                                 comm->n_placed ? ", or its node was lost" : "");
        case RMX_E_ABORTED:
                return error_set(code, "%s: %s has aborted the communicator", what, who);
        case RMX_E_MISMATCH:
                return error_set(code, "%s: %s %s; railmuxctl status shows what was called", what, who,
                                 mismatch_text(ring_status_detail(status)));
        case RMX_E_LOST:
                /* Sticky, or about to be: an event may still be on its way. */
                if (comm->n_placed || ring_status_code(comm_status(comm)) == RMX_E_LOST)
                        return error_set(code,
                                         "%s: an executor or daemon that served the communicator has ended; the "
                                         "communicator is over, on every rank",
                                         what);
                return error_set(
                        code, "%s: the executor died with this request in flight, on every rank; later requests work",
                        what);
        case RMX_E_INVALID:
                return error_set(code, "%s: the executor refused the request of %s", what, who);
        case RMX_E_DEVICE_LOST:
                return error_set(code, "%s: the context of GPU %u is lost", what, comm->gpu);
        case RMX_E_DAEMON_LOST:
                return error_set(code, "%s: the daemon and its executor are gone; open a new session", what);
        case RMX_E_UNSUPPORTED:
                return error_set(code, "%s: the daemon's backend does not have this operation for this type", what);
        case RMX_E_NO_MEMORY:
                return error_set(code, "%s: the daemon is out of memory", what);
        default:
                return error_set(code, "%s: the executor reports %s", what, rmx_error_name(code));
        }
}

/* ---- under rpc.mutex ------------------------------------------------------------------------------------------------
 */
static struct rmx_comm *comm_find(struct rmx_session *session, uint32_t handle) {
        struct rmx_comm *comm;

        DL_SEARCH_SCALAR(session->comms, comm, handle, handle);
        return comm;
}

void comm_on_event(struct rmx_session *session, const Railmux__Session__Event *event) {
        struct rmx_comm *comm;

        switch (event->body_case) {
        case RAILMUX__SESSION__EVENT__BODY_COMM_FAILED:
                comm = comm_find(session, event->comm_failed->handle);
                if (!comm)
                        break;
                comm_fail(comm, ring_status((uint32_t)error_sanitise(event->comm_failed->code),
                                            event->comm_failed->rank < 0 ? -1 : event->comm_failed->rank));
                device_may_end(comm);
                device_exchange_stop(comm);
                device_nodes_failed(comm);
                break;
        case RAILMUX__SESSION__EVENT__BODY_EPOCH_CHANGED:
                comm = comm_find(session, event->epoch_changed->handle);
                if (comm) /* relaxed; partner: the load in comm_epoch. */
                        atomic_store_explicit(&comm->epoch, event->epoch_changed->epoch, memory_order_relaxed);
                break;
        default:
                break;
        }
}

static bool is_join(const struct rpc_call *call) {
        return call->message->body_case == RAILMUX__SESSION__MESSAGE__BODY_COMM_CREATE ||
               call->message->body_case == RAILMUX__SESSION__MESSAGE__BODY_COMM_SPLIT;
}

void comm_on_stray(struct rmx_session *session, const struct rpc_answer *answer) {
        Railmux__Session__CommDestroy body = RAILMUX__SESSION__COMM_DESTROY__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        struct rpc_call *call;

        if (answer->body != RAILMUX__SESSION__MESSAGE__BODY_COMM_REPLY || !answer->comm.handle ||
            comm_find(session, answer->comm.handle))
                return;
        DL_FOREACH(session->rpc.calls, call) {
                if (!call->done && is_join(call))
                        return;
        }
        body.handle = answer->comm.handle;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_DESTROY;
        message.comm_destroy = &body;
        rpc_post_locked(&session->rpc, &message);
}

/* The answer to a join: the comm is in the list from here on. */
static void comm_on_answer(struct rpc_call *call) {
        struct rmx_comm *comm = call->userdata;
        const struct rpc_answer *answer = &call->answer;

        if (answer->body != RAILMUX__SESSION__MESSAGE__BODY_COMM_REPLY || !answer->comm.handle)
                return;
        comm->handle = answer->comm.handle;
        comm->n_ranks = answer->comm.n_ranks;
        comm->rank = answer->comm.rank;
        comm->gpu = answer->comm.gpu;
        comm->exchange_min = answer->comm.exchange_min;
        comm->exchange_max = answer->comm.exchange_max;
        comm->n_placed = answer->comm.n_placed;
        memcpy(comm->node, answer->comm.node, sizeof(comm->node));
        atomic_init(&comm->epoch, answer->comm.epoch);
        DL_APPEND(comm->session->comms, comm);
}

/* ---- join -----------------------------------------------------------------------------------------------------------
 */
struct rmx_comm *comm_free(struct rmx_comm *comm) {
        struct rmx_session *session;

        if (!comm)
                return NULL;
        session = comm->session;
        if (comm->handle) {
                pthread_mutex_lock(&session->rpc.mutex);
                DL_DELETE(session->comms, comm);
                pthread_mutex_unlock(&session->rpc.mutex);
        }
        device_part(comm);
        redops_free(comm);
        rmx_cancel_free(comm->cancel);
        free(comm->nodes);
        free(comm);
        return NULL;
}

/* This rank joins no more. If it has not called yet, the others would not hear of it: then it calls first. */
static void join_take_back(struct rmx_session *session, const struct rpc_call *join) {
        Railmux__Session__CommAbort body = RAILMUX__SESSION__COMM_ABORT__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;

        if (join->message->body_case == RAILMUX__SESSION__MESSAGE__BODY_COMM_CREATE) {
                body.comm_id = join->message->comm_create->comm_id;
                body.rank = join->message->comm_create->rank;
        } else {
                body.parent = join->message->comm_split->parent;
                body.number = join->message->comm_split->number;
        }
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_ABORT;
        message.comm_abort = &body;
        pthread_mutex_lock(&session->rpc.mutex);
        if (!join->sent)
                rpc_post_locked(&session->rpc, join->message);
        rpc_post_locked(&session->rpc, &message);
        pthread_mutex_unlock(&session->rpc.mutex);
}

/* The call of a join, until it is answered, its time is over, or it is given up. */
static int join_call(struct rmx_session *session, const char *what, struct rpc_call *call,
                     const struct rmx_comm_options *options, uint64_t deadline_ns) {
        int r;

        r = session_call_until(session, what, call, RAILMUX__SESSION__MESSAGE__BODY_COMM_REPLY, options->cancel,
                               deadline_ns);
        if ((r == RMX_E_TIMEOUT || r == RMX_E_ABORTED) && !call->answer.body)
                join_take_back(session, call);
        return r == RMX_E_TIMEOUT
                       ? error_set(r, "%s: not all ranks have joined within %u ms", what, options->timeout_ms)
                       : r;
}

static int abort_call(struct rmx_comm *comm, const char *what, uint64_t deadline_ns) {
        Railmux__Session__CommAbort body = RAILMUX__SESSION__COMM_ABORT__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        struct rpc_call call = {.message = &message};

        body.handle = comm->handle;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_ABORT;
        message.comm_abort = &body;
        return session_call(comm->session, what, &call, RAILMUX__SESSION__MESSAGE__BODY_ACK, deadline_ns);
}

/* A comm that the daemon has made and this rank cannot have. Returns the code; its text stays. */
static int join_undo(struct rmx_comm *comm, const char *what, bool granted, int code) {
        char text[ERROR_TEXT_BYTES];
        bool silent = false;

        snprintf(text, sizeof(text), "%s", rmx_last_error());
        /* A request of the join's own may be under way, or the others may be about to exchange; an abort ends that,
         * here and at the other ranks. */
        if (comm->device && (granted || (comm->number && !device_finish(comm, 0)))) {
                if (!comm_status(comm)) {
                        int r = abort_call(comm, what, clock_now_ns() + ABORT_ANSWER_NS);

                        if (!r)
                                comm_fail(comm, ring_status(RMX_E_ABORTED, (int32_t)comm->rank));
                        silent = r == RMX_E_TIMEOUT;
                }
                if (silent) { /* perhaps there was no room for it; twice does no harm */
                        pthread_mutex_lock(&comm->session->rpc.mutex);
                        comm_abort_locked(comm, 0);
                        pthread_mutex_unlock(&comm->session->rpc.mutex);
                }
                if (comm_status(comm)) /* and so for a moment only */
                        (void)device_finish(comm, RPC_NO_DEADLINE);
        }
        (void)comm_leave(comm, what, silent ? 0 : clock_now_ns() + ABORT_ANSWER_NS);
        comm_free(comm);
        return error_set(code, "%s", text);
}

/* What this rank says of exchange, before it is known whether it can. */
static uint32_t comm_exchange(const struct rmx_comm_options *options) {
        return options->flags & RMX_COMM_DEVICE_CALLS ? 0 : CLIENT_GPU_EXCHANGE_VERSION;
}

/* Makes the call (COMM_CREATE or COMM_SPLIT) and the comm. *ret_comm is NULL if the daemon gave no handle. */
static int comm_join(struct rmx_session *session, const char *what, Railmux__Session__Message *message,
                     const struct rmx_comm_options *options, struct rmx_comm **ret_comm) {
        struct rpc_call call = {.message = message, .on_answer = comm_on_answer};
        const uint64_t deadline_ns = session_deadline(options->timeout_ms);
        struct rmx_comm *comm;
        bool granted;
        int r;

        comm = calloc(1, sizeof(*comm));
        if (!comm || rmx_cancel_new(&comm->cancel)) {
                free(comm);
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", what);
        }
        comm->session = session;
        comm->spare = message->body_case == RAILMUX__SESSION__MESSAGE__BODY_COMM_SPLIT && message->comm_split->spare;
        pthread_mutex_init(&comm->redop_mutex, NULL);
        call.userdata = comm;
        r = join_call(session, what, &call, options, deadline_ns);
        if (r) {
                comm_free(comm);
                return r;
        }
        if (!comm->handle) {
                comm_free(comm);
                *ret_comm = NULL;
                return RMX_OK;
        }
        r = session_on_gpus(session)
                    ? device_join(comm, what, options->cancel, deadline_ns)
                    : session_ring_get(session, what, comm->gpu, options->cancel, deadline_ns, &comm->ring);
        if (!r && (!comm->n_ranks || comm->n_ranks > COMM_RANKS_MAX || comm->rank >= comm->n_ranks))
                r = error_set(RMX_E_INTERNAL, "%s: the daemon made this rank %u of %u", what, comm->rank,
                              comm->n_ranks);
        granted = comm->exchange_max || comm->n_placed;
        if (!r)
                r = device_exchange_join(comm, what, comm_exchange(options), options, deadline_ns);
        if (!r)
                r = device_nodes_join(comm, what, comm_exchange(options), options, deadline_ns);
        if (r)
                return join_undo(comm, what, granted, r);
        *ret_comm = comm;
        return RMX_OK;
}

static int comm_options(const char *what, const struct rmx_session *session, const struct rmx_comm_options *opt,
                        struct rmx_comm_options *options) {
        int r;

        *options = (struct rmx_comm_options){.size = sizeof(*options), .gpu = -1};
        if (!opt)
                return RMX_OK;
        r = session_options_grown(what, options, sizeof(*options), offsetof(struct rmx_comm_options, cancel), opt);
        if (r)
                return r;
        if (options->gpu < -1 || (options->gpu >= 0 && (uint32_t)options->gpu >= session->n_gpus))
                return error_set(RMX_E_INVALID, "%s: opt->gpu %d is not in -1..%u", what, options->gpu,
                                 session->n_gpus - 1);
        if (options->flags & ~(RMX_COMM_DEVICE_CALLS | RMX_COMM_ORDERED_TRANSFERS))
                return error_set(RMX_E_INVALID,
                                 "%s: opt->flags is 0x%x; allowed: RMX_COMM_DEVICE_CALLS (0x%x), "
                                 "RMX_COMM_ORDERED_TRANSFERS (0x%x), both, or 0",
                                 what, options->flags, RMX_COMM_DEVICE_CALLS, RMX_COMM_ORDERED_TRANSFERS);
        return session_name_check(what, options->name);
}

/* comm: whose id it is to be, 0: a fresh one. */
static int id_create(struct rmx_session *session, const char *what, uint32_t comm, uint64_t number,
                     struct rmx_id *ret_id) {
        Railmux__Session__IdCreate body = RAILMUX__SESSION__ID_CREATE__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        struct rpc_call call = {.message = &message};
        int r;

        if (!ret_id)
                return error_set(RMX_E_INVALID, "%s: ret_id is NULL", what);
        body.comm = comm;
        body.number = number;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_ID_CREATE;
        message.id_create = &body;
        r = session_call(session, what, &call, RAILMUX__SESSION__MESSAGE__BODY_ID_REPLY, RPC_NO_DEADLINE);
        if (r)
                return r;
        memcpy(ret_id->bytes, call.answer.id.bytes, sizeof(ret_id->bytes));
        return RMX_OK;
}

int rmx_get_id(struct rmx_session *session, struct rmx_id *ret_id) {
        int r = session_check(session, __func__);

        return r ? r : id_create(session, __func__, 0, 0, ret_id);
}

int rmx_comm_id(struct rmx_comm *comm, uint64_t number, struct rmx_id *ret_id) {
        int r = comm_check(comm, __func__);

        return r ? r : id_create(comm->session, __func__, comm->handle, number, ret_id);
}

int rmx_comm_create(struct rmx_session *session, const struct rmx_id *id, uint32_t n_ranks, uint32_t rank,
                    const struct rmx_comm_options *opt, struct rmx_comm **ret_comm) {
        Railmux__Session__CommCreate body = RAILMUX__SESSION__COMM_CREATE__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        struct rmx_comm_options options;
        struct rmx_comm *comm;
        int r;

        r = session_check(session, __func__);
        if (!r)
                r = group_refuse(__func__);
        if (r)
                return r;
        if (!id || !ret_comm)
                return error_set(RMX_E_INVALID, "%s: %s is NULL", __func__, id ? "ret_comm" : "id");
        if (!n_ranks || n_ranks > COMM_RANKS_MAX)
                return error_set(RMX_E_INVALID, "%s: n_ranks %u is not in 1..%u", __func__, n_ranks, COMM_RANKS_MAX);
        if (rank >= n_ranks)
                return error_set(RMX_E_INVALID, "%s: rank %u is out of range; n_ranks is %u", __func__, rank, n_ranks);
        r = comm_options(__func__, session, opt, &options);
        if (r)
                return r;
        body.comm_id.data = (uint8_t *)id->bytes; /* the library only reads it */
        body.comm_id.len = sizeof(id->bytes);
        body.n_ranks = n_ranks;
        body.rank = rank;
        body.gpu = options.gpu;
        body.exchange = comm_exchange(&options);
        if (options.name)
                body.name = (char *)options.name;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_CREATE;
        message.comm_create = &body;
        r = comm_join(session, __func__, &message, &options, &comm);
        if (r)
                return r;
        if (!comm)
                return error_set(RMX_E_INTERNAL, "%s: the daemon's answer carries no handle", __func__);
        *ret_comm = comm;
        return RMX_OK;
}

int comm_split_as(struct rmx_comm *comm, const char *what, int32_t colour, int32_t key, bool spare,
                  const struct rmx_comm_options *options, struct rmx_comm **ret_comm) {
        Railmux__Session__CommSplit body = RAILMUX__SESSION__COMM_SPLIT__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;

        if (comm_status(comm))
                return comm_report(comm, what, comm_status(comm));
        body.parent = comm->handle;
        /* relaxed; partner: itself, in other threads that split the same comm. Only uniqueness counts. */
        body.number = atomic_fetch_add_explicit(&comm->splits, 1, memory_order_relaxed) + 1;
        body.colour = colour;
        body.key = key;
        body.gpu = options->gpu;
        body.exchange = comm_exchange(options);
        body.spare = spare;
        if (options->name)
                body.name = (char *)options->name;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_SPLIT;
        message.comm_split = &body;
        return comm_join(comm->session, what, &message, options, ret_comm);
}

int rmx_comm_split(struct rmx_comm *comm, int32_t colour, int32_t key, const struct rmx_comm_options *opt,
                   struct rmx_comm **ret_comm) {
        struct rmx_comm_options options;
        int r;

        r = comm_check(comm, __func__);
        if (!r)
                r = group_refuse(__func__);
        if (r)
                return r;
        if (!ret_comm)
                return error_set(RMX_E_INVALID, "%s: ret_comm is NULL", __func__);
        r = comm_options(__func__, comm->session, opt, &options);
        return r ? r : comm_split_as(comm, __func__, colour, key, false, &options, ret_comm);
}

/* ---- leave ----------------------------------------------------------------------------------------------------------
 */
int comm_leave(struct rmx_comm *comm, const char *what, uint64_t deadline_ns) {
        Railmux__Session__CommDestroy body = RAILMUX__SESSION__COMM_DESTROY__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        struct rpc_call call = {.message = &message};
        int r = RMX_E_TIMEOUT;

        body.handle = comm->handle;
        body.last_sequence = comm->last_sequence;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_DESTROY;
        message.comm_destroy = &body;
        if (deadline_ns)
                r = session_call(comm->session, what, &call, RAILMUX__SESSION__MESSAGE__BODY_ACK, deadline_ns);
        /* Sent or not: a call that is over is not sent again. The handle is never another communicator's. */
        if (r == RMX_E_TIMEOUT) {
                pthread_mutex_lock(&comm->session->rpc.mutex);
                rpc_post_sure_locked(&comm->session->rpc, &message);
                pthread_mutex_unlock(&comm->session->rpc.mutex);
        }
        return r;
}

int comm_destroy_as(struct rmx_comm *comm, const char *what, uint64_t deadline_ns) {
        int r;

        if (comm->device)
                (void)device_finish(comm, deadline_ns);
        else
                requests_finish(comm);
        device_nodes_part(comm, what);
        r = comm_leave(comm, what, deadline_ns);
        comm_free(comm);
        return r;
}

int rmx_comm_destroy(struct rmx_comm *comm) {
        int r;

        if (!comm)
                return RMX_OK;
        r = comm_check(comm, __func__);
        if (!r)
                r = group_refuse(__func__);
        return r ? r : comm_destroy_as(comm, __func__, RPC_NO_DEADLINE);
}

void comm_abort_locked(struct rmx_comm *comm, uint32_t status) {
        Railmux__Session__CommAbort body = RAILMUX__SESSION__COMM_ABORT__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;

        body.handle = comm->handle;
        if (ring_status_code(status) == RMX_E_MISMATCH && ring_status_rank(status) >= 0)
                body.status = status;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_ABORT;
        message.comm_abort = &body;
        rpc_post_locked(&comm->session->rpc, &message);
}

int comm_abort_as(struct rmx_comm *comm, const char *what) {
        int r;

        rmx_cancel_set(comm->cancel);
        r = abort_call(comm, what, clock_now_ns() + ABORT_ANSWER_NS);
        if (r == RMX_E_TIMEOUT || r == RMX_E_DAEMON_LOST) {
                comm_fail(comm, ring_status(RMX_E_ABORTED, (int32_t)comm->rank));
                /* relaxed; partner: the load in comm_is_cut. */
                atomic_store_explicit(&comm->cut, !comm->device, memory_order_relaxed);
        }
        if (r == RMX_E_TIMEOUT) /* the other ranks have to hear of it; a second call does no harm */
                r = abort_call(comm, what, RPC_NO_DEADLINE);
        if (r)
                return r;
        comm_fail(comm, ring_status(RMX_E_ABORTED, (int32_t)comm->rank));
        return RMX_OK;
}

int rmx_comm_abort(struct rmx_comm *comm) {
        int r = comm_check(comm, __func__);

        if (r)
                return r;
        r = comm_abort_as(comm, __func__);
        device_nodes_abort(comm, __func__);
        return r;
}

/* ---- accessors ------------------------------------------------------------------------------------------------------
 */
int rmx_comm_error(const struct rmx_comm *comm) {
        uint32_t status;
        int r;

        r = comm_check(comm, __func__);
        if (r)
                return r;
        if (!comm_status(comm))
                session_look(comm->session);
        if (comm->device) {
                status = device_status((struct rmx_comm *)comm, true); /* as with an event that is read here */
                if (status)
                        return comm_report(comm, __func__, status);
        }
        status = comm_status(comm);
        if (status)
                return comm_report(comm, __func__, status);
        if (comm->ring && session_gone(comm->session, comm->ring))
                return comm_report(comm, __func__, ring_status(RMX_E_DAEMON_LOST, -1));
        return RMX_OK;
}

int32_t rmx_comm_failed_rank(const struct rmx_comm *comm) {
        uint32_t status = comm ? comm_status(comm) : 0;

        return status ? ring_status_rank(status) : -1;
}

uint32_t rmx_comm_rank(const struct rmx_comm *comm) {
        return comm ? comm->rank : 0;
}

uint32_t rmx_comm_size(const struct rmx_comm *comm) {
        return comm ? comm->n_ranks : 0;
}
