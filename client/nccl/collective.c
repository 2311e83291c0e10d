/* SPDX-License-Identifier: MIT */
/*
 * Collectives, sends and receives. Types, reductions and residences have the same numbers on both sides, so that a call
 * is handed on with its arguments as they are, and librailmux checks them.
 *
 * On the host backend there are no streams: the argument is not looked at, and the call returns when the result is
 * there; in a group, the end of the group does. On a communicator that does not block it is only started (pending.c).
 */
#include "client/nccl/call.h"
#include "client/nccl/comm.h"
#include "client/nccl/error.h"
#include "client/nccl/export.h"
#include "client/nccl/fallback.h"
#include "client/nccl/group.h"
#include "client/nccl/log.h"
#include "client/nccl/pending.h"
#include "client/nccl/redop.h"
#include "client/nccl/room.h"
#include "client/nccl/transfer.h"
#include "client/nccl/waits.h"
#include "railmux/railmux.h"

_Static_assert((int)ncclFloat8e5m2 == RMX_FLOAT8_E5M2 && (int)ncclNumTypes == RMX_TYPE_COUNT, "types");
_Static_assert((int)ncclAvg == RMX_AVG && (int)ncclNumOps == RMX_PREMUL_SUM, "reductions");

static ncclResult_t call_begin(struct ncclComm *comm, const char *what, size_t count, ncclStream_t stream) {
        ncclResult_t result = comm_enter(comm, what);

        if (result)
                return group_note(result);
        result = comm->real ? group_enter_fallback(comm->fallback) : group_enter(comm);
        if (result) {
                comm_exit(comm);
                return group_note(result);
        }
        if (log_wants(LOG_TRACE))
                log_line(LOG_TRACE, "%s: comm %p count %zu stream %p", what, (void *)comm, count, (void *)stream);
        return ncclSuccess;
}

static int start_one(const void *userdata, struct rmx_request *request) {
        return call_issue(userdata, NULL, request);
}

static int wait_one(void *userdata) {
        return call_issue(userdata, NULL, NULL);
}

/* On the host backend, where it is done then. */
static ncclResult_t issue_waiting(struct call *call, const char *what) {
        ncclResult_t result = pending_refuse(call->comm, what);
        char text[ROOM_TEXT_BYTES];
        int r;

        if (result)
                return result;
        waits_begin();
        r = room_call(wait_one, call, true, text);
        waits_end();
        return r == RMX_E_BUSY ? error_adopt_text(what, r, text) : comm_result(call->comm, what, r);
}

/* Recorded in the thread's group, or done. */
static ncclResult_t issue_now(struct call *call, const char *what, ncclStream_t stream) {
        struct ncclComm *comm = call->comm;
        ncclResult_t result;

        if (comm->host && !group_active())
                return issue_waiting(call, what);
        result = comm_result(comm, what, call_issue(call, comm_stream(comm, stream), NULL));
        return result || !group_active() || !comm->host ? result : group_call(what, call);
}

/* One of equal parts that has none is no call at all, also if other ranks do not make it: so it is with NCCL. */
static bool is_empty(const struct call *call) {
        return !call->count && call->kind != CALL_ALL_TO_ALL_V && call->kind != CALL_SEND && call->kind != CALL_RECV;
}

/* What librailmux would find wrong in it; redop_take has looked for reductions that a program has made. An error of the
 * communicator that passes is heard once, so it is kept for who asks later. */
static ncclResult_t check_empty(const struct call *call, const char *what) {
        ncclResult_t result;

        if (!rmx_type_size(call->type))
                return error_raise(ncclInvalidArgument, "%s: there is no type %d", what, (int)call->type);
        if (call->peer >= (uint32_t)call->comm->n_ranks)
                return error_raise(ncclInvalidArgument, "%s: root %d is no rank", what, (int)call->peer);
        if (call->redop > INT_MAX)
                return error_raise(ncclInvalidArgument, "%s: there is no reduction %d", what, (int)call->redop);
        result = comm_result(call->comm, what, rmx_comm_error(call->comm->rmx));
        if (result)
                atomic_store(&call->comm->error, result);
        return result;
}

/* On a communicator of the daemon: ncclSuccess when it is done or on its stream, or ncclInProgress. */
static ncclResult_t issue(struct call call, struct ncclComm *comm, const char *what, ncclStream_t stream) {
        struct pending *pending;
        ncclResult_t result, ended;
        bool behind;

        call.comm = comm;
        if (is_empty(&call))
                return check_empty(&call, what);
        if (!pending_wanted(comm))
                return issue_now(&call, what, stream);
        result = pending_check(comm, what, &behind);
        if (result)
                return result;
        if (!behind) {
                pending = pending_new(what, comm, NULL);
                return pending ? pending_start(pending, start_one, &call) : ncclSystemError;
        }
        /* Earlier calls come first: a group of one waits for them. */
        result = ncclGroupStart();
        if (!result)
                result = group_note(group_enter(comm));
        if (!result)
                result = group_note(issue_now(&call, what, stream));
        ended = ncclGroupEnd();
        return result ? result : ended;
}

static ncclResult_t call_end(struct ncclComm *comm, ncclResult_t result) {
        comm_exit(comm);
        return group_note(result);
}

/* ---- with a reduction -------------------------------------------------------------------------------------------- */
ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, ncclStream_t stream) {
        ncclResult_t result = call_begin(comm, __func__, count, stream);
        struct redop_use use;

        if (result)
                return result;
        if (comm->real)
                return call_end(comm, FALLBACK(comm->fallback, ncclAllReduce, sendbuff, recvbuff, count, datatype, op,
                                               comm->real, stream));
        result = redop_take(comm, __func__, op, datatype, stream, &use);
        if (!result) {
                result = issue((struct call){.kind = CALL_ALL_REDUCE,
                                             .in = sendbuff,
                                             .out = recvbuff,
                                             .count = count,
                                             .type = datatype,
                                             .redop = use.redop},
                               comm, __func__, stream);
                redop_drop(comm, &use);
        }
        return call_end(comm, result);
}
TWIN(ncclAllReduce);

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, ncclStream_t stream) {
        ncclResult_t result = call_begin(comm, __func__, count, stream);
        struct redop_use use;

        if (result)
                return result;
        if (comm->real)
                return call_end(comm, FALLBACK(comm->fallback, ncclReduce, sendbuff, recvbuff, count, datatype, op,
                                               root, comm->real, stream));
        result = redop_take(comm, __func__, op, datatype, stream, &use);
        if (!result) {
                result = issue((struct call){.kind = CALL_REDUCE,
                                             .in = sendbuff,
                                             .out = recvbuff,
                                             .count = count,
                                             .type = datatype,
                                             .redop = use.redop,
                                             .peer = (uint32_t)root},
                               comm, __func__, stream);
                redop_drop(comm, &use);
        }
        return call_end(comm, result);
}
TWIN(ncclReduce);

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream) {
        ncclResult_t result = call_begin(comm, __func__, recvcount, stream);
        struct redop_use use;

        if (result)
                return result;
        if (comm->real)
                return call_end(comm, FALLBACK(comm->fallback, ncclReduceScatter, sendbuff, recvbuff, recvcount,
                                               datatype, op, comm->real, stream));
        result = redop_take(comm, __func__, op, datatype, stream, &use);
        if (!result) {
                result = issue((struct call){.kind = CALL_REDUCE_SCATTER,
                                             .in = sendbuff,
                                             .out = recvbuff,
                                             .count = recvcount,
                                             .type = datatype,
                                             .redop = use.redop},
                               comm, __func__, stream);
                redop_drop(comm, &use);
        }
        return call_end(comm, result);
}
TWIN(ncclReduceScatter);

ncclResult_t ncclAllReduceWithBias(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                   ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream, const void *acc) {
        ncclResult_t result = call_begin(comm, __func__, count, stream);

        if (result)
                return result;
        if (comm->real)
                return call_end(comm, FALLBACK(comm->fallback, ncclAllReduceWithBias, sendbuff, recvbuff, count,
                                               datatype, op, comm->real, stream, acc));
        return call_end(comm, error_raise(ncclInvalidUsage,
                                          "%s: the daemon adds no bias; call ncclAllReduce and add it", __func__));
}
TWIN(ncclAllReduceWithBias);

/* ---- without ----------------------------------------------------------------------------------------------------- */
ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, ncclStream_t stream) {
        ncclResult_t result = call_begin(comm, __func__, sendcount, stream);

        if (result)
                return result;
        if (comm->real)
                result = FALLBACK(comm->fallback, ncclAllGather, sendbuff, recvbuff, sendcount, datatype, comm->real,
                                  stream);
        else
                result = issue((struct call){.kind = CALL_ALL_GATHER,
                                             .in = sendbuff,
                                             .out = recvbuff,
                                             .count = sendcount,
                                             .type = datatype},
                               comm, __func__, stream);
        return call_end(comm, result);
}
TWIN(ncclAllGather);

static ncclResult_t broadcast(const char *what, const void *sendbuff, void *recvbuff, size_t count,
                              ncclDataType_t datatype, int root, ncclComm_t comm, ncclStream_t stream) {
        ncclResult_t result = call_begin(comm, what, count, stream);

        if (result)
                return result;
        if (comm->real)
                result = FALLBACK(comm->fallback, ncclBroadcast, sendbuff, recvbuff, count, datatype, root, comm->real,
                                  stream);
        else
                result = issue((struct call){.kind = CALL_BROADCAST,
                                             .in = sendbuff,
                                             .out = recvbuff,
                                             .count = count,
                                             .type = datatype,
                                             .peer = (uint32_t)root},
                               comm, what, stream);
        return call_end(comm, result);
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, ncclStream_t stream) {
        return broadcast(__func__, sendbuff, recvbuff, count, datatype, root, comm, stream);
}
TWIN(ncclBroadcast);

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       ncclStream_t stream) {
        return broadcast(__func__, buff, buff, count, datatype, root, comm, stream);
}
TWIN(ncclBcast);

ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, ncclStream_t stream) {
        ncclResult_t result = call_begin(comm, __func__, count, stream);

        if (result)
                return result;
        if (comm->real)
                result = FALLBACK(comm->fallback, ncclGather, sendbuff, recvbuff, count, datatype, root, comm->real,
                                  stream);
        else
                result = issue((struct call){.kind = CALL_GATHER,
                                             .in = sendbuff,
                                             .out = recvbuff,
                                             .count = count,
                                             .type = datatype,
                                             .peer = (uint32_t)root},
                               comm, __func__, stream);
        return call_end(comm, result);
}
TWIN(ncclGather);

ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, ncclStream_t stream) {
        ncclResult_t result = call_begin(comm, __func__, count, stream);

        if (result)
                return result;
        if (comm->real)
                result = FALLBACK(comm->fallback, ncclScatter, sendbuff, recvbuff, count, datatype, root, comm->real,
                                  stream);
        else
                result = issue((struct call){.kind = CALL_SCATTER,
                                             .in = sendbuff,
                                             .out = recvbuff,
                                             .count = count,
                                             .type = datatype,
                                             .peer = (uint32_t)root},
                               comm, __func__, stream);
        return call_end(comm, result);
}
TWIN(ncclScatter);

static ncclResult_t all_to_all(const char *what, const void *sendbuff, void *recvbuff, size_t count,
                               ncclDataType_t datatype, ncclComm_t comm, ncclStream_t stream) {
        ncclResult_t result = call_begin(comm, what, count, stream);

        if (result)
                return result;
        if (!comm->real)
                result = issue((struct call){.kind = CALL_ALL_TO_ALL,
                                             .in = sendbuff,
                                             .out = recvbuff,
                                             .count = count,
                                             .type = datatype},
                               comm, what, stream);
        else if (comm->fallback->ncclAlltoAll)
                result =
                        FALLBACK(comm->fallback, ncclAlltoAll, sendbuff, recvbuff, count, datatype, comm->real, stream);
        else
                result =
                        FALLBACK(comm->fallback, ncclAllToAll, sendbuff, recvbuff, count, datatype, comm->real, stream);
        return call_end(comm, result);
}

ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          ncclStream_t stream) {
        return all_to_all(__func__, sendbuff, recvbuff, count, datatype, comm, stream);
}
TWIN(ncclAlltoAll);

ncclResult_t ncclAllToAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          ncclStream_t stream) {
        return all_to_all(__func__, sendbuff, recvbuff, count, datatype, comm, stream);
}
TWIN(ncclAllToAll);

ncclResult_t ncclAllToAllv(const void *sendbuff, const size_t sendcounts[], const size_t sdispls[], void *recvbuff,
                           const size_t recvcounts[], const size_t rdispls[], ncclDataType_t datatype, ncclComm_t comm,
                           ncclStream_t stream) {
        ncclResult_t result = call_begin(comm, __func__, 0, stream);

        if (result)
                return result;
        if (!comm->real)
                result = issue((struct call){.kind = CALL_ALL_TO_ALL_V,
                                             .in = sendbuff,
                                             .out = recvbuff,
                                             .type = datatype,
                                             .vector = {sendcounts, sdispls, recvcounts, rdispls}},
                               comm, __func__, stream);
        else if (comm->fallback->ncclAllToAllv)
                result = FALLBACK(comm->fallback, ncclAllToAllv, sendbuff, sendcounts, sdispls, recvbuff, recvcounts,
                                  rdispls, datatype, comm->real, stream);
        else
                result = FALLBACK(comm->fallback, ncclAlltoAllv, sendbuff, sendcounts, sdispls, recvbuff, recvcounts,
                                  rdispls, datatype, comm->real, stream);
        return call_end(comm, result);
}
TWIN(ncclAllToAllv);

ncclResult_t ncclAlltoAllv(const void *sendbuff, const size_t sendcounts[], const size_t sdispls[], void *recvbuff,
                           const size_t recvcounts[], const size_t rdispls[], ncclDataType_t datatype, ncclComm_t comm,
                           ncclStream_t stream) {
        return ncclAllToAllv(sendbuff, sendcounts, sdispls, recvbuff, recvcounts, rdispls, datatype, comm, stream);
}
TWIN(ncclAlltoAllv);

/* ---- between two ranks ------------------------------------------------------------------------------------------- */
/* On the host backend kept until the end of the group. */
static ncclResult_t transfer_grouped(const struct transfer *transfer, struct call call, const char *what,
                                     ncclStream_t stream) {
        struct ncclComm *comm = transfer->comm;
        ncclResult_t result = comm->host ? ncclSuccess : group_enter(comm);

        if (!result)
                result = comm->host ? group_transfer(what, transfer) : issue(call, comm, what, stream);
        if (!result && transfer->peer == (uint32_t)comm->rank)
                result = group_self(comm, transfer->sends);
        return result;
}

/* One that has to wait for earlier calls is a group of one, as is one to its own rank, whose end says what it lacks. */
static ncclResult_t transfer(struct ncclComm *comm, const char *what, bool sends, void *address, size_t count,
                             ncclDataType_t type, int peer, ncclStream_t stream) {
        const struct transfer kept = {
                .comm = comm, .address = address, .count = count, .type = type, .peer = (uint32_t)peer, .sends = sends};
        const struct call call = {.kind = sends ? CALL_SEND : CALL_RECV,
                                  .in = address,
                                  .out = address,
                                  .count = count,
                                  .type = type,
                                  .peer = (uint32_t)peer};
        ncclResult_t result, ended;

        if (group_active())
                return transfer_grouped(&kept, call, what, stream);
        if (peer != comm->rank && (!pending_wanted(comm) || !pendings_unstarted(comm)))
                return issue(call, comm, what, stream);
        result = ncclGroupStart();
        if (!result)
                result = group_note(transfer_grouped(&kept, call, what, stream));
        ended = ncclGroupEnd();
        return result ? result : ended;
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      ncclStream_t stream) {
        ncclResult_t result = call_begin(comm, __func__, count, stream);

        if (result)
                return result;
        return call_end(
                comm, comm->real
                              ? FALLBACK(comm->fallback, ncclSend, sendbuff, count, datatype, peer, comm->real, stream)
                              : transfer(comm, __func__, true, (void *)sendbuff, count, datatype, peer, stream));
}
TWIN(ncclSend);

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      ncclStream_t stream) {
        ncclResult_t result = call_begin(comm, __func__, count, stream);

        if (result)
                return result;
        return call_end(comm, comm->real ? FALLBACK(comm->fallback, ncclRecv, recvbuff, count, datatype, peer,
                                                    comm->real, stream)
                                         : transfer(comm, __func__, false, recvbuff, count, datatype, peer, stream));
}
TWIN(ncclRecv);
